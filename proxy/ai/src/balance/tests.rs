use weir_spend::Glob;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn at(millis: u64) -> Time {
    Time::from_nanos(SECOND + millis * 1_000_000)
}

fn model(balance: Balance, weights: &[u32]) -> Model {
    let target = |(upstream, weight): (usize, &u32)| Target { upstream, model: None, weight: *weight };
    let targets = weights.iter().enumerate().map(target).collect();
    Model { name: Glob::new("m").expect("a name"), balance, sticky_prefix_bytes: None, targets }
}

/// A model with its measures.
struct World {
    model: Model,
    balancer: Rc<Balancer>,
    prices: Vec<Option<u64>>,
    cooling: Option<usize>,
}

impl World {
    fn new(balance: Balance, weights: &[u32]) -> Self {
        let model = model(balance, weights);
        let balancer = Rc::new(Balancer::new(std::slice::from_ref(&model)));
        Self { model, balancer, prices: vec![None; weights.len()], cooling: None }
    }

    fn order(&self, now: Time) -> Vec<usize> {
        self.order_of(now, true)
    }

    fn order_of(&self, now: Time, is_stream: bool) -> Vec<usize> {
        let mut targets = self.model.targets.clone();
        let conditions = Conditions {
            now,
            is_stream,
            is_cooling: &|upstream| self.cooling == Some(upstream),
            cost: &|target| self.prices[target.upstream],
        };
        self.balancer.order(&self.model, 0, &mut targets, &conditions);
        targets.iter().map(|target| target.upstream).collect()
    }

    fn begin(&self, target: usize, now: Time) -> Attempt {
        self.balancer.begin(&self.model, 0, &self.model.targets[target], true, now).expect("a measure")
    }

    /// A stream that begins now has its first token so much later.
    fn responds(&self, target: usize, now: u64, took: u64) {
        self.begin(target, at(now)).arrived(at(now + took));
    }
}

#[test]
fn the_fastest_is_first_and_the_others_follow_by_their_speed() {
    let world = World::new(Balance::Latency, &[1, 1, 1, 0]);
    assert_eq!(world.order(at(0)), [0, 1, 2, 3], "nothing is measured");
    world.responds(2, 0, 900);
    assert_eq!(world.order(at(1_000)), [2, 0, 1, 3], "one that is measured comes first");
    world.responds(0, 0, 500);
    world.responds(1, 0, 300);
    world.responds(3, 0, 1);
    assert_eq!(world.order(at(1_000)), [1, 0, 2, 3], "without a weight only after a failure");
    assert_eq!(world.order_of(at(1_000), false), [0, 1, 2, 3], "whole responses are measured apart");
}

#[test]
fn a_peak_counts_at_once_and_is_forgotten_with_time() {
    let world = World::new(Balance::Latency, &[1, 1]);
    world.responds(0, 0, 100);
    world.responds(1, 0, 200);
    world.responds(0, 1_000, 4_000);
    assert_eq!(world.order(at(5_000)), [1, 0]);
    // A fast response right behind the peak changes little, and one after a long time much.
    world.responds(0, 5_100, 100);
    assert_eq!(world.order(at(5_200)), [1, 0]);
    for begun in [40_000, 80_000] {
        world.responds(0, begun, 100);
    }
    assert_eq!(world.order(at(80_100)), [0, 1]);
}

#[test]
fn a_target_that_falls_silent_is_left_before_its_deadline() {
    let world = World::new(Balance::Latency, &[1, 1]);
    world.responds(0, 0, 100);
    world.responds(1, 0, 800);
    let stuck = world.begin(0, at(1_000));
    assert_eq!(world.order(at(1_700)), [0, 1], "it may come yet");
    assert_eq!(world.order(at(1_900)), [1, 0], "the other one would be there by now");
    drop(stuck);
    assert_eq!(world.order(at(1_900)), [0, 1], "a client that leaves tells nothing");
    // Under load some attempt always waits, and tokens come.
    let (first, second) = (world.begin(0, at(2_000)), world.begin(0, at(2_050)));
    first.arrived(at(2_100));
    assert_eq!(world.order(at(2_150)), [0, 1]);
    drop(second);
}

