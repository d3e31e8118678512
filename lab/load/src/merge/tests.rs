//! Merging parts: lossless, in any order, and only what belongs together.

use super::*;
use crate::outcome::{ErrorClass, Stamps, Turn};
use crate::record::{Identity, Load, SCHEMA};
use crate::requests::Integrity;
use crate::scenario::{self, Scenario};

const SOURCE: &str = r#"
name = "s"
protocol = "redis"
shards = 3
connections = 7
slo_p99 = "20ms"
command = [{ name = "GET" }]
phase = [{ rate = 600, duration = "10s" }]
"#;

fn scenario() -> Scenario {
    scenario::parse("s.toml", SOURCE).expect("a right scenario")
}

/// Requests `numbers` of a run of 6,000, one ending a little unlike the other.
fn measured(numbers: impl Iterator<Item = u64>, connections_lost: u32) -> Measured {
    let mut measured = Measured::none(scenario().late_limit);
    let outcome = &mut measured.outcome;
    for number in numbers {
        outcome.intended();
        let intended = number * 1_000;
        let sent = intended + number % 97 * 1_000;
        let stamps = Stamps { intended, ready: intended, sent, completed: sent + number * number };
        match number % 1_000 {
            0 => outcome.skipped(Turn::SkipBacklog),
            1 => outcome.failed(ErrorClass::Transport, None),
            end => {
                outcome.sent();
                match end {
                    2 => outcome.shed("queue_full", &stamps),
                    3 => outcome.shed("in_flight", &stamps),
                    4 => outcome.completed(&stamps, Some(Integrity::Mismatch)),
                    _ => outcome.completed(&stamps, Some(Integrity::Ok)),
                }
            }
        }
    }
    let n = outcome.counts.intended;
    Measured {
        cpu_nanos: n * 1_001,
        busiest_core: 0.125,
        threads: 1,
        connections_lost,
        tx_bytes: n,
        rx_bytes: n,
        ..measured
    }
}

fn record(measured: &Measured, part: Part) -> StepRecord {
    let scenario = scenario();
    let (phase, slo_p99_us) = (&scenario.phases[0], Some(20_000));
    let load = part.load(&scenario, phase);
    let about = PartOfRun {
        index: part.index() + 1,
        of: part.of(),
        phase: phase.name.clone(),
        scenario: scenario.fingerprint(),
        begins_unix_us: 1_767_323_045_000_000,
        load: Load::of(&scenario, phase),
        slo_p99_us,
        cpu_ns: measured.cpu_nanos,
        connections_lost: measured.connections_lost,
    };
    StepRecord {
        identity: Identity {
            schema: SCHEMA.to_owned(),
            run_id: "r1".to_owned(),
            step: 0,
            repeat: 0,
            row: scenario.name.clone(),
            arm: "127.0.0.1:6379".to_owned(),
            commit: None,
            build: "0.1.0 debug".to_owned(),
            seed: scenario.seed,
            started: "2026-01-02T03:04:05Z".to_owned(),
        },
        part: (!part.is_whole()).then_some(about),
        host: Host { cpus: Some(2), ..Host::default() },
        placement: Placement::default(),
        latency: measured.latency(),
        resources: measured.resources(),
        wire: measured.wire(),
        verdict: verdict(&measured.trial(&load, slo_p99_us)),
        counts: measured.outcome.counts.clone(),
        load,
        thresholds: Vec::new(),
    }
}

/// The parts of a run of so many processes, each of which saw every n-th request; through text, as they come.
fn parts(of: u32) -> Vec<StepRecord> {
    let numbers = |part: Part| (0..6_000u64).filter(move |number| number % u64::from(of) == u64::from(part.index()));
    let part = |part: Part| record(&measured(numbers(part), part.index()), part);
    Part::all(of).map(|one| StepRecord::from_line(&part(one).to_line().unwrap()).unwrap()).collect()
}

fn merged(records: &[StepRecord]) -> Result<StepRecord, String> {
    let names: Vec<String> = (1..=records.len()).map(|number| format!("file {number}")).collect();
    let named: Vec<Named<'_>> = records.iter().zip(&names).map(|(record, name)| Named { name, record }).collect();
    merge(&named).map(|(record, _)| record).map_err(|error| error.to_string())
}

#[test]
fn parts_merge_to_the_record_of_one_process() {
    for of in [2, 3] {
        let lost = (0..of).sum();
        let mut union = measured(0..6_000, lost);
        // Every process has a thread, and its CPU.
        union.threads = of;
        let one = record(&union, Part::WHOLE);
        let merged = merged(&parts(of)).expect("they belong together");
        assert_eq!(merged, one);
        assert_eq!(merged.outcome().expect("whole histograms"), union.outcome);
        assert_eq!(merged.verdict.invalid_reason.as_deref(), Some("connections"));
        assert_eq!((merged.load.offered, merged.load.connections), (Some(600.0), 7));
    }
}

