//! Whole runs against an origin in this process.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use weir_engine::settings::Address;
use weir_load::{Event, RunError, StepRecord, scenario};
use weir_origin::redis::{Faults, Mode, Origin, OriginSettings, Stall, start};

/// A mix of all kinds of commands; `head` is what stands in front of it, `phases` what stands behind.
fn scenario(head: &str, phases: &str) -> scenario::Scenario {
    let source = format!(
        r#"
name = "test"
protocol = "redis"
{head}
[keys]
count = 500
[[command]]
name = "GET"
weight = 6
[[command]]
name = "SET"
weight = 3
[[command]]
name = "INCR"
[[command]]
name = "MGET"
keys = 3
[[command]]
words = ["APPEND", "{{key}}", "{{value}}"]
{phases}
"#
    );
    scenario::parse("test.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn origin(settings: OriginSettings) -> (Origin, Address) {
    let origin = start(settings).expect("an origin");
    let address = Address::Socket(origin.addresses()[0]);
    (origin, address)
}

/// Runs to the end; every request that was intended has ended in exactly one way.
fn records(scenario: &scenario::Scenario, target: &Address) -> (Vec<StepRecord>, usize) {
    let (events, told) = mpsc::channel();
    weir_load::run(scenario, target, &events).expect("a whole run");
    drop(events);
    let (mut records, mut seconds) = (Vec::new(), 0);
    for event in told {
        match event {
            Event::Step { record, .. } => records.push(*record),
            Event::Second(_) => seconds += 1,
            Event::Preloading(keys) => assert_eq!(keys, scenario.keys.count),
            Event::Phase { .. } => {}
        }
    }
    assert_eq!(records.len(), scenario.phases.len());
    for record in &records {
        assert_eq!(record.counts.ended(), record.counts.intended, "{:?}", record.counts);
        assert_eq!(record.latency.sojourn.n, record.counts.completed);
    }
    (records, seconds)
}

#[test]
fn an_open_loop_completes_its_schedule_and_checks_it() {
    let (_origin, target) = origin(OriginSettings::default());
    let phases = "[[phase]]\nrate = 2000\nwarmup = \"200ms\"\nduration = \"1s\"\n\
                  [[phase]]\nrate = 4000\nwarmup = \"200ms\"\nduration = \"1s\"";
    let scenario = scenario("connections = 6\npipeline = 4\nshards = 2\narrival = \"deterministic\"", phases);
    let (records, seconds) = records(&scenario, &target);
    for (record, wanted) in records.iter().zip([2_000, 4_000]) {
        let counts = &record.counts;
        assert_eq!((counts.intended, counts.sent, counts.completed), (wanted, wanted, wanted), "{counts:?}");
        assert_eq!((counts.integrity.failed, counts.errors.total(), counts.late), (0, 0, 0), "{counts:?}");
        // All but the raw words, which are one in twelve.
        assert!(counts.integrity.checked > wanted * 8 / 10, "{counts:?}");
        assert_eq!(record.latency.backlog.n, wanted);
        assert!(record.resources.parties["generator"].cpu_us_per_req.expect("measured") > 0.0);
        assert!(record.wire.tx_bytes > wanted * 20 && record.wire.rx_bytes > wanted * 4, "{:?}", record.wire);
        assert_eq!(StepRecord::from_line(&record.to_line().expect("a line")).expect("a record"), *record);
    }
    assert!(seconds >= 2, "{seconds} live seconds");
}

#[test]
fn a_stall_of_the_target_shows_in_the_open_loop_and_hides_in_the_closed_one() {
    // The origin stops for the last 400 ms of its first 2 s. A closed loop of 2 meets that twice, among thousands.
    let stall = Stall { every: Duration::from_secs(2), lasting: Duration::from_millis(400) };
    let sojourn = |head: &str, phase: &str| {
        let faults = Faults { stall: Some(stall), ..Faults::default() };
        let (_origin, target) = origin(OriginSettings { faults, ..OriginSettings::default() });
        let (mut records, _) = records(&scenario(head, phase), &target);
        records.remove(0).latency.sojourn
    };
    let head = "connections = 2\npipeline = 64\narrival = \"deterministic\"";
    let open = sojourn(head, "[[phase]]\nrate = 6000\nwarmup = \"0s\"\nduration = \"2s\"");
    let closed = sojourn("connections = 2\nmode = \"closed\"", "[[phase]]\nwarmup = \"0s\"\nduration = \"2s\"");
    let over = |tail: Option<u64>| tail.expect("enough samples") > 100_000;
    assert!(over(open.p99) && over(open.p999), "the open loop does not show it: {:?} {:?}", open.p99, open.p999);
    assert!(over(closed.max), "the closed loop never met it: {:?}", closed.max);
    assert!(closed.p99.expect("enough samples") < 50_000, "the closed loop shows it: {:?}", closed.p99);
}

#[test]
fn connections_that_the_target_closes_are_errors_and_the_run_ends() {
    let faults = Faults { disconnect_ratio: 0.05, ..Faults::default() };
    let (_origin, target) =
        origin(OriginSettings { faults, mode: Mode::Fixed { payload: 64 }, ..OriginSettings::default() });
    let mut scenario = scenario(
        "connections = 8\npipeline = 2\nintegrity = false",
        "[[phase]]\nrate = 500\nwarmup = \"100ms\"\nduration = \"1s\"",
    );
    scenario.keys.preload = false;
    let (records, _) = records(&scenario, &target);
    let record = &records[0];
    assert!(record.counts.errors.transport > 0 && record.counts.completed > 0, "{:?}", record.counts);
    assert_eq!(record.counts.errors.total(), record.counts.errors.transport);
    assert_eq!(record.verdict.invalid_reason.as_deref(), Some("connections"));
}

#[test]
fn a_target_that_dies_fails_the_rest_and_the_run_ends() {
    let (origin, target) = origin(OriginSettings::default());
    let phases = "[[phase]]\nrate = 1000\nwarmup = \"0s\"\nduration = \"1s\"";
    let scenario = scenario("connections = 4", phases);
    let death = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        origin.stop().expect("stopped");
    });
    let (records, _) = records(&scenario, &target);
    death.join().expect("no panic");
    let counts = &records[0].counts;
    assert!(counts.errors.transport > 0 && counts.completed > 0, "{counts:?}");
}

