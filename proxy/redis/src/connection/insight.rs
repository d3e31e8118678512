//! The records of a connection for the memory of its worker: requests that were sent, replies that were slow or large.

use std::{
    cell::Cell,
    fmt::{Display, Write},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::SystemTime,
};

use weir_base::time::{Time, turn};
use weir_telemetry::catalog;
use weir_upstream::{LaneProtocol, LossCause, Reply};

use super::Connection;
use weir_redis_session::{
    PinReason,
    insight::{SlowClient, SlowReply, outcome},
    io::Ticket,
    lane::LaneKey,
};

use crate::lane::RespLane;

/// Hot keys that INFO tells; the admin API tells all.
const HOT_KEYS_TOLD: usize = 10;

/// State between two pieces of a reply.
#[derive(Default)]
pub(super) struct PartialReplyNote {
    /// The exchange of a reply of which the end has not come, and its bytes so far; zero bytes: none is under way.
    partial: Cell<(u64, u64)>,
    /// How long the last request takes is the client's choice.
    is_own_choice: Cell<bool>,
}

impl PartialReplyNote {
    /// The beginning of a reply was delivered.
    #[inline]
    pub(super) fn is_partial(&self) -> bool {
        self.partial.get().1 > 0
    }

    /// Adds one more piece; returns the bytes of this reply so far. Pieces of several shards may alternate: then only the
    /// latest counts.
    #[inline]
    fn add(&self, reply: &Reply<'_>) -> u64 {
        let (exchange, before) = self.partial.get();
        let bytes = reply.bytes.len() as u64 + if exchange == reply.exchange { before } else { 0 };
        if reply.count == 0 {
            self.partial.set((reply.exchange, bytes));
        } else if before > 0 {
            self.partial.set((0, 0));
        }
        bytes
    }
}

impl Connection {
    /// Requests are about to be given to the lane of `key`.
    #[inline]
    pub(super) fn note_sent(&self, ticket: Ticket, key: LaneKey, wire: &[u8]) {
        let insight = &self.service.own.insight;
        self.noted.is_own_choice.set(!ticket.has_deadline);
        insight.sent(self.handle.id(), ticket, key, wire, turn::now(), || self.upstream_name());
    }

    /// Nothing is on its way: who was blocked is so no longer.
    #[inline]
    pub(super) fn note_unblocked(&self) {
        if self.noted.is_own_choice.get() {
            self.handle.entry().set_blocked_as(0, 0);
        }
    }

    /// A piece of a reply was delivered.
    #[inline]
    pub(super) fn note_size(&self, reply: &Reply<'_>) {
        let bytes = self.noted.add(reply);
        if self.service.own.insight.is_big(bytes) && reply.count > 0 {
            self.note_big(reply, bytes);
        }
    }

