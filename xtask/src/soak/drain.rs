//! SIGTERM under load while a second instance on the same port takes over: a rolling replacement on one machine.
//!
//! Redis has no way to tell a client that its connection is about to go. A client that happens to send while the
//! gateway closes therefore gets no answer; those requests are counted apart, and a later read proves that they were
//! not executed, so that sending them again is right. What counts as an error: a lost, wrong, cut or error reply, and
//! a refused connection.

use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::client::Habits;
use super::load::Load;
use super::options::Options;
use super::outcome::{Judgement, Outcome};
use super::stack::Stack;
use weir_parties::interrupt;
use weir_parties::place::free_port;

const PHASE: &str = "drain";
/// Time from SIGTERM to the last accept: long enough for the second instance to get its share.
const SETTLE: &str = "1s";
/// How long exchanges may take after that.
const TIMEOUT: &str = "10s";
/// Both together, and some room: then the process has to be gone.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Runs the phase.
pub(crate) fn run(mut stack: Stack<'_>, options: &Options, outcome: &mut Outcome) -> Result<()> {
    stack.settings.drain = Some((SETTLE, TIMEOUT));
    stack.settings.admin = free_port()?;
    // The first instance was started without these settings; it gives way before the load begins.
    let replacement = stack.program.start("weir-0", &stack.settings, None, stack.place.path())?;
    stack.gateway = replacement;
    let habits = Habits { port: stack.settings.port, think: Duration::from_millis(3), forgets: false };
    let load = Load::start(options.clients, habits)?;
    let mut lengths = Vec::new();
    for cycle in 1..=options.cycles {
        interrupt::sleep(options.calm)?;
        stack.settings.admin = free_port()?;
        let name = format!("weir-{cycle}");
        let next = stack.program.start(&name, &stack.settings, None, stack.place.path())?;
        let asked = load.elapsed();
        stack.gateway.signal(Signal::TERM)?;
        let status = stack.gateway.wait(END_LIMIT)?;
        lengths.push((load.elapsed() - asked, status.to_string(), status.success()));
        stack.gateway = next;
    }
    interrupt::sleep(options.calm)?;
    let tally = load.finish()?;
    stack.gateway.check_running()?;
    for (length, status, is_clean) in lengths {
        let text = format!("{} ms, {status}", length.as_millis());
        outcome.add(PHASE, "SIGTERM to the end", text, "exit status 0", Judgement::rule(is_clean));
    }
    outcome.tell(PHASE, "right replies", tally.right.to_string());
    let errors = tally.visible_errors();
    outcome.add(PHASE, "errors that a client saw", tally.describe(), "none", Judgement::rule(errors == 0));
    outcome.tell(PHASE, "connections closed between replies", tally.closed_between.to_string());
    outcome.tell(PHASE, "requests that crossed a close (writes: proven not executed)", tally.crossed.to_string());
    Ok(())
}
