//! Hardware counters: cycles and instructions of running processes, in user and kernel mode.
//!
//! Many guests have no such counters, and many hosts keep them for privileged users (`kernel.perf_event_paranoid`). Where
//! there are none, nothing is estimated.

use std::io;

use anyhow::Result;
use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};

use crate::cpu::tasks;

/// Counters of some processes and all that they start from now on.
#[derive(Debug)]
pub struct Counters {
    cycles: Tally,
    instructions: Tally,
}

/// What was counted since the counters began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Of the processor's clock while it worked for these processes.
    pub cycles: f64,
    /// Retired.
    pub instructions: f64,
}

impl Counters {
    /// Begins to count; `None` where that is not possible.
    #[must_use]
    pub fn start(processes: &[u32]) -> Option<Self> {
        let start = |event| Tally::start(event, processes).ok();
        Some(Self { cycles: start(Hardware::CPU_CYCLES)?, instructions: start(Hardware::INSTRUCTIONS)? })
    }

    /// So far.
    ///
    /// # Errors
    /// A counter cannot be read any more, or never ran beside those of somebody else.
    pub fn read(&mut self) -> Result<Counted> {
        Ok(Counted { cycles: self.cycles.total()?, instructions: self.instructions.total()? })
    }
}

impl Counted {
    /// What was counted since an earlier look.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cycles: (self.cycles - earlier.cycles).max(0.0),
            instructions: (self.instructions - earlier.instructions).max(0.0),
        }
    }
}

/// One event, a counter for each thread: the kernel has none for a whole process that already runs.
#[derive(Debug)]
struct Tally(Vec<Counter>);

impl Tally {
    fn start(event: impl Event + Copy, processes: &[u32]) -> io::Result<Self> {
        let mut counters = Vec::new();
        for process in processes {
            // Of a process that has ended meanwhile nothing is to be counted.
            for thread in tasks(*process).unwrap_or_default() {
                let mut builder = Builder::new(event);
                builder.observe_pid(thread as i32).inherit(true).include_kernel().enabled(true);
                match builder.build() {
                    Ok(counter) => counters.push(counter),
                    Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Self(counters))
    }

    /// A counter that had to share the processor's few with others ran for a part of its time; its count stands for all.
    fn total(&mut self) -> Result<f64> {
        let mut sum = 0.0;
        for counter in &mut self.0 {
            let read = counter.read_count_and_time()?;
            let (enabled, running) = (read.time_enabled, read.time_running);
            anyhow::ensure!(running > 0 || enabled == 0, "a counter never got its turn");
            if running > 0 {
                sum += read.count as f64 * (enabled as f64 / running as f64);
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use perf_event::events::Software;

    use super::*;

    /// The kernel's own clock of a task goes the same way as the counters of the processor, and is there on every host
    /// that lets this user count at all.
    #[test]
    fn all_threads_are_counted_those_too_that_start_later() {
        let own = [std::process::id()];
        let mut clock = match Tally::start(Software::TASK_CLOCK, &own) {
            Ok(clock) => clock,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
                assert!(Counters::start(&own).is_none(), "who may not count clocks may not count cycles");
                return;
            }
        };
        let before = clock.total().expect("readable");
        let spin = || {
            let start = Instant::now();
            let mut used = Duration::ZERO;
            while used < Duration::from_millis(40) {
                used = start.elapsed();
            }
        };
        std::thread::spawn(spin).join().expect("it spins");
        let spun = clock.total().expect("readable") - before;
        // Nanoseconds. Other tests take their part of the machine, so no upper bound.
        assert!(spun > 4e6, "{spun}");
        let mut hardware = Counters::start(&own);
        if let Some(counters) = &mut hardware {
            let first = counters.read().expect("readable");
            spin();
            let used = counters.read().expect("readable").since(first);
            assert!(used.cycles > 1e6 && used.instructions > 1e6, "{used:?}");
        }
    }

    #[test]
    fn a_process_that_is_gone_counts_nothing() {
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        child.wait().expect("it ends");
        let mut none = Tally::start(Software::TASK_CLOCK, &[child.id()]).expect("nothing to ask for");
        assert!(none.total().expect("nothing to read").abs() < f64::EPSILON);
    }
}
