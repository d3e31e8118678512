//! How often somebody may ask: a token bucket for each key, kept by all workers together.
//!
//! The workers share one [`RateTable`], so a limit holds whichever connections a client has. Shares of workers would not
//! do: the kernel spreads connections by hash, and a client with one connection would get one share. `SharedRate` of the
//! base is for one bucket with a burst of 50 ms; here a bucket has the size that people configure, and says what is left.
//!
//! A bucket is one number: when all that was taken will have been earned (the generic cell rate algorithm, ITU-T I.371), so
//! taking is one atomic exchange. A bucket that is full again equals one that was never used, so such entries are free.
//!
//! **Memory** is reserved once: 16 bytes an entry. A key has its place in a group of [`WAYS`] by a hash with keys of the
//! process's own, so no client can aim at the bucket of another. Only 64 bits of that hash are stored of a key: two keys
//! share a bucket with probability 2^-64. When a group has no free entry, the one that owes least is taken: who is
//! being limited stays known, however many others come once. Its owner begins again with a full bucket, which is the price:
//! with more than [`ENTRIES`] keys in debt a limit is loose, and never unfair.
//!
//! Between the two stores that give an entry to another key, a third may take from it: a race is worth one request.

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use weir_base::Time;
use weir_http_codec::{Fields, Known, token};

use super::refusal::Refusal;

/// Keys that a table knows at a time. Default 65,536: 1 MiB.
pub const ENTRIES: u32 = 65_536;

/// The most keys of a table. 16,777,216: 256 MiB.
pub const ENTRIES_MAX: u32 = 1 << 24;

/// Entries among which a key has its place. Default 8: two cache lines.
pub const WAYS: usize = 8;

/// The longest time in which a bucket fills up. 366 days, so that a limit per year can be written.
pub const PERIOD_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Bits of an IPv6 address that tell clients apart. Default 64: the rest a client chooses as it likes (RFC 7421).
pub const IPV6_PREFIX: u8 = 64;

/// Bytes of the name of a limit, as `RateLimit` shows it. Default 64.
pub const RATE_NAME_BYTES_MAX: usize = 64;

/// The requests that share a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// All requests.
    All,
    /// Those of one client address; of IPv6 this many bits of it, see [`IPV6_PREFIX`].
    Client {
        /// 1 to 128.
        ipv6_prefix: u8,
    },
    /// Those with the same value of this header, all its lines together.
    Header {
        /// Any case.
        name: String,
        /// Treatment of requests without the header.
        missing: MissingKey,
    },
    /// Requests of one API key, user or subject of a token, as authentication found it.
    Identity {
        /// Treatment of requests without an identity.
        missing: MissingKey,
    },
}

/// Treatment of a request without the key of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// It is counted by its client address, so that leaving the key out gains nothing.
    #[default]
    Client,
    /// It is not limited.
    Pass,
}

/// Which fields tell a client about its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateFields {
    /// None but `Retry-After` of a refusal.
    #[default]
    None,
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
    Draft,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the latter in seconds.
    Legacy,
    /// Both.
    Both,
}

/// A limit as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSettings {
    /// In `RateLimit`: printable ASCII without quotes.
    pub name: String,
    /// So many in `unit` on average.
    pub requests: u32,
    /// A second, a minute, an hour, a day.
    pub unit: Duration,
    /// So many at once after a pause: the size of the bucket. `None`: `requests`. (Contour's bucket has `requests` and
    /// `burst` together.)
    pub burst: Option<u32>,
    /// The requests that share a bucket.
    pub key: RateKey,
    /// Status of a refusal, 400 to 599; usually 429.
    pub status: u16,
    /// Fields that report the limit.
    pub fields: RateFields,
}

/// A limit, checked, with the table of its keys. All workers share it; a reload that keeps [`RateSettings`] should keep it.
#[derive(Debug)]
pub struct RateLimit {
    settings: RateSettings,
    table: RateTable,
    burst: u32,
    /// Nanoseconds that one request is worth.
    interval: u64,
    /// `"name";q=100;w=60`
    policy: Box<[u8]>,
    /// With keys of its own.
    hasher: RandomState,
}

/// The decision of a limit about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOutcome {
    /// It is within the limit, and was counted. One that is not costs nothing.
    pub is_allowed: bool,
    /// How many more may come at once.
    pub remaining: u32,
    /// Until the bucket is full again.
    pub full_in: Duration,
    /// Until the next one may come; zero if one may come now.
    pub next_in: Duration,
}

