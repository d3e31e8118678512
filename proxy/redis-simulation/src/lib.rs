//! A session in a world of its own: no sockets, no clock, every step chosen by the caller.
//!
//! | file | concept |
//! |---|---|
//! | `server` | a small Redis whose replies tell what they answer |
//! | `lane` | an upstream connection |
//! | `feeds` | the subscription lanes of the world |
//! | `world` | [`Io`](weir_redis_session::Io), with its rules asserted |
//! | `policy` | the resources that a world gives its session |
//! | `client` | replies that a client must see, whatever happens |
//! | `shards` | a client in front of several shards, or of a cluster |
//! | `swarm` | sequences of commands and events drawn from a seed, or from the bytes of a fuzzer |
//!
//! Tests of the session and the fuzz target `session` stand on it.

#![forbid(unsafe_code)]

mod client;
mod feeds;
mod lane;
mod policy;
mod server;
pub mod shards;
pub mod swarm;
#[cfg(test)]
mod tests;
mod world;

use std::{collections::VecDeque, rc::Rc};

use weir_base::exchange::{LossCause, Refusal};
use weir_redis_session::{
    HeldLanes,
    io::{Clients as _, Lanes as _, Pinning},
    refusal,
    session::{Next, Session},
    settings::RedisListenerSettings,
    spares::Spares,
};

pub use self::{client::Client, feeds::Feeds, policy::Policy, world::World};
use self::{feeds::FeedEvent, lane::Piece};

/// Bytes of one chunk of the client: what the gateway's receive buffers hold.
const CHUNK_BYTES_MAX: usize = 16 * 1024;

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The session requested it.
    Closed,
    /// The client broke a rule.
    Violation(&'static str),
    /// The client went, and nothing was left to do.
    ClientEnd,
}

/// One session and its world.
pub struct Simulation {
    /// The surroundings.
    pub world: World,
    pub(crate) session: Session,
    settings: RedisListenerSettings,
    /// The memory that the session and those in its place take and give back.
    spares: Rc<Spares>,
    /// Bytes that the client sent and the gateway has not read yet.
    wire: VecDeque<u8>,
    is_woken: bool,
    is_client_gone: bool,
    end: Option<End>,
    /// The session moves to another process in one of so many of the moments in which it could; 0: never.
    moves_every: u32,
    movable_moments: u32,
    /// Bytes that went back to the wire with the last move and have not come again.
    returned: usize,
    /// Record of the events, printed when an invariant does not hold.
    story: Vec<String>,
}

/// Lines of the story that are printed.
const STORY_LINES: usize = 60;

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.story.len().saturating_sub(STORY_LINES);
            self.story[from..].iter().for_each(|line| eprintln!("{line}"));
            eprintln!("next {:?}, {:?}, on the wire {}", self.next(), self.session, self.wire.len());
        }
    }
}

impl Simulation {
    /// A fresh connection.
    pub fn new(settings: RedisListenerSettings) -> Self {
        Self::with_spares(settings, Rc::default())
    }

    /// A fresh connection of another client, whose session takes the memory that the one here gives back.
    pub fn beside(&self) -> Self {
        Self::with_spares(self.settings.clone(), self.spares.clone())
    }

    fn with_spares(settings: RedisListenerSettings, spares: Rc<Spares>) -> Self {
        let world = World::default();
        world.set(|policy| policy.is_trusted = settings.is_open());
        let mut session = Session::new(settings.clone().into(), spares.clone());
        session.arrive(&world);
        Self {
            world,
            session,
            settings,
            spares,
            wire: VecDeque::new(),
            is_woken: false,
            is_client_gone: false,
            end: None,
            moves_every: 0,
            movable_moments: 0,
            returned: 0,
            story: Vec::new(),
        }
    }

    fn trace(&mut self, what: &str, bytes: &[u8]) {
        let shown = &bytes[..bytes.len().min(4000)];
        self.story.push(format!("{what} {} {}", bytes.len(), shown.escape_ascii()));
    }

    /// From now on the session moves to another process in one of `every` moments in which it can.
    pub fn moves_every(&mut self, every: u32) {
        self.moves_every = every;
    }

    /// How often it could have.
    pub fn movable_moments(&self) -> u32 {
        self.movable_moments
    }

