//! TCP as it is, and TLS that goes through unopened.

use std::sync::Arc;

use weir_base::Names;
use weir_listener::{proxy_protocol::ProxyVersion, settings::ProxyProtocol};
pub(crate) use weir_tcp::settings::TcpListenerSettings as ListenerSettings;
use weir_upstream::Balance;
pub(crate) use weir_upstream::settings::ExclusiveSettings as UpstreamSettings;
use weir_upstream::settings::{self as upstreams, Affinity, BalanceSettings, PoolSettings};

use crate::checks::{error_at, find_upstream};
use crate::document::At;
use crate::numbers::Period;
use crate::protocols::{ListenerContext, NoKeys, Protocol, ProtocolName, Unfit, UpstreamContext};
use crate::reader::Reader;
use crate::section::section;
use crate::sections::{COUNT_MAX, FileSection, UpstreamSection};
use crate::shares::weights;
use crate::snapshot::{Listener, Upstream};
use crate::texts::{Choice, Name, Word};

section! {
    /// Keys of a listener.
    pub(crate) struct ListenerKeys {
        /// Upstreams of a TLS listener by the server name that clients send (SNI).
        tables server_name: ServerNameSection;
    }
}

section! {
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
        /// Settings of upstreams of TCP and TLS listeners only.
        table tcp: UpstreamTcpSection;
    }
}

section! {
    /// An upstream of a TLS listener for certain server names (SNI). Other connections go to the `upstream` of the listener. The
    /// listener does not decrypt TLS, so clients see the certificates of the upstreams.
    pub(crate) struct ServerNameSection {
        /// `a.example`, or `*.a.example` for all names below it. Exact names take precedence, then the longest wildcard.
        required names: Vec<At<Word>>;
        /// Upstream of these connections.
        required upstream: Name;
    }
}

section! {
    /// Settings of upstreams of TCP and TLS listeners only. An endpoint is healthy if it accepts a connection.
    pub(crate) struct UpstreamTcpSection {
        /// How one of several endpoints is chosen, as in `[upstream.http]`. `ring_hash` and `maglev` send the connections of one
        /// client address to the same endpoint.
        default balance: Balance = Balance::RoundRobin;
        /// Shares of the endpoints, in their order: `[3, 1]` gives the first endpoint three of four connections. 0 gives none. If
        /// absent, all shares are equal.
        optional weights: Vec<At<u32>>;
        /// PROXY header in front of each connection, with the address of the client: `off`, `v1` (text) or `v2`. The endpoint must
        /// expect the header. Not allowed with `[upstream.tls]`.
        default proxy_header: ProxyHeaderChoice = ProxyHeaderChoice::Off;
        /// Maximum number of connections to each endpoint, of all workers together. Further connections wait, at most
        /// `lane_wait_timeout`. During an upgrade, each process has a separate limit.
        default connections_max: u32 = upstreams::EXCLUSIVE_LANES_MAX => 1..=COUNT_MAX;
        /// Time over which an endpoint that was down returns to its full share. 0 disables the slow start.
        default slow_start: Period = Period::secs(0) => Period::secs(0)..=Period::secs(3_600);
        /// If fewer than this percentage of endpoints are healthy, connections go to all endpoints. With 0, connections go to
        /// unhealthy endpoints only if no healthy endpoint is left.
        default panic_percent: u32 = upstreams::PANIC_PERCENT => 0..=100;
    }
}

/// The PROXY header that endpoints are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeaderChoice {
    Off,
    V1,
    V2,
}

impl Choice for ProxyHeaderChoice {
    const WORDS: &'static [(&'static str, Self)] = &[("off", Self::Off), ("v1", Self::V1), ("v2", Self::V2)];
}

/// Its listeners share nothing.
pub(crate) type ProcessSettings = ();

/// See [`Protocol`].
pub(crate) struct Tcp;

impl Protocol for Tcp {
    type ListenerKeys = ListenerKeys;
    type UpstreamKeys = UpstreamKeys;
    type FileKeys = NoKeys;
    type TelemetryKeys = NoKeys;
    type Listener = ListenerSettings;
    type Upstream = UpstreamSettings;
    type Process = ProcessSettings;
    type File<'f> = ();

