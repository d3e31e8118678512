//! Upstreams: from section to settings.

use std::sync::Arc;

use weir_upstream::placement::SHARDS_MAX;
use weir_upstream::settings::{BreakerSettings, HealthSettings, UpstreamSettings};

use crate::checks::{Lowest, error_at, tls, unfit};
use crate::document::At;
use crate::protocols::{self, ProtocolName, UpstreamContext};
use crate::reader::Reader;
use crate::sections::{FileSection, HealthSection, ListenerSection, UpstreamSection};
use crate::snapshot::Upstream;
use crate::texts::{Endpoint, Name};

/// Every upstream that can be made; the others were reported.
pub(super) fn upstreams(file: &FileSection, reader: &mut Reader<'_>) -> Vec<Upstream> {
    let sections = file.upstream.iter().enumerate();
    sections.filter_map(|(index, section)| upstream(file, section, index, reader)).collect()
}

fn upstream(file: &FileSection, section: &UpstreamSection, index: usize, reader: &mut Reader<'_>) -> Option<Upstream> {
    let path = &format!("upstream[{index}]");
    warn_unused(file, section, path, reader);
    let protocol = protocol_of(file, section, path, reader);
    if let Some(protocol) = protocol {
        unfit::upstream(section, protocol, path, reader);
    }
    if let Some(endpoints) = &section.endpoints {
        self::endpoints(endpoints, SHARDS_MAX, "split the upstream", path, reader);
    }
    let endpoints = section.endpoints.as_ref().map_or(&[][..], |endpoints| &endpoints.value);
    let settings = settings(section, endpoints, path, reader);
    let mut of = UpstreamContext { section, endpoints, path, settings };
    // An upstream without references is warned about, and checked as one of the first protocol.
    let protocol = protocols::upstream(protocol.unwrap_or(ProtocolName::ALL[0]), &mut of, reader);
    Some(Upstream { settings: Arc::new(of.settings?), protocol })
}

/// The parts that every protocol has; `None`: something of it is missing.
fn settings(
    section: &UpstreamSection,
    endpoints: &[At<Endpoint>],
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<UpstreamSettings> {
    let tls = section.tls.as_ref().map(|tls| tls::client(tls, endpoints, &format!("{path}.tls"), reader));
    let health = health(&section.health, &format!("{path}.health"), reader);
    let name = Arc::clone(&section.name.as_ref()?.value.0);
    let addresses = section.endpoints.as_ref()?.value.iter().map(|endpoint| endpoint.value.0.clone());
    Some(UpstreamSettings {
        tls,
        connect_timeout: section.connect_timeout.value.0,
        lane_waiters_max: section.lane_waiters_max.value,
        lane_wait_timeout: section.lane_wait_timeout.value.0,
        health,
        breaker: BreakerSettings {
            failures: section.breaker.failures.value,
            window: section.breaker.window.value.0,
            open_for: section.breaker.open_for.value.0,
        },
        // The protocols set the fields that only some of them have.
        ..UpstreamSettings::new(name, addresses.collect())
    })
}

/// The protocol of those who name this upstream; `None`: there are none of a known protocol.
fn protocol_of(
    file: &FileSection,
    section: &UpstreamSection,
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<ProtocolName> {
    let name = section.name.as_ref()?;
    let names_it = |listener: &&ListenerSection| listener.upstreams().any(|upstream| upstream.value == name.value);
    // Words of one protocol share an upstream.
    let of_listener = |listener: &ListenerSection| Some(listener.protocol.as_ref()?.value.row().names[0]);
    let listeners = file.listener.iter().filter(names_it).filter_map(of_listener);
    let routes = file.routed_upstreams().filter(|(upstream, _)| upstream.value == name.value);
    let mut protocols = listeners.chain(routes.map(|(_, protocol)| protocol));
    let first = protocols.next()?;
    if let Some(other) = protocols.find(|other| *other != first) {
        let message = format!("both {first} and {other} name the upstream \"{}\"", name.value);
        let help = "give each protocol a separate upstream".to_owned();
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
        let mut named = listener.upstreams();
        listener.upstream.is_none() || named.any(|one| one.value == name.value || !names.contains(&&one.value))
    };
    let is_routed = file.routed_upstreams().any(|(upstream, _)| upstream.value == name.value);
    if !file.listener.is_empty() && !is_routed && !file.listener.iter().any(is_explained) {
        let message = format!("no listener uses the upstream \"{}\"", name.value);
        let help = format!("add upstream = \"{}\" to a [[listener]], or remove it", name.value);
        reader.problems.warning(&name.span, &format!("{path}.name"), message, help);
    }
}

/// A list of endpoints that is empty, repeats itself or is longer than `max`. `split`: the remedy.
pub(crate) fn endpoints(list: &At<Vec<At<Endpoint>>>, max: usize, split: &str, path: &str, reader: &mut Reader<'_>) {
    let (endpoints, list) = (list, &list.value);
    if list.is_empty() {
        error_at(endpoints, path, "endpoints", "is empty", "name the server, for example \"127.0.0.1:6379\"", reader);
    }
    for (index, endpoint) in list.iter().enumerate() {
        if list[..index].contains(endpoint) {
            let what = format!("names {} twice", endpoint.value.0);
            error_at(endpoint, path, "endpoints", &what, "remove one of them", reader);
        }
    }
    if list.len() > max {
        let what = format!("has {} entries, more than {max}", list.len());
        error_at(&list[max], path, "endpoints", &what, split, reader);
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
