//! `cargo xtask soak upgrade`: the lab's open-loop load against a gateway whose program is upgraded every few seconds,
//! beside a quiet run of the same length; and the same for HAProxy, which is reloaded.
//!
//! What counts as an error is the generator's own judgement: a request that was sent, or appended to be sent, and whose
//! connection ended; a wrong reply; an error reply; a time-out; a request for which no connection stood. A connection that
//! ends with nothing under way is made again by the generator and is no error, but it is told.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_knee::markdown::Table;
use weir_parties::interrupt;
use weir_parties::peer::{find_program, version_line};
use weir_parties::place::free_port;
use weir_parties::process::{Launch, Process};

use crate::bench::peers::origin::Origin;
use crate::bench::peers::weir::{Program, Settings, ask, release_build};
use crate::bench::place::Place;
use crate::words::Words;
use crate::workspace::Workspace;

pub(crate) const USAGE: &str = "\
cargo xtask soak upgrade [option ...]    open-loop load while the program of the gateway is upgraded, beside a quiet run

  --seconds N          length of each run (default 60)
  --every N            seconds between two upgrades (default 5)
  --rate N             requests per second (default 4000)
  --connections N      connections of the load (default 50)
  --quick              runs of 15 s
  --no-haproxy         only Weir
  --weir FILE          this program, and not a fresh release build

Exit status 1 if an upgrade of Weir failed or a client of Weir saw an error. HAProxy is there to be compared with.
";

/// Exit of the load after its last phase: preload, warm-up and the merging of histograms.
const LOAD_SLACK: Duration = Duration::from_secs(60);
/// Between the begin of the load and the first upgrade: the keys are written before the window begins.
const WARMUP: Duration = Duration::from_secs(2);

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    seconds: u64,
    every: u64,
    rate: u64,
    connections: u32,
    haproxy: bool,
    weir: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { seconds: 60, every: 5, rate: 4_000, connections: 50, haproxy: true, weir: None };
        let mut words = Words::new(words, USAGE);
        while let Some(option) = words.option() {
            match option {
                "--seconds" => options.seconds = words.number()?,
                "--every" => options.every = words.number()?,
                "--rate" => options.rate = words.number()?,
                "--connections" => options.connections = words.number()?,
                "--quick" => options.seconds = 15,
                "--no-haproxy" => options.haproxy = false,
                "--weir" => options.weir = Some(words.value()?.into()),
                _ => return Err(words.unknown()),
            }
        }
        ensure!(options.every > 0 && options.seconds > options.every, "--seconds has to be longer than --every");
        ensure!(options.rate > 0 && options.connections > 0, "--rate and --connections need at least 1");
        Ok(options)
    }

    fn scenario(&self) -> String {
        let Self { seconds, rate, connections, .. } = self;
        let warmup = WARMUP.as_secs();
        format!(
            "name = \"upgrade\"\nprotocol = \"redis\"\nmode = \"open\"\narrival = \"poisson\"\nseed = 1\nshards = 1\n\
             connections = {connections}\npipeline = 1\nslo_p99 = \"100ms\"\nintegrity = true\n\
             [keys]\ncount = 10_000\nprefix = \"key:\"\ndistribution = \"zipf\"\nexponent = 0.99\npreload = true\n\
             [payload]\nsize = \"64B\"\n[[command]]\nname = \"GET\"\nweight = 80\n[[command]]\nname = \"SET\"\nweight = 20\n\
             [[phase]]\nname = \"steady\"\nrate = {rate}\nwarmup = \"{warmup}s\"\nduration = \"{seconds}s\"\n"
        )
    }
}

/// What one run showed.
struct Run {
    completed: u64,
    errors: u64,
    /// The classes that occurred, with their counts.
    classes: String,
    skipped: u64,
    connections_lost: u64,
    p50: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
    /// How long each upgrade took to be answered, if there were any.
    upgrades: Vec<Duration>,
    /// Processes of the gateway at the end.
    processes: usize,
}

impl Run {
    /// From the generator's line of JSON.
    fn read(line: &str) -> Result<Self> {
        let record: Value = serde_json::from_str(line).context("the record of the load")?;
        let counts = &record["counts"];
        let number = |value: &Value| value.as_u64().context("a count is missing in the record of the load");
        let errors = counts["errors"].as_object().context("no errors in the record of the load")?;
        let classes = errors.iter().filter(|(_, count)| count.as_u64() != Some(0));
        let classes: Vec<String> = classes.map(|(class, count)| format!("{count} {class}")).collect();
        let sojourn = &record["latency"]["sojourn"];
        Ok(Self {
            completed: number(&counts["completed"])?,
            errors: errors.values().filter_map(Value::as_u64).sum(),
            classes: classes.join(", "),
            skipped: number(&counts["skipped_backlog"])? + number(&counts["skipped_generator"])?,
            connections_lost: number(&record["verdict"]["evidence"]["connections_lost"]).unwrap_or(0),
            p50: sojourn["p50"].as_u64(),
            p99: sojourn["p99"].as_u64(),
            p999: sojourn["p999"].as_u64(),
            max: sojourn["max"].as_u64(),
            upgrades: Vec::new(),
            processes: 1,
        })
    }
}