    fn move_if_due(&mut self) {
        // Bytes that were moved before come again at once: only with further ones is this another moment.
        if self.moves_every == 0 || self.returned > 0 || !self.session.moves_now() {
            return;
        }
        self.movable_moments += 1;
        if !self.movable_moments.is_multiple_of(self.moves_every) {
            return;
        }
        let details = self.world.entry().details().clone();
        let moved = self.session.depart(details);
        self.trace("moves with", &moved.input);
        self.session = Session::from_moved(self.settings.clone().into(), self.spares.clone(), &moved);
        *self.world.entry().details() = moved.details.clone();
        self.world.restart_caching();
        assert!(self.session.settle_user(&moved, &self.world), "its user is still there");
        // One more than there are: the next byte that is new makes the difference.
        self.returned = if moved.input.is_empty() { 0 } else { moved.input.len() + 1 };
        moved.input.into_iter().rev().for_each(|byte| self.wire.push_front(byte));
    }

    /// How it ended, if it did.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Half a frame was all the client could get: a lane was lost in the middle of it.
    pub fn is_cut(&self) -> bool {
        self.session.is_cut()
    }

    /// The client is subscribed or blocked: it waits for what others do.
    pub fn is_waiting_for_data(&self) -> bool {
        self.session.is_waiting_for_data()
    }

    /// Nothing is under way, held back or half done.
    pub fn is_at_rest(&self) -> bool {
        self.session.is_quiet() && self.session.held() == 0 && self.wire.is_empty()
    }

    /// Since when the command at the front of the input is unfinished.
    pub fn partial_since(&self) -> Option<weir_base::time::Time> {
        self.session.partial_since()
    }

    /// The client puts bytes on the wire.
    pub fn send(&mut self, bytes: &[u8]) {
        self.wire.extend(bytes);
    }

    /// The action that the shell would take now.
    pub fn next(&self) -> Next {
        self.session.next(&self.world)
    }

    /// Up to `bytes` of the client's arrive; false if the gateway does not read or there are none.
    pub fn arrive(&mut self, bytes: usize) -> bool {
        // The shell looks at what woke it before it reads on.
        self.wake();
        if self.end.is_some() || self.next() != Next::Read || self.wire.is_empty() {
            return false;
        }
        let count = bytes.min(self.wire.len()).min(CHUNK_BYTES_MAX);
        let chunk: Vec<u8> = self.wire.drain(..count).collect();
        self.returned = self.returned.saturating_sub(count);
        self.trace("client >", &chunk);
        let result = self.session.on_client(&chunk, &self.world);
        self.conclude(result);
        true
    }

    /// The gateway learns that the client sends no more, if all it sent has been read.
    pub fn client_ends(&mut self) -> bool {
        if self.end.is_some() || self.is_client_gone || self.next() != Next::Read || !self.wire.is_empty() {
            return false;
        }
        self.is_client_gone = true;
        self.trace("client ends", b"");
        if !self.session.on_client_end() || self.session.is_quiet() {
            self.finish(End::ClientEnd);
        }
        self.turn();
        true
    }

    /// The session looks at what it holds, if something called for it.
    pub fn wake(&mut self) -> bool {
        if self.end.is_some() || !std::mem::take(&mut self.is_woken) {
            return false;
        }
        self.trace("wake", b"");
        let result = self.session.on_wake(&self.world);
        self.conclude(result);
        true
    }

    /// Delivers the bytes written by the lane to the server; false if there are none.
    pub fn flush(&mut self, lane: usize) -> bool {
        let was_congested = self.world.is_pin_congested();
        let did = self.world.with_lane(lane, |lane, _| lane.flush());
        // The shell looks again when an output that was full has room.
        self.is_woken |= was_congested && !self.world.is_pin_congested();
        did
    }

    /// The server executes one command of a lane; false if there is none.
    pub fn execute(&mut self, lane: usize) -> bool {
        self.world.with_lane(lane, |lane, server| lane.execute_one(server))
    }

    /// Up to `bytes` of the server's are read from a lane; false if there are none.
    pub fn deliver(&mut self, lane: usize, mut bytes: usize) -> bool {
        let mut did = false;
        while bytes > 0 && self.end.is_none() && lane < self.world.lane_count() {
            let takes_runs = self.session.takes_runs();
            let read = self.world.with_lane(lane, |lane, _| lane.read(bytes, takes_runs));
            let Some((piece, taken)) = read else { break };
            bytes -= taken;
            did = true;
            match &piece {
                Piece::Reply { bytes, .. } => self.trace("reply <", bytes),
                Piece::Replies { bytes, .. } => self.trace("replies <", bytes),
                Piece::Frame { bytes, .. } => self.trace("frame <", bytes),
                Piece::Inner => self.trace("inner reply <", b""),
            }
            self.is_woken |= match piece {
                Piece::Reply { number, bytes, end } => self.session.on_reply(number, &bytes, end, &self.world),
                Piece::Replies { first, count, bytes } => self.session.on_replies(first, count, &bytes, &self.world),
                Piece::Frame { bytes, end, is_push } => self.session.on_frame(&bytes, end, is_push, &self.world),
                Piece::Inner => false,
            };
            self.check();
        }
        did
    }

