//! CPU time of a process and of the whole machine, from procfs.
//!
//! The total is the scheduler's own account in nanoseconds. The split into user and system time is sampled on most
//! kernels, so tables print it with `~`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time that a process has used since it started.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// Sum over its threads.
    run: Duration,
    /// Sampled user time.
    user: Duration,
    /// Sampled system time.
    system: Duration,
}

/// CPU time between two looks, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuUse {
    /// All of it.
    pub total_us: f64,
    /// Sampled part in user mode.
    pub user_us: f64,
    /// Sampled part in the kernel.
    pub system_us: f64,
}

impl CpuTime {
    /// CPU time of running processes, such as a [`family`]: the first field of `/proc/<pid>/task/*/schedstat`, and utime and
    /// stime of their `stat`. A process after the first that has ended adds nothing.
    ///
    /// A thread that ends between two looks takes its time with it; the gateways compared here keep their threads.
    pub fn of(processes: &[u32]) -> Result<Self> {
        Self::with_threads(processes).map(|(time, _)| time)
    }

    /// As [`CpuTime::of`], and the threads of which it is the sum.
    pub fn with_threads(processes: &[u32]) -> Result<(Self, ThreadTimes)> {
        let threads = ThreadTimes::of(processes)?;
        let mut time = Self { run: threads.0.iter().map(|thread| thread.run).sum(), ..Self::default() };
        for (index, process) in processes.iter().enumerate() {
            match stat(&format!("/proc/{process}/stat")) {
                Ok(stat) => {
                    (time.user, time.system) = (time.user + ticks(stat[UTIME]), time.system + ticks(stat[STIME]))
                }
                Err(error) if index == 0 => return Err(error),
                Err(_) => {}
            }
        }
        Ok((time, threads))
    }

    /// CPU use since an earlier look.
    pub fn since(self, earlier: Self) -> CpuUse {
        let micros = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() * 1e6;
        CpuUse {
            total_us: micros(self.run, earlier.run),
            user_us: micros(self.user, earlier.user),
            system_us: micros(self.system, earlier.system),
        }
    }
}

/// CPU time of each thread of a process.
#[derive(Clone, Debug, Default)]
pub struct ThreadTimes(Vec<ThreadTime>);

/// CPU time of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    id: u32,
    /// On a CPU.
    pub run: Duration,
    /// Ready to run, and waiting for a CPU that others had.
    pub wait: Duration,
}

impl ThreadTimes {
    /// Times of running processes. A process after the first that has ended adds nothing.
    ///
    /// # Errors
    /// The first does not exist.
    pub fn of(processes: &[u32]) -> Result<Self> {
        let mut times = Self::default();
        for (index, process) in processes.iter().enumerate() {
            match times.add(*process) {
                Err(error) if index == 0 => return Err(error),
                _ => {}
            }
        }
        Ok(times)
    }

    fn add(&mut self, process: u32) -> Result<()> {
        for id in tasks(process)? {
            // A thread may end between the listing and the look.
            let Ok(text) = std::fs::read_to_string(format!("/proc/{process}/task/{id}/schedstat")) else { continue };
            let fields: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [run, wait, ..] = fields[..] else { anyhow::bail!("a schedstat with {} fields", fields.len()) };
            self.0.push(ThreadTime { id, run: Duration::from_nanos(run), wait: Duration::from_nanos(wait) });
        }
        Ok(())
    }

    /// CPU time of each thread since an earlier look; those that were not there then count from their start.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Vec<ThreadTime> {
        let before = |id: u32| earlier.0.iter().find(|other| other.id == id).copied().unwrap_or_default();
        let used = |now: &ThreadTime| {
            let then = before(now.id);
            ThreadTime { id: now.id, run: now.run.saturating_sub(then.run), wait: now.wait.saturating_sub(then.wait) }
        };
        self.0.iter().map(used).collect()
    }
}

/// A process and all that it started, as long as they live: servers with worker processes, programs behind scripts.
///
/// # Errors
/// The kernel was built without CONFIG_PROC_CHILDREN, so the children are unknown.
pub fn family(process: u32) -> Result<Vec<u32>> {
    let known = "/proc/thread-self/children";
    std::fs::metadata(known).with_context(|| format!("{known}: this kernel does not list child processes"))?;
    let mut members = vec![process];
    let mut next = 0;
    while let Some(&member) = members.get(next) {
        next += 1;
        // A client that ended meanwhile has none.
        for id in tasks(member).unwrap_or_default() {
            let children = std::fs::read_to_string(format!("/proc/{member}/task/{id}/children")).unwrap_or_default();
            members.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    Ok(members)
}

/// Ids of the threads of a process.
pub(crate) fn tasks(process: u32) -> Result<Vec<u32>> {
    let folder = format!("/proc/{process}/task");
    let entries = std::fs::read_dir(&folder).with_context(|| folder.clone())?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_string_lossy().parse().ok()).collect())
}

/// Time of all CPUs together since boot.
#[derive(Clone, Copy, Debug)]
pub struct BoxTime {
    busy: Duration,
    steal: Duration,
    total: Duration,
}

/// The machine between two looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoxUse {
    /// Busy time of all CPUs, in microseconds. Waiting for I/O counts as idle.
    pub busy_us: f64,
    /// Share of time that the hypervisor gave to others, 0 to 1.
    pub steal: f64,
    /// Share of time in which CPUs had nothing to do, 0 to 1.
    pub idle: f64,
}

