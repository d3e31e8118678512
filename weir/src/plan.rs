//! `weir plan`: how many instances a demand needs, from clean knees that were measured.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use weir_knee::{
    Backend, Plan,
    cell::short,
    plan::{Demand, Dimension, FAILOVER_DEFAULT, HEADROOM_DEFAULT, Measured},
};
use weir_parties::peer::Telemetry;
use weir_trials::{
    Budget, KneeResult,
    result::{self, Conditions},
};

use crate::lab_load;

/// The kind of server behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackendName {
    /// A real server.
    Real,
    /// The test server of the lab. The result is the limit of the gateway, not of a deployment.
    Synthetic,
}

/// Compute the number of instances for a demand, from results of `weir lab knee`.
///
/// A clean knee is the highest load without an error, a refusal or a lost request, verified by repeats. The command uses only clean knees
/// of the same workload, CPU budget and kind of back end, and never a peak rate. If there is none, it prints the `weir lab knee` command
/// to run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir plan --scenario examples/lab/redis-mixed.toml --demand 250000 --results results\n  \
                  weir plan --scenario examples/lab/redis-mixed.toml --demand 250000 --headroom 0.4 --failover 2 --budget 4\n\n\
                  Exit status: 0, plan printed; 1, no plan; 2, wrong usage.")]
pub struct PlanArgs {
    /// The workload, a TOML file as for `weir lab knee`.
    #[arg(long, value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Requests per second in the peak second.
    #[arg(long, value_name = "RATE")]
    demand: f64,

    /// Share of the knee to keep free, from 0 to below 1.
    #[arg(long, default_value_t = HEADROOM_DEFAULT, value_parser = headroom)]
    headroom: f64,

    /// Instances that may be down at the peak.
    #[arg(long, default_value_t = FAILOVER_DEFAULT)]
    failover: u32,

    /// CPUs per instance: a whole number, or a fraction of one CPU such as 0.5.
    #[arg(long, default_value = "1", value_parser = Budget::from_str)]
    budget: Budget,

    /// The kind of server behind the gateway.
    #[arg(long, value_enum, default_value = "real")]
    backend: BackendName,

    /// Folder with files of `weir lab knee --json`.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
}

/// A headroom for clap: a mistake must not be found after half an hour of search.
pub fn headroom(text: &str) -> Result<f64, String> {
    let headroom = text.parse::<f64>().ok().filter(|share| (0.0..1.0).contains(share));
    headroom.ok_or_else(|| "write a share from 0 to below 1, such as 0.3 for 30 %".to_owned())
}

pub fn run(args: &PlanArgs) -> Result<(), String> {
    let scenario = lab_load::read(&args.scenario)?;
    let backend = match args.backend {
        BackendName::Real => Backend::Real,
        BackendName::Synthetic => Backend::Synthetic,
    };
    let demand = Demand {
        command: command(args),
        shape: result::shape_of(&scenario, &conditions(args.budget, backend, false)),
        peak: vec![(Dimension::Requests, args.demand)],
        headroom: args.headroom,
        failover: args.failover,
    };
    let measured = read_all(&args.results)?;
    let plan = weir_knee::plan(&demand, &measured).map_err(|refusal| format!("no plan: {refusal}"))?;
    print!("{}", text_of(&plan, &demand));
    Ok(())
}

/// Instances observe themselves as they are delivered.
fn conditions(budget: Budget, backend: Backend, is_quick: bool) -> Conditions {
    Conditions { budget, backend, telemetry: Telemetry::On, is_quick }
}

/// Command that would find the missing knee.
fn command(args: &PlanArgs) -> String {
    let (scenario, results, budget) = (args.scenario.display(), args.results.display(), args.budget);
    let behind = if args.backend == BackendName::Real { " --behind HOST:PORT" } else { "" };
    format!("weir lab knee {scenario} --budget {budget}{behind} --json {results}/NAME.json")
}

/// Every result of a folder. A file that is none is named: it may be the one that was meant.
fn read_all(folder: &Path) -> Result<Vec<Measured>, String> {
    let now = result::seconds_since_epoch();
    let entries = fs::read_dir(folder).map_err(|error| {
        format!("{}: {error}; put files of `weir lab knee --json` there, or name another folder", folder.display())
    })?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut measured = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        match KneeResult::from_json(&text) {
            Ok(result) => measured.push(result.measured(now)),
            Err(error) => eprintln!("{}: not used: {error}", path.display()),
        }
    }
    Ok(measured)
}

