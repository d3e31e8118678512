//! One request, several replies: what the publisher of a shard sends is heard by every subscriber of its channel.
//!
//! Connections of a shard are its subscribers, those of the channels in turn, and behind them the publisher. A subscriber has a
//! queue of the messages that it must hear; the publisher's queue holds what was not acknowledged yet, and counts nothing.

use std::cell::RefCell;
use std::rc::Rc;

use weir_base::Time;

use super::generator::{Generator, Link};
use super::queue::Queue;
use super::tally::{End, SentRequest};
use crate::reply::{Reply, ReplyKind};
use crate::requests::Integrity;
use crate::scenario::{Mode, Scenario};
use crate::shard::Shard;
use crate::wire::{ReplyTo, StreamError};

pub(super) struct FanOut {
    /// Channels of this shard.
    channels: usize,
    /// Subscribers of this shard, on all of its channels.
    subscribers: usize,
    /// In a closed loop, the most that may be under way when another message is sent.
    under_way_max: Option<u64>,
    /// Queues with messages that the kernel has not got yet.
    unstamped: Rc<RefCell<Vec<Rc<Queue>>>>,
}

impl FanOut {
    /// `None` where every connection hears the replies to its own requests.
    pub(super) fn of(scenario: &Scenario, shard: Shard) -> Option<Self> {
        if scenario.channels == 0 {
            return None;
        }
        // A message is under way once for each subscriber, and until it is acknowledged.
        let each = u64::from(scenario.copies()) + 1;
        let is_closed = scenario.mode == Mode::Closed;
        Some(Self {
            channels: shard.part(scenario.channels) as usize,
            subscribers: shard.part(scenario.connections) as usize,
            under_way_max: is_closed.then_some(u64::from(scenario.pipeline - 1) * each),
            unstamped: Rc::default(),
        })
    }

    pub(super) fn publisher(&self) -> usize {
        self.subscribers
    }

    /// The subscribers that must hear message `at` of the plan.
    pub(super) fn audience(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        (at % self.channels..self.subscribers).step_by(self.channels)
    }

    pub(super) fn has_room(&self, under_way: u64) -> bool {
        self.under_way_max.is_none_or(|most| under_way <= most)
    }

    /// The queue got a message that was only appended so far.
    pub(super) fn expect(&self, queue: &Rc<Queue>) {
        self.unstamped.borrow_mut().push(queue.clone());
    }

    /// Stamps all of them, when the publisher's bytes are handed to the kernel.
    pub(super) fn stamper(&self) -> impl Fn() + use<> {
        let unstamped = self.unstamped.clone();
        move || unstamped.borrow_mut().drain(..).for_each(|queue| queue.stamp())
    }
}

impl Generator {
    /// Notes for each subscriber of the channel that the message just published is due.
    pub(super) fn expect(&self, links: &[Link], request: SentRequest) {
        let Some(fan_out) = &self.fan_out else { return };
        for at in fan_out.audience(self.requests.at(request.index)) {
            match links[at].queue() {
                Some(queue) => {
                    queue.push(request);
                    fan_out.expect(queue);
                    self.in_flight.set(self.in_flight.get() + 1);
                }
                None => self.tally.borrow_mut().unsendable(request.intended),
            }
        }
    }

    /// Handles the reply to the publisher's oldest message. If the target refused the message, no subscriber will receive it.
    pub(super) fn acknowledged(&self, fan_out: &FanOut, queue: &Queue, reply: Reply<'_>) -> Result<(), StreamError> {
        let request = queue.pop(ReplyTo::Oldest).ok_or(StreamError)?;
        self.in_flight.set(self.in_flight.get() - 1);
        let (links, now) = (self.links.borrow(), Time::now().as_nanos());
        if reply.kind != ReplyKind::Value {
            let audience = fan_out.audience(self.requests.at(request.index));
            for queue in audience.filter_map(|at| links[at].queue()) {
                if let Some(copy) = queue.remove(request.index) {
                    self.tally.borrow_mut().ended(&self.requests, &copy, End::Reply(reply), now);
                    self.in_flight.set(self.in_flight.get() - 1);
                }
            }
        }
        self.free_slot(fan_out.publisher(), now);
        Ok(())
    }

    /// A subscriber heard a message. Those before it that it should have heard are lost; one that it should not hear ends
    /// its connection.
    pub(super) fn on_message(&self, queue: &Queue, reply: Reply<'_>) -> Result<(), StreamError> {
        let message = reply.body.filter(|_| reply.kind == ReplyKind::Value).ok_or(StreamError)?;
        let is_it = |request: &SentRequest| self.requests.check(request.index, message) == Some(Integrity::Ok);
        let found = queue.position(is_it);
        if found.is_none() && queue.is_back.get() {
            return Ok(());
        }
        queue.is_back.set(false);
        let now = Time::now().as_nanos();
        for left in (0..=found.unwrap_or(0)).rev() {
            let request = queue.pop(ReplyTo::Oldest).ok_or(StreamError)?;
            let end = if left > 0 { End::Lost } else { End::Reply(reply) };
            self.tally.borrow_mut().ended(&self.requests, &request, end, now);
            self.in_flight.set(self.in_flight.get() - 1);
        }
        found.map(drop).ok_or(StreamError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn the_audiences_of_a_shard_are_all_its_subscribers() {
        let source = "name = \"s\"\nprotocol = \"redis-pubsub\"\nmode = \"closed\"\nconnections = 12\nchannels = 4\n\
                      shards = 2\npipeline = 3\nphase = [{ duration = \"1s\" }]\n";
        let scenario = scenario::parse("s.toml", source).expect("right");
        let fan_out = FanOut::of(&scenario, Shard::new(1, 2).expect("a shard")).expect("channels");
        assert_eq!(fan_out.publisher(), 6);
        assert_eq!(fan_out.audience(0).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(fan_out.audience(7).collect::<Vec<_>>(), [1, 3, 5]);
        assert!(fan_out.has_room(8) && !fan_out.has_room(9), "two messages with three replies and an acknowledgement");
    }
}