#[test]
fn the_order_of_parts_makes_no_difference_and_the_merged_is_judged_again() {
    let quiet = |part: Part| {
        let numbers = (0..3_000u64).filter(|number| number % 1_000 > 4);
        record(&measured(numbers, 0), part)
    };
    let [one, other] = [0, 1].map(|index| quiet(Part::new(index, 2).expect("there is one")));
    let merged_one = merged(&[one.clone(), other.clone()]).expect("they belong together");
    assert_eq!(merged(&[other, one.clone()]), Ok(merged_one.clone()));
    assert!(merged_one.verdict.valid, "{:?}", merged_one.verdict);
    // A stall in one part is one of the whole.
    let mut late = measured((0..3_000).filter(|number| number % 1_000 > 4), 0);
    let stall = Stamps { intended: 1, ready: 1, sent: 200_000_001, completed: 200_000_002 };
    late.outcome.completed(&stall, Some(Integrity::Ok));
    let late = record(&late, Part::new(1, 2).expect("there is one"));
    let verdict = merged(&[one, late]).expect("they belong together").verdict;
    assert_eq!(verdict.invalid_reason.as_deref(), Some("generator-lag"));
}

#[test]
fn machines_that_differ_leave_only_their_common_facts() {
    let mut two = parts(2);
    two[0].host.kernel = Some("6.18".to_owned());
    two[1].host = Host { cpus: Some(8), ..two[0].host.clone() };
    let host = merged(&two).expect("they belong together").host;
    assert_eq!((host.kernel.as_deref(), host.cpus), (Some("6.18"), None));
}

#[test]
fn records_that_do_not_belong_together_are_refused_by_name() {
    let two = parts(2);
    let refusal = |change: &dyn Fn(&mut StepRecord)| {
        let mut changed = two.clone();
        change(&mut changed[1]);
        merged(&changed).expect_err("a foreign record")
    };
    type Change = fn(&mut StepRecord);
    let changes: [(&str, Change); 12] = [
        ("scenario: s and other", |record| record.identity.row = "other".to_owned()),
        ("seed: ", |record| record.identity.seed += 1),
        ("phase: phase-1 (1) and phase-1 (2)", |record| record.identity.step = 1),
        ("rate: 600/s and 700/s", |record| part_of(record).load.offered = Some(700.0)),
        ("connections: 7 and 8", |record| part_of(record).load.connections = 8),
        ("window: 10 s and 20 s", |record| part_of(record).load.window_s = 20.0),
        ("number of parts: 2 and 3", |record| part_of(record).of = 3),
        ("target: ", |record| record.identity.arm = "127.0.0.1:1".to_owned()),
        ("build: ", |record| record.identity.build = "0.2.0 debug".to_owned()),
        ("rest of the load: ", |record| part_of(record).load.pipeline = 16),
        ("contents of the scenario: ", |record| part_of(record).scenario = "0".repeat(16)),
        ("begin in microseconds: ", |record| part_of(record).begins_unix_us += 1),
    ];
    for (what, change) in changes {
        let text = refusal(&change);
        assert!(text.starts_with("file 1 and file 2 are not parts of one run") && text.contains(what), "{text}");
    }
    let text = refusal(&|record| part_of(record).index = 1);
    assert!(text.contains("part 1/2 comes twice, in file 1 and in file 2"), "{text}");
    let text = refusal(&|record| part_of(record).index = 3);
    assert!(text.contains("there is no part 3/2"), "{text}");
    let huge: [Change; 3] = [
        |record| record.counts.intended = u64::MAX,
        |record| part_of(record).cpu_ns = u64::MAX,
        |record| record.wire.rx_bytes = u64::MAX,
    ];
    for change in huge {
        assert!(refusal(&change).starts_with("file 2: no run makes a figure of"), "{}", refusal(&change));
    }
    let text = refusal(&|record| record.identity.step = u32::MAX);
    assert!(text.contains("phase: phase-1 (1) and phase-1 (4294967296)"), "{text}");
    let text = refusal(&|record| record.part = None);
    assert!(text.starts_with("file 2: this is a whole run, or was merged already"), "{text}");
    let text = refusal(&|record| record.latency.service.hist.truncate(8));
    assert!(text.starts_with("file 2: unusable latency histogram"), "{text}");
    assert!(merged(&[]).expect_err("nothing").starts_with("no records"));
    let text = merged(&parts(3)[..1]).expect_err("two are missing");
    assert!(text.starts_with("missing: part 2/3, 3/3"), "{text}");
}

fn part_of(record: &mut StepRecord) -> &mut PartOfRun {
    record.part.as_mut().expect("a part")
}
