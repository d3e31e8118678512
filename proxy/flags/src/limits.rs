//! Every bound of this crate with its reason.

use std::time::Duration;

use weir_flags_codec::limits::DOCUMENT_BYTES_MAX;
use weir_flags_session::limits::{HISTORY_EVENTS_MAX, TOKENS_INVALID_TTL, TOKENS_PENDING_MAX};
pub use weir_flags_session::limits::{METRICS_BYTES_MAX, TOKEN_REVALIDATION_INTERVAL as REVALIDATION_INTERVAL};

/// The time between two polls of a token. Default 15 s, as Unleash Edge. Each wait varies by a tenth.
pub const POLL_INTERVAL: Duration = Duration::from_secs(15);

/// The most failed polls that lengthen the interval, by one interval each. Default 10, as Unleash's SDKs.
pub const POLL_FAILURES_MAX: u32 = 10;

/// Polls in a row in which Unleash itself says that it does not know the token, until the token counts as revoked. Default 2: one may come from a
/// server that has just started.
pub const POLL_REVOCATIONS_MAX: u32 = 2;

/// The time for which a revoked token stays bad, whatever a validation says. Default 5 min, as other bad tokens: unleash-server 7.5 calls a deleted
/// token valid, and it would be good and bad by turns.
pub const REVOCATION_HOLD: Duration = TOKENS_INVALID_TTL;

/// For a poll, from the connection to the end of the response. Default 30 s: 64 MiB take as long at 2 MiB/s.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(30);

/// For a request to the server with little in it: validation, registration, metrics. Default 5 s, as Unleash Edge.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of the response to such a request. Default 4 MiB: a thousand tokens with a hundred projects each.
pub const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// The time between two uploads of metrics. Default 60 s, as Unleash Edge.
pub const METRICS_INTERVAL: Duration = Duration::from_secs(60);

/// How long a request with an unknown token waits for the server's verdict. Default 3 s; then the response is a 503.
pub const VALIDATION_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests that may wait at once for a verdict or for the first flags. Default 1,000: tokens are unknown only once, and a flood gets a 503 at once.
pub const WAITING_REQUESTS_MAX: usize = 1_000;

/// Tokens of one source that may wait for a verdict at once. Default 100, of 500 that the next batch has: a source that makes tokens up leaves room
/// for the others. Clients behind one proxy are one source, unless `trusted_hops` tells them apart.
pub const PENDING_PER_SOURCE_MAX: usize = 100;

/// Requests of `/edge/validate` that may wait for a verdict at once. Default 256. Anybody may send them; a further one gets a 503.
pub const VALIDATE_REQUESTS_MAX: usize = 256;

/// The same for one source. Default 16: an edge sends one at a time, and several may have one address.
pub const VALIDATE_REQUESTS_PER_SOURCE_MAX: usize = 16;

/// How often the file of an offline gateway is looked at. Default 5 s.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// How often a changed state is written to the backup. Default 60 s, as Unleash Edge.
pub const BACKUP_INTERVAL: Duration = Duration::from_secs(60);

/// For a connection to a Redis server that has the backup, TLS and login included. Default 2 s, as Unleash Edge.
pub const BACKUP_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// For each document of the backup on its way to a Redis server or a bucket, or from there. Default 10 s: 64 MiB take as long at 6.4 MiB/s.
pub const BACKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a start waits for the backup before it turns to the server. Default 3 s. The backup may still come first.
pub const BACKUP_START_TIMEOUT: Duration = Duration::from_secs(3);

/// The pause before the second attempt to read the backup at a start. Default 250 ms: names of upstreams are resolved by then.
pub const BACKUP_FIRST_RETRY: Duration = Duration::from_millis(250);

/// The longest pause between two attempts to read a backup that is out of reach, while there are no flags. Default 10 s.
pub const BACKUP_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Bytes of a document of the backup. Default 64 MiB: as much as a response of the server.
pub const BACKUP_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;

/// Streams of a listener, over all workers. Default 50,000. Each is a connection, which has a limit of its own.
pub const STREAMS_MAX: usize = 50_000;

/// The pause of a stream after which it gets a comment. Default 30 s: the SDK of Node gives up after 60 s without a byte.
pub const STREAM_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The wait of a stream before the next attempt at an event for which [`FLIGHTS_MAX`] left no room, in milliseconds: the lowest and the highest. A
/// work takes a few milliseconds, so there is usually room by then. Ten thousand streams with as many beginnings of names try several times, for
/// less than a minute.
pub const STREAM_EVENT_RETRY_MILLIS: (u64, u64) = (250, 750);

/// The pause of the server's stream after which it is connected again. Default 90 s, as Unleash Edge.
pub const UPSTREAM_STREAM_IDLE: Duration = Duration::from_secs(90);

/// The first and the longest wait before the server's stream is connected again.
pub const UPSTREAM_STREAM_RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// The wait before a client connects its stream again, in milliseconds: the lowest and the highest. Each stream gets another one, so that
/// clients do not come back all at once.
pub const STREAM_RETRY_MILLIS: (u64, u64) = (1_000, 10_000);

