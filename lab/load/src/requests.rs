//! The requests of one shard: bytes and expected replies, made before the timed part as a pure function of seed and
//! scenario. While the clock runs, sending is a slice and checking is arithmetic.
//!
//! The plan is finite and is gone through again when it is used up; counting goes on, so index `i` of a long run is
//! request `i mod len`, and the check knows that keys then hold what the round before wrote.

use std::fmt::Debug;

use crate::scenario::Scenario;
use crate::shard::Shard;

/// Requests of one shard's plan. Default 1,048,576: a working set that no cache of a server holds by accident, for about
/// 100 MiB with small commands. More would only cost memory; see [`ARENA_BYTES_MAX`].
pub const REQUESTS_MAX: usize = 1 << 20;

/// Bytes of one shard's encoded requests. Default 128 MiB: 2,048 SETs of 64 KiB. A plan that reaches it ends there.
/// Besides, each request or key of an MGET costs up to 32 bytes of expectation.
pub const ARENA_BYTES_MAX: usize = 128 << 20;

// Places in the arena and numbers of SETs are 32 bits wide; the last request may reach past the limit before it is dropped.
const _: () = assert!(2 * ARENA_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(REQUESTS_MAX < u32::MAX as usize);

/// The finding of the check of one reply, from good to bad. An MGET has the worst of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Integrity {
    /// Exactly what the plan expects.
    Ok,
    /// A whole value of the right key from another planned SET: another connection or shard can have been faster.
    RaceSuspect,
    /// Nothing, where a value must be.
    Missing,
    /// Anything else: foreign or damaged bytes, a value of another run, the wrong type of reply.
    Mismatch,
}

/// Plans the requests of one shard. `plan` is called for each request in order, then `finish` once.
pub trait Planner {
    /// Appends the next request.
    fn plan(&mut self, arena: &mut Vec<u8>);

    /// Ends the plan, and gives the replies that it expects.
    fn finish(self: Box<Self>) -> Box<dyn Expectation>;
}

/// The replies that a plan expects.
pub trait Expectation: Debug {
    /// Checks the whole reply to a request, which is no error. `None`: there is nothing to check.
    fn check(&self, place: PlanPosition, reply: &[u8]) -> Option<Integrity>;
}

/// A request of the plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanPosition {
    /// Its number in the plan.
    pub(crate) at: usize,
    /// The plan is gone through for the first time.
    pub(crate) is_first_round: bool,
}

/// The plan of one shard.
#[derive(Debug)]
pub struct Requests {
    arena: Vec<u8>,
    /// Where each request begins in the arena, and the end of the last.
    starts: Vec<u32>,
    /// `None`: the scenario does not check.
    expectation: Option<Box<dyn Expectation>>,
}

impl Requests {
    /// Plans the requests of `shard`: `wanted` of them (at least 1), as far as [`REQUESTS_MAX`] and [`ARENA_BYTES_MAX`]
    /// allow. The caller names the requests of its longest phase; less than that and the plan is gone through again.
    #[must_use]
    pub fn build(scenario: &Scenario, shard: Shard, wanted: u64) -> Self {
        let count = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, REQUESTS_MAX);
        let mut planner = scenario.protocol.planner(scenario, shard);
        let (mut arena, mut end, mut starts) = (Vec::new(), 0, vec![0]);
        while starts.len() <= count {
            planner.plan(&mut arena);
            let is_first = starts.len() == 1;
            if arena.len() > ARENA_BYTES_MAX && !is_first {
                break;
            }
            end = arena.len();
            // Within u32: one request stays far below what lies between the two limits.
            starts.push(end as u32);
        }
        arena.truncate(end);
        arena.shrink_to_fit();
        let expectation = planner.finish();
        Self { arena, starts, expectation: scenario.integrity.then_some(expectation) }
    }

    /// Requests of one round, at least 1.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Never: there is always a request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The encoded bytes of request `index`; of a protocol with streams without the frame around it.
    #[inline]
    #[must_use]
    pub fn bytes(&self, index: u64) -> &[u8] {
        let at = self.place(index).at;
        &self.arena[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Number of request `index` in its round.
    #[must_use]
    pub fn at(&self, index: u64) -> usize {
        self.place(index).at
    }

    /// Bytes of all requests of one round.
    #[must_use]
    pub fn round_bytes(&self) -> usize {
        self.arena.len()
    }

    /// Checks the whole reply to request `index`, its body where it has one. `None`: there is nothing to check. An error
    /// reply is a mismatch here; [`Reply::kind`](crate::reply::Reply::kind) comes first.
    #[must_use]
    pub fn check(&self, index: u64, reply: &[u8]) -> Option<Integrity> {
        self.expectation.as_ref()?.check(self.place(index), reply)
    }

    #[inline]
    fn place(&self, index: u64) -> PlanPosition {
        let len = self.len() as u64;
        PlanPosition { at: (index % len) as usize, is_first_round: index < len }
    }
}
