//! Listeners: from section to settings.

use std::sync::Arc;

use weir_engine::settings::Address;
use weir_listener::settings::{
    LimitSettings, ListenerSettings, OUTPUT_HIGH_WATER_BYTES, OUTPUT_LOW_WATER_BYTES, ProxyProtocol,
};

use crate::checks::{Lowest, certificates, error_at, find_upstream, knee, tls, unfit};
use crate::document::At;
use crate::protocols::{self, ListenerContext, ProtocolSnapshot};
use crate::reader::Reader;
use crate::sections::{FileSection, ListenerSection};
use crate::snapshot::{Knee, Listener};
use crate::texts::Name;
use crate::value::Value as _;

/// A low-water mark that is not written is the high one divided by this.
const HIGH_TO_LOW_WATER: u64 = OUTPUT_HIGH_WATER_BYTES / OUTPUT_LOW_WATER_BYTES;
const _: () = assert!(HIGH_TO_LOW_WATER == 4, "the reference says a quarter");

/// Every listener that can be made; the others were reported.
pub(super) fn listeners(
    file: &FileSection,
    made: &ProtocolSnapshot<'_>,
    limits: &LimitSettings,
    reader: &mut Reader<'_>,
) -> Vec<Listener> {
    let sections = file.listener.iter().enumerate();
    sections.filter_map(|(index, section)| listener(file, section, index, made, limits, reader)).collect()
}

fn listener(
    file: &FileSection,
    section: &ListenerSection,
    index: usize,
    made: &ProtocolSnapshot<'_>,
    limits: &LimitSettings,
    reader: &mut Reader<'_>,
) -> Option<Listener> {
    let path = &format!("listener[{index}]");
    let named = section.upstream.as_ref();
    let upstream = named.and_then(|wanted| find_upstream(file, wanted, path, "upstream", reader));
    check_upstream(section, path, reader);
    check_output(section, path, reader);
    check_reuse_port(section, path, reader);
    check_proxy(section, path, reader);
    unfit::listener(section, path, reader);
    let knee = knee::knee(file, section, upstream, path, reader);
    let settings = settings(file, section, knee.as_deref(), path, reader);
    let protocol_name = section.protocol.as_ref()?.value;
    let mut of = ListenerContext { file, section, limits, protocol_name, upstream, path, settings };
    let protocol = protocols::listener(made, &mut of, reader)?;
    Some(Listener {
        settings: Arc::new(of.settings?),
        protocol_name,
        protocol,
        upstream: match named {
            Some(name) => Arc::clone(&name.value.0),
            None if protocol_name.row().needs_upstream => return None,
            None => "".into(),
        },
        knee,
        certificates: section.tls.as_ref().map(certificates::served).unwrap_or_default(),
    })
}

/// The parts that every protocol has; `None`: something of it is missing.
fn settings(
    file: &FileSection,
    section: &ListenerSection,
    knee: Option<&Knee>,
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<ListenerSettings> {
    let alpn = section.protocol.as_ref().map_or(&[][..], |protocol| protocol.value.row().alpn);
    let tls = section.tls.as_ref().map(|tls| tls::server(tls, alpn, &format!("{path}.tls"), reader));
    let mut within = |own: &Option<At<u32>>, process: &At<u32>, key, other| {
        let Some(own) = own else { return process.value };
        Lowest { path, key, other }.check(own, process, reader);
        own.value
    };
    let limits = &file.limits;
    let connections_max =
        within(&section.connections_max, &limits.connections, "connections_max", "limits.connections");
    let connections_per_source_max = within(
        &section.connections_per_source_max,
        &limits.connections_per_source,
        "connections_per_source_max",
        "limits.connections_per_source",
    );
    let trusted = section.proxy_trusted.iter().flat_map(|list| &list.value);
    let default_sample = &file.telemetry.access_log.sample;
    let (name, bind) = (section.name.as_ref()?.value.0.clone(), section.bind.as_ref()?.value.0.clone());
    Some(ListenerSettings {
        reuse_port: section.reuse_port.value,
        connections_max,
        connections_per_source_max,
        proxy_protocol: section.proxy_protocol.value,
        proxy_trusted: trusted.map(|net| net.value).collect(),
        tls: match tls {
            Some(tls) => Some(tls?),
            None => None,
        },
        backlog: section.backlog.value,
        output_high_water: section.output_high_water.value.bytes(),
        output_low_water: low_water(section),
        head_timeout: section.head_timeout.value.0,
        idle_timeout: section.idle_timeout.as_ref().map(|timeout| timeout.value.0),
        half_close_timeout: section.half_close_timeout.value.0,
        access_log_sample: section.access_log_sample.as_ref().unwrap_or(default_sample).value.0,
        requests_per_second_per_core: knee.and_then(|knee| knee::rate_per_core(knee, section)),
        // The protocols set the fields that only some of them have.
        ..ListenerSettings::new(name, bind)
    })
}

/// Every protocol but that of a listener that may have a file in place of a server needs an upstream.
fn check_upstream(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let needs_one = section.protocol.as_ref().is_none_or(|protocol| protocol.value.row().needs_upstream);
    if needs_one && reader.lacks(section.upstream.as_ref(), path, "upstream") {
        let key = format!("{path}.upstream");
        let message = format!("`{key}` is missing: {}", Name::shape().what());
        reader.problems.error(&section.place.0, &key, message, format!("add upstream = {}", Name::shape().example()));
    }
}

/// The written low-water mark, or the one that keeps its distance from the high one.
fn low_water(section: &ListenerSection) -> u64 {
    match &section.output_low_water {
        Some(low) => low.value.bytes(),
        None => section.output_high_water.value.bytes() / HIGH_TO_LOW_WATER,
    }
}

fn check_output(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let high = &section.output_high_water;
    if let Some(low) = section.output_low_water.as_ref().filter(|low| low.value >= high.value) {
        let what = format!("({}) is not below output_high_water ({})", low.value, high.value);
        let help = "leave it out for a quarter of output_high_water";
        error_at(low, path, "output_low_water", &what, help, reader);
    }
}

/// One queue, and so one process, belongs to a path.
fn check_reuse_port(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let is_path = section.bind.as_ref().is_some_and(|bind| matches!(bind.value.0, Address::Unix(_)));
    if is_path && section.reuse_port.value {
        let help = "remove it; `weir upgrade` replaces a running gateway";
        error_at(
            &section.reuse_port,
            path,
            "reuse_port",
            "has no effect: a Unix socket cannot be shared",
            help,
            reader,
        );
    }
}

fn check_proxy(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let Some(trusted) = &section.proxy_trusted else { return };
    if section.proxy_protocol.value == ProxyProtocol::Off {
        let help = "set proxy_protocol = \"any\", \"v1\" or \"v2\", or remove proxy_trusted";
        error_at(trusted, path, "proxy_trusted", "has no effect while proxy_protocol is \"off\"", help, reader);
    }
    if trusted.value.is_empty() {
        let help = "name the networks of the load balancers, or remove the key to trust every peer";
        error_at(trusted, path, "proxy_trusted", "is empty, so no client could connect", help, reader);
    }
}
