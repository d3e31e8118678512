//! Defaults of the limits that hold for the whole process, and the relations between them.
//!
//! Each constant says why it has its value and what the worst case costs. A limit that a setting can change names the
//! setting; the constant is then the default. Relations that keep the worst cases inside the byte budget are asserted
//! at compile time below the constants, so that no limit can be raised alone.

use std::time::Duration;

/// 1,024 bytes.
const KIB: u64 = 1024;
/// 1,048,576 bytes.
const MIB: u64 = 1024 * KIB;

// === Connections ===

/// Client connections of the process. Setting `limits.connections`.
/// Worst case: two descriptors each (client and pinned lane) = 32,768; the byte budget leaves 64 KiB to each.
pub const CONNECTIONS_MAX: u64 = 16_384;

/// Client connections from one source address. Setting `limits.connections_per_source`.
/// A sixteenth of the process limit: one address cannot lock the others out, a NAT in front of a fleet still fits.
pub const CONNECTIONS_PER_SOURCE_MAX: u64 = 1_024;

/// TLS handshakes in flight per core; further ones wait, no longer than the deadline below. Setting
/// `limits.handshakes_per_core`.
/// A wave of reconnecting clients killed a TLS edge in 30 s (agentgateway/agentgateway#3033).
/// Worst case: 256 x about 1 ms of signing = a quarter second of CPU queued, within the deadline below.
pub const TLS_HANDSHAKES_PER_CORE_MAX: u64 = 256;

/// From accept to a finished TLS handshake; 1 s more for a client that has waited for its turn. Settings `listener.tls.handshake_timeout` and
/// `upstream.tls.handshake_timeout`.
/// Four round trips on a bad mobile link fit; a peer that stops in the middle holds a handshake permit no longer, and one that has sent
/// neither its whole hello nor 16 KiB of it holds none.
pub const TLS_HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of a PROXY protocol header, both versions. Version 1 ends within 107 bytes; version 2 carries 16 bytes, 216 of
/// Unix addresses, and TLVs, of which common senders need a few hundred (HAProxy `doc/proxy-protocol.txt`).
pub const PROXY_HEADER_BYTES_MAX: u64 = 4 * KIB;

// === Exchanges ===

/// Exchanges in flight per core, counted until the end of the reply. Setting `limits.in_flight_per_core`.
/// At 1,000,000 pipelined exchanges per second and core this is 16 ms of work; what is beyond only adds waiting. 400
/// clients with 16 commands each are 6,400. Worst case 16,384 x about 100 B = 1.6 MiB.
pub const EXCHANGES_PER_CORE_MAX: u64 = 16_384;

/// How long an exchange may wait for a lane or a permit before it is refused by name. For a lane the setting is
/// `upstream.lane_wait_timeout`.
/// Most Redis clients give up after one to five seconds; work on a reply that no client reads is wasted.
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

/// Output buffered on a connection above which its source is no longer read. Setting `listener.output_high_water`.
/// The aggregate is bounded by the byte budget, not by this: 4,096 slow readers would fill 1 GiB.
pub const WRITE_HIGH_WATER_BYTES: u64 = 256 * KIB;

/// Output buffered on a connection below which its source is read again. Setting `listener.output_low_water`.
/// A quarter of high water, so that a slow reader does not stop and start its source on every packet.
pub const WRITE_LOW_WATER_BYTES: u64 = 64 * KIB;

// === Deadlines ===

/// A client that takes no byte of its reply for this long is closed.
pub const WRITE_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a half-closed connection may take to finish (istio/ztunnel#1629: 383,000 sockets never closed).
/// Setting `listener.half_close_timeout`.
pub const HALF_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

// === RESP ===

/// Length of one bulk string, Redis `proto-max-bulk-len`. Setting `listener.redis.bulk_bytes_max`.
/// Streamed, never buffered whole: memory is bounded by the receive buffers and high water.
pub const RESP_BULK_BYTES_MAX: u64 = 512 * MIB;

/// Arguments of one command, Redis's limit. Setting `listener.redis.args_max`. Counted, not reserved.
pub const RESP_ELEMENTS_MAX: u64 = 1_048_576;

/// Commands read ahead of their replies on one connection; then reading stops (the class of CVE-2025-21605).
/// Setting `listener.redis.pipeline_max`.
pub const RESP_PIPELINE_COMMANDS_MAX: u64 = 1_024;

/// Bytes of commands read ahead of their replies on one connection; then reading stops.
/// Setting `listener.redis.pipeline_bytes`. The aggregate is bounded by the byte budget.
pub const RESP_PIPELINE_BYTES_MAX: u64 = MIB;

// === Telemetry ===

/// Label sets per metric family; later ones are counted under `other`. Worst case for a counter: 1,024 x about 200 B
/// per core; for a histogram see `weir_telemetry::histogram`.
pub const METRIC_LABEL_SETS_MAX: usize = 1_024;

/// Log events a core may have queued for the control thread; when the ring is full, events are dropped and counted.
/// Worst case 1,024 x about 200 B per core.
pub const LOG_RING_EVENTS: usize = 1_024;

/// Bytes of lines of the access log that a core may have waiting for the log's thread, which comes every 50 ms: 4 MiB are 80 MiB
/// a second. Further lines are dropped and counted. Worst case 16 MiB per core: what waits and what is being written,
/// each in memory of twice its size.
pub const ACCESS_LINES_BYTES_MAX: usize = 4 << 20;

// === Relations ===

const _: () = assert!(CONNECTIONS_PER_SOURCE_MAX <= CONNECTIONS_MAX);
const _: () = assert!(WRITE_LOW_WATER_BYTES * CONNECTIONS_MAX <= BUFFERED_BYTES_MAX, "all clients fit at low water");
const _: () = assert!(WRITE_LOW_WATER_BYTES < WRITE_HIGH_WATER_BYTES);
const _: () = assert!(RESP_PIPELINE_COMMANDS_MAX <= EXCHANGES_PER_CORE_MAX);
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
