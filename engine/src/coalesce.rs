//! The pause in which requests gather: fewer and fuller turns of a busy worker.
//!
//! On a machine with cores to spare, each request wakes the worker by itself, and its write to the upstream and the read of its reply serve
//! only that request. After a pause of tens of microseconds one write carries several, and the server behind saves as much as the gateway.
//!
//! | state of the worker | pause |
//! |---|---|
//! | idle, or few requests | none |
//! | 20 clients or more begin requests, and two of them or more in half of the latency budget | half of the budget: a request waits about as long, and so does its reply |
//! | 10 clients or more wait for replies | 3 us for each: at 100,000 replies/s a third of their latency |
//! | 10 clients or more wait for servers with a connection for each request | the same, or an eighth of the time to a reply if that is longer |
//!
//! No pause is longer than 400 us or three budgets. A pause stops the whole worker, also for the clients of other protocols.
//!
//! Requests that each have a connection of their own to the upstream save nothing but the wakes. There a pause stands only in place of a
//! sleep: where events have come during the turn, as on a core that the worker shares, it would be one more sleep. HTTP notes no clients
//! here: at 10,000 and 20,000 requests/s, pauses of 40 and 70 us saved nothing (ARCHITECTURE.md, "Coalescing").

use std::{cell::Cell, thread, time::Duration};

use weir_base::time::Time;

/// Clients that must begin requests within a period before a worker pauses for the budget: a few that each wait for a reply send nothing
/// during a pause, and their requests only take longer.
const ACTIVE_MIN: u32 = 20;
/// Clients that must be expected to begin requests in a pause. With fewer no saving was shown, and the latency is certain.
const GATHERED_MIN: f64 = 2.0;
/// The time over which clients and their requests are counted.
const PERIOD: Duration = Duration::from_millis(5);
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

/// The clients of a worker.
struct Clients {
    /// They wait for a reply now.
    waiting: Cell<u32>,
    /// How often one began to wait.
    begun: Cell<u64>,
    /// The number of the period. A client that never waited has zero.
    period: Cell<u32>,
    /// They began to wait in this period, each counted once.
    active: Cell<u32>,
    /// How long upstreams took of late, in nanoseconds.
    reply_nanos: Cell<u32>,
    /// Such a reply came in this period.
    has_reply: Cell<bool>,
}

thread_local! {
    static CLIENTS: Clients = const {
        Clients {
            waiting: Cell::new(0),
            begun: Cell::new(0),
            period: Cell::new(1),
            active: Cell::new(0),
            reply_nanos: Cell::new(0),
            has_reply: Cell::new(false),
        }
    };
}

/// The wait of one client for replies, by which its worker judges its load. Dropped, it ends.
#[derive(Debug, Default)]
pub struct ClientWait {
    is_waiting: Cell<bool>,
    /// The last period in which it began.
    period: Cell<u32>,
}

impl ClientWait {
    /// The client waits from now on. Further requests change nothing.
    #[inline]
    pub fn begin(&self) {
        if self.is_waiting.replace(true) {
            return;
        }
        CLIENTS.with(|clients| {
            clients.waiting.set(clients.waiting.get() + 1);
            clients.begun.set(clients.begun.get() + 1);
            if self.period.replace(clients.period.get()) != clients.period.get() {
                clients.active.set(clients.active.get() + 1);
            }
        });
    }

    /// All its replies have come, or none will.
    #[inline]
    pub fn end(&self) {
        if self.is_waiting.take() {
            CLIENTS.with(|clients| clients.waiting.set(clients.waiting.get().saturating_sub(1)));
        }
    }
}

impl Drop for ClientWait {
    fn drop(&mut self) {
        self.end();
    }
}

