//! A child process that does not outlive this one: bound to CPUs, its output in a file, ended on drop with all of its
//! process group. A child that leaves the group (a daemon) is not followed; if this process is killed outright, the kernel
//! ends the child itself, not what that had started.

use std::ffi::OsString;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::cgroup::{Account, Group};
use crate::{exists, interrupt};

/// How long a server may take until it accepts connections. A gateway in Python loads for twenty seconds on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Lines of a child's output that an error message carries.
const TAIL_LINES: usize = 12;
/// Joins the groups named before `--`, then becomes the program behind it. 0 stands for the process that writes it.
const ENTER: &str = r#"while [ "$1" != -- ]; do echo 0 > "$1" || exit 126; shift; done; shift; exec "$@""#;

/// A program to start, its CPUs and its control group.
pub struct Launch {
    /// Short name for messages and for the file of its output.
    pub name: String,
    /// Program and arguments.
    pub words: Vec<OsString>,
    /// Variables that it has besides those of this process.
    pub environment: Vec<(String, OsString)>,
    /// CPUs as `taskset -c` reads them; `None`: wherever the scheduler likes.
    pub cpus: Option<String>,
    /// In which it runs from its first instruction on; removed behind it.
    pub cgroup: Option<Group>,
}

impl Launch {
    /// A program with its arguments, bound to `cpus`.
    pub fn new<W: Into<OsString>>(name: &str, cpus: Option<&str>, words: impl IntoIterator<Item = W>) -> Self {
        Self {
            name: name.to_owned(),
            words: words.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            cpus: cpus.map(str::to_owned),
            cgroup: None,
        }
    }

    /// The command with its wrappers. All replace themselves by the program, so the process id stays the program's.
    fn command(&self) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        // The kernel then ends the child even if this process is killed outright.
        if exists("setpriv") {
            words.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(OsString::from));
        }
        if let Some(group) = &self.cgroup {
            words.extend(["sh", "-c", ENTER, "enter"].map(OsString::from));
            words.extend(group.doors().into_iter().map(OsString::from));
            words.push("--".into());
        }
        if let Some(cpus) = &self.cpus {
            words.extend(["taskset".into(), "-c".into(), OsString::from(cpus)]);
        }
        words.extend(self.words.iter().cloned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A running child.
pub struct Process {
    name: String,
    child: Child,
    output: PathBuf,
    /// Once it has been waited for: its number may then be another's.
    status: Option<ExitStatus>,
    /// Behind the child, so that it is empty when it is removed.
    cgroup: Option<Group>,
}

/// Pipes to the standard input and from the standard output of a child.
pub struct Pipes {
    /// Its standard input. Dropped, it reads the end.
    pub input: ChildStdin,
    /// Its standard output.
    pub output: ChildStdout,
}

impl Process {
    /// Starts it; standard output and error go to `<folder>/<name>.log`.
    pub fn start(launch: Launch, folder: &Path) -> Result<Self> {
        Self::spawn(launch, folder, Stdio::null(), None)
    }

    /// As [`Process::start`], with pipes to its standard input and output; the file gets standard error.
    pub fn start_piped(launch: Launch, folder: &Path) -> Result<(Self, Pipes)> {
        let mut process = Self::spawn(launch, folder, Stdio::piped(), Some(Stdio::piped()))?;
        let pipes = process.child.stdin.take().zip(process.child.stdout.take());
        let (input, output) = pipes.context("a child without its pipes")?;
        Ok((process, Pipes { input, output }))
    }

    /// Without `stdout` it goes where standard error goes.
    fn spawn(launch: Launch, folder: &Path, stdin: Stdio, stdout: Option<Stdio>) -> Result<Self> {
        let output = folder.join(format!("{}.log", launch.name));
        let file = File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
        let mut command = launch.command();
        let stdout = match stdout {
            Some(stdout) => stdout,
            None => file.try_clone()?.into(),
        };
        let child = command
            .stdin(stdin)
            .stdout(stdout)
            .stderr(file)
            // A group of its own: Ctrl-C reaches this process, which then ends its children in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {} ({command:?})", launch.name))?;
        Ok(Self { name: launch.name, child, output, status: None, cgroup: launch.cgroup })
    }

    /// Usage of its control group, if it has one.
    pub fn account(&self) -> Option<Account> {
        self.cgroup.as_ref().map(Group::account)
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        std::fs::read(&self.output).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until a connection to `port` on loopback is accepted. Fails if the process ends first.
    pub fn wait_for_port(&mut self, port: u16) -> Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let what = format!("{} to listen on {address}", self.name);
        let waited = interrupt::wait_until(&what, START_LIMIT, || {
            self.check_running()?;
            Ok(TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok())
        });
        waited.map_err(|error| anyhow!("{error:#}; {}", self.tail()))
    }

    /// How it ended; `None`: it runs.
    ///
    /// # Errors
    /// The system does not say.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.ended()
    }

    /// Whether it has ended, and how. Its children end with it: the group is ended before its number can be another's.
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_some() {
            return Ok(self.status);
        }
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Some(group) = self.group() {
            // Checked only once its group has been ended: between the two calls it may end.
            if matches!(waitid(WaitId::Pid(group), peek), Ok(None)) {
                return Ok(None);
            }
            // No process may be left in the group.
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.status = self.child.try_wait()?;
        Ok(self.status)
    }

    fn group(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// An error with the last lines of its output if it has ended.
    pub fn check_running(&mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} ended with {status}; {}", self.name, self.tail());
        }
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.group().context("no such process id")?, signal)
            .with_context(|| format!("cannot signal {}", self.name))
    }

    /// Waits until it ends by itself. Fails after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let mut status = None;
        interrupt::wait_until(&what, limit, || {
            status = self.ended()?;
            Ok(status.is_some())
        })?;
        status.context("no exit status")
    }

    /// The last lines that it wrote.
    pub fn tail(&self) -> String {
        let output = self.output();
        if output.trim().is_empty() {
            return format!("{} wrote nothing", self.name);
        }
        let lines: Vec<&str> = output.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n  ");
        format!("last output of {}:\n  {tail}", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing can be done about a failure here: it has ended already, or the kernel ends it with this process.
        // The whole group: a script may have started the program as a child of its own.
        if matches!(self.ended(), Ok(None))
            && let Some(group) = self.group()
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