/// Something that serves on a port and can be upgraded.
struct Gateway {
    port: u16,
    /// The first process. It is not asked how it is: its end would be taken for the end of all.
    first: Process,
    kind: Kind,
}

enum Kind {
    Weir { program: PathBuf, admin: u16 },
    HaProxy,
}

impl Gateway {
    /// Returns once another process serves, or at once where nobody says.
    fn upgrade(&mut self) -> Result<()> {
        match &self.kind {
            Kind::Weir { program, admin } => {
                let url = format!("http://127.0.0.1:{admin}");
                let output = Command::new(program).args(["upgrade", "--admin", &url]).output()?;
                ensure!(output.status.success(), "weir upgrade: {}", String::from_utf8_lossy(&output.stderr).trim());
                Ok(())
            }
            Kind::HaProxy => {
                let master = i32::try_from(self.first.id()).ok().and_then(Pid::from_raw).context("no process id")?;
                Ok(kill_process(master, Signal::USR2)?)
            }
        }
    }

    /// Processes of it that run now, HAProxy's master aside.
    fn processes(&self) -> usize {
        let all = in_group(self.first.id());
        match self.kind {
            Kind::Weir { .. } => all,
            Kind::HaProxy => all.saturating_sub(1),
        }
    }
}

/// Processes of the process group `group`.
fn in_group(group: u32) -> usize {
    let is_member = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>()).unwrap_or_default();
        fields.first().is_some_and(|state| *state != "Z") && fields.get(2) == Some(&group.to_string().as_str())
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter(is_member).count()
}

/// Runs all of it and prints the table.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    interrupt::watch()?;
    let weir = match &options.weir {
        Some(program) => program.clone(),
        None => release_build(&Workspace::load()?)?,
    };
    let mut table = Table::new(&[
        "gateway",
        "run",
        "completed",
        "errors",
        "skipped",
        "connections lost",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "upgrades",
        "upgrade p50 ms",
        "upgrade max ms",
        "processes at the end",
    ]);
    let mut is_bad = false;
    let haproxy = find_program("haproxy").filter(|_| options.haproxy);
    if options.haproxy && haproxy.is_none() {
        eprintln!("soak: no haproxy on the PATH (Debian: apt install haproxy); only Weir is run");
    }
    let arms: Vec<&str> = std::iter::once("weir").chain(haproxy.as_ref().map(|_| "haproxy")).collect();
    for arm in arms {
        for upgrades in [false, true] {
            let place = Place::new()?;
            let origin = Origin::start(&place)?;
            eprintln!("soak: {arm}, {}", if upgrades { "upgrades" } else { "quiet" });
            let mut gateway = match &haproxy {
                Some(program) if arm == "haproxy" => start_haproxy(&place, program, &origin)?,
                _ => start_weir(&place, &weir, &origin)?,
            };
            let run = measure(&place, &weir, &mut gateway, &options, upgrades)?;
            is_bad |= arm == "weir" && run.errors > 0;
            table.row(row(arm, upgrades, run));
        }
    }
    let versions = haproxy.map(|program| version_line(program, &["-v"])).unwrap_or_default();
    let Options { seconds, every, rate, connections, .. } = options;
    println!(
        "# Upgrades under open-loop load\n\n- {}\n- {versions}\n- {rate} requests/s, {connections} connections, {seconds} s \
         each; an upgrade every {every} s\n\n{}",
        version_line(&weir, &["--version"]),
        table.markdown()
    );
    ensure!(!is_bad, "a client of Weir saw an error");
    Ok(())
}

fn row(arm: &str, upgrades: bool, mut run: Run) -> Vec<String> {
    let micros = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let millis = |value: Option<&Duration>| value.map_or_else(|| "-".to_owned(), |took| took.as_millis().to_string());
    run.upgrades.sort();
    let half = run.upgrades.get(run.upgrades.len() / 2);
    vec![
        arm.to_owned(),
        if upgrades { "upgrades" } else { "quiet" }.to_owned(),
        run.completed.to_string(),
        if run.errors == 0 { "0".to_owned() } else { run.classes },
        run.skipped.to_string(),
        run.connections_lost.to_string(),
        micros(run.p50),
        micros(run.p99),
        micros(run.p999),
        micros(run.max),
        run.upgrades.len().to_string(),
        millis(half),
        millis(run.upgrades.last()),
        run.processes.to_string(),
    ]
}