/// Notes that an upstream, with a connection for this request alone, needed `time` for a reply. A worker of many clients whose upstreams are
/// slow looks less often.
pub fn note_reply_time(time: Duration) {
    let nanos = time.min(REPLY_TIME_MAX).as_nanos() as u32;
    CLIENTS.with(|clients| {
        let (before, part) = (clients.reply_nanos.get(), |nanos: u32| nanos / REPLY_TIME_WEIGHT);
        clients.reply_nanos.set(before - part(before) + part(nanos));
        clients.has_reply.set(true);
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
    /// How often a client had begun to wait before the last turn.
    begun: u64,
    /// The same per second, of late.
    rate: f64,
    period_began: Time,
    /// Clients that began to wait in the last period.
    active: u32,
    /// Clients that waited at the same time of late: right after a round of replies few do, and many are about to.
    waiting: u32,
    reply_time: Duration,
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
        let longest = LONGEST.min(budget * LONGEST_BUDGETS);
        Self { pause: longest.min(budget / 2), longest, ..Self::default() }
    }

    /// Takes the turn that began at `turn` into the averages. Called once in each.
    pub(crate) fn note(&mut self, turn: Time) {
        if !self.longest.is_zero() {
            CLIENTS.with(|clients| self.note_clients(turn, clients));
        }
    }

    /// Pauses if that pays, at the end of a turn. Returns true instead if `look` has found events.
    pub(crate) fn wait(&mut self, look: impl FnOnce() -> bool) -> bool {
        let Some(pause) = self.pause() else { return false };
        if pause.replaces_sleep && look() {
            return true;
        }
        thread::sleep(pause.length);
        self.paused = pause.length;
        false
    }

    fn note_clients(&mut self, turn: Time, clients: &Clients) {
        let passed = turn.since(std::mem::replace(&mut self.last, turn));
        let begun = clients.begun.get() - std::mem::replace(&mut self.begun, clients.begun.get());
        self.is_busy = passed.saturating_sub(std::mem::take(&mut self.paused)) < GAP;
        self.waiting = match self.is_busy {
            true => clients.waiting.get().max(self.waiting - self.waiting.div_ceil(DECAY)),
            false => clients.waiting.get(),
        };
        let weight = (passed.as_secs_f64() / PERIOD.as_secs_f64()).min(1.0);
        self.rate += begun as f64 / passed.max(PERIOD).as_secs_f64() - self.rate * weight;
        if turn.since(self.period_began) >= PERIOD {
            self.period_began = turn;
            self.active = clients.active.take();
            clients.period.set(clients.period.get().wrapping_add(1));
            if !clients.has_reply.take() {
                clients.reply_nanos.set(0);
            }
        }
        self.reply_time = Duration::from_nanos(u64::from(clients.reply_nanos.get()));
    }

    fn pause(&self) -> Option<Pause> {
        let by_reply = self.reply_time / REPLY_SHARE;
        let has_own_connections = !by_reply.is_zero();
        let mut length = Duration::ZERO;
        if self.waiting >= CLIENTS_MIN {
            length = by_reply.max(PER_CLIENT * self.waiting).min(self.longest);
        }
        let gathers = self.rate * self.pause.as_secs_f64() >= GATHERED_MIN && self.active >= ACTIVE_MIN;
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

    /// The pause after 1,000 turns, 50 us apart. In each so many of `active` clients, one after the other, begin to wait; `waiting` others
    /// wait all the time, and a reply takes `reply_time`.
    fn pause(begun: usize, active: usize, waiting: usize, reply_time: Duration) -> Option<Pause> {
        let others: Vec<ClientWait> = (0..waiting).map(|_| ClientWait::default()).collect();
        others.iter().for_each(ClientWait::begin);
        let clients: Vec<ClientWait> = (0..active).map(|_| ClientWait::default()).collect();
        let mut coalesce = Coalesce::new(BUDGET);
        for turn in 1..=1_000 {
            for client in clients.iter().cycle().skip(turn * begun).take(begun) {
                client.begin();
                client.end();
            }
            if !reply_time.is_zero() {
                note_reply_time(reply_time);
            }
            coalesce.note(Time::from_nanos(turn as u64 * 50_000));
        }
        coalesce.pause()
    }

    fn of(micros: u64, replaces_sleep: bool) -> Option<Pause> {
        Some(Pause { length: Duration::from_micros(micros), replaces_sleep })
    }

    #[test]
    fn a_pause_for_the_budget_needs_clients_and_requests_that_gather() {
        assert_eq!(pause(2, 50, 0, NO_REPLIES), of(70, false));
        assert_eq!(pause(1, 50, 0, NO_REPLIES), None, "1.4 requests in a pause");
        assert_eq!(pause(2, 19, 0, NO_REPLIES), None, "few clients");
        assert_eq!(pause(0, 0, 9, NO_REPLIES), None, "idle");
        assert_eq!(pause(2, 50, 0, Duration::from_micros(200)), None, "connections of their own");
    }

    #[test]
    fn many_clients_that_wait_lengthen_it() {
        assert_eq!(pause(0, 0, 10, NO_REPLIES), of(30, false));
        assert_eq!(pause(2, 50, 10, NO_REPLIES), of(70, false), "the pause for the budget is longer");
        assert_eq!(pause(0, 0, 50, NO_REPLIES), of(150, false));
        assert_eq!(pause(0, 0, 400, NO_REPLIES), of(400, false));
        assert_eq!(pause(0, 0, 50, Duration::from_micros(3_200)).map(|pause| pause.replaces_sleep), Some(true));
    }

    #[test]
    fn no_pause_is_longer_than_three_budgets_or_the_longest() {
        let of = |micros| {
            let coalesce = Coalesce::new(Duration::from_micros(micros));
            (coalesce.pause.as_micros(), coalesce.longest.as_micros())
        };
        assert_eq!([of(0), of(20), of(150), of(1_000)], [(0, 0), (10, 60), (75, 400), (400, 400)]);
    }

    #[test]
    fn the_time_to_a_reply_is_forgotten_when_none_comes() {
        let mut coalesce = Coalesce::new(BUDGET);
        let mut turn = |at: u64| {
            coalesce.note(Time::from_nanos(at * 50_000));
            coalesce.reply_time
        };
        (0..64).for_each(|_| note_reply_time(Duration::from_millis(1)));
        assert!(turn(1) > Duration::from_micros(900));
        // One period ends with the reply, and the next without.
        assert!(turn(150) > Duration::from_micros(900));
        assert_eq!(turn(300), Duration::ZERO);
    }

    #[test]
    fn a_worker_that_was_idle_does_not_pause_in_its_first_turn() {
        let clients: Vec<ClientWait> = (0..50).map(|_| ClientWait::default()).collect();
        clients.iter().for_each(ClientWait::begin);
        let mut coalesce = Coalesce::new(BUDGET);
        let mut at = 0;
        let mut turn = |after_micros: u64, paused: u64| {
            at += after_micros;
            coalesce.paused = Duration::from_micros(paused);
            coalesce.note(Time::from_nanos(at * 1_000));
            coalesce.pause()
        };
        let pauses = [turn(5_000, 0), turn(100, 0), turn(1_100, 400), turn(1_000, 0)];
        assert_eq!(pauses, [None, of(150, false), of(150, false), None]);
    }

    #[test]
    fn the_waiting_clients_of_late_fade() {
        let mut coalesce = Coalesce::new(BUDGET);
        let mut clients: Vec<ClientWait> = (0..16).map(|_| ClientWait::default()).collect();
        clients.iter().for_each(ClientWait::begin);
        let mut is_pausing = |turn: u64| {
            coalesce.note(Time::from_nanos(turn * 50_000));
            clients.clear();
            coalesce.pause().is_some()
        };
        let pauses: Vec<bool> = (1..9).map(&mut is_pausing).collect();
        assert_eq!(pauses, [true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn a_budget_of_zero_neither_looks_nor_pauses() {
        let clients: Vec<ClientWait> = (0..50).map(|_| ClientWait::default()).collect();
        clients.iter().for_each(ClientWait::begin);
        let mut coalesce = Coalesce::new(Duration::ZERO);
        coalesce.note(Time::from_nanos(50_000));
        assert!(!coalesce.wait(|| unreachable!("no look")));
        let (mut coalesce, begun) = (Coalesce::new(BUDGET), std::time::Instant::now());
        coalesce.note(Time::from_nanos(50_000));
        assert!(!coalesce.wait(|| unreachable!("shared connections")));
        assert!(begun.elapsed() >= Duration::from_micros(150));
        (0..64).for_each(|_| note_reply_time(Duration::from_millis(1)));
        coalesce.note(Time::from_nanos(100_000));
        assert!(coalesce.wait(|| true), "events instead of a pause");
    }
}
