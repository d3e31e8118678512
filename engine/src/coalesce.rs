//! The pause in which requests gather: fewer and fuller turns of a busy worker.
//!
//! On a machine with cores to spare, each request wakes the worker by itself, and its write to the upstream and the read of its reply serve
//! only that request. After a pause of tens of microseconds one write carries several, and the server behind saves as much as the gateway.
//!
//! | state of the worker | pause |
//! |---|---|
//! | idle, or few requests | none |
//! | so many requests that two or more come in half of the latency budget, from 20 connections or more | half of the budget: the request waits as long as it, and so does the reply |
//! | 10 clients or more wait for replies | 3 us for each, 400 us or three budgets at most. Their latency is their number divided by the rate: at 100,000 replies/s the pause is a third of it |
//! | they wait for servers with a connection for each request | an eighth of the time to a reply, if that is longer |
//!
//! Requests that each have a connection of their own to the upstream save nothing but the wakes. There a pause stands only in place of a
//! sleep: where events have come during the turn, as on a core that the worker shares, it would be one more sleep. HTTP notes no requests
//! here: at 10,000 and 20,000 requests/s, pauses of 40 and 70 us saved nothing (ARCHITECTURE.md, "Coalescing").

use std::{cell::Cell, thread, time::Duration};

use weir_base::time::Time;

/// Connections of clients below which a worker never pauses for the budget: a few clients that each wait for a reply send nothing during a
/// pause.
const CONNECTIONS_MIN: usize = 20;
/// Requests that must be expected in a pause. With fewer it costs more than it saves.
const GATHERED_MIN: f64 = 2.0;
/// The time over which the rate of requests is taken.
const RATE_TIME: Duration = Duration::from_millis(5);
/// Clients that must wait for replies before pauses grow with their number.
const CLIENTS_MIN: u32 = 10;
/// Pause for each of them. Each costs the machine several microseconds of work anyway.
const PER_CLIENT: Duration = Duration::from_micros(3);
/// The longest pause.
const LONGEST: Duration = Duration::from_micros(400);
/// The longest pause in latency budgets.
const LONGEST_BUDGETS: u32 = 3;
/// The share of the time to a reply, one part in so many, that a pause may take instead: a server that needs a millisecond for each reply
/// has enough to do meanwhile.
const REPLY_SHARE: u32 = 8;
/// Longest reply that counts: the longest pause is an eighth of it. A few slow statements do not delay the quick ones.
const REPLY_TIME_MAX: Duration = Duration::from_micros(3_200);
/// The weight of one reply, one part in so many, in the time to a reply of late.
const REPLY_TIME_WEIGHT: u32 = 16;
/// A turn that began longer than this after the one before, without its pause, says that the worker is not busy.
const GAP: Duration = Duration::from_millis(1);
/// The share of the clients of late, one in so many, that each turn forgets.
const DECAY: u32 = 8;

thread_local! {
    static WAITING_CLIENTS: Cell<u32> = const { Cell::new(0) };
    /// How often a client began to wait.
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
    /// How long upstreams took of late, in nanoseconds.
    static REPLY_TIME: Cell<u32> = const { Cell::new(0) };
}

/// Notes that `change` more clients of this worker wait for a reply now: what the worker judges its load by.
pub fn note_waiting_clients(change: i32) {
    WAITING_CLIENTS.with(|waiting| waiting.set(waiting.get().saturating_add_signed(change)));
    REQUESTS.with(|requests| requests.set(requests.get() + change.max(0) as u64));
}

/// Notes that an upstream, with a connection for this request alone, needed `time` for a reply. A worker of many clients whose upstreams are
/// slow looks less often.
pub fn note_reply_time(time: Duration) {
    let nanos = time.min(REPLY_TIME_MAX).as_nanos() as u32;
    REPLY_TIME.with(|of_late| {
        let (before, part) = (of_late.get(), |nanos: u32| nanos / REPLY_TIME_WEIGHT);
        of_late.set(before - part(before) + part(nanos));
    });
}

/// Decides when a worker pauses, and for how long.
#[derive(Debug, Default)]
pub(crate) struct Coalesce {
    /// The pause for the budget.
    pause: Duration,
    longest: Duration,
    last: Time,
    /// The pause behind the last turn.
    paused: Duration,
    is_busy: bool,
    /// Requests before the last turn.
    requests: u64,
    /// Requests per second of late.
    rate: f64,
    /// Clients that waited at the same time of late: right after a round of replies few do, and many are about to.
    clients: u32,
}

/// A pause that pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    length: Duration,
    /// It is worth no more than the sleep that it stands for.
    replaces_sleep: bool,
}

impl Coalesce {
    pub(crate) fn new(budget: Duration) -> Self {
        Self { pause: budget / 2, longest: LONGEST.min(budget * LONGEST_BUDGETS), ..Self::default() }
    }

    /// Pauses if that pays, at the end of the turn that began at `turn`. Returns true instead if `look` has found events.
    pub(crate) fn wait(&mut self, turn: Time, connections: usize, look: impl FnOnce() -> bool) -> bool {
        if self.longest.is_zero() {
            return false;
        }
        self.note(turn, REQUESTS.get(), WAITING_CLIENTS.get());
        if !self.is_busy {
            REPLY_TIME.set(0);
        }
        let Some(pause) = self.pause(connections, Duration::from_nanos(u64::from(REPLY_TIME.get()))) else {
            return false;
        };
        if pause.replaces_sleep && look() {
            return true;
        }
        thread::sleep(pause.length);
        self.paused = pause.length;
        false
    }