    fn unfit_at_listener(name: ProtocolName) -> &'static [Unfit] {
        const CAP: Unfit = Unfit(&["output_hard_cap"], "remove it: a client that reads slowly delays only itself");
        const USERS: Unfit =
            Unfit(&["users_file", "user", "redis"], "remove it: bytes pass unchanged, and no client needs a password");
        const TLS: Unfit = Unfit(&["tls"], "write protocol = \"tcp\" to terminate TLS here, or remove it");
        const NAMES: Unfit = Unfit(&["server_name"], "write protocol = \"tls\", or remove it");
        match name {
            ProtocolName::Tls => &[CAP, USERS, TLS],
            _ => &[CAP, USERS, NAMES],
        }
    }

    fn unfit_at_upstream(_: ProtocolName) -> &'static [Unfit] {
        const LANES: &[&str] = &["shared_lanes", "pinned_lanes_max", "pinned_lanes_idle_max", "lane_in_flight_max"];
        const ENDPOINTS: &[&str] = &["topology", "read_from", "zone", "sentinel"];
        &[
            Unfit(&["request_timeout"], "see idle_timeout of the listener"),
            Unfit(LANES, "see connections_max of [upstream.tcp]"),
            Unfit(ENDPOINTS, "write endpoints, and choose between them with balance"),
            Unfit(&["sharding"], "see balance: ring_hash and maglev"),
            Unfit(&["reconnect"], "remove it: connections are made when they are needed"),
            Unfit(&["redis"], "remove it: the gateway logs in at Redis servers only"),
            Unfit(&["http"], "remove it, or write [upstream.tcp]"),
        ]
    }

    fn upstreams_of_listener(keys: &ListenerKeys) -> Vec<&At<Name>> {
        keys.server_name.iter().filter_map(|one| one.upstream.as_ref()).collect()
    }

    fn file(_: &FileSection, _: &mut Reader<'_>) {}

    fn listener((): &(), of: &mut ListenerContext<'_>, reader: &mut Reader<'_>) -> Option<ListenerSettings> {
        check_head(of, reader);
        Some(listener(of, reader))
    }

    fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
        upstream(of, reader)
    }

    fn process(_: &FileSection, (): (), _: &[Listener], _: &mut [Upstream], _: &mut Reader<'_>) {}
}

/// Checks `head_timeout`: if bytes are passed through, only a PROXY header has an end.
fn check_head(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let timeout = &of.section.head_timeout;
    if of.protocol_name == ProtocolName::Tcp
        && timeout.is_given
        && of.section.proxy_protocol.value == ProxyProtocol::Off
    {
        let what = "has no effect: bytes pass unchanged, and no PROXY header is expected";
        let help = "set proxy_protocol, or remove it; idle_timeout ends silent connections";
        error_at(timeout, of.path, "head_timeout", what, help, reader);
    }
}

/// Settings of a listener; names that do not hold are reported.
fn listener(of: &ListenerContext<'_>, reader: &mut Reader<'_>) -> ListenerSettings {
    let section = of.section;
    let mut all: Vec<Arc<str>> = section.upstream.iter().map(|name| name.value.0.clone()).collect();
    let mut names = Names::default();
    for (index, one) in section.own.tcp.server_name.iter().enumerate() {
        let path = format!("{}.server_name[{index}]", of.path);
        let Some(upstream) = &one.upstream else { continue };
        find_upstream(of.file, upstream, &path, "upstream", reader);
        let number = all.iter().position(|known| *known == upstream.value.0).unwrap_or_else(|| {
            all.push(upstream.value.0.clone());
            all.len() - 1
        });
        for name in one.names.iter().flat_map(|list| &list.value) {
            if let Err(error) = names.add(&name.value.0, number) {
                let help = "write names as clients send them: \"shop.example\", or \"*.shop.example\"";
                error_at(name, &path, "names", &error.to_string(), help, reader);
            }
        }
    }
    let is_of = |one: &&UpstreamSection, name: &str| one.name.as_ref().is_some_and(|own| *own.value.0 == *name);
    let proxy_header = |name: &Arc<str>| {
        let upstream = of.file.upstream.iter().find(|one| is_of(one, name))?;
        match upstream.own.tcp.tcp.proxy_header.value {
            ProxyHeaderChoice::Off => None,
            ProxyHeaderChoice::V1 => Some(ProxyVersion::V1),
            ProxyHeaderChoice::V2 => Some(ProxyVersion::V2),
        }
    };
    ListenerSettings {
        proxy_headers: all.iter().map(proxy_header).collect(),
        upstreams: all,
        default_upstream: 0,
        names: (of.protocol_name == ProtocolName::Tls).then_some(names),
    }
}

/// Settings of an upstream.
fn upstream(of: &UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
    let (section, path) = (&of.section.own.tcp.tcp, format!("{}.tcp", of.path));
    if of.section.tls.is_some() && section.proxy_header.value != ProxyHeaderChoice::Off {
        let what = "would be sent inside TLS, where no server expects it";
        error_at(&section.proxy_header, &path, "proxy_header", what, "remove it, or upstream.tls", reader);
    }
    let balance = section.balance.value;
    UpstreamSettings {
        balancing: BalanceSettings {
            balance,
            weights: weights(section.weights.as_ref(), of.endpoints, &path, reader),
            slow_start: section.slow_start.value.0,
            panic_percent: section.panic_percent.value,
            ..BalanceSettings::default()
        },
        affinity: if balance.is_hashed() { Affinity::Address } else { Affinity::None },
        pool: PoolSettings {
            connections_max: section.connections_max.value,
            // Every connection belongs to one client.
            idle_max: 0,
            ..PoolSettings::default()
        },
    }
}
