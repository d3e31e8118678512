//! `[telemetry.access_log]`.

use weir_base::ByteSize;
use weir_listener::settings as listening;
use weir_telemetry::access::{AccessField, AccessForm, AccessFormat};

use crate::document::At;
use crate::numbers::Ratio;
use crate::section::section;
use crate::snapshot::{AccessLogSettings, LogTarget};
use crate::texts::Choice;

section! {
    /// The access log, with one line per request (TCP and TLS: per connection; PostgreSQL: each time that a client returns its server
    /// connection, after a transaction or at the end of the session). Writing never blocks a worker: lines that do not fit are dropped and
    /// counted.
    pub(crate) struct AccessLogSection {
        /// Destination: `off`, `stdout`, `stderr` or `file:/absolute/path`. The gateway does not start if it cannot open the file.
        default target: LogTarget = LogTarget::Off;
        /// Format of a line.
        default format: AccessFormat = AccessFormat::Json;
        /// Share of the lines that are written to the access log, chosen at random. `1.0` writes all lines.
        /// `listener.access_log_sample` overrides the share for one listener.
        default sample: Ratio = Ratio(listening::ACCESS_LOG_SAMPLE);
        /// Fields of a line, in this order: `time`, `listener`, `peer`, `connection`, `command`, `upstream`, `duration_us`,
        /// `upstream_us`, `request_bytes`, `reply_bytes`, `outcome`; for HTTP also `status`, `method`, `path`, `protocol`,
        /// `authority`, `route`, `endpoint`, `user`, `user_agent`, `forwarded_for`, `request_id`, `trace_id`. If absent, all
        /// fields.
        optional fields: Vec<At<AccessField>>;
        /// Size at which a file becomes `FILE.1`, the previous file `FILE.2`, and a new file begins. If absent, the file grows. If
        /// another program moves the file away, the gateway begins a new file within a second.
        optional rotate_size: ByteSize => ByteSize::kib(1)..=ByteSize::mib(1 << 20);
        /// Number of old files that are kept.
        default rotate_keep: u32 = 5 => 1..=1_000;
    }
}

impl AccessLogSection {
    pub(crate) fn settings(&self) -> AccessLogSettings {
        let fields = self.fields.as_ref().map(|list| list.value.iter().map(|field| field.value).collect());
        AccessLogSettings {
            target: self.target.value.clone(),
            form: AccessForm { format: self.format.value, fields },
            rotate_bytes: self.rotate_size.as_ref().map(|size| size.value.bytes()),
            rotate_keep: self.rotate_keep.value,
        }
    }
}

impl Choice for AccessFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

impl Choice for AccessField {
    const WORDS: &'static [(&'static str, Self)] = &AccessField::NAMED;
}
