//! Defaults of the limits that hold for the whole process, and the relations between them.
//!
//! Each constant says why it has its value and what the worst case costs. A limit that a setting can change names the
//! setting; the constant is then the default. Relations that keep the worst cases inside the byte budget are asserted
//! at compile time below the constants, so that nobody can raise one limit alone.

use std::time::Duration;

/// 1,024 bytes.
const KIB: u64 = 1024;
/// 1,048,576 bytes.
const MIB: u64 = 1024 * KIB;

// === Connections ===

/// Client connections of the process. Setting `limits.connections`.
/// Worst case: two descriptors each (client and pinned lane) = 32,768, and [`READ_BUFFER_BYTES`] each = 1 GiB,
/// which is the byte budget.
pub const CONNECTIONS_MAX: u64 = 16_384;

/// Client connections from one source address. Setting `limits.connections_per_source`.
/// A sixteenth of the process limit: one address cannot lock the others out, a NAT in front of a fleet still fits.
pub const CONNECTIONS_PER_SOURCE_MAX: u64 = 1_024;

/// Descriptors wanted at start: client and lane for every connection, plus the reserve. RLIMIT_NOFILE is raised to it
/// as far as the hard limit allows; below it the connection limit is lowered to what fits (istio/ztunnel#1585).
pub const DESCRIPTORS_WANTED: u64 = 2 * CONNECTIONS_MAX + DESCRIPTORS_RESERVED;

/// Descriptors kept for the admin port, listeners, configuration files and the runtime's own: when clients have used up
/// the rest, an operator can still ask what is going on.
pub const DESCRIPTORS_RESERVED: u64 = 64;

/// Connections taken per wake of a listener before other work gets its turn. HAProxy takes 4; 16 drains a burst of
/// 1,024 in 64 turns and costs at most 16 set-ups of latency for those already served.
pub const ACCEPT_BURST: u32 = 16;

/// TLS handshakes in flight per core; beyond it the core stops accepting. Setting `limits.tls_handshakes_per_core`.
/// A wave of reconnecting clients killed a TLS edge in 30 s (agentgateway/agentgateway#3033).
/// Worst case: 256 x about 1 ms of signing = a quarter second of CPU queued, within the deadline below.
pub const TLS_HANDSHAKES_PER_CORE_MAX: u64 = 256;

/// From accept to a finished TLS handshake. Setting `listener.tls.handshake_deadline`.
/// Four round trips on a bad mobile link fit; a peer that stays silent holds a handshake permit no longer.
pub const TLS_HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// From accept to a whole PROXY protocol header. The sender is our own load balancer, which sends it first of all.
pub const PROXY_HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of a PROXY protocol header, both versions. Version 1 ends within 107 bytes; version 2 carries 16 bytes, 216 of
/// Unix addresses, and TLVs, of which common senders need a few hundred (HAProxy `doc/proxy-protocol.txt`).
pub const PROXY_HEADER_BYTES_MAX: u64 = 4 * KIB;

// === Exchanges ===

/// Exchanges in flight per core, counted until the end of the reply. Setting `limits.in_flight_per_core`.
/// At 100,000 exchanges per second and core this is 41 ms of work; what is beyond only adds waiting.
pub const EXCHANGES_PER_CORE_MAX: u64 = 4_096;

/// Exchanges in flight per connection of a multiplexed protocol. RESP has its own pair below, because its replies keep
/// the order of the commands and the surplus waits unread.
pub const EXCHANGES_PER_CONNECTION_MAX: u64 = 256;

/// How long an exchange may wait for a lane or a permit before it is refused by name. Setting `limits.queue_wait`.
/// Most Redis clients give up after one to five seconds; an answer that nobody reads any more is wasted work.
pub const QUEUE_WAIT_MAX: Duration = Duration::from_secs(1);

// === Bytes ===

/// Buffered bytes of the whole process, if [`BUFFERED_MEMORY_PERCENT`] of the memory limit is not less.
/// Setting `limits.buffered_bytes`. An aggregate budget is what others lack (agentgateway/agentgateway#3184).
pub const BUFFERED_BYTES_MAX: u64 = 1024 * MIB;

/// Share of the process's memory limit (cgroup or machine) that buffers may take, in percent.
pub const BUFFERED_MEMORY_PERCENT: u64 = 25;

/// Bytes a core leases from the process budget at a time. With 64 cores less than 128 MiB are leased but idle, 12 % of the
/// default budget; smaller steps would touch the shared atomic more often.
pub const BYTE_LEASE_STEP: u64 = MIB;

/// Read buffer of a connection. Envoy's edge guidance is 32 KiB; 64 KiB takes a 64 KiB value in two receives.
/// Worst case x [`CONNECTIONS_MAX`] = 1 GiB. An idle connection holds none: the pool lends buffers per receive.
pub const READ_BUFFER_BYTES: u64 = 64 * KIB;

/// Output buffered on a connection above which its source is no longer read. Setting `limits.write_high_water`.
/// The aggregate is bounded by the byte budget, not by this: 4,096 slow readers would fill 1 GiB.
pub const WRITE_HIGH_WATER_BYTES: u64 = 256 * KIB;

/// Output buffered on a connection below which its source is read again. A quarter of high water, so that a slow reader
/// does not stop and start its source on every packet.
pub const WRITE_LOW_WATER_BYTES: u64 = 64 * KIB;