#[test]
fn few_requests_probe_the_others_so_that_one_that_recovers_comes_back() {
    let world = World::new(Balance::Latency, &[1, 1]);
    world.responds(0, 0, 100);
    world.responds(1, 0, 5_000);
    let mut firsts = [0, 0];
    let mut now = 6_000;
    // Ten requests a second for 200 s; the slow one responds in 50 ms from now on.
    for _ in 0..2_000 {
        now += 100;
        let first = world.order(at(now))[0];
        firsts[first] += 1;
        world.responds(first, now, [100, 50][first]);
        if firsts[1] > 100 {
            break;
        }
    }
    assert!(firsts[1] > 100, "it has come back: {firsts:?}");
    assert!((50..1_000).contains(&firsts[0]), "not at once, and not late: {firsts:?}");
}

#[test]
fn probes_are_a_bounded_share_of_requests() {
    let world = World::new(Balance::Latency, &[1, 1, 1]);
    [100, 3_000, 2_000].into_iter().enumerate().for_each(|(target, took)| world.responds(target, 0, took));
    // A request a minute: each other target has had no measure for long.
    let probes: Vec<usize> = (1..=1_000)
        .map(|minute| {
            let now = minute * 60_000;
            let first = world.order(at(now))[0];
            world.responds(first, now, [100, 3_000, 2_000][first]);
            first
        })
        .filter(|first| *first != 0)
        .collect();
    assert_eq!(probes.len(), 1_000 / PROBE_REQUESTS as usize);
    assert!(probes.contains(&1) && probes.contains(&2), "each has its turn");
    // Many requests at once: a target has one probe under way.
    let world = World::new(Balance::Latency, &[1, 1]);
    world.responds(0, 0, 100);
    let begun: Vec<Attempt> = (0..1_000).map(|_| world.begin(world.order(at(500))[0], at(500))).collect();
    assert_eq!(begun.iter().filter(|attempt| attempt.target == 1).count(), 1);
}

#[test]
fn a_target_that_failed_comes_last_and_one_request_in_ten_seconds_tries_it() {
    for balance in [Balance::Latency, Balance::Price] {
        let mut world = World::new(balance, &[1, 1, 0]);
        world.prices = vec![Some(1), Some(2), Some(0)];
        world.responds(0, 0, 100);
        world.responds(1, 0, 200);
        world.begin(0, at(1_000)).failed(at(1_010));
        assert_eq!(world.order(at(1_020)), [1, 2, 0], "{balance:?}: the spare one is better");
        assert_eq!(world.order(at(11_100)), [0, 1, 2], "{balance:?}");
        let trial = world.begin(0, at(11_100));
        assert_eq!(world.order(at(11_200)), [1, 2, 0], "{balance:?}: one is enough");
        trial.arrived(at(11_200));
        assert_eq!(world.order(at(11_300)), [0, 1, 2], "{balance:?}");
    }
}

#[test]
fn the_cheapest_is_first_and_one_without_a_price_comes_behind() {
    let mut world = World::new(Balance::Price, &[1, 1, 1, 0]);
    world.prices = vec![Some(300), None, Some(200), Some(100)];
    assert_eq!(world.order(at(0)), [2, 0, 1, 3]);
    world.cooling = Some(2);
    assert_eq!(world.order(at(0)), [0, 1, 3, 2], "a pause that a provider demands comes before its price");
    world.responds(0, 0, 9_000);
    world.cooling = None;
    let orders: Vec<_> = (0..100).map(|second| world.order(at(second * 1_000))).collect();
    assert!(orders.iter().all(|order| *order == [2, 0, 1, 3]), "a price needs no probe, and no speed");
}

#[test]
fn weights_need_no_measure() {
    let world = World::new(Balance::Weight, &[1, 1]);
    assert_eq!(world.order(at(0)), [0, 1]);
    assert!(world.balancer.begin(&world.model, 0, &world.model.targets[0], true, at(0)).is_none());
}
