//! Where the processes of one run wait for each other, so that all of them begin at the same instant.

use std::time::{Duration, SystemTime};

use weir_base::Time;
use weir_base::time::rfc3339;

use super::connection::CONNECT_TIMEOUT;
use crate::scenario::Scenario;

/// From the order to the begin of a schedule: time for every shard of one process to get ready.
const START_DELAY: Duration = Duration::from_millis(20);

/// Between the last moment of a phase and the next phase of processes that go by the clock: lost connections are made again
/// within it, if they can be.
const BETWEEN: Duration = Duration::from_secs(CONNECT_TIMEOUT.as_secs() + 1);
/// How far ahead a start by the clock may lie. Default 1 day: beyond it, milliseconds were taken for seconds.
const AHEAD_MAX: Duration = Duration::from_secs(86_400);

/// An instant on two clocks: this process's own, by which requests are sent, and the calendar's, which other processes have
/// too. The calendar is read once for each phase, so a clock that is set meanwhile moves no schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    at: Time,
    unix_micros: u64,
}

impl Start {
    /// `delay` from now.
    #[must_use]
    pub fn after(delay: Duration) -> Self {
        Self::at_unix_micros(unix_micros().saturating_add(micros(delay)))
    }

    /// So many microseconds after 1970 began.
    #[must_use]
    pub fn at_unix_micros(unix_micros: u64) -> Self {
        let (now, calendar) = (Time::now().as_nanos(), self::unix_micros());
        let ahead = |micros: u64| micros.saturating_mul(1_000);
        let at = match unix_micros.checked_sub(calendar) {
            Some(left) => now.saturating_add(ahead(left)),
            None => now.saturating_sub(ahead(calendar - unix_micros)),
        };
        Self { at: Time::from_nanos(at), unix_micros }
    }

    /// On this process's clock.
    #[must_use]
    pub const fn at(self) -> Time {
        self.at
    }

    /// Microseconds since 1970 began.
    #[must_use]
    pub const fn unix_micros(self) -> u64 {
        self.unix_micros
    }
}

/// Microseconds since 1970 began, by the clock of the machine.
#[must_use]
pub fn unix_micros() -> u64 {
    micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Where a process of a run waits for the others. An error is a sentence for people and ends the run of this process.
pub trait Barrier {
    /// All connections of this process stand. Returns when those of the others do.
    ///
    /// # Errors
    /// The others will not come.
    fn connected(&mut self) -> Result<(), String>;

    /// This process is ready for phase `index`, its keys are written. Returns when the others are ready, with the instant
    /// at which all begin.
    ///
    /// # Errors
    /// The others will not come, or this process comes too late.
    fn ready(&mut self, index: usize) -> Result<Start, String>;
}

/// Barrier of a process that runs the whole scenario: it never waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl Barrier for SingleProcess {
    fn connected(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&mut self, _index: usize) -> Result<Start, String> {
        Ok(Start::after(START_DELAY))
    }
}

/// Processes that cannot hear each other, on different machines: each phase begins by the calendar's clock, at an instant that
/// follows from the scenario and from when the run begins.
#[derive(Clone, Debug)]
pub struct ClockBarrier {
    /// Begin of each phase, in microseconds since 1970.
    begins: Vec<u64>,
}

impl ClockBarrier {
    /// Begins the first phase at `start_unix_us`, microseconds since 1970.
    ///
    /// # Errors
    /// That instant has passed, or lies more than a day ahead; a sentence for people.
    pub fn new(scenario: &Scenario, start_unix_us: u64) -> Result<Self, String> {
        let now = unix_micros();
        let named = rfc3339(start_unix_us / 1_000_000);
        if start_unix_us <= now {
            let ago = (now - start_unix_us) as f64 / 1e6;
            return Err(format!(
                "the start, {named}, was {ago:.1} s ago; nothing was sent. Name a later one to every part"
            ));
        }
        if start_unix_us - now > micros(AHEAD_MAX) {
            return Err(format!("the start, {named}, is more than a day ahead; nothing was sent. Name an earlier one"));
        }
        let mut next = start_unix_us;
        let begins = scenario.phases.iter().map(|phase| {
            let begins = next;
            next = begins.saturating_add(micros(phase.warmup + phase.duration + scenario.late_limit + BETWEEN));
            begins
        });
        Ok(Self { begins: begins.collect() })
    }
}

impl Barrier for ClockBarrier {
    fn connected(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&mut self, index: usize) -> Result<Start, String> {
        let begins = self.begins[index];
        let late = unix_micros().saturating_sub(begins);
        if late > 0 {
            return Err(format!(
                "phase {} should have begun {:.1} s ago, but this part was not ready; its load was not made. Begin later, \
                 by --start-at, and give every part the same instant",
                index + 1,
                late as f64 / 1e6
            ));
        }
        Ok(Start::at_unix_micros(begins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_name_the_same_instant() {
        let before = Time::now();
        let start = Start::after(Duration::from_secs(5));
        assert!(start.at() >= before.saturating_add(Duration::from_millis(4_990)));
        assert!(start.at() <= Time::now().saturating_add(Duration::from_millis(5_010)));
        let again = Start::at_unix_micros(start.unix_micros());
        assert!(again.at().as_nanos().abs_diff(start.at().as_nanos()) < 10_000_000, "{again:?} {start:?}");
        assert!(Start::at_unix_micros(unix_micros() - 1_000).at() <= Time::now());
    }

    #[test]
    fn by_the_clock_every_part_derives_the_same_begins_and_late_parts_are_refused() {
        let source = "name = \"s\"\nprotocol = \"redis\"\ncommand = [{ name = \"GET\" }]\n\
                      phase = [{ rate = 10, warmup = \"2s\", duration = \"3s\" }, { rate = 20, duration = \"1s\" }]\n";
        let scenario = crate::scenario::parse("s.toml", source).expect("a right scenario");
        let start = unix_micros() + 3_600_000_000;
        let mut clock = ClockBarrier::new(&scenario, start).expect("an hour ahead");
        assert_eq!(clock.ready(0).map(Start::unix_micros), Ok(start));
        // Warm-up, window, late limit, and the pause.
        assert_eq!(clock.ready(1).map(Start::unix_micros), Ok(start + (2 + 3 + 1 + 6) * 1_000_000));
        clock.begins[0] = unix_micros() - 2_000_000;
        assert!(clock.ready(0).is_err_and(|error| error.starts_with("phase 1 should have begun 2.0 s ago")));
        let refusal = |start| ClockBarrier::new(&scenario, start).expect_err("no such start");
        assert!(refusal(unix_micros() - 5_000_000).contains("was 5.0 s ago; nothing was sent"));
        assert!(refusal(start * 1_000).contains("more than a day ahead"));
    }
}