    #[cold]
    fn note_big(&self, reply: &Reply<'_>, bytes: u64) {
        if reply.count == 1 {
            return self.note_big_reply(reply, reply.exchange, bytes);
        }
        // Whole replies next to each other: a beginning would have been delivered alone, see `takes_runs`.
        let mut framer = Default::default();
        let (mut rest, mut exchange, mut bytes) = (reply.bytes, reply.exchange, 0);
        while let Ok(scan) = RespLane::scan(&mut framer, rest) {
            bytes += scan.taken as u64;
            rest = &rest[scan.taken..];
            if scan.end.is_some() {
                if self.service.own.insight.is_big(bytes) {
                    self.note_big_reply(reply, exchange, bytes);
                }
                (exchange, bytes) = (exchange + 1, 0);
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    fn note_big_reply(&self, reply: &Reply<'_>, exchange: u64, bytes: u64) {
        let id = (self.handle.id(), exchange);
        let insight = &self.service.own.insight;
        insight.note_big_reply(id, reply.timing.arrived, bytes, turn::now(), self.upstream_name());
    }

    /// Replies are complete, `replied`: were they slow?
    #[inline]
    pub(super) fn note_duration(&self, reply: &Reply<'_>, replied: Time) {
        if self.service.own.insight.is_slow(replied.nanos_since(reply.timing.arrived)) {
            let slow = SlowReply {
                number: reply.exchange,
                arrived: Some(reply.timing.arrived),
                sent: Some(reply.timing.sent),
                ended: replied,
                ended_at: SystemTime::now(),
                requests: reply.count,
                outcome: outcome(reply.end),
            };
            self.note_slow(&slow);
        }
    }

    /// No reply will come: that took long too.
    #[cold]
    pub(super) fn note_lost(&self, exchange: u64, cause: LossCause) {
        if !self.service.own.insight.settings().has_slow_log() {
            return;
        }
        let outcome = cause.name();
        let (ended, ended_at) = (turn::now(), SystemTime::now());
        let lost = SlowReply { number: exchange, arrived: None, sent: None, ended, ended_at, requests: 1, outcome };
        self.note_slow(&lost);
    }

    #[cold]
    fn note_slow(&self, slow: &SlowReply) {
        let insight = &self.service.own.insight;
        if self.noted.is_own_choice.get() {
            return;
        }
        if !insight.has_room_for_slow(slow.ended) {
            return self.service.metrics.slow.add(slow.requests);
        }
        let entry = self.handle.entry();
        let details = entry.details().clone();
        let client = SlowClient {
            id: entry.id,
            peer: entry.peer.clone(),
            name: details.name,
            user: details.user,
            listener: entry.listener.clone(),
            worker: entry.worker,
        };
        let endpoint = |shard| self.upstream.borrow().endpoints().endpoint_address(shard);
        if insight.note_slow(client, slow, self.upstream_name(), endpoint) {
            self.service.metrics.slow.add(slow.requests);
        }
    }

    /// The gateway's part of INFO. Counts are those of all workers; hot keys are those of the client's worker.
    pub(super) fn write_info(&self, out: &mut String, with_keys: bool) {
        let (core, name) = (self.service.sessions.core(), &**self.service.sessions.name());
        let entries = self.handle.table().entries();
        let own = || entries.iter().filter(|entry| *entry.listener == *name);
        let in_flight: u64 = own().map(|entry| u64::from(entry.in_flight.load(Relaxed))).sum();
        let blocked = own().filter(|entry| entry.details().pinned.contains(PinReason::Blocking.name())).count();
        let sum = |family| core.metrics.registry().sum(family, "listener", name).unwrap_or(0);
        let upstream = self.upstream.borrow();
        let fields: [(&str, &dyn Display); 14] = [
            ("worker", &core.worker),
            ("listener", &name),
            ("connected_clients", &own().count()),
            ("connected_clients_of_all_listeners", &entries.len()),
            ("blocked_clients", &blocked),
            ("total_connections_received", &sum(&catalog::CONNECTIONS_TOTAL)),
            ("requests_in_flight", &in_flight),
            ("total_requests", &sum(&catalog::REQUESTS_TOTAL)),
            ("total_requests_shed", &sum(&catalog::SHED)),
            ("total_error_replies", &sum(&catalog::REPLY_ERRORS)),
            ("total_slow_requests", &sum(&catalog::REDIS_SLOW_REQUESTS)),
            ("total_net_input_bytes", &sum(&catalog::CLIENT_READ_BYTES)),
            ("total_net_output_bytes", &sum(&catalog::CLIENT_WRITTEN_BYTES)),
            ("upstream", &upstream.settings().name),
        ];
        // Writing to a string cannot fail.
        for (field, value) in fields {
            let _ = write!(out, "{field}:{value}\r\n");
        }
        for (index, (address, health, breaker)) in upstream.endpoints().endpoint_states().into_iter().enumerate() {
            let _ = write!(out, "endpoint_{index}:address={address},health={health},breaker={breaker}\r\n");
        }
        let keys = if with_keys { self.service.own.insight.hot_keys(turn::now()) } else { Vec::new() };
        for (index, hot) in keys.iter().take(HOT_KEYS_TOLD).enumerate() {
            // The key comes last: it may have any of the signs in front of it.
            let (rate, space) = (hot.per_second, &hot.key.keyspace);
            let (db, upstream, command, key) = (space.db, &space.upstream, hot.command, hot.key.shown());
            let _ = write!(
                out,
                "hot_key_{index}:per_second={rate:.1},db={db},upstream={upstream},command={command},key={key}\r\n"
            );
        }
    }

    fn upstream_name(&self) -> Arc<str> {
        self.upstream.borrow().settings().name.clone()
    }
}
