//! Loads without a scenario file, thresholds with exit codes, the page of a load, and a size from one command.

use std::fs;
use std::process::Output;

use serde_json::Value;

use super::{Bench, Hog, Origin, number, word};

/// Exit codes as the guide has them.
const MET: i32 = 0;
const MISTAKE: i32 = 1;
const INVALID: i32 = 98;
const MISSED: i32 = 99;

/// A closed loop, which no busy machine makes invalid: there the generator is late by its nature.
const SHORT: [&str; 8] = ["--connections", "4", "--warmup", "100ms", "--for", "1s", "--json", "load.jsonl"];

fn bench() -> Bench {
    Bench::new("")
}

fn load(bench: &Bench, url: &str, words: &[&str]) -> Output {
    bench.weir(&[], &[&["lab", "load", url, "--quiet"], words].concat())
}

/// As [`load`], until some requests completed: on a busy machine an origin can stand still for a whole second.
fn served(bench: &Bench, url: &str, words: &[&str]) -> Output {
    let completed = || number(&record(bench, "load.jsonl"), "/counts/completed");
    let mut outputs = (0..5).map(|_| load(bench, url, words));
    outputs.find(|_| completed() > 0.0).expect("one of five loads completes requests")
}

fn shown(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn record(bench: &Bench, name: &str) -> Value {
    let text = fs::read_to_string(bench.path(name)).expect("a record");
    serde_json::from_str(text.lines().next().expect("a line")).expect("JSON")
}

#[test]
fn a_url_of_every_protocol_is_loaded_without_a_file_and_its_thresholds_are_met() {
    let bench = bench();
    let (redis, http, tcp) = (Origin::start(&[]), Origin::of("http", &[]), Origin::of("tcp", &[]));
    for (url, protocol) in [
        (format!("redis://{}", redis.address), "redis"),
        (format!("http://{}/", http.address), "http1"),
        (format!("http://{}/2000", http.address), "http1"),
        (format!("h2c://{}/7", http.address), "http2"),
        (format!("ws://{}/", http.address), "websocket"),
        (format!("tcp://{}", tcp.address), "tcp"),
    ] {
        let gates = ["--threshold", "errors==0", "--threshold", "rate>10", "--threshold", "p99<30s"];
        let output = served(&bench, &url, &[&SHORT[..], &gates].concat());
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(MET), "{url}\n{text}");
        for row in [
            "met     errors==0",
            "met     rate>10",
            "/ load: closed loop, 1.0 s",
            "target        127.0.0.1:",
            "latency up to",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80), "{text}");
        let record = record(&bench, "load.jsonl");
        assert!(word(&record, "/row").starts_with(&format!("{protocol}-127.0.0.1")), "{record}");
        // For a page of any length only the status is known, and nothing counts as checked.
        let is_status_only = protocol.starts_with("http");
        let checked = if is_status_only { 0.0 } else { number(&record, "/counts/completed") };
        assert_eq!(number(&record, "/counts/integrity/checked"), checked, "{record}");
        assert_eq!(text.contains("checked: status only"), is_status_only, "{text}");
        assert_eq!(record.pointer("/thresholds/0/is_met"), Some(&Value::Bool(true)), "{record}");
    }
}

#[test]
fn a_missed_threshold_ends_with_99_and_so_does_the_latency_target_of_a_scenario() {
    let bench = bench();
    let origin = Origin::of("tcp", &[]);
    let url = format!("tcp://{}", origin.address);
    for gate in ["rate>90M", "max<1us", "errors>1%"] {
        let output = load(&bench, &url, &[&SHORT[..], &["--threshold", gate]].concat());
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(MISSED), "{gate}\n{text}");
        assert!(text.contains(&format!("MISSED  {gate}")), "{text}");
    }
    let scenario = "name = \"target\"\nprotocol = \"tcp\"\nmode = \"closed\"\nconnections = 4\nslo_p99 = \"10us\"\n\
                    threshold = [\"errors<1%\"]\n[[phase]]\nwarmup = \"0s\"\nduration = \"1s\"\n";
    fs::write(bench.path("scenario.toml"), scenario).expect("written");
    let output = load(&bench, "scenario.toml", &["--target", &origin.address, "--threshold", "rate>10"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(MISSED), "{text}");
    for row in ["MISSED  p99<=10us", "met     errors<1%", "met     rate>10", "not clean: slo"] {
        assert!(text.contains(row), "{row} is not in\n{text}");
    }
}

