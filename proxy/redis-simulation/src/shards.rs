//! A client in front of several shards, or of a cluster that moves its keys about while it speaks: every reply is that of its
//! command, and what one client does to a key happens in the order in which it said so.

use std::collections::{BTreeMap, VecDeque};

use weir_base::exchange::{LossCause, Refusal};
use weir_redis_session::{refusal, settings::RedisListenerSettings};
use weir_resp::{Value, ValueLimits, encode};

use crate::{Simulation, swarm::Choice};

/// Steps of a run.
const STEPS: u32 = 400;
/// Rounds in which everything must come to rest afterwards.
const ROUNDS: u32 = 200;
const SHARDS: u16 = 3;

/// Bytes that make a value large, for each of the limits that a run may have: below it, at it, beyond it, and far beyond.
const PADDINGS: [usize; 6] = [0, 0, 60, 95, 300, 2_000];

/// A command of the client, with the facts that decide which replies are right.
#[derive(Debug)]
enum ClientCommand {
    Set {
        key: String,
        value: String,
    },
    Mget(Vec<String>),
    Mset,
    Del(usize),
    Watch,
    Unwatch,
    Multi,
    Queued,
    /// EXEC of so many commands.
    Exec(usize),
}

struct Run<'a, C: Choice> {
    choice: &'a mut C,
    simulation: Simulation,
    is_cluster: bool,
    has_losses: bool,
    /// Keys are watched, and transactions sent.
    has_state: bool,
    tag: u64,
    said: VecDeque<ClientCommand>,
    received: Vec<u8>,
    /// When a key was last set, by the clock of the servers.
    last_set: BTreeMap<String, u64>,
}

/// One session over shards, or over the nodes of a cluster. Panics if an invariant does not hold.
pub fn run(choice: &mut impl Choice, is_cluster: bool) {
    let settings = RedisListenerSettings {
        pipeline_max: [1024, 1, 3, 8][choice.below(4) as usize],
        pipeline_bytes: [1 << 20, 64, 300, 1000][choice.below(4) as usize],
        stream_bytes: [1 << 16, 64, 100, 300][choice.below(4) as usize],
        ..RedisListenerSettings::default()
    };
    let simulation = Simulation::new(settings);
    simulation.world.set_shards(SHARDS);
    if is_cluster {
        simulation.world.set_cluster();
    }
    let has_losses = choice.below(2) == 1;
    let has_state = choice.below(2) == 1;
    let mut run = Run {
        choice,
        simulation,
        is_cluster,
        has_losses,
        has_state,
        tag: 0,
        said: VecDeque::new(),
        received: Vec::new(),
        last_set: BTreeMap::new(),
    };
    for _ in 0..STEPS {
        if run.choice.is_spent() || run.simulation.end().is_some() {
            break;
        }
        run.step();
    }
    run.calm_down();
}

