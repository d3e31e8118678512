//! Events from the lanes of a connection: replies, losses, frames, the requested lane.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::atomic::Ordering::Relaxed,
};

use weir_base::{
    error::Culprit,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::Output;
use weir_listener::{Drain, Session as _};
use weir_telemetry::access::AccessRecord;
use weir_upstream::{Frame, FrameKind, Lane, LossCause, Refusal, Reply, Waiter};

use super::{AccessSample, CHARGED_BYTES_MIN, Connection, EVICTED, own_lanes::Pinned, subscriber::OUTPUT_MAX};
use weir_redis_session::refusal;

use crate::{
    lane::RespLane,
    metrics::{Done, Stages},
};

impl Connection {
    /// Runs a callback of a lane; a panic in it costs this connection and no other.
    #[inline]
    pub(super) fn guarded(&self, callback: impl FnOnce()) {
        if self.is_over.get() {
            return;
        }
        if catch_unwind(AssertUnwindSafe(callback)).is_err() {
            self.end(self.panicked());
        }
    }

    #[inline]
    pub(super) fn exchanges_begun(&self, count: u64, has_deadline: bool) {
        self.service.metrics.in_flight.add(count as i64);
        self.on_their_way.set(self.on_their_way.get() + count as u32);
        // A blocked client waits for another client, not for this worker.
        if has_deadline {
            self.wait.begin();
        }
        self.handle.entry().in_flight.store(self.on_their_way.get(), Relaxed);
    }

    #[inline]
    pub(super) fn exchanges_over(&self, count: u64) {
        self.service.metrics.in_flight.add(-(count as i64));
        self.on_their_way.set(self.on_their_way.get().saturating_sub(count as u32));
        self.handle.entry().in_flight.store(self.on_their_way.get(), Relaxed);
        if self.on_their_way.get() == 0 {
            self.give_up_place();
            self.note_unblocked();
            self.wait.end();
        }
        self.service.room_freed(count);
    }

    /// A piece of the reply to a request that goes into the access log.
    #[cold]
    fn note_access(&self, reply: &Reply<'_>) {
        let Some(access) = self.access.get() else { return };
        let mut access = access.borrow_mut();
        let replied = reply.exchange.saturating_sub(u64::from(self.on_their_way.get()));
        while access.front().is_some_and(|sample| sample.number.is_some_and(|number| number < replied)) {
            // Its reply was lost.
            access.pop_front();
        }
        let Some(at) = access.iter().position(|sample| sample.number == Some(reply.exchange)) else { return };
        let sample = &mut access[at];
        sample.reply_bytes += reply.bytes.len() as u64;
        if let Some(kind) = reply.end {
            let now = turn::now();
            let (took, upstream) = (now.nanos_since(reply.timing.arrived), now.nanos_since(reply.timing.sent));
            let name = self.upstream.borrow().settings().name.clone();
            self.log_access(sample, took, upstream, kind == FrameKind::Error, Some(&name));
            access.remove(at);
        }
    }

    pub(super) fn log_access(
        &self,
        sample: &AccessSample,
        took: u64,
        upstream_took: u64,
        is_error: bool,
        upstream: Option<&str>,
    ) {
        self.service.sessions.log_access(&AccessRecord {
            listener: self.service.sessions.name(),
            peer: self.handle.peer(),
            connection: self.handle.id(),
            command: sample.command,
            upstream,
            duration_nanos: took,
            upstream_nanos: upstream_took,
            request_bytes: sample.request_bytes,
            reply_bytes: sample.reply_bytes,
            outcome: if is_error { "error" } else { "ok" },
            http: None,
        });
    }

    /// The pause of a request to a cluster is over.
    pub(super) fn retry(&self, exchange: u64) {
        self.guarded(|| {
            if self.session.borrow_mut().on_retry(exchange, self) {
                self.wake();
            }
        });
    }

    /// Some shards may have answered far more than the one whose reply is due.
    #[cold]
    fn check_kept(&self, kept: u64) {
        let listener = self.service.sessions.settings();
        let limit = if self.is_over_budget.get() { listener.output_high_water } else { listener.output_hard_cap };
        if kept <= limit {
            return;
        }
        let text = "replies wait for that of a slower shard";
        self.violated(&Violation::limit("slow_shard", Culprit::Upstream, text, kept, limit));
        self.end(EVICTED);
    }

    fn note_done(&self, reply: &Reply<'_>) {
        let replied = turn::now();
        let (number, parsed, judged) = self.stages.get();
        let is_timed = parsed != Time::NEVER && (reply.exchange..reply.exchange + reply.count).contains(&number);
        let stages = is_timed.then(|| {
            self.stages.set((0, Time::NEVER, Time::NEVER));
            Stages { parsed, judged, encoded: Time::now() }
        });
        self.replied_at.set(replied);
        self.note_duration(reply, replied);
        let done = Done { count: reply.count, timing: reply.timing, replied, stages };
        if self.output.unsent() == 0 {
            // Nothing of it is on its way to the client, who did not want the reply.
            self.service.metrics.done(&done, replied);
        } else {
            let mut waiting = self.done.take();
            if waiting.capacity() == 0 {
                waiting = self.service.done_lists.take();
            }
            waiting.push(done);
            self.done.set(waiting);
        }
    }
}

impl Waiter<RespLane> for Connection {
    #[inline]
    fn takes_runs(&self) -> bool {
        !self.has_access_samples() && !self.noted.is_partial() && self.session.borrow().takes_runs()
    }

    #[inline]
    fn on_reply(&self, reply: Reply<'_>) {
        self.guarded(|| {
            let mut session = self.session.borrow_mut();
            let wake = match reply.count {
                0 | 1 => session.on_reply(reply.exchange, reply.bytes, reply.end, self),
                count => session.on_replies(reply.exchange, count, reply.bytes, self),
            };
            let kept = session.kept_bytes();
            drop(session);
            if self.has_access_samples() {
                self.note_access(&reply);
            }
            self.note_size(&reply);
            if reply.count > 0 {
                self.note_done(&reply);
            } else if self.place.borrow().is_some() {
                self.give_up_place();
            }
            if wake || self.service.sessions.drain_state() != Drain::Off {
                self.wake();
            }
            if self.output.buffered() + kept >= CHARGED_BYTES_MIN {
                self.account();
            }
            if kept > 0 {
                self.check_kept(kept as u64);
            }
        });
        if reply.count > 0 {
            self.exchanges_over(reply.count);
        }
    }

    fn on_loss(&self, exchange: u64, cause: LossCause) {
        self.guarded(|| {
            self.session.borrow_mut().on_no_reply(exchange, refusal::lost(cause), self);
            self.note_lost(exchange, cause);
            self.wake();
        });
        self.exchanges_over(1);
    }

    fn on_refusal(&self, exchange: u64, refusal: Refusal) {
        self.guarded(|| {
            self.service.metrics.shed(refusal.name());
            self.session.borrow_mut().on_no_reply(exchange, &refusal::refused(refusal), self);
            self.wake();
        });
        self.exchanges_over(1);
    }

    fn on_frame(&self, frame: Frame<'_>) {
        self.guarded(|| {
            let wake = self.session.borrow_mut().on_frame(frame.bytes, frame.end, frame.is_push, self);
            if wake {
                self.wake();
            }
            let limit = self.service.sessions.settings().output_hard_cap.min(OUTPUT_MAX);
            let count = self.output.buffered() as u64;
            if count > limit {
                self.evict_subscriber("the output of MONITOR is not read", count, limit);
            }
        });
    }

    fn on_pin(&self, result: Result<Rc<Lane<RespLane, Self>>, Refusal>) {
        let own = self.own_lanes();
        let Some((key, is_blocking, upstream)) = own.asked.take() else { return };
        let (granted, outcome) = match result {
            Ok(lane) => (Some(Pinned { lane, key, upstream, is_blocking }), Ok(())),
            Err(refusal) => (None, Err(refusal)),
        };
        if is_blocking && granted.is_none() {
            self.service.unblock();
        }
        if self.is_over.get() {
            if let Some(pinned) = granted {
                self.return_lane(pinned, true);
            }
            return;
        }
        *own.pinned.borrow_mut() = granted;
        self.session.borrow_mut().on_pin(outcome);
        self.wake();
    }

    fn on_pin_loss(&self, lane: &Rc<Lane<RespLane, Self>>, cause: LossCause) {
        let own = self.own_lanes();
        if own.parked.borrow_mut().take_if(|parked| Rc::ptr_eq(&parked.lane, lane)).is_some() {
            return self.guarded(|| {
                self.session.borrow_mut().on_parked_loss(self);
                self.wake();
            });
        }
        let Some(pinned) = own.pinned.borrow_mut().take_if(|pinned| Rc::ptr_eq(&pinned.lane, lane)) else { return };
        if pinned.is_blocking {
            self.service.unblock();
        }
        self.guarded(|| {
            self.session.borrow_mut().on_pin_loss(cause, self);
            self.wake();
        });
    }

    fn output(&self) -> &Output {
        &self.output
    }

    fn is_over_budget(&self) -> bool {
        self.is_over_budget.get()
    }

    fn has_spare_memory(&self) -> bool {
        self.service.sessions.core().bytes.is_half_free()
    }

    fn evict(&self) {
        let count = self.output.buffered() as u64;
        let limit = self.service.sessions.settings().output_hard_cap;
        let text = "the client reads too slowly for the others on its lane";
        let violation = Violation::limit("slow_reader", Culprit::Client, text, count, limit);
        self.violated(&violation);
        self.is_over.set(true);
        self.cutter.cut();
        self.drop_output();
        self.end(EVICTED);
    }
}
