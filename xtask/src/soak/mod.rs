//! Soak: what clients see while something happens to the gateway or behind it. The load checks every reply, so lost,
//! wrong and cut replies are counted exactly.
//!
//! Phases: [`upstream_kill`] (the server dies and comes back), [`idle`] (memory and descriptors at rest and under
//! thousands of idle connections), [`reload`] (a new configuration every second), [`drain`] (a second instance takes
//! over while the first ends). [`upgrade`] stands for itself: it takes the open-loop load of the lab.

mod client;
#[cfg(test)]
mod client_tests;
mod drain;
mod idle;
mod load;
mod options;
mod outcome;
mod reload;
mod resident;
mod stack;
mod tally;
mod upgrade;
mod upstream_kill;
mod value;

use anyhow::{Result, bail};

use crate::bench::peers::weir::Program;
use crate::bench::place::Place;
use crate::workspace::Workspace;
use options::{Options, Phase};
use outcome::Outcome;
use stack::Stack;
use weir_parties::interrupt;

/// `cargo xtask soak redis ...`. Fails if a client saw what it must not see; a figure over its goal is no failure.
pub fn run(words: &[&str]) -> Result<()> {
    if words.is_empty() || words.iter().any(|word| ["help", "--help", "-h"].contains(word)) {
        print!("{}\n{}", options::USAGE, upgrade::USAGE);
        return Ok(());
    }
    if let ["upgrade", rest @ ..] = words {
        return upgrade::run(rest);
    }
    let ["redis", rest @ ..] = words else {
        bail!("unknown soak `{}`\n\n{}\n{}", words.join(" "), options::USAGE, upgrade::USAGE);
    };
    let options = Options::parse(rest)?;
    interrupt::watch()?;
    resident::raise_descriptor_limit(options.idle_connections)?;
    let workspace = Workspace::load()?;
    let weir = Program::find(&workspace, options.weir_command.as_deref())?;
    let mut outcome = Outcome::default();
    for phase in &options.phases {
        eprintln!("soak: {}", phase.name());
        if phase.needs_configuration() && !weir.is_configurable() {
            outcome.not_run(phase.name(), "the command given by --weir-command reads no configuration");
            continue;
        }
        // Each phase has its own processes, so that none inherits the memory of another.
        let result = Place::new().and_then(|place| run_phase(*phase, &place, &weir, &options, &mut outcome));
        if let Err(error) = result {
            interrupt::check()?;
            outcome.failed(phase.name(), &format!("{error:#}"));
        }
    }
    println!("# Redis: soak\n\n- weir: {}\n\n{}", weir.version(), outcome.markdown());
    if outcome.has_failed() {
        bail!("a client saw what it must not see, or a phase did not run to its end");
    }
    Ok(())
}

fn run_phase(phase: Phase, place: &Place, weir: &Program, options: &Options, outcome: &mut Outcome) -> Result<()> {
    let stack = Stack::start(place, weir, options)?;
    match phase {
        Phase::UpstreamKill => upstream_kill::run(stack, options, outcome),
        Phase::Idle => idle::run(stack, options, outcome),
        Phase::Reload => reload::run(stack, options, outcome),
        Phase::Drain => drain::run(stack, options, outcome),
    }
}
