//! The tally of one shard during one phase: the outcome of the window, and the current second.

use std::ops::Range;
use std::time::Duration;

use super::second::Slice;
use crate::outcome::{ErrorClass, Stamps, Turn, WindowResult};
use crate::reply::{Reply, ReplyKind};
use crate::requests::{Integrity, Requests};

/// A request on its way. Times are nanoseconds since the process began.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentRequest {
    /// In the plan of the shard.
    pub(super) index: u64,
    pub(super) intended: u64,
    pub(super) ready: u64,
    /// 0 until its bytes were handed to the kernel.
    pub(super) sent: u64,
    /// Its stream, on a connection that has several; 0 where replies come in order.
    pub(super) stream: u32,
    /// The last event of its reply, where that is streamed; 0: none yet.
    pub(super) last_event: u64,
}

impl SentRequest {
    /// The next event of its reply arrived at `now`.
    pub(super) fn note_event(&mut self, now: u64) -> EventTimes {
        let before = std::mem::replace(&mut self.last_event, now);
        EventTimes { intended: self.intended, before: (before > 0).then_some(before), now }
    }
}

/// The times of an event of a streamed reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventTimes {
    /// The intended time of its request.
    intended: u64,
    /// When the event before it came; `None`: it is the first.
    before: Option<u64>,
    now: u64,
}

/// How a request that was on its way ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'a> {
    /// With a whole reply.
    Reply(Reply<'a>),
    /// With bytes that are no reply.
    Protocol,
    /// Its connection is gone.
    Lost,
    /// The drain limit came first.
    Timeout,
}

enum RequestResult {
    Value(Option<Integrity>),
    Shed(&'static str),
    Failed(ErrorClass),
}

impl RequestResult {
    fn of(end: End<'_>, index: u64, requests: &Requests) -> Self {
        match end {
            End::Reply(reply) => match reply.kind {
                ReplyKind::Value => Self::Value(reply.body.and_then(|body| requests.check(index, body))),
                ReplyKind::Shed(reason) => Self::Shed(reason),
                ReplyKind::Error(_) => Self::Failed(ErrorClass::Status),
                ReplyKind::Lost | ReplyKind::Event => Self::Failed(ErrorClass::Transport),
            },
            End::Protocol => Self::Failed(ErrorClass::Protocol),
            End::Lost => Self::Failed(ErrorClass::Transport),
            End::Timeout => Self::Failed(ErrorClass::Timeout),
        }
    }

    fn is_good(&self) -> bool {
        matches!(self, Self::Value(None | Some(Integrity::Ok | Integrity::RaceSuspect)))
    }
}

/// Counts requests intended within the window, and everything for the running second.
pub(super) struct Tally {
    window: Range<u64>,
    pub(super) outcome: WindowResult,
    slice: Slice,
    /// Connections that ended during the phase unprompted.
    pub(super) connections_lost: u32,
}

impl Tally {
    /// For requests intended within `window`.
    pub(super) fn new(window: Range<u64>, late_limit: Duration) -> Self {
        Self { window, outcome: WindowResult::new(late_limit), slice: Slice::default(), connections_lost: 0 }
    }

    /// The schedule asks for a request.
    pub(super) fn intended(&mut self, at: u64) {
        if self.window.contains(&at) {
            self.outcome.intended();
        }
    }

    /// A request was never sent because it was too late.
    pub(super) fn skipped(&mut self, intended: u64, turn: Turn) {
        self.slice.failed += 1;
        if self.window.contains(&intended) {
            self.outcome.skipped(turn);
        }
    }

    /// A request was never sent because no connection was left.
    pub(super) fn unsendable(&mut self, intended: u64) {
        self.slice.failed += 1;
        if self.window.contains(&intended) {
            self.outcome.failed(ErrorClass::Transport, None);
        }
    }

    /// An event of a streamed reply arrived.
    pub(super) fn event(&mut self, times: EventTimes) {
        let EventTimes { intended, before, now } = times;
        if self.window.contains(&intended) {
            self.outcome.event(now.saturating_sub(intended), before.map(|before| now.saturating_sub(before)));
        }
    }

    /// A request that was on its way has ended at `now`.
    pub(super) fn ended(&mut self, requests: &Requests, request: &SentRequest, end: End<'_>, now: u64) {
        let &SentRequest { index, intended, ready, sent, .. } = request;
        let was_sent = sent > 0;
        let stamps = Stamps { intended, ready, sent, completed: now };
        let fate = RequestResult::of(end, index, requests);
        if fate.is_good() {
            self.slice.completed += 1;
            self.slice.sojourn.record_nanos(stamps.sojourn());
        } else {
            self.slice.failed += 1;
        }
        if was_sent {
            self.slice.generator_lag.record_nanos(stamps.generator_lag());
        }
        if !self.window.contains(&intended) {
            return;
        }
        if was_sent {
            self.outcome.sent();
        }
        match fate {
            RequestResult::Value(integrity) => self.outcome.completed(&stamps, integrity),
            RequestResult::Shed(reason) => self.outcome.shed(reason, &stamps),
            RequestResult::Failed(class) => self.outcome.failed(class, was_sent.then_some(&stamps)),
        }
    }

    /// Ends the running second.
    pub(super) fn take_slice(&mut self) -> Slice {
        std::mem::take(&mut self.slice)
    }
}
