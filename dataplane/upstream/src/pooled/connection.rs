//! One connection of a pool, and such a connection in the hands of a client.

use std::rc::Rc;

use weir_base::{
    exchange::LossCause,
    time::{Time, turn},
};
use weir_engine::Stream;
use weir_telemetry::cells::GaugeGuard;

use super::{IdleVerdict, PooledProtocol, listing::Listing, permit::PoolPermit, pool::Pool};

/// Pieces that one look takes from an idle connection: a server that sends without end keeps no worker.
const PIECES_MAX: u32 = 16;

/// Facts that stay with a connection when it moves.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Unique in the process.
    pub(crate) id: u64,
    pub(crate) since: Time,
    /// Its lifetime is over.
    pub(crate) ends_at: Time,
    /// See [`super::account::Signals`].
    pub(crate) generation: u32,
    /// Since when no client has it.
    pub(crate) idle_since: Time,
    /// A client has had it.
    pub(crate) has_served: bool,
}

/// A connection that is logged in.
pub(crate) struct Connection<P: PooledProtocol> {
    pub(crate) stream: Stream,
    pub(crate) state: P::State,
    pub(crate) facts: Facts,
    /// The last bytes of the server end inside of a message.
    pub(crate) is_incomplete: bool,
    pub(crate) permit: PoolPermit<P>,
    pub(crate) _counted: GaugeGuard,
    pub(crate) _listed: Listing,
}

/// The condition of a connection that no client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It may serve.
    Fit,
    /// The rest of a message is on its way.
    Incomplete,
    /// It has ended.
    Over(LossCause),
}

impl<P: PooledProtocol> Connection<P> {
    /// Judges what has come since the last look. It costs a system call only if the last poll of all sockets found something on it.
    pub(crate) fn look(&mut self, protocol: &P) -> Look {
        for _ in 0..PIECES_MAX {
            match self.stream.reader.receive_now() {
                None if self.stream.output.is_closed() => return Look::Over(LossCause::Closed),
                None => return if self.is_incomplete { Look::Incomplete } else { Look::Fit },
                Some(Ok(Some(bytes))) => match protocol.on_idle_bytes(&mut self.state, &bytes) {
                    IdleVerdict::Keep => self.is_incomplete = false,
                    IdleVerdict::Incomplete => self.is_incomplete = true,
                    IdleVerdict::Close => return Look::Over(LossCause::Closed),
                },
                Some(Ok(None) | Err(_)) => return Look::Over(LossCause::Closed),
            }
        }
        Look::Incomplete
    }

    /// Another worker may have it as it is.
    pub(crate) fn can_move(&self, protocol: &P) -> bool {
        self.stream.is_plain()
            && self.stream.output.buffered() == 0
            && !self.stream.reader.has_unread()
            && !self.is_incomplete
            && protocol.is_movable(&self.state)
    }
}

/// How a client leaves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// As it was after its login: the next client may have it.
    Clean,
    /// To be reset first, in the background.
    Dirty,
}

/// A connection, lent to one client. One that is not given back is closed.
pub struct PooledConnection<P: PooledProtocol> {
    /// `None` once it has ended.
    held: Option<Box<Connection<P>>>,
    pool: Rc<Pool<P>>,
    number: usize,
}

impl<P: PooledProtocol> PooledConnection<P> {
    pub(super) fn new(mut held: Box<Connection<P>>, pool: Rc<Pool<P>>, number: usize) -> Self {
        held.facts.has_served = true;
        Self { held: Some(held), pool, number }
    }

    fn held(&self) -> &Connection<P> {
        // It is taken by `end` only, which ends the lease.
        self.held.as_ref().expect("a lease has its connection until it ends")
    }

    /// Its bytes.
    pub fn stream(&mut self) -> &mut Stream {
        self.parts().0
    }

    /// The protocol's state of it.
    pub fn state(&mut self) -> &mut P::State {
        self.parts().1
    }

    /// The same to look at.
    pub fn state_ref(&self) -> &P::State {
        &self.held().state
    }

    /// Both at once.
    pub fn parts(&mut self) -> (&mut Stream, &mut P::State) {
        let held = self.held.as_mut().expect("a lease has its connection until it ends");
        (&mut held.stream, &mut held.state)
    }

    /// Position of its endpoint in the settings.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its number, unique in the process.
    pub fn id(&self) -> u64 {
        self.held().facts.id
    }

    /// The pool that it is of.
    pub fn pool(&self) -> &Rc<Pool<P>> {
        &self.pool
    }

    /// Clients wait for a connection of its key at its endpoint, on whichever worker, and none is made for them before one comes back. Takes no
    /// lock.
    pub fn is_awaited(&self) -> bool {
        let signals = &self.pool.members[self.number].share.signals;
        signals.is_full() && signals.is_awaited()
    }

    /// The client needs it no more.
    pub fn give_back(mut self, condition: Condition) {
        let Some(mut held) = self.held.take() else { return };
        held.facts.idle_since = turn::now();
        self.pool.returned(self.number, held, condition);
    }

    /// Closes it. `Retired`: as agreed, which is no fault.
    pub fn close(mut self, cause: LossCause) {
        self.end(cause);
    }

    fn end(&mut self, cause: LossCause) {
        if let Some(held) = self.held.take() {
            self.pool.ended(self.number, held, cause);
        }
    }
}

impl<P: PooledProtocol> Drop for PooledConnection<P> {
    fn drop(&mut self) {
        self.end(LossCause::Closed);
    }
}
