//! `bench profile`: where the gateway's time goes under one row of load.
//!
//! `perf record` samples the gateway's threads while the load runs. Guests without a performance counter sample a
//! timer instead, which sees code with interrupts off as the code right after it; the report says which was used.

mod group;
mod symbols;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::process::Command;
use std::time::Duration;

use super::contest::Contest;
use super::http::Http;
use super::http::row::HttpRow;
use super::machine;
use super::measure::{Bench, Sample};
use super::options::Options;
use super::peers::name;
use super::peers::weir::Program;
use super::place::Place;
use super::redis::Redis;
use super::row::{Row, named};
use crate::workspace::Workspace;
use symbols::Symbol;
use weir_knee::markdown::Table;
use weir_parties::interrupt;
use weir_parties::process::{Launch, Process};

/// Symbols of the list.
const SYMBOLS: usize = 25;
/// Samples per second and CPU. Odd, so that it does not beat with the kernel's tick.
const FREQUENCY: &str = "1999";
/// The row that is profiled unless `--rows` names another.
const ROW: &str = "get-64-c50-p1";
/// The same of HTTP.
const HTTP_ROW: &str = "h1-128-c64";

/// Profiles Weir under one row of `bench redis`.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (mut options, behind) = Options::of_redis(words)?;
    if options.rows == behind.rows() {
        options.rows = named(ROW, &options.rows)?;
    }
    profile(&options, |_, place| Redis::start(place, behind))
}

/// Profiles Weir under one row of `bench http`.
pub(crate) fn run_http(words: &[&str]) -> Result<()> {
    let (mut options, front, origin) = Options::of_http(words)?;
    if options.rows == HttpRow::all(front) {
        options.rows = named(HTTP_ROW, &options.rows)?;
    }
    profile(&options, |workspace, place| {
        Http::start(workspace, place, (front, origin), options.weir_command.as_deref())
    })
}

/// Profiles Weir under the first row.
fn profile<C: Contest>(options: &Options<C::Row>, make: impl FnOnce(&Workspace, &Place) -> Result<C>) -> Result<()> {
    let row = options.rows[0];
    let workspace = Workspace::load()?;
    interrupt::watch()?;
    let weir = Program::find(&workspace, options.weir_command.as_deref())?;
    let place = Place::new()?;
    place.step_aside()?;
    let contest = make(&workspace, &place)?;
    let mut arm = contest.start(name::WEIR, &place, Some(&weir), options)?;
    let mut bench = Bench { place: &place, contest };
    bench.contest.prepare_row(&place, &row)?;
    bench.contest.prepare_arm(&place, &row, &arm)?;
    let rate = bench.calibrate(&row, &arm)?;
    let length = bench.contest.length(&row, rate, options.run_length);
    // Sampling costs time itself, so the figures are taken in a run of their own.
    let sample = bench.sample(&row, &mut arm, length)?;
    print_head(&workspace, &bench.contest, &row, &arm.version, &sample);
    let gateway = arm.process.as_ref().context("weir has no process")?.id();
    match record(&place, gateway, || bench.sample(&row, &mut arm, length).map(drop)) {
        Ok((event, symbols)) => print_profile(event, &symbols),
        Err(error) => {
            interrupt::check()?;
            println!("No samples: {error:#}\nThe split into user and system time above is all there is.");
        }
    }
    Ok(())
}

/// Samples the process while `load` runs. An error if perf is not there or not allowed.
fn record(place: &Place, gateway: u32, load: impl FnOnce() -> Result<()>) -> Result<(&'static str, Vec<Symbol>)> {
    let perf =
        weir_parties::peer::find_program("perf").context("no perf on the PATH (Debian: apt install linux-perf)")?;
    let perf = perf.to_string_lossy().into_owned();
    let event = event(&perf);
    let file = place.path().join("perf.data").to_string_lossy().into_owned();
    let target = gateway.to_string();
    let words = [&*perf, "record", "-e", event, "-F", FREQUENCY, "-p", &target, "-o", &file];
    let mut recorder = Process::start(Launch::new("perf", Some(&place.load_cpu), words), place.path())?;
    interrupt::sleep(Duration::from_millis(500))?;
    recorder.check_running().context("perf does not run; see /proc/sys/kernel/perf_event_paranoid")?;
    load()?;
    recorder.signal(Signal::INT)?;
    // perf ends with the signal that stopped it; what counts is the file.
    recorder.wait(Duration::from_secs(30))?;
    let mut command = Command::new(&perf);
    command.args(["report", "--stdio", "--no-children", "--percentage", "absolute", "-F", "overhead,sym,dso"]);
    let output = command.args(["-t", "\t", "-i", &file]).output()?;
    if !output.status.success() {
        bail!("perf report: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let symbols = symbols::parse(&String::from_utf8_lossy(&output.stdout));
    if symbols.is_empty() {
        bail!("perf recorded no samples; {}", recorder.tail());
    }
    Ok((event, symbols))
}

/// The processor's cycles where the machine counts them, else the timer.
fn event(perf: &str) -> &'static str {
    let output = Command::new(perf).args(["stat", "-e", "cycles", "true"]).output();
    let counts = output.is_ok_and(|output| {
        output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("not supported")
    });
    if counts { "cycles" } else { "cpu-clock" }
}

fn print_head<C: Contest>(workspace: &Workspace, contest: &C, row: &C::Row, version: &str, sample: &Sample) {
    println!("# Where Weir's time goes: {} (`{}`)\n", row.title(), row.id());
    for (what, value) in machine::lines(workspace).into_iter().chain(contest.conditions()) {
        println!("- {what}: {value}");
    }
    println!("- weir: {version}");
    println!(
        "- without sampling: {:.2} µs gateway CPU per request (user ~{:.2}, system ~{:.2}), {:.0} requests/s\n",
        sample.gateway_us, sample.user_us, sample.system_us, sample.outcome.rate
    );
}

fn print_profile(event: &str, symbols: &[Symbol]) {
    let share =
        |kernel: bool| symbols.iter().filter(|symbol| symbol.is_kernel == kernel).map(|s| s.percent).sum::<f64>();
    println!("Event `{event}`. Kernel {:.1} %, user {:.1} %.\n", share(true), share(false));
    let mut groups = Table::new(&["group", "self %"]);
    for (group, percent) in group::sums(symbols) {
        groups.row(vec![group, format!("{percent:.1}")]);
    }
    println!("{}", groups.markdown());
    let mut table = Table::new(&["self %", "where", "symbol"]);
    for symbol in symbols.iter().take(SYMBOLS) {
        let place = if symbol.is_kernel { "kernel".to_owned() } else { symbol.object.clone() };
        table.row(vec![format!("{:.2}", symbol.percent), place, symbol.name.clone()]);
    }
    println!("{}", table.markdown());
}
