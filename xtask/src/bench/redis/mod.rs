//! `bench redis`: gateways in front of one Redis server, or several.

pub(crate) mod load;
pub(crate) mod row;
pub(crate) mod target;

use std::time::Duration;

use anyhow::{Result, bail};
use weir_parties::peer::version_line;

use super::contest::{self, Contest, Texts};
use super::measure::Outcome;
use super::options::Options;
use super::peers::backend::{Backend, Behind, counters_of_all};
use super::peers::origin::Counters;
use super::peers::weir::{Program, arm_settings};
use super::peers::{Arm, Goal, floor, name, peer};
use super::place::Place;
use super::resp::Connection;
use super::target::Comparison;
use row::RedisRow;

/// A warm-up has this share of a run's requests.
const WARM_UP_SHARE: u64 = 8;

/// Runs the comparison.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (options, behind) = Options::of_redis(words)?;
    contest::run(&options, |_, place| Redis::start(place, behind))
}

/// The servers, and a connection to each beside the load.
pub(crate) struct Redis {
    backend: Backend,
    controls: Vec<Connection>,
}

impl Redis {
    /// Starts the servers.
    pub(crate) fn start(place: &Place, behind: Behind) -> Result<Self> {
        let backend = Backend::start(place, behind)?;
        let controls = backend.connect()?;
        Ok(Self { backend, controls })
    }

    fn preload(&self, place: &Place, row: &RedisRow, goal: &Goal) -> Result<()> {
        load::preload(row, goal, &place.load_cpu, place.path())
    }
}

impl Contest for Redis {
    type Row = RedisRow;
    /// Requests.
    type Length = u64;
    type Counters = Counters;

    const TEXTS: Texts = Texts {
        title: "Redis: gateways side by side",
        command: "cargo xtask bench redis",
        server: "redis",
        load: "closed loop: redis-benchmark sends the next request after the reply, so latencies hide stalls of the\n  \
               client; with a pipeline a latency is that of the batch. p99.9 is interpolated, and printed from ten\n  \
               thousand requests on",
    };
    const COMPARISONS: &'static [Comparison<RedisRow>] = &target::ALL;

    fn start(
        &self,
        arm: &'static str,
        place: &Place,
        weir: Option<&Program>,
        options: &Options<RedisRow>,
    ) -> Result<Arm> {
        let origin = &self.backend.servers[0];
        match (arm, weir) {
            (name::ENVOY, _) => peer::start_redis(place, (arm, "envoy"), &self.backend, options.envoy.as_deref()),
            (name::TWEMPROXY, _) => peer::start_redis(place, (arm, "twemproxy"), &self.backend, None),
            (name::HAPROXY_TCP, _) => peer::start_redis(place, (arm, "haproxy"), &self.backend, None),
            (name::FLOOR, _) => floor::start(place, origin.port, floor::Way::Shared),
            (name::DIRECT, _) => Ok(Arm::direct(origin.goal())),
            (_, Some(weir)) => weir.arm(place, arm, &arm_settings(place, arm, &self.backend)?),
            (_, None) => bail!("no such arm"),
        }
    }

    fn servers(&self) -> Vec<u32> {
        self.backend.servers.iter().map(|server| server.process.id()).collect()
    }

    fn prepare_row(&self, place: &Place, row: &RedisRow) -> Result<()> {
        match self.backend.behind {
            Behind::One => self.preload(place, row, &self.backend.servers[0].goal()),
            Behind::Shards | Behind::Cluster => Ok(()),
        }
    }

    fn prepare_arm(&self, place: &Place, row: &RedisRow, arm: &Arm) -> Result<()> {
        match self.backend.behind {
            Behind::One => Ok(()),
            // Where a key is depends on who is asked.
            Behind::Shards | Behind::Cluster => self.preload(place, row, &arm.goal),
        }
    }

    fn first_length(&self, row: &RedisRow) -> u64 {
        row.calibration_requests()
    }

    fn length(&self, row: &RedisRow, rate: f64, aimed: Duration) -> u64 {
        requests(rate, aimed, row)
    }

    fn warm_up_length(&self, row: &RedisRow, measured: u64) -> u64 {
        (measured / WARM_UP_SHARE).max(u64::from(row.connections))
    }

    fn told(&self, length: u64) -> String {
        format!("{length} requests")
    }

    fn load(&self, place: &Place, row: &RedisRow, goal: &Goal, length: u64) -> Result<Outcome> {
        load::run(row, goal, length, &place.load_cpu, place.path())
    }

    fn count(&mut self) -> Result<Counters> {
        counters_of_all(&mut self.controls)
    }

    fn prove(&self, before: &Counters, after: &Counters, outcome: &Outcome) -> Result<()> {
        if after.commands - before.commands < outcome.completed {
            bail!("redis-server executed fewer commands than redis-benchmark counted replies");
        }
        if after.misses != before.misses {
            bail!("{} reads found no key", after.misses - before.misses);
        }
        Ok(())
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let shape = match self.backend.behind {
            Behind::One => "one",
            Behind::Shards => "three, each with its part of the keys, placed by Maglev (by twemproxy with ketama)",
            Behind::Cluster => "a cluster of three, each with a third of the slots",
        };
        let version = &self.backend.servers[0].version;
        vec![
            ("load generator", version_line("redis-benchmark", &["--version"])),
            ("server", format!("{version}, `--save '' --appendonly no`; {shape}")),
        ]
    }
}

fn requests(rate: f64, length: Duration, row: &RedisRow) -> u64 {
    let wanted = (rate * length.as_secs_f64()) as u64;
    // At least a few per connection; whole pipelines.
    let pipeline = u64::from(row.pipeline);
    wanted.max(10 * u64::from(row.connections) * pipeline) / pipeline * pipeline
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_whole_pipelines_and_never_too_short() {
        let row = RedisRow { pipeline: 16, ..RedisRow::all()[0] };
        assert_eq!(requests(100_000.0, Duration::from_secs(2), &row), 200_000);
        assert_eq!(requests(1.0, Duration::from_secs(1), &row), 8_000);
        assert_eq!(requests(100_001.0, Duration::from_secs(1), &row) % 16, 0);
    }
}
