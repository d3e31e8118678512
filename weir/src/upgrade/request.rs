//! `weir upgrade`: asks a running gateway to upgrade itself, and waits for the outcome.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use ureq::Agent;
use weir_admin::{
    Problem, limits,
    status::{UpgradeOutcome, UpgradeResult},
};
use weir_base::secret::Secret;

use crate::top;

/// Upgrade a running gateway without a lost connection.
///
/// The running process starts a new process from the file that is now at its program path, and passes the listening sockets to the new
/// process. When the new process serves, the old one drains. If the new process fails to start, the old one continues.
///
/// Exit status: 0 if the new process serves, 1 if not.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  install -m 755 target/dist/weir /usr/local/bin/weir && weir upgrade\n  weir upgrade --admin http://10.0.0.7:9900 --token-env WEIR_TOKEN\n  weir upgrade --pid $(pidof weir)"
)]
pub struct UpgradeArgs {
    /// URL of the admin address.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9900", value_parser = top::admin_url)]
    admin: String,

    /// Environment variable that holds the admin token [default: WEIR_ADMIN_TOKEN, if it is set].
    #[arg(long, value_name = "NAME", conflicts_with = "pid")]
    token_env: Option<String>,

    /// Send SIGUSR2 to this process instead of a request to the admin address, and wait for its end. If the upgrade fails, only the log
    /// of the process shows the reason.
    #[arg(long, value_name = "PID", conflicts_with = "admin", value_parser = clap::value_parser!(i32).range(2..))]
    pid: Option<i32>,

    /// Seconds to wait for the end of the process given by --pid, 1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 90, requires = "pid", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    wait: u64,
}

/// Between two looks at the process.
const LOOK: Duration = Duration::from_millis(2);
/// How long a process may take to start a new one; it does so at once, if it does.
const START_TIME: Duration = Duration::from_secs(5);

pub fn run(args: &UpgradeArgs) -> Result<(), String> {
    match args.pid {
        Some(pid) => by_signal(pid, Duration::from_secs(args.wait)),
        None => {
            let token = top::token(args.token_env.as_deref()).map_err(|error| error.to_string())?;
            by_admin(&args.admin, token)
        }
    }
}

fn by_admin(base: &str, token: Option<Secret>) -> Result<(), String> {
    let config = Agent::config_builder()
        // The gateway responds in time; this is for one that is stopped.
        .timeout_global(Some(limits::UPGRADE_DEADLINE + Duration::from_secs(5)))
        .timeout_connect(Some(Duration::from_secs(5)))
        .http_status_as_error(false)
        // Neither a redirect nor a proxy from the environment may carry the token elsewhere.
        .max_redirects(0)
        .proxy(None)
        .build();
    let url = format!("{}/api/v1/upgrade", base.trim_end_matches('/'));
    let mut request = Agent::from(config).post(&url);
    if let Some(token) = token.as_ref().and_then(Secret::expose_str) {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut response = request.send_empty().map_err(|error| format!("{url}: {error}"))?;
    let status = response.status().as_u16();
    let body = response.body_mut().read_to_string().map_err(|error| format!("{url}: {error}"))?;
    match serde_json::from_str::<UpgradeOutcome>(&body) {
        Ok(outcome) => print_result(&outcome),
        Err(_other) => Err(match serde_json::from_str::<Problem>(&body) {
            Ok(problem) => format!("{url} responds with {status}: {}; {}", problem.detail, problem.remedy),
            Err(_not_ours) => format!("{url} responds with {status}; is it the admin address of a Weir with upgrades?"),
        }),
    }
}

fn print_result(outcome: &UpgradeOutcome) -> Result<(), String> {
    let reason = outcome.reason.as_deref().unwrap_or("no reason was given");
    match (outcome.result, outcome.successor) {
        (UpgradeResult::Done, Some(successor)) => {
            println!("done: process {successor} serves, process {} drains", outcome.pid);
            Ok(())
        }
        (UpgradeResult::Refused, _) => Err(format!("refused: {reason}; process {} serves as before", outcome.pid)),
        _ => Err(format!("failed: {reason}; process {} serves as before", outcome.pid)),
    }
}

/// A signal has no response, so the outcome is what becomes of the two processes.
fn by_signal(number: i32, limit: Duration) -> Result<(), String> {
    let pid = Pid::from_raw(number).ok_or("0 is no process id")?;
    let before = children(number);
    kill_process(pid, Signal::USR2).map_err(|error| format!("cannot signal process {number}: {error}"))?;
    let begun = Instant::now();
    let mut child = None;
    while begun.elapsed() < limit {
        if !is_running(number) {
            return match child.filter(|child| is_running(*child)) {
                Some(child) => {
                    println!("done: process {child} serves, process {number} has ended");
                    Ok(())
                }
                None => Err(format!("process {number} has ended, and no process replaced it")),
            };
        }
        match child {
            None => child = children(number).into_iter().find(|one| !before.contains(one)),
            Some(one) if !is_running(one) => {
                return Err(format!(
                    "failed: the new process has ended; process {number} serves as before, its log says why"
                ));
            }
            Some(_) => {}
        }
        if child.is_none() && begun.elapsed() > START_TIME {
            return Err(format!(
                "process {number} started no new process, or the new process ended at once; see the log"
            ));
        }
        thread::sleep(LOOK);
    }
    match child {
        Some(child) => Err(format!(
            "after {} s process {child} runs and process {number} has not ended: it still drains, or waits for the new process",
            limit.as_secs()
        )),
        None => Err(format!("process {number} started no new process within {} s; its log says why", limit.as_secs())),
    }
}

/// Processes whose parent is `parent`, zombies left out.
fn children(parent: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: PathBuf| fs::read_to_string(thread.join("children")).unwrap_or_default();
    let listed: Vec<String> = threads.map(|thread| of_thread(thread.path())).collect();
    let numbers = listed.iter().flat_map(|list| list.split_whitespace()).filter_map(|word| word.parse().ok());
    numbers.filter(|number| is_running(*number)).collect()
}

/// True unless it has ended; a zombie has.
pub fn is_running(number: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    // The name before the state may hold anything, parentheses too.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(result: UpgradeResult, successor: Option<u32>, reason: Option<&str>) -> UpgradeOutcome {
        UpgradeOutcome { result, pid: 7, successor, restart_epoch: 1, reason: reason.map(str::to_owned) }
    }

    #[test]
    fn only_a_successor_that_serves_is_success() {
        assert_eq!(print_result(&outcome(UpgradeResult::Done, Some(8), None)), Ok(()));
        let failed =
            print_result(&outcome(UpgradeResult::Failed, None, Some("weir.toml: 1 mistake"))).expect_err("a failure");
        assert_eq!(failed, "failed: weir.toml: 1 mistake; process 7 serves as before");
        let refused = print_result(&outcome(UpgradeResult::Refused, None, Some("under way"))).expect_err("a refusal");
        assert!(refused.starts_with("refused: under way"), "{refused}");
        assert!(print_result(&outcome(UpgradeResult::Done, None, None)).is_err());
    }

    #[test]
    fn children_are_seen_until_they_end() {
        let own = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
        let number = child.id() as i32;
        assert!(is_running(number) && children(own).contains(&number));
        child.kill().expect("killed");
        while is_running(number) {
            thread::yield_now();
        }
        assert!(!children(own).contains(&number), "a zombie is no child any more");
        child.wait().expect("reaped");
    }
}
