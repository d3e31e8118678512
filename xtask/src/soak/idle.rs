//! Memory at rest, then under thousands of idle connections, and whether everything is given back. Two rounds: what
//! the second one leaves behind beyond the first is a leak, what the first one leaves is the allocator's.

use std::time::Duration;

use anyhow::{Context, Result};

use super::options::Options;
use super::outcome::{Judgement, Outcome};
use super::resident::{Resident, mib};
use super::stack::Stack;
use crate::bench::resp::{Connection, Reply};
use weir_parties::interrupt;

const PHASE: &str = "idle";
/// Goal for the memory of a gateway that has served nobody.
const REST_BYTES_MAX: u64 = 12 << 20;
/// Goal per idle connection. The kernel's socket buffers are not in resident memory.
const CONNECTION_BYTES_MAX: f64 = 4_096.0;
/// What both rounds may leave behind: the spare buffers of the workers, and noise of the allocator.
const LEFT_BYTES_MAX: u64 = 4 << 20;
const REPLY_LIMIT: Duration = Duration::from_secs(15);

/// Runs the phase.
pub(crate) fn run(mut stack: Stack<'_>, options: &Options, outcome: &mut Outcome) -> Result<()> {
    interrupt::sleep(options.calm)?;
    let rest = stack.resident()?;
    let text = format!("{} (heap and stacks {})", mib(rest.bytes), mib(rest.anonymous_bytes));
    outcome.add(PHASE, "resident memory at rest", text, "< 12 MiB", Judgement::figure(rest.bytes < REST_BYTES_MAX));
    open_lanes(&stack)?;
    let mut after_round = Vec::new();
    for round in 1..=2 {
        after_round.push(one_round(&stack, options, round, outcome)?);
    }
    stack.gateway.check_running()?;
    let (first, second) = (after_round[0].bytes, after_round[1].bytes);
    let text = format!("{} after round 1, {} after round 2", mib(first), mib(second));
    let kept = Judgement::figure(first.max(second).saturating_sub(rest.bytes) <= LEFT_BYTES_MAX);
    outcome.add(PHASE, "memory with all connections closed", text, "baseline + 4 MiB at most", kept);
    Ok(())
}

/// Opens all connections, lets each speak once, and closes them.
fn one_round(stack: &Stack<'_>, options: &Options, round: usize, outcome: &mut Outcome) -> Result<Resident> {
    let count = options.idle_connections;
    let base = stack.resident()?;
    let mut connections = Vec::with_capacity(count);
    for index in 0..count {
        if index % 256 == 0 {
            interrupt::check()?;
        }
        let opened = Connection::open(stack.settings.port, REPLY_LIMIT);
        connections.push(opened.with_context(|| format!("connection {} of {count}", index + 1))?);
    }
    // Connected means that the kernel took it; the gateway has it once its descriptor is there.
    interrupt::wait_until("the gateway to accept every connection", REPLY_LIMIT, || {
        Ok(stack.resident()?.descriptors >= base.descriptors + count)
    })?;
    interrupt::sleep(options.calm)?;
    report(stack, &base, count, &format!("round {round}: {count} connections that said nothing"), outcome)?;
    for connection in &mut connections {
        let reply = connection.ask(&[b"ECHO", b"idle"])?;
        anyhow::ensure!(reply == Reply::Bulk(Some(b"idle".to_vec())), "ECHO gave {reply:?}");
    }
    interrupt::sleep(options.calm)?;
    report(stack, &base, count, &format!("round {round}: the same after one command each"), outcome)?;
    drop(connections);
    let descriptors = stack.descriptors_after(base.descriptors)?;
    let text = format!("{} before, {descriptors} after", base.descriptors);
    let is_back = Judgement::rule(descriptors <= base.descriptors);
    outcome.add(PHASE, &format!("round {round}: descriptors"), text, "back to baseline", is_back);
    interrupt::sleep(options.calm)?;
    stack.resident()
}

/// Lets the gateway open the upstream connections that it keeps: they belong to the baseline.
fn open_lanes(stack: &Stack<'_>) -> Result<()> {
    let mut connections = Vec::new();
    for _ in 0..LANE_OPENERS {
        let mut connection = Connection::open(stack.settings.port, REPLY_LIMIT)?;
        connection.ask(&[b"ECHO", b"lane"])?;
        connections.push(connection);
    }
    let open = stack.resident()?.descriptors;
    drop(connections);
    stack.descriptors_after(open - LANE_OPENERS)?;
    Ok(())
}

/// Connections that reach every worker, however they are spread.
const LANE_OPENERS: usize = 16;

fn report(stack: &Stack<'_>, base: &Resident, count: usize, what: &str, outcome: &mut Outcome) -> Result<()> {
    let now = stack.resident()?;
    let each = now.bytes.saturating_sub(base.bytes) as f64 / count as f64;
    let text = format!("{} in all, {each:.0} bytes per connection", mib(now.bytes));
    outcome.add(PHASE, what, text, "< 4096 bytes each", Judgement::figure(each < CONNECTION_BYTES_MAX));
    Ok(())
}
