//! Upstreams: from section to settings.

use std::sync::Arc;

use weir_engine::settings::Address;
use weir_listener::settings::Protocol;
use weir_redis_session::settings::{RedisTopology, RedisUpstreamSettings, SentinelSettings};
use weir_upstream::placement::{Distribution, KeyHash, PlacementSettings, SHARDS_MAX};
use weir_upstream::settings::{
    BreakerSettings, HealthSettings, PINNED_LANES_IDLE_MAX, ReadFrom, ReconnectSettings, Topology, UpstreamSettings,
};

use crate::checks::{Lowest, error_at, is_public, table_header, tls, unfit, warn_at};
use crate::document::At;
use crate::http;
use crate::reader::Reader;
use crate::sections::{
    FileSection, HealthSection, ListenerSection, ReconnectSection, SentinelSection, ShardingSection, TopologyChoice,
    UpstreamRedisSection, UpstreamSection,
};
use crate::snapshot::{Upstream, UpstreamProtocol};
use crate::tcp;
use crate::texts::{Endpoint, Name};

/// Every upstream that can be made; the others were reported.
pub(super) fn upstreams(file: &FileSection, reader: &mut Reader<'_>) -> Vec<Upstream> {
    let sections = file.upstream.iter().enumerate();
    sections.filter_map(|(index, section)| upstream(file, section, index, reader)).collect()
}

fn upstream(file: &FileSection, section: &UpstreamSection, index: usize, reader: &mut Reader<'_>) -> Option<Upstream> {
    let path = format!("upstream[{index}]");
    warn_unused(file, section, &path, reader);
    let endpoints = section.endpoints.as_ref();
    let protocol = protocol_of(file, section, &path, reader);
    if let Some(protocol) = protocol {
        unfit::upstream(section, protocol, &path, reader);
    }
    let protocol = protocol.unwrap_or(Protocol::Redis);
    if let Some(endpoints) = endpoints {
        check_endpoints(endpoints, section, protocol, &path, reader);
    }
    let entries = endpoints.map_or(&[][..], |endpoints| &endpoints.value);
    let tls_path = format!("{path}.tls");
    let mut tls = section.tls.as_ref().map(|tls| tls::client(tls, entries, &tls_path, reader));
    if let (Some(tls), Protocol::Http) = (&mut tls, protocol) {
        tls.alpn = http::alpn(&section.http);
    }
    let topology = match protocol {
        Protocol::Redis => redis_topology(section, entries.len(), &path, reader),
        Protocol::Http | Protocol::Tcp | Protocol::Tls => RedisTopology::Fixed,
    };
    let redis = redis(&section.redis, &format!("{path}.redis"), topology, reader);
    if protocol == Protocol::Redis {
        warn_clear_password(section, entries, &path, reader);
    }
    let lanes_max = &section.pinned_lanes_max;
    let idle_max = match &section.pinned_lanes_idle_max {
        Some(idle) => {
            let other = format!("{path}.pinned_lanes_max");
            Lowest { path: &path, key: "pinned_lanes_idle_max", other: &other }.check(idle, lanes_max, reader);
            idle.value
        }
        None => PINNED_LANES_IDLE_MAX.min(lanes_max.value),
    };
    let health = health(&section.health, &format!("{path}.health"), reader);
    let reconnect = reconnect(&section.reconnect, &format!("{path}.reconnect"), reader);
    let settings = UpstreamSettings {
        name: Arc::clone(&section.name.as_ref()?.value.0),
        endpoints: endpoints?.value.iter().map(|endpoint| endpoint.value.0.clone()).collect(),
        placement: section.sharding.as_ref().and_then(placement),
        topology: match section.topology.value {
            TopologyChoice::Fixed => Topology::Fixed,
            TopologyChoice::Cluster => Topology::Slots,
            TopologyChoice::Replicated => Topology::Primary,
            TopologyChoice::Sentinel => Topology::Watched,
        },
        read_from: section.read_from.value,
        zone: section.zone.as_ref().map(|zone| zone.value.0.clone()),
        tls,
        connect_timeout: section.connect_timeout.value.0,
        request_timeout: section.request_timeout.value.0,
        shared_lanes: section.shared_lanes.value,
        pinned_lanes_max: lanes_max.value,
        pinned_lanes_idle_max: idle_max,
        lane_waiters_max: section.lane_waiters_max.value,
        lane_wait_timeout: section.lane_wait_timeout.value.0,
        lane_in_flight_max: section.lane_in_flight_max.value,
        health,
        breaker: BreakerSettings {
            failures: section.breaker.failures.value,
            window: section.breaker.window.value.0,
            open_for: section.breaker.open_for.value.0,
        },
        reconnect,
    };
    let protocol = match protocol {
        Protocol::Redis => UpstreamProtocol::Redis(Arc::new(redis)),
        Protocol::Http => {
            let (initial, max) = (&section.http.stream_window, &section.http.stream_window_max);
            // One that is not written follows the other.
            if initial.is_given && max.is_given {
                let (path, other) = (format!("{path}.http"), format!("{path}.http.stream_window_max"));
                Lowest { path: &path, key: "stream_window", other: &other }.check(initial, max, reader);
            }
            UpstreamProtocol::Http(http::upstream(&section.http, entries, &format!("{path}.http"), reader))
        }
        Protocol::Tcp | Protocol::Tls => {
            let has_tls = section.tls.is_some();
            UpstreamProtocol::Tcp(tcp::upstream(&section.tcp, entries, has_tls, &format!("{path}.tcp"), reader))
        }
    };
    Some(Upstream { settings: Arc::new(settings), protocol })
}

