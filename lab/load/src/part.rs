//! One of n processes that run a scenario together: which of its shards are that process's own.
//!
//! Everything random is drawn by shard, so who runs a shard changes nothing about its requests, keys and intended times:
//! the loads of all parts together are the load of one process with as many shards.

use std::fmt;
use std::str::FromStr;

use crate::measured::rounded;
use crate::record::Load;
use crate::scenario::{Phase, Scenario};
use crate::shard::{SHARDS_MAX, Shard};

/// Which part, of how many: counted as shards are, and as many at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part(Shard);

impl Part {
    /// A process that runs all shards.
    pub const WHOLE: Self = Self(Shard::ONLY);

    /// Part `index` (from 0) of `of`; `None` if there is none, see [`Shard::new`].
    #[must_use]
    pub fn new(index: u32, of: u32) -> Option<Self> {
        Shard::new(index, of).map(Self)
    }

    /// Every part of `of`, in order; none if there cannot be as many.
    pub fn all(of: u32) -> impl Iterator<Item = Self> {
        Shard::all(of).map(Self)
    }

    /// From 0.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index()
    }

    /// Parts of the run.
    #[must_use]
    pub const fn of(self) -> u32 {
        self.0.of()
    }

    /// The only part there is.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.of() == 1
    }

    /// Its shards among `shards` of the scenario. Every shard belongs to one part.
    pub fn shards(self, shards: u32) -> impl Iterator<Item = Shard> {
        Shard::all(shards).filter(move |shard| shard.index() % self.of() == self.index())
    }

    /// Connections of its shards.
    #[must_use]
    pub fn connections(self, scenario: &Scenario) -> u32 {
        self.shards(scenario.shards).map(|shard| shard.part(scenario.connections)).sum()
    }

    /// Load of this part in `phase`: its connections and its shards' share of the rate, to a thousandth as rates are.
    #[must_use]
    pub fn load(self, scenario: &Scenario, phase: &Phase) -> Load {
        let whole = Load::of(scenario, phase);
        let share = self.shards(scenario.shards).count() as f64 / f64::from(scenario.shards);
        Load {
            offered: whole.offered.map(|rate| rounded(rate * share)),
            connections: self.connections(scenario),
            ..whole
        }
    }

    /// Whether each part of such a run has a shard of `scenario`.
    ///
    /// # Errors
    /// There are fewer shards than parts.
    pub fn check(self, scenario: &Scenario) -> Result<(), TooFewShards> {
        let Scenario { shards, .. } = *scenario;
        if shards < self.of() { Err(TooFewShards { parts: self.of(), shards }) } else { Ok(()) }
    }
}

/// `2/4`, counted from 1.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index() + 1, self.of())
    }
}

/// Reads what it displays as.
impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        let part = numbers.and_then(|(number, of): (u32, u32)| Self::new(number.checked_sub(1)?, of));
        part.ok_or_else(|| format!("write which part of how many, from 1/2 to {SHARDS_MAX}/{SHARDS_MAX}: 2/4"))
    }
}

/// A process without a shard would have nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewShards {
    parts: u32,
    shards: u32,
}

impl fmt::Display for TooFewShards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parts, shards } = self;
        write!(
            f,
            "{parts} processes need a shard each, and the scenario has {shards}; nothing was sent. Write `shards = \
             {parts}` in the scenario (or a multiple), or take fewer processes"
        )
    }
}

impl std::error::Error for TooFewShards {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Schedule;
    use crate::protocols::redis::Preload;
    use crate::requests::Requests;
    use crate::scenario::{self, Mode};

    fn scenario(shards: u32, arrival: &str) -> Scenario {
        let source = format!(
            "name = \"s\"\nprotocol = \"redis\"\n{arrival}\nshards = {shards}\nconnections = 11\nkeys = {{ count = 90 }}\n\
             command = [{{ name = \"GET\" }}, {{ name = \"SET\" }}]\nphase = [{{ rate = 3000, duration = \"1s\" }}]\n"
        );
        scenario::parse("s.toml", &source).expect("a right scenario")
    }

    /// Shard, intended time and bytes.
    type Request = (u32, u64, Vec<u8>);

    /// Every request of a run of so many processes, and every key that is written first.
    fn load(scenario: &Scenario, processes: u32) -> (Vec<Request>, Vec<Vec<u8>>) {
        let Mode::Open(arrival) = scenario.mode else { panic!("an open loop") };
        let phase = &scenario.phases[0];
        let (mut requests, mut keys) = (Vec::new(), Vec::new());
        for shard in Part::all(processes).flat_map(|part| part.shards(scenario.shards)) {
            let rate = phase.rate.expect("a rate");
            let planned = Requests::build(scenario, shard, 5_000);
            let times = Schedule::new(arrival, rate, scenario.seed, 0, shard, phase.duration);
            let sent = times.zip(0..).map(|(time, at)| (shard.index(), time, planned.bytes(at).to_vec()));
            requests.extend(sent);
            let (mut preload, mut key) = (Preload::new(scenario, shard), Vec::new());
            while preload.write_next(&mut key) {
                keys.push(std::mem::take(&mut key));
            }
        }
        requests.sort();
        keys.sort();
        (requests, keys)
    }

    #[test]
    fn the_parts_together_are_the_load_of_one_process() {
        for arrival in ["\"deterministic\"", "\"poisson\"", "\"gamma\"\nburstiness = 4", "\"on_off\"\nburst = 10"] {
            let scenario = scenario(5, &format!("arrival = {arrival}"));
            let whole = load(&scenario, 1);
            assert!(whole.0.len() > 2_500 && whole.1.len() == 90, "{arrival}");
            for processes in [2, 3, 5] {
                assert!(load(&scenario, processes) == whole, "{processes} processes, {arrival}");
            }
        }
    }

    #[test]
    fn loads_of_parts_add_up_and_the_whole_is_exact() {
        let scenario = scenario(5, "");
        let phase = &scenario.phases[0];
        for processes in 1..=5 {
            let loads: Vec<Load> = Part::all(processes).map(|part| part.load(&scenario, phase)).collect();
            assert_eq!(loads.iter().map(|load| load.connections).sum::<u32>(), 11);
            let offered: f64 = loads.iter().filter_map(|load| load.offered).sum();
            assert!((offered - 3_000.0).abs() < 0.01, "{offered}");
        }
        assert_eq!(Part::WHOLE.load(&scenario, phase), Load::of(&scenario, phase));
    }

    #[test]
    fn a_part_is_written_from_one_and_needs_a_shard() {
        let second = Part::new(1, 4).expect("there is one");
        assert_eq!((second.to_string().as_str(), "2/4".parse()), ("2/4", Ok(second)));
        for wrong in ["", "2", "0/4", "5/4", "1/257", "a/b", "1/2/3", "-1/2"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
        assert_eq!(second.check(&scenario(4, "")), Ok(()));
        let refusal = second.check(&scenario(3, "")).expect_err("three shards for four").to_string();
        assert!(refusal.contains("the scenario has 3") && refusal.contains("`shards = 4`"), "{refusal}");
    }
}
