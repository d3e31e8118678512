//! Settings of hot keys, big keys and the slow log. Plain data, already checked.

use std::time::Duration;

/// One request of this many is looked at for its keys. Default 64: at 100,000 requests per second that is 1,500 a second,
/// so a key with one percent of the traffic is seen 15 times a second; what is looked at costs about 200 ns. A power of two
/// at most [`SAMPLE_MAX`].
pub const KEYS_SAMPLE: u32 = 64;
/// The rarest sampling.
pub const SAMPLE_MAX: u32 = 65_536;

/// Keys that each worker keeps in each list. Default 32: a list that fits a screen. At most [`KEYS_TOP_MAX`].
pub const KEYS_TOP: u32 = 32;
/// Worst case 256 entries x about 250 bytes x 2 lists = 128 KiB per worker.
pub const KEYS_TOP_MAX: u32 = 256;

/// Bytes of a request or reply from which its key is noted as big. Default 16 KiB: a hundred times the usual value, and
/// above what `redis-cli --bigkeys` users call big (10 KB).
pub const BIG_BYTES: u64 = 16 << 10;

/// Requests that take at least this long go into the slow log. Default 10 ms, as `slowlog-log-slower-than`.
pub const SLOWER_THAN: Duration = Duration::from_millis(10);

/// Entries that the slow log of a worker keeps. Default 128, as `slowlog-max-len`; worst case 128 x about 5 KiB per worker.
pub const SLOW_ENTRIES: u32 = 128;
/// Worst case 4,096 x about 5 KiB = 20 MiB per worker.
pub const SLOW_ENTRIES_MAX: u32 = 4_096;

/// How much of a key is shown: keys may hold private data, such as names or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum KeyNames {
    /// Its text, up to [`KEY_TEXT_BYTES_MAX`](super::KEY_TEXT_BYTES_MAX).
    #[default]
    Full,
    /// A hash with a secret of the process: equal keys are recognised as equal, and no key can be found out by trying.
    Hashed,
    /// Nothing: no key is looked at.
    Off,
}

/// Settings of the workers' records of their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsightSettings {
    /// See [`KeyNames`].
    pub names: KeyNames,
    /// See [`KEYS_SAMPLE`]. 0: none.
    pub sample: u32,
    /// See [`KEYS_TOP`].
    pub top: u32,
    /// Bytes, see [`BIG_BYTES`].
    pub big_bytes: u64,
    /// See [`SLOWER_THAN`].
    pub slower_than: Duration,
    /// See [`SLOW_ENTRIES`]. 0: there is no slow log.
    pub slow_entries: u32,
    /// The slow log shows the arguments of commands, not only their names.
    pub slow_arguments: bool,
}

impl Default for InsightSettings {
    fn default() -> Self {
        Self {
            names: KeyNames::Full,
            sample: KEYS_SAMPLE,
            top: KEYS_TOP,
            big_bytes: BIG_BYTES,
            slower_than: SLOWER_THAN,
            slow_entries: SLOW_ENTRIES,
            slow_arguments: true,
        }
    }
}

impl InsightSettings {
    /// Nothing is remembered.
    pub fn off() -> Self {
        Self { names: KeyNames::Off, slow_entries: 0, ..Self::default() }
    }

    /// Keys are looked at.
    pub(crate) fn has_keys(&self) -> bool {
        self.names != KeyNames::Off && self.sample > 0
    }

    /// Slow requests are noted.
    pub fn has_slow_log(&self) -> bool {
        self.slow_entries > 0
    }
}
