//! A new configuration every second under load, by the API and by SIGHUP in turn. Each one changes settings of the
//! listener and of the upstream, and adds or removes a second listener.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::client::Habits;
use super::load::Load;
use super::options::Options;
use super::outcome::{Judgement, Outcome};
use super::stack::Stack;
use crate::bench::peers::weir::{Settings, ask};
use weir_parties::interrupt;
use weir_parties::place::free_port;

const PHASE: &str = "reload";
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a reload may take until the new generation is in force.
const APPLY_LIMIT: Duration = Duration::from_secs(5);

/// Runs the phase.
pub(crate) fn run(mut stack: Stack<'_>, options: &Options, outcome: &mut Outcome) -> Result<()> {
    let habits = Habits { port: stack.settings.port, think: Duration::ZERO, forgets: false };
    let second_port = free_port()?;
    let load = Load::start(options.clients, habits)?;
    interrupt::sleep(options.calm)?;
    let before = stack.resident()?;
    let mut reloads = 0;
    while load.elapsed() < options.calm + options.reloads {
        let text = variant(&stack.settings, second_port, reloads % 2 == 0);
        std::fs::write(stack.config_file(), text)?;
        reload(&stack, reloads % 4 < 2).with_context(|| format!("reload {}", reloads + 1))?;
        reloads += 1;
        interrupt::sleep(INTERVAL)?;
    }
    let after = stack.resident()?;
    let tally = load.finish()?;
    stack.gateway.check_running()?;
    let rule = Judgement::rule;
    outcome.tell(PHASE, "reloads applied, right replies", format!("{reloads}, {}", tally.right));
    let errors = tally.visible_errors();
    outcome.add(PHASE, "errors that a client saw", tally.describe(), "none", rule(errors == 0));
    outcome.add(PHASE, "client connections closed", tally.closed.to_string(), "0", rule(tally.closed == 0));
    let grown = after.descriptors.saturating_sub(before.descriptors);
    let text = format!("{} before, {} after", before.descriptors, after.descriptors);
    // The second listener is there after an odd number of reloads: one socket per worker, and its own lanes.
    outcome.add(PHASE, "descriptors under the same load", text, "no growth", rule(grown <= SECOND_LISTENER_MAX));
    Ok(())
}

/// Descriptors that a second listener may take.
const SECOND_LISTENER_MAX: usize = 16;

/// The configuration with other settings, and with or without a second listener.
fn variant(settings: &Settings, second_port: u16, is_odd: bool) -> String {
    let mut settings = settings.clone();
    if !is_odd {
        return settings.toml();
    }
    settings.listener_lines = "head_timeout = \"29s\"\n".into();
    let second = format!(
        "request_timeout = \"6s\"\n\n[[listener]]\nname = \"second\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:{second_port}\"\nupstream = \"redis-main\"\n"
    );
    // The upstream is the last table, so its further lines come first.
    settings.toml() + &second
}

/// Reloads and waits until the new configuration is in force.
fn reload(stack: &Stack<'_>, by_signal: bool) -> Result<()> {
    let admin = stack.settings.admin;
    let before = generation(admin)?;
    if by_signal {
        stack.gateway.signal(Signal::HUP)?;
    } else {
        let answer = ask(admin, "POST", "/api/v1/reload")?;
        if answer.status != 200 {
            bail!("the API answered {}: {}", answer.status, answer.body);
        }
    }
    interrupt::wait_until("a new generation", APPLY_LIMIT, || Ok(generation(admin)? > before))
}

/// Generation of the configuration in force.
fn generation(admin: u16) -> Result<u64> {
    let answer = ask(admin, "GET", "/api/v1/version")?;
    let after = answer.body.split("\"generation\":").nth(1).context("/api/v1/version names no generation")?;
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}
