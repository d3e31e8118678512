//! A child process that dies with the test, its log, and what the kernel counts for it.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};

use crate::deadline::{WAIT, until};

/// Ends a process whose parent is gone (a test that was killed leaves nothing running).
const WITH_PARENT: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Orphans of our children become ours: to be called before a child starts one that is to be adopted.
///
/// # Panics
/// If the kernel does not let us.
pub fn take_in_orphans() {
    set_child_subreaper(Pid::from_raw(std::process::id() as i32)).expect("this process takes in orphans");
}

/// A started program.
pub struct Process {
    id: u32,
    /// `None` for a process that a child of ours started.
    child: Option<Child>,
    log: PathBuf,
    name: String,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts `words`, with both outputs going to `log`.
    ///
    /// # Panics
    /// If the program cannot be started: a missing server is a failure.
    pub fn start(name: &str, words: &[String], log: &Path, environment: &[(String, String)]) -> Self {
        let file = File::create(log).expect("the log file can be created");
        let errors = file.try_clone().expect("the log file can be shared");
        let child = Command::new(WITH_PARENT[0])
            .args(&WITH_PARENT[1..])
            .args(words)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name} ({}): {error}", words.join(" ")));
        Self { id: child.id(), child: Some(child), log: log.to_path_buf(), name: name.to_owned(), status: None }
    }

    /// A process that a child of ours has started and that outlives it. From the first call on this process takes in its
    /// orphans, so that their end is seen like that of a child. Its log is the one of its parent.
    ///
    /// # Panics
    /// If the kernel does not let us.
    pub fn adopt(id: u32, parent: &Self) -> Self {
        take_in_orphans();
        Self { id, child: None, log: parent.log.clone(), name: parent.name.clone(), status: None }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.id
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.id as i32).expect("a process id")
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Its exit status, if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = match &mut self.child {
                Some(child) => child.try_wait().expect("the child can be waited for"),
                // An error: its parent has not ended, so it is not ours yet.
                None => waitpid(Some(self.pid()), WaitOptions::NOHANG)
                    .ok()
                    .flatten()
                    .map(|(_, status)| ExitStatus::from_raw(status.as_raw())),
            };
        }
        self.status
    }

    /// Sends a signal by name, e.g. `TERM`. An ended process is no error.
    pub fn signal(&self, signal: &str) {
        let line = format!("kill -{signal} {} 2>/dev/null", self.id());
        let _ = Command::new("sh").args(["-c", &line]).status();
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// After `limit`; the process is killed then.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let name = self.name.clone();
        let started = std::time::Instant::now();
        while started.elapsed() < limit {
            if let Some(status) = self.try_wait() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let log = self.log();
        self.kill();
        panic!("{name} did not end within {} ms; its log:\n{log}", limit.as_millis());
    }

    /// `kill -9` and reap.
    pub fn kill(&mut self) {
        match &mut self.child {
            Some(child) => {
                let _ = child.kill();
                self.status = child.wait().ok();
            }
            None => {
                let _ = kill_process(self.pid(), Signal::KILL);
                let waited = waitpid(Some(self.pid()), WaitOptions::empty()).ok().flatten();
                self.status = waited.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
            }
        }
    }

    /// Waits until `ready` holds.
    ///
    /// # Panics
    /// If the process ends first or the wait passes its limit; the message carries the log.
    pub fn wait_ready(&mut self, mut ready: impl FnMut() -> bool) {
        let name = self.name.clone();
        until(format!("{name} to be ready"), WAIT, || {
            if ready() {
                return Some(());
            }
            if let Some(status) = self.try_wait() {
                panic!("{name} ended with {status} at start; its log:\n{}", self.log());
            }
            None
        });
    }

    /// Resident memory, bytes.
    pub fn resident(&self) -> u64 {
        self.status_field("VmRSS:")
    }

    /// Highest resident memory so far, bytes.
    pub fn resident_peak(&self) -> u64 {
        self.status_field("VmHWM:")
    }

    fn status_field(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kib: u64 = line
            .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
            .unwrap_or_else(|| panic!("{} has no {field} (has it ended?)", self.name));
        kib * 1024
    }

    /// Open file descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).map(Iterator::count).unwrap_or(0)
    }

    /// User and system time of all threads so far.
    pub fn cpu_time(&self) -> Duration {
        let folder = format!("/proc/{}/task", self.id());
        let mut nanoseconds = 0;
        for task in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            nanoseconds += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
        Duration::from_nanos(nanoseconds)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.try_wait().is_none() {
            self.kill();
        }
    }
}
