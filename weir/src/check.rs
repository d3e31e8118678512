//! `weir check`: every mistake of a configuration file, without running it.

use std::path::{Path, PathBuf};

use clap::Args;

/// Validate a configuration file, and print each mistake with file, line, column, cause and remedy.
///
/// Without --offline, the command also tests what `weir run` needs on this machine: addresses, access log, certificates and secrets.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0, the file is valid; 1, it has mistakes, or warnings with --strict; 2, wrong usage.\n\n\
                  Examples:\n  \
                  weir check weir.toml\n  \
                  weir check --strict weir.toml\n  \
                  weir check --offline weir.toml   # in CI, away from the host\n  \
                  weir check --schema > weir.schema.json"
)]
pub struct CheckArgs {
    /// The file to validate [default: the file in $WEIR_CONFIG, or weir.toml].
    #[arg(conflicts_with_all = ["schema", "reference"])]
    file: Option<PathBuf>,

    /// Check only syntax, names, values and references, and test nothing on this machine. Missing environment variables and files cause
    /// notes, not mistakes.
    #[arg(long, conflicts_with_all = ["schema", "reference"])]
    offline: bool,

    /// Print the JSON Schema of the file, for editors.
    #[arg(long)]
    schema: bool,

    /// Print the reference of all keys as Markdown.
    #[arg(long, conflicts_with = "schema")]
    reference: bool,

    /// Treat warnings as mistakes: exit with status 1 if there are any.
    #[arg(long, conflicts_with_all = ["schema", "reference"])]
    strict: bool,

    /// Print mistakes and warnings as JSON.
    #[arg(long)]
    json: bool,
}

/// The file that `weir run` would take.
fn default_file() -> PathBuf {
    std::env::var_os("WEIR_CONFIG").filter(|path| !path.is_empty()).map_or_else(|| "weir.toml".into(), PathBuf::from)
}

pub fn run(args: &CheckArgs) -> Result<(), String> {
    if args.schema {
        println!("{:#}", weir_config::schema());
        return Ok(());
    }
    if args.reference {
        print!("{}", weir_config::reference());
        return Ok(());
    }
    let file = &args.file.clone().unwrap_or_else(default_file);
    let env = |name: &str| std::env::var(name).ok();
    let checked = if args.offline { weir_config::check_offline(file, &env) } else { weir_config::rehearse(file, &env) };
    match checked {
        Ok(snapshot) => judge(&snapshot, file, args),
        Err(diagnostics) => {
            show(&diagnostics, args.json);
            Err(format!("{}: {}", file.display(), mistakes(&diagnostics)))
        }
    }
}

/// Judges a file that a gateway would serve.
fn judge(snapshot: &weir_config::Snapshot, file: &Path, args: &CheckArgs) -> Result<(), String> {
    show(&snapshot.warnings, args.json);
    if snapshot.warnings.errors() > 0 {
        let routes = snapshot.protocols.http.iter().filter(|route| !route.mistakes.is_empty()).count();
        let count = mistakes(&snapshot.warnings);
        return Err(format!("{}: {count}; it would serve without {routes} of its routes", file.display()));
    }
    if args.strict && snapshot.warnings.warnings() > 0 {
        return Err(format!("{}: {}, and --strict takes none", file.display(), warnings(&snapshot.warnings)));
    }
    if !args.json {
        let (listeners, upstreams) = (snapshot.listeners.len(), snapshot.upstreams.len());
        println!("{}: good ({listeners} listeners, {upstreams} upstreams)", file.display());
    }
    Ok(())
}

/// How many: "1 mistake", "2 mistakes".
pub fn mistakes(diagnostics: &weir_config::Diagnostics) -> String {
    match diagnostics.errors() {
        1 => "1 mistake".to_owned(),
        count => format!("{count} mistakes"),
    }
}

/// How many: "1 warning", "2 warnings".
fn warnings(diagnostics: &weir_config::Diagnostics) -> String {
    match diagnostics.warnings() {
        1 => "1 warning".to_owned(),
        count => format!("{count} warnings"),
    }
}

