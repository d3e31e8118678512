//! On what the figures were taken.

use std::process::Command;

use crate::workspace::Workspace;

/// Lines `what: value` for the head of a report.
pub(crate) fn lines(workspace: &Workspace) -> Vec<(&'static str, String)> {
    vec![
        ("date", first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("commit", commit(workspace)),
        ("kernel", first_line("uname", &["-srm"])),
        ("CPU", cpu()),
        ("TCP congestion control", setting("net/ipv4/tcp_congestion_control")),
    ]
}

/// The commit of the checkout, and whether files differ from it.
fn commit(workspace: &Workspace) -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&workspace.root).args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (git(&["rev-parse", "--short=12", "HEAD"]), git(&["status", "--porcelain"])) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit} and uncommitted changes"),
        (None, _) => "none (no commit, or no git)".into(),
    }
}

/// From the machine's own list: what this process may use was narrowed on purpose.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    format!("{count} x {}", model.map_or("unknown model", |(_, name)| name.trim()))
}

/// A kernel setting under `/proc/sys`.
fn setting(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/{name}"));
    text.map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

fn first_line(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    output.map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
