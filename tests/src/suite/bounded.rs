//! A program with a deadline, and with all that it starts.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often its end is looked for.
const PAUSE: Duration = Duration::from_millis(20);

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Status 0.
    Success,
    /// Another status.
    Failure,
    /// It was stopped at the deadline.
    Deadline,
}

/// Runs `command` with both outputs to the file `output`; at the deadline it is killed, and all its children with it.
///
/// # Errors
/// If it cannot be started.
pub fn run(command: &mut Command, output: &Path, deadline: Duration) -> Result<End, String> {
    let file = File::create(output).map_err(|error| format!("{}: {error}", output.display()))?;
    let errors = file.try_clone().map_err(|error| format!("{}: {error}", output.display()))?;
    // A group of its own, so that one signal reaches what it starts.
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", command.get_program().to_string_lossy()))?;
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(if status.success() { End::Success } else { End::Failure }),
            Ok(None) if started.elapsed() < deadline => thread::sleep(PAUSE),
            Ok(None) => {
                let line = format!("kill -KILL -{} 2>/dev/null", child.id());
                let _ = Command::new("sh").args(["-c", &line]).status();
                let _ = child.wait();
                return Ok(End::Deadline);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The output of a program, as text.
pub fn written(output: &Path) -> String {
    std::fs::read(output).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last lines of a text, for messages.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a line of shell ends, and what it writes.
    fn shell(line: &str, deadline: Duration) -> (Result<End, String>, String) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = folder.path().join("out");
        let end = run(Command::new("sh").args(["-c", line]), &output, deadline);
        (end, written(&output))
    }

    #[test]
    fn a_program_and_its_children_end_at_the_deadline() {
        // Long enough for the line: the child is known by it.
        let (end, output) = shell("sleep 600 & echo $!; wait", Duration::from_secs(2));
        assert_eq!(end, Ok(End::Deadline));
        let child = output.trim().to_owned();
        crate::deadline::until_true("the child to be gone", || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
    }

    #[test]
    fn status_and_output_are_reported() {
        let (end, output) = shell("echo one; echo two >&2; exit 3", Duration::from_secs(15));
        assert_eq!(end, Ok(End::Failure));
        assert_eq!(tail(&output, 1), "two");
    }
}
