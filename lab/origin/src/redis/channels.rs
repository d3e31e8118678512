//! Channels and their subscribers.

use std::{cell::Cell, collections::HashMap, rc::Rc};

use weir_engine::{Cutter, Output};
use weir_resp::{Version, encode};

/// Unsent bytes at which a subscriber that does not read is cut off: Redis' hard limit for such clients.
const SUBSCRIBER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// One client at one channel.
pub struct Subscriber {
    pub id: u64,
    pub version: Rc<Cell<Version>>,
    pub output: Output,
    pub cutter: Cutter,
}

/// All channels of a worker. A channel exists while somebody is subscribed to it.
#[derive(Default)]
pub struct Channels(HashMap<Box<[u8]>, Vec<Subscriber>>);

impl Channels {
    pub fn subscribe(&mut self, channel: &[u8], subscriber: Subscriber) {
        match self.0.get_mut(channel) {
            Some(subscribers) => subscribers.push(subscriber),
            None => {
                self.0.insert(channel.into(), vec![subscriber]);
            }
        }
    }

    pub fn unsubscribe(&mut self, channel: &[u8], id: u64) {
        let Some(subscribers) = self.0.get_mut(channel) else { return };
        subscribers.retain(|subscriber| subscriber.id != id);
        if subscribers.is_empty() {
            self.0.remove(channel);
        }
    }

    /// Sends `message` to all subscribers of `channel` but `own`, whose output is in use; gives their number, `own`
    /// not counted.
    pub fn publish(&self, channel: &[u8], message: &[u8], own: u64) -> usize {
        let mut count = 0;
        for subscriber in self.0.get(channel).into_iter().flatten().filter(|subscriber| subscriber.id != own) {
            if subscriber.output.buffered() > SUBSCRIBER_BYTES_MAX {
                subscriber.cutter.cut();
                continue;
            }
            count += 1;
            subscriber.output.with(|out| {
                encode::push(out, 3, subscriber.version.get());
                encode::bulk(out, b"message");
                encode::bulk(out, channel);
                encode::bulk(out, message);
            });
        }
        count
    }
}
