//! Every bound of this crate with its reason. No bound reserves memory: buffers grow with bytes received.

use std::time::Duration;

/// Bad tokens that are remembered. Default 10,000, as the contract has it: about 2 MiB. A flood of random ones pushes out the oldest.
pub const TOKENS_INVALID_MAX: usize = 10_000;

/// The time for which a bad token stays bad. Default 5 minutes: unleash-server itself looks for a missing token as rarely.
pub const TOKENS_INVALID_TTL: Duration = Duration::from_secs(300);

/// Tokens of one batch, and tokens that wait for one. Default 500. One source has a share of it, so a flood leaves room for others.
pub const TOKENS_PENDING_MAX: usize = 500;

/// Bytes of the tokens of one batch, as JSON. Default 64 KiB: unleash-server takes bodies of 100 KiB, and a server in front of it may take less.
/// A longest token with escapes has 3 KiB. Without the bound 500 long tokens would be refused again and again, and with them every other one.
pub const TOKENS_BATCH_BYTES_MAX: usize = 64 * 1024;

/// The time for which a known token stays behind the new ones, once a batch of it alone has failed. Default 60 s: a token that the server chokes on
/// costs the others a few batches a minute, and a flood of new ones cannot keep a known one from its validation for longer.
pub const TOKEN_SETBACK: Duration = Duration::from_secs(60);

/// Batches with a new token alone that may fail, until it waits no longer. Default 3: tokens on which the server chokes would fill the table.
pub const TOKEN_FAILURES_MAX: u32 = 3;

/// The time between two batches of tokens. Default 1 s: requests with new tokens wait for it.
pub const TOKEN_BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which a good token is validated again. Default an hour, as Unleash Edge.
pub const TOKEN_REVALIDATION_INTERVAL: Duration = Duration::from_secs(3_600);

/// Events of an environment that clients with an earlier revision may still get. Default 100, as Unleash Edge. Each shares the text of its
/// flag with the state, or keeps an older text alive: a few kilobytes.
pub const HISTORY_EVENTS_MAX: usize = 100;

/// Bytes of the program of a regex. Default 256 KiB: a class of Unicode has about 10 KiB. A larger one matches nothing.
pub const REGEX_PROGRAM_BYTES_MAX: usize = 256 * 1024;

/// Bytes that the search for a regex may use to remember its steps, for each thread that searches. Default 256 KiB.
pub const REGEX_CACHE_BYTES_MAX: usize = 256 * 1024;

/// Patterns of one environment. Default 1,000. Worst case 250 MiB of programs, which only the upstream can cause. A flag with a further
/// one is off.
pub const REGEXES_MAX: usize = 1_000;

/// Bytes of the texts of all results of an environment. Default 256 MiB: five thousand flags have about 2 MiB. A long name with many variants
/// makes a text of each, so a document could otherwise become many times as large. Flags without room are off.
pub const TEXTS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of aggregated metrics. Default 8 MiB: 50,000 flags of applications in an hour. Past it the hour that is farthest from
/// now is dropped. If there is none but the present one, its new sums are dropped.
pub const METRICS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The part of these bytes that applications, metrics of their own and tokens have: a quarter. Sums have the rest, so neither pushes the other out.
pub const METRICS_OTHERS_PART: usize = 4;

/// Values of a metric of an application's own, each with its set of labels. Default 500; further ones are left out.
pub const IMPACT_SAMPLES_MAX: usize = 500;

/// Buckets of a histogram. Default 128; further ones are left out.
pub const IMPACT_BUCKETS_MAX: usize = 128;

/// Bytes of a body that the upstream takes (its limit of JSON bodies).
pub const UPLOAD_BYTES_MAX: usize = 100 * 1024;

/// Bytes of each body of several. Default 95 KiB, as Unleash Edge: a counted size may be wrong by a few.
pub const UPLOAD_PART_BYTES: usize = 95 * 1024;

/// The distance from now beyond which the time of a metric is moved to it: 24 hours. The hour of a sum is a part of its key, so clocks that are
/// wrong would make a key each.
pub const METRICS_SKEW_HOURS: i64 = 24;

// Places of texts have 32 bits. A text of a result that is the last to fit has a name and a payload of one document at most, with escapes.
const _: () = assert!(TEXTS_BYTES_MAX + 2 * 2 * 6 * weir_flags_codec::limits::DOCUMENT_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(UPLOAD_PART_BYTES < UPLOAD_BYTES_MAX && UPLOAD_BYTES_MAX < METRICS_BYTES_MAX);
const _: () = assert!(TOKENS_BATCH_BYTES_MAX < UPLOAD_BYTES_MAX);
// A letter has an escape of six bytes at most.
const _: () = assert!(6 * weir_flags_codec::limits::TOKEN_BYTES_MAX < TOKENS_BATCH_BYTES_MAX);
