//! The tables of what workers remember of their requests: hot and big keys, the slow log.

use weir_base::ByteSize;
use weir_redis_session::insight::settings as insight;
use weir_redis_session::insight::settings::{InsightSettings, KeyNames};

use super::keys::TelemetryKeys;
use crate::checks::idle::{unless_empty, unless_empty_but};
use crate::numbers::Period;
use crate::protocols::ProtocolName;
use crate::reader::Reader;
use crate::section::section;
use crate::sections::{FileSection, ListenerSection};
use crate::texts::Choice;

section! {
    /// Hot keys (with the most requests) and big keys (with the largest requests and replies), in the admin API, `weir top` and
    /// `INFO weir`.
    pub(crate) struct KeysSection {
        /// How keys are shown: `full` (the text, up to 128 bytes), `hashed` (a hash with a secret of the process, for keys that
        /// contain names or tokens), or `off` (no keys are recorded).
        default names: KeyNames = KeyNames::Full;
        /// One in this many requests, on average, is sampled for its keys. Must be a power of two. A lower value makes rates more
        /// exact, and costs more CPU.
        default sample: u32 = insight::KEYS_SAMPLE => 1..=insight::SAMPLE_MAX;
        /// Number of keys in each list of a worker.
        default top: u32 = insight::KEYS_TOP => 1..=insight::KEYS_TOP_MAX;
        /// Minimum size of a request with one key, or of its reply, for the list of big keys.
        default big_bytes: ByteSize = ByteSize::new(insight::BIG_BYTES) => ByteSize::kib(1)..=ByteSize::mib(1_024);
    }
}

section! {
    /// The slow log of the gateway, in the admin API and `weir top`. The command SLOWLOG shows the log of the server instead.
    pub(crate) struct SlowLogSection {
        /// Minimum duration of a slow request, from its place in the queue of a server connection to the end of the reply. 0 counts
        /// every request as slow. A worker adds at most eight requests to the slow log per turn of its event loop, but counts all.
        default slower_than: Period = Period(insight::SLOWER_THAN) => Period::secs(0)..=Period::secs(3_600);
        /// Number of entries that each worker keeps. 0 disables the slow log.
        default entries: u32 = insight::SLOW_ENTRIES => 0..=insight::SLOW_ENTRIES_MAX;
        /// Show arguments (at most 32, 128 bytes of each, passwords redacted), not only the command.
        default arguments: bool = true;
    }
}

impl Choice for KeyNames {
    const WORDS: &'static [(&'static str, Self)] =
        &[("full", Self::Full), ("hashed", Self::Hashed), ("off", Self::Off)];
}

/// Both tables as the workers take them.
pub(super) fn insight(file: &FileSection, keys: &TelemetryKeys, reader: &mut Reader<'_>) -> InsightSettings {
    check_use(file, keys, reader);
    let (keys, slow) = (&keys.keys, &keys.slow_log);
    let sample = &keys.sample;
    if !sample.value.is_power_of_two() {
        let above = sample.value.next_power_of_two();
        let message = format!("`telemetry.keys.sample` is {}, which is not a power of two", sample.value);
        let help = format!("write {} or {above}", above / 2);
        reader.problems.error(&sample.span, "telemetry.keys.sample", message, help);
    }
    InsightSettings {
        names: keys.names.value,
        sample: sample.value,
        top: keys.top.value,
        big_bytes: keys.big_bytes.value.bytes(),
        slower_than: slow.slower_than.value.0,
        slow_entries: slow.entries.value,
        slow_arguments: slow.arguments.value,
    }
}

/// Tables without effect.
fn check_use(file: &FileSection, keys: &TelemetryKeys, reader: &mut Reader<'_>) {
    if keys.slow_log.entries.value == 0 {
        unless_empty_but(&keys.slow_log, &["entries"], "telemetry", "slow_log", "entries is 0", reader);
    }
    let is_redis = |one: &ListenerSection| one.protocol.as_ref().is_none_or(|own| own.value == ProtocolName::Redis);
    if !file.listener.is_empty() && !file.listener.iter().any(is_redis) {
        let why = "no listener of this file speaks Redis";
        unless_empty(&keys.keys, "telemetry", "keys", why, reader);
        unless_empty(&keys.slow_log, "telemetry", "slow_log", why, reader);
    }
}
