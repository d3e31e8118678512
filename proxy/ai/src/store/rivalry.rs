//! Two processes with one identity, from a copy of `ai.state`. The store takes the word of each for that of the other, so one of them must
//! not spend. Pure: time is an argument.

use std::{collections::VecDeque, time::Duration};

use weir_base::Time;

/// Sessions of another process within [`WINDOW`] that prove it. Default 3: one may be a late call of a process that was killed.
const PROOF: u32 = 3;

/// Without one for so long, those before do not count. Default 60 s.
const WINDOW: Duration = Duration::from_secs(60);

/// Between two attempts of a process that has given way. Default 60 s: the other one sees less than [`PROOF`] of them in a row.
pub(super) const GIVE_WAY: Duration = Duration::from_secs(60);

/// A session that lasts so long has no rival. Default 5 s: ten looks of the other process.
const UNDISPUTED: Duration = Duration::from_secs(5);

/// Sessions of this process that are remembered. Default 64: more than it opens while calls that have timed out may still arrive.
const OWN_MAX: usize = 64;

/// The sessions of this process, and of another one with its identity.
#[derive(Debug, Default)]
pub(super) struct Rivalry {
    own: VecDeque<String>,
    opened: Time,
    seen: u32,
    last: Time,
    is_proved: bool,
}

impl Rivalry {
    /// This process has begun a session, or has tried to: its call may arrive late.
    pub(super) fn on_open(&mut self, session: &str, now: Time) {
        if self.own.len() == OWN_MAX {
            self.own.pop_front();
        }
        self.own.push_back(session.to_owned());
        self.opened = now;
    }

    /// A session is none of another process, but of a connection that was given up and whose call has arrived late. Empty: the server has
    /// forgotten it.
    pub(super) fn is_own(&self, session: &str) -> bool {
        session.is_empty() || self.own.iter().any(|own| own == session)
    }

    /// The session of another process has taken the place of the present one. True: that proves it, for the first time.
    pub(super) fn on_superseded(&mut self, now: Time) -> bool {
        self.seen = if now.since(self.last) < WINDOW { self.seen + 1 } else { 1 };
        self.last = now;
        self.seen >= PROOF && !std::mem::replace(&mut self.is_proved, true)
    }

    /// The store has responded. True: there is no rival any more.
    pub(super) fn on_reply(&mut self, now: Time) -> bool {
        let is_over = self.is_proved && now.since(self.opened) >= UNDISPUTED;
        if is_over {
            (self.is_proved, self.seen) = (false, 0);
        }
        is_over
    }

    /// Another process has the identity of this one, which gives way.
    pub(super) fn is_proved(&self) -> bool {
        self.is_proved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn late_calls_of_its_own_and_one_of_a_killed_process_are_no_rival() {
        let mut rivalry = Rivalry::default();
        for second in 0..100 {
            rivalry.on_open(&second.to_string(), at(second));
            assert!(rivalry.is_own(&second.saturating_sub(9).to_string()) && rivalry.is_own(""));
        }
        assert!(!rivalry.is_own("other"));
        assert!(!rivalry.on_superseded(at(100)) && !rivalry.on_superseded(at(101)));
        assert!(!rivalry.on_superseded(at(200)) && !rivalry.is_proved(), "those are long over");
    }

    #[test]
    fn a_process_gives_way_until_its_session_lasts() {
        let mut rivalry = Rivalry::default();
        rivalry.on_open("a", at(1));
        let proofs: Vec<bool> = (1..5).map(|second| rivalry.on_superseded(at(second))).collect();
        assert_eq!(proofs, [false, false, true, false]);
        rivalry.on_open("b", at(70));
        assert!(!rivalry.on_reply(at(71)) && rivalry.is_proved());
        assert!(rivalry.on_reply(at(75)) && !rivalry.is_proved());
    }

    #[test]
    fn of_two_processes_one_goes_on() {
        // The one that opened last has the session; the other one hears of it with its next call, half a second later.
        let (mut session, mut next) = (String::new(), [Time::ZERO; 2]);
        let mut both = [Rivalry::default(), Rivalry::default()];
        let mut mine: [Option<String>; 2] = [None, None];
        for step in 0..2_000_u64 {
            let now = Time::ZERO.saturating_add(Duration::from_millis(step * 500));
            for index in 0..2 {
                if now < next[index] {
                    continue;
                }
                match &mine[index] {
                    Some(own) if *own == session => {
                        both[index].on_reply(now);
                    }
                    Some(_) => {
                        let _ = both[index].on_superseded(now);
                        mine[index] = None;
                        if both[index].is_proved() {
                            // With the jitter of the caller.
                            next[index] = now.saturating_add(GIVE_WAY + Duration::from_secs(7 * index as u64));
                        }
                    }
                    None => {
                        session = format!("{index}-{step}");
                        both[index].on_open(&session, now);
                        mine[index] = Some(session.clone());
                    }
                }
            }
            let spending = both.iter().filter(|one| !one.is_proved()).count();
            assert!(step < 20 || spending <= 1, "step {step}");
        }
        assert_eq!(both.iter().filter(|one| !one.is_proved()).count(), 1, "one goes on");
    }
}
