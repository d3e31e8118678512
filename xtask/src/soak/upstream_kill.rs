//! `kill -9` of the server under load, and its return on the same port.
//!
//! While it is gone every request has to be answered with an error of the protocol; no connection may be closed, and
//! afterwards everything goes on without help.

use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::client::Habits;
use super::load::Load;
use super::options::Options;
use super::outcome::{Judgement, Outcome};
use super::stack::Stack;
use crate::bench::peers::origin::Origin;
use crate::bench::peers::weir::ask;
use weir_parties::interrupt;

const PHASE: &str = "upstream-kill";
/// How long the gateway may take to find the server again. The longest pause of its reconnecting is well below.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);

/// Runs the phase.
pub(crate) fn run(mut stack: Stack<'_>, options: &Options, outcome: &mut Outcome) -> Result<()> {
    let habits = Habits { port: stack.settings.port, think: Duration::from_millis(2), forgets: true };
    // A first, short load opens whatever the gateway keeps open from then on.
    let warm_up = Load::start(options.clients, habits)?;
    interrupt::sleep(options.calm)?;
    warm_up.finish()?;
    interrupt::sleep(options.calm)?;
    let before = besides_lanes(&stack)?;
    let load = Load::start(options.clients, habits)?;
    let mut recoveries = Vec::new();
    for _ in 0..options.cycles {
        interrupt::sleep(options.calm)?;
        stack.origin.process.signal(Signal::KILL)?;
        stack.origin.process.wait(Duration::from_secs(5))?;
        interrupt::sleep(options.calm)?;
        stack.origin = Origin::start_on(stack.place, stack.origin.port, &[])?;
        recoveries.push(recovery(&load, options.clients)?);
    }
    interrupt::sleep(options.calm)?;
    let quiet = load.elapsed().saturating_sub(load.last_bad());
    let tally = load.finish()?;
    stack.gateway.check_running()?;
    let rule = Judgement::rule;
    outcome.tell(PHASE, "right replies", tally.right.to_string());
    outcome.tell(PHASE, "errors while the server was gone", tally.describe());
    outcome.add(PHASE, "wrong, lost or cut replies", tally.broken().to_string(), "0", rule(tally.broken() == 0));
    outcome.add(PHASE, "client connections closed", tally.closed.to_string(), "0", rule(tally.closed == 0));
    for (first, all) in recoveries {
        let text = format!("first client {} ms, all clients {} ms", first.as_millis(), all.as_millis());
        outcome.tell(PHASE, "right replies again after the server's return", text);
    }
    let calm = rule(quiet * 2 > options.calm);
    outcome.add(PHASE, "time without an error at the end", format!("{} ms", quiet.as_millis()), "no late error", calm);
    let after = besides_lanes(&stack)?;
    let text = format!("{} and {} lanes before, {} and {} after", before.0, before.1, after.0, after.1);
    outcome.add(PHASE, "descriptors", text, "baseline, lanes apart", rule(after.0 <= before.0));
    Ok(())
}

/// Descriptors at rest that are no lanes, and the lanes that the gateway says it has. Which idle lanes of its pools stand
/// at a moment is chance, within the limits of the pools; anything else must be as before.
fn besides_lanes(stack: &Stack<'_>) -> Result<(usize, usize)> {
    let descriptors = stack.descriptors_at_rest()?;
    let metrics = ask(stack.settings.admin, "GET", "/metrics")?.body;
    let samples = metrics.lines().filter(|line| line.starts_with("weir_lanes_open{"));
    let counts: Vec<f64> = samples.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    anyhow::ensure!(!counts.is_empty(), "/metrics has no weir_lanes_open");
    let lanes = counts.iter().sum::<f64>() as usize;
    Ok((descriptors.saturating_sub(lanes), lanes))
}

/// Time from the server's return to the first client's, and to every client's, next right reply.
fn recovery(load: &Load, clients: usize) -> Result<(Duration, Duration)> {
    let mark = load.elapsed();
    let mut first = None;
    interrupt::wait_until("every client to get right replies again", RECOVERY_LIMIT, || {
        let good = load.good_since(mark);
        if good > 0 && first.is_none() {
            first = Some(load.elapsed().saturating_sub(mark));
        }
        Ok(good == clients)
    })?;
    let all = load.elapsed().saturating_sub(mark);
    Ok((first.unwrap_or(all), all))
}
