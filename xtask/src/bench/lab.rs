//! `bench lab`: the lab against an independent client, redis-benchmark, on the same server.
//!
//! Both keep as many requests under way as they may. How many were answered is the server's own count, and the CPU time
//! of each client is taken over the same seconds, so that neither is asked about itself. Then a server that stops now and
//! then: what the open loop sees of it, and what closed loops do not.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use weir_knee::markdown::{Table, number};
use weir_knee::ratio::{BLOCKS_MIN, Ratio, median};
use weir_parties::cpu::CpuTime;
use weir_parties::interrupt;
use weir_parties::peer::version_line;
use weir_parties::process::{Launch, Process};

use super::machine;
use super::options::LabOptions;
use super::peers::Goal;
use super::peers::origin::{Origin, counters};
use super::peers::weir::release_build;
use super::place::Place;
use super::redis::load;
use super::redis::row::{RedisRow, Verb};
use super::resp::Connection;
use super::row::Row;
use crate::workspace::Workspace;

/// Until a client runs evenly: connections, and for the lab the plan of its requests.
const WARM_UP: Duration = Duration::from_millis(1_500);
/// How far apart the rates of two right clients may be.
const RATE_TOLERANCE: f64 = 0.10;
/// Share of its core at which a client is the limit itself: its rate then says nothing about the other's.
const FULL: f64 = 0.90;
/// A command that keeps the server busy for a while, so that neither client is the limit: bits of a string of 64 KiB.
const SLOW: [&str; 2] = ["BITCOUNT", "bits"];
/// How much cheaper per request the lab means to be.
const COST_RATIO_MAX: f64 = 1.0 / 1.5;

/// One stall in each period of [`STALL_EVERY`].
const STALL: Duration = Duration::from_millis(100);
const STALL_EVERY: Duration = Duration::from_secs(4);
const STALLS: u32 = 5;
/// Offered while the server stalls.
const STALL_RATE: u32 = 5_000;

/// Runs it. A missed goal is told and no failure: machines are noisy.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = LabOptions::parse(words)?;
    let workspace = Workspace::load()?;
    interrupt::watch()?;
    let weir = release_build(&workspace)?;
    let mut place = Place::new()?;
    // No gateway: the server has its CPU.
    place.origin_cpu.clone_from(&place.gateway_cpu);
    place.step_aside()?;
    let origin = Origin::start(&place)?;
    let mut bench = Bench { weir, place: &place, origin: &origin, control: origin.connect()? };
    let mut text = String::from("# The lab against independent clients\n\nMade by `cargo xtask bench lab`.\n\n");
    text.push_str(&bench.clients(&options)?);
    text.push_str(&bench.stalls()?);
    text.push_str("\n## Conditions\n\n");
    let place = format!("redis-server on CPU {}, the client on CPU {}", place.origin_cpu, place.load_cpu);
    let generator = version_line("redis-benchmark", &["--version"]);
    let more = [("load generator", generator), ("server", origin.version.clone())];
    for (what, value) in machine::lines(&workspace).into_iter().chain(more) {
        let _ = writeln!(text, "- {what}: {value}");
    }
    let _ = writeln!(text, "- {place}");
    options.publish(&workspace, &text)
}

/// One client during some seconds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Requests per second, counted by the server.
    rate: f64,
    /// CPU of the client per request, microseconds.
    cpu_us: f64,
}

/// What both clients ask for.
struct Case {
    row: RedisRow,
    /// [`SLOW`] instead of GET.
    is_slow: bool,
}

struct Bench<'a> {
    weir: PathBuf,
    place: &'a Place,
    origin: &'a Origin,
    control: Connection,
}

