//! `weir lab size`: how many instances a demand needs in front of a server, from a search that runs now.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use weir_engine::settings::Address;
use weir_knee::{
    Check, Knee, NotClean, Rules, SearchOutcome, Verdict,
    cell::short,
    plan::{Demand, Dimension, FAILOVER_DEFAULT, HEADROOM_DEFAULT},
};
use weir_load::{
    Scenario, scenario,
    url::{CONNECTIONS, DURATION, Url, UrlLoad, WARMUP, without_user},
};
use weir_parties::peer::Telemetry;
use weir_trials::{
    Budget, KneeResult, Request, UpstreamKind,
    result::{self, Size},
    table,
};

use crate::{
    lab_knee, lab_load,
    lab_page::{ResultArgs, both},
    plan,
};

/// Find the clean knee of this build in front of a server, and size a deployment from it.
///
/// This is `weir lab knee` and `weir plan` in one command. It prints the clean knee (the highest load without an error, a refusal or a
/// lost request), what limits the load there, the headroom, and the number of instances.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab size --behind redis://127.0.0.1:6379 --demand 250k\n  \
                  weir lab size --behind http://127.0.0.1:3000/ --demand 20k --slo-p99 20ms --json results/size.json\n  \
                  weir lab size --behind 127.0.0.1:6379 --demand 250k --scenario examples/lab/redis-mixed.toml\n  \
                  weir lab size --behind redis://127.0.0.1:6379 --demand 250k --quick\n\n\
                  The command starts the gateway on separate CPUs. The search takes 15 to 30 minutes. With --quick it takes about two, \
                  but do not use that result for sizing.\n\
                  The search loads the server up to its limit, with and without the gateway. With redis://, it writes 10,000 keys \
                  weir-load:N before each trial.\n\
                  If no knee can be verified, the output shows the bracket: the rate up to which every trial was clean, and the rate \
                  from which no trial was clean.\n\
                  --json results/size.json writes demand, plan and all trials to this file, which `weir plan` reads, and the page \
                  results/size.html. The last line of the output is the path of the page.\n\n\
                  Exit status: 0, a size was found; 1, no size was found; 2, wrong usage.")]
pub struct SizeArgs {
    /// Server behind the gateway: a URL (redis://, http://, postgres://, mongodb://, ws://, tcp://), which also selects the load, or with
    /// --scenario, HOST:PORT or unix:/path.
    #[arg(long, value_name = "URL|HOST:PORT|unix:/path")]
    behind: String,

    /// Requests per second in the peak second, such as 250k.
    #[arg(long, value_name = "RATE", value_parser = lab_load::source::rate)]
    demand: f64,

    /// TOML file of the load, which must be an open loop [default: the load of `weir lab load URL`].
    #[arg(long, value_name = "SCENARIO.toml")]
    scenario: Option<PathBuf>,

    /// Highest p99 latency of a clean trial, such as 20ms, for a load without --scenario.
    #[arg(long, value_name = "TIME", conflicts_with = "scenario")]
    slo_p99: Option<String>,

    /// Connections of a load without --scenario [default: 50].
    #[arg(long, value_name = "N", conflicts_with = "scenario")]
    connections: Option<u32>,

    /// Share of the knee to keep free, from 0 to below 1.
    #[arg(long, default_value_t = HEADROOM_DEFAULT, value_parser = plan::headroom)]
    headroom: f64,

    /// Instances that may be down at the peak.
    #[arg(long, default_value_t = FAILOVER_DEFAULT)]
    failover: u32,

    /// CPUs per instance: a whole number, or a fraction of one CPU such as 0.5.
    #[arg(long, default_value = "1", value_parser = Budget::from_str)]
    budget: Budget,

    /// Offer no more than this many requests per second.
    #[arg(long, value_name = "RATE", value_parser = lab_load::source::rate)]
    rate_max: Option<f64>,

    /// Use short trials and 10 % precision, for a first impression. Do not use the result for sizing.
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    result: ResultArgs,
}

pub fn run(args: &SizeArgs) -> Result<(), String> {
    let (scenario, source, server) = workload(args)?;
    args.result.check()?;
    let request = Request {
        weir: std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?,
        behind: UpstreamKind::Servers(vec![server]),
        budget: args.budget,
        telemetry: Telemetry::On,
        rate_max: args.rate_max,
        rules: if args.quick { Rules::quick() } else { Rules::default() },
        scenario,
    };
    let found = weir_trials::knee(&request, lab_knee::print_progress).map_err(|failure| failure.to_string())?;
    let mut result = lab_knee::result_of(args.quick, &request, &found, source);
    print!("{}", table::result(&request.scenario.name, &found.knee));
    let size = size_of(args, &result);
    print!("{}", text_of(args, &size));
    let found = size.refusal.clone().map_or(Ok(()), Err);
    result.size = Some(size);
    both(found, args.result.store(&result))
}

