//! Runs a child process: its output goes to the terminal line by line and is counted on the way.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::evidence::Evidence;
use crate::totals::{Runner, Totals, count_line, failed_test};

/// How a child ended, and what it reported.
#[derive(Debug)]
pub struct Finished {
    /// Exit status 0.
    pub success: bool,
    /// Killed because it passed its deadline.
    pub timed_out: bool,
    /// Tests it reported.
    pub totals: Totals,
    /// Names of failed tests, as far as the runner prints them; at most [`FAILED_NAMES_MAX`].
    pub failed: Vec<String>,
    /// If it failed, the part of its output that says why, for the end of a long run.
    pub evidence: Vec<String>,
}

/// Names of failed tests that one program's report keeps.
const FAILED_NAMES_MAX: usize = 20;

/// A `Command` in `folder` whose words are given as one list.
pub fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder);
    command
}

/// Runs to the end or to the deadline, showing every line and counting those of `runner`.
pub fn run_counted(command: &mut Command, runner: Runner, deadline: Duration) -> Result<Finished> {
    println!("$ {}", shown(command));
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let (lines, incoming) = mpsc::channel::<String>();
    let mut readers = Vec::new();
    if let Some(out) = child.stdout.take() {
        readers.push(forward(out, lines.clone()));
    }
    if let Some(err) = child.stderr.take() {
        readers.push(forward(err, lines));
    }
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    let mut evidence = Evidence::new(runner);
    let mut timed_out = false;
    loop {
        match incoming.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                totals.add(count_line(runner, &line));
                evidence.see(&line);
                if failed.len() < FAILED_NAMES_MAX {
                    failed.extend(failed_test(runner, &line).map(str::to_owned));
                }
                let mut out = std::io::stdout().lock();
                // A closed terminal must not end the run: the exit status still counts.
                let _ = writeln!(out, "{line}");
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if !timed_out && started.elapsed() > deadline {
            timed_out = true;
            stop_tree(child.id())?;
            eprintln!("xtask: stopped after {} s: {}", deadline.as_secs(), shown(command));
            break;
        }
    }
    let status = child.wait()?;
    if !timed_out {
        for reader in readers {
            let _ = reader.join();
        }
    }
    let success = status.success() && !timed_out;
    let evidence = if success { Vec::new() } else { evidence.lines() };
    Ok(Finished { success, timed_out, totals, failed, evidence })
}

/// A command that installs or builds ends within this time, or is stopped.
pub const RUN_DEADLINE: Duration = Duration::from_secs(20 * 60);
/// How often its end is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Runs with the terminal as output; an error names the command and its status.
pub fn run(command: &mut Command) -> Result<()> {
    run_within(command, RUN_DEADLINE)
}

/// As [`run`], with a deadline of its own.
pub fn run_within(command: &mut Command, deadline: Duration) -> Result<()> {
    println!("$ {}", shown(command));
    let started = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start `{}`", shown(command)))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > deadline {
            stop_tree(child.id())?;
            child.wait()?;
            bail!("`{}` was stopped after {} minutes", shown(command), deadline.as_secs() / 60);
        }
        thread::sleep(LOOK);
    };
    if !status.success() {
        bail!("`{}` ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs silently and returns what it printed; an error carries its error output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` ended with {}: {}", shown(command), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The same command at idle priority (`SCHED_IDLE`, by `chrt` of util-linux): the CPUs run it while no other program wants them.
pub fn at_idle_priority(command: &Command) -> Command {
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => idle.env(name, value),
            None => idle.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        idle.current_dir(folder);
    }
    idle
}

/// Ends a child and all its descendants (cargo starts the test binary, which starts servers).
fn stop_tree(root: u32) -> Result<()> {
    let mut doomed = vec![root];
    let mut next = 0;
    while next < doomed.len() {
        let parent = doomed[next];
        next += 1;
        for (process, its_parent) in processes()? {
            if its_parent == parent && !doomed.contains(&process) {
                doomed.push(process);
            }
        }
    }
    let words: Vec<String> = doomed.iter().map(u32::to_string).collect();
    // The shell's own `kill`: no package is needed for it. One that already ended is no error.
    Command::new("sh")
        .args(["-c", &format!("kill -KILL {} 2>/dev/null", words.join(" "))])
        .status()
        .context("cannot stop a child past its deadline")?;
    Ok(())
}

/// Every process as (id, parent id), from `/proc/<id>/stat`.
fn processes() -> Result<Vec<(u32, u32)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // The process may have ended since the listing.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else {
            continue;
        };
        // `id (name) state parent ...`; the name may hold blanks and brackets.
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        if let Some(parent) = after_name.split(' ').nth(1).and_then(|word| word.parse().ok()) {
            found.push((id, parent));
        }
    }
    Ok(found)
}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

fn forward(source: impl Read + Send + 'static, lines: mpsc::Sender<String>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = Vec::new();
        while source.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if lines.send(text).is_err() {
                break;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_at_idle_priority_keeps_its_folder_and_its_environment() {
        let mut shell = command(Path::new("/"), &["sh", "-c", "echo $WEIR_WORD; pwd; chrt --pid $$"]);
        shell.env("WEIR_WORD", "kept");
        let text = output(&mut at_idle_priority(&shell)).expect("a shell, and util-linux");
        assert!(text.starts_with("kept\n/\n") && text.contains("SCHED_IDLE"), "{text}");
    }
}
