//! Keys that only some protocols have a use for. One without effect is worse than none: somebody relies on it.

use weir_listener::settings::Protocol;
use weir_listener::settings::Protocol::{Http, Redis, Tcp, Tls};

use crate::reader::Reader;
use crate::section::Section;
use crate::sections::{ListenerSection, UpstreamSection};

/// A key, or a table with all its keys, that only some protocols have a use for.
struct Only {
    key: &'static str,
    protocols: &'static [Protocol],
    /// The remedy for a listener, or for an upstream, of another protocol.
    help: fn(Protocol) -> &'static str,
}

const fn only(key: &'static str, protocols: &'static [Protocol], help: fn(Protocol) -> &'static str) -> Only {
    Only { key, protocols, help }
}

/// Of a listener. Keys that do not stand here have an effect whatever the protocol.
const LISTENER: [Only; 10] = [
    only("output_hard_cap", &[Redis], |_| "remove it: a client that reads slowly holds up nobody but itself"),
    only("users_file", &[Redis], users),
    only("user", &[Redis], users),
    only("redis", &[Redis], |protocol| match protocol {
        Http => "remove it, or write [listener.http]; passwords of HTTP clients are basic_auth, api_key and jwt",
        _ => "remove it: bytes pass as they are, and nobody is asked for a password",
    }),
    only("http", &[Http], |_| "remove it, or write protocol = \"http\""),
    only("server_name", &[Tls], |protocol| match protocol {
        Http => "write [[route]] with hosts",
        _ => "write protocol = \"tls\", or remove it",
    }),
    only("tls", &[Redis, Http, Tcp], |_| "write protocol = \"tcp\" to end TLS here, or remove it"),
    only("knee", KNEE, knee),
    only("knee_warn", KNEE, knee),
    only("knee_action", KNEE, knee),
];

/// What the lab can measure.
const KNEE: &[Protocol] = &[Redis, Http];

/// Of an upstream. Keys that do not stand here have an effect whatever the protocol.
const UPSTREAM: [Only; 14] = [
    only("request_timeout", &[Redis], |protocol| match protocol {
        Http => "see response_timeout and request_timeout of [listener.http] and [[route]]",
        _ => "see idle_timeout of the listener",
    }),
    only("shared_lanes", &[Redis], lanes),
    only("pinned_lanes_max", &[Redis], lanes),
    only("pinned_lanes_idle_max", &[Redis], lanes),
    only("lane_in_flight_max", &[Redis], lanes),
    only("topology", &[Redis], endpoints),
    only("read_from", &[Redis], endpoints),
    only("zone", &[Redis], endpoints),
    only("sentinel", &[Redis], endpoints),
    only("sharding", &[Redis], |_| "see balance: ring_hash and maglev"),
    only("reconnect", &[Redis], |_| "remove it: connections are made when they are needed"),
    only("redis", &[Redis], |_| "remove it: the gateway logs in at Redis servers only"),
    only("http", &[Http], |protocol| match protocol {
        Redis => "remove it; lanes and topology of Redis are keys of [[upstream]] itself",
        _ => "remove it, or write [upstream.tcp]",
    }),
    only("tcp", &[Tcp, Tls], |protocol| match protocol {
        Http => "remove it, or write [upstream.http]",
        _ => "remove it; lanes and topology of Redis are keys of [[upstream]] itself",
    }),
];

fn users(protocol: Protocol) -> &'static str {
    match protocol {
        Http => "write [listener.http.basic_auth] with users_file = \"users.htpasswd\"",
        _ => "remove it: bytes pass as they are, and nobody is asked for a password",
    }
}

fn knee(_: Protocol) -> &'static str {
    "remove it; connections_max bounds what the listener takes"
}

fn lanes(protocol: Protocol) -> &'static str {
    match protocol {
        Http => "see connections_max of [upstream.http]",
        _ => "see connections_max of [upstream.tcp]",
    }
}

fn endpoints(_: Protocol) -> &'static str {
    "write the endpoints, and how they are chosen in balance"
}

/// Of a listener.
pub(super) fn listener(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    if let Some(protocol) = &section.protocol {
        refuse(section, LISTENER.iter(), protocol.value, path, reader);
    }
}

/// Of an upstream whose listeners and routes speak `protocol`.
pub(super) fn upstream(section: &UpstreamSection, protocol: Protocol, path: &str, reader: &mut Reader<'_>) {
    refuse(section, UPSTREAM.iter(), protocol, path, reader);
}

/// Reports what is written and has no effect, each table once.
fn refuse<'o>(
    section: &impl Section,
    all: impl Iterator<Item = &'o Only>,
    protocol: Protocol,
    path: &str,
    reader: &mut Reader<'_>,
) {
    let mut given = Vec::new();
    section.given("", &mut given);
    for one in all.filter(|one| !one.protocols.contains(&protocol)) {
        let is_it =
            |path: &str| path.strip_prefix(one.key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let Some(key) = given.iter().find(|key| is_it(&key.path)) else { continue };
        let path = format!("{path}.{}", key.path);
        let (owners, have) = owners(one.protocols);
        let message = format!("`{path}` has no effect: only {owners} {have} a use for it");
        reader.problems.error(&key.span, &path, message, (one.help)(protocol));
    }
}

/// The protocols in words, and the verb.
fn owners(protocols: &[Protocol]) -> (String, &'static str) {
    let names: Vec<&str> = protocols.iter().map(|protocol| title(*protocol)).collect();
    match names.split_last() {
        Some((last, [])) => ((*last).to_owned(), "has"),
        Some((last, others)) => (format!("{} and {last}", others.join(", ")), "have"),
        None => (String::new(), "has"),
    }
}

fn title(protocol: Protocol) -> &'static str {
    match protocol {
        Redis => "Redis",
        Http => "HTTP",
        Tcp => "TCP",
        Tls => "TLS passthrough",
    }
}
