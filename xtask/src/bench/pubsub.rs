//! `bench pubsub`: fan-out with and without the gateway.
//!
//! Subscribers connect to the arm, the publisher to the server in both, at a fixed rate. Every message is looked at by every
//! subscriber: complete, in order, once. What is compared is CPU time per delivered message, of the gateway and of the server.

mod audience;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_knee::markdown::{Table, number};
use weir_knee::ratio::{BLOCKS_MIN, Ratio, median};
use weir_parties::cpu::{BoxTime, CpuTime, family};
use weir_parties::interrupt;

use self::audience::{Audience, publish, subscriptions};
use super::machine;
use super::options::{USAGE, publish as publish_report};
use super::peers::origin::Origin;
use super::peers::weir::{Program, Settings};
use super::place::Place;
use crate::words::Words;
use crate::workspace::Workspace;

struct Options {
    subscribers: usize,
    channels: usize,
    /// Messages delivered per second, all subscribers together.
    rate: f64,
    blocks: usize,
    length: Duration,
    out: Option<PathBuf>,
    /// How Weir is started.
    weir_command: Option<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            subscribers: 1_000,
            channels: 100,
            rate: 100_000.0,
            blocks: 8,
            length: Duration::from_secs(5),
            out: None,
            weir_command: None,
        };
        let mut words = Words::new(words, USAGE);
        while let Some(option) = words.option() {
            match option {
                "--subscribers" => options.subscribers = words.number()?,
                "--channels" => options.channels = words.number()?,
                "--rate" => options.rate = words.number()?,
                "--repeats" => options.blocks = words.number()?,
                "--seconds" => options.length = Duration::try_from_secs_f64(words.number()?)?,
                "--quick" => (options.blocks, options.length) = (2, Duration::from_millis(500)),
                "--out" => options.out = Some(words.value()?.into()),
                "--weir-command" => options.weir_command = Some(words.value()?.to_owned()),
                _ => return Err(words.unknown()),
            }
        }
        let is_even = options.subscribers > 0 && options.subscribers.is_multiple_of(options.channels);
        ensure!(is_even && options.channels <= 10_000, "as many subscribers on each of 1 to 10,000 channels");
        ensure!(options.blocks > 0 && options.rate >= 1.0, "at least one block, and one message per second");
        Ok(options)
    }

    fn per_channel(&self) -> usize {
        self.subscribers / self.channels
    }

    /// Messages of a run on each channel.
    fn messages(&self, length: Duration) -> u64 {
        let published = self.rate / self.per_channel() as f64 * length.as_secs_f64();
        (published / self.channels as f64).ceil().max(1.0) as u64
    }
}

/// One run of one arm. Times in microseconds of CPU per delivered message.
#[derive(Clone, Copy)]
struct Sample {
    gateway_us: f64,
    origin_us: f64,
    box_us: f64,
    /// Delivered per second, from the first PUBLISH to the last message.
    rate: f64,
    /// Connections subscribed to a channel at the server.
    subscriptions: (u64, u64),
}

/// Runs it.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    let workspace = Workspace::load()?;
    interrupt::watch()?;
    let program = Program::find(&workspace, options.weir_command.as_deref())?;
    let place = Place::new()?;
    place.step_aside()?;
    let (mut direct, mut weir) = (Vec::new(), Vec::new());
    let mut version = String::new();
    for block in 0..options.blocks {
        for at in 0..2 {
            // Mirrored, so that a drift of the machine hits both alike.
            let is_direct = (at + block) % 2 == 0;
            eprintln!(
                "bench: pubsub block {} of {}, {}",
                block + 1,
                options.blocks,
                if is_direct { "direct" } else { "weir" }
            );
            let origin = Origin::start(&place)?;
            version.clone_from(&origin.version);
            let sample = measure(&options, &place, &origin, (!is_direct).then_some(&program))?;
            if is_direct { direct.push(sample) } else { weir.push(sample) }
        }
    }
    let text = report(&options, &direct, &weir, &place, &workspace, &version)?;
    publish_report(&workspace, options.out.as_deref(), &text)
}

