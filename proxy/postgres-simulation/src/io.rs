//! The shell's side of a session.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_base::time::Time;
use weir_postgres_session::Refusal;
use weir_postgres_session::io::{Channel, Clock, Event, Feeds, News, Notification, Tally, ToClient, ToServer};

/// Outputs that are kept, a clock that a test sets, and counts.
#[derive(Default)]
pub struct SimulatedIo {
    /// Bytes for the client.
    pub to_client: RefCell<Vec<u8>>,
    /// Bytes for the server.
    pub to_server: RefCell<Vec<u8>>,
    /// Calls that appended bytes for the server.
    pub writes: Cell<u64>,
    /// The time.
    pub now: Cell<Time>,
    /// The server's output is full.
    pub is_congested: Cell<bool>,
    /// Events by name.
    pub events: RefCell<BTreeMap<String, u64>>,
    /// Channels that the client wants of the hub.
    pub wanted: RefCell<Vec<Vec<u8>>>,
    /// The server has not confirmed any channel yet.
    pub is_slow: Cell<bool>,
    /// The next channel is refused so.
    pub refusal: RefCell<Option<Refusal>>,
    /// Fences that were requested.
    pub fences: Cell<u64>,
    /// News for the client, and the place of the next.
    pub news: RefCell<VecDeque<News>>,
    /// See above.
    pub mark: Cell<u64>,
}

impl SimulatedIo {
    /// A notification comes for the client.
    pub fn notify(&self, pid: u32, channel: &str, payload: &str) {
        let number = self.mark.get();
        self.mark.set(number + 1);
        let notification = Notification { pid, channel: channel.as_bytes().into(), payload: payload.as_bytes().into() };
        self.news.borrow_mut().push_back(News::Notification { number, notification: Arc::new(notification) });
    }

    /// How often an event was counted.
    pub fn count_of(&self, event: Event) -> u64 {
        self.events.borrow().get(&format!("{event:?}")).copied().unwrap_or_default()
    }
}

impl Clock for SimulatedIo {
    fn now(&self) -> Time {
        self.now.get()
    }
}

impl ToClient for SimulatedIo {
    fn to_client(&self, bytes: &[u8]) {
        self.to_client.borrow_mut().extend_from_slice(bytes);
    }

    fn encode_to_client(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.to_client.borrow_mut());
    }
}

impl ToServer for SimulatedIo {
    fn to_server(&self, bytes: &[u8]) {
        self.writes.set(self.writes.get() + 1);
        self.to_server.borrow_mut().extend_from_slice(bytes);
    }

    fn encode_to_server(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.writes.set(self.writes.get() + 1);
        encode(&mut self.to_server.borrow_mut());
    }

    fn is_server_congested(&self) -> bool {
        self.is_congested.get()
    }
}

impl Feeds for SimulatedIo {
    fn listen(&self, channel: &[u8], _: Option<&[u8]>) -> Channel {
        if let Some(refusal) = self.refusal.take() {
            return Channel::Refused(refusal);
        }
        let mut wanted = self.wanted.borrow_mut();
        if !wanted.iter().any(|known| known == channel) {
            wanted.push(channel.to_vec());
        }
        if self.is_slow.get() { Channel::Awaited } else { Channel::There }
    }

    fn unlisten(&self, channel: &[u8]) {
        self.wanted.borrow_mut().retain(|known| known != channel);
    }

    fn fence(&self) {
        self.fences.set(self.fences.get() + 1);
    }

    fn mark(&self) -> u64 {
        self.mark.get()
    }

    fn next_news(&self) -> Option<News> {
        self.news.borrow_mut().pop_front()
    }

    fn forget_news(&self, is_kept: impl Fn(&[u8]) -> bool) {
        self.news.borrow_mut().retain(|news| match news {
            News::Notification { notification, .. } => is_kept(&notification.channel),
            News::Gap => true,
        });
    }
}

impl Tally for SimulatedIo {
    fn count(&self, event: Event) {
        *self.events.borrow_mut().entry(format!("{event:?}")).or_default() += 1;
    }
}
