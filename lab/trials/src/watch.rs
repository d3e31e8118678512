//! Resource usage of the parties during one window: read when it begins, every second, and when it ends.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use weir_base::Time;
use weir_parties::cgroup::{Account, GroupTime};
use weir_parties::cpu::family;
use weir_parties::limits::{Descriptors, KernelCounters, resident_bytes};
use weir_parties::{BoxTime, BoxUse, Counted, Counters, CpuTime, Reading, ThreadTimes};

/// Length of a slice.
const SLICE: Duration = Duration::from_secs(1);
/// Steal of a slice, or of a run that is compared, above which it does not count, 0 to 1.
pub(crate) const STEAL_MAX: f64 = 0.01;

/// A party that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Gateway,
    Origin,
    Generator,
}

impl Party {
    /// As results call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Origin => "origin",
            Self::Generator => "generator",
        }
    }
}

/// Whom to watch.
#[derive(Clone, Debug)]
pub(crate) struct Watchee {
    pub(crate) party: Party,
    /// Its first process.
    pub(crate) id: u32,
    /// Account of its control group, if it has one.
    pub(crate) account: Option<Account>,
    /// Cycles and instructions are requested; that costs it a little at each switch of threads.
    pub(crate) has_counters: bool,
}

/// Usage of one party.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PartyUse {
    /// CPU seconds of its control group, or of all threads; `None` without a group if processes came or went, whose time is
    /// unknown then.
    pub(crate) cpu_s: Option<f64>,
    /// Periods in which its quota stopped it; `None`: it has no group.
    pub(crate) throttled: Option<u64>,
    /// Use of each thread, as a share of one core.
    pub(crate) threads: Vec<f64>,
    /// Share of the window that one thread, the one that did so most, was ready and waited for a CPU.
    pub(crate) wait: f64,
    /// Cycles and instructions of a gateway; `None` where the machine does not count them.
    pub(crate) counted: Option<Counted>,
    /// Kernel share of its CPU time: sampled.
    pub(crate) kernel_share: Option<f64>,
    /// Most descriptors of one of its processes at any look.
    pub(crate) fds: Descriptors,
    /// Most resident bytes of all its processes at any look.
    pub(crate) rss_max: u64,
}

/// Usage and events of the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowUsage {
    /// Its length.
    pub(crate) seconds: f64,
    pub(crate) parties: BTreeMap<Party, PartyUse>,
    pub(crate) machine: BoxUse,
    /// By its number.
    pub(crate) cpus: BTreeMap<u32, BoxUse>,
    pub(crate) slices: u64,
    pub(crate) slices_stolen: u64,
    pub(crate) kernel: KernelCounters,
}

/// A thread that looks. It has to be on time, so it has nothing else to do.
pub(crate) struct Watch(JoinHandle<Result<WindowUsage>>);

impl Watch {
    /// Looks at `parties` from `begins` to `ends`.
    pub(crate) fn start(parties: Vec<Watchee>, begins: Time, ends: Time) -> Self {
        Self(thread::spawn(move || watch(&parties, begins, ends)))
    }

    /// Waits for the end of the window.
    pub(crate) fn finish(self) -> Result<WindowUsage> {
        self.0.join().map_err(|_| anyhow!("the watching thread failed; its message stands above"))?
    }
}

/// A party and its processes.
struct Member {
    party: Party,
    account: Option<Account>,
    processes: Vec<u32>,
    counters: Option<Counters>,
    fds: Descriptors,
    rss_max: u64,
}

impl Member {
    fn new(watchee: &Watchee) -> Result<Self> {
        let Watchee { party, id, account, has_counters } = watchee.clone();
        let processes = processes_of(party, id)?;
        let counters = if has_counters { Counters::start(&processes) } else { None };
        Ok(Self { party, account, processes, counters, fds: Descriptors::default(), rss_max: 0 })
    }

    /// Memory and descriptors, once a second. Only the first process must be there: others may come and go.
    fn look(&mut self) -> Result<()> {
        let mut resident = 0;
        for (index, process) in self.processes.iter().enumerate() {
            match (Descriptors::of(*process), resident_bytes(*process)) {
                (Ok(now), Ok(bytes)) => {
                    resident += bytes;
                    if now.share() >= self.fds.share() {
                        self.fds = now;
                    }
                }
                (Err(error), _) | (_, Err(error)) if index == 0 => return Err(error),
                _ => {}
            }
        }
        self.rss_max = self.rss_max.max(resident);
        Ok(())
    }

    /// The same processes as at the beginning: one that ended took its CPU time with it.
    fn is_whole(&self) -> Result<bool> {
        Ok(processes_of(self.party, self.processes[0])? == self.processes)
    }
}

fn processes_of(party: Party, id: u32) -> Result<Vec<u32>> {
    // The generator is this process, and the other parties are its children.
    if party == Party::Generator { Ok(vec![id]) } else { family(id) }
}

/// CPU time and counters at one instant.
struct ResourceSample {
    at: Time,
    cpu: Vec<(CpuTime, ThreadTimes)>,
    groups: Vec<Option<GroupTime>>,
    counters: Vec<Option<Reading>>,
    machine: BoxTime,
    cpus: BTreeMap<u32, BoxTime>,
    kernel: KernelCounters,
}

impl ResourceSample {
    fn now(members: &mut [Member]) -> Result<Self> {
        let cpu = members.iter().map(|member| CpuTime::with_threads(&member.processes)).collect::<Result<_>>()?;
        let group = |member: &Member| member.account.as_ref().map(Account::now).transpose();
        let groups = members.iter().map(group).collect::<Result<_>>()?;
        // Without them the rest of the figures stands.
        let read = |member: &mut Member| member.counters.as_mut()?.read();
        let counters = members.iter_mut().map(read).collect();
        let (machine, cpus) = BoxTime::with_cpus()?;
        Ok(Self { at: Time::now(), cpu, groups, counters, machine, cpus, kernel: KernelCounters::now()? })
    }
}

