//! Every bound of the admin server, with the reason for its value.

use std::time::Duration;

/// File descriptors that the data plane leaves free for this server: `RLIMIT_NOFILE` minus this is the
/// ceiling of everything else. 64: the connections below, the listener, the poller and its waker, and
/// the files that a reload or a scrape opens for a moment.
pub const DESCRIPTORS_RESERVED: usize = 64;

/// Admin connections open at once. 48 is a dozen scrapers, probes and operators with room to spare.
/// Past it, a connection that has been silent for [`EVICTABLE_AFTER`] makes room; while all are busy, newcomers
/// wait in the kernel's backlog, and since every exchange has a deadline, the wait is bounded too.
pub const CONNECTIONS_MAX: usize = 48;
const _: () = assert!(CONNECTIONS_MAX + 16 <= DESCRIPTORS_RESERVED);

/// How long a connection may be silent, at the cap, before a newcomer takes its place.
/// One second is ages for a client that means to ask something, and short enough for a probe to get through.
pub const EVICTABLE_AFTER: Duration = Duration::from_secs(1);

/// One deadline for a whole request head, idle time before it included. Progress does not extend it, so a
/// client that sends a byte a second gains nothing.
pub const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// One deadline for writing a whole response, from the first byte that the socket did not take.
/// A client that reads a byte a second gains nothing either.
pub const RESPONSE_DEADLINE: Duration = Duration::from_secs(10);

/// Time for a response that only reads memory or asks the workers.
pub const READ_DEADLINE: Duration = Duration::from_secs(5);

/// Time for a reload: it reads the file and every certificate named in it.
pub const RELOAD_DEADLINE: Duration = Duration::from_secs(30);

/// Time for an upgrade: the longest `upgrade.timeout`, 300 s, and a little more for what is around it.
pub const UPGRADE_DEADLINE: Duration = Duration::from_secs(310);

/// Time that exchanges under way get when the server stops.
pub const STOP_GRACE: Duration = Duration::from_millis(500);

/// Bytes of a request head. Worst case 16 KiB x 48 connections = 768 KiB.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Header fields of a request.
pub const HEADERS_MAX: usize = 64;

/// Bytes of a request body of an operation without parameters: an empty object is all there is to send.
pub const BODY_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a request body about a key of AI clients: a policy with long lists of models. Worst case 64 KiB x 48 connections = 3 MiB.
pub const KEY_BODY_BYTES_MAX: usize = 64 * 1024;

/// Time for an order about a key: it waits for those before it, and for the disk.
pub const KEY_DEADLINE: Duration = Duration::from_secs(10);

/// Connections on one page of `/api/v1/connections`, if the caller names no limit.
pub const PAGE_DEFAULT: usize = 100;

/// Connections on one page at most. About 400 bytes each, so a page stays under half a megabyte.
pub const PAGE_MAX: usize = 1000;
const _: () = assert!(PAGE_DEFAULT <= PAGE_MAX);

/// Shortest token that is taken: 16 bytes, so that guessing is hopeless even if the bytes are letters.
pub const TOKEN_BYTES_MIN: usize = 16;

/// Longest token that is taken; it must fit into a request head with room to spare.
pub const TOKEN_BYTES_MAX: usize = 4 * 1024;
const _: () = assert!(TOKEN_BYTES_MAX * 2 <= HEAD_BYTES_MAX);

/// First wait after a failed `accept()` that is the machine's fault (no descriptors, no memory).
pub const ACCEPT_BACKOFF_MIN: Duration = Duration::from_millis(5);

/// Longest wait after a failed `accept()`.
pub const ACCEPT_BACKOFF_MAX: Duration = Duration::from_millis(100);
