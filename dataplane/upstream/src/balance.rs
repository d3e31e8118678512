//! Which of several equal endpoints gets the next exchange. Pure: the choice depends on what is given.

use std::time::Duration;

use weir_base::{rng::Rng, time::Time};

use crate::consistent::Consistent;

/// How endpoints are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// In turn, in proportion to their weights, and evenly over time (nginx's smooth weighted round robin).
    #[default]
    RoundRobin,
    /// The one with the fewest exchanges in flight for its weight (HAProxy's `leastconn`).
    LeastRequest,
    /// The one with fewer exchanges in flight for its weight, of two taken at random (Envoy's `LEAST_REQUEST`; Mitzenmacher,
    /// "The power of two choices in randomized load balancing").
    PowerOfTwo,
    /// The one with the lower expected latency, of two taken at random: the recent peak of response times, times the exchanges
    /// in flight (Finagle's Peak EWMA).
    PeakEwma,
    /// At random, in proportion to their weights.
    Random,
    /// Exchanges of one affinity always go to the same endpoint: the next on a ring of points (Envoy's ring hash).
    RingHash,
    /// The same with Maglev's table: more even, and a little less steady when endpoints change.
    Maglev,
}

impl Balance {
    /// Every one.
    pub const ALL: &'static [Self] = &[
        Self::RoundRobin,
        Self::LeastRequest,
        Self::PowerOfTwo,
        Self::PeakEwma,
        Self::Random,
        Self::RingHash,
        Self::Maglev,
    ];

    /// The word in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequest => "least_request",
            Self::PowerOfTwo => "power_of_two",
            Self::PeakEwma => "peak_ewma",
            Self::Random => "random",
            Self::RingHash => "ring_hash",
            Self::Maglev => "maglev",
        }
    }

    /// Its choice follows from what an exchange is.
    pub const fn is_hashed(self) -> bool {
        matches!(self, Self::RingHash | Self::Maglev)
    }
}

/// An endpoint as the balancer sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Position among all endpoints.
    pub(crate) number: usize,
    /// Relative; never 0.
    pub(crate) weight: u32,
    /// Exchanges in flight.
    pub(crate) in_flight: u64,
    /// The time to a reply, see [`Latency`].
    pub(crate) latency: u64,
}

impl Candidate {
    fn load(self) -> u128 {
        u128::from(self.in_flight + 1)
    }

    /// An endpoint that has had requests and has never responded counts as slow.
    fn expected_latency(self) -> u64 {
        if self.latency == 0 && self.in_flight > 0 { LATENCY_UNKNOWN } else { self.latency }
    }
}

/// Latency of responses: the recent peak, of which a third is left after 10 s of faster responses (Finagle's Peak EWMA).
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    nanos: f64,
    at: Time,
}

/// Latency assumed for an endpoint that has not yet responded, in ns: longer than any response takes. As Finagle's
/// penalty.
const LATENCY_UNKNOWN: u64 = 3_600_000_000_000;

/// After it a third of an old peak is left. As Finagle's default.
const LATENCY_MEMORY: Duration = Duration::from_secs(10);

impl Latency {
    /// A response took so long.
    pub fn note(&mut self, took: Duration, now: Time) {
        let (nanos, before) = (took.as_nanos() as f64, self.nanos);
        let weight = (-now.since(self.at).as_secs_f64() / LATENCY_MEMORY.as_secs_f64()).exp();
        self.nanos = if nanos > before { nanos } else { before * weight + nanos * (1.0 - weight) };
        self.at = now;
    }

    /// In ns; 0 before the first response.
    pub fn nanos(self) -> u64 {
        self.nanos as u64
    }
}

/// The state that a choice leaves behind for the next one.
#[derive(Debug)]
pub(crate) struct Balancer {
    balance: Balance,
    /// Credit of each endpoint: see [`Balance::RoundRobin`].
    credit: Vec<i64>,
    /// The endpoint of each hash, for balances with affinity.
    consistent: Option<Consistent>,
    rng: Rng,
}

impl Balancer {
    /// Among endpoints with these names and weights.
    pub(crate) fn new(balance: Balance, endpoints: &[(String, u32)], rng: Rng) -> Self {
        let consistent = match balance {
            Balance::RingHash => Some(Consistent::ring_hash(endpoints)),
            Balance::Maglev => Some(Consistent::maglev(endpoints)),
            _ => None,
        };
        Self { balance, credit: vec![0; endpoints.len()], consistent, rng }
    }

    /// One of `candidates`; `None` only if there is none. `hash`: of what stays together.
    pub(crate) fn choose(&mut self, candidates: &[Candidate], hash: Option<u64>) -> Option<usize> {
        if let [] | [_] = candidates {
            return candidates.first().map(|only| only.number);
        }
        match self.balance {
            Balance::RoundRobin => self.in_turn(candidates),
            Balance::LeastRequest => {
                // Among equals it must not always be the first.
                let start = self.rng.below(candidates.len() as u64) as usize;
                let mut all = candidates[start..].iter().chain(&candidates[..start]).copied();
                let first = all.next()?;
                Some(all.fold(first, |best, one| lesser(best, one, Candidate::load)).number)
            }
            Balance::PowerOfTwo => self.of_two(candidates, Candidate::load),
            Balance::PeakEwma => self.of_two(candidates, |one| one.load() * u128::from(one.expected_latency())),
            Balance::Random => self.any(candidates).map(|chosen| chosen.number),
            Balance::RingHash | Balance::Maglev => {
                let hash = hash.unwrap_or_else(|| self.rng.next_u64());
                let is_there = |number| candidates.iter().any(|candidate| candidate.number == number);
                let found = self.consistent.as_ref().and_then(|consistent| consistent.find(hash, is_there));
                found.or_else(|| self.any(candidates).map(|chosen| chosen.number))
            }
        }
    }

