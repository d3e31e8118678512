//! What the parties used during one window: looked at when it begins, every second, and when it ends.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use weir_base::Time;
use weir_parties::limits::{Descriptors, KernelCounters};
use weir_parties::{BoxTime, BoxUse, ThreadTimes};

/// Length of a slice.
const SLICE: Duration = Duration::from_secs(1);
/// Steal of a slice above which it does not count, 0 to 1.
const STEAL_MAX: f64 = 0.01;

/// A party that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Gateway,
    Origin,
    Generator,
}

/// What one party used.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PartyUse {
    /// CPU seconds of all threads.
    pub(crate) cpu_s: f64,
    /// Of each thread, as a share of one core.
    pub(crate) threads: Vec<f64>,
    /// Share of the window that one thread, the one that did so most, was ready and waited for a CPU.
    pub(crate) wait: f64,
    /// Most descriptors at any look.
    pub(crate) fds: Descriptors,
}

/// What happened in the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) parties: BTreeMap<Party, PartyUse>,
    pub(crate) machine: BoxUse,
    pub(crate) slices: u64,
    pub(crate) slices_stolen: u64,
    pub(crate) kernel: KernelCounters,
}

/// A thread that looks. It has to be on time, so it has nothing else to do.
pub(crate) struct Watch(JoinHandle<Result<Watched>>);

impl Watch {
    /// Looks at `parties`, processes by id, from `begins` to `ends`.
    pub(crate) fn start(parties: Vec<(Party, u32)>, begins: Time, ends: Time) -> Self {
        Self(thread::spawn(move || watch(&parties, begins, ends)))
    }

    /// Waits for the end of the window.
    pub(crate) fn finish(self) -> Result<Watched> {
        self.0.join().map_err(|_| anyhow!("the watching thread failed; its message stands above"))?
    }
}

/// One look.
struct Look {
    at: Time,
    threads: Vec<(Party, ThreadTimes)>,
    machine: BoxTime,
    kernel: KernelCounters,
}

impl Look {
    fn now(parties: &[(Party, u32)]) -> Result<Self> {
        let threads = parties.iter().map(|(party, id)| Ok((*party, ThreadTimes::of(*id)?))).collect::<Result<_>>()?;
        Ok(Self { at: Time::now(), threads, machine: BoxTime::now()?, kernel: KernelCounters::now()? })
    }
}

fn watch(parties: &[(Party, u32)], begins: Time, ends: Time) -> Result<Watched> {
    sleep_until(begins);
    let first = Look::now(parties)?;
    let mut watched = Watched::default();
    let mut fds: BTreeMap<Party, Descriptors> = BTreeMap::new();
    let mut slice = first.machine;
    let mut at = begins;
    while at < ends {
        at = at.saturating_add(SLICE).min(ends);
        sleep_until(at);
        let now = BoxTime::now()?;
        watched.slices += 1;
        watched.slices_stolen += u64::from(now.since(slice).steal > STEAL_MAX);
        slice = now;
        for (party, id) in parties {
            let open = Descriptors::of(*id)?;
            let most = fds.entry(*party).or_default();
            *most = Descriptors { open: most.open.max(open.open), limit: open.limit };
        }
    }
    let last = Look::now(parties)?;
    let window = last.at.since(first.at).as_secs_f64();
    watched.machine = last.machine.since(first.machine);
    watched.kernel = last.kernel.since(first.kernel);
    for ((party, before), (_, after)) in first.threads.iter().zip(&last.threads) {
        let used = after.since(before);
        let cpu_s = used.iter().map(|thread| thread.run.as_secs_f64()).sum();
        let threads = used.iter().map(|thread| thread.run.as_secs_f64() / window).collect();
        let wait = used.iter().map(|thread| thread.wait.as_secs_f64() / window).fold(0.0, f64::max);
        let fds = fds.get(party).copied().unwrap_or_default();
        watched.parties.insert(*party, PartyUse { cpu_s, threads, wait, fds });
    }
    Ok(watched)
}

fn sleep_until(at: Time) {
    thread::sleep(at.since(Time::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_seen_with_its_share_of_a_core() {
        let begins = Time::now().saturating_add(Duration::from_millis(20));
        let ends = begins.saturating_add(Duration::from_millis(300));
        let watch = Watch::start(vec![(Party::Generator, std::process::id())], begins, ends);
        while Time::now() < ends {
            std::hint::spin_loop();
        }
        let watched = watch.finish().expect("this process is there");
        let own = &watched.parties[&Party::Generator];
        let busiest = own.threads.iter().copied().fold(0.0, f64::max);
        // Other tests run on the same machine; how much of a core is left is theirs to say.
        assert!(busiest > 0.05 && busiest < 1.1, "{own:?}");
        assert!(own.cpu_s > 0.01 && own.fds.open > 2, "{own:?}");
        assert_eq!(watched.slices, 1);
        assert!(watched.machine.busy_us > 0.0);
    }
}
