//! A load program of others in the place of the lab's own generator: which scenarios it can send, its runs, and the proof that what
//! it counts happened.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use weir_base::secret::Secret;
use weir_engine::settings::Address;
use weir_knee::Trial;
use weir_knee::trial::Latency;
use weir_load::keys::Distribution;
use weir_load::record::Resources;
use weir_load::scenario::{Mode, Phase, Postgres};
use weir_load::{Event, Scenario, StepRecord};
use weir_parties::load::{Length, LoadFigures, LoadOutput, Run};
use weir_parties::peer::Change;
use weir_parties::{Load, interrupt};

use crate::fleet::Fleet;
use crate::placement::list_of;
use crate::trial::{self, Subject};
use crate::watch::Window;

/// Beyond the length of a run.
const PATIENCE: Duration = Duration::from_secs(20);
/// A program with so many requests that sends fewer per second is ended.
const SLOWEST: u64 = 100;
/// Requests of the first run, from which the length of the others follows.
const FIRST_REQUESTS: u64 = 5_000;
/// Fewest requests of a run, per connection and place in its pipeline.
const ROUNDS_MIN: u64 = 10;
/// Programs round the sum of what they read: to two digits behind the point of the unit, at worst 0.5 %.
const ROUNDED: f64 = 0.99;
/// The lab's own look at a target, before a program loads it.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_CONNECTIONS: u32 = 4;

/// Whether `load` can send a scenario as it is.
///
/// # Errors
/// It cannot; with the key.
pub(crate) fn check(load: &Load, scenario: &Scenario) -> Result<()> {
    let name = &load.name;
    let must = |is_so: bool, key: &str, why: &str| {
        ensure!(is_so, "{name} cannot send this scenario: `{key}` {why}");
        Ok(())
    };
    let spoken = load.protocols.join(", ");
    let protocol = scenario.protocol.to_string();
    must(load.protocols.contains(&protocol), "protocol", &format!("is \"{protocol}\", and it speaks {spoken}"))?;
    must(scenario.mode == Mode::Closed, "mode", "is \"open\", and it is a closed loop; write mode = \"closed\"")?;
    must(!scenario.integrity, "integrity", "is true, and it does not check replies; write integrity = false")?;
    must(scenario.payload.sizes().len() == 1, "payload", "has several sizes, and it knows one; keep one")?;
    let has_threads = scenario.shards == 1 || load.has("{shards}");
    must(has_threads, "shards", "is above 1, and it has one thread; leave it out")?;
    let deepest = scenario.phases.iter().map(|phase| scenario.alone(phase).pipeline).max().unwrap_or(1);
    let has_depth = deepest == 1 || load.has("{pipeline}") || load.has("{streams}");
    must(has_depth, "pipeline", "is above 1, and it has one request under way per connection; leave it out")?;
    if !scenario.commands.is_empty() {
        check_command(load, scenario)?;
    }
    let Scenario { postgres, .. } = scenario;
    let sends_password = postgres.password.is_none() || load.has_password();
    must(sends_password, "postgres.password", "is set, and it sends none; let the user in without one")?;
    let is_its_script = postgres.script == Postgres::default().script || load.has("{script}");
    must(is_its_script, "postgres.script", "is set, and it sends statements of its own; leave it out")?;
    let may_churn = !scenario.churn || load.churn.is_some();
    must(may_churn, "churn", "is true, and it keeps its connections; leave it out")?;
    let has_accounts = postgres.accounts == Postgres::default().accounts;
    must(has_accounts, "postgres.accounts", "is set, and it takes the accounts of the tables behind; leave it out")?;
    if let Some(keys) = &load.keys {
        let Scenario { keys: wanted, .. } = scenario;
        let remedy = format!("is not the prefix of its keys; write prefix = \"{}\"", keys.prefix);
        must(wanted.prefix == keys.prefix, "keys.prefix", &remedy)?;
        must(digits(wanted.count) <= keys.digits, "keys.count", &format!("has more than {} digits", keys.digits))?;
        let is_uniform = wanted.distribution == Distribution::Uniform;
        must(is_uniform, "keys.distribution", "is \"zipf\", and it uses all keys alike; leave it out")?;
    }
    for phase in &scenario.phases {
        let is_whole = load.counts_requests() || (phase.duration.subsec_nanos() == 0 && !phase.duration.is_zero());
        must(is_whole, "phase.duration", "is no number of whole seconds, and it knows no other")?;
    }
    Ok(())
}