impl RateLimit {
    /// A limit with an empty table for [`ENTRIES`] keys, or `entries`, rounded up to a power of two; for
    /// [`RateKey::All`] there is one.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn new(settings: RateSettings, entries: Option<u32>) -> Result<Self, RateError> {
        if settings.requests == 0 || settings.unit.is_zero() {
            return Err(RateError::Never);
        }
        let burst = settings.burst.unwrap_or(settings.requests);
        let interval = settings.unit.as_nanos() / u128::from(settings.requests);
        let period = interval.saturating_mul(u128::from(burst));
        if burst == 0 {
            return Err(RateError::Never);
        }
        if settings.unit > PERIOD_MAX || period > PERIOD_MAX.as_nanos() {
            return Err(RateError::TooLong);
        }
        if !(400..=599).contains(&settings.status) {
            return Err(RateError::Status(settings.status));
        }
        match &settings.key {
            RateKey::Header { name, .. } if !token::is_token(name.as_bytes()) => {
                return Err(RateError::Header(name.clone()));
            }
            RateKey::Client { ipv6_prefix } if !(1..=128).contains(ipv6_prefix) => {
                return Err(RateError::Prefix(*ipv6_prefix));
            }
            _ => {}
        }
        let is_name = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if !(1..=RATE_NAME_BYTES_MAX).contains(&settings.name.len()) || !settings.name.bytes().all(is_name) {
            return Err(RateError::Name);
        }
        let entries = if settings.key == RateKey::All { WAYS as u32 } else { entries.unwrap_or(ENTRIES) };
        if entries > ENTRIES_MAX {
            return Err(RateError::Entries(entries));
        }
        // `q` requests in `w` seconds; the bucket may have another size, which the draft has no word for.
        let window = settings.unit.as_secs().max(1);
        let quota = if settings.unit.as_secs() == 0 { per_second(&settings) } else { u64::from(settings.requests) };
        let policy = format!("\"{}\";q={quota};w={window}", settings.name).into_bytes().into();
        let interval = u64::try_from(interval).unwrap_or(u64::MAX).max(1);
        let table = RateTable::new(entries as usize);
        Ok(Self { settings, table, burst, interval, policy, hasher: RandomState::new() })
    }

    /// The settings that it was made from.
    pub fn settings(&self) -> &RateSettings {
        &self.settings
    }

    /// Counts a request of this client, with these fields, of whom authentication found. `None`: it has no key and is not
    /// limited.
    pub fn take(&self, client: IpAddr, fields: &Fields, identity: Option<&str>, now: Time) -> Option<RateOutcome> {
        let key = self.key(client, fields, identity)?;
        Some(self.table.take(key, self.interval, self.burst, now))
    }

    /// Appends the fields about the limit to the response of an allowed request.
    pub fn append_to(&self, response: &RateOutcome, fields: &mut Fields) {
        let reset = seconds_up(response.full_in);
        if matches!(self.settings.fields, RateFields::Draft | RateFields::Both) {
            let limit = format!("\"{}\";r={};t={reset}", self.settings.name, response.remaining);
            fields.set_named(b"ratelimit-policy", &self.policy);
            fields.set_named(b"ratelimit", limit.as_bytes());
        }
        if matches!(self.settings.fields, RateFields::Legacy | RateFields::Both) {
            let number = |number: u64| number.to_string().into_bytes();
            fields.set_named(b"x-ratelimit-limit", &number(u64::from(self.burst)));
            fields.set_named(b"x-ratelimit-remaining", &number(u64::from(response.remaining)));
            fields.set_named(b"x-ratelimit-reset", &number(reset));
        }
    }

    /// The response to a request that is not allowed, with `Retry-After`. `jitter` is added to it: where many share a bucket
    /// ([`RateKey::All`]), all would come again at once.
    pub fn refusal(&self, response: &RateOutcome, jitter: Duration) -> Refusal {
        let wait = seconds_up(response.next_in.saturating_add(jitter)).max(1);
        let mut refusal = Refusal::new(self.settings.status, "rate_limited");
        refusal.fields.add(Known::RetryAfter, wait.to_string().as_bytes());
        self.append_to(response, &mut refusal.fields);
        refusal
    }

    /// The hash of who asks; nothing of it can be guessed outside.
    fn key(&self, client: IpAddr, fields: &Fields, identity: Option<&str>) -> Option<u64> {
        let of_client = |prefix: u8| Some(self.hasher.hash_one((0u8, client_bits(client, prefix))));
        let without = |missing: &MissingKey| match missing {
            MissingKey::Client => of_client(IPV6_PREFIX),
            MissingKey::Pass => None,
        };
        match &self.settings.key {
            RateKey::All => Some(self.hasher.hash_one(1u8)),
            RateKey::Client { ipv6_prefix } => of_client(*ipv6_prefix),
            RateKey::Header { name, missing } => {
                let mut lines = fields.all_named(name.as_bytes()).peekable();
                if lines.peek().is_none() {
                    return without(missing);
                }
                let mut hasher = self.hasher.build_hasher();
                2u8.hash(&mut hasher);
                lines.for_each(|line| line.hash(&mut hasher));
                Some(std::hash::Hasher::finish(&hasher))
            }
            RateKey::Identity { missing } => match identity {
                Some(identity) => Some(self.hasher.hash_one((3u8, identity))),
                None => without(missing),
            },
        }
    }
}