/// The load, its text, and the server.
fn workload(args: &SizeArgs) -> Result<(Scenario, String, Address), String> {
    if let Some(path) = &args.scenario {
        let shown = without_user(&args.behind);
        if Url::is_one(&args.behind) {
            return Err(format!(
                "--behind {shown}: the scenario sets protocol and path; write HOST:PORT, or leave out --scenario"
            ));
        }
        let server = args.behind.parse::<Address>().map_err(|error| format!("--behind {shown}: {error}"))?;
        let (scenario, source) = lab_load::read_with_source(path)?;
        return Ok((scenario, source, server));
    }
    if !Url::is_one(&args.behind) {
        return Err(format!(
            "--behind {0} does not name the protocol: write redis://{0} or http://{0}/, or name a load with --scenario",
            without_user(&args.behind)
        ));
    }
    let url = args.behind.parse::<Url>().map_err(|error| error.to_string())?;
    if url.protocol().is_multiplexed() {
        return Err(format!(
            "--behind {url}: the gateway of the lab speaks HTTP/1.1 with the server behind it; write http:// if the server \
             speaks that too"
        ));
    }
    let load = UrlLoad {
        url,
        // A search does not use the phases of this load: any rate makes its loop an open one.
        rate: Some(args.demand),
        connections: args.connections.unwrap_or(CONNECTIONS),
        pipeline: 1,
        shards: 1,
        warmup: WARMUP.to_owned(),
        duration: DURATION.to_owned(),
        payload: None,
        slo_p99: args.slo_p99.clone(),
        thresholds: Vec::new(),
    };
    let source = load.scenario();
    let scenario =
        scenario::parse(&args.behind, &source).map_err(|mistakes| format!("the load is refused\n{mistakes}"))?;
    Ok((scenario, source, load.url.target().clone()))
}

/// The plan for the demand, or why there is none.
fn size_of(args: &SizeArgs, result: &KneeResult) -> Size {
    let demand = Demand {
        command: result.command.clone(),
        shape: result.shape.clone(),
        peak: vec![(Dimension::Requests, args.demand)],
        headroom: args.headroom,
        failover: args.failover,
    };
    let plan = match result.knee.capacity() {
        Some(_) => weir_knee::plan(&demand, &[result.measured(result::seconds_since_epoch())])
            .map_err(|refusal| format!("no size: {refusal}")),
        None => Err(no_size(&result.knee, args)),
    };
    let refusal = plan.as_ref().err().cloned();
    Size { demand, plan: plan.ok(), refusal }
}

fn text_of(args: &SizeArgs, size: &Size) -> String {
    let Some(plan) = &size.plan else { return String::new() };
    let caveat = if args.quick { "Quick run: do not use it for sizing.\n" } else { "" };
    format!("{caveat}{}", plan::text_of(plan, &size.demand))
}

/// No number, and what is known all the same.
fn no_size(knee: &Knee, args: &SizeArgs) -> String {
    let (why, remedy) = (lab_knee::no_knee(knee), remedy(knee, args.quick));
    format!("no size for {} requests/s: {why}. {remedy}", short(args.demand))
}

/// Advice after a search without a knee.
fn remedy(knee: &Knee, is_quick: bool) -> String {
    let quick = if is_quick { ", without --quick" } else { "" };
    match knee.outcome {
        SearchOutcome::Invalid { check: Check::Fds } => "Raise the limit of open files (ulimit -n)".to_owned(),
        SearchOutcome::Invalid { check: Check::Ports } => "Use fewer connections, or free local ports".to_owned(),
        SearchOutcome::Invalid { check: Check::Connections } => {
            "Connections were lost: look at the log of the server, and at its limit of connections".to_owned()
        }
        SearchOutcome::TooFewSamples { .. } => {
            format!("The rates are too low for a p99: try again{quick} and with more load")
        }
        SearchOutcome::Below { .. } => match last_fault(knee) {
            Some(NotClean::Slo) => "Raise the latency target (--slo-p99, or slo_p99 of the scenario)".to_owned(),
            Some(fault) => {
                format!(
                    "The lowest rate was not clean ({fault}): look for the cause with `weir lab load`, first without a gateway"
                )
            }
            None => format!("Try again on a quiet machine{quick}"),
        },
        SearchOutcome::MixUp => {
            "A reply of another connection came back: that is a mistake of the gateway; report it".to_owned()
        }
        _ => format!("Try again on a quiet machine{quick}"),
    }
}