/// The plan, for people.
pub fn text_of(plan: &Plan, demand: &Demand) -> String {
    let mut text = String::new();
    let budget = demand.shape.budget_vcpu;
    let mut line = |part: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{part}");
    };
    line(format!("{} instances of {budget} vCPU each ({} bind)", plan.instances, plan.binding));
    line(format!("  row            {}", demand.shape.row));
    for need in &plan.needs {
        let share = |load: f64| format!("{} each, {:.0} % of the knee", short(load), load / need.knee * 1e2);
        let headroom = demand.headroom * 1e2;
        line(format!("  demand         {} {}", short(need.demand), need.dimension));
        line(format!("  clean knee     {} (run {}, {})", short(need.knee), need.run_id, age(need.age_s)));
        line(format!("  usable         {} with {headroom:.0} % headroom", short(need.usable)));
        line(format!("  all up         {}", share(need.load_all_up)));
        if demand.failover > 0 {
            line(format!("  {} down         {}", demand.failover, share(need.load_degraded)));
        }
    }
    line("mind:".to_owned());
    plan.warnings.iter().for_each(|warning| line(format!("  - {warning}")));
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..3_600 => format!("{} min old", seconds / 60),
        3_600..172_800 => format!("{} h old", seconds / 3_600),
        _ => format!("{} days old", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_knee::{
        Rules, Search, SearchOptions,
        knee::{SearchOutcome, Side},
    };
    use weir_trials::Placement;

    const SCENARIO: &str = r#"
name = "small"
protocol = "redis"
command = [{ name = "GET" }]
phase = [{ rate = 1000, duration = "1s" }]
"#;

    fn args(folder: &Path, demand: f64) -> PlanArgs {
        let scenario = folder.join("scenario.toml");
        fs::write(&scenario, SCENARIO).expect("written");
        PlanArgs {
            scenario,
            demand,
            headroom: HEADROOM_DEFAULT,
            failover: FAILOVER_DEFAULT,
            budget: Budget::Cpus(1),
            backend: BackendName::Real,
            results: folder.to_owned(),
        }
    }

    fn result(args: &PlanArgs, is_quick: bool, clean: Option<f64>) -> KneeResult {
        let scenario = lab_load::read(&args.scenario).expect("a right scenario");
        let mut search =
            Search::new(SearchOptions::default(), Rules { trials_max: 10, ..Rules::default() }, 1).expect("rules");
        let mut command = search.next(None);
        // A search that gets only empty trials ends without a knee.
        let mut knee = loop {
            match command {
                weir_knee::Command::Done(knee) => break *knee,
                weir_knee::Command::Run(run) => {
                    let trial = weir_knee::Trial::default();
                    command = search.next(Some(&weir_knee::Observation { run, trial }));
                }
            }
        };
        if let Some(rate) = clean {
            knee.outcome = SearchOutcome::Verified;
            knee.clean = Some(Side { rate, repeats: 3, clean: 3, completed: None, sojourn_p99_us_max: 900 });
        }
        KneeResult {
            schema: result::SCHEMA.to_owned(),
            run_id: "r1".to_owned(),
            ended: result::seconds_since_epoch() - 7_300,
            shape: result::shape_of(&scenario, &conditions(Budget::Cpus(1), Backend::Real, is_quick)),
            command: "weir lab knee scenario.toml".to_owned(),
            build: String::new(),
            behind: String::new(),
            scenario: SCENARIO.to_owned(),
            gateway_config: String::new(),
            placement: Placement { gateway: vec![0], origin: vec![1], generator: vec![1] },
            host: weir_load::record::Host::default(),
            knee,
            courses: Vec::new(),
            size: None,
        }
    }

    fn write(folder: &Path, name: &str, result: &KneeResult) {
        fs::write(folder.join(name), serde_json::to_string(result).expect("plain figures")).expect("written");
    }

    #[test]
    fn a_clean_knee_sizes_and_says_from_which_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = args(folder.path(), 900_000.0);
        write(folder.path(), "a.json", &result(&args, false, Some(550_000.0)));
        fs::write(folder.path().join("other.json"), "{}").expect("written");
        run(&args).expect("a plan");
        let measured = read_all(folder.path()).expect("a folder");
        assert_eq!(measured.len(), 1);
        let scenario = lab_load::read(&args.scenario).expect("a right scenario");
        let demand = Demand {
            command: String::new(),
            shape: result::shape_of(&scenario, &conditions(Budget::Cpus(1), Backend::Real, false)),
            peak: vec![(Dimension::Requests, 900_000.0)],
            headroom: 0.3,
            failover: 1,
        };
        let text = text_of(&weir_knee::plan(&demand, &measured).expect("a plan"), &demand);
        for part in [
            "4 instances of 1 vCPU each",
            "clean knee     550k (run r1, 2 h old)",
            "usable         385k",
            "all up         225k each, 41 % of the knee",
            "1 down         300k each, 55 % of the knee",
            "demand must be the peak second",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_quick_look_a_search_without_a_knee_and_an_empty_folder_size_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = args(folder.path(), 1_000.0);
        let refusal = run(&args).expect_err("no results");
        assert!(
            refusal.contains("no clean knee") && refusal.contains("--budget 1 --behind HOST:PORT --json"),
            "{refusal}"
        );
        write(folder.path(), "quick.json", &result(&args, true, Some(5_000.0)));
        write(folder.path(), "none.json", &result(&args, false, None));
        let refusal = run(&args).expect_err("nothing to size from");
        assert!(refusal.contains("quick look") && refusal.contains("it found no clean knee"), "{refusal}");
        let nowhere = PlanArgs { results: folder.path().join("nowhere"), ..args };
        assert!(run(&nowhere).expect_err("no folder").contains("weir lab knee --json"));
    }
}