/// The protocol of the listeners and routes that name this upstream; `None`: there are none of a known protocol.
fn protocol_of(file: &FileSection, section: &UpstreamSection, path: &str, reader: &mut Reader<'_>) -> Option<Protocol> {
    let name = section.name.as_ref()?;
    let names_it = |listener: &&ListenerSection| tcp::names_of(listener).any(|upstream| upstream.value == name.value);
    let of_listener = |listener: &ListenerSection| match listener.protocol.as_ref()?.value {
        // Both pass bytes on.
        Protocol::Tls => Some(Protocol::Tcp),
        protocol => Some(protocol),
    };
    let listeners = file.listener.iter().filter(names_it).filter_map(of_listener);
    let routes = file.routed_upstreams().filter(|upstream| upstream.value == name.value);
    let mut protocols = listeners.chain(routes.map(|_| Protocol::Http));
    let first = protocols.next()?;
    if let Some(other) = protocols.find(|other| *other != first) {
        let message = format!("both {first} and {other} name the upstream \"{}\"", name.value);
        let help = "give each protocol an upstream of its own".to_owned();
        reader.problems.error(&name.span, &format!("{path}.name"), message, help);
    }
    Some(first)
}

fn warn_unused(file: &FileSection, section: &UpstreamSection, path: &str, reader: &mut Reader<'_>) {
    let Some(name) = &section.name else { return };
    // While a listener names something that does not exist, it may mean this one.
    let names = file.upstream.iter().filter_map(|one| one.name.as_ref());
    let names: Vec<&Name> = names.map(|name| &name.value).collect();
    let is_explained = |listener: &ListenerSection| {
        let mut named = tcp::names_of(listener);
        listener.upstream.is_none() || named.any(|one| one.value == name.value || !names.contains(&&one.value))
    };
    let is_routed = file.routed_upstreams().any(|upstream| upstream.value == name.value);
    if !file.listener.is_empty() && !is_routed && !file.listener.iter().any(is_explained) {
        let message = format!("no listener uses the upstream \"{}\"", name.value);
        let help = format!("add upstream = \"{}\" to a [[listener]], or remove it", name.value);
        reader.problems.warning(&name.span, &format!("{path}.name"), message, help);
    }
}

fn placement(section: &ShardingSection) -> Option<PlacementSettings> {
    let distribution = section.distribution.as_ref()?.value;
    Some(PlacementSettings {
        distribution,
        hash: section.hash.as_ref().map_or(distribution.default_hash(), |hash| hash.value),
        hash_tag: section.hash_tag.as_ref().map(|tag| tag.value.0),
    })
}

