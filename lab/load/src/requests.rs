//! The requests of one shard: bytes and expected replies, made before the timed part as a pure function of seed and
//! scenario. While the clock runs, sending is a slice and checking is arithmetic.
//!
//! The plan is finite and is gone through again when it is used up; counting goes on, so index `i` of a long run is
//! request `i mod len`, and the check knows that keys then hold what the round before wrote. Strings, counters (INCR) and
//! raw words have key names of their own, so that no command breaks the values another one checks.

use std::collections::HashMap;
use std::ops::Range;

use weir_base::Rng;
use weir_resp::encode;

use crate::keys::KeyPicker;
use crate::scenario::{CommandKind, Scenario};
use crate::shard::{Purpose, Shard};
use crate::values::{Generation, Values};

mod check;
mod http;

pub use check::Integrity;

/// Requests of one shard's plan. Default 1,048,576: a working set that no cache of a server holds by accident, for about
/// 100 MiB with small commands. More would only cost memory; see [`ARENA_BYTES_MAX`].
pub const REQUESTS_MAX: usize = 1 << 20;

/// Bytes of one shard's encoded requests. Default 128 MiB: 2,048 SETs of 64 KiB. A plan that reaches it ends there.
/// Besides, each request or key of an MGET costs up to 32 bytes of expectation.
pub const ARENA_BYTES_MAX: usize = 128 << 20;

// Places in the arena and numbers of SETs are 32 bits wide; the last request may reach past the limit before it is dropped.
const _: () = assert!(2 * ARENA_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(REQUESTS_MAX < u32::MAX as usize);

/// The plan of one shard.
#[derive(Debug)]
pub struct Requests {
    arena: Vec<u8>,
    /// Where each request begins in the arena, and the end of the last.
    starts: Vec<u32>,
    plans: Vec<Plan>,
    /// Keys of MGETs.
    wanted: Vec<Wanted>,
    values: Values,
    /// `None`: the scenario does not check.
    checks: Option<Checks>,
}

/// What the plan says of one request's reply.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Get(Wanted),
    /// From and until, in [`Requests::wanted`].
    Mget(u32, u32),
    Set,
    Incr,
    Raw,
    /// A body of HTTP: its bytes, and whether it begins with the word of its target.
    Body {
        size: u32,
        has_word: bool,
    },
    /// What was sent, over WebSocket.
    Message,
}

/// The value that a key holds when the plan is followed in order.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    key: u64,
    /// Number of the SET, in the first round of the plan; 0: what the preload wrote.
    first: u32,
    /// The same in later rounds.
    later: u32,
    /// SETs of this run can be under way while the key is read, so that other planned values are possible.
    contested: bool,
}

/// What the check has to know besides the plan.
#[derive(Clone, Copy, Debug)]
struct Checks {
    shard: Shard,
    is_preloaded: bool,
}

impl Requests {
    /// Plans the requests of `shard`: `wanted` of them (at least 1), as far as [`REQUESTS_MAX`] and [`ARENA_BYTES_MAX`]
    /// allow. The caller names the requests of its longest phase; less than that and the plan is gone through again.
    #[must_use]
    pub fn build(scenario: &Scenario, shard: Shard, wanted: u64) -> Self {
        let count = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, REQUESTS_MAX);
        let mut planner = Planner::new(scenario, shard);
        while planner.plans.len() < count && planner.plan_one() {}
        planner.finish()
    }

    /// Requests of one round, at least 1.
    #[must_use]
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// Never: there is always a request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// The encoded bytes of request `index`; of HTTP/2 its header block, without the frame around it.
    #[inline]
    #[must_use]
    pub fn bytes(&self, index: u64) -> &[u8] {
        let at = self.place(index);
        &self.arena[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Bytes of all requests of one round.
    #[must_use]
    pub fn round_bytes(&self) -> usize {
        self.arena.len()
    }

    #[inline]
    fn place(&self, index: u64) -> usize {
        (index % self.plans.len() as u64) as usize
    }
}

/// The SETs that fill the key space before the run. Every shard writes the keys that it is given.
#[derive(Debug)]
pub struct Preload {
    names: Names,
    values: Values,
    next: Range<u64>,
    step: u64,
}

impl Preload {
    /// The keys of `shard`; none if the scenario does not preload. All shards together write each key once.
    #[must_use]
    pub fn new(scenario: &Scenario, shard: Shard) -> Self {
        let end = if scenario.keys.preload { scenario.keys.count } else { 0 };
        Self {
            names: Names::new(scenario),
            values: Values::new(scenario.seed, &scenario.payload),
            next: u64::from(shard.index())..end,
            step: u64::from(shard.of()),
        }
    }

    /// SETs still to come.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.next.end.saturating_sub(self.next.start).div_ceil(self.step)
    }

    /// Appends the next SET; false if there is none. Its reply is `+OK`.
    pub fn write_next(&mut self, out: &mut Vec<u8>) -> bool {
        if self.next.is_empty() {
            return false;
        }
        let key = self.next.start;
        self.next.start += self.step;
        let (mut name, mut value) = (Vec::new(), Vec::new());
        self.names.write(Space::Strings, key, &mut name);
        self.values.write(key, Generation::PRELOADED, &mut value);
        encode::command(out, [b"SET", &name[..], &value]);
        true
    }
}

/// Key names. Numbers have the same width, so that all requests of a kind are of one length.
#[derive(Clone, Debug)]
struct Names {
    prefix: String,
    digits: usize,
}

/// Keys that only one kind of command uses.
#[derive(Clone, Copy)]
enum Space {
    Strings,
    Counters,
    Raw,
}

impl Names {
    fn new(scenario: &Scenario) -> Self {
        let last = scenario.keys.count.max(1) - 1;
        Self { prefix: scenario.keys.prefix.clone(), digits: last.to_string().len() }
    }