/// Sets of projects of tokens whose documents an environment keeps. Default 1,024: as many as there are tokens with different rights. A further
/// one takes the place of the least recently used one.
pub const SCOPES_MAX: usize = 1_024;

/// Bytes of these documents, with their codings and the events of streams. Default 256 MiB: two thousand documents of 100 KiB,
/// or the largest one with its codings. Past it the least recently used sets go, and the next request makes their documents again.
pub const SCOPES_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The time without a request after which nothing of a set is made ahead for the next flags, unless it has open streams. Default 10 min: SDKs poll
/// every 15 s, or every few minutes.
pub const SCOPE_IDLE_MAX: Duration = Duration::from_secs(600);

/// Documents of an environment that queries select, by the beginning of names or by projects. Default 1,024. Clients may select any: the least
/// recently used one goes, and all go with the next flags.
pub const SELECTED_MAX: usize = 1_024;

/// Bytes of these documents and of their keys, without codings, which may have three times as many again. Default 64 MiB: as much as the largest document. A
/// larger one is made for each request.
pub const SELECTED_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;

/// Bytes of flags up to which a worker writes a document itself, at its first request. Default 256 KiB: a copy and a hash of them take about a
/// tenth of a millisecond. Larger ones are written on a helper thread.
pub const WRITE_AT_ONCE_MAX: usize = 256 * 1024;

/// Bytes of a document from the server up to which the worker with the keeper reads it itself. Default 64 KiB: less than a millisecond. Larger ones
/// are read, and compared with the flags before, on a helper thread.
pub const READ_AT_ONCE_MAX: usize = 64 * 1024;

/// Bytes of events of the server's stream that wait while a larger one is read. Default 64 MiB, as much as one event. With more the stream is
/// connected again.
pub const UPSTREAM_EVENTS_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;

/// Works of one kind for one state of an environment, or of a part of it, that wait for a helper thread or have one. Default 128, more than a
/// history has revisions: clients may begin as many as they find different words for, and each may hold a result to compress. Past it
/// documents, deltas and new streams get 503 with `Retry-After`. Later events are tried again, and results are not compressed.
pub const FLIGHTS_MAX: usize = 128;

/// Bytes of a document up to which a worker compresses it itself. Default 32 KiB: about half a millisecond. Larger ones are compressed on a helper
/// thread.
pub const COMPRESS_AT_ONCE_MAX: usize = 32 * 1024;

/// Results of evaluations in codings that an environment keeps, until its flags change. Default 512: contexts that lead to the same results share
/// one.
pub const RESULTS_MAX: usize = 512;

/// Bytes of these results as they are compressed. Default 4 MiB: one of a few hundred flags has 2 KiB then. The least recently used one goes.
pub const RESULTS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of a response from which it is compressed. Default 1 KiB: a shorter one fits in one packet.
pub const COMPRESS_MIN: usize = 1024;

/// Bytes of a name of an application, an instance, a flag or a metric in a body of metrics, and of a text about its SDK, of a label or of the help of
/// a metric. Default 1 KiB. A sum has the name of its application and of its flag, so a long one of a body would be copied ten thousand times.
pub const METRIC_NAME_BYTES_MAX: usize = 1_024;

/// Metrics of applications' own in a body. Default 500: each may cost the copy of 500 values.
pub const IMPACT_METRICS_MAX: usize = 500;

/// Edges behind this one whose last report is kept. Default 256.
pub const INSTANCES_MAX: usize = 256;

/// Bytes of the report of an edge. Default 16 KiB: one of an edge with a hundred edges behind it has about 10 KiB.
pub const INSTANCE_BYTES_MAX: usize = 16 * 1024;

/// The wait that a 503 names, in seconds: the lowest and the highest. The state is about to change, and clients that were sent away together do
/// not come back together.
pub const RETRY_AFTER_SECONDS: (u64, u64) = (1, 3);

/// The same for a 429, because there are too many streams. Places become free as clients leave, which is rare.
pub const STREAM_RETRY_AFTER_SECONDS: (u64, u64) = (10, 20);

/// Pairs of an application and a flag in `feature_toggle_usage_total`. Default 10,000; the counts of others are in one series.
pub const USAGE_SERIES_MAX: usize = 10_000;

/// Bytes of their names, and of their places. Default 4 MiB: 400 bytes for each, twice as many as usual names need. Names of 1 KiB would
/// otherwise take 20 MiB.
pub const USAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

// Later events without a beginning of names: one for each revision of the history, and those of the whole state.
const _: () = assert!(HISTORY_EVENTS_MAX + 2 < FLIGHTS_MAX);
const _: () = assert!(SELECTED_BYTES_MAX < SCOPES_BYTES_MAX && READ_AT_ONCE_MAX < UPSTREAM_EVENTS_BYTES_MAX);
const _: () = assert!(PENDING_PER_SOURCE_MAX < TOKENS_PENDING_MAX);
const _: () = assert!(VALIDATE_REQUESTS_PER_SOURCE_MAX < VALIDATE_REQUESTS_MAX);
