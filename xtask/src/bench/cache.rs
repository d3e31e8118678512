//! `bench cache`: the reply cache on and off, under keys that are asked for as unevenly as in life (Zipf).
//!
//! redis-benchmark draws its keys evenly, so the load is `weir lab load`, a closed loop. How many requests there were is the
//! gateway's own count, and so is the share that never reached the server; CPU times are taken over the same seconds.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weir_knee::markdown::{Table, number};
use weir_knee::ratio::{BLOCKS_MIN, Ratio, median};
use weir_parties::cpu::{BoxTime, CpuTime, family};
use weir_parties::interrupt;
use weir_parties::process::{Launch, Process};

use super::machine;
use super::options::{USAGE, publish};
use super::peers::origin::Origin;
use super::peers::weir::{Program, Settings, ask, release_build};
use super::place::Place;
use crate::workspace::Workspace;

/// Until connections, lanes and the cache are as they stay.
const WARM_UP: Duration = Duration::from_millis(1_500);
/// Keys of the load, and how unevenly they are asked for: the exponent of YCSB.
const KEYS: u32 = 10_000;
const EXPONENT: f64 = 0.99;
/// Of 100 requests so many are SET, the others GET.
const WRITES: [u32; 2] = [0, 5];
/// Enough for all keys: the bound is not what is measured.
const CACHE: &str = "\n[listener.redis]\ncache_bytes_max = \"64MiB\"\n";

struct Options {
    connections: u32,
    pipeline: u32,
    blocks: usize,
    length: Duration,
    out: Option<PathBuf>,
    /// How Weir is started.
    weir_command: Option<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            connections: 50,
            pipeline: 1,
            blocks: 8,
            length: Duration::from_secs(3),
            out: None,
            weir_command: None,
        };
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
            match word {
                "--connections" => options.connections = value()?.parse().context("--connections needs a number")?,
                "--pipeline" => options.pipeline = value()?.parse().context("--pipeline needs a number")?,
                "--repeats" => options.blocks = value()?.parse().context("--repeats needs a number")?,
                "--seconds" => options.length = Duration::try_from_secs_f64(value()?.parse()?)?,
                "--quick" => (options.blocks, options.length) = (2, Duration::from_millis(500)),
                "--out" => options.out = Some(value()?.into()),
                "--weir-command" => options.weir_command = Some(value()?.to_owned()),
                _ => bail!("unknown option `{word}`\n\n{USAGE}"),
            }
        }
        ensure!(options.blocks > 0 && options.connections > 0 && options.pipeline > 0, "at least one of each");
        Ok(options)
    }
}

/// One run of one arm. Times in microseconds of CPU per request.
#[derive(Clone, Copy)]
struct Sample {
    rate: f64,
    gateway_us: f64,
    origin_us: f64,
    box_us: f64,
    /// Share of the reads that the cache answered.
    hits: f64,
}

/// Runs it.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    let workspace = Workspace::load()?;
    interrupt::watch()?;
    let program = Program::find(&workspace, options.weir_command.as_deref())?;
    let load = match &options.weir_command {
        Some(command) => command.split_whitespace().next().context("--weir-command names a program")?.into(),
        None => release_build(&workspace)?,
    };
    let place = Place::new()?;
    place.step_aside()?;
    let mut text = String::from("# The reply cache, on and off\n\nMade by `cargo xtask bench cache`.\n\n");
    let _ = writeln!(
        text,
        "{KEYS} keys of 64 B, asked for as Zipf with exponent {EXPONENT} has it; {} connections, pipeline {}, closed loop \
         (`weir lab load`). One worker. Medians of {} blocks of {:.1} s; ratios on / off, paired by block, with 95 % bootstrap \
         intervals.{}\n",
        options.connections,
        options.pipeline,
        options.blocks,
        options.length.as_secs_f64(),
        if options.blocks < BLOCKS_MIN { " Too few blocks for a claim." } else { "" },
    );
    let mut table = Table::new(&[
        "mix",
        "cache",
        "requests/s",
        "hit rate",
        "gateway us per request",
        "redis-server us",
        "whole machine us",
        "gateway, on / off",
        "requests/s, on / off",
    ]);
    let mut version = String::new();
    for writes in WRITES {
        let (mut off, mut on) = (Vec::new(), Vec::new());
        for block in 0..options.blocks {
            for at in 0..2 {
                // Mirrored, so that a drift of the machine hits both alike.
                let is_on = (at + block) % 2 == 1;
                eprintln!("bench: cache, {writes} % SET, block {} of {}, on: {is_on}", block + 1, options.blocks);
                let origin = Origin::start(&place)?;
                version.clone_from(&origin.version);
                let sample = measure(&options, &place, &origin, &program, &load, writes, is_on)?;
                if is_on { on.push(sample) } else { off.push(sample) }
            }
        }
        rows(&mut table, writes, &off, &on)?;
    }
    let _ = write!(text, "{}\n## Conditions\n\n", table.markdown());
    let lines = machine::lines(&workspace).into_iter();
    for (what, value) in lines.chain([("server", version)]) {
        let _ = writeln!(text, "- {what}: {value}");
    }
    let _ = writeln!(text, "- {}", place.layout());
    publish(&workspace, options.out.as_deref(), &text)
}

