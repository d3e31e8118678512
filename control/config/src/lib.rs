//! `weir.toml` becomes a checked, immutable [`Snapshot`]; a wrong file becomes a list of every mistake in it.
//!
//! ```text
//! text ─▶ document (spanned TOML) ─▶ sections (typed, bounded, defaults filled in) ─▶ check (relations) ─▶ Snapshot
//!            syntax                     unknown keys, types, ranges, secrets             references, duplicates
//! ```
//!
//! Each key is declared once, in `sections` or in the folder of its protocol: name, type, default, range and the text that explains it. The reader,
//! the JSON Schema ([`schema`]), the reference page ([`reference()`]), the view without secrets ([`redacted`]) and the
//! comparison of two snapshots ([`diff`]) all derive from that declaration, so they cannot drift.
//!
//! No mistake hides another: reading goes on after an error with the default in place of the wrong value, and only
//! the end decides. A file that fails leaves nothing behind, so the last good snapshot keeps serving.
//!
//! | file | concept |
//! |---|---|
//! | `load` | [`load`] for a file, [`check`] for a text: the pure core |
//! | `document` | TOML text to a spanned tree; syntax errors |
//! | `diagnostic` | a mistake: place, what, remedy; as text for people and as JSON for programs |
//! | `section` | the `section!` macro: one declaration per key |
//! | `sections` | the declarations: what may stand in `weir.toml` whatever the protocol |
//! | `protocols` | the trait of a protocol, the list of them, and a folder for each: its keys, checks and settings |
//! | `value`, `numbers`, `texts` | the types a key can have |
//! | `secret`, `pem`, `knee` | values that stand outside the file |
//! | `access_log`, `shares` | tables and keys that several places have |
//! | `checks` | relations between the keys of all protocols, keys without effect, and the step from sections to settings |
//! | `snapshot` | the result |
//! | `change` | differences between two snapshots, and which of them need a restart |
//! | `schema`, `reference`, `explain` | the declarations as JSON Schema, as a page, and one key of it for a terminal |
//! | `surroundings` | environment and files, so that the core stays pure |
#![forbid(unsafe_code)]

mod access_log;
mod change;
mod checks;
mod diagnostic;
mod document;
mod explain;
mod knee;
mod load;
mod numbers;
mod pem;
mod protocols;
mod reader;
mod reference;
mod schema;
mod secret;
mod section;
mod sections;
mod shares;
mod snapshot;
pub mod surroundings;
mod texts;
mod value;

pub use change::{Change, diff, needs_restart};
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use explain::explain;
pub use knee::KNEE_BYTES_MAX;
pub use load::{FILE_BYTES_MAX, check, check_offline, load, rehearse, reload};
pub use protocols::ai::AiUpstreamSettings;
pub use protocols::http::{HttpUpstreamSettings, RouteObject};
pub use protocols::{ListenerProtocol, ProcessSettings, ProtocolName, UpstreamProtocol};
pub use reference::reference;
pub use schema::schema;
pub use snapshot::{
    AccessLogSettings, AdminSettings, Knee, KneeAction, Listener, LogFormat, LogLevel, LogTarget, ServedCertificate,
    Snapshot, TelemetrySettings, Upstream, redacted,
};
