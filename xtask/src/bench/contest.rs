//! A comparison of gateways for one protocol: what the protocol brings, and the blocks in their order.

use std::time::Duration;

use anyhow::{Result, bail};
use weir_parties::interrupt;

use super::fleet::{Fleet, is_weir};
use super::machine;
use super::measure::{Bench, Outcome};
use super::options::{Options, publish};
use super::peers::weir::Program;
use super::peers::{Arm, Goal};
use super::place::Place;
use super::report::Report;
use super::results::RowResults;
use super::row::Row;
use super::target::Comparison;
use crate::workspace::Workspace;

/// What a report says of a protocol.
pub(crate) struct Texts {
    /// Of the report.
    pub(crate) title: &'static str,
    /// That makes it.
    pub(crate) command: &'static str,
    /// Short name of what stands behind the gateways, for the heads of columns.
    pub(crate) server: &'static str,
    /// What closed-loop load means here, as an item of a list.
    pub(crate) load: &'static str,
}

/// What a protocol brings to a comparison: what stands behind, the arms, the load, and the proof that it arrived.
pub(crate) trait Contest {
    /// One row of its table.
    type Row: Row + 'static;
    /// What ends a run.
    type Length: Copy;
    /// What is counted behind the gateways.
    type Counters;

    /// For the report.
    const TEXTS: Texts;
    /// The targets of the design, and the ratios that are of interest without one.
    const COMPARISONS: &'static [Comparison<Self::Row>];

    /// Starts an arm, or tells why it cannot be had.
    fn start(
        &self,
        arm: &'static str,
        place: &Place,
        weir: Option<&Program>,
        options: &Options<Self::Row>,
    ) -> Result<Arm>;

    /// Processes of all that stands behind.
    fn servers(&self) -> Vec<u32>;

    /// Once before the runs of a row.
    fn prepare_row(&self, _place: &Place, _row: &Self::Row) -> Result<()> {
        Ok(())
    }

    /// Once for every arm of a row, after that.
    fn prepare_arm(&self, _place: &Place, _row: &Self::Row, _arm: &Arm) -> Result<()> {
        Ok(())
    }

    /// Of the first run of an arm, from which the length of the others is derived.
    fn first_length(&self, row: &Self::Row) -> Self::Length;

    /// Of the measured runs, the same for every arm: `rate` is that of the slowest, `aimed` how long it should take.
    fn length(&self, row: &Self::Row, rate: f64, aimed: Duration) -> Self::Length;

    /// Of the run before a measured one.
    fn warm_up_length(&self, row: &Self::Row, measured: Self::Length) -> Self::Length;

    /// For people: a number with its unit.
    fn told(&self, length: Self::Length) -> String;

    /// One run. Fails if a reply is an error or not what was asked for.
    fn load(&self, place: &Place, row: &Self::Row, goal: &Goal, length: Self::Length) -> Result<Outcome>;

    /// Asks what stands behind.
    fn count(&mut self) -> Result<Self::Counters>;

    /// Fails if what was counted between two looks does not fit the outcome.
    fn prove(&self, before: &Self::Counters, after: &Self::Counters, outcome: &Outcome) -> Result<()>;

    /// What stands behind and what makes the load, as `what: value`.
    fn conditions(&self) -> Vec<(&'static str, String)>;
}

/// Runs a comparison. Fails if an arm answered with errors or died; a missed target is no failure.
pub(crate) fn run<C: Contest>(
    options: &Options<C::Row>,
    make: impl FnOnce(&Workspace, &Place) -> Result<C>,
) -> Result<()> {
    let workspace = Workspace::load()?;
    interrupt::watch()?;
    let wants_weir = options.arms.iter().any(|arm| is_weir(arm));
    let weir = wants_weir.then(|| Program::find(&workspace, options.weir_command.as_deref())).transpose()?;
    let place = Place::new()?;
    place.step_aside()?;
    let contest = make(&workspace, &place)?;
    let mut fleet = Fleet::start(options, &place, &contest, weir.as_ref())?;
    if options.show_config {
        show_config(&fleet);
        return Ok(());
    }
    let mut bench = Bench { place: &place, contest };
    let mut results = Vec::new();
    for row in &options.rows {
        results.push(run_row(&mut bench, &mut fleet, row, options)?);
    }
    let failures = failures(&fleet, &results);
    let report = Report {
        options,
        fleet: &fleet,
        place: &place,
        contest: &bench.contest,
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
fn run_row<C: Contest>(
    bench: &mut Bench<'_, C>,
    fleet: &mut Fleet,
    row: &C::Row,
    options: &Options<C::Row>,
) -> Result<RowResults<C::Row>> {
    let mut results = RowResults::new(*row);
    bench.contest.prepare_row(bench.place, row)?;
    let mut slowest = f64::INFINITY;
    for arm in &fleet.arms {
        let prepared = bench.contest.prepare_arm(bench.place, row, arm);
        match prepared.and_then(|()| bench.calibrate(row, arm)) {
            Ok(rate) => slowest = slowest.min(rate),
            Err(error) => fail(&mut results, arm.name, &error)?,
        }
    }
    if slowest.is_infinite() {
        return Ok(results);
    }
    // The same for every arm, so that fixed costs weigh the same.
    let length = bench.contest.length(row, slowest, options.run_length);
    results.length = bench.contest.told(length);
    for block in 0..options.blocks {
        eprintln!("bench: {} block {} of {}", row.id(), block + 1, options.blocks);
        for index in order(block, fleet.arms.len()) {
            let arm = &mut fleet.arms[index];
            if results.has_failed(arm.name) {
                continue;
            }
            match bench.sample(row, arm, length) {
                Ok(sample) => results.add(arm.name, block, sample),
                Err(error) => fail(&mut results, arm.name, &error)?,
            }
        }
    }
    Ok(results)
}

/// Notes that an arm failed; the rest still runs. An interrupt ends everything.
fn fail<R: Row>(results: &mut RowResults<R>, arm: &'static str, error: &anyhow::Error) -> Result<()> {
    interrupt::check()?;
    eprintln!("bench: {arm} failed in {}: {error:#}", results.row.id());
    results.failures.push((arm, format!("{error:#}")));
    Ok(())
}

/// A B C, then C B A, and so on.
fn order(block: usize, arms: usize) -> Vec<usize> {
    if block.is_multiple_of(2) { (0..arms).collect() } else { (0..arms).rev().collect() }
}

fn failures<R: Row>(fleet: &Fleet, results: &[RowResults<R>]) -> Vec<String> {
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
}