    fn write(&self, space: Space, key: u64, out: &mut Vec<u8>) {
        let word = match space {
            Space::Strings => "",
            Space::Counters => "counter:",
            Space::Raw => "raw:",
        };
        out.extend_from_slice(format!("{}{word}{key:0width$}", self.prefix, width = self.digits).as_bytes());
    }
}

/// Builds a [`Requests`].
struct Planner<'a> {
    scenario: &'a Scenario,
    shard: Shard,
    rng: Rng,
    picker: KeyPicker,
    names: Names,
    values: Values,
    arena: Vec<u8>,
    starts: Vec<u32>,
    plans: Vec<Plan>,
    wanted: Vec<Wanted>,
    /// Number of the latest planned SET of each key that has one.
    latest: HashMap<u64, u32>,
    sets: u32,
    weight_total: u64,
}

impl<'a> Planner<'a> {
    fn new(scenario: &'a Scenario, shard: Shard) -> Self {
        Self {
            scenario,
            shard,
            rng: shard.stream(scenario.seed, Purpose::Requests, 0),
            picker: KeyPicker::new(scenario.keys.distribution, scenario.keys.count),
            names: Names::new(scenario),
            values: Values::new(scenario.seed, &scenario.payload),
            arena: Vec::new(),
            starts: vec![0],
            plans: Vec::new(),
            wanted: Vec::new(),
            latest: HashMap::new(),
            sets: 0,
            weight_total: scenario.commands.iter().map(|one| u64::from(one.weight)).sum(),
        }
    }

    /// Plans the next request; false if it does not fit the arena any more.
    fn plan_one(&mut self) -> bool {
        let plan = if self.scenario.protocol.is_http() { self.plan_http() } else { self.plan_command() };
        let is_first = self.plans.is_empty();
        if self.arena.len() > ARENA_BYTES_MAX && !is_first {
            return false;
        }
        // Within u32: one request stays far below what lies between the two limits.
        self.starts.push(self.arena.len() as u32);
        self.plans.push(plan);
        true
    }

    fn plan_command(&mut self) -> Plan {
        match self.draw_command() {
            CommandKind::Get => {
                let wanted = self.want();
                let name = self.name(Space::Strings, wanted.key);
                encode::command(&mut self.arena, [b"GET", &name[..]]);
                Plan::Get(wanted)
            }
            CommandKind::Set => {
                self.plan_set();
                Plan::Set
            }
            CommandKind::Mget { keys } => self.plan_mget(*keys),
            CommandKind::Incr => {
                let key = self.picker.pick(&mut self.rng);
                let name = self.name(Space::Counters, key);
                encode::command(&mut self.arena, [b"INCR", &name[..]]);
                Plan::Incr
            }
            CommandKind::Raw { words } => {
                self.plan_raw(words);
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

    fn plan_set(&mut self) {
        let key = self.picker.pick(&mut self.rng);
        self.sets += 1;
        self.latest.insert(key, self.sets);
        let name = self.name(Space::Strings, key);
        let mut value = Vec::new();
        self.values.write(key, Generation::of_set(self.shard, self.sets), &mut value);
        encode::command(&mut self.arena, [b"SET", &name[..], &value]);
    }

    fn plan_mget(&mut self, keys: u32) -> Plan {
        let from = self.wanted.len() as u32;
        let mut words = vec![b"MGET".to_vec()];
        for _ in 0..keys {
            let wanted = self.want();
            words.push(self.name(Space::Strings, wanted.key));
            self.wanted.push(wanted);
        }
        encode::command(&mut self.arena, words);
        Plan::Mget(from, self.wanted.len() as u32)
    }

    fn plan_raw(&mut self, words: &[String]) {
        let key = self.picker.pick(&mut self.rng);
        let name = self.name(Space::Raw, key);
        let mut value = Vec::new();
        self.values.write(key, Generation::PRELOADED, &mut value);
        let filled = words.iter().map(|word| match word.as_str() {
            "{key}" => &name[..],
            "{value}" => &value[..],
            word => word.as_bytes(),
        });
        encode::command(&mut self.arena, filled);
    }

    /// A key to read and what it holds now. `later` and `contested` are settled at the end.
    fn want(&mut self) -> Wanted {
        let key = self.picker.pick(&mut self.rng);
        let first = self.latest.get(&key).copied().unwrap_or(0);
        Wanted { key, first, later: first, contested: false }
    }

    fn name(&self, space: Space, key: u64) -> Vec<u8> {
        let mut name = Vec::new();
        self.names.write(space, key, &mut name);
        name
    }

    fn finish(mut self) -> Requests {
        let writes = self.scenario.commands.iter().any(|one| one.kind == CommandKind::Set);
        // What other shards plan for a key is not known here; any of them may write it.
        let others_write = writes && self.shard.of() > 1;
        let settle = |wanted: &mut Wanted| {
            let latest = self.latest.get(&wanted.key).copied();
            if wanted.first == 0 {
                wanted.later = latest.unwrap_or(0);
            }
            wanted.contested = others_write || latest.is_some();
        };
        self.wanted.iter_mut().for_each(settle);
        for plan in &mut self.plans {
            if let Plan::Get(wanted) = plan {
                settle(wanted);
            }
        }
        let end = self.starts.last().map_or(0, |end| *end as usize);
        self.arena.truncate(end);
        self.arena.shrink_to_fit();
        let checks = Checks { shard: self.shard, is_preloaded: self.scenario.keys.preload };
        Requests {
            arena: self.arena,
            starts: self.starts,
            plans: self.plans,
            wanted: self.wanted,
            values: self.values,
            checks: self.scenario.integrity.then_some(checks),
        }
    }
}

#[cfg(test)]
mod tests;