#[test]
fn a_missing_target_is_reported_before_any_load() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let target = Address::Socket(listener.local_addr().expect("bound"));
    drop(listener);
    let scenario = scenario("connections = 4\nshards = 2", "[[phase]]\nrate = 100\nduration = \"1s\"");
    let (events, told) = mpsc::channel();
    let error = weir_load::run(&scenario, &target, &events).expect_err("nobody listens");
    assert!(matches!(error, RunError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("nothing was sent"), "{error}");
    drop(events);
    assert_eq!(told.iter().count(), 0);
}

#[test]
fn a_target_that_refuses_the_keys_is_reported_before_any_load() {
    let faults = Faults { error_ratio: 1.0, ..Faults::default() };
    let (_origin, target) = origin(OriginSettings { faults, ..OriginSettings::default() });
    let scenario = scenario("connections = 1", "[[phase]]\nrate = 100\nduration = \"1s\"");
    let (events, _told) = mpsc::channel();
    let error = weir_load::run(&scenario, &target, &events).expect_err("no key was written");
    assert!(error.to_string().contains("ERR weir: scripted error"), "{error}");
}

#[test]
fn a_target_that_never_answers_gives_timeouts_and_skips() {
    let faults = Faults { delay: Duration::from_secs(60), ..Faults::default() };
    let (_origin, target) = origin(OriginSettings { faults, ..OriginSettings::default() });
    let mut scenario = scenario("connections = 2", "[[phase]]\nrate = 100\nwarmup = \"0s\"\nduration = \"1s\"");
    scenario.keys.preload = false;
    scenario.late_limit = Duration::from_millis(500);
    let (records, _) = records(&scenario, &target);
    let counts = &records[0].counts;
    assert_eq!((counts.errors.timeout, counts.completed, counts.sent), (2, 0, 2), "{counts:?}");
    assert_eq!(counts.skipped_backlog, counts.intended - 2, "{counts:?}");
}

#[test]
fn every_example_is_a_right_scenario() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab");
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut protocols = BTreeSet::new();
    for path in files.filter(|path| path.is_file()) {
        let source = std::fs::read_to_string(&path).expect("a text");
        let name = path.to_string_lossy();
        let scenario = scenario::parse(&name, &source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        protocols.insert(scenario.protocol.word());
    }
    let all = weir_load::protocols::ALL.iter().map(|protocol| protocol.word()).collect();
    assert_eq!(protocols, all, "every protocol has an example");
}