fn show(diagnostics: &weir_config::Diagnostics, as_json: bool) {
    if as_json {
        println!("{:#}", diagnostics.to_json());
    } else if !diagnostics.is_empty() {
        eprintln!("{diagnostics}");
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use weir_config::{Diagnostics, Snapshot};
    use weir_knee::{Backend, judge::Check, knee::SearchOutcome};
    use weir_parties::peer::Telemetry;
    use weir_trials::{
        Budget, KneeResult,
        result::{Conditions, shape_of},
    };

    const FOUND: &str = include_str!("../../lab/trials/src/testdata/knee.json");
    const CONFIG: &str = include_str!("../../examples/weir.toml");

    #[test]
    fn warnings_are_mistakes_with_strict_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("weir.toml");
        let args = |is_strict| super::CheckArgs {
            file: Some(file.clone()),
            offline: true,
            schema: false,
            reference: false,
            strict: is_strict,
            json: true,
        };
        fs::write(&file, CONFIG).expect("written");
        assert_eq!(super::run(&args(true)), Ok(()));
        let unused = "\n[[upstream]]\nname = \"unused\"\nendpoints = [\"127.0.0.1:1\"]\n";
        fs::write(&file, format!("{CONFIG}{unused}")).expect("written");
        assert_eq!(super::run(&args(false)), Ok(()));
        let refusal = super::run(&args(true)).expect_err("a warning");
        assert!(refusal.contains("1 warning") && refusal.contains("--strict"), "{refusal}");
    }

    /// Result of the lab, in the form that it writes for this kind of search.
    fn found(backend: Backend, is_quick: bool) -> KneeResult {
        let mut found = KneeResult::from_json(FOUND).expect("a result");
        let scenario = weir_load::scenario::parse("scenario.toml", &found.scenario).expect("a scenario");
        let telemetry = Telemetry::On;
        found.shape = shape_of(&scenario, &Conditions { budget: Budget::Cpus(1), backend, telemetry, is_quick });
        found
    }

    /// The configuration that the gateway makes of the result, with this many workers.
    fn judged(folder: &Path, found: &KneeResult, workers: u32) -> Result<Snapshot, Diagnostics> {
        fs::write(folder.join("knee.json"), serde_json::to_string(found).expect("plain figures")).expect("written");
        let config = CONFIG.replacen("\n[[upstream]]", "knee = \"knee.json\"\n\n[[upstream]]", 1);
        let file = folder.join("weir.toml");
        fs::write(&file, format!("{config}\n[runtime]\nworkers = {workers}\n")).expect("written");
        weir_config::load(&file, &|_| None)
    }

    /// Control may not use the lab, so it reads the result by the names of its fields: they must be the lab's.
    #[test]
    fn a_result_of_the_lab_is_understood_by_the_configuration() {
        let folder = tempfile::tempdir().expect("a folder");
        let written = found(Backend::Real, false);
        let snapshot = judged(folder.path(), &written, 1).expect("a good file");
        let knee = snapshot.listeners[0].knee.as_ref().expect("a knee");
        assert_eq!(Some(knee.requests_per_second), written.knee.capacity());
        assert_eq!((&knee.run_id, knee.measured_at), (&written.run_id, written.ended));
        let told = |words: &str| knee.caveats.iter().any(|caveat| caveat.contains(words));
        assert!(told("not below"), "that result is at the ceiling: {:?}", knee.caveats);
        assert!(!told("own back end") && !told("TLS"), "{:?}", knee.caveats);
        let synthetic = judged(folder.path(), &found(Backend::Synthetic, false), 1).expect("a good file");
        let caveats = &synthetic.listeners[0].knee.as_ref().expect("a knee").caveats;
        assert!(caveats.iter().any(|caveat| caveat.contains("own back end")), "{caveats:?}");
        let refusal = judged(folder.path(), &written, 2).expect_err("another budget").to_string();
        assert!(refusal.contains("found with 1 vCPU") && refusal.contains("2 workers"), "{refusal}");
        let quick = judged(folder.path(), &found(Backend::Real, true), 1).expect_err("a quick look").to_string();
        assert!(quick.contains("weir.toml:") && quick.contains("not exact enough for a knee"), "{quick}");
    }

    #[test]
    fn the_machine_of_a_result_is_compared_with_this_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut here = found(Backend::Real, false);
        here.host.kernel = weir_engine::host::kernel();
        here.host.cpu_model = weir_engine::host::cpu_model();
        let mut there = here.clone();
        there.host.kernel = Some("1.0.0".to_owned());
        for (result, is_told) in [(here, false), (there, true)] {
            let snapshot = judged(folder.path(), &result, 1).expect("a good file");
            let caveats = &snapshot.listeners[0].knee.as_ref().expect("a knee").caveats;
            assert_eq!(caveats.iter().any(|caveat| caveat.contains("another kernel")), is_told, "{caveats:?}");
        }
    }

    #[test]
    fn a_result_without_capacity_for_the_lab_has_none_for_the_gateway() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = Check::GeneratorLag;
        let outcomes = [
            SearchOutcome::Verified,
            SearchOutcome::AtCeiling,
            SearchOutcome::Below { rate: 9.0 },
            SearchOutcome::Unstable,
            SearchOutcome::Invalid { check },
            SearchOutcome::Unsteady,
            SearchOutcome::TooFewSamples { n: 3 },
            SearchOutcome::MixUp,
            SearchOutcome::TrialLimit,
        ];
        for outcome in outcomes {
            let mut result = found(Backend::Real, false);
            result.knee.outcome = outcome;
            let judged = judged(folder.path(), &result, 1);
            assert_eq!(judged.is_ok(), result.knee.capacity().is_some(), "{outcome:?}");
        }
        let mut sideless = found(Backend::Real, false);
        sideless.knee.clean = None;
        assert!(judged(folder.path(), &sideless, 1).is_err());
    }
}
