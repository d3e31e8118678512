//! Counting, and merging shards.

use proptest::prelude::*;

use super::*;
use crate::recorder::{Percentile, Tail};

const LIMIT: Duration = Duration::from_millis(100);
const MILLI: u64 = 1_000_000;

fn stamps(backlog: u64, lag: u64, service: u64) -> Stamps {
    let intended = 7 * MILLI;
    let ready = intended + backlog;
    Stamps { intended, ready, sent: ready + lag, completed: ready + lag + service }
}

/// One way for a request to end.
#[derive(Clone, Debug)]
enum End {
    Completed(Option<Integrity>),
    Shed(&'static str),
    Failed(ErrorClass, bool),
    Skipped(Turn),
}

fn ends() -> impl Strategy<Value = Vec<(End, u64, u64, u64)>> {
    use Integrity::{Mismatch, Missing, Ok, RaceSuspect};
    let end = prop_oneof![
        6 => prop::sample::select(vec![None, Some(Ok), Some(RaceSuspect), Some(Missing), Some(Mismatch)])
            .prop_map(End::Completed),
        1 => prop::sample::select(vec!["queue_full", "in_flight"]).prop_map(End::Shed),
        1 => (prop::sample::select(vec![ErrorClass::Transport, ErrorClass::Protocol, ErrorClass::Status,
            ErrorClass::Timeout, ErrorClass::Payload]), any::<bool>()).prop_map(|(class, sent)| End::Failed(class, sent)),
        1 => prop::sample::select(vec![Turn::SkipBacklog, Turn::SkipGenerator]).prop_map(End::Skipped),
    ];
    proptest::collection::vec((end, 0..300 * MILLI, 0..MILLI, 0..300 * MILLI), 0..60)
}

fn fed(ends: &[(End, u64, u64, u64)]) -> WindowResult {
    let mut outcome = WindowResult::new(LIMIT);
    for (end, backlog, lag, service) in ends {
        outcome.intended();
        let stamps = stamps(*backlog, *lag, *service);
        if !matches!(end, End::Skipped(_) | End::Failed(_, false)) {
            outcome.sent();
        }
        match end {
            End::Completed(integrity) => outcome.completed(&stamps, *integrity),
            End::Shed(reason) => outcome.shed(reason, &stamps),
            End::Failed(class, is_sent) => outcome.failed(*class, is_sent.then_some(&stamps)),
            End::Skipped(turn) => outcome.skipped(*turn),
        }
    }
    outcome
}

proptest! {
    #[test]
    fn merged_shards_equal_one_that_saw_all(a in ends(), b in ends()) {
        let mut merged = fed(&a);
        merged.merge(&fed(&b));
        prop_assert_eq!(merged, fed(&[a, b].concat()));
    }

    #[test]
    fn every_request_ends_once_and_every_sent_one_is_timed(ends in ends()) {
        let WindowResult { counts, latencies, .. } = fed(&ends);
        prop_assert_eq!(counts.ended(), counts.intended);
        prop_assert_eq!(latencies.sojourn.n(), counts.completed);
        prop_assert_eq!(latencies.service.n(), counts.completed);
        prop_assert_eq!(latencies.backlog.n(), counts.sent);
        prop_assert_eq!(latencies.generator_lag.n(), counts.sent);
        prop_assert_eq!(latencies.error_service.n(), counts.sent - counts.completed);
    }
}

#[test]
fn the_parts_of_a_sojourn_add_up_and_go_to_their_histograms() {
    let one = stamps(3 * MILLI, MILLI, 5 * MILLI);
    assert_eq!(one.sojourn(), one.backlog() + one.generator_lag() + one.service());
    let mut outcome = WindowResult::new(LIMIT);
    (0..1_000).for_each(|_| outcome.completed(&one, None));
    let p99 = |recorder: &Recorder| recorder.percentile(Tail::P99);
    let near =
        |found: Percentile, micros: u64| found.micros().is_some_and(|value| value.abs_diff(micros) * 1_000 <= micros);
    let Latencies { sojourn, service, backlog, generator_lag, error_service, .. } = &outcome.latencies;
    for (recorder, micros) in [(sojourn, 9_000), (service, 5_000), (backlog, 3_000), (generator_lag, 1_000)] {
        assert!(near(p99(recorder), micros), "{:?}", p99(recorder));
    }
    assert_eq!(error_service.n(), 0);
}

#[test]
fn the_first_event_and_those_behind_it_have_histograms_of_their_own() {
    let mut outcome = WindowResult::new(LIMIT);
    outcome.event(40 * MILLI, None);
    (0..20).for_each(|_| outcome.event(0, Some(2 * MILLI)));
    let mut sum = WindowResult::new(LIMIT);
    sum.merge(&outcome);
    sum.merge(&outcome);
    let Latencies { first_event, between_events, sojourn, .. } = &sum.latencies;
    assert_eq!((first_event.n(), between_events.n(), sojourn.n()), (2, 40, 0));
    assert!(first_event.max_micros().abs_diff(40_000) < 50 && between_events.max_micros().abs_diff(2_000) < 5);
    let latency = crate::record::Latency::of(&sum.latencies);
    assert_eq!((latency.first_event.map(|one| one.n), latency.between_events.map(|one| one.n)), (Some(2), Some(40)));
    let none = crate::record::Latency::of(&WindowResult::new(LIMIT).latencies);
    assert_eq!((none.first_event, none.between_events), (None, None));
}

#[test]
fn fast_refusals_do_not_improve_the_percentiles() {
    let mut outcome = WindowResult::new(LIMIT);
    (0..2_000).for_each(|_| outcome.completed(&stamps(0, 0, 50 * MILLI), Some(Integrity::Ok)));
    let before = outcome.latencies.sojourn.percentile(Tail::P50);
    (0..100_000).for_each(|_| outcome.shed("queue_full", &stamps(0, 0, 1_000)));
    assert_eq!(outcome.latencies.sojourn.percentile(Tail::P50), before);
    assert_eq!(outcome.counts.shed["queue_full"], 100_000);
}

#[test]
fn late_is_still_completed_and_wrong_is_not() {
    let mut outcome = WindowResult::new(LIMIT);
    outcome.completed(&stamps(60 * MILLI, 0, 40 * MILLI), Some(Integrity::Ok));
    outcome.completed(&stamps(60 * MILLI, 0, 40 * MILLI + 1), Some(Integrity::RaceSuspect));
    outcome.completed(&stamps(0, 0, 1), Some(Integrity::Mismatch));
    outcome.completed(&stamps(0, 0, 1), Some(Integrity::Missing));
    let Counts { completed, late, errors, integrity, .. } = outcome.counts;
    assert_eq!((completed, late, errors.payload), (2, 1, 2));
    assert_eq!(integrity, IntegrityCounts { checked: 4, failed: 2, race_suspect: 1 });
}

#[test]
fn a_skip_is_blamed_on_its_cause() {
    let at = |ready, now| Turn::of(0, ready * MILLI, now * MILLI, LIMIT);
    assert_eq!(at(0, 100), Turn::Send);
    assert_eq!(at(100, 100), Turn::Send);
    assert_eq!(at(101, 101), Turn::SkipBacklog);
    assert_eq!(at(101, 500), Turn::SkipBacklog);
    // A slot just in time, and a generator no slower than it may be.
    assert_eq!(at(99, 101), Turn::SkipBacklog);
    assert_eq!(at(91, 101), Turn::SkipBacklog);
    // With a slot in time: it is the generator that came too late.
    assert_eq!(at(90, 101), Turn::SkipGenerator);
    assert_eq!(at(0, 101), Turn::SkipGenerator);
}
