//! The commands of one shard, and what each key holds when they are followed in order. Strings, counters (INCR) and raw
//! words have key names of their own, so that no command breaks the values another one checks.

use std::collections::HashMap;

use weir_base::Rng;
use weir_resp::encode;

use super::check::Replies;
use super::names::{Names, Space};
use crate::keys::KeyPicker;
use crate::requests::{Expectation, Planner};
use crate::scenario::{CommandKind, Scenario};
use crate::shard::{Purpose, Shard};
use crate::values::{Generation, Values};

/// The expected reply to one request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    Get(ExpectedValue),
    /// From and until, among the keys of MGETs.
    Mget(u32, u32),
    Set,
    Incr,
    Raw,
}

/// The value that a key holds when the plan is followed in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedValue {
    pub(super) key: u64,
    /// Number of the SET, in the first round of the plan; 0: what the preload wrote.
    pub(super) first: u32,
    /// The same in later rounds.
    pub(super) later: u32,
    /// SETs of this run can be under way while the key is read, so that other planned values are possible.
    pub(super) contested: bool,
}

/// Draws the commands of one shard.
pub(super) struct Commands<'a> {
    scenario: &'a Scenario,
    shard: Shard,
    rng: Rng,
    picker: KeyPicker,
    names: Names,
    values: Values,
    plans: Vec<Plan>,
    expected_value: Vec<ExpectedValue>,
    /// Number of the latest planned SET of each key that has one.
    latest: HashMap<u64, u32>,
    sets: u32,
    weight_total: u64,
}

impl<'a> Commands<'a> {
    pub(super) fn new(scenario: &'a Scenario, shard: Shard) -> Self {
        Self {
            scenario,
            shard,
            rng: shard.stream(scenario.seed, Purpose::Requests, 0),
            picker: KeyPicker::new(scenario.keys.distribution, scenario.keys.count),
            names: Names::new(scenario),
            values: Values::new(scenario.seed, &scenario.payload),
            plans: Vec::new(),
            expected_value: Vec::new(),
            latest: HashMap::new(),
            sets: 0,
            weight_total: scenario.commands.iter().map(|one| u64::from(one.weight)).sum(),
        }
    }

    fn plan_command(&mut self, arena: &mut Vec<u8>) -> Plan {
        match self.draw_command() {
            CommandKind::Get => {
                let expected_value = self.want();
                let name = self.name(Space::Strings, expected_value.key);
                encode::command(arena, [b"GET", &name[..]]);
                Plan::Get(expected_value)
            }
            CommandKind::Set => {
                self.plan_set(arena);
                Plan::Set
            }
            CommandKind::Mget { keys } => self.plan_mget(*keys, arena),
            CommandKind::Incr => {
                let key = self.picker.pick(&mut self.rng);
                let name = self.name(Space::Counters, key);
                encode::command(arena, [b"INCR", &name[..]]);
                Plan::Incr
            }
            CommandKind::Raw { words } => {
                self.plan_raw(words, arena);
                Plan::Raw
            }
        }
    }

    fn draw_command(&mut self) -> &'a CommandKind {
        let mut left = self.rng.below(self.weight_total);
        let commands = &self.scenario.commands;
        let drawn = commands.iter().find(|one| {
            let is_drawn = left < u64::from(one.weight);
            left = left.saturating_sub(u64::from(one.weight));
            is_drawn
        });
        drawn.map_or(&CommandKind::Get, |one| &one.kind)
    }

    fn plan_set(&mut self, arena: &mut Vec<u8>) {
        let key = self.picker.pick(&mut self.rng);
        self.sets += 1;
        self.latest.insert(key, self.sets);
        let name = self.name(Space::Strings, key);
        let mut value = Vec::new();
        self.values.write(key, Generation::of_set(self.shard, self.sets), &mut value);
        encode::command(arena, [b"SET", &name[..], &value]);
    }

    fn plan_mget(&mut self, keys: u32, arena: &mut Vec<u8>) -> Plan {
        let from = self.expected_value.len() as u32;
        let mut words = vec![b"MGET".to_vec()];
        for _ in 0..keys {
            let expected_value = self.want();
            words.push(self.name(Space::Strings, expected_value.key));
            self.expected_value.push(expected_value);
        }
        encode::command(arena, words);
        Plan::Mget(from, self.expected_value.len() as u32)
    }

    fn plan_raw(&mut self, words: &[String], arena: &mut Vec<u8>) {
        let key = self.picker.pick(&mut self.rng);
        let name = self.name(Space::Raw, key);
        let mut value = Vec::new();
        if words.iter().any(|word| word == "{value}") {
            self.values.write(key, Generation::PRELOADED, &mut value);
        }
        let filled = words.iter().map(|word| match word.as_str() {
            "{key}" => &name[..],
            "{value}" => &value[..],
            word => word.as_bytes(),
        });
        encode::command(arena, filled);
    }

    /// A key to read and what it holds now. `later` and `contested` are settled at the end.
    fn want(&mut self) -> ExpectedValue {
        let key = self.picker.pick(&mut self.rng);
        let first = self.latest.get(&key).copied().unwrap_or(0);
        ExpectedValue { key, first, later: first, contested: false }
    }

    fn name(&self, space: Space, key: u64) -> Vec<u8> {
        let mut name = Vec::new();
        self.names.write(space, key, &mut name);
        name
    }
}

impl Planner for Commands<'_> {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        let plan = self.plan_command(arena);
        self.plans.push(plan);
    }

    fn finish(mut self: Box<Self>) -> Box<dyn Expectation> {
        let writes = self.scenario.commands.iter().any(|one| one.kind == CommandKind::Set);
        // The plans of other shards for a key are not known here; any of them may write it.
        let others_write = writes && self.shard.of() > 1;
        let settle = |expected_value: &mut ExpectedValue| {
            let latest = self.latest.get(&expected_value.key).copied();
            if expected_value.first == 0 {
                expected_value.later = latest.unwrap_or(0);
            }
            expected_value.contested = others_write || latest.is_some();
        };
        self.expected_value.iter_mut().for_each(settle);
        for plan in &mut self.plans {
            if let Plan::Get(expected_value) = plan {
                settle(expected_value);
            }
        }
        Box::new(Replies {
            plans: self.plans,
            expected_value: self.expected_value,
            values: self.values,
            shard: self.shard,
            is_preloaded: self.scenario.keys.preload,
        })
    }
}