#[test]
fn a_run_whose_figures_do_not_count_ends_with_98_if_there_are_thresholds() {
    let bench = bench();
    let origin = Origin::of("tcp", &[]);
    let url = format!("tcp://{}", origin.address);
    let few = load(&bench, &url, &["--rate", "50", "--for", "1s", "--warmup", "0s", "--threshold", "p99.99<1s"]);
    assert_eq!(few.status.code(), Some(INVALID), "{}", shown(&few));
    assert!(shown(&few).contains("unknown p99.99<1s"), "{}", shown(&few));
    // A generator that others leave no CPU for is late. It gets more than one chance to be.
    let last = std::thread::available_parallelism().expect("CPUs").get() - 1;
    let _hogs: Vec<Hog> = (0..4).map(|_| Hog::start(last)).collect();
    let cpu = last.to_string();
    let starved = |words: &[&str]| {
        let load = ["lab", "load", &url, "--quiet", "--rate", "500", "--for", "1s", "--warmup", "0s"];
        bench.weir(&["nice", "-n", "19", "taskset", "-c", &cpu], &[&load[..], words].concat())
    };
    // A tight bound: whatever a late generator did not send is no error of the target.
    let mut outputs = (0..5).map(|_| starved(&["--threshold", "errors<0.1%"]));
    let found = outputs.find(|output| shown(output).contains("INVALID: ")).expect("one of five runs is invalid");
    assert_eq!(found.status.code(), Some(INVALID), "{}", shown(&found));
    assert!(shown(&found).contains("INVALID: generator-") && !shown(&found).contains("MISSED"), "{}", shown(&found));
    // Without a threshold there is nothing to judge.
    let output = starved(&[]);
    assert_eq!(output.status.code(), Some(MET), "{}", shown(&output));
}

#[test]
fn failures_miss_a_threshold_of_errors() {
    let bench = bench();
    let origin = Origin::of("http", &[]);
    // The origin has no such path.
    let url = format!("http://{}/no/such/path", origin.address);
    let output = load(&bench, &url, &[&SHORT[..], &["--threshold", "errors<0.1%"]].concat());
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(MISSED), "{text}");
    assert!(text.contains("MISSED  errors<0.1%") && text.contains("(status "), "{text}");
}

#[test]
fn a_target_that_hangs_or_dies_misses_its_thresholds() {
    let bench = bench();
    // It accepts, and never replies.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("tcp://{}", silent.local_addr().expect("bound"));
    // Closed loops: no busy machine excuses the target.
    let short = ["--connections", "4", "--for", "1s", "--warmup", "0s"];
    for warmup in ["0s", "100ms"] {
        let words = ["--connections", "4", "--for", "1s", "--warmup", warmup, "--threshold", "p99<5ms"];
        let output = load(&bench, &url, &words);
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(MISSED), "{text}");
        assert!(text.contains("MISSED  p99<5ms") && text.contains("too few completed for a figure"), "{text}");
    }
    // It replies for a while, drops its connections, and is gone.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("tcp://{}", listener.local_addr().expect("bound"));
    let dying = std::thread::spawn(move || {
        let connections: Vec<_> = (0..4).map(|_| listener.accept().expect("a client").0).collect();
        drop(listener);
        std::thread::scope(|scope| {
            for stream in &connections {
                scope.spawn(move || {
                    let mut echo = stream;
                    // As far as 100 messages.
                    let _ = std::io::copy(
                        &mut std::io::Read::take(&mut echo.try_clone().expect("a copy"), 6_400),
                        &mut echo,
                    );
                });
            }
        });
    });
    let output = load(&bench, &url, &[&short[..], &["--threshold", "rate>1990"]].concat());
    dying.join().expect("it only echoes");
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(MISSED), "{text}");
    assert!(text.contains("MISSED  rate>1990"), "{text}");
}

