//! The lab beside an independent client. That a stall shows in an open loop and hides in a closed one is proved in
//! `lab/load/tests/it/run.rs`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use weir_tests::gateway::program;
use weir_tests::server::{Kind, Server};

use super::Bench;

/// Bits of a string of 64 KiB are counted: the server is busy for a while, so neither client is the limit.
const SCENARIO: &str = r#"
name = "slow"
protocol = "redis"
mode = "closed"
connections = 20
keys = { count = 1 }
payload.size = "64KiB"
command = [{ words = ["BITCOUNT", "key:0"] }]
integrity = false
phase = [{ warmup = "100ms", duration = "4s" }]
"#;

/// How far apart the rates of two right clients may be on a machine that others use.
const APART_MAX: f64 = 1.5;
/// Until connections stand, and what is counted then.
const BEGIN: Duration = Duration::from_millis(1_500);
const WINDOW: Duration = Duration::from_secs(2);

/// A client that runs until it was seen for long enough.
struct Client(Child);

impl Client {
    fn start(bench: &Bench, program: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(words).current_dir(bench.folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap_or_else(|error| panic!("{} ({error}): run `cargo xtask setup`", program.display())))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls per second while `client` runs, by the counters of the server, not of the clients.
fn rate(server: &Server, client: Client) -> f64 {
    thread::sleep(BEGIN);
    let (begun, before) = (Instant::now(), server.calls("bitcount"));
    thread::sleep(WINDOW);
    let rate = (server.calls("bitcount") - before) as f64 / begun.elapsed().as_secs_f64();
    drop(client);
    rate
}

#[test]
fn redis_benchmark_and_the_lab_get_as_much_from_a_busy_server() {
    let server = Server::start(Kind::Redis);
    let bench = Bench::new(SCENARIO);
    let (target, port) = (server.address.tcp().to_string(), server.address.tcp().port().to_string());
    let mut ratios = Vec::new();
    // A neighbour of this machine may slow one of both down.
    for _ in 0..3 {
        let words = ["lab", "load", "scenario.toml", "--target", &target, "--quiet"];
        let of_lab = rate(&server, Client::start(&bench, program(), &words));
        let words = ["-p", &port, "-c", "20", "-n", "1000000000", "-q", "BITCOUNT", "key:0"];
        let of_other = rate(&server, Client::start(&bench, Path::new("redis-benchmark"), &words));
        assert!(of_lab > 100.0 && of_other > 100.0, "{of_lab} and {of_other}");
        ratios.push(of_lab / of_other);
        if (1.0 / APART_MAX..=APART_MAX).contains(&(of_lab / of_other)) {
            return;
        }
    }
    panic!("the lab and redis-benchmark disagree, three times: {ratios:?}");
}
