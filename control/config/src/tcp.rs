//! The tables that only TCP and TLS listeners and upstreams have.

use std::sync::Arc;

use weir_base::Names;
use weir_listener::{proxy_protocol::ProxyVersion, settings::Protocol};
use weir_tcp::settings::TcpListenerSettings;
use weir_upstream::Balance;
use weir_upstream::settings::{self as upstreams, Affinity, EjectionSettings, ExclusiveSettings};

use crate::checks::error_at;
use crate::document::At;
use crate::http::weights;
use crate::numbers::Period;
use crate::reader::Reader;
use crate::section::section;
use crate::sections::{FileSection, ListenerSection, UpstreamSection};
use crate::texts::{Choice, Endpoint, Name, Word};

/// Highest count of connections.
const COUNT_MAX: u32 = 16_777_216;

section! {
    /// Where a TLS listener sends connections that ask for a server name (SNI); others go to the `upstream` of the listener. TLS is
    /// not ended here: the upstreams show their own certificates.
    pub(crate) struct ServerNameSection {
        /// `a.example`, or `*.a.example` for all names that end so. Exact names come first, then the longest wildcard.
        required names: Vec<At<Word>>;
        /// The upstream.
        required upstream: Name;
    }
}

section! {
    /// What only upstreams of TCP and TLS listeners have. That an endpoint takes a connection is its health check.
    pub(crate) struct UpstreamTcpSection {
        /// How one of several endpoints is chosen: as in `[upstream.http]`; `ring_hash` and `maglev` keep the connections of one
        /// client address together.
        default balance: Balance = Balance::RoundRobin;
        /// Shares of the endpoints, in their order: `[3, 1]` gives the first three of four connections. 0: none. Absent: all alike.
        optional weights: Vec<At<u32>>;
        /// A PROXY header in front of each connection, which tells the endpoint the client's address: `off`, `v1` (text) or `v2`. The
        /// endpoint must expect it. Not with `upstream.tls`.
        default proxy_header: ProxyHeaderChoice = ProxyHeaderChoice::Off;
        /// Connections of each worker to each endpoint; further ones wait, no longer than `lane_wait_timeout`.
        default connections_max: u32 = 16_384 => 1..=COUNT_MAX;
        /// How long an endpoint that was down takes to get its whole share again. 0: none.
        default slow_start: Period = Period::secs(0) => Period::secs(0)..=Period::secs(3_600);
        /// Below this percentage of endpoints that are well, connections go to all of them. 0: always only to those that are well.
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

/// The upstreams that a listener names, its own first.
pub(crate) fn names_of(section: &ListenerSection) -> impl Iterator<Item = &At<Name>> {
    let named = section.server_name.iter().filter_map(|one| one.upstream.as_ref());
    let asked = section.http.policies().upstreams().map(|(_, upstream)| upstream);
    section.upstream.iter().chain(named).chain(asked)
}

/// Settings of a listener; names that do not hold were reported.
pub(crate) fn listener(
    file: &FileSection,
    section: &ListenerSection,
    protocol: Protocol,
    path: &str,
    reader: &mut Reader<'_>,
) -> TcpListenerSettings {
    let mut all: Vec<Arc<str>> = section.upstream.iter().map(|name| name.value.0.clone()).collect();
    let mut names = Names::default();
    for (index, one) in section.server_name.iter().enumerate() {
        let path = format!("{path}.server_name[{index}]");
        let Some(upstream) = &one.upstream else { continue };
        let number = all.iter().position(|known| *known == upstream.value.0).unwrap_or_else(|| {
            all.push(upstream.value.0.clone());
            all.len() - 1
        });
        for name in one.names.iter().flat_map(|list| &list.value) {
            if let Err(error) = names.add(&name.value.0, number) {
                let help = "write names as clients ask for them: \"shop.example\", or \"*.shop.example\"";
                error_at(name, &path, "names", &error.to_string(), help, reader);
            }
        }
    }
    let is_of = |one: &&UpstreamSection, name: &str| one.name.as_ref().is_some_and(|own| *own.value.0 == *name);
    let proxy_header = |name: &Arc<str>| {
        let upstream = file.upstream.iter().find(|one| is_of(one, name))?;
        match upstream.tcp.proxy_header.value {
            ProxyHeaderChoice::Off => None,
            ProxyHeaderChoice::V1 => Some(ProxyVersion::V1),
            ProxyHeaderChoice::V2 => Some(ProxyVersion::V2),
        }
    };
    TcpListenerSettings {
        proxy_headers: all.iter().map(proxy_header).collect(),
        upstreams: all,
        default_upstream: 0,
        names: (protocol == Protocol::Tls).then_some(names),
    }
}

/// Settings of an upstream with these endpoints.
pub(crate) fn upstream(
    section: &UpstreamTcpSection,
    endpoints: &[At<Endpoint>],
    has_tls: bool,
    path: &str,
    reader: &mut Reader<'_>,
) -> Arc<ExclusiveSettings> {
    if has_tls && section.proxy_header.value != ProxyHeaderChoice::Off {
        let what = "would stand inside TLS, where no server looks for it";
        error_at(&section.proxy_header, path, "proxy_header", what, "remove it, or upstream.tls", reader);
    }
    let balance = section.balance.value;
    Arc::new(ExclusiveSettings {
        balance,
        weights: weights(section.weights.as_ref(), endpoints, path, reader),
        connections_max: section.connections_max.value,
        // Every connection belongs to one client.
        idle_max: 0,
        slow_start: section.slow_start.value.0,
        panic_percent: section.panic_percent.value,
        affinity: if balance.is_hashed() { Affinity::Address } else { Affinity::None },
        ejection: EjectionSettings::default(),
        ..ExclusiveSettings::default()
    })
}