#[test]
fn a_threshold_of_the_command_line_measures_a_url_and_a_file_alike() {
    let bench = bench();
    let origin = Origin::of("tcp", &[]);
    let url = format!("tcp://{}", origin.address);
    let two = ["--processes", "2"];
    let written = load(&bench, &url, &[&SHORT[..], &two, &["--write", "load.toml"]].concat());
    assert!(written.status.success(), "{}", shown(&written));
    let gates = ["--threshold", "p99<1s", "--threshold", "p99<500ms"];
    let output = load(&bench, &url, &[&SHORT[..], &two, &gates].concat());
    assert_eq!(output.status.code(), Some(MET), "{}", shown(&output));
    let of_url = record(&bench, "load.jsonl");
    // 20 times the lowest bound.
    assert_eq!(number(&of_url, "/load/late_limit_us"), 10e6, "{of_url}");
    for processes in [&[][..], &two] {
        let words = [&["--target", &origin.address, "--json", "file.jsonl"], &gates[..], processes].concat();
        let output = load(&bench, "load.toml", &words);
        assert_eq!(output.status.code(), Some(MET), "{}", shown(&output));
        assert_eq!(record(&bench, "file.jsonl").pointer("/load"), of_url.pointer("/load"));
    }
}

#[test]
fn a_mistake_of_use_ends_with_1_and_names_the_remedy() {
    let bench = bench();
    fs::write(bench.path("scenario.toml"), super::SCENARIO).expect("written");
    for (words, why) in [
        (&["tcp://127.0.0.1:9", "--threshold", "p99<5"][..], "threshold \"p99<5\": the bound \"5\" is not a time"),
        (&["https://127.0.0.1/"], "speaks no TLS"),
        (&["redis://:secret@127.0.0.1"], "no user and no password"),
        (&["tcp://127.0.0.1:9", "--for", "1s"], "cannot reach 127.0.0.1:9"),
        (&["tcp://127.0.0.1:9", "--target", "127.0.0.1:9"], "a URL names its target itself"),
        (&["scenario.toml"], "--target is missing"),
        (&["scenario.toml", "--target", "127.0.0.1:9", "--rate", "5"], "--rate is for a URL"),
        (&["http://127.0.0.1:9/", "--payload", "5 pounds"], "`payload.size` is no size"),
        (&["tcp://127.0.0.1:9", "--html", "absent/page.html"], "absent/page.html: "),
    ] {
        let output = bench.weir(&[], &[&["lab", "load"], words].concat());
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(MISTAKE), "{words:?}\n{text}");
        assert!(text.contains(why), "{words:?}: {why} is not in\n{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn the_scenario_of_a_url_is_written_and_makes_the_same_load() {
    let bench = bench();
    let origin = Origin::of("http", &[]);
    let url = format!("http://{}/5", origin.address);
    let options = [&SHORT[..], &["--threshold", "errors<1%"]].concat();
    let written = load(&bench, &url, &[&options[..], &["--write", "load.toml"]].concat());
    assert!(written.status.success() && written.stdout.is_empty(), "{}", shown(&written));
    assert!(!bench.path("load.jsonl").exists(), "nothing was sent");
    let printed = load(&bench, &url, &[&options[..], &["--write", "-"]].concat());
    assert_eq!(String::from_utf8_lossy(&printed.stdout), fs::read_to_string(bench.path("load.toml")).expect("written"));
    assert_eq!(load(&bench, &url, &options).status.code(), Some(MET));
    let direct = record(&bench, "load.jsonl");
    let output = load(&bench, "load.toml", &["--target", &origin.address, "--json", "again.jsonl"]);
    assert_eq!(output.status.code(), Some(MET), "{}", shown(&output));
    let again = record(&bench, "again.jsonl");
    for path in ["/row", "/seed", "/load", "/thresholds/0/threshold"] {
        assert_eq!(direct.pointer(path), again.pointer(path), "{path}");
        assert!(direct.pointer(path).is_some(), "{path}");
    }
}

#[test]
fn several_processes_send_the_load_of_a_url() {
    let bench = bench();
    let origin = Origin::of("tcp", &[]);
    let gate = ["--processes", "2", "--threshold", "errors==0"];
    let output = load(&bench, &format!("tcp://{}", origin.address), &[&SHORT[..], &gate].concat());
    assert_eq!(output.status.code(), Some(MET), "{}", shown(&output));
    assert_eq!(number(&record(&bench, "load.jsonl"), "/resources/parties/generator/threads"), 2.0);
}

#[test]
fn a_report_takes_loads_and_a_file_that_is_none_is_an_error() {
    let bench = bench();
    let origin = Origin::of("tcp", &[]);
    let gate = ["--threshold", "rate>90M"];
    let output = served(&bench, &format!("tcp://{}", origin.address), &[&SHORT[..], &gate].concat());
    // The page stands beside the result.
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().last(), Some("load.html"), "{}", shown(&output));
    let html = fs::read_to_string(bench.path("load.html")).expect("a page");
    assert!(html.contains("rate&gt;90M MISSED") && html.contains("share of the requests by latency"), "{html}");
    let reported = bench.weir(&[], &["lab", "report", "."]);
    assert!(reported.status.success(), "{}", shown(&reported));
    assert!(String::from_utf8_lossy(&reported.stdout).trim_end().ends_with("report.html"), "{}", shown(&reported));
    let text = fs::read_to_string(bench.path("report.md")).expect("a report");
    assert!(text.contains("## Loads") && text.contains("rate>90M MISSED") && text.contains("load.jsonl"), "{text}");
    // By its name, and with another ending.
    fs::rename(bench.path("load.jsonl"), bench.path("other.json")).expect("renamed");
    let reported = bench.weir(&[], &["lab", "report", "other.json", "--out", "page"]);
    assert!(reported.status.success() && bench.path("page/report.html").exists(), "{}", shown(&reported));
    fs::write(bench.path("foreign.jsonl"), "{\"schema\":\"x/1\"}\n").expect("written");
    let reported = bench.weir(&[], &["lab", "report", "."]);
    let text = shown(&reported);
    assert_eq!(reported.status.code(), Some(MISTAKE), "{text}");
    assert!(text.contains("not read: foreign.jsonl: line 1: ") && text.contains("1 file is no result"), "{text}");
}