impl Bench<'_> {
    /// Rates and costs, closed loop.
    fn clients(&mut self, options: &LabOptions) -> Result<String> {
        let mut table = Table::new(&[
            "command, connections x pipeline",
            "lab, requests/s",
            "redis-benchmark",
            "rate, lab to it",
            "lab, client us per request",
            "redis-benchmark",
            "cost, lab to it",
            "verdict",
        ]);
        self.control.ask(&[b"SETRANGE", SLOW[1].as_bytes(), b"65535", b"x"])?;
        for (connections, pipeline, is_slow) in [(50, 1, true), (50, 16, false), (50, 1, false), (1, 1, false)] {
            let row = RedisRow { verb: Verb::Get, bytes: 64, connections, pipeline, keys: 1 };
            load::preload(&row, &self.origin.goal(), &self.place.load_cpu, self.place.path())?;
            let case = Case { row, is_slow };
            let mut pairs = Vec::new();
            for block in 0..options.blocks {
                eprintln!("bench: {} block {} of {}", row.id(), block + 1, options.blocks);
                let (lab, other) = if block % 2 == 0 {
                    let lab = self.lab(&case, options.window)?;
                    (lab, self.redis_benchmark(&case, options.window)?)
                } else {
                    let other = self.redis_benchmark(&case, options.window)?;
                    (self.lab(&case, options.window)?, other)
                };
                pairs.push((lab, other));
            }
            table.row(line(&case, &pairs)?);
        }
        Ok(format!(
            "## The same load, closed loop\n\nGET of 64 B, and BITCOUNT of 64 KiB, which keeps the server busy. Rates are counted by the server; the lab checks every reply to GET, \
             redis-benchmark none. Goals: rates within {:.0} %, cost at most {COST_RATIO_MAX:.2}.\n\n{}\n{} blocks of \
             {:.0} s each; medians, ratios paired by block with 95 % bootstrap intervals.\n",
            RATE_TOLERANCE * 1e2,
            table.markdown(),
            options.blocks,
            options.window.as_secs_f64(),
        ))
    }

    fn lab(&mut self, case: &Case, window: Duration) -> Result<Sample> {
        let length = WARM_UP + window + Duration::from_secs(1);
        let scenario = scenario("closed", case, &format!("duration = \"{}ms\"", length.as_millis()));
        let mut process = self.start_lab(&scenario)?;
        let sample = self.sample(&process, window)?;
        let record = self.finish_lab(&mut process, length)?;
        let errors = record.pointer("/counts/errors").and_then(Value::as_object).context("errors")?;
        let is_wrong = errors.values().any(|count| count.as_u64() != Some(0));
        ensure!(!is_wrong, "the lab saw errors: {errors:?}");
        Ok(sample)
    }

    fn redis_benchmark(&mut self, case: &Case, window: Duration) -> Result<Sample> {
        // Ended when it has been seen for long enough.
        let (port, requests) = (self.origin.port.to_string(), "1000000000");
        let (connections, pipeline) = (case.row.connections.to_string(), case.row.pipeline.to_string());
        let mut words = vec!["redis-benchmark", "-p", &port, "-c", &connections, "-P", &pipeline, "-n", requests, "-q"];
        words.extend(if case.is_slow { &SLOW } else { &["-t", "get"] });
        let process = Process::start(Launch::new("client", Some(&self.place.load_cpu), words), self.place.path())?;
        self.sample(&process, window)
    }

    fn sample(&mut self, process: &Process, window: Duration) -> Result<Sample> {
        std::thread::sleep(WARM_UP);
        let look = |control: &mut Connection| -> Result<_> {
            Ok((Instant::now(), CpuTime::of(&[process.id()])?, counters(control)?.commands))
        };
        let (began, cpu_before, before) = look(&mut self.control)?;
        std::thread::sleep(window);
        let (ended, cpu_after, after) = look(&mut self.control)?;
        let requests = (after - before) as f64;
        ensure!(requests > 0.0, "nothing was asked; {}", process.tail());
        let rate = requests / (ended - began).as_secs_f64();
        Ok(Sample { rate, cpu_us: cpu_after.since(cpu_before).total_us / requests })
    }

    /// A server that stops for a moment, five times.
    fn stalls(&mut self) -> Result<String> {
        let row = RedisRow { verb: Verb::Get, bytes: 64, connections: 50, pipeline: 1, keys: 1 };
        let case = Case { row, is_slow: false };
        let length = STALL_EVERY * STALLS;
        let phase = format!("duration = \"{}s\"", length.as_secs());
        let mut table = Table::new(&["client", "loop", "requests", "p50 ms", "p99 ms", "p99.9 ms"]);
        for (mode, rate) in [("open", format!("rate = {STALL_RATE}, ")), ("closed", String::new())] {
            eprintln!("bench: stalls, {mode} loop");
            let mut process = self.start_lab(&scenario(mode, &case, &format!("{rate}{phase}")))?;
            self.stall()?;
            let record = self.finish_lab(&mut process, length)?;
            let micros = |name: &str| {
                let path = format!("/latency/sojourn/{name}");
                record.pointer(&path).and_then(Value::as_f64).map(|micros| micros / 1e3)
            };
            let completed = record.pointer("/counts/completed").and_then(Value::as_u64).unwrap_or(0);
            let figures = ["p50", "p99", "p999"].map(|name| number(micros(name), 2));
            table.row([["lab".to_owned(), mode.to_owned(), completed.to_string()].to_vec(), figures.to_vec()].concat());
        }
        eprintln!("bench: stalls, redis-benchmark");
        let goal = Goal { port: self.origin.port, tls_ca: None };
        let (cpu, folder) = (self.place.load_cpu.clone(), self.place.path().to_owned());
        let rate = load::run(&row, &goal, 100_000, &cpu, &folder)?.rate;
        let requests = (rate * length.as_secs_f64()) as u64;
        let client = std::thread::spawn(move || load::run(&row, &goal, requests, &cpu, &folder));
        self.stall()?;
        let outcome = client.join().map_err(|_| anyhow::anyhow!("the client's thread failed"))??;
        table.row(vec![
            "redis-benchmark".to_owned(),
            "closed".to_owned(),
            outcome.completed.to_string(),
            number(Some(outcome.p50), 2),
            number(Some(outcome.p99), 2),
            number(outcome.p999, 2),
        ]);
        // Whoever arrives in a stall waits for what is left of it.
        let share = STALL.as_secs_f64() / STALL_EVERY.as_secs_f64();
        let of_theory = |tail: f64| STALL.as_secs_f64() * 1e3 * (1.0 - tail / share);
        Ok(format!(
            "\n## A server that stalls\n\nredis-server is stopped for {} ms in every {} s. {:.1} % of the requests of an \
             open loop arrive in a stall and wait for the rest of it, evenly between nothing and all: p99 is then {:.1} ms \
             and p99.9 {:.1} ms, and a little more until the queue is gone. A closed loop asks nothing meanwhile, so it \
             sees each stall once per connection.\n\n{}",
            STALL.as_millis(),
            STALL_EVERY.as_secs(),
            share * 1e2,
            of_theory(0.01),
            of_theory(0.001),
            table.markdown(),
        ))
    }

    /// Stops the server, once in each period; in the middle of it, so that no stall meets an edge of the window.
    fn stall(&self) -> Result<()> {
        let begun = Instant::now();
        for number in 0..STALLS {
            let at = WARM_UP + STALL_EVERY * number + STALL_EVERY / 2;
            std::thread::sleep(at.saturating_sub(begun.elapsed()));
            self.origin.process.signal(Signal::STOP)?;
            std::thread::sleep(STALL);
            self.origin.process.signal(Signal::CONT)?;
        }
        Ok(())
    }

    fn start_lab(&self, scenario: &str) -> Result<Process> {
        let path = self.file("scenario.toml");
        std::fs::write(&path, scenario)?;
        let (weir, json) = (self.weir.to_string_lossy(), self.file("record.jsonl"));
        let target = format!("127.0.0.1:{}", self.origin.port);
        let (path, json) = (path.to_string_lossy(), json.to_string_lossy());
        let words = [&*weir, "lab", "load", &path, "--target", &target, "--quiet", "--json", &json];
        Process::start(Launch::new("lab", Some(&self.place.load_cpu), words), self.place.path())
    }

    /// The record of its only phase.
    fn finish_lab(&self, process: &mut Process, length: Duration) -> Result<Value> {
        let status = process.wait(length + Duration::from_secs(20))?;
        ensure!(status.success(), "the lab ended with {status}; {}", process.tail());
        Ok(serde_json::from_str(&std::fs::read_to_string(self.file("record.jsonl"))?)?)
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(self.place.path()).join(name)
    }
}