/// Why the last trial that failed was not clean.
fn last_fault(knee: &Knee) -> Option<NotClean> {
    knee.seen.iter().rev().find_map(|seen| match seen.verdict {
        Verdict::NotClean(found) => Some(found.reason),
        Verdict::Clean | Verdict::Invalid(_) | Verdict::Unsteady => None,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weir_knee::judge::Finding;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        size: SizeArgs,
    }

    fn args(words: &[&str]) -> Result<SizeArgs, String> {
        let line = ["size"].into_iter().chain(words.iter().copied());
        Line::try_parse_from(line).map(|line| line.size).map_err(|error| error.to_string())
    }

    /// A quick search as the program wrote it: clean up to 45.9k.
    fn result(change: impl FnOnce(&mut KneeResult)) -> KneeResult {
        let text = include_str!("../../lab/trials/src/testdata/knee.json");
        let mut result = KneeResult::from_json(text).expect("a result");
        change(&mut result);
        result
    }

    #[test]
    fn a_size_is_a_plan_and_stands_in_the_file() {
        let args = args(&["--behind", "redis://h:1", "--demand", "250k", "--headroom", "0.5"]).expect("right");
        let mut result = result(|_| {});
        let size = size_of(&args, &result);
        // 250k of demand, 23.0k usable of 45.9k, and one more for the failover.
        let plan = size.plan.clone().expect("a knee");
        assert_eq!((plan.instances, &size.refusal), (12, &None), "{plan:?}");
        let text = text_of(&args, &size);
        assert!(text.contains("12 instances") && !text.contains("Quick run"), "{text}");
        result.size = Some(size);
        let json = serde_json::to_value(&result).expect("JSON");
        assert_eq!(json.pointer("/size/plan/instances"), Some(&12.into()));
        assert_eq!(KneeResult::from_json(&json.to_string()).expect("readable"), result);
    }

    #[test]
    fn every_end_without_a_knee_has_its_own_remedy() {
        let args = args(&["--behind", "redis://h:1", "--demand", "20k", "--quick"]).expect("right");
        let refusal = |outcome: SearchOutcome, fault: Option<NotClean>| {
            let result = result(|result| {
                result.knee.outcome = outcome;
                if let Some(seen) = result.knee.seen.last_mut() {
                    seen.verdict =
                        fault.map_or(Verdict::Clean, |fault| Verdict::NotClean(Finding::new(fault, 1.0, 0.0)));
                }
            });
            let size = size_of(&args, &result);
            assert_eq!((size.plan.is_none(), text_of(&args, &size)), (true, String::new()));
            size.refusal.expect("no knee")
        };
        let quiet = "Try again on a quiet machine, without --quick";
        let check = |check| SearchOutcome::Invalid { check };
        for (outcome, fault, remedy) in [
            (SearchOutcome::Unstable, None, quiet),
            (check(Check::GeneratorLag), None, quiet),
            (check(Check::Fds), None, "ulimit -n"),
            (check(Check::Connections), None, "look at the log of the server"),
            (SearchOutcome::Below { rate: 5.0 }, Some(NotClean::Slo), "Raise the latency target"),
            (SearchOutcome::Below { rate: 5.0 }, Some(NotClean::Errors), "not clean (errors): look for the cause"),
            (SearchOutcome::MixUp, Some(NotClean::MixUp), "report it"),
            (SearchOutcome::TooFewSamples { n: 3 }, None, "too low for a p99"),
        ] {
            let refusal = refusal(outcome, fault);
            assert!(refusal.starts_with("no size for 20.0k requests/s: no knee was found: "), "{refusal}");
            assert!(refusal.contains(remedy), "{remedy} is not in {refusal}");
            assert_eq!(refusal.contains("quiet machine"), remedy == quiet, "{refusal}");
            assert!(!refusal.contains("lies within") && refusal.contains("clean up to "), "{refusal}");
        }
    }

    #[test]
    fn a_mistake_of_use_is_found_before_the_search() {
        assert!(
            args(&["--behind", "redis://h:1", "--demand", "20k", "--headroom", "30"])
                .is_err_and(|error| error.contains("0.3 for 30 %"))
        );
        let refused = |words: &[&str]| {
            let args = args(&[words, &["--demand", "20k"]].concat()).expect("a line");
            workload(&args).map(|_| ()).expect_err("a mistake")
        };
        let with_file = refused(&["--behind", "http://h:1/api", "--scenario", "redis.toml"]);
        assert!(with_file.contains("write HOST:PORT, or leave out --scenario"), "{with_file}");
        let h2c = refused(&["--behind", "h2c://h:1/"]);
        assert!(h2c.contains("speaks HTTP/1.1 with the server"), "{h2c}");
        let bare = refused(&["--behind", ":secret@h:1"]);
        assert!(bare.contains("write redis://***@h:1") && !bare.contains("secret"), "{bare}");
        for slo in ["61s", "5us"] {
            let refusal = refused(&["--behind", "redis://h:1", "--slo-p99", slo]);
            assert!(refusal.contains("slo_p99"), "{refusal}");
        }
    }

    #[test]
    fn a_latency_target_is_that_of_the_search_and_a_page_of_any_size_is_named_so() {
        let args = args(&["--behind", "http://h:1/api", "--demand", "20k", "--slo-p99", "20ms"]).expect("right");
        let (scenario, source, _) = workload(&args).expect("a load");
        assert_eq!(scenario.slo_p99, Some(std::time::Duration::from_millis(20)));
        assert!(source.contains("slo_p99 = \"20ms\"") && scenario.thresholds.is_empty(), "{source}");
        let conditions = result::Conditions {
            budget: args.budget,
            backend: weir_knee::Backend::Real,
            telemetry: Telemetry::On,
            is_quick: false,
        };
        let row = result::shape_of(&scenario, &conditions).row;
        assert!(row.contains("of /api, any length, 50 connections"), "{row}");
    }
}
