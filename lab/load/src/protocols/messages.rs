//! Messages that come back as they were sent: a value as a key would hold it, of a name that no other request has.

use crate::requests::{Expectation, Integrity, PlanPosition, Planner};
use crate::scenario::Scenario;
use crate::shard::Shard;
use crate::values::{Generation, ReplyValue, Values};

/// A name for request `at` of a shard that no other shard gives.
pub(super) fn name_of(shard: Shard, at: usize) -> u64 {
    (u64::from(shard.index()) << 32) | at as u64
}

/// Plans messages, each framed by `frame`.
pub(super) struct Messages<F> {
    expected: Echoes,
    frame: F,
    planned: usize,
}

impl<F: FnMut(&[u8], &mut Vec<u8>)> Messages<F> {
    pub(super) fn new(scenario: &Scenario, shard: Shard, frame: F) -> Self {
        let values = Values::new(scenario.seed, &scenario.payload);
        Self { expected: Echoes { shard, values }, frame, planned: 0 }
    }
}

impl<F: FnMut(&[u8], &mut Vec<u8>)> Planner for Messages<F> {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        let Echoes { shard, values } = &self.expected;
        let mut message = Vec::new();
        values.write(name_of(*shard, self.planned), Generation::PRELOADED, &mut message);
        (self.frame)(&message, arena);
        self.planned += 1;
    }

    fn finish(self: Box<Self>) -> Box<dyn Expectation> {
        Box::new(self.expected)
    }
}

#[derive(Debug)]
struct Echoes {
    shard: Shard,
    values: Values,
}

impl Expectation for Echoes {
    fn check(&self, place: PlanPosition, message: &[u8]) -> Option<Integrity> {
        Some(match self.values.recognise(name_of(self.shard, place.at), message) {
            ReplyValue::Value(Generation::PRELOADED) | ReplyValue::Short => Integrity::Ok,
            ReplyValue::Value(_) | ReplyValue::Foreign => Integrity::Mismatch,
        })
    }
}
