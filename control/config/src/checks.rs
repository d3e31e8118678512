//! Relations between keys, and the step from sections to settings.
//!
//! A check that needs a value which was already reported as wrong is skipped: its message would be noise.

mod binds;
mod certificates;
pub(crate) mod idle;
mod knee;
mod listener;
mod rehearsal;
pub(crate) mod store;
pub(crate) mod tls;
mod unfit;
mod upstream;

use std::net::IpAddr;

pub(crate) use upstream::endpoints;

use weir_base::limits;
use weir_base::nearest;
use weir_engine::settings::{Address, RuntimeSettings};
use weir_listener::settings::{DrainSettings, LimitSettings, UpgradeSettings};

use crate::diagnostic::Diagnostics;
use crate::document::At;
use crate::protocols;
use crate::reader::{Reader, header};
use crate::sections::{
    AdminSection, FileSection, LimitsSection, ListenerSection, RuntimeSection, TelemetrySection, UpstreamSection,
};
use crate::snapshot::{AdminSettings, Snapshot, TelemetrySettings};
use crate::texts::Name;
use crate::value::Value;

/// Bytes of an admin token, as the admin server asks for them: shorter ones can be guessed, longer ones do not fit a head.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=4 * 1024;

/// Memory limit that is assumed where the system names none: half a gigabyte, so that the default stays modest.
const MEMORY_LIMIT_ASSUMED: u64 = 512 << 20;

/// Checks the file as a whole and makes the settings. Mistakes are reported; `Reader::problems` decides whether the
/// result may be used.
pub(crate) fn snapshot(file: FileSection, reader: &mut Reader<'_>) -> Snapshot {
    if file.listener.is_empty() && !reader.problems.is_known_wrong("listener") {
        let message = "the file has no listener, so there is nothing to do".to_owned();
        // A listener has the key in its table; at the top of a file only scenarios of the lab have it.
        let help = match reader.problems.is_refused("protocol") {
            true => "this is a scenario of the lab: run it with weir lab load, weir lab knee or weir lab compare",
            false => "add [[listener]] with name, bind, protocol and upstream",
        };
        reader.problems.error(&(0..0), "listener", message, help);
    }
    binds::check(&file, reader);
    let limits = limits(&file.limits, reader);
    let mut upstreams = upstream::upstreams(&file, reader);
    let made = protocols::file(&file, reader);
    let listeners = listener::listeners(&file, &made, &limits, reader);
    let protocols = protocols::process(&file, made, &listeners, &mut upstreams, reader);
    idle::file(&file, reader);
    rehearsal::file(&file, reader);
    Snapshot {
        generation: 0,
        runtime: runtime(&file.runtime),
        admin: admin(&file.admin, reader),
        limits,
        drain: DrainSettings { settle: file.drain.settle.value.0, timeout: file.drain.timeout.value.0 },
        upgrade: UpgradeSettings { timeout: file.upgrade.timeout.value.0 },
        telemetry: telemetry(&file.telemetry),
        listeners,
        upstreams,
        protocols,
        warnings: Diagnostics::default(),
        unread: std::mem::take(&mut reader.unread),
        file,
    }
}

fn runtime(section: &RuntimeSection) -> RuntimeSettings {
    RuntimeSettings {
        workers: section.workers.as_ref().map(|workers| workers.value as usize),
        driver: section.driver.value,
        pin: section.pin.value,
        latency_budget: section.latency_budget.value.0,
    }
}