/// The address as IPv6, without the bits behind the prefix.
fn client_bits(client: IpAddr, ipv6_prefix: u8) -> u128 {
    match client.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(address) => u128::from(address) & u128::MAX.checked_shl(128 - u32::from(ipv6_prefix)).unwrap_or(0),
    }
}

fn per_second(settings: &RateSettings) -> u64 {
    let nanos = u64::try_from(settings.unit.as_nanos()).unwrap_or(u64::MAX).max(1);
    u64::from(settings.requests).saturating_mul(1_000_000_000) / nanos
}

fn seconds_up(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// An entry: a bucket and whose it is.
#[derive(Debug, Default)]
struct Bucket {
    /// Hash of the key; 0: the entry is free.
    key: AtomicU64,
    /// When all that was taken will have been earned, in nanoseconds of [`Time`].
    earned_at: AtomicU64,
}

/// Buckets of a bounded number of keys.
struct RateTable {
    buckets: Box<[Bucket]>,
}

impl fmt::Debug for RateTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} buckets", self.buckets.len())
    }
}

impl RateTable {
    fn new(entries: usize) -> Self {
        let entries = entries.max(WAYS).next_power_of_two();
        Self { buckets: (0..entries).map(|_| Bucket::default()).collect() }
    }

    fn take(&self, key: u64, interval: u64, burst: u32, now: Time) -> RateOutcome {
        let key = key.max(1);
        let now = now.as_nanos();
        let latest = now.saturating_add(interval.saturating_mul(u64::from(burst)));
        let bucket = self.bucket_of(key, now);
        let next = |earned: u64| earned.max(now).saturating_add(interval);
        let taken = bucket.earned_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |earned| {
            (next(earned) <= latest).then(|| next(earned))
        });
        let (is_allowed, earned) = match taken {
            Ok(before) => (true, next(before)),
            Err(before) => (false, before.max(now)),
        };
        RateOutcome {
            is_allowed,
            remaining: u32::try_from(latest.saturating_sub(earned) / interval).unwrap_or(u32::MAX),
            full_in: Duration::from_nanos(earned - now),
            next_in: Duration::from_nanos(next(earned).saturating_sub(latest)),
        }
    }

    /// The bucket of this key: its own, or else one that is free, or that owes least.
    fn bucket_of(&self, key: u64, now: u64) -> &Bucket {
        let groups = self.buckets.len() / WAYS;
        // The upper half chooses the group; all of it tells keys of a group apart.
        let group = (key >> 32) as usize & (groups - 1);
        let group = &self.buckets[group * WAYS..(group + 1) * WAYS];
        let mut least = &group[0];
        let mut least_owed = u64::MAX;
        for bucket in group {
            if bucket.key.load(Ordering::Relaxed) == key {
                return bucket;
            }
            let owed = bucket.earned_at.load(Ordering::Relaxed).saturating_sub(now);
            if owed < least_owed {
                (least, least_owed) = (bucket, owed);
            }
        }
        least.key.store(key, Ordering::Relaxed);
        if least_owed > 0 {
            least.earned_at.store(now, Ordering::Relaxed);
        }
        least
    }
}

/// Why a limit cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateError {
    /// No request would ever pass.
    Never,
    /// The bucket takes longer than [`PERIOD_MAX`] to fill up.
    TooLong,
    /// No status of an error.
    Status(u16),
    /// No header name.
    Header(String),
    /// No prefix length of IPv6.
    Prefix(u8),
    /// A name that is empty, too long, or has a quote.
    Name,
    /// So many keys.
    Entries(u32),
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("a rate limit of nothing: requests, unit and burst must not be 0"),
            Self::TooLong => f.write_str("a rate limit whose bucket takes more than a year to fill up"),
            Self::Status(status) => write!(f, "a rate limit responds with 400 to 599, not with {status}"),
            Self::Header(name) => write!(f, "a rate limit by header `{name}`: that is no header name"),
            Self::Prefix(prefix) => write!(f, "a rate limit by {prefix} bits of IPv6: it must be 1 to 128"),
            Self::Name => write!(
                f,
                "the name of a rate limit has 1 to {RATE_NAME_BYTES_MAX} printable ASCII characters and no quotes"
            ),
            Self::Entries(count) => write!(f, "a rate limit for {count} keys; the most is {ENTRIES_MAX}"),
        }
    }
}

impl std::error::Error for RateError {}

#[cfg(test)]
mod tests;