fn measure(options: &Options, place: &Place, origin: &Origin, program: Option<&Program>) -> Result<Sample> {
    let settings = Settings { connections: Some(20_000), ..Settings::new(origin.port)? };
    let mut gateway = match program {
        Some(program) => Some(program.start("weir", &settings, Some(&place.gateway_cpu), place.path())?),
        None => None,
    };
    let port = if gateway.is_some() { settings.port } else { origin.port };
    let mut audience = Audience::gather(port, options.subscribers, options.channels)?;
    let subscriptions = subscriptions(origin.port, options.channels)?;
    let wanted = if gateway.is_some() { 1 } else { options.per_channel() as u64 };
    ensure!(subscriptions == (wanted, wanted), "{subscriptions:?} subscribed to a channel, not {wanted}");
    let warm_up = options.messages(options.length / 4);
    speak(options, origin.port, &mut audience, 0, warm_up)?;
    let look = || -> Result<_> {
        let gateway = gateway.as_ref().map(|process| CpuTime::of(&family(process.id())?)).transpose()?;
        Ok((Instant::now(), gateway, CpuTime::of(&[origin.process.id()])?, BoxTime::now()?))
    };
    let before = look()?;
    let heard = audience.heard;
    speak(options, origin.port, &mut audience, warm_up, options.messages(options.length))?;
    let after = look()?;
    if let Some(process) = &mut gateway {
        process.check_running()?;
    }
    let delivered = (audience.heard - heard) as f64;
    let gateway_us = match (after.1, before.1) {
        (Some(after), Some(before)) => after.since(before).total_us,
        _ => 0.0,
    };
    Ok(Sample {
        gateway_us: gateway_us / delivered,
        origin_us: after.2.since(before.2).total_us / delivered,
        box_us: after.3.since(before.3).busy_us / delivered,
        rate: delivered / (after.0 - before.0).as_secs_f64(),
        subscriptions,
    })
}

/// Publishes while the audience listens, until everything has been heard by everybody.
fn speak(options: &Options, port: u16, audience: &mut Audience, first: u64, messages: u64) -> Result<()> {
    let (channels, rate) = (options.channels, options.rate / options.per_channel() as f64);
    let publisher = std::thread::spawn(move || publish(port, channels, first, messages, rate));
    let total = audience.heard + messages * options.subscribers as u64;
    let heard = audience.hear(total);
    let published = publisher.join().map_err(|_| anyhow::anyhow!("the publisher failed"))?;
    heard.and(published)
}

fn report(
    options: &Options,
    direct: &[Sample],
    weir: &[Sample],
    place: &Place,
    workspace: &Workspace,
    version: &str,
) -> Result<String> {
    let mut text = String::from("# Publish and subscribe: fan-out\n\nMade by `cargo xtask bench pubsub`.\n\n");
    let _ = writeln!(
        text,
        "{} subscribers on {} channels (RESP2), {} messages delivered per second, {} B each; the publisher speaks to the server \
         directly. Every subscriber got every message of its channel, once and in order: a run in which one did not fails.\n",
        options.subscribers, options.channels, options.rate, 64
    );
    let mut table = Table::new(&[
        "arm",
        "delivered/s",
        "subscribed to a channel at the server",
        "gateway us per message",
        "redis-server us per message",
        "both",
        "whole machine",
    ]);
    for (name, samples) in [("direct", direct), ("weir", weir)] {
        let middle = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure));
        table.row(vec![
            name.to_owned(),
            number(middle(|sample| sample.rate), 0),
            samples.first().map_or(0, |sample| sample.subscriptions.1).to_string(),
            number(middle(|sample| sample.gateway_us), 3),
            number(middle(|sample| sample.origin_us), 3),
            number(middle(|sample| sample.gateway_us + sample.origin_us), 3),
            number(middle(|sample| sample.box_us), 3),
        ]);
    }
    text.push_str(&table.markdown());
    let ratio = |ours: fn(&Sample) -> f64, theirs: fn(&Sample) -> f64| -> Result<String> {
        let pairs: Vec<(f64, f64)> =
            weir.iter().zip(direct).map(|(weir, direct)| (ours(weir), theirs(direct))).collect();
        let ratio = Ratio::of(&pairs).context("a ratio")?;
        Ok(format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.interval.0, ratio.interval.1))
    };
    let gateway = ratio(|sample| sample.gateway_us, |sample| sample.origin_us)?;
    let server = ratio(|sample| sample.origin_us, |sample| sample.origin_us)?;
    let both = ratio(|sample| sample.gateway_us + sample.origin_us, |sample| sample.origin_us)?;
    let _ = writeln!(
        text,
        "\nCPU per delivered message against direct redis-server: gateway {gateway}, redis-server behind it {server}, both {both}. \
         {} blocks of {:.1} s each; medians, ratios paired by block with 95 % bootstrap intervals.{}\n\n## Conditions\n",
        options.blocks,
        options.length.as_secs_f64(),
        if options.blocks < BLOCKS_MIN { " Too few blocks for a claim." } else { "" },
    );
    let lines = machine::lines(workspace).into_iter();
    for (what, value) in lines.chain([("server", version.to_owned())]) {
        let _ = writeln!(text, "- {what}: {value}");
    }
    let _ = writeln!(text, "- {}", place.layout());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_as_many_messages_as_the_rate_asks_for() {
        let options = Options::parse(&["--seconds", "2"]).unwrap();
        // 100,000 delivered per second are 10,000 published, 100 on each channel.
        assert_eq!((options.per_channel(), options.messages(options.length)), (10, 200));
        assert!(Options::parse(&["--subscribers", "15", "--channels", "10"]).is_err());
        assert!(Options::parse(&["--fast"]).is_err());
    }
}
