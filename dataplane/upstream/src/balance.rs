//! Which of several equal endpoints gets the next exchange. Pure: the choice depends on what is given.

use weir_base::rng::Rng;

/// How endpoints are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// In turn, in proportion to their weights, and evenly over time (nginx's smooth weighted round robin).
    #[default]
    RoundRobin,
    /// Of two taken at random, the one with fewer exchanges under way for its weight.
    LeastRequest,
    /// At random, in proportion to their weights.
    Random,
}

impl Balance {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::RoundRobin, Self::LeastRequest, Self::Random];

    /// The word in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequest => "least_request",
            Self::Random => "random",
        }
    }
}

/// An endpoint as the balancer sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Position among all endpoints.
    pub(crate) number: usize,
    /// Relative; never 0.
    pub(crate) weight: u32,
    /// Exchanges under way.
    pub(crate) in_flight: u64,
}

/// The state that a choice leaves behind for the next one.
#[derive(Debug)]
pub(crate) struct Balancer {
    balance: Balance,
    /// Of each endpoint, what it is owed: see [`Balance::RoundRobin`].
    credit: Vec<i64>,
    rng: Rng,
}

impl Balancer {
    pub(crate) fn new(balance: Balance, endpoints: usize, rng: Rng) -> Self {
        Self { balance, credit: vec![0; endpoints], rng }
    }

    /// One of `candidates`; `None` only if there is none.
    pub(crate) fn choose(&mut self, candidates: &[Candidate]) -> Option<usize> {
        if let [] | [_] = candidates {
            return candidates.first().map(|only| only.number);
        }
        match self.balance {
            Balance::RoundRobin => self.in_turn(candidates),
            Balance::LeastRequest => {
                let (first, second) = (self.any(candidates)?, self.any(candidates)?);
                // a / weight(a) < b / weight(b), without the division.
                let load = |one: Candidate, other: Candidate| u128::from(one.in_flight + 1) * u128::from(other.weight);
                Some(if load(second, first) < load(first, second) { second.number } else { first.number })
            }
            Balance::Random => self.any(candidates).map(|chosen| chosen.number),
        }
    }

    /// Everybody is credited its weight; who is owed most is chosen, and pays what all have been credited.
    fn in_turn(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<usize> = None;
        for candidate in candidates {
            let weight = i64::from(candidate.weight);
            total += weight;
            let credit = self.credit.get_mut(candidate.number)?;
            *credit += weight;
            let credit = *credit;
            if best.is_none_or(|best| credit > self.credit[best]) {
                best = Some(candidate.number);
            }
        }
        let chosen = best?;
        self.credit[chosen] -= total;
        Some(chosen)
    }

    fn any(&mut self, candidates: &[Candidate]) -> Option<Candidate> {
        let total: u64 = candidates.iter().map(|candidate| u64::from(candidate.weight)).sum();
        let mut left = self.rng.below(total.max(1));
        for candidate in candidates {
            match left.checked_sub(u64::from(candidate.weight)) {
                Some(rest) => left = rest,
                None => return Some(*candidate),
            }
        }
        candidates.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        let of = |(number, &weight)| Candidate { number, weight, in_flight: 0 };
        weights.iter().enumerate().map(of).collect()
    }

    fn balancer(balance: Balance, count: usize) -> Balancer {
        Balancer::new(balance, count, Rng::new(7))
    }

    #[test]
    fn turns_are_in_proportion_and_spread_over_time() {
        let mut balancer = balancer(Balance::RoundRobin, 3);
        let all = candidates(&[5, 1, 1]);
        let turns: Vec<usize> = (0..7).filter_map(|_| balancer.choose(&all)).collect();
        assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0], "nginx's own example");
    }

    #[test]
    fn an_endpoint_that_is_left_out_gets_no_more_than_its_share_afterwards() {
        let mut balancer = balancer(Balance::RoundRobin, 2);
        let all = candidates(&[1, 1]);
        (0..100).for_each(|_| assert_eq!(balancer.choose(&all[..1]), Some(0)));
        let turns: Vec<usize> = (0..4).filter_map(|_| balancer.choose(&all)).collect();
        assert_eq!(turns.iter().filter(|&&number| number == 1).count(), 2, "{turns:?}");
    }

    #[test]
    fn random_choices_are_in_proportion() {
        let mut balancer = balancer(Balance::Random, 2);
        let all = candidates(&[3, 1]);
        let first = (0..10_000).filter(|_| balancer.choose(&all) == Some(0)).count();
        assert!((7_200..7_800).contains(&first), "{first}");
    }

    #[test]
    fn who_has_less_to_do_is_chosen_for_its_weight() {
        let mut balancer = balancer(Balance::LeastRequest, 2);
        let mut all = candidates(&[1, 1]);
        all[0].in_flight = 50;
        let first = (0..1_000).filter(|_| balancer.choose(&all) == Some(0)).count();
        assert!((150..350).contains(&first), "only if both looks fell on it: {first}");
        assert_eq!(balancer.choose(&[]), None);
    }
}
