//! A control group for one party: the CPU time of everything that it ever started, and, optionally, a share of one CPU.
//!
//! Controllers are looked for one by one: hosts with v1 controllers beside an empty unified hierarchy exist. With v1 a group
//! is made below that of this process. With v2, where a group with processes cannot have children with controllers, it is
//! made at the root, and nothing there is changed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Length of a quota's period. 10 ms: who has used up its share waits for the next one, and that wait is in the tail.
pub const PERIOD: Duration = Duration::from_millis(10);
/// Smallest share of a CPU: 1 ms per [`PERIOD`], the least that the kernel takes.
pub const SHARE_MIN: f64 = 0.1;

/// Beginning of the names of all groups made here; the id of the process that made one follows.
const PREFIX: &str = "weir-lab-";
/// How long a group may stay busy after the last of its processes was waited for.
const REMOVE_ATTEMPTS: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(10);

/// A group, removed on drop. Its processes must have ended by then.
#[derive(Debug)]
pub struct Group {
    folders: Folders,
}

/// Where the group is. With v2 both are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Folders {
    accounting: PathBuf,
    bandwidth: PathBuf,
    is_v2: bool,
}

/// Reads what a group used.
#[derive(Clone, Debug)]
pub struct Account(Folders);

/// The CPU time of a group since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTime {
    /// On a CPU, all threads, those of processes that ended too.
    pub run: Duration,
    /// Periods in which the quota stopped it.
    pub throttled: u64,
}

impl Group {
    /// A new group called `name`, limited to `share` of one CPU.
    ///
    /// # Errors
    /// No controller for CPU time is mounted, or this user may not make groups.
    ///
    /// # Panics
    /// A share outside [`SHARE_MIN`] to 1.
    pub fn create(name: &str, share: Option<f64>) -> Result<Self> {
        assert!(share.is_none_or(|share| (SHARE_MIN..=1.0).contains(&share)), "a share of a CPU");
        let parent = Folders::of_parent(&read("/proc/self/mounts".as_ref())?, &read("/proc/self/cgroup".as_ref())?)?;
        let stat = parent.bandwidth.join("cpu.stat");
        ensure!(stat.exists(), "{} is not there", stat.display());
        parent.all().for_each(remove_left_over);
        let name = format!("{PREFIX}{}-{name}", std::process::id());
        let folders = parent.join(&name);
        if parent.is_v2 && share.is_some() {
            let path = parent.bandwidth.join("cgroup.subtree_control");
            let controllers = read(&path)?;
            let has_cpu = controllers.split_whitespace().any(|word| word == "cpu");
            ensure!(has_cpu, "{} has no cpu; write +cpu there", path.display());
        }
        let group = Self { folders };
        for folder in group.folders.all() {
            fs::create_dir(folder).with_context(|| shown(folder))?;
        }
        if group.folders.is_v2 {
            // In a container the root is a group like others, and may take no processes below it.
            let kind = read(&group.folders.bandwidth.join("cgroup.type"))?;
            ensure!(kind.trim() == "domain", "a group made here would be \"{}\"", kind.trim());
        }
        if let Some(share) = share {
            group.limit(share)?;
        }
        Ok(group)
    }

    fn limit(&self, share: f64) -> Result<()> {
        let period = PERIOD.as_micros();
        let quota = (share * period as f64).round();
        let write = |name: &str, text: String| {
            let path = self.folders.bandwidth.join(name);
            fs::write(&path, text).with_context(|| shown(&path))
        };
        if self.folders.is_v2 {
            return write("cpu.max", format!("{quota} {period}"));
        }
        write("cpu.cfs_period_us", period.to_string())?;
        write("cpu.cfs_quota_us", quota.to_string())
    }

    /// Files into which a process writes 0 to join the group.
    #[must_use]
    pub fn doors(&self) -> Vec<PathBuf> {
        self.folders.all().map(|folder| folder.join("cgroup.procs")).collect()
    }