    /// A connection for subscriptions that was requested is made; false if none was.
    pub fn connect_feed(&mut self) -> bool {
        let did = self.world.feeds.connect(&self.world);
        self.deliver_feed_events();
        did
    }

    /// Delivers the bytes written on a subscription lane to its server, which executes one command; false if there is none.
    pub fn execute_feed(&mut self, shard: u16) -> bool {
        self.world.feeds.execute(shard, &self.world)
    }

    /// Up to `bytes` of the server's are read from a subscription lane; false if there are none.
    pub fn deliver_feed(&mut self, shard: u16, bytes: usize) -> bool {
        let Some(piece) = self.world.feeds.read(shard, bytes) else { return false };
        self.trace("feed <", &piece);
        self.world.feeds.receive(shard, &piece, &self.world);
        self.deliver_feed_events();
        true
    }

    /// A subscription lane breaks.
    pub fn lose_feed(&mut self, shard: u16) {
        self.trace("feed lost", b"");
        self.world.feeds.lose(shard, &self.world);
        self.deliver_feed_events();
    }

    /// Those who wait for a subscription lane have waited long enough.
    pub fn refuse_feeds(&mut self, refusal: Refusal) {
        let line = refusal::line(refusal::refused(refusal));
        for shard in self.world.feeds().requested() {
            self.world.feeds.refuse(shard, &line, &self.world);
        }
        self.deliver_feed_events();
    }

    /// The registry looks at what is late.
    pub fn look_at_feeds(&mut self) {
        self.world.feeds.look(&self.world);
        self.deliver_feed_events();
    }

    /// Delivers the events of the registry to the session.
    fn deliver_feed_events(&mut self) {
        while let Some(event) = self.world.feeds.take() {
            if self.end.is_some() {
                continue;
            }
            self.is_woken |= match event {
                FeedEvent::Message(frame) => {
                    self.session.on_push(&frame, &self.world);
                    false
                }
                FeedEvent::Subscribed => self.session.on_subscribed(&self.world),
                FeedEvent::Unsubscribed => self.session.on_unsubscribed(&self.world),
                FeedEvent::Refused(line) => self.session.on_subscription_refused(&line, &self.world),
                FeedEvent::Published(reply) => self.session.on_published(reply.as_deref(), &self.world),
                FeedEvent::Lost => {
                    self.session.on_subscription_lost(&self.world);
                    true
                }
            };
            self.check();
        }
    }

    /// A lane breaks.
    pub fn lose(&mut self, lane: usize, cause: LossCause) {
        let (lost, was_pinned) = self.world.lose_lane(lane);
        self.trace(if was_pinned { "own lane lost" } else { "shared lane lost" }, b"");
        for number in lost {
            self.session.on_no_reply(number, refusal::lost(cause), &self.world);
        }
        if was_pinned && self.world.clear_ruin() {
            self.session.on_pin_loss(cause, &self.world);
        }
        self.is_woken = true;
        self.check();
    }

    /// The lane that the session has set aside breaks.
    pub fn lose_parked(&mut self) {
        if self.world.lose_parked() {
            self.trace("lane set aside lost", b"");
            self.session.on_parked_loss(&self.world);
            self.is_woken = true;
            self.check();
        }
    }

    /// A request on a shared lane that was never sent has waited too long for a connection.
    pub fn refuse_oldest(&mut self, lane: usize, refusal: Refusal) -> bool {
        if self.world.is_pinned() && lane + 1 == self.world.lane_count() {
            return false;
        }
        let Some(number) = self.world.with_lane(lane, |lane, _| lane.refuse_oldest()) else { return false };
        self.trace("request refused", b"");
        self.session.on_no_reply(number, &refusal::refused(refusal), &self.world);
        self.is_woken = true;
        self.check();
        true
    }