    fn of_two(&mut self, candidates: &[Candidate], load: impl Fn(Candidate) -> u128) -> Option<usize> {
        let (first, second) = (self.any(candidates)?, self.any(candidates)?);
        Some(lesser(first, second, load).number)
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

/// The one with less load for its weight; the first of equals.
fn lesser(first: Candidate, second: Candidate, load: impl Fn(Candidate) -> u128) -> Candidate {
    // load / weight, without the division.
    let is_less = load(second) * u128::from(first.weight) < load(first) * u128::from(second.weight);
    if is_less { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        let of = |(number, &weight)| Candidate { number, weight, in_flight: 0, latency: 0 };
        weights.iter().enumerate().map(of).collect()
    }

    fn balancer(balance: Balance, count: usize) -> Balancer {
        let names: Vec<_> = (0..count).map(|number| (format!("192.0.2.{number}:80"), 1)).collect();
        Balancer::new(balance, &names, Rng::new(7))
    }

    #[test]
    fn turns_are_in_proportion_and_spread_over_time() {
        let mut balancer = balancer(Balance::RoundRobin, 3);
        let all = candidates(&[5, 1, 1]);
        let turns: Vec<usize> = (0..7).filter_map(|_| balancer.choose(&all, None)).collect();
        assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0], "nginx's own example");
    }

    #[test]
    fn an_endpoint_that_is_left_out_gets_no_more_than_its_share_afterwards() {
        let mut balancer = balancer(Balance::RoundRobin, 2);
        let all = candidates(&[1, 1]);
        (0..100).for_each(|_| assert_eq!(balancer.choose(&all[..1], None), Some(0)));
        let turns: Vec<usize> = (0..4).filter_map(|_| balancer.choose(&all, None)).collect();
        assert_eq!(turns.iter().filter(|&&number| number == 1).count(), 2, "{turns:?}");
    }

    #[test]
    fn random_choices_are_in_proportion() {
        let mut balancer = balancer(Balance::Random, 2);
        let all = candidates(&[3, 1]);
        let first = (0..10_000).filter(|_| balancer.choose(&all, None) == Some(0)).count();
        assert!((7_200..7_800).contains(&first), "{first}");
    }

    #[test]
    fn the_less_loaded_endpoint_is_chosen_for_its_weight() {
        let mut all = candidates(&[1, 1]);
        all[0].in_flight = 50;
        let mut least = balancer(Balance::LeastRequest, 2);
        assert!((0..1_000).all(|_| least.choose(&all, None) == Some(1)));
        all[1].in_flight = 50;
        let first = (0..1_000).filter(|_| least.choose(&all, None) == Some(0)).count();
        assert!((400..600).contains(&first), "equals share: {first}");
        all[1].in_flight = 0;
        let mut balancer = balancer(Balance::PowerOfTwo, 2);
        let first = (0..1_000).filter(|_| balancer.choose(&all, None) == Some(0)).count();
        assert!((150..350).contains(&first), "only if both looks fell on it: {first}");
        assert_eq!(balancer.choose(&[], None), None);
    }

    #[test]
    fn the_faster_endpoint_is_chosen_and_a_peak_is_forgotten() {
        let mut balancer = balancer(Balance::PeakEwma, 2);
        let mut all = candidates(&[1, 1]);
        let (mut slow, begun) = (Latency::default(), Time::from_nanos(1_000_000_000));
        slow.note(Duration::from_millis(1), begun);
        slow.note(Duration::from_millis(100), begun);
        assert_eq!(slow.nanos(), 100_000_000, "a peak counts at once");
        (all[0].latency, all[1].latency) = (slow.nanos(), 1_000_000);
        let first = (0..1_000).filter(|_| balancer.choose(&all, None) == Some(0)).count();
        assert!((150..350).contains(&first), "only if both looks fell on it: {first}");
        for second in 1..=60 {
            slow.note(Duration::from_millis(1), begun.saturating_add(Duration::from_secs(second)));
        }
        assert!(slow.nanos() < 2_000_000, "{}", slow.nanos());
    }

    #[test]
    fn requests_of_one_hash_go_to_one_endpoint_and_elsewhere_only_while_it_is_out() {
        for balance in [Balance::RingHash, Balance::Maglev] {
            let mut balancer = balancer(balance, 5);
            let all = candidates(&[1; 5]);
            let places: Vec<_> = (0..1_000_u64).map(|hash| balancer.choose(&all, Some(hash << 50))).collect();
            for number in 0..5 {
                let own = places.iter().filter(|place| **place == Some(number)).count();
                assert!((100..320).contains(&own), "{balance:?}: {own} of {number}");
            }
            let without: Vec<_> = all.iter().copied().filter(|candidate| candidate.number != 2).collect();
            for (hash, place) in (0..1_000_u64).zip(&places) {
                let now = balancer.choose(&without, Some(hash << 50));
                assert!(now != Some(2) && (now == *place || *place == Some(2)), "{balance:?} moved {hash}");
            }
        }
    }

    #[test]
    fn a_ring_honours_weights() {
        for balance in [Balance::RingHash, Balance::Maglev] {
            let names = vec![("a:1".to_owned(), 30), ("b:1".to_owned(), 10), ("c:1".to_owned(), 0)];
            let mut balancer = Balancer::new(balance, &names, Rng::new(7));
            let all = candidates(&[30, 10]);
            let mut rng = Rng::new(1);
            let first = (0..10_000).filter(|_| balancer.choose(&all, Some(rng.next_u64())) == Some(0)).count();
            assert!((7_000..8_000).contains(&first), "{balance:?}: {first}");
        }
    }
}