impl<C: Choice> Run<'_, C> {
    fn step(&mut self) {
        let sizes = [usize::MAX, 1, 2, 7, 30, 200];
        let size = sizes[self.choice.below(6) as usize];
        let lanes = self.simulation.world.lane_count() as u64;
        let lane = self.choice.below(lanes.max(1)) as usize;
        match self.choice.below(19) {
            16 | 17 => self.resolve_pin(),
            0..=3 => self.speak(),
            4 | 5 => drop(self.simulation.arrive(size)),
            6 | 7 if lanes > 0 => drop(self.simulation.flush(lane)),
            8 | 9 if lanes > 0 => drop(self.simulation.execute(lane)),
            10 | 11 if lanes > 0 => drop(self.simulation.deliver(lane, size)),
            12 => drop(self.simulation.wake()),
            13 => self.listen(),
            14 if self.is_cluster => self.move_about(),
            15 if self.has_losses && lanes > 0 => match self.choice.below(4) {
                0 => self.simulation.lose(lane, LossCause::Closed),
                1 => drop(self.simulation.refuse_oldest(lane, Refusal::Unreachable)),
                2 => self.simulation.lose_parked(),
                _ => self.simulation.world.retire_lane(lane),
            },
            _ => drop(self.simulation.retry()),
        }
    }

    fn key(&mut self) -> String {
        format!("key{}", self.choice.below(5))
    }

    /// The requested lane comes, or does not.
    fn resolve_pin(&mut self) {
        let is_refused = self.has_losses && self.choice.below(4) == 0;
        self.simulation.resolve_pin(if is_refused { Err(Refusal::Unreachable) } else { Ok(()) });
    }

    fn value(&mut self, of: &str) -> String {
        format!("{of}{}{}", self.tag, "x".repeat(PADDINGS[self.choice.below(6) as usize]))
    }

    fn say(&mut self, words: &[String], said: ClientCommand) {
        let mut wire = Vec::new();
        encode::command(&mut wire, words);
        self.simulation.send(&wire);
        self.said.push_back(said);
    }

    /// State on one shard, and what ends it. A transaction is said whole: what is refused in it spoils it.
    fn speak_of_state(&mut self) {
        let key = self.key();
        let word = |word: &str| vec![word.to_owned()];
        match self.choice.below(4) {
            0 | 1 => self.say(&["WATCH".to_owned(), key], ClientCommand::Watch),
            2 => self.say(&word("UNWATCH"), ClientCommand::Unwatch),
            _ => {
                self.say(&word("MULTI"), ClientCommand::Multi);
                let count = 1 + self.choice.below(2) as usize;
                for _ in 0..count {
                    let value = self.value("q");
                    self.say(&["SET".to_owned(), key.clone(), value], ClientCommand::Queued);
                }
                self.say(&word("EXEC"), ClientCommand::Exec(count));
            }
        }
    }

    fn speak(&mut self) {
        self.tag += 1;
        if self.has_state && self.choice.below(4) == 0 {
            return self.speak_of_state();
        }
        let several: Vec<String> = (0..1 + self.choice.below(4)).map(|_| self.key()).collect();
        let (words, said): (Vec<String>, ClientCommand) = match self.choice.below(6) {
            0 => ([vec!["MGET".to_owned()], several.clone()].concat(), ClientCommand::Mget(several)),
            1 => {
                let value = self.value("m");
                let pairs = several.iter().flat_map(|key| [key.clone(), value.clone()]);
                (["MSET".to_owned()].into_iter().chain(pairs).collect(), ClientCommand::Mset)
            }
            2 => ([vec!["DEL".to_owned()], several.clone()].concat(), ClientCommand::Del(several.len())),
            _ => {
                let (key, value) = (self.key(), self.value("t"));
                (vec!["SET".to_owned(), key.clone(), value.clone()], ClientCommand::Set { key, value })
            }
        };
        self.say(&words, said);
    }

    fn move_about(&mut self) {
        let (group, shard) = (self.choice.below(SHARDS.into()) as u16, self.choice.below(SHARDS.into()) as u16);
        let what = self.choice.below(6);
        let world = &self.simulation.world;
        let is_asked = |shard: u16| {
            (0..world.lane_count())
                .any(|lane| world.with_lane(lane, |lane, _| lane.key.shard == shard && lane.in_flight() > 0))
        };
        // A node that becomes the owner meanwhile says MOVED to one request and serves the next: no client can keep
        // them in order, and no slot comes back to where it left within a round trip.
        let asked: Vec<bool> = (0..SHARDS).map(is_asked).collect();
        let mut server = self.simulation.world.server();
        let home = server.homes.get(&group).copied().unwrap_or(group);
        match what {
            0 if shard != home && !asked[usize::from(shard)] && !server.moving.contains_key(&group) => {
                server.moving.insert(group, shard);
            }
            1 => {
                // A move comes to its end.
                let target = server.moving.get(&group).copied();
                if let Some(target) = target.filter(|&target| !asked[usize::from(target)]) {
                    server.moving.remove(&group);
                    server.homes.insert(group, target);
                }
            }
            2 => {
                server.busy.insert(group);
            }
            3 => {
                server.busy.remove(&group);
            }
            4 if !server.moving.contains_key(&group) && !asked[usize::from(shard)] => {
                server.homes.insert(group, shard);
            }
            _ => {
                drop(server);
                self.simulation.world.learn();
            }
        }
    }

    fn listen(&mut self) {
        let read = self.simulation.world.read_output(usize::MAX);
        if !read.is_empty() {
            self.simulation.poke();
        }
        self.receive(&read);
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        while let Some((value, len)) =
            Value::decode(&self.received, &ValueLimits::default()).expect("well-formed replies")
        {
            self.received.drain(..len);
            let said = self.said.pop_front().unwrap_or_else(|| panic!("{value:?}: nobody asked"));
            self.judge(&said, &value);
        }
    }

    fn judge(&mut self, said: &ClientCommand, value: &Value) {
        if let Some(error) = value.as_error() {
            let text = String::from_utf8_lossy(error).into_owned();
            return self.forgive(said, &text);
        }
        match (said, value) {
            (ClientCommand::Set { key, value }, Value::Bulk(echo)) => {
                let echo = String::from_utf8_lossy(echo).into_owned();
                let wanted = format!("SET {key} {value}|0|");
                let clock: u64 =
                    echo.strip_prefix(&wanted).unwrap_or_else(|| panic!("{said:?}: {echo}")).parse().expect("a clock");
                let before = self.last_set.insert(key.clone(), clock);
                assert!(before.is_none_or(|before| before < clock), "{said:?} at {clock} overtook one at {before:?}");
            }
            (ClientCommand::Mget(keys), Value::Array(values)) => {
                assert_eq!(keys.len(), values.len(), "{said:?}: {values:?}");
                for (key, value) in keys.iter().zip(values) {
                    match value {
                        Value::Bulk(text) => {
                            assert!(text.starts_with(format!("{key}@").as_bytes()), "{said:?}: {values:?}")
                        }
                        Value::Error(text) => self.forgive(said, &String::from_utf8_lossy(text)),
                        other => panic!("{said:?}: {other:?}"),
                    }
                }
            }
            (ClientCommand::Mset, Value::Simple(text)) => assert_eq!(text, b"OK"),
            (ClientCommand::Watch, Value::Simple(text)) => assert!(text.starts_with(b"OK")),
            (ClientCommand::Multi | ClientCommand::Unwatch, Value::Simple(text)) => assert_eq!(text, b"OK"),
            (ClientCommand::Queued, Value::Simple(text)) => assert_eq!(text, b"QUEUED"),
            // A lane with watched keys was lost, or their slot has moved.
            (ClientCommand::Exec(_), Value::Null) => {
                assert!(self.has_losses || self.is_cluster, "no other client touches a key")
            }
            (ClientCommand::Exec(count), Value::Array(replies)) => assert_eq!(replies.len(), *count, "{replies:?}"),
            (ClientCommand::Del(count), Value::Integer(deleted)) => assert_eq!(*deleted, *count as i64),
            (said, value) => panic!("{said:?}: {value:?}"),
        }
    }

    /// An error needs a cause: a lost lane, or a cluster that never came to rest.
    fn forgive(&self, said: &ClientCommand, text: &str) {
        let is_lost = self.has_losses && text.contains("ERR weir: upstream");
        let words = ["the key is being moved", "TRYAGAIN ", "EXECABORT "];
        let is_restless = self.is_cluster && words.iter().any(|word| text.contains(word));
        // Watched keys are on one shard, and a transaction on theirs: that is a rule, and the same for values of all sizes.
        let is_ruled = match said {
            ClientCommand::Watch => text == refusal::PINNED_ELSEWHERE,
            ClientCommand::Queued => text == refusal::CROSS_SLOT,
            ClientCommand::Exec(_) => text == refusal::EXEC_ABORT,
            _ => false,
        };
        assert!(is_lost || is_restless || (self.has_state && is_ruled), "{said:?}: {text}");
    }

    fn calm_down(&mut self) {
        // Moves that are under way stay so: ASK is a reply too.
        self.simulation.world.server().busy.clear();
        self.simulation.world.learn();
        for _ in 0..ROUNDS {
            self.simulation.poke();
            let read = self.simulation.settle();
            self.receive(&read);
            if !self.simulation.retry() && self.said.is_empty() {
                break;
            }
        }
        if self.simulation.end().is_none() {
            assert!(self.said.is_empty(), "without their replies: {:?}", self.said);
            assert!(self.received.is_empty(), "half a reply");
            assert!(self.simulation.is_at_rest(), "a session that waits for nothing");
        }
    }
}
