//! The gateway's answers to what a session asks.

use std::{rc::Rc, sync::atomic::Ordering::Relaxed};

use weir_analysis::redis::Command;
use weir_base::{
    time::{Time, turn},
    violation::Violation,
};
use weir_listener::ConnectionEntry;
use weir_telemetry::log::AccessRecord;
use weir_upstream::{Exchange, Refusal};

use super::{Connection, Pinned, Shared};
use crate::{
    client::write_line,
    io::{Full, Io, Pinning, Ticket},
    lane::{LaneKey, ServerInfo},
    pin::PinReason,
};

impl Connection {
    /// The exchange of a request, with its permit; the session has made sure that there is one.
    #[inline]
    fn exchange(&self, ticket: Ticket) -> Option<Exchange<Connection>> {
        let waiter = self.me.upgrade()?;
        let permit = self.service.core.flight.try_acquire()?;
        self.service.metrics.in_flight.inc();
        if self.service.samples_stages() {
            let now = Time::now();
            self.stages.set(Some((ticket.number, now, now)));
        }
        Some(Exchange {
            waiter,
            number: ticket.number,
            skip: ticket.skip,
            has_deadline: ticket.has_deadline,
            arrived: turn::now(),
            permit,
        })
    }

    fn hold_lane(
        &self,
        lane: Rc<weir_upstream::Lane<crate::lane::RespLane, Connection>>,
        key: LaneKey,
        is_blocking: bool,
    ) {
        let upstream = self.upstream.borrow().clone();
        *self.pinned.borrow_mut() = Some(Pinned { lane, key, upstream, is_blocking });
    }
}

impl Io for Connection {
    #[inline]
    fn now(&self) -> Time {
        turn::now()
    }

    #[inline]
    fn reply(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.output.with(encode);
    }

    #[inline]
    fn is_congested(&self) -> bool {
        self.output.is_congested()
    }

    #[inline]
    fn full(&self) -> Option<Full> {
        if !self.service.core.flight.has_room() {
            Some(Full::InFlight)
        } else if self.is_over_budget.get() {
            Some(Full::Buffered)
        } else {
            None
        }
    }

    #[inline]
    fn forward(&self, key: LaneKey, request: &[u8], ticket: Ticket) -> Result<(), Refusal> {
        let exchange = self.exchange(ticket).ok_or(Refusal::QueueFull)?;
        let mut shared = self.shared.borrow_mut();
        if let Some(shared) = &*shared
            && shared.key == key
        {
            let sent = shared.lane.send(request, exchange);
            return sent.inspect_err(|_| self.service.metrics.in_flight.dec());
        }
        let lane = self.upstream.borrow().shared(key, self.guard.entry().id);
        let sent = lane.send(request, exchange);
        *shared = Some(Shared { key, lane });
        sent.inspect_err(|_| self.service.metrics.in_flight.dec())
    }

    fn pin(&self, key: LaneKey, reason: PinReason) -> Pinning {
        // A lane that came after the session had asked is taken first.
        if let Some(pinned) = &*self.pinned.borrow()
            && pinned.key == key
        {
            return Pinning::Ready;
        }
        let Some(me) = self.me.upgrade() else { return Pinning::Later };
        let is_blocking = reason == PinReason::Blocking;
        if is_blocking && !self.service.try_block() {
            return Pinning::TooManyBlocked;
        }
        let upstream = self.upstream.borrow().clone();
        upstream.count_pin(reason.name());
        match upstream.pin(key, &me) {
            Some(lane) => {
                self.hold_lane(lane, key, is_blocking);
                Pinning::Ready
            }
            None => {
                self.asked.set(Some((key, is_blocking)));
                Pinning::Later
            }
        }
    }

    fn forward_pinned(&self, request: &[u8], ticket: Ticket) {
        let lane = self.pinned.borrow().as_ref().map(|pinned| pinned.lane.clone());
        if let (Some(lane), Some(exchange)) = (lane, self.exchange(ticket)) {
            lane.send(request, exchange);
        }
    }

    fn write_pinned(&self, bytes: &[u8]) {
        if let Some(pinned) = &*self.pinned.borrow() {
            pinned.lane.write(bytes);
        }
    }

    fn is_pin_congested(&self) -> bool {
        self.pinned.borrow().as_ref().is_some_and(|pinned| pinned.lane.output().is_congested())
    }

    fn set_tunnel(&self, is_tunnel: bool) {
        if let Some(pinned) = &*self.pinned.borrow() {
            pinned.lane.set_tunnel(is_tunnel);
        }
    }

    fn unpin(&self, is_clean: bool) {
        let pinned = self.pinned.borrow_mut().take();
        if let Some(pinned) = pinned {
            self.return_lane(pinned, is_clean);
        }
    }

    fn server(&self, key: LaneKey) -> Option<Rc<ServerInfo>> {
        self.upstream.borrow().protocol().server(key.version)
    }

    fn entry(&self) -> &ConnectionEntry {
        self.guard.entry()
    }

    fn list_clients(&self, out: &mut Vec<u8>) {
        let now = turn::now();
        for entry in self.guard.table().entries() {
            write_line(out, &entry, now);
        }
    }

    fn kill_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool) -> u64 {
        let entries = self.guard.table().entries();
        let named: Vec<_> = entries.iter().filter(|entry| filter(entry)).collect();
        named.iter().for_each(|entry| self.guard.table().kill(entry));
        named.len() as u64
    }

    #[inline]
    fn count(&self, command: Option<&'static Command>) {
        self.service.metrics.command(command);
        let entry = self.guard.entry();
        entry.active_at.store(turn::now().as_nanos(), Relaxed);
        entry.last_command.store(command.map_or(0, |command| u32::from(command.id.0) + 1), Relaxed);
        if self.service.samples_access() {
            self.service.log_access(AccessRecord {
                at: turn::now(),
                listener: self.service.name().clone(),
                peer: self.peer,
                connection: entry.id,
                command: command.map_or("unknown", |command| command.name),
                upstream: Some(self.upstream.borrow().settings().name.clone()),
                duration_nanos: 0,
                upstream_nanos: 0,
                request_bytes: 0,
                reply_bytes: 0,
                outcome: "ok",
            });
        }
    }

    fn count_shed(&self, reason: &'static str) {
        self.service.metrics.shed(reason);
    }

    fn count_auth_failure(&self) {
        self.service.metrics.auth_failed();
    }

    fn count_error(&self, reply: &[u8]) {
        self.service.metrics.error_reply(reply);
    }

    fn report(&self, violation: &Violation) {
        self.service.report(violation, self.peer, self.guard.entry().id, false);
    }
}
