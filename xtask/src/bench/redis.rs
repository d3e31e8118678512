//! `bench redis`: the runs in their order.

use std::time::Duration;

use anyhow::{Result, bail};

use super::fleet::{Fleet, is_weir};
use super::load;
use super::machine;
use super::measure::Bench;
use super::options::{Options, publish};
use super::peers::backend::{Backend, Behind};
use super::peers::weir::Program;
use super::place::Place;
use super::report::Report;
use super::results::RowResults;
use super::row::Row;
use crate::workspace::Workspace;
use weir_parties::interrupt;

/// Runs the comparison. Fails if an arm answered with errors or died; a missed target is no failure.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    let workspace = Workspace::load()?;
    interrupt::watch()?;
    let wants_weir = options.arms.iter().any(|arm| is_weir(arm));
    let weir = wants_weir.then(|| Program::find(&workspace, options.weir_command.as_deref())).transpose()?;
    let place = Place::new()?;
    place.step_aside()?;
    let backend = Backend::start(&place, options.behind)?;
    let mut fleet = Fleet::start(&options, &place, &backend, weir.as_ref())?;
    if options.show_config {
        show_config(&fleet);
        return Ok(());
    }
    let mut bench = Bench { place: &place, backend: &backend, controls: backend.connect()? };
    let mut results = Vec::new();
    for row in &options.rows {
        results.push(run_row(&mut bench, &mut fleet, row, &options)?);
    }
    let failures = failures(&fleet, &results);
    let report = Report {
        options: &options,
        fleet: &fleet,
        place: &place,
        backend: &backend,
        machine: machine::lines(&workspace),
        results,
    };
    let text = report.markdown();
    publish(&workspace, options.out.as_deref(), &text)?;
    if !failures.is_empty() {
        bail!("{} arms failed:\n  {}", failures.len(), failures.join("\n  "));
    }
    Ok(())
}

/// All blocks of one row.
fn run_row(bench: &mut Bench<'_>, fleet: &mut Fleet, row: &Row, options: &Options) -> Result<RowResults> {
    let mut results = RowResults::new(*row);
    let preload = |goal: &load::Goal| load::preload(row, goal, &bench.place.load_cpu, bench.place.path());
    if bench.backend.behind == Behind::One {
        preload(&bench.backend.servers[0].goal())?;
    }
    let mut slowest = f64::INFINITY;
    for arm in &fleet.arms {
        // Where a key is depends on who is asked.
        let preloaded = if bench.backend.behind == Behind::One { Ok(()) } else { preload(&arm.goal) };
        match preloaded.and_then(|()| bench.calibrate(row, arm)) {
            Ok(rate) => slowest = slowest.min(rate),
            Err(error) => fail(&mut results, arm.name, &error)?,
        }
    }
    if slowest.is_infinite() {
        return Ok(results);
    }
    // The same number for every arm, so that fixed costs weigh the same.
    results.requests = requests(slowest, options.run_length, row);
    for block in 0..options.blocks {
        eprintln!("bench: {} block {} of {}", row.id(), block + 1, options.blocks);
        for index in order(block, fleet.arms.len()) {
            let arm = &mut fleet.arms[index];
            if results.has_failed(arm.name) {
                continue;
            }
            match bench.sample(row, arm, results.requests) {
                Ok(sample) => results.add(arm.name, block, sample),
                Err(error) => fail(&mut results, arm.name, &error)?,
            }
        }
    }
    Ok(results)
}

/// Notes that an arm failed; the rest still runs. An interrupt ends everything.
fn fail(results: &mut RowResults, arm: &'static str, error: &anyhow::Error) -> Result<()> {
    interrupt::check()?;
    eprintln!("bench: {arm} failed in {}: {error:#}", results.row.id());
    results.failures.push((arm, format!("{error:#}")));
    Ok(())
}

/// A B C, then C B A, and so on.
fn order(block: usize, arms: usize) -> Vec<usize> {
    if block.is_multiple_of(2) { (0..arms).collect() } else { (0..arms).rev().collect() }
}

fn requests(rate: f64, length: Duration, row: &Row) -> u64 {
    let wanted = (rate * length.as_secs_f64()) as u64;
    // At least a few per connection; whole pipelines.
    let pipeline = u64::from(row.pipeline);
    wanted.max(10 * u64::from(row.connections) * pipeline) / pipeline * pipeline
}

fn failures(fleet: &Fleet, results: &[RowResults]) -> Vec<String> {
    let mut failures = fleet.broken.clone();
    for result in results {
        failures.extend(result.failures.iter().map(|(arm, error)| format!("{arm}, {}: {error}", result.row.id())));
    }
    failures
}

fn show_config(fleet: &Fleet) {
    for arm in &fleet.arms {
        println!("# {} ({})", arm.name, arm.version);
        match &arm.config {
            Some((file, text)) => println!("# {file}\n{text}"),
            None => println!("# no configuration\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_alternate_their_direction() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
        assert_eq!(order(2, 3), [0, 1, 2]);
    }

    #[test]
    fn runs_are_whole_pipelines_and_never_too_short() {
        let row = Row { pipeline: 16, ..Row::all()[0] };
        assert_eq!(requests(100_000.0, Duration::from_secs(2), &row), 200_000);
        assert_eq!(requests(1.0, Duration::from_secs(1), &row), 8_000);
        assert_eq!(requests(100_001.0, Duration::from_secs(1), &row) % 16, 0);
    }
}