/// A window that has begun. Its opener looks once a second, and closes it.
pub(crate) struct Window {
    members: Vec<Member>,
    first: ResourceSample,
    slice: BoxTime,
    sliced: Time,
    watched: WindowUsage,
}

impl Window {
    /// Begins now.
    pub(crate) fn open(parties: &[Watchee]) -> Result<Self> {
        Self::open_at(parties, Time::now())
    }

    /// Begins at an instant, for which it waits.
    fn open_at(parties: &[Watchee], begins: Time) -> Result<Self> {
        let mut members: Vec<Member> = parties.iter().map(Member::new).collect::<Result<_>>()?;
        sleep_until(begins);
        let first = ResourceSample::now(&mut members)?;
        let (slice, sliced) = (first.machine, begins);
        Ok(Self { members, first, slice, sliced, watched: WindowUsage::default() })
    }

    /// When the next slice is over.
    fn next_slice(&self) -> Time {
        self.sliced.saturating_add(SLICE)
    }

    /// A look, if a slice is over.
    pub(crate) fn pass(&mut self) -> Result<()> {
        let next = self.next_slice();
        if Time::now() < next { Ok(()) } else { self.end_slice(next) }
    }

    fn end_slice(&mut self, at: Time) -> Result<()> {
        let now = BoxTime::now()?;
        self.watched.slices += 1;
        self.watched.slices_stolen += u64::from(now.since(self.slice).steal > STEAL_MAX);
        (self.slice, self.sliced) = (now, at);
        self.members.iter_mut().try_for_each(Member::look)
    }

    /// Ends now.
    pub(crate) fn close(mut self) -> Result<WindowUsage> {
        self.end_slice(Time::now())?;
        self.close_after(None)
    }

    /// Ends now; the looks may be a little late, and `length` is that of the load.
    fn close_after(mut self, length: Option<Duration>) -> Result<WindowUsage> {
        let last = ResourceSample::now(&mut self.members)?;
        let Self { members, first, mut watched, .. } = self;
        let window = last.at.since(first.at).as_secs_f64();
        watched.seconds = length.map_or(window, |length| length.as_secs_f64());
        watched.machine = last.machine.since(first.machine);
        // One that came or went in between is left out.
        let cpu_use = |(cpu, now): (&u32, &BoxTime)| Some((*cpu, now.since(*first.cpus.get(cpu)?)));
        watched.cpus = last.cpus.iter().filter_map(cpu_use).collect();
        watched.kernel = last.kernel.since(first.kernel);
        for (index, member) in members.iter().enumerate() {
            let used = used(member, (&first, &last), index, watched.seconds)?;
            watched.parties.insert(member.party, used);
        }
        Ok(watched)
    }
}

/// Usage of the member at `index` between two looks, in a window of `seconds`.
fn used(
    member: &Member,
    (first, last): (&ResourceSample, &ResourceSample),
    index: usize,
    seconds: f64,
) -> Result<PartyUse> {
    let window = last.at.since(first.at).as_secs_f64();
    let in_window = |figure: f64| figure * seconds / window;
    let (before, after) = (&first.cpu[index], &last.cpu[index]);
    let group = first.groups[index].zip(last.groups[index]);
    let counted = first.counters[index].as_ref().zip(last.counters[index].as_ref());
    let counted = counted.and_then(|(before, after)| after.since(before));
    let threads = after.1.since(&before.1);
    let cpu = after.0.since(before.0);
    let sampled = cpu.user_us + cpu.system_us;
    let run: f64 = threads.iter().map(|thread| thread.run.as_secs_f64()).sum();
    let cpu_s = match group {
        Some((before, after)) => Some((after.run - before.run).as_secs_f64()),
        None => member.is_whole()?.then_some(run),
    };
    Ok(PartyUse {
        cpu_s: cpu_s.map(in_window),
        throttled: group.map(|(before, after)| after.throttled - before.throttled),
        wait: threads.iter().map(|thread| thread.wait.as_secs_f64() / window).fold(0.0, f64::max),
        threads: threads.iter().map(|thread| thread.run.as_secs_f64() / window).collect(),
        counted: counted.map(|Counted { cycles, instructions }| Counted {
            cycles: in_window(cycles),
            instructions: in_window(instructions),
        }),
        kernel_share: (sampled > 0.0).then(|| cpu.system_us / sampled),
        fds: member.fds,
        rss_max: member.rss_max,
    })
}

fn watch(parties: &[Watchee], begins: Time, ends: Time) -> Result<WindowUsage> {
    let mut window = Window::open_at(parties, begins)?;
    while window.sliced < ends {
        let at = window.next_slice().min(ends);
        sleep_until(at);
        window.end_slice(at)?;
    }
    window.close_after(Some(ends.since(begins)))
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
        let own = Watchee { party: Party::Generator, id: std::process::id(), account: None, has_counters: false };
        let watch = Watch::start(vec![own], begins, ends);
        while Time::now() < ends {
            std::hint::spin_loop();
        }
        let watched = watch.finish().expect("this process is there");
        let own = &watched.parties[&Party::Generator];
        let busiest = own.threads.iter().copied().fold(0.0, f64::max);
        // Other tests run on the same machine; how much of a core is left is theirs to say.
        assert!(busiest > 0.05 && busiest < 1.1, "{own:?}");
        assert!(own.cpu_s > Some(0.01) && own.fds.open > 2, "{own:?}");
        assert_eq!(watched.slices, 1);
        assert!(watched.machine.busy_us > 0.0);
    }
}
