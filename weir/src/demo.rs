//! `weir demo`: the gateway in front of synthetic servers, under load, while servers die and the gateway replaces itself.
//!
//! Everything is a process as it would be in production: the servers are `weir lab origin`, the gateway is `weir run` with a
//! file, the upgrade is the one of `weir upgrade`. The clients are threads of this process with plain sockets, so that what they
//! check owes nothing to the gateway's code.
//!
//! | file | concept |
//! |---|---|
//! | `stage` | the processes: started, killed, replaced, ended |
//! | `traffic` | the clients, and what they count |
//! | `redis`, `http`, `postgres` | one connection of a client, and one checked exchange on it |
//! | `report` | the printed report |

mod http;
mod postgres;
mod redis;
mod report;
mod stage;
mod traffic;

use std::time::{Duration, Instant};

use clap::Args;
use weir_parties::interrupt;

use self::{
    stage::Stage,
    traffic::{Load, TrafficCounts},
};

/// Show Weir under load for about half a minute, then serve until Ctrl-C.
///
/// Redis, HTTP and PostgreSQL clients send requests while servers are killed and started again, and while a new process of the gateway
/// replaces the old one. The clients check every reply.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir demo\n  \
                  weir demo --once        # ends instead of serving; for scripts\n\n\
                  Exit status: 0, no client lost its connection, and only requests for keys of the killed Redis shard failed; 1 \
                  otherwise.")]
pub struct DemoArgs {
    /// Exit after the last scene.
    #[arg(long)]
    once: bool,
}

/// Load alone.
const WARM_UP: Duration = Duration::from_secs(4);
/// A server is away for so long: longer than a health check takes to notice.
const AWAY: Duration = Duration::from_secs(4);
/// Load after a change.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// For a server that is back to get requests again. It takes a few good health checks, one a second.
const BACK_WAIT: Duration = Duration::from_secs(20);
/// For the old process to end once the new one serves: its clients move or finish.
const UPGRADE_WAIT: Duration = Duration::from_secs(30);

/// Runs the command.
///
/// # Errors
/// In words: the processes do not start, or the clients counted errors or lost connections.
pub fn run(args: &DemoArgs) -> Result<(), String> {
    let text = |error: anyhow::Error| format!("{error:#}");
    interrupt::watch().map_err(text)?;
    let mut stage = Stage::start().map_err(text)?;
    report::opening(&stage);
    let outcome = play(&mut stage).map_err(|error| match interrupt::check() {
        Ok(()) => format!("{error:#}\n{}", stage.log_tail()),
        Err(interrupted) => interrupted.to_string(),
    })?;
    report::closing(&outcome);
    if !args.once && outcome.is_clean() {
        report::lines_to_try(&stage);
        // Ctrl-C is how it ends.
        while interrupt::sleep(Duration::from_secs(1)).is_ok() {}
    }
    stage.end().map_err(text)?;
    match outcome.is_clean() {
        true => Ok(()),
        false => Err("the demo counted unexpected errors; see the counts above".to_owned()),
    }
}

/// The counts of all scenes.
#[derive(Default)]
struct DemoCounts {
    /// Where nothing may fail: load, an HTTP server that dies, the upgrade.
    promised: TrafficCounts,
    /// Where a Redis shard dies: clients of its keys.
    dead_shard: TrafficCounts,
    /// The clients of the other shard at that time.
    other_shard: TrafficCounts,
}

impl DemoCounts {
    /// Nothing failed where nothing may. A dead shard costs errors, and not the connection of a client.
    fn is_clean(&self) -> bool {
        self.promised.failures() + self.other_shard.failures() + self.dead_shard.lost == 0
    }
}

