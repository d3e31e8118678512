//! CLIENT PAUSE: commands of the clients of a listener wait (Redis 7.0 `clientCommand`, `pauseClients`).
//!
//! The pause belongs to the listener: to all its clients, on all workers, and to nobody who reaches the server otherwise. It is
//! two numbers that every command looks at; a client whose command waits looks again every 100 ms, so the end of a pause by
//! UNPAUSE is seen within that time on all workers.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use weir_analysis::redis::{Access, Args, Command, Resolved, resolve};
use weir_base::time::Time;
use weir_resp::{RequestParser, Step};

use crate::{
    io::Io,
    local::parse_integer,
    request::Request,
    state::{Hold, State, Taken},
};

/// How soon a command that waits looks again.
const LOOK: Duration = Duration::from_millis(100);

/// Whether the clients of a listener are paused.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// In nanoseconds of [`Time`]; 0: they are not.
    until: AtomicU64,
    /// Commands that only read wait too.
    is_for_all: AtomicBool,
}

impl Pause {
    /// Pauses until then. A pause that is there already ends no earlier for it, and holds no less.
    fn begin(&self, until: Time, is_for_all: bool, now: Time) {
        let is_there = self.is_on(now);
        self.is_for_all.store(is_for_all || (is_there && self.is_for_all.load(Relaxed)), Relaxed);
        self.until.store(until.as_nanos().max(if is_there { self.until.load(Relaxed) } else { 0 }), Relaxed);
    }

    fn end(&self) {
        self.until.store(0, Relaxed);
    }

    /// Some commands wait.
    #[inline]
    pub(crate) fn is_on(&self, now: Time) -> bool {
        let until = self.until.load(Relaxed);
        until != 0 && now.as_nanos() < until
    }

    /// Until when a command waits now, before it looks again; `None`: it does not.
    fn holds(&self, may_write: bool, now: Time) -> Option<Time> {
        let holds = self.is_on(now) && (may_write || self.is_for_all.load(Relaxed));
        holds.then(|| Time::from_nanos(self.until.load(Relaxed)).min(now.saturating_add(LOOK)))
    }
}

impl State {
    /// Holds the command at the front of the input if its client is paused.
    pub(crate) fn is_paused(&mut self, command: Option<&'static Command>, io: &impl Io) -> bool {
        let Some(share) = io.share().filter(|share| share.pause.is_on(io.now())) else { return false };
        // Of a command that no table has nobody knows what it does.
        let writes = command.is_none_or(|command| match command.name {
            "exec" => self.transaction_writes(),
            _ => may_replicate(command),
        });
        let until = share.pause.holds(writes, io.now());
        // A server drops what waits when its client goes: it must not come after what the client does next.
        self.is_closing |= until.is_some() && self.is_ended;
        if let Some(until) = until {
            self.hold = Some(Hold::Until(until));
        }
        until.is_some()
    }

    fn transaction_writes(&self) -> bool {
        let Some(transaction) = &self.transaction else { return false };
        let (mut parser, mut rest) = (RequestParser::new(), transaction.wire());
        while let Ok(Step::Command { len, .. }) = parser.parse(rest, &self.limits) {
            let request = Request { parser: &parser, bytes: &rest[..len], is_inline: false };
            match resolve(request.text(0), request.arg(1)) {
                Resolved::Known(command) if !may_replicate(command) => {}
                _ => return true,
            }
            rest = &rest[len..];
        }
        false
    }

    /// CLIENT PAUSE timeout [WRITE|ALL].
    pub(crate) fn client_pause(&mut self, request: &Request<'_>, io: &impl Io) -> Taken {
        let is_for_all = match (request.argc(), request.text(3)) {
            (3, _) => true,
            (4, mode) if mode.eq_ignore_ascii_case(b"ALL") => true,
            (4, mode) if mode.eq_ignore_ascii_case(b"WRITE") => false,
            (4, _) => return self.error(io, "ERR CLIENT PAUSE mode must be WRITE or ALL"),
            _ => return self.error(io, crate::refusal::SYNTAX),
        };
        let Some(millis) = parse_integer(request.text(2)) else {
            return self.error(io, "ERR timeout is not an integer or out of range");
        };
        let Ok(millis) = u64::try_from(millis) else { return self.error(io, "ERR timeout is negative") };
        let now = io.now();
        if let Some(share) = io.share() {
            share.pause.begin(now.saturating_add(Duration::from_millis(millis)), is_for_all, now);
        }
        self.ok(io)
    }

    /// CLIENT UNPAUSE.
    pub(crate) fn client_unpause(&mut self, io: &impl Io) -> Taken {
        if let Some(share) = io.share() {
            share.pause.end();
        }
        self.ok(io)
    }
}

/// It changes data, or replicas are told of it (Redis `CMD_WRITE`, `CMD_MAY_REPLICATE`).
fn may_replicate(command: &Command) -> bool {
    command.access == Access::Write
        || matches!(command.name, "publish" | "spublish" | "pfcount" | "eval" | "evalsha" | "fcall")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_pause_holds_writes_or_all_until_it_ends() {
        let pause = Pause::default();
        assert_eq!(pause.holds(true, at(1)), None);
        pause.begin(at(1_000), false, at(1));
        assert_eq!(pause.holds(true, at(2)), Some(at(102)), "it looks again soon");
        assert_eq!(pause.holds(true, at(950)), Some(at(1_000)));
        assert_eq!((pause.holds(false, at(2)), pause.holds(true, at(1_000))), (None, None));
        pause.begin(at(500), true, at(2));
        assert!(pause.holds(false, at(900)).is_some(), "the longer and the stricter hold");
        pause.begin(at(600), false, at(3));
        assert!(pause.holds(false, at(900)).is_some());
        pause.end();
        assert!(!pause.is_on(at(4)));
        pause.begin(at(900), false, at(5));
        assert!(pause.holds(false, at(6)).is_none() && pause.holds(true, at(6)).is_some(), "a new one is another");
        pause.begin(at(2_000), false, at(1_500));
        assert_eq!(pause.holds(true, at(1_999)), Some(at(2_000)));
    }
}