    /// The requested lane comes, or does not; false if none was requested.
    pub fn resolve_pin(&mut self, result: Result<(), Refusal>) -> bool {
        if !self.world.is_pin_requested() || self.end.is_some() {
            return false;
        }
        match result {
            Ok(()) => self.world.grant_pin(),
            Err(_) => self.world.refuse_pin(),
        }
        self.trace("lane", format!("{result:?}").as_bytes());
        assert!(self.session.on_pin(result), "a session that asked for a lane waits for it");
        self.is_woken = true;
        true
    }

    /// A command that waits for room is refused, or its wait for anything else is looked at again.
    pub fn refuse_held(&mut self) {
        if self.end.is_none() {
            let result = self.session.refuse_held(&self.world);
            self.conclude(result);
        }
    }

    /// Lets the time pass for which the session waits.
    pub fn pass_delay(&mut self) -> bool {
        let Some(due) = self.session.delay().filter(|_| self.end.is_none()) else { return false };
        self.world.advance_to(due);
        self.is_woken = true;
        true
    }

    /// The shell's own look, after room or a slow reader's progress.
    pub fn poke(&mut self) {
        self.is_woken = true;
    }

    /// Requests to a cluster whose pause is over are sent again; false if there are none.
    pub fn retry(&mut self) -> bool {
        let numbers = self.world.take_retries();
        for &number in &numbers {
            self.trace("retry", number.to_string().as_bytes());
            self.is_woken |= self.session.on_retry(number, &self.world);
            self.check();
        }
        !numbers.is_empty()
    }

    /// Everything happens that can, until nothing does any more. Gives what the client reads.
    pub fn settle(&mut self) -> Vec<u8> {
        let mut read = Vec::new();
        loop {
            let mut did = false;
            if !self.world.policy().is_stalled {
                let some = self.world.read_output(usize::MAX);
                did |= !some.is_empty();
                self.is_woken |= !some.is_empty();
                read.extend(some);
            }
            did |= self.wake() | self.arrive(usize::MAX);
            if self.world.is_pin_requested() && self.world.policy().pinning != Pinning::TooManyBlocked {
                did |= self.resolve_pin(Ok(()));
            }
            did |= self.connect_feed();
            for shard in self.world.feeds.shards() {
                while self.execute_feed(shard) {
                    did = true;
                }
                did |= self.deliver_feed(shard, usize::MAX);
            }
            for lane in 0..self.world.lane_count() {
                did |= self.flush(lane);
                while self.execute(lane) {
                    did = true;
                }
                if self.deliver(lane, usize::MAX) {
                    did = true;
                    break;
                }
            }
            if !did && !self.pass_delay() {
                return read;
            }
        }
    }

    fn conclude(&mut self, result: Result<(), weir_base::violation::Violation>) {
        if let Err(violation) = result {
            self.finish(End::Violation(violation.reason));
        }
        self.turn();
    }

    /// The shell's actions between two events.
    fn turn(&mut self) {
        if self.end.is_none() && self.next() == Next::Close {
            let is_plain = self.session.outstanding() == 0 || self.is_cut();
            assert!(is_plain, "a session that closes owes nothing");
            self.finish(End::Closed);
        }
        self.check();
        if self.end.is_none() {
            self.move_if_due();
        }
    }

    fn finish(&mut self, end: End) {
        self.trace("end", format!("{end:?}").as_bytes());
        self.end = Some(end);
        self.world.leave();
    }

    /// Checks the invariants that hold after every step.
    fn check(&self) {
        if self.end.is_some() || self.session.is_cut() {
            return;
        }
        self.session.check(HeldLanes {
            is_pinned: self.world.is_pinned(),
            is_asked: self.world.is_pin_requested(),
            is_parked: self.world.is_parked(),
        });
        for index in 0..self.world.lane_count() {
            let is_pinned = self.world.is_pinned() && index + 1 == self.world.lane_count();
            if !is_pinned {
                let dirt = self.world.with_lane(index, |lane, _| lane.shared_dirt());
                assert_eq!(dirt, None, "a shared lane is fit for others");
            }
        }
        let RedisListenerSettings { pipeline_bytes, stream_bytes, transaction_bytes_max, .. } = self.settings;
        let command_max = 3 * stream_bytes.max(transaction_bytes_max) + CHUNK_BYTES_MAX as u64;
        let held_max = 2 * (pipeline_bytes + command_max) + transaction_bytes_max;
        let held = self.session.held_bytes() as u64;
        assert!(held <= held_max, "{held} bytes are held where {held_max} is the bound");
    }
}
