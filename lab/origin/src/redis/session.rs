//! The state of one client.

use std::{cell::Cell, collections::HashSet, rc::Rc};

use weir_engine::{Cutter, Output};
use weir_resp::{RequestLimits, Version};

use super::{core::Core, memory::Memory, table::Command};

/// Beside the bytes of one queued argument or one subscribed channel: its pointer and the allocator's share.
pub const ITEM_BYTES: usize = 64;

/// A client from its first byte to its last.
pub struct Session {
    /// Never given twice by one origin.
    pub id: u64,
    /// Shared with the channels this client is subscribed to.
    pub version: Rc<Cell<Version>>,
    /// Limits of the parser, which depend on whether the client is authenticated.
    pub limits: RequestLimits,
    pub database: usize,
    pub name: Vec<u8>,
    pub library_name: Vec<u8>,
    pub library_version: Vec<u8>,
    pub transaction: Option<Transaction>,
    pub watched: Vec<WatchedKey>,
    pub channels: HashSet<Box<[u8]>>,
    /// Messages to this client's own channels from inside `EXEC`, sent behind its reply.
    pub pushes: Vec<u8>,
    /// No further command is read; the connection ends once what is appended has left.
    pub is_closing: bool,
    /// Where published messages go.
    pub output: Output,
    pub cutter: Cutter,
}

/// Commands between `MULTI` and `EXEC`.
#[derive(Default)]
pub struct Transaction {
    pub queued: Vec<QueuedCommand>,
    /// Bytes charged to the account.
    pub bytes: usize,
    /// A command was refused: `EXEC` aborts.
    pub is_dirty: bool,
}

/// One queued command.
pub struct QueuedCommand {
    pub command: &'static Command,
    pub args: Vec<Box<[u8]>>,
}

/// A key of `WATCH` and the stamp it had.
pub struct WatchedKey {
    pub database: usize,
    pub key: Box<[u8]>,
    pub stamp: u64,
}

impl Session {
    pub fn new(core: &Core, output: Output, cutter: Cutter) -> Self {
        Self {
            id: core.next_client_id(),
            version: Rc::default(),
            limits: core.request_limits(),
            database: 0,
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            transaction: None,
            watched: Vec::new(),
            channels: HashSet::new(),
            pushes: Vec::new(),
            is_closing: false,
            output,
            cutter,
        }
    }

    pub fn is_authenticated(&self) -> bool {
        self.limits.authenticated
    }

    /// A RESP2 subscriber may only send the commands that the protocol lists.
    pub fn is_subscriber(&self) -> bool {
        !self.channels.is_empty() && self.version.get() == Version::Resp2
    }

    /// Forgets the transaction and gives its bytes back.
    pub fn drop_transaction(&mut self, memory: &Memory) {
        if let Some(transaction) = self.transaction.take() {
            memory.credit(transaction.bytes);
        }
    }

    pub fn unwatch(&mut self, memory: &Memory) {
        for watched in self.watched.drain(..) {
            memory.credit(ITEM_BYTES + watched.key.len());
        }
    }

    /// Leaves all channels and gives back all bytes; the last thing that happens to a session, and what `RESET` does.
    pub fn leave(&mut self, core: &Core) {
        self.drop_transaction(&core.memory);
        self.unwatch(&core.memory);
        let mut channels = core.channels.borrow_mut();
        for channel in self.channels.drain() {
            channels.unsubscribe(&channel, self.id);
            core.memory.credit(ITEM_BYTES + channel.len());
        }
    }
}