/// Bytes a client may have buffered with us before it is authenticated. Redis allows 10 arguments of 16 KiB.
/// Worst case x [`CONNECTIONS_MAX`] = 256 MiB, a quarter of the byte budget: strangers cannot take it all.
pub const PREAUTH_BYTES_MAX: u64 = 16 * KIB;

// === Deadlines ===

/// From the first byte of a command to its head being complete. Set once, not extended by progress: a peer that sends
/// a byte at a time holds a buffer no longer than this. Setting `limits.head_deadline`.
pub const MESSAGE_HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// A bulk payload that stands still this long is given up. Setting `limits.body_idle`.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that takes no byte of its reply for this long is closed. Setting `limits.write_idle`.
pub const WRITE_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// TCP and TLS connect to an upstream endpoint. Setting `upstream.connect_timeout`.
/// Two SYN retransmissions do not fit on purpose: another lane or an honest refusal is sooner.
pub const UPSTREAM_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a half-closed connection may take to finish (istio/ztunnel#1629: 383,000 sockets never closed).
/// Setting `limits.half_close_timeout`.
pub const HALF_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

// === RESP ===

/// Length of one bulk string, Redis `proto-max-bulk-len`. Streamed, never buffered whole: memory is bounded by
/// the read buffer and high water.
pub const RESP_BULK_BYTES_MAX: u64 = 512 * MIB;

/// Length of one line: inline command, simple string, error, number. Redis `PROTO_INLINE_MAX_SIZE`.
pub const RESP_LINE_BYTES_MAX: u64 = 64 * KIB;

/// Elements of one aggregate, Redis's limit for a command's arguments. Counted, not reserved.
pub const RESP_ELEMENTS_MAX: u64 = 1_048_576;

/// Nesting of aggregates. Redis replies nest four or five deep; the decoder keeps one small entry per level.
pub const RESP_NESTING_MAX: u64 = 32;

/// Commands read ahead of their replies on one connection; then reading stops (the class of CVE-2025-21605).
pub const RESP_PIPELINE_COMMANDS_MAX: u64 = 1_024;

/// Bytes of commands read ahead of their replies on one connection; then reading stops.
/// The aggregate is bounded by the byte budget.
pub const RESP_PIPELINE_BYTES_MAX: u64 = MIB;

// === Telemetry ===

/// Label sets per metric family; later ones are counted under `other`. Worst case for a counter: 1,024 x about 200 B
/// per core; for a histogram see `weir_telemetry::histogram`.
pub const METRIC_LABEL_SETS_MAX: usize = 1_024;

/// Log events a core may have queued for the control thread; when the ring is full, events are dropped and counted.
/// Worst case 1,024 x about 200 B per core.
pub const LOG_RING_EVENTS: usize = 1_024;

// === Relations ===

const _: () = assert!(CONNECTIONS_PER_SOURCE_MAX <= CONNECTIONS_MAX);
const _: () = assert!(DESCRIPTORS_WANTED >= 2 * CONNECTIONS_MAX + DESCRIPTORS_RESERVED);
const _: () = assert!(READ_BUFFER_BYTES * CONNECTIONS_MAX <= BUFFERED_BYTES_MAX);
const _: () = assert!(PREAUTH_BYTES_MAX * CONNECTIONS_MAX <= BUFFERED_BYTES_MAX / 2);
const _: () = assert!(PREAUTH_BYTES_MAX <= READ_BUFFER_BYTES);
const _: () = assert!(PROXY_HEADER_BYTES_MAX <= PREAUTH_BYTES_MAX);
const _: () = assert!(RESP_LINE_BYTES_MAX <= READ_BUFFER_BYTES);
const _: () = assert!(WRITE_LOW_WATER_BYTES < WRITE_HIGH_WATER_BYTES);
const _: () = assert!(READ_BUFFER_BYTES <= WRITE_HIGH_WATER_BYTES);
const _: () = assert!(RESP_PIPELINE_COMMANDS_MAX <= EXCHANGES_PER_CORE_MAX);
const _: () = assert!(EXCHANGES_PER_CONNECTION_MAX <= EXCHANGES_PER_CORE_MAX);
const _: () = assert!(RESP_PIPELINE_BYTES_MAX >= READ_BUFFER_BYTES);
const _: () = assert!(64 * BYTE_LEASE_STEP <= BUFFERED_BYTES_MAX / 10, "idle leases of 64 cores stay under a tenth");
const _: () = assert!(BUFFERED_MEMORY_PERCENT <= 50);
const _: () = assert!(TLS_HANDSHAKES_PER_CORE_MAX <= CONNECTIONS_MAX);

/// The byte budget of a process that may use `memory_limit` bytes: the smaller of the two bounds above.
#[must_use]
pub const fn buffered_bytes(memory_limit: u64) -> u64 {
    let share = memory_limit / 100 * BUFFERED_MEMORY_PERCENT;
    if share < BUFFERED_BYTES_MAX { share } else { BUFFERED_BYTES_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_budget_is_the_smaller_of_the_two_bounds() {
        assert_eq!(buffered_bytes(u64::MAX), BUFFERED_BYTES_MAX);
        assert_eq!(buffered_bytes(400 * MIB), 100 * MIB);
        assert_eq!(buffered_bytes(0), 0);
    }
}
