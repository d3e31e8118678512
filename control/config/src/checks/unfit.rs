//! Keys that only another protocol has a use for. One without effect is worse than none: somebody relies on it.

use weir_listener::settings::Protocol;

use crate::checks::error_at;
use crate::document::At;
use crate::reader::Reader;
use crate::sections::{ListenerSection, ReconnectSection, UpstreamSection};

/// Of a listener.
pub(super) fn listener(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let protocol = section.protocol.as_ref().map(|protocol| protocol.value);
    if protocol.is_some_and(|protocol| protocol != Protocol::Redis) {
        let help = "remove it: a client that reads slowly holds up nobody but itself";
        given(&section.output_hard_cap, path, "output_hard_cap", help, reader);
    }
}

/// Of an upstream whose listeners and routes speak `protocol`.
pub(super) fn upstream(section: &UpstreamSection, protocol: Protocol, path: &str, reader: &mut Reader<'_>) {
    if protocol == Protocol::Redis {
        return;
    }
    let http = "see response_timeout and request_timeout of [listener.http] and [[route]]";
    let deadlines = if protocol == Protocol::Http { http } else { "see idle_timeout of the listener" };
    given(&section.request_timeout, path, "request_timeout", deadlines, reader);
    let lanes = if protocol == Protocol::Http { "see connections_max of [upstream.http]" } else { "remove it" };
    given(&section.shared_lanes, path, "shared_lanes", lanes, reader);
    given(&section.pinned_lanes_max, path, "pinned_lanes_max", lanes, reader);
    given(&section.lane_in_flight_max, path, "lane_in_flight_max", lanes, reader);
    if let Some(idle) = &section.pinned_lanes_idle_max {
        given(idle, path, "pinned_lanes_idle_max", lanes, reader);
    }
    let endpoints = "write the endpoints, and how they are chosen in balance";
    given(&section.topology, path, "topology", endpoints, reader);
    given(&section.read_from, path, "read_from", endpoints, reader);
    if let Some(zone) = &section.zone {
        given(zone, path, "zone", endpoints, reader);
    }
    if let Some(distribution) = section.sharding.as_ref().and_then(|sharding| sharding.distribution.as_ref()) {
        given(distribution, path, "sharding.distribution", "see balance: ring_hash and maglev", reader);
    }
    let ReconnectSection { place: _, base, max } = &section.reconnect;
    let connections = "remove it: connections are made when they are needed";
    given(base, path, "reconnect.base", connections, reader);
    given(max, path, "reconnect.max", connections, reader);
}

fn given<T>(key: &At<T>, path: &str, name: &str, help: &str, reader: &mut Reader<'_>) {
    if key.is_given {
        error_at(key, path, name, "has no effect: only Redis has a use for it", help, reader);
    }
}