fn admin(section: &AdminSection, reader: &mut Reader<'_>) -> AdminSettings {
    let bind = &section.bind;
    let address = bind.value.0;
    match &section.token {
        None if !address.ip().to_canonical().is_loopback()
            && reader.lacks(section.token.as_ref(), "admin", "token") =>
        {
            let message = format!("`admin.bind` {address} can be reached from other machines, and no token is set");
            let help = format!("bind 127.0.0.1:{}, or set token = {{ env = \"NAME\" }}", address.port());
            reader.problems.error(&bind.span, "admin.bind", message, help);
        }
        Some(token) => {
            let bytes = token.value.secret.expose();
            if !TOKEN_BYTES.contains(&bytes.len()) || !bytes.iter().all(u8::is_ascii_graphic) {
                let (low, high) = (TOKEN_BYTES.start(), TOKEN_BYTES.end());
                let message = format!("`admin.token` is not {low} to {high} visible ASCII characters");
                let help = "make one with: openssl rand -hex 32";
                reader.problems.error(&token.span, "admin.token", message, help);
            }
        }
        None => (),
    }
    let hosts = section.hosts.iter().flat_map(|hosts| &hosts.value);
    AdminSettings {
        bind: address,
        token: section.token.as_ref().map(|token| token.value.secret.clone()),
        hosts: hosts.map(|host| host.value.0.clone()).collect(),
    }
}

fn limits(section: &LimitsSection, reader: &mut Reader<'_>) -> LimitSettings {
    let lowest = Lowest { path: "limits", key: "connections_per_source", other: "limits.connections" };
    lowest.check(&section.connections_per_source, &section.connections, reader);
    let memory = reader.surroundings.memory_limit().unwrap_or(MEMORY_LIMIT_ASSUMED);
    let buffered_bytes = match &section.buffered_bytes {
        Some(bytes) => {
            if bytes.value.bytes() > memory {
                let message =
                    format!("`limits.buffered_bytes` is more than the memory of this process ({memory} bytes)");
                let help = "lower it, or remove it to use the default";
                reader.problems.warning(&bytes.span, "limits.buffered_bytes", message, help);
            }
            bytes.value.bytes()
        }
        None => limits::buffered_bytes(memory),
    };
    LimitSettings {
        connections: section.connections.value,
        connections_per_source: section.connections_per_source.value,
        in_flight_per_core: section.in_flight_per_core.value,
        buffered_bytes,
        handshakes_per_core: section.handshakes_per_core.value,
    }
}

fn telemetry(section: &TelemetrySection) -> TelemetrySettings {
    TelemetrySettings {
        level: section.level.value,
        stage_sample: section.stage_sample.value.0,
        log_level: section.log_level.value,
        log_format: section.log_format.value,
        access_log: section.access_log.settings(),
    }
}

/// "This key is at most that one."
pub(crate) struct Lowest<'p> {
    /// Path of the table.
    pub(crate) path: &'p str,
    /// The key that must not be above the other.
    pub(crate) key: &'static str,
    /// The other key, as it is called in the message.
    pub(crate) other: &'p str,
}

impl Lowest<'_> {
    /// Reports at whichever of the two was written; if neither was, the defaults would be wrong, which they are not.
    pub(crate) fn check<T: Value + PartialOrd>(&self, low: &At<T>, high: &At<T>, reader: &mut Reader<'_>) -> bool {
        if low.value <= high.value {
            return true;
        }
        let at = if low.is_given { low } else { high };
        let default = |value: &At<T>| if value.is_given { "" } else { ", its default" };
        let path = format!("{}.{}", self.path, self.key);
        let message = format!(
            "`{path}` ({}{}) is above `{}` ({}{})",
            low.value.show(),
            default(low),
            self.other,
            high.value.show(),
            default(high),
        );
        let other = self.other.rsplit('.').next().unwrap_or(self.other);
        let help = format!("set {} to {} or less, or raise {other}", self.key, high.value.show());
        reader.problems.error(&at.span, &path, message, help);
        false
    }
}

/// Reports an error at a value.
pub(crate) fn error_at<T>(
    at: &At<T>,
    path: &str,
    key: &str,
    what: &str,
    help: impl Into<String>,
    reader: &mut Reader<'_>,
) {
    let path = format!("{path}.{key}");
    let message = format!("`{path}` {what}");
    reader.problems.error(&at.span, &path, message, help);
}