    /// Usage of the group.
    #[must_use]
    pub fn account(&self) -> Account {
        Account(self.folders.clone())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in self.folders.all() {
            // The kernel lets go of ended processes a little later.
            for _ in 0..REMOVE_ATTEMPTS {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == ErrorKind::ResourceBusy => thread::sleep(REMOVE_PAUSE),
                    _ => break,
                }
            }
        }
    }
}

impl Account {
    /// Until now.
    ///
    /// # Errors
    /// The group is gone.
    pub fn now(&self) -> Result<GroupTime> {
        let Self(folders) = self;
        let stat = read(&folders.bandwidth.join("cpu.stat"))?;
        let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let run = if folders.is_v2 {
            Duration::from_micros(field("usage_usec ").context("a cpu.stat without usage_usec")?)
        } else {
            let usage = read(&folders.accounting.join("cpuacct.usage"))?;
            Duration::from_nanos(usage.trim().parse().context("cpuacct.usage is no number")?)
        };
        // Without a quota v2 does not tell, and nothing was stopped.
        Ok(GroupTime { run, throttled: field("nr_throttled ").unwrap_or(0) })
    }
}

impl Folders {
    /// In which groups are made, from the texts of `/proc/self/mounts` and `/proc/self/cgroup`.
    fn of_parent(mounts: &str, own: &str) -> Result<Self> {
        let v1 = |controller: &str| {
            let mount = mounts.lines().find_map(|line| {
                let [_, folder, kind, options, ..] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
                (kind == "cgroup" && options.split(',').any(|option| option == controller)).then_some(folder)
            })?;
            let path = own.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                controllers.split(',').any(|word| word == controller).then_some(path)
            })?;
            Some(Path::new(mount).join(path.trim_start_matches('/')))
        };
        if let (Some(accounting), Some(bandwidth)) = (v1("cpuacct"), v1("cpu")) {
            return Ok(Self { accounting, bandwidth, is_v2: false });
        }
        let mount = mounts.lines().find_map(|line| {
            let [_, folder, kind, ..] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
            (kind == "cgroup2").then_some(folder)
        });
        let folder = PathBuf::from(mount.context("no control groups are mounted")?);
        Ok(Self { accounting: folder.clone(), bandwidth: folder, is_v2: true })
    }

    fn join(&self, name: &str) -> Self {
        Self { accounting: self.accounting.join(name), bandwidth: self.bandwidth.join(name), is_v2: self.is_v2 }
    }

    fn all(&self) -> impl Iterator<Item = &Path> {
        let bandwidth = (self.bandwidth != self.accounting).then_some(&*self.bandwidth);
        [&*self.accounting].into_iter().chain(bandwidth)
    }
}

/// Groups whose maker was killed outright.
fn remove_left_over(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|maker| !Path::new(&format!("/proc/{maker}")).exists()) {
            // One that still has processes stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| shown(path))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_found_one_by_one() {
        let v1 = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Folders::of_parent(v1, "4:cpu,cpuacct:/jobs/1\n0::/jobs\n").expect("v1");
        let folder = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/jobs/1");
        assert_eq!(found, Folders { accounting: folder.clone(), bandwidth: folder, is_v2: false });
        let apart = "cgroup /a cgroup rw,cpuacct 0 0\ncgroup /b cgroup rw,cpu 0 0\n";
        let found = Folders::of_parent(apart, "2:cpuacct:/\n1:cpu:/x\n").expect("v1");
        assert_eq!((found.accounting, found.bandwidth), (PathBuf::from("/a"), PathBuf::from("/b/x")));
        let v2 = Folders::of_parent("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "0::/user\n").expect("v2");
        assert_eq!((v2.is_v2, v2.bandwidth), (true, PathBuf::from("/sys/fs/cgroup")));
        assert!(Folders::of_parent("proc /proc proc rw 0 0\n", "0::/\n").is_err());
    }
}
