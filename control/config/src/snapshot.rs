//! The result: settings for every room, checked and immutable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value as Json;
use weir_base::Secret;
use weir_engine::settings::RuntimeSettings;
use weir_listener::settings::{DrainSettings, LimitSettings, ListenerSettings, UpgradeSettings};
use weir_telemetry::{Level, access::AccessForm};
use weir_upstream::settings::UpstreamSettings;

use crate::diagnostic::Diagnostics;
use crate::protocols::{ListenerProtocol, ProcessSettings, ProtocolName, UpstreamProtocol};
use crate::section::Section as _;
use crate::sections::FileSection;

/// Port of the admin server if the file does not name one.
pub(crate) const ADMIN_PORT: u16 = 9900;

/// Share of exchanges whose stages are timed. Default 1/16: five clock readings are about 100 ns, a fifth of what a
/// pipelined GET costs, so timing each one would be felt; one in sixteen is not, and fills a histogram within seconds.
pub(crate) const STAGE_SAMPLE: f64 = 0.0625;

/// Share of its knee from which the load of a listener is warned about. Default 0.8: what is left is what the lab's
/// steps and the unevenness of real load take, and time to start another instance.
pub(crate) const KNEE_WARN: f64 = 0.8;

/// A checked configuration. It never changes; the next one is another value with a higher generation.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// 0 until it is published, then counted up by the publisher: see [`Snapshot::published`].
    pub generation: u64,
    /// Workers, driver, buffers.
    pub runtime: RuntimeSettings,
    /// The admin server.
    pub admin: AdminSettings,
    /// Limits of the process; `buffered_bytes` is already resolved against the memory limit.
    pub limits: LimitSettings,
    /// SIGTERM.
    pub drain: DrainSettings,
    /// SIGUSR2.
    pub upgrade: UpgradeSettings,
    /// Metrics and logs.
    pub telemetry: TelemetrySettings,
    /// At least one, with unique names and addresses.
    pub listeners: Vec<Listener>,
    /// Unique names; every one that a listener refers to is here.
    pub upstreams: Vec<Upstream>,
    /// The parts that each protocol has once, for all its listeners.
    pub protocols: ProcessSettings,
    /// Warnings about a file that is used all the same.
    pub warnings: Diagnostics,
    /// References that an offline check did not follow, by their path in the file, as [`redacted`] shows them.
    pub(crate) unread: Vec<(String, Json)>,
    pub(crate) file: FileSection,
}

/// Two snapshots are equal if they configure the same; generation and warnings do not count.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && self.limits == other.limits && self.protocols == other.protocols
    }
}

impl Snapshot {
    /// The snapshot as it is handed to the workers.
    #[must_use]
    pub fn published(mut self, generation: u64) -> Arc<Self> {
        self.generation = generation;
        Arc::new(self)
    }

    /// The upstream of this name.
    pub fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| &*upstream.settings.name == name)
    }

    /// The listener of this name.
    pub fn listener(&self, name: &str) -> Option<&Listener> {
        self.listeners.iter().find(|listener| &*listener.settings.name == name)
    }
}

/// The effective configuration as JSON, defaults filled in. A secret shows where it comes from, never what it is.
pub fn redacted(snapshot: &Snapshot) -> Json {
    let mut shown = snapshot.file.show();
    for (path, reference) in &snapshot.unread {
        let pointer = format!("/{}", path.replace(']', "").replace(['.', '['], "/"));
        let (table, key) = pointer.rsplit_once('/').expect("it begins with one");
        if let Some(Json::Object(table)) = shown.pointer_mut(table) {
            table.insert(key.to_owned(), reference.clone());
        }
    }
    shown
}

/// The admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Where it listens; off loopback only together with `token`.
    pub bind: SocketAddr,
    /// Bearer token for `/metrics` and `/api`.
    pub token: Option<Secret>,
    /// Further `Host` names that are answered on loopback.
    pub hosts: Vec<String>,
}

/// One listener: what every protocol has, what its own has, and where its requests go.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The parts that every protocol has.
    pub settings: Arc<ListenerSettings>,
    /// The protocol, as the file names it.
    pub protocol_name: ProtocolName,
    /// Settings of its protocol.
    pub protocol: ListenerProtocol,
    /// Name of an upstream of the same snapshot. Empty: the listener has none.
    pub upstream: Arc<str>,
    /// Its capacity; `None`: not known.
    pub knee: Option<Arc<Knee>>,
    /// The certificates that it shows, in the order of the file; none without TLS.
    pub certificates: Vec<ServedCertificate>,
}

/// A certificate that a listener shows to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedCertificate {
    /// Its first host name; without one, its subject.
    pub name: Arc<str>,
    /// The end of its validity, or of an earlier one in its chain: seconds since 1970.
    pub expires_at: u64,
}

/// How much a listener carries, as `weir lab knee` found it with as many workers as run here.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// The clean knee, above zero.
    pub requests_per_second: f64,
    /// Share of it from which the load is warned about, above 0 and at most 1.
    pub warn_ratio: f64,
    /// Action at the knee.
    pub action: KneeAction,
    /// The file with the result.
    pub file: PathBuf,
    /// The search that found it.
    pub run_id: String,
    /// End of that search, seconds since 1970.
    pub measured_at: u64,
    /// In what the measurement differs from what runs here, in sentences.
    pub caveats: Vec<String>,
}

/// The action of a listener at its knee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KneeAction {
    /// Tell.
    Observe,
    /// Ask balancers for less: readiness is false.
    Unready,
    /// Refuse what is beyond.
    Shed,
}

impl KneeAction {
    /// The word in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Unready => "unready",
            Self::Shed => "shed",
        }
    }
}

/// One upstream: what every protocol has, and what its own has.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// The parts that every protocol has.
    pub settings: Arc<UpstreamSettings>,
    /// Settings of its protocol.
    pub protocol: UpstreamProtocol,
}

/// Metrics and logs.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetrySettings {
    /// How much is measured. Fixed when the process starts.
    pub level: Level,
    /// Share of exchanges whose stages are timed, 0.0 to 1.0.
    pub stage_sample: f64,
    /// Least severity of the program's own log.
    pub log_level: LogLevel,
    /// Form of the program's own log.
    pub log_format: LogFormat,
    /// One line per sampled exchange.
    pub access_log: AccessLogSettings,
}

/// One line per sampled exchange; the share is a setting of each listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Where the lines go.
    pub target: LogTarget,
    /// Format of the lines.
    pub form: AccessForm,
    /// Size from which a file is put aside, in bytes. `None`: never.
    pub rotate_bytes: Option<u64>,
    /// Files that are kept besides.
    pub rotate_keep: u32,
}

/// Severity of the program's own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogLevel {
    /// Needs a person.
    Error,
    /// May soon need a person.
    Warn,
    /// Starts, stops, changes.
    Info,
    /// For the search of a fault.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The word in the file, which is also the one that log filters know.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Form of the program's own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Appended to a file.
    File(PathBuf),
}
