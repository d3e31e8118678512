//! The shell's side of a session.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use weir_base::time::Time;
use weir_postgres_session::io::{Clock, Event, Feeds, Tally, ToClient, ToServer};

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
    /// Channels that the shared listener has.
    pub channels: RefCell<Vec<Vec<u8>>>,
}

impl SimulatedIo {
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
    fn listen(&self, channel: &[u8]) -> bool {
        self.channels.borrow().iter().any(|known| known == channel)
    }

    fn unlisten(&self, _: Option<&[u8]>) {}
}

impl Tally for SimulatedIo {
    fn count(&self, event: Event) {
        *self.events.borrow_mut().entry(format!("{event:?}")).or_default() += 1;
    }
}