impl BoxTime {
    /// The first line of `/proc/stat`.
    pub fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        Self::parse(text.lines().next().unwrap_or_default())
    }

    /// As [`BoxTime::now`], and of each CPU by its number.
    pub fn with_cpus() -> Result<(Self, BTreeMap<u32, Self>)> {
        let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let lines = text.lines().filter_map(|line| {
            let number = line.strip_prefix("cpu")?.split(' ').next()?.parse().ok()?;
            Some(Self::parse(line).map(|time| (number, time)))
        });
        Ok((Self::parse(text.lines().next().unwrap_or_default())?, lines.collect::<Result<_>>()?))
    }

    fn parse(line: &str) -> Result<Self> {
        let fields: Vec<u64> =
            line.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>().context("/proc/stat")?;
        // user nice system idle iowait irq softirq steal guest guest_nice; guest time is part of user time.
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else {
            anyhow::bail!("/proc/stat has {} fields", fields.len());
        };
        let busy = user + nice + system + irq + softirq;
        Ok(Self { busy: ticks(busy), steal: ticks(steal), total: ticks(busy + idle + iowait + steal) })
    }

    /// Use since an earlier look.
    pub fn since(self, earlier: Self) -> BoxUse {
        let total = self.total.saturating_sub(earlier.total).as_secs_f64();
        let steal = self.steal.saturating_sub(earlier.steal).as_secs_f64();
        let busy = self.busy.saturating_sub(earlier.busy).as_secs_f64();
        let share = |part: f64| if total > 0.0 { part / total } else { 0.0 };
        BoxUse { busy_us: busy * 1e6, steal: share(steal), idle: share((total - busy - steal).max(0.0)) }
    }
}

/// Fields of `/proc/<pid>/stat`, counted from the one after the name (proc(5) counts `state` as 3).
const UTIME: usize = 14 - 3;
const STIME: usize = 15 - 3;

fn stat(path: &str) -> Result<Vec<u64>> {
    let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    // The name may hold blanks and brackets.
    let (_, rest) = text.rsplit_once(") ").context("a stat file without a name")?;
    // Some fields are not plain numbers; none of those is used here.
    let fields: Vec<u64> = rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    anyhow::ensure!(fields.len() > STIME, "{path} is too short");
    Ok(fields)
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

    #[test]
    fn waiting_for_io_is_idle_and_guest_time_is_not_counted_twice() {
        let before = BoxTime::parse("cpu 100 0 50 1000 10 0 0 0 0 0").unwrap();
        let after = BoxTime::parse("cpu 150 0 100 1050 60 0 0 0 50 0").unwrap();
        let used = after.since(before);
        let tick = 1e6 / rustix::param::clock_ticks_per_second() as f64;
        assert!((used.busy_us - 100.0 * tick).abs() < 1.0);
        assert!(used.steal.abs() < f64::EPSILON);
        assert!((used.idle - 0.5).abs() < 1e-9, "{used:?}");
    }

    #[test]
    fn each_cpu_is_distinguished() {
        let (whole, all) = BoxTime::with_cpus().unwrap();
        let cpus = std::thread::available_parallelism().unwrap().get();
        assert!(all.len() >= cpus, "{all:?}");
        let sum: Duration = all.values().map(|cpu| cpu.total).sum();
        assert!((0.9..1.1).contains(&(sum.as_secs_f64() / whole.total.as_secs_f64())), "{sum:?} of {whole:?}");
    }

    #[test]
    fn a_busy_loop_shows_up_in_this_process() {
        let before = CpuTime::of(&[std::process::id()]).unwrap();
        let start = std::time::Instant::now();
        let mut spins = 0u64;
        while start.elapsed() < Duration::from_millis(60) {
            spins = std::hint::black_box(spins + 1);
        }
        let used = CpuTime::of(&[std::process::id()]).unwrap().since(before);
        assert!(used.total_us > 5_000.0, "{used:?}");
        let threads = ThreadTimes::of(&[std::process::id()]).unwrap().since(&ThreadTimes::default());
        let sum: Duration = threads.iter().map(|thread| thread.run).sum();
        assert!(sum.as_secs_f64() * 1e6 > used.total_us, "{threads:?}");
    }

    #[test]
    fn children_of_children_belong_to_the_family() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sh -c 'sleep 30 & wait' & wait"])
            .process_group(0)
            .spawn()
            .expect("a shell starts");
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while family(shell.id()).expect("told").len() < 3 && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let members = family(shell.id()).expect("told");
        assert_eq!((members[0], members.len()), (shell.id(), 3), "{members:?}");
        assert!(family(std::process::id()).expect("told").contains(&shell.id()));
        assert!(ThreadTimes::of(&members).expect("they run").0.len() >= 3);
        let group = rustix::process::Pid::from_raw(shell.id() as i32).expect("an id");
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("it ends");
        shell.wait().expect("it ended");
        assert!(CpuTime::of(&[shell.id()]).is_err(), "the first must be there");
        assert!(CpuTime::of(&[std::process::id(), shell.id()]).is_ok(), "of the others one that ended counts nothing");
    }
}