/// One load from its begin to its end, with upgrades or without.
fn measure(place: &Place, weir: &Path, gateway: &mut Gateway, options: &Options, upgrades: bool) -> Result<Run> {
    let (scenario, json) = (place.path().join("scenario.toml"), place.path().join("load.jsonl"));
    std::fs::write(&scenario, options.scenario())?;
    let mut words: Vec<std::ffi::OsString> = vec![weir.into(), "lab".into(), "load".into(), scenario.into()];
    words.extend(["--target".into(), format!("127.0.0.1:{}", gateway.port).into(), "--quiet".into()]);
    words.extend(["--json".into(), json.clone().into_os_string()]);
    let mut load = Process::start(Launch::new("load", Some(&place.load_cpu), words), place.path())?;
    let length = WARMUP + Duration::from_secs(options.seconds);
    let (begun, every) = (Instant::now(), Duration::from_secs(options.every));
    let mut took = Vec::new();
    if upgrades {
        let mut next = WARMUP + every;
        while next < length {
            interrupt::sleep(next.saturating_sub(begun.elapsed()))?;
            let asked = Instant::now();
            gateway.upgrade()?;
            took.push(asked.elapsed());
            next += every;
        }
    }
    let status = load.wait(length + LOAD_SLACK)?;
    ensure!(status.success(), "the load ended with {status}: {}", load.tail());
    let text = std::fs::read_to_string(&json)?;
    let run = Run::read(text.lines().next().context("the load wrote no record")?)?;
    Ok(Run { upgrades: took, processes: gateway.processes(), ..run })
}

fn start_weir(place: &Place, program: &Path, origin: &Origin) -> Result<Gateway> {
    let mut settings = Settings::new(origin.port)?;
    settings.workers = None;
    let words = format!("{} run --config {{config}}", program.display());
    let first = Program::command(&words).start("weir", &settings, None, place.path())?;
    let answer = ask(settings.admin, "GET", "/readyz")?;
    ensure!(answer.status == 200, "the gateway is not ready: {}", answer.body);
    let kind = Kind::Weir { program: program.to_owned(), admin: settings.admin };
    Ok(Gateway { port: settings.port, first, kind })
}

/// In master-worker mode: at SIGUSR2 the master starts itself anew, and the new worker gets the sockets of the old one
/// through the statistics socket (`expose-fd listeners`).
fn start_haproxy(place: &Place, program: &Path, origin: &Origin) -> Result<Gateway> {
    let (port, folder) = (free_port()?, place.path());
    let config = folder.join("haproxy.cfg");
    let socket = folder.join("haproxy.sock");
    std::fs::write(
        &config,
        format!(
            "global\n  nbthread 2\n  maxconn 2000\n  stats socket {} mode 600 level admin expose-fd listeners\n\
             defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n\
             listen redis\n  bind 127.0.0.1:{port}\n  server origin 127.0.0.1:{}\n",
            socket.display(),
            origin.port
        ),
    )?;
    let words = [program.as_os_str(), "-W".as_ref(), "-db".as_ref(), "-f".as_ref(), config.as_os_str()];
    let mut master = Process::start(Launch::new("haproxy", None, words), folder)?;
    master.wait_for_port(port)?;
    Ok(Gateway { port, first: master, kind: Kind::HaProxy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_mistakes_named() {
        let options = Options::parse(&["--quick", "--rate", "100", "--no-haproxy"]).expect("options");
        assert_eq!((options.seconds, options.rate, options.haproxy), (15, 100, false));
        assert!(Options::parse(&["--fast"]).unwrap_err().to_string().contains("`--fast`"));
        assert!(Options::parse(&["--seconds", "3"]).is_err(), "not even one upgrade");
    }

    #[test]
    fn every_class_of_error_counts() {
        let line = r#"{"counts":{"completed":10,"skipped_backlog":1,"skipped_generator":2,
            "errors":{"transport":1,"protocol":2,"status":3,"timeout":4,"payload":5}},
            "latency":{"sojourn":{"p50":100,"p99":300,"p999":null,"max":900}},
            "verdict":{"evidence":{"connections_lost":7}}}"#;
        let run = Run::read(line).expect("a record");
        assert_eq!((run.completed, run.errors, run.skipped, run.connections_lost), (10, 15, 3, 7));
        assert_eq!(run.classes, "5 payload, 2 protocol, 3 status, 4 timeout, 1 transport");
        assert_eq!((run.p50, run.p99, run.p999, run.max), (Some(100), Some(300), None, Some(900)));
        assert!(Run::read("{}").is_err());
    }
}
