//! The lab's open-loop load while the program of the gateway is upgraded, beside a quiet run of the same length; and the same for
//! HAProxy, which is reloaded. `WEIR_SOAK_SECONDS=60` and a release build make the table of docs/results/redis-upgrade.md.
//!
//! An error is the generator's own judgement: a request whose connection ended, a wrong reply, an error reply, a time-out, a request
//! for which no connection stood. A connection that ends with nothing under way is made again and is no error, but it is counted.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::haproxy::Haproxy;
use weir_tests::server::{Kind, Server};
use weir_tests::soak;

use super::{Bench, number};

/// How long an old process may go on after its upgrade. Its clients move at once.
const END_WAIT: Duration = Duration::from_secs(10);
/// Before the window begins.
const WARMUP: Duration = Duration::from_secs(1);

/// The length and the load of every run.
struct Shape {
    seconds: u64,
    /// Between two upgrades.
    every: Duration,
    /// Requests per second.
    rate: u32,
    connections: u32,
}

impl Shape {
    /// Shape of a lane, or of a soak.
    fn wanted() -> Self {
        let (every, rate, connections) = (Duration::from_secs(1), 1_000, 20);
        soak::requested_duration().map_or(Self { seconds: 3, every, rate, connections }, |wanted| Self {
            seconds: wanted.as_secs(),
            every: Duration::from_secs(5),
            rate: 4_000,
            connections: 50,
        })
    }

    fn scenario(&self) -> String {
        let Self { seconds, rate, connections, .. } = self;
        format!(
            "name = \"upgrade\"\nprotocol = \"redis\"\nconnections = {connections}\nslo_p99 = \"100ms\"\n\
             keys = {{ count = 10_000, distribution = \"zipf\", exponent = 0.99 }}\n\
             command = [{{ name = \"GET\", weight = 80 }}, {{ name = \"SET\", weight = 20 }}]\n\
             phase = [{{ rate = {rate}, warmup = \"{}s\", duration = \"{seconds}s\" }}]\n",
            WARMUP.as_secs()
        )
    }

    /// The record of one load, and how long each upgrade took to be answered: quiet without `upgrade`.
    fn run(&self, target: &str, mut upgrade: Option<&mut dyn FnMut() -> Duration>) -> (Value, Vec<Duration>) {
        let bench = Bench::new(&self.scenario());
        let words = ["lab", "load", "scenario.toml", "--target", target, "--quiet", "--json", "load.jsonl"];
        let mut took = Vec::new();
        let output = std::thread::scope(|scope| {
            let load = scope.spawn(|| bench.weir(&[], &words));
            let (begun, mut next) = (Instant::now(), WARMUP + self.every);
            while let Some(upgrade) =
                upgrade.as_deref_mut().filter(|_| next < WARMUP + Duration::from_secs(self.seconds))
            {
                // The pace of the upgrades.
                std::thread::sleep(next.saturating_sub(begun.elapsed()));
                took.push(upgrade());
                next += self.every;
            }
            load.join().expect("the load ends")
        });
        // A latency target that is missed, or cannot be judged on a busy machine, ends with a code of its own.
        let is_complete = matches!(output.status.code(), Some(0 | 98 | 99));
        assert!(is_complete, "{}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(bench.path("load.jsonl")).expect("a record");
        (serde_json::from_str(text.lines().next().expect("a line")).expect("JSON"), took)
    }
}

/// Errors of every class.
fn errors(record: &Value) -> u64 {
    let classes = record.pointer("/counts/errors").and_then(Value::as_object).expect("classes of errors");
    classes.values().map(|count| count.as_u64().expect("a count")).sum()
}

/// A row of the table.
fn print(gateway: &str, (record, took): &(Value, Vec<Duration>)) {
    let run = if took.is_empty() { "quiet" } else { "upgrades" };
    let skipped = number(record, "/counts/skipped_backlog") + number(record, "/counts/skipped_generator");
    let lost = record.pointer("/verdict/evidence/connections_lost").and_then(Value::as_u64).unwrap_or(0);
    let micros = ["p50", "p99", "p999", "max"].map(|name| record["latency"]["sojourn"][name].to_string()).join(" | ");
    let mut sorted = took.clone();
    sorted.sort();
    let millis = |took: Option<&Duration>| took.map_or_else(|| "-".to_owned(), |took| took.as_millis().to_string());
    println!(
        "| {gateway} | {run} | {} | {} | {skipped} | {lost} | {micros} | {} | {} | {} |",
        record["counts"]["completed"],
        errors(record),
        took.len(),
        millis(sorted.get(sorted.len() / 2)),
        millis(sorted.last()),
    );
}

#[test]
fn no_request_fails_while_the_program_is_upgraded() {
    let shape = Shape::wanted();
    println!("{} requests/s, {} connections, {} s each", shape.rate, shape.connections, shape.seconds);
    println!(
        "| gateway | run | completed | errors | skipped | connections lost | p50 us | p99 us | p99.9 us | max us | upgrades | \
         upgrade p50 ms | upgrade max ms |"
    );
    println!("{}", "|---".repeat(13) + "|");
    let server = Server::start(Kind::Redis);
    let mut config = Config::to(&server.address).workers(2);
    config.drain = "settle = \"0s\"\ntimeout = \"30s\"\n".to_owned();
    let mut gateway = Gateway::start(config);
    let target = gateway.address.text();
    let quiet = shape.run(&target, None);
    print("weir", &quiet);
    let upgraded = shape.run(
        &target,
        Some(&mut || {
            let asked = Instant::now();
            let mut old = gateway.upgrade();
            let took = asked.elapsed();
            let status = old.wait(END_WAIT);
            assert!(status.success(), "the old process ended with {status}");
            took
        }),
    );
    print("weir", &upgraded);
    let haproxy = Haproxy::master_before(&server.address);
    let target = haproxy.address.text();
    let mut reload = || {
        let asked = Instant::now();
        haproxy.reload();
        asked.elapsed()
    };
    for upgrade in [None, Some(&mut reload as &mut dyn FnMut() -> Duration)] {
        let run = shape.run(&target, upgrade);
        print("haproxy", &run);
        assert!(number(&run.0, "/counts/completed") > 0.0, "HAProxy is there to be compared with");
    }
    assert!(!upgraded.1.is_empty(), "not one upgrade");
    for (record, _) in [&quiet, &upgraded] {
        assert_eq!(errors(record), 0, "{record:#}");
        assert!(number(record, "/counts/completed") > number(record, "/counts/intended") / 2.0, "{record:#}");
    }
}