/// Reports a warning at a value.
pub(crate) fn warn_at<T>(
    at: &At<T>,
    path: &str,
    key: &str,
    what: &str,
    help: impl Into<String>,
    reader: &mut Reader<'_>,
) {
    let path = format!("{path}.{key}");
    let message = format!("`{path}` {what}");
    reader.problems.warning(&at.span, &path, message, help);
}

/// Warns of entries of a list that stand twice.
pub(crate) fn warn_repeated<T: PartialEq>(list: &At<Vec<At<T>>>, path: &str, key: &str, reader: &mut Reader<'_>) {
    for (index, entry) in list.value.iter().enumerate() {
        if list.value[..index].iter().any(|before| before.value == entry.value) {
            warn_at(entry, path, key, "has an entry twice", "remove one of them", reader);
        }
    }
}

/// The upstream that the key of a table at `path` names; reports one that does not exist.
pub(crate) fn find_upstream<'f>(
    file: &'f FileSection,
    wanted: &At<Name>,
    path: &str,
    key: &str,
    reader: &mut Reader<'_>,
) -> Option<&'f UpstreamSection> {
    let named = |one: &&UpstreamSection| one.name.as_ref().is_some_and(|name| name.value == wanted.value);
    let found = file.upstream.iter().find(named);
    // With a nameless upstream around, it may be the one that was meant; that it has no name was reported.
    if found.is_some() || file.upstream.iter().any(|one| one.name.is_none()) {
        return found;
    }
    let names: Vec<&str> = file.upstream.iter().filter_map(|one| Some(&*one.name.as_ref()?.value.0)).collect();
    let help = match (nearest(&wanted.value.0, names.iter().copied()), names.is_empty()) {
        (Some(meant), _) => format!("did you mean \"{meant}\"?"),
        (None, true) => format!("add [[upstream]] with name = \"{}\" and endpoints", wanted.value),
        (None, false) => format!("upstreams of this file: {}", names.join(", ")),
    };
    let what = format!("names the upstream \"{}\", which does not exist", wanted.value);
    error_at(wanted, path, key, &what, help, reader);
    None
}

/// The workers of the process that takes the file. `None`: as many as its machine has cores, and the file is checked on another machine.
pub(crate) fn workers(file: &FileSection, reader: &Reader<'_>) -> Option<usize> {
    let written = file.runtime.workers.as_ref().map(|written| written.value as usize);
    let cores = || (!reader.surroundings.is_offline()).then(|| reader.surroundings.cores());
    // The number of a running process does not change.
    reader.surroundings.running().map(|running| running.workers).or(written).or_else(cores)
}

/// The ports that a Host does not name, in clear text and with TLS.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// The Host of requests to an endpoint.
pub(crate) fn authority(endpoint: &Address, is_tls: bool) -> String {
    let text = endpoint.to_string();
    match endpoint {
        Address::Unix(_) => "localhost".to_owned(),
        other => match other.port() {
            Some(port) if port == DEFAULT_PORTS[usize::from(is_tls)] => {
                text.strip_suffix(&format!(":{port}")).map(str::to_owned).unwrap_or(text)
            }
            _ => text,
        },
    }
}

/// `listener[0].tls` as a header in a remedy.
pub(crate) fn table_header(path: &str) -> String {
    format!("[{}]", header(path))
}

/// Whether only clients of this machine reach a listener.
pub(crate) fn is_local(section: &ListenerSection) -> bool {
    match section.bind.as_ref().map(|bind| &bind.value.0) {
        Some(Address::Socket(address)) => address.ip().to_canonical().is_loopback(),
        // A bind that is wrong was reported.
        Some(Address::Unix(_)) | None => true,
        Some(Address::Host { .. }) => false,
    }
}

/// True for addresses of the internet. Inside a private network clear text is the rule, and a warning that always shows
/// is ignored. The reach of a name or a wildcard is not known: false.
pub(crate) fn is_public(address: &Address) -> bool {
    let Address::Socket(address) = address else { return false };
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()),
        IpAddr::V6(ip) => {
            !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_unspecified())
        }
    }
}
