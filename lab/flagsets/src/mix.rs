//! The kinds of flags, and how many of each a set has.
//!
//! Among 350 flags, 150 have no strategy and are off, and 200 are switched on with one strategy. Among these 200, 60 % are rollouts, 20 %
//! hold always, 10 % list users, and 10 % have constraints or a segment. One flag of five has two variants. Without a user and a plan, 95 of
//! the 350 are on: 40 that always hold, and 55 rollouts to all.

use weir_base::Rng;

use crate::flag::{Rule, Segment, Variant};

/// Flags of one round of the mix.
pub(crate) const ROUND: usize = 350;
const OFF: usize = 150;
const ALWAYS: usize = OFF + 40;
const FULL_ROLLOUTS: usize = ALWAYS + 55;
const ROLLOUTS: usize = FULL_ROLLOUTS + 65;
const USERS: usize = ROLLOUTS + 20;
const PLANS: usize = USERS + 10;
/// The flags of a round with variants: all that list users or look at plans, some rollouts, and some that are off.
const WITH_VARIANTS: usize = ROUND / 5;

/// Segments of a set with the mix.
pub(crate) const SEGMENTS: usize = 8;
/// Users whom contexts name: `user-1` and so on.
pub(crate) const USERS_MAX: u64 = 10_000;
/// The plans of contexts and constraints.
pub(crate) const PLAN_NAMES: [&str; 4] = ["free", "team", "business", "enterprise"];
/// The projects of flags.
pub(crate) const PROJECTS: [&str; 7] = ["default", "shop", "search", "billing", "mobile", "growth", "internal"];

/// The kind of the flag at `place` of its round.
pub(crate) fn rule(place: usize, rng: &mut Rng) -> Option<Rule> {
    Some(match place {
        0..OFF => return None,
        OFF..ALWAYS => Rule::Always,
        ALWAYS..FULL_ROLLOUTS => Rule::Rollout(100),
        FULL_ROLLOUTS..ROLLOUTS => Rule::Rollout(5 * (1 + rng.below(19) as u32)),
        ROLLOUTS..USERS => users(rng),
        USERS..PLANS => Rule::Plans(plans(place)),
        _ => Rule::Segment(1 + place % SEGMENTS),
    })
}

/// Whether the flag at `place` of its round has variants. None of those that are on without a user has.
pub(crate) fn has_variants(place: usize) -> bool {
    (ROLLOUTS - 10..ROUND).contains(&place) || place < WITH_VARIANTS - (ROUND - ROLLOUTS + 10)
}

/// Two variants.
pub(crate) fn variants(rng: &mut Rng) -> Vec<Variant> {
    let first = 100 * (1 + rng.below(9) as u32);
    let mut one = |name, weight| Variant { name, weight, payload: format!("{:08x}", rng.next_u64() >> 32) };
    vec![one("control", first), one("treatment", 1_000 - first)]
}

/// A list of users.
pub(crate) fn users(rng: &mut Rng) -> Rule {
    Rule::Users((0..6).map(|_| user(rng)).collect())
}

/// One of the users.
pub(crate) fn user(rng: &mut Rng) -> String {
    format!("user-{}", 1 + rng.below(USERS_MAX))
}

/// Two of the plans.
pub(crate) fn plans(place: usize) -> Vec<&'static str> {
    let at = |more: usize| PLAN_NAMES[(place + more) % PLAN_NAMES.len()];
    vec![at(0), at(1)]
}

/// The segments of a set.
pub(crate) fn segments() -> Vec<Segment> {
    (1..=SEGMENTS).map(|id| Segment { id, plans: plans(id) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_the_shares_of_the_mix() {
        let mut rng = Rng::new(1);
        let rules: Vec<Option<Rule>> = (0..ROUND).map(|place| rule(place, &mut rng)).collect();
        let count = |is: fn(&Rule) -> bool| rules.iter().flatten().filter(|rule| is(rule)).count();
        assert_eq!(rules.iter().flatten().count(), 200);
        assert_eq!(count(|rule| matches!(rule, Rule::Rollout(_))), 120);
        assert_eq!(count(|rule| matches!(rule, Rule::Always)), 40);
        assert_eq!(count(|rule| matches!(rule, Rule::Users(_))), 20);
        assert_eq!(count(|rule| matches!(rule, Rule::Plans(_) | Rule::Segment(_))), 20);
        assert_eq!((0..ROUND).filter(|place| has_variants(*place)).count(), WITH_VARIANTS);
        let is_on_for_all = |place: &usize| (OFF..FULL_ROLLOUTS).contains(place);
        assert!(!(0..ROUND).any(|place| is_on_for_all(&place) && has_variants(place)));
    }
}
