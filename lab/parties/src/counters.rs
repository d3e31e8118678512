//! Hardware counters: cycles and instructions of running processes, in user and kernel mode.
//!
//! Many guests have no such counters, and many hosts keep them for privileged users (`kernel.perf_event_paranoid`). Where
//! there are none, nothing is estimated.

use std::io;

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, CountAndTime, Counter};

use crate::cpu::tasks;

/// Share of its time that an event must have been counted. A processor has few counters, and on one with two kinds of core
/// an event may exist on one kind only: what was not counted is made up for up to this point, and not beyond it.
const COVERED_MIN: f64 = 0.95;
/// How often the threads may change while counters are opened.
const ATTEMPTS: u32 = 3;

/// Counters of some processes and all that they start from now on.
#[derive(Debug)]
pub struct Counters {
    cycles: Tally,
    instructions: Tally,
}

/// Values of the counters at one instant.
#[derive(Clone, Debug)]
pub struct Reading {
    cycles: Vec<CountAndTime>,
    instructions: Vec<CountAndTime>,
}

/// Counts between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Cycles of the processor's clock while it worked for these processes.
    pub cycles: f64,
    /// Retired.
    pub instructions: f64,
}

impl Counters {
    /// Begins to count; `None` where that is not possible.
    #[must_use]
    pub fn start(processes: &[u32]) -> Option<Self> {
        (0..ATTEMPTS).find_map(|_| {
            let threads = threads_of(processes);
            let start = |event| Tally::start(event, &threads).ok();
            let counters = Self { cycles: start(Hardware::CPU_CYCLES)?, instructions: start(Hardware::INSTRUCTIONS)? };
            // A thread that began meanwhile would be missing.
            let is_whole = !threads.is_empty() && threads_of(processes) == threads;
            is_whole.then_some(counters)
        })
    }

    /// So far; `None` if they cannot be read any more.
    pub fn read(&mut self) -> Option<Reading> {
        Some(Reading { cycles: self.cycles.read().ok()?, instructions: self.instructions.read().ok()? })
    }
}

impl Reading {
    /// Counts since an `earlier` reading of the same counters; `None` if too large a part would be extrapolated.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Counted> {
        Some(Counted {
            cycles: counted(&earlier.cycles, &self.cycles)?,
            instructions: counted(&earlier.instructions, &self.instructions)?,
        })
    }
}

fn threads_of(processes: &[u32]) -> Vec<u32> {
    // A process that has ended meanwhile adds nothing.
    processes.iter().flat_map(|process| tasks(*process).unwrap_or_default()).collect()
}

/// The sum over all threads. A counter that had to take turns with others stands for the time in which it did not count.
fn counted(before: &[CountAndTime], after: &[CountAndTime]) -> Option<f64> {
    let (mut count, mut enabled, mut running) = (0.0, 0, 0);
    for (before, after) in before.iter().zip(after) {
        let time = after.time_enabled - before.time_enabled;
        let counting = after.time_running - before.time_running;
        enabled += time;
        running += counting;
        if counting > 0 {
            count += (after.count - before.count) as f64 * (time as f64 / counting as f64);
        }
    }
    (running as f64 >= COVERED_MIN * enabled as f64).then_some(count)
}

/// One event, a counter for each thread: the kernel has none for a whole process that already runs.
#[derive(Debug)]
struct Tally(Vec<Counter>);

impl Tally {
    fn start(event: impl Event + Copy, threads: &[u32]) -> io::Result<Self> {
        let mut counters = Vec::new();
        for thread in threads {
            let mut builder = Builder::new(event);
            builder.observe_pid(*thread as i32).inherit(true).include_kernel().enabled(true);
            match builder.build() {
                Ok(counter) => counters.push(counter),
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(counters))
    }

    fn read(&mut self) -> io::Result<Vec<CountAndTime>> {
        self.0.iter_mut().map(Counter::read_count_and_time).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::thread::sleep;
    use std::time::Duration;

    use perf_event::events::Software;

    use super::*;
    use crate::ThreadTimes;
    use crate::cpu::family;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).process_group(0).spawn().expect("a shell starts")
    }

    fn end(mut child: Child) {
        let group = rustix::process::Pid::from_raw(child.id() as i32).expect("an id");
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("it runs");
        child.wait().expect("it ended");
    }

    /// The kernel's own clock of a task is counted in the same way as cycles, and on hosts without hardware counters too.
    #[test]
    fn processes_that_start_later_are_counted_and_idle_ones_are_not() {
        let busy = shell("sleep 0.1; while :; do :; done & while :; do :; done & wait");
        let idle = shell("sleep 30 & wait");
        let start = |child: &Child| Tally::start(Software::TASK_CLOCK, &threads_of(&[child.id()]));
        let (mut clock, mut none) = match (start(&busy), start(&idle)) {
            (Ok(clock), Ok(none)) => (clock, none),
            (refused, _) => {
                end(busy);
                end(idle);
                let error = refused.expect_err("one of them");
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
                assert!(Counters::start(&[std::process::id()]).is_none(), "nor may it count cycles");
                return;
            }
        };
        let (before, before_none) = (clock.read().expect("readable"), none.read().expect("readable"));
        sleep(Duration::from_millis(600));
        let spun = counted(&before, &clock.read().expect("readable")).expect("always counted");
        let rested = counted(&before_none, &none.read().expect("readable")).expect("always counted");
        let threads = ThreadTimes::of(&family(busy.id()).expect("told")).expect("they run");
        let known: Duration = threads.since(&ThreadTimes::default()).iter().map(|thread| thread.run).sum();
        end(busy);
        end(idle);
        // The loops are children; without inheritance only the shell's own milliseconds would be there.
        let share = spun / known.as_nanos() as f64;
        assert!(known > Duration::from_millis(50) && (0.5..1.1).contains(&share), "{spun} ns of {known:?}");
        assert!(rested < 20e6, "{rested} ns of a process that sleeps");
    }

    #[test]
    fn uncounted_events_are_made_up_for_within_limits() {
        let read = |count, time_enabled, time_running| vec![CountAndTime { count, time_enabled, time_running }];
        let before = read(5_000, 1_000, 500);
        assert_eq!(counted(&before, &read(6_000, 2_000, 1_500)), Some(1_000.0), "what was before does not matter");
        assert_eq!(counted(&before, &read(5_960, 2_000, 1_460)).map(f64::round), Some(1_000.0));
        assert_eq!(counted(&before, &read(5_900, 2_000, 1_400)), None);
        assert_eq!(counted(&before, &before.clone()), Some(0.0), "a thread that slept");
    }

    #[test]
    fn a_process_that_is_gone_has_no_counters() {
        let mut child = Command::new("true").spawn().expect("it starts");
        child.wait().expect("it ends");
        assert!(Counters::start(&[child.id()]).is_none());
    }
}