/// One key, as redis-benchmark has it.
fn scenario(mode: &str, case: &Case, phase: &str) -> String {
    let Case { row, is_slow } = case;
    let command = if *is_slow { format!("words = {SLOW:?}") } else { "name = \"GET\"".to_owned() };
    format!(
        "name = \"check\"\nprotocol = \"redis\"\nmode = \"{mode}\"\nconnections = {}\npipeline = {}\n\
         keys = {{ count = 1, preload = true }}\npayload = {{ size = \"{}B\" }}\ncommand = [{{ {command} }}]\nintegrity = {}\n\
         phase = [{{ warmup = \"{}ms\", {phase} }}]\n",
        row.connections,
        row.pipeline,
        row.bytes,
        !is_slow,
        WARM_UP.as_millis(),
    )
}

fn line(case: &Case, pairs: &[(Sample, Sample)]) -> Result<Vec<String>> {
    let Case { row, is_slow } = case;
    let middle = |figure: fn(&(Sample, Sample)) -> f64| median(pairs.iter().map(figure));
    let ratio = |figure: fn(&Sample) -> f64| {
        let pairs: Vec<(f64, f64)> = pairs.iter().map(|(lab, other)| (figure(lab), figure(other))).collect();
        Ratio::of(&pairs).context("a ratio")
    };
    let (rate, cost) = (ratio(|sample| sample.rate)?, ratio(|sample| sample.cpu_us)?);
    let shown = |ratio: &Ratio| format!("{:.3} ({:.3} to {:.3})", ratio.median, ratio.interval.0, ratio.interval.1);
    let mut verdict = Vec::new();
    let is_full = |sample: &Sample| sample.rate * sample.cpu_us / 1e6 > FULL;
    verdict.push(match () {
        () if pairs.iter().any(|(lab, other)| is_full(lab) || is_full(other)) => "a client is full: no check",
        () if (rate.median - 1.0).abs() <= RATE_TOLERANCE => "rate met",
        () => "rate MISSED",
    });
    // Cost falls with load: it is compared only where the load is the same.
    if verdict == ["rate met"] {
        verdict.push(match () {
            () if cost.interval.1 <= COST_RATIO_MAX => "cost met",
            () if cost.median <= COST_RATIO_MAX => "cost met (interval reaches over)",
            () => "cost MISSED",
        });
    }
    if pairs.len() < BLOCKS_MIN {
        verdict.push("too few blocks for a claim");
    }
    Ok(vec![
        format!("{}, {} x {}", if *is_slow { SLOW[0] } else { "GET" }, row.connections, row.pipeline),
        number(middle(|(lab, _)| lab.rate), 0),
        number(middle(|(_, other)| other.rate), 0),
        shown(&rate),
        number(middle(|(lab, _)| lab.cpu_us), 2),
        number(middle(|(_, other)| other.cpu_us), 2),
        shown(&cost),
        verdict.join(", "),
    ])
}
