//! The bracket of a search that found no knee.

use super::systems::{capped, search};
use crate::bracket::Bracket;
use crate::judge::{Finding, NotClean, Verdict};
use crate::knee::{Knee, SearchOutcome};

/// A search with a knee at 125k whose end is another, so that only its trials are left.
fn unstable() -> Knee {
    let mut knee = search(|run| capped(run, 130_000.0));
    (knee.outcome, knee.clean, knee.not_clean) = (SearchOutcome::Unstable, None, None);
    knee
}

#[test]
fn a_verified_knee_needs_no_bracket_and_an_unstable_search_has_one() {
    assert_eq!(search(|run| capped(run, 130_000.0)).bracket(), None);
    let bracket = unstable().bracket().expect("trials that count");
    let (low, high) = (bracket.clean.expect("clean"), bracket.not_clean.expect("not clean"));
    assert!(low.rate <= 130_000.0 && high.rate > 125_000.0 && low.rate < high.rate, "{bracket}");
    assert!(low.clean == low.trials && high.clean == 0, "{bracket}");
    let text = bracket.to_string();
    assert!(text.starts_with("clean up to ") && text.contains(" trials), not clean from "), "{text}");
    let high = Bracket { clean: None, ..bracket }.to_string();
    assert!(high.starts_with("not clean from ") && !high.contains("up to"), "{high}");
    let low = Bracket { not_clean: None, ..bracket }.to_string();
    assert!(low.starts_with("clean up to ") && !low.contains("not clean"), "{low}");
}

#[test]
fn a_rate_at_which_trials_disagree_is_within_the_bracket() {
    let mut knee = unstable();
    let low = knee.bracket().and_then(|bracket| bracket.clean).expect("clean");
    let mut one = *knee.seen.iter().find(|seen| seen.run.rate.offered() == low.rate).expect("a trial");
    one.verdict = Verdict::NotClean(Finding::new(NotClean::Errors, 1.0, 0.0));
    knee.seen.push(one);
    let wider = knee.bracket().expect("a bracket");
    assert!(wider.clean.is_none_or(|clean| clean.rate < low.rate), "{wider}");
}

#[test]
fn trials_that_do_not_count_bound_nothing() {
    let mut knee = unstable();
    knee.seen.iter_mut().for_each(|seen| seen.verdict = Verdict::Unsteady);
    assert_eq!(knee.bracket(), None);
}