fn check_command(load: &Load, scenario: &Scenario) -> Result<()> {
    let (name, known) = (&load.name, load.commands.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
    let [command] = &scenario.commands[..] else {
        bail!("{name} cannot send this scenario: `command` is a mix, and it sends one over and over; keep one");
    };
    let word = command.kind.word();
    ensure!(
        load.commands.contains_key(word),
        "{name} cannot send this scenario: `command` is {word}, and it knows {known}"
    );
    Ok(())
}

/// Digits of the number of the last key.
fn digits(count: u64) -> usize {
    count.saturating_sub(1).to_string().len()
}

/// A program that makes the load of a comparison.
#[derive(Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) load: &'a Load,
    pub(crate) changes: &'a [Change],
}

impl<'a> Program<'a> {
    fn is_tls(self) -> bool {
        self.changes.contains(&Change::Tls)
    }

    /// A run of the only phase of a scenario. Where it is sent does not matter yet.
    fn run(self, scenario: &'a Scenario, path: &'a str, (host, port): (&'a str, &'a str), length: Length) -> Run<'a> {
        let command = scenario.commands.first().and_then(|command| self.load.commands.get(command.kind.word()));
        Run {
            host,
            port,
            is_tls: self.is_tls(),
            is_churn: scenario.churn,
            connections: scenario.connections,
            pipeline: scenario.pipeline,
            shards: scenario.shards,
            length,
            payload: scenario.payload.bytes_max(),
            path,
            name: &scenario.request.host,
            command: command.map_or("", String::as_str),
            keys: scenario.keys.count,
            user: &scenario.postgres.user,
            database: &scenario.postgres.database,
            query: scenario.postgres.query.word(),
            script: scenario.postgres.script.word(),
            password: scenario.postgres.password.as_ref().map(Secret::expose),
        }
    }

    /// The command as results tell it.
    pub(crate) fn shown(self, scenario: &Scenario, length: Length) -> Result<String> {
        let command = self.load.command(&self.run(scenario, &scenario.path(), ("127.0.0.1", "PORT"), length))?;
        let quoted = |word: &String| if word.contains(' ') { format!("'{word}'") } else { word.clone() };
        Ok(command.iter().map(quoted).collect::<Vec<_>>().join(" "))
    }

    /// Runs the program once against an arm and returns its output; `each` is called while it runs.
    fn drive(
        self,
        scenario: &Scenario,
        subject: &Subject<'_>,
        length: Length,
        fleet: &Fleet,
        each: impl FnMut() -> Result<()>,
    ) -> Result<LoadOutput> {
        let target = subject.target.to_string();
        let Some((host, port)) = target.rsplit_once(':').filter(|(scheme, _)| *scheme != "unix") else {
            bail!("{} needs an address with a port, and {target} has none", self.load.name);
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let path = scenario.path();
        let run = self.run(scenario, &path, (host, port), length);
        let limit = match length {
            Length::Seconds(seconds) => Duration::from_secs(seconds) + PATIENCE,
            Length::Requests(requests) => Duration::from_secs(requests / SLOWEST) + PATIENCE,
        };
        let started = self.load.start(&run, Some(&list_of(subject.generator_cpus)), fleet.stage.folder())?;
        started.finish(limit, each)
    }

    /// As [`Self::drive`], with the figures, which must be those of a whole run.
    fn send(
        self,
        scenario: &Scenario,
        subject: &Subject<'_>,
        length: Length,
        fleet: &Fleet,
        each: impl FnMut() -> Result<()>,
    ) -> Result<LoadFigures> {
        let figures = self.drive(scenario, subject, length, fleet, each)?.figures(self.load)?;
        if let Length::Requests(requests) = length {
            let LoadFigures { completed, .. } = figures;
            ensure!(completed >= requests, "{} completed {completed} of {requests} requests", self.load.name);
        }
        let bodies = figures.completed as f64 * scenario.payload.bytes_max() as f64;
        if let Some(read) = figures.read.filter(|read| *read < bodies * ROUNDED) {
            bail!("{} read {read} bytes, and the bodies alone have {bodies}", self.load.name);
        }
        Ok(figures)
    }

    /// Rate of the first run of an arm, which warms it up, in requests per second.
    pub(crate) fn calibrate(self, scenario: &Scenario, subject: &Subject<'_>, fleet: &Fleet) -> Result<f64> {
        let length = Length::Requests(FIRST_REQUESTS.max(requests_min(scenario)));
        Ok(self.send(scenario, subject, length, fleet, || Ok(()))?.rate)
    }

    /// Length of each run, the same for every arm: `slowest` is the rate of the slowest in [`Self::calibrate`].
    pub(crate) fn length(self, scenario: &Scenario, phase: &Phase, slowest: f64) -> Length {
        if !self.load.counts_requests() {
            return Length::Seconds(phase.duration.as_secs().max(1));
        }
        let pipeline = u64::from(scenario.pipeline);
        let wanted = (slowest * phase.duration.as_secs_f64()) as u64;
        // Whole pipelines.
        Length::Requests(wanted.max(requests_min(scenario)) / pipeline * pipeline)
    }

    /// Load before a run; `None`: the phase has none.
    fn warm_up(self, scenario: &Scenario, phase: &Phase, length: Length) -> Option<Length> {
        if phase.warmup.is_zero() {
            return None;
        }
        Some(match length {
            Length::Seconds(_) => Length::Seconds(phase.warmup.as_secs_f64().ceil() as u64),
            Length::Requests(requests) => {
                let share = phase.warmup.as_secs_f64() / phase.duration.as_secs_f64();
                Length::Requests(((requests as f64 * share) as u64).max(requests_min(scenario)))
            }
        })
    }

    /// A warm-up and one measured run of the only phase of `scenario`. CPU time is that of the whole run with its connects.
    pub(crate) fn measure(
        self,
        scenario: &Scenario,
        subject: &Subject<'_>,
        length: Length,
        fleet: &Fleet,
    ) -> Result<(Trial, Resources)> {
        let [phase] = &scenario.phases[..] else { bail!("a trial has one phase, not {}", scenario.phases.len()) };
        if let Some(warm_up) = self.warm_up(scenario, phase, length) {
            // Many connects may take all of a short one.
            self.drive(scenario, subject, warm_up, fleet, || Ok(()))?;
        }
        let before = fleet.stage.count()?;
        let mut window = Window::open(&trial::served_parties(subject))?;
        let figures = self.send(scenario, subject, length, fleet, || window.pass())?;
        let watched = window.close()?;
        let after = fleet.stage.count()?;
        let answers_itself = subject.gateway.is_some_and(|gateway| gateway.answers_itself);
        if let (Some(before), Some(after), false) = (before, after, answers_itself) {
            let (seen, completed) = (after.saturating_sub(before), figures.completed);
            ensure!(
                seen >= completed,
                "the server behind responded to {seen} requests, and {} counted {completed} replies",
                self.load.name
            );
        }
        let mut trial = Trial {
            window_s: watched.seconds,
            intended: figures.completed,
            completed: figures.completed,
            latency: Latency {
                sojourn_p50_us: figures.p50_us.unwrap_or(0),
                sojourn_p99_us: figures.p99_us.unwrap_or(0),
                ..Latency::default()
            },
            is_steady: true,
            ..Trial::default()
        };
        trial.resources.sockets_asked = scenario.connections.into();
        trial.resources.sockets_established = scenario.connections.into();
        trial::fill(&mut trial, &watched, subject)?;
        let mut resources = Resources::default();
        trial::charge(&mut resources, &watched, figures.completed as f64);
        // The program knows better than the window when its first request left.
        trial.completed_rate = Some(figures.rate);
        Ok((trial, resources))
    }

    /// Where the lab itself looks before the program loads an arm: at the arm, or where that speaks TLS, which the lab does not,
    /// at what stands behind.
    fn looked_at(self, subject: &Subject<'_>, fleet: &Fleet) -> Address {
        if self.is_tls() { fleet.stage.behind().clone() } else { subject.target.clone() }
    }

    /// Writes the keys that the program will ask for, if the scenario has any, and checks some replies.
    pub(crate) fn look(self, scenario: &Scenario, subject: &Subject<'_>, fleet: &Fleet) -> Result<StepRecord> {
        let target = self.looked_at(subject, fleet);
        let mut scenario = Scenario {
            connections: scenario.connections.min(LOOK_CONNECTIONS),
            pipeline: 1,
            shards: 1,
            integrity: true,
            phases: vec![Phase { name: "look".to_owned(), duration: LOOK, ..Phase::default() }],
            ..scenario.clone()
        };
        if let Some(keys) = &self.load.keys {
            let zeros = keys.digits.saturating_sub(digits(scenario.keys.count));
            scenario.keys.prefix = format!("{}{}", keys.prefix, "0".repeat(zeros));
        }
        interrupt::check()?;
        let (events, told) = std::sync::mpsc::channel();
        weir_load::run(&scenario, &target, &events)?;
        drop(events);
        let step = told.into_iter().find_map(|event| match event {
            Event::Step { record, .. } => Some(*record),
            _ => None,
        });
        let Some(record) = step else { bail!("the lab's own check of {target} ended without a result") };
        let counts = &record.counts;
        ensure!(
            counts.errors.total() == 0 && counts.shed_total() == 0 && counts.completed > 0,
            "the lab's own check of {target}: {} requests got correct replies, {} were refused, {:?}",
            counts.completed,
            counts.shed_total(),
            counts.errors
        );
        Ok(record)
    }
}