fn check_endpoints(
    endpoints: &At<Vec<At<Endpoint>>>,
    section: &UpstreamSection,
    protocol: Protocol,
    path: &str,
    reader: &mut Reader<'_>,
) {
    let list = &endpoints.value;
    if list.is_empty() {
        error_at(endpoints, path, "endpoints", "is empty", "name the server, for example \"127.0.0.1:6379\"", reader);
    }
    for (index, endpoint) in list.iter().enumerate() {
        if list[..index].contains(endpoint) {
            let what = format!("names {} twice", endpoint.value.0);
            error_at(endpoint, path, "endpoints", &what, "remove one of them", reader);
        }
    }
    let is_fixed = section.topology.value == TopologyChoice::Fixed;
    if !is_fixed && section.sharding.is_some() {
        let help = format!("remove {}: the servers know where the keys are", table_header(&format!("{path}.sharding")));
        error_at(&section.topology, path, "topology", "stands beside sharding", &help, reader);
    }
    let socket = list.iter().find(|endpoint| matches!(endpoint.value.0, Address::Unix(_)));
    if let (Some(socket), false) = (socket, is_fixed) {
        let help = "name a server by host and port: so the servers know each other";
        error_at(socket, path, "endpoints", "is a socket file, and the topology not fixed", help, reader);
    }
    if list.len() > 1 && section.sharding.is_none() && is_fixed && protocol == Protocol::Redis {
        let what = format!("has {} entries, and nothing says which of them holds a key", list.len());
        let help = format!(
            "add {} with distribution = \"ketama\", for example; or, if they are a primary and its replicas, \
             topology = \"replicated\"; or keep one endpoint",
            table_header(&format!("{path}.sharding"))
        );
        error_at(&list[1], path, "endpoints", &what, &help, reader);
    }
    if let (1, Some(sharding)) = (list.len(), section.sharding.as_ref().and_then(|table| table.distribution.as_ref())) {
        let message = format!("`{path}.sharding` does nothing with one endpoint");
        let help = "name the other shards in endpoints, or remove the table".to_owned();
        reader.problems.warning(&sharding.span, &format!("{path}.sharding"), message, help);
    }
    if let Some(sharding) = section.sharding.as_ref().filter(|_| list.len() > 1) {
        warn_uneven(sharding, path, reader);
    }
    if list.len() > SHARDS_MAX {
        let what = format!("has {} entries, more than {SHARDS_MAX}", list.len());
        error_at(&list[SHARDS_MAX], path, "endpoints", &what, "split the upstream", reader);
    }
}

/// A ring on which keys that differ in few characters stand close together.
fn warn_uneven(section: &ShardingSection, path: &str, reader: &mut Reader<'_>) {
    let Some(distribution) = &section.distribution else { return };
    let hash = section.hash.as_ref().map_or(distribution.value.default_hash(), |hash| hash.value);
    let (what, help) = match (distribution.value, hash) {
        (Distribution::Ketama, KeyHash::Crc16) => (
            "has 65,536 hashes for a ring of 4,294,967,296: nearly all keys are on one endpoint",
            "write hash = \"murmur2\"",
        ),
        (Distribution::Ketama, KeyHash::Fnv1a64) if section.hash.is_none() => (
            "uses fnv1a_64, as twemproxy does: keys that differ in their last characters are spread unevenly",
            "write hash = \"murmur2\", or distribution = \"maglev\"; or, for data that twemproxy has placed, \
             hash = \"fnv1a_64\"",
        ),
        _ => return,
    };
    let path = format!("{path}.sharding");
    match &section.hash {
        Some(hash) => warn_at(hash, &path, "hash", what, help, reader),
        None => warn_at(distribution, &path, "distribution", what, help, reader),
    }
}

fn redis(
    section: &UpstreamRedisSection,
    path: &str,
    topology: RedisTopology,
    reader: &mut Reader<'_>,
) -> RedisUpstreamSettings {
    if let (Some(user), None) = (&section.user, &section.password) {
        error_at(user, path, "user", "stands without password", "add password = { env = \"NAME\" }", reader);
    }
    RedisUpstreamSettings {
        user: section.user.as_ref().map(|user| user.value.0.clone()),
        password: section.password.as_ref().map(|password| password.value.secret.clone()),
        client_name: section.client_name.value.0.clone(),
        topology,
        logins: Vec::new(),
    }
}