    /// Takes the turn into the averages.
    fn note(&mut self, turn: Time, requests: u64, waiting: u32) {
        let passed = turn.since(std::mem::replace(&mut self.last, turn));
        let begun = requests - std::mem::replace(&mut self.requests, requests);
        self.is_busy = passed.saturating_sub(std::mem::take(&mut self.paused)) < GAP;
        if !self.is_busy {
            (self.clients, self.rate) = (waiting, 0.0);
            return;
        }
        self.clients = waiting.max(self.clients - self.clients.div_ceil(DECAY));
        let weight = (passed.as_secs_f64() / RATE_TIME.as_secs_f64()).min(1.0);
        self.rate += begun as f64 / passed.max(RATE_TIME).as_secs_f64() - self.rate * weight;
    }

    fn pause(&self, connections: usize, reply_time: Duration) -> Option<Pause> {
        let by_reply = reply_time / REPLY_SHARE;
        let has_own_connections = !by_reply.is_zero();
        let mut length = Duration::ZERO;
        if self.clients >= CLIENTS_MIN {
            length = by_reply.max(PER_CLIENT * self.clients).min(self.longest);
        }
        let gathers = self.rate * self.pause.as_secs_f64() >= GATHERED_MIN && connections >= CONNECTIONS_MIN;
        if gathers && !has_own_connections {
            length = length.max(self.pause);
        }
        (self.is_busy && !length.is_zero()).then_some(Pause { length, replaces_sleep: has_own_connections })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_micros(140);
    const NO_REPLIES: Duration = Duration::ZERO;

    /// The pause after 1,000 turns, 50 us apart, with so many requests in each.
    fn pause(requests: u64, connections: usize, waiting: u32, reply_time: Duration) -> Option<Pause> {
        let mut coalesce = Coalesce::new(BUDGET);
        (1..=1_000).for_each(|turn| coalesce.note(Time::from_nanos(turn * 50_000), turn * requests, waiting));
        coalesce.pause(connections, reply_time)
    }

    fn of(micros: u64, replaces_sleep: bool) -> Option<Pause> {
        Some(Pause { length: Duration::from_micros(micros), replaces_sleep })
    }

    #[test]
    fn a_pause_needs_connections_and_requests_that_gather() {
        assert_eq!(pause(2, 50, 5, NO_REPLIES), of(70, false));
        assert_eq!(pause(1, 50, 5, NO_REPLIES), None, "1.4 requests in a pause");
        assert_eq!(pause(2, 19, 5, NO_REPLIES), None, "few connections");
        assert_eq!(pause(0, 1_000, 0, NO_REPLIES), None, "idle");
        assert_eq!(pause(2, 50, 5, Duration::from_micros(200)), None, "connections of their own");
    }

    #[test]
    fn many_clients_that_wait_lengthen_it() {
        assert_eq!(pause(0, 12, 10, NO_REPLIES), of(30, false));
        assert_eq!(pause(2, 50, 10, NO_REPLIES), of(70, false), "the pause for the budget is longer");
        assert_eq!(pause(2, 50, 50, NO_REPLIES), of(150, false));
        assert_eq!(pause(2, 400, 400, NO_REPLIES), of(400, false));
        assert_eq!(pause(2, 50, 50, Duration::from_micros(1_600)), of(200, true));
        assert_eq!(Coalesce::new(Duration::from_micros(20)).longest, Duration::from_micros(60));
    }

    #[test]
    fn a_worker_that_was_idle_does_not_pause_in_its_first_turn() {
        let mut coalesce = Coalesce::new(BUDGET);
        let mut at = 0;
        let mut turn = |after_micros: u64, paused: u64| {
            at += after_micros;
            coalesce.paused = Duration::from_micros(paused);
            coalesce.note(Time::from_nanos(at * 1_000), at, 50);
            coalesce.pause(50, NO_REPLIES)
        };
        assert_eq!(
            [turn(5_000, 0), turn(100, 0), turn(1_100, 400), turn(1_000, 0)],
            [None, of(150, false), of(150, false), None]
        );
    }

    #[test]
    fn the_clients_of_late_fade() {
        let mut coalesce = Coalesce::new(BUDGET);
        let mut is_pausing = |turn: u64| {
            coalesce.note(Time::from_nanos(turn * 50_000), 0, if turn == 1 { 16 } else { 0 });
            coalesce.pause(16, NO_REPLIES).is_some()
        };
        let pauses: Vec<bool> = (1..9).map(&mut is_pausing).collect();
        assert_eq!(pauses, [true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn a_budget_of_zero_neither_looks_nor_pauses() {
        let mut coalesce = Coalesce::new(Duration::ZERO);
        note_waiting_clients(50);
        for turn in 1..100 {
            assert!(!coalesce.wait(Time::from_nanos(turn * 50_000), 50, || unreachable!("no look")));
        }
        let (mut coalesce, begun) = (Coalesce::new(BUDGET), std::time::Instant::now());
        assert!(!coalesce.wait(Time::from_nanos(50_000), 50, || unreachable!("shared connections")));
        assert!(begun.elapsed() >= Duration::from_micros(150));
        (0..64).for_each(|_| note_reply_time(Duration::from_millis(1)));
        assert!(coalesce.wait(Time::from_nanos(100_000), 50, || true), "events instead of a pause");
        note_waiting_clients(-50);
    }
}