fn requests_min(scenario: &Scenario) -> u64 {
    ROUNDS_MIN * u64::from(scenario.connections) * u64::from(scenario.pipeline)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(protocol: &str, more: &str) -> Scenario {
        let text = format!(
            "name = \"s\"\nprotocol = \"{protocol}\"\nmode = \"closed\"\nintegrity = false\n{more}\n\
             [[phase]]\nduration = \"3s\"\n"
        );
        weir_load::scenario::parse("s.toml", &text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    #[test]
    fn a_scenario_that_a_program_cannot_send_is_refused_by_its_key() {
        let (wrk, redis) = (Load::named("wrk").expect("wrk"), Load::named("redis-benchmark").expect("redis"));
        let get = "command = [{ name = \"GET\" }]";
        check(&wrk, &scenario("http1", "connections = 64")).expect("it can");
        check(&redis, &scenario("redis", get)).expect("it can");
        let pgbench = Load::named("pgbench").expect("pgbench");
        check(&pgbench, &scenario("postgres", "shards = 2\npostgres.query = \"prepared\"")).expect("it can");
        check(&pgbench, &scenario("postgres", "churn = true\npostgres.password = \"pw\"")).expect("it can");
        let bare = Load { churn: None, environment: Default::default(), ..pgbench.clone() };
        let mix = "command = [{ name = \"GET\" }, { name = \"SET\" }]";
        let zipf = format!("{get}\nkeys = {{ distribution = \"zipf\", exponent = 0.9 }}");
        for (load, protocol, more, key) in [
            (&wrk, "http2", "", "`protocol` is \"http2\", and it speaks http1"),
            (&wrk, "http1", "pipeline = 4", "`pipeline`"),
            (&wrk, "http1", "payload = [{ size = 8 }, { size = 9 }]", "`payload`"),
            (&redis, "redis", mix, "`command` is a mix"),
            (&redis, "redis", "command = [{ name = \"INCR\" }]", "`command` is INCR, and it knows GET, SET"),
            (&redis, "redis", &format!("{get}\nkeys.prefix = \"k\""), "`keys.prefix`"),
            (&redis, "redis", &zipf, "`keys.distribution`"),
            (&redis, "redis", &format!("{get}\nshards = 2"), "`shards`"),
            (&pgbench, "postgres", "pipeline = 2", "`pipeline`"),
            (&bare, "postgres", "postgres.password = \"pw\"", "`postgres.password` is set"),
            (&bare, "postgres", "churn = true", "`churn` is true"),
            (&pgbench, "postgres", "postgres.accounts = 7", "`postgres.accounts` is set"),
        ] {
            let refusal = check(load, &scenario(protocol, more)).expect_err(more).to_string();
            assert!(refusal.contains(key), "{key}: {refusal}");
        }
        let open = Scenario { integrity: true, ..scenario("http1", "") };
        assert!(check(&wrk, &open).expect_err("checked").to_string().contains("write integrity = false"));
    }

    #[test]
    fn runs_are_whole_pipelines_and_never_too_short() {
        let load = Load::named("redis-benchmark").expect("it is there");
        let program = Program { load: &load, changes: &[] };
        let scenario = scenario("redis", "connections = 50\npipeline = 16\ncommand = [{ name = \"GET\" }]");
        let phase = &scenario.phases[0];
        assert_eq!(program.length(&scenario, phase, 100_000.0), Length::Requests(300_000));
        assert_eq!(program.length(&scenario, phase, 1.0), Length::Requests(8_000));
        let Length::Requests(odd) = program.length(&scenario, phase, 33_333.4) else { panic!("it counts requests") };
        assert!(odd.is_multiple_of(16), "{odd}");
        let wrk = Load::named("wrk").expect("it is there");
        assert_eq!(Program { load: &wrk, changes: &[] }.length(&scenario, phase, 1.0), Length::Seconds(3));
    }

    #[test]
    fn the_examples_can_be_sent_as_their_comments_say_and_their_peers_are_right() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/lab");
        let files = |folder: &std::path::Path| {
            let files = std::fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("an entry").path());
            files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect::<Vec<_>>()
        };
        let mut sent = 0;
        for file in files(&folder) {
            let (name, text) = (file.to_string_lossy().into_owned(), std::fs::read_to_string(&file).expect("a text"));
            let scenario = weir_load::scenario::parse(&name, &text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
            if let Some((_, rest)) = text.split_once("--load ") {
                let word = rest.split_whitespace().next().expect("a name");
                check(&Load::named(word).expect("known"), &scenario).unwrap_or_else(|error| panic!("{name}: {error}"));
                sent += 1;
            }
        }
        assert!(sent >= 8, "{sent}");
        for file in files(&folder.join("peers")) {
            weir_parties::Peer::read(&file).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }
}