fn redis_topology(section: &UpstreamSection, count: usize, path: &str, reader: &mut Reader<'_>) -> RedisTopology {
    let choice = section.topology.value;
    if section.read_from.value != ReadFrom::Primary && choice == TopologyChoice::Fixed {
        let help = "write topology = \"replicated\", \"sentinel\" or \"cluster\", which find the replicas";
        error_at(
            &section.read_from,
            path,
            "read_from",
            "wants replicas, and a fixed topology names none",
            help,
            reader,
        );
    }
    if let (Some(zone), ReadFrom::Primary | ReadFrom::PreferPrimary) = (&section.zone, section.read_from.value) {
        let message = format!("`{path}.zone` does nothing while the primary is read from");
        let help = "write read_from = \"prefer_replica\", \"replica\" or \"any\", or remove it".to_owned();
        reader.problems.warning(&zone.span, &format!("{path}.zone"), message, help);
    }
    let header = table_header(&format!("{path}.sentinel"));
    match (choice, &section.sentinel) {
        (TopologyChoice::Fixed, None) => RedisTopology::Fixed,
        (TopologyChoice::Cluster, None) => RedisTopology::Cluster,
        (TopologyChoice::Replicated, None) => RedisTopology::Replicated,
        (TopologyChoice::Sentinel, Some(sentinel)) => redis_sentinel(sentinel, count, path, reader),
        (TopologyChoice::Sentinel, None) => {
            let help = format!("add {header} with service = \"mymaster\", the name that the sentinels know");
            error_at(&section.topology, path, "topology", "does not say which primary to ask for", &help, reader);
            RedisTopology::Fixed
        }
        (_, Some(_)) => {
            let help = format!("write topology = \"sentinel\", or remove {header}");
            error_at(&section.topology, path, "topology", "stands beside sentinel", &help, reader);
            RedisTopology::Fixed
        }
    }
}

fn redis_sentinel(section: &SentinelSection, count: usize, path: &str, reader: &mut Reader<'_>) -> RedisTopology {
    let path = format!("{path}.sentinel");
    if let (Some(user), None) = (&section.user, &section.password) {
        error_at(user, &path, "user", "stands without password", "add password = { env = \"NAME\" }", reader);
    }
    RedisTopology::Sentinel(SentinelSettings {
        // One without a name was reported.
        service: section.service.as_ref().map(|service| service.value.0.clone()).unwrap_or_default(),
        count: u16::try_from(count).unwrap_or(u16::MAX),
        user: section.user.as_ref().map(|user| user.value.0.clone()),
        password: section.password.as_ref().map(|password| password.value.secret.clone()),
    })
}

/// As for listeners: the gateway's own password, in clear text across the internet.
fn warn_clear_password(section: &UpstreamSection, endpoints: &[At<Endpoint>], path: &str, reader: &mut Reader<'_>) {
    let (Some(password), None) = (&section.redis.password, &section.tls) else { return };
    let public = endpoints.iter().find(|endpoint| is_public(&endpoint.value.0));
    if let Some(endpoint) = public {
        let message = format!("`{path}`: the password is sent in clear text to {}", endpoint.value.0);
        let help = format!("add {}", table_header(&format!("{path}.tls")));
        reader.problems.warning(&password.span, &format!("{path}.redis.password"), message, help);
    }
}

fn health(section: &HealthSection, path: &str, reader: &mut Reader<'_>) -> Option<HealthSettings> {
    let other = format!("{path}.interval");
    Lowest { path, key: "timeout", other: &other }.check(&section.timeout, &section.interval, reader);
    section.enabled.value.then_some(HealthSettings {
        interval: section.interval.value.0,
        timeout: section.timeout.value.0,
        unhealthy_after: section.unhealthy_after.value,
        healthy_after: section.healthy_after.value,
    })
}

fn reconnect(section: &ReconnectSection, path: &str, reader: &mut Reader<'_>) -> ReconnectSettings {
    let other = format!("{path}.max");
    Lowest { path, key: "base", other: &other }.check(&section.base, &section.max, reader);
    ReconnectSettings { base: section.base.value.0, max: section.max.value.0 }
}