fn rows(table: &mut Table, writes: u32, off: &[Sample], on: &[Sample]) -> Result<()> {
    let ratio = |figure: fn(&Sample) -> f64| -> Result<String> {
        let pairs: Vec<(f64, f64)> = on.iter().zip(off).map(|(on, off)| (figure(on), figure(off))).collect();
        let ratio = Ratio::of(&pairs).context("a ratio")?;
        Ok(format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.interval.0, ratio.interval.1))
    };
    for (name, samples) in [("off", off), ("on", on)] {
        let middle = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure));
        let ratios = match name {
            "on" => [ratio(|sample| sample.gateway_us)?, ratio(|sample| sample.rate)?],
            _ => ["-".to_owned(), "-".to_owned()],
        };
        let figures = [
            format!("{} % GET, {writes} % SET", 100 - writes),
            name.to_owned(),
            number(middle(|sample| sample.rate), 0),
            number(middle(|sample| sample.hits), 3),
            number(middle(|sample| sample.gateway_us), 2),
            number(middle(|sample| sample.origin_us), 2),
            number(middle(|sample| sample.box_us), 2),
        ];
        table.row([figures.to_vec(), ratios.to_vec()].concat());
    }
    Ok(())
}

fn measure(
    options: &Options,
    place: &Place,
    origin: &Origin,
    program: &Program,
    load: &std::path::Path,
    writes: u32,
    is_on: bool,
) -> Result<Sample> {
    let listener_lines = if is_on { CACHE.to_owned() } else { String::new() };
    let settings = Settings { listener_lines, ..Settings::new(origin.port)? };
    let mut gateway = program.start("weir", &settings, Some(&place.gateway_cpu), place.path())?;
    let path = place.path().join("scenario.toml");
    std::fs::write(&path, scenario(options, writes))?;
    let (program, path) = (load.to_string_lossy(), path.to_string_lossy());
    let target = format!("127.0.0.1:{}", settings.port);
    let words = [&*program, "lab", "load", &path, "--target", &target, "--quiet"];
    let mut load = Process::start(Launch::new("load", Some(&place.load_cpu), words), place.path())?;
    // Keys are stored first, so the load begins a little later than its process.
    std::thread::sleep(WARM_UP + WARM_UP / 2);
    let look = || -> Result<_> {
        let gateway = CpuTime::of(&family(gateway.id())?)?;
        Ok((Instant::now(), gateway, CpuTime::of(&[origin.process.id()])?, BoxTime::now()?, counts(settings.admin)?))
    };
    let before = look()?;
    std::thread::sleep(options.length);
    let after = look()?;
    let status = load.wait(WARM_UP * 4 + options.length + Duration::from_secs(20))?;
    ensure!(status.success(), "the load ended with {status}; {}", load.tail());
    gateway.check_running()?;
    let [requests, hits, misses] = [0, 1, 2].map(|at| after.4[at] - before.4[at]);
    ensure!(requests > 0.0, "nothing was asked; {}", load.tail());
    Ok(Sample {
        rate: requests / (after.0 - before.0).as_secs_f64(),
        gateway_us: after.1.since(before.1).total_us / requests,
        origin_us: after.2.since(before.2).total_us / requests,
        box_us: after.3.since(before.3).busy_us / requests,
        hits: if hits + misses > 0.0 { hits / (hits + misses) } else { 0.0 },
    })
}

/// Requests, hits and misses, as the gateway counts them.
fn counts(admin: u16) -> Result<[f64; 3]> {
    let text = ask(admin, "GET", "/metrics")?.body;
    let sum = |name: &str| -> f64 {
        let is_it = |line: &&str| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']);
        text.lines().filter(is_it).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    Ok(["weir_requests_total", "weir_redis_cache_hits_total", "weir_redis_cache_misses_total"].map(sum))
}

fn scenario(options: &Options, writes: u32) -> String {
    let Options { connections, pipeline, length, .. } = options;
    let set = if writes > 0 { format!(", {{ name = \"SET\", weight = {writes} }}") } else { String::new() };
    format!(
        "name = \"zipf\"\nprotocol = \"redis\"\nmode = \"closed\"\nconnections = {connections}\npipeline = {pipeline}\n\
         keys = {{ count = {KEYS}, preload = true, distribution = \"zipf\", exponent = {EXPONENT} }}\n\
         payload = {{ size = \"64B\" }}\ncommand = [{{ name = \"GET\", weight = {} }}{set}]\nintegrity = false\n\
         phase = [{{ warmup = \"{}ms\", duration = \"{}ms\" }}]\n",
        100 - writes,
        WARM_UP.as_millis(),
        (*length + WARM_UP * 2).as_millis(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_other_benchmarks() {
        let options = Options::parse(&["--quick", "--pipeline", "16"]).unwrap();
        assert_eq!((options.blocks, options.pipeline, options.connections), (2, 16, 50));
        assert!(Options::parse(&["--connections", "0"]).is_err());
        assert!(Options::parse(&["--fast"]).is_err());
    }
}