#[test]
fn a_size_is_a_knee_and_a_plan_in_one_command() {
    let bench = bench();
    let refused = bench.weir(&[], &["lab", "size", "--behind", "127.0.0.1:6379", "--demand", "250k"]);
    assert_eq!(refused.status.code(), Some(MISTAKE));
    assert!(shown(&refused).contains("write redis://127.0.0.1:6379"), "{}", shown(&refused));
    let origin = Origin::start(&[]);
    let url = format!("redis://{}", origin.address);
    let words =
        ["lab", "size", "--behind", &url, "--demand", "20k", "--slo-p99", "500ms", "--quick", "--rate-max", "4k"];
    // Whether a machine is quiet decides on no test: a spoiled search must name a cause of the machine, and no number.
    const SPOILED: [&str; 7] =
        ["generator-cpu", "generator-lag", "origin-cpu", "steal", "throttled", "unstable", "unsteady"];
    for _ in 0..3 {
        let output = bench.weir(&[], &[&words[..], &["--json", "size.json"]].concat());
        let text = shown(&output);
        assert!(bench.path("size.html").exists(), "{text}");
        let stored = fs::read_to_string(bench.path("size.json")).expect("a result");
        let stored: Value = serde_json::from_str(&stored).expect("JSON");
        assert_eq!(number(&stored, "/size/demand/peak/0/1"), 20e3, "{text}");
        if output.status.success() {
            for row in
                ["stop reason", "clean knee", "Quick run: do not use it for sizing.", "9 instances of 1 vCPU each"]
            {
                assert!(text.contains(row), "{row} is not in\n{text}");
            }
            assert!(String::from_utf8_lossy(&output.stdout).trim_end().ends_with("size.html"), "{text}");
            assert_eq!(number(&stored, "/size/plan/instances"), 9.0, "{text}");
            return;
        }
        assert!(text.contains("no size for 20.0k requests/s") && !text.contains("instances of"), "{text}");
        let refusal = word(&stored, "/size/refusal");
        let is_spoiled = |cause: &&str| refusal.contains(&format!("no knee was found: invalid: {cause}"));
        assert!(refusal.starts_with("no size for 20.0k") && SPOILED.iter().any(is_spoiled), "{text}");
    }
    eprintln!("BUSY MACHINE: three searches were spoiled, and said so");
}
