//! One load from several processes, and from parts that were sent apart: the same load, one record, and nothing left running.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::program;
use weir_tests::server::{Kind, Server};

use super::{Bench, Origin, number};

const SCENARIO: &str = r#"
name = "together"
protocol = "redis"
arrival = "poisson"
seed = 11
shards = 4
connections = 10
late_limit = "3s"
keys = { count = 500 }
command = [{ name = "GET", weight = 80 }, { name = "SET", weight = 20 }]
[[phase]]
name = "low"
rate = 700
warmup = "500ms"
duration = "2s"
[[phase]]
name = "high"
rate = 1100
warmup = "0s"
duration = "2s"
"#;

/// The fields of a record that do not depend on speed. The SET that a GET meets, of two, does depend on it.
fn load(record: &Value) -> Vec<Value> {
    let mut record = record.clone();
    record["counts"]["integrity"]["race_suspect"].take();
    [
        "/row",
        "/step",
        "/seed",
        "/arm",
        "/load",
        "/host",
        "/placement",
        "/counts",
        "/latency/sojourn/n",
        "/latency/service/n",
    ]
    .map(|path| record.pointer(path).unwrap_or_else(|| panic!("no {path} in {record}")).clone())
    .to_vec()
}

fn records(bench: &Bench, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(bench.path(name)).expect("records");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A load with its records, and what it said.
fn sent(bench: &Bench, target: &str, json: &str, words: &[&str]) -> (String, Vec<Value>) {
    let fixed = ["lab", "load", "scenario.toml", "--target", target, "--json", json];
    let output = bench.weir(&[], &[&fixed, words].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    (String::from_utf8_lossy(&output.stdout).into_owned() + &told, records(bench, json))
}

fn refused(bench: &Bench, words: &[&str]) -> String {
    let output = bench.weir(&[], words);
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn several_processes_send_the_load_of_one_and_write_one_record_per_phase() {
    let bench = Bench::new(&SCENARIO.replace("poisson", "deterministic"));
    let origin = Origin::start(&[]);
    let (_, one) = sent(&bench, &origin.address, "one.jsonl", &[]);
    let (told, two) = sent(&bench, &origin.address, "two.jsonl", &["--processes", "2"]);
    assert_eq!((one.len(), two.len()), (2, 2));
    for (one, two) in one.iter().zip(&two) {
        assert_eq!(load(two), load(one), "{told}");
        assert_eq!(two.get("part"), None);
        assert_eq!(number(two, "/counts/completed"), number(two, "/counts/intended"));
        assert_eq!(number(two, "/counts/integrity/checked"), number(two, "/counts/completed"));
        assert_eq!(number(two, "/resources/parties/generator/threads"), 4.0);
    }
    assert_eq!(number(&two[0], "/counts/intended"), 1_400.0, "a deterministic rate is exact");
    assert_eq!(number(&two[1], "/counts/intended"), 2_200.0);
    // The live view and the tables are those of all together.
    assert!(told.contains("writing 500 keys\n"), "{told}");
    for (phase, rate) in [("low", 700), ("high", 1_100)] {
        let second = |line: &&str| line.starts_with(&format!("{phase}: ")) && line.contains(" s left");
        let seconds: Vec<&str> = told.lines().filter(second).collect();
        // The last one ends when the phase does, and may not be reported any more.
        assert!(!seconds.is_empty() && seconds.len() <= 3, "{told}");
        // A slightly late request counts in the next one.
        let completed = seconds[0].split("  ").nth(1).and_then(|word| word.strip_suffix("/s")?.parse::<u32>().ok());
        assert!(completed.is_some_and(|count| count.abs_diff(rate) < rate / 4), "{told}");
        assert_eq!(told.matches(&format!("together / {phase}: open loop, 2.0 s")).count(), 1, "{told}");
    }
}

#[test]
fn the_server_sees_the_same_commands_from_any_number_of_processes() {
    let bench = Bench::new(SCENARIO);
    let commands = |processes: &str| {
        let server = Server::start(Kind::Redis);
        let target = server.address.tcp().to_string();
        let (_, records) = sent(&bench, &target, "out.jsonl", &["--processes", processes, "--quiet"]);
        let intended: Vec<Value> = records.iter().map(|record| record["counts"]["intended"].clone()).collect();
        (server.calls("get"), server.calls("set"), intended)
    };
    let one = commands("1");
    assert!(one.0 > 2_000 && one.1 > 1_000, "{one:?}");
    for processes in ["2", "3", "4"] {
        assert_eq!(commands(processes), one, "{processes} processes");
    }
}

#[test]
fn parts_that_were_sent_apart_merge_to_the_same_and_nothing_else_does() {
    let bench = Bench::new(SCENARIO);
    let origin = Origin::start(&[]);
    let (_, whole) = sent(&bench, &origin.address, "whole.jsonl", &[]);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let start = (since.as_secs() + 4).to_string();
    thread::scope(|scope| {
        for part in ["1", "2"] {
            let (bench, target, start) = (&bench, &origin.address, &start);
            scope.spawn(move || {
                let (json, part) = (format!("part-{part}.jsonl"), format!("{part}/2"));
                sent(bench, target, &json, &["--part", &part, "--start-at", start, "--quiet"])
            });
        }
    });
    let output = bench.weir(&[], &["lab", "merge", "part-2.jsonl", "part-1.jsonl", "--json", "merged.jsonl"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("together / low: open loop") && told.contains("together / high: open loop"), "{told}");
    // The whole is judged, not its parts.
    let gated = ["lab", "merge", "part-1.jsonl", "part-2.jsonl", "--threshold", "rate>90M", "--threshold", "errors>1%"];
    let output = bench.weir(&[], &gated);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(is_missed(&output, &told, "errors>1%"), "{told}");
    // The latency target is that of the parts.
    for part in ["1", "2"] {
        let mut records = records(&bench, &format!("part-{part}.jsonl"));
        records.iter_mut().for_each(|record| record["part"]["slo_p99_us"] = 1.into());
        let text: String = records.iter().map(|record| format!("{record}\n")).collect();
        fs::write(bench.path(&format!("target-{part}.jsonl")), text).expect("written");
    }
    let output = bench.weir(&[], &["lab", "merge", "target-1.jsonl", "target-2.jsonl", "--json", "target.jsonl"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(is_missed(&output, &told, "p99<=1us"), "{told}");
    assert!(told.trim_end().ends_with("target.html") && bench.path("target.html").exists(), "{told}");
    let merged = records(&bench, "merged.jsonl");
    assert_eq!(merged.iter().map(load).collect::<Vec<_>>(), whole.iter().map(load).collect::<Vec<_>>());
    let half = &records(&bench, "part-1.jsonl")[0];
    assert!(number(half, "/counts/intended") < number(&merged[0], "/counts/intended"));
    assert_eq!((number(half, "/load/offered"), number(half, "/part/load/offered")), (350.0, 700.0));
    // Parts that do not belong together.
    let other = SCENARIO.replace("seed = 11", "seed = 12");
    fs::write(bench.path("scenario.toml"), other).expect("written");
    let start = (since.as_secs() + 30).to_string();
    let words = ["lab", "merge", "part-1.jsonl"];
    let merge = |files: &[&str]| refused(&bench, &[&words, files].concat());
    assert!(merge(&[]).contains("phase 1: missing: part 2/2"));
    assert!(merge(&["part-1.jsonl"]).contains("part 1/2 comes twice, in part-1.jsonl:1 and in part-1.jsonl:1"));
    assert!(merge(&["whole.jsonl"]).contains("whole.jsonl:1: this is a whole run, or was merged already"));
    fs::write(bench.path("foreign.jsonl"), foreign(&bench, "seed")).expect("written");
    assert!(merge(&["foreign.jsonl"]).contains("part-1.jsonl:1 and foreign.jsonl:1 are not parts of one run"));
    // And starts that cannot be.
    let load = ["lab", "load", "scenario.toml", "--target", &origin.address, "--json", "late.jsonl"];
    let late = refused(&bench, &[&load[..], &["--part", "1/2", "--start-at", "2026-01-02T03:04:05Z"]].concat());
    assert!(late.contains("the start, 2026-01-02T03:04:05Z, was ") && late.contains("nothing was sent"), "{late}");
    let many = refused(&bench, &[&load[..], &["--part", "5/5", "--start-at", &start]].concat());
    assert!(many.contains("5 processes need a shard each, and the scenario has 4"), "{many}");
}

/// Missed; or on a busy machine the generator was late, which proves nothing about the target, and the command says so.
fn is_missed(output: &std::process::Output, told: &str, threshold: &str) -> bool {
    match output.status.code() {
        Some(99) => told.contains(&format!("MISSED  {threshold}")),
        Some(98) => told.contains("INVALID: generator-") && told.contains(&format!("unknown {threshold}")),
        _ => false,
    }
}

/// The records of part 2 with another number in a field.
fn foreign(bench: &Bench, field: &str) -> String {
    let mut records = records(bench, "part-2.jsonl");
    for record in &mut records {
        record[field] = 12.into();
    }
    records.iter().map(|record| format!("{record}\n")).collect()
}

#[test]
fn too_few_shards_and_a_dead_target_end_the_run_before_any_load() {
    let bench = Bench::new(SCENARIO);
    let address = format!("127.0.0.1:{}", weir_tests::port::free());
    let load = ["lab", "load", "scenario.toml", "--target", &address, "--processes"];
    let few = refused(&bench, &[&load[..], &["5"]].concat());
    assert!(
        few.contains("5 processes need a shard each, and the scenario has 4") && few.contains("`shards = 5`"),
        "{few}"
    );
    let dead = refused(&bench, &[&load[..], &["4"]].concat());
    assert!(dead.contains("of the generator: cannot reach") && dead.contains("nothing was sent"), "{dead}");
}

/// A load of two processes that goes on for a minute.
struct Running {
    bench: Bench,
    _origin: Origin,
    conductor: Child,
    processes: Vec<u32>,
}

impl Running {
    fn start() -> Self {
        let bench = Bench::new(&SCENARIO.replace("duration = \"2s\"", "duration = \"60s\""));
        let origin = Origin::start(&[]);
        let words = ["lab", "load", "scenario.toml", "--target", &origin.address, "--processes", "2"];
        let said = fs::File::create(bench.path("said")).expect("a file");
        let mut command = Command::new(program());
        command.args(words).current_dir(bench.folder.path()).env("TMPDIR", bench.folder.path());
        let conductor = command.stdout(Stdio::null()).stderr(said).spawn().expect("weir starts");
        let mut running = Self { bench, _origin: origin, conductor, processes: Vec::new() };
        until_true("the load to go on", || running.said().contains("low: "));
        running.processes = children(running.conductor.id());
        assert_eq!(running.processes.len(), 2);
        running
    }

    fn said(&self) -> String {
        fs::read_to_string(self.bench.path("said")).unwrap_or_default()
    }

    /// Waits until all processes have ended, soon and with a failure. Returns their output.
    fn ended(mut self) -> String {
        let begun = Instant::now();
        let status = until("the run to end", Duration::from_secs(15), || self.conductor.try_wait().expect("a child"));
        assert!(!status.success(), "{status}");
        until_true("all processes to end", || !self.processes.iter().any(|process| is_running(*process)));
        assert!(begun.elapsed() < Duration::from_secs(15));
        self.said()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.conductor.kill();
        let _ = self.conductor.wait();
    }
}

fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).expect("its children");
    text.split_whitespace().map(|id| id.parse().expect("a number")).collect()
}

fn is_running(process: u32) -> bool {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).contains("load-part")
}

fn signal(name: &str, process: u32) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().expect("kill starts");
    assert!(status.success());
}

#[test]
fn a_process_that_dies_ends_the_run_and_the_other_process() {
    let running = Running::start();
    signal("KILL", running.processes[1]);
    let said = running.ended();
    assert!(said.contains("weir: process-2 of the generator ended with signal: 9"), "{said}");
}

#[test]
fn an_interrupted_or_killed_conductor_leaves_nothing_running() {
    let running = Running::start();
    signal("INT", running.conductor.id());
    assert!(running.ended().contains("weir: interrupted"));
    let running = Running::start();
    signal("KILL", running.conductor.id());
    running.ended();
}

#[test]
fn the_command_of_a_process_is_hidden_and_explains_itself() {
    let bench = Bench::new(SCENARIO);
    // Its standard input is at its end, as with /dev/null.
    let text = refused(&bench, &["lab", "load-part"]);
    assert!(text.contains("this command is for `weir lab load --processes`"), "{text}");
    let help = String::from_utf8_lossy(&bench.weir(&[], &["lab", "--help"]).stdout).into_owned();
    assert!(help.contains("merge") && !help.contains("load-part"), "{help}");
}