/// The scenes.
fn play(stage: &mut Stage) -> anyhow::Result<DemoCounts> {
    let mut outcome = DemoCounts::default();
    let load = Load::start(stage)?;

    report::scene(
        "Load",
        &format!("{} clients of each protocol, one request at a time, every reply checked", traffic::CLIENTS),
    );
    interrupt::sleep(WARM_UP)?;
    outcome.promised.add(&report::rows(&load));

    let dead = stage.http_servers[0].address.clone();
    report::scene(
        "Kill one of two HTTP servers",
        &format!("SIGKILL to {}, for {} s", stage.http_servers[0], AWAY.as_secs()),
    );
    let retries = stage.metric("weir_retries_total", &[("upstream", "http")])?;
    stage.http_servers[0].kill();
    interrupt::sleep(AWAY)?;
    let retries = stage.metric("weir_retries_total", &[("upstream", "http")])? - retries;
    outcome.promised.add(&report::rows(&load));
    report::note(&format!("{retries} requests failed at {dead}; Weir sent them to the other server"));

    report::scene("Start it again", &dead);
    let back = bring_back(stage)?;
    report::note(&format!("it gets requests again after {:.1} s, when its health checks are good", back.as_secs_f64()));
    outcome.promised.add(&report::rows(&load));

    report::scene("Upgrade", "a new process takes the sockets and the connections, as with `weir upgrade`");
    let upgrade = stage.upgrade(UPGRADE_WAIT)?;
    interrupt::sleep(AFTERWARDS)?;
    let seen = report::rows(&load);
    report::note(&upgrade.to_string());
    outcome.promised.add(&seen);

    println!("\n{}", report::verdict(&outcome.promised));

    report::scene(
        "Kill one of two Redis shards",
        &format!(
            "SIGKILL to {}, for {} s.\n  No other server has its keys, so requests for them fail",
            stage.redis_servers[0],
            AWAY.as_secs()
        ),
    );
    stage.redis_servers[0].kill();
    interrupt::sleep(AWAY)?;
    stage.redis_servers[0].start()?;
    let recovered = load.wait_for_shard(0, BACK_WAIT)?;
    (outcome.dead_shard, outcome.other_shard) = report::shard_rows(&load);
    report::note(&format!("its keys are served again {:.1} s after its start", recovered.as_secs_f64()));
    load.stop()?;
    Ok(outcome)
}

/// Starts the HTTP server again, and waits until requests go to it.
fn bring_back(stage: &mut Stage) -> anyhow::Result<Duration> {
    let address = stage.http_servers[0].address.clone();
    let labels = [("upstream", "http"), ("endpoint", address.as_str())];
    let before = stage.metric("weir_upstream_requests_total", &labels)?;
    stage.http_servers[0].start()?;
    let begun = Instant::now();
    interrupt::wait_until("requests to the server that is back", BACK_WAIT, || {
        Ok(stage.metric("weir_upstream_requests_total", &labels)? > before)
    })?;
    let took = begun.elapsed();
    interrupt::sleep(AFTERWARDS)?;
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(errors: u64, lost: u64) -> TrafficCounts {
        TrafficCounts { requests: 10, errors, lost, ..TrafficCounts::default() }
    }

    #[test]
    fn only_the_errors_of_a_dead_shard_are_expected() {
        let outcome = |promised, dead_shard, other_shard| DemoCounts { promised, dead_shard, other_shard };
        assert!(outcome(seen(0, 0), seen(9, 0), seen(0, 0)).is_clean());
        assert!(!outcome(seen(1, 0), seen(0, 0), seen(0, 0)).is_clean());
        assert!(!outcome(seen(0, 1), seen(0, 0), seen(0, 0)).is_clean());
        assert!(!outcome(seen(0, 0), seen(0, 1), seen(0, 0)).is_clean());
        assert!(!outcome(seen(0, 0), seen(0, 0), seen(1, 0)).is_clean());
        assert!(!outcome(seen(0, 0), seen(0, 0), seen(0, 1)).is_clean());
    }

    #[test]
    fn the_verdict_has_the_true_counts() {
        let mut sum = seen(0, 0);
        sum.add(&seen(3, 1));
        assert!(report::verdict(&sum).starts_with("3 errors, 1 connection lost in 20 requests"));
        assert!(report::verdict(&seen(0, 0)).starts_with("0 errors, 0 connections lost in 10 requests"));
    }
}
