//! The connections of one key to one endpoint on one worker.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use weir_base::{
    exchange::LossCause,
    time::{Time, turn},
};

use super::{
    PooledProtocol,
    connection::{Connection, Facts, Look},
    listing::{List, Listed},
    permit::PoolPermit,
    shared::KeyShare,
    slot::Parcel,
};
use crate::{connect::adopt, endpoint::Endpoint, metrics::LaneKind};

/// How long a connection that closes may take to send its last bytes.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// See above.
pub(crate) struct Member<P: PooledProtocol> {
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) share: Arc<KeyShare<P>>,
    /// The one used last is the next one taken: the others can grow old.
    idle: RefCell<Vec<Box<Connection<P>>>>,
    /// For one of this worker that waits, by its number, until it looks.
    handed: RefCell<Vec<(u64, Box<Connection<P>>)>>,
    pub(super) list: List,
}

impl<P: PooledProtocol> Member<P> {
    pub(super) fn new(endpoint: Rc<Endpoint>, key: &P::Key) -> Self {
        let share = endpoint.pools().ledger::<P>().share(key);
        Self { endpoint, share, idle: RefCell::default(), handed: RefCell::default(), list: List::default() }
    }

    /// A connection of this worker, made of one that has logged in, here or elsewhere.
    pub(super) fn connection(
        &self,
        stream: weir_engine::Stream,
        state: P::State,
        facts: Facts,
        permit: PoolPermit<P>,
    ) -> Box<Connection<P>> {
        let metrics = self.endpoint.metrics();
        stream.count_into(metrics.clone());
        let counted = metrics.lane_opened(LaneKind::Pooled);
        let listed = Listed {
            since: facts.since,
            generation: facts.generation,
            local: stream.cutter().local_address(),
            process: P::process(&state),
            has_tls: !stream.is_plain(),
        };
        let listed = self.list.enter(facts.id, listed);
        Box::new(Connection { stream, state, facts, is_incomplete: false, permit, _counted: counted, _listed: listed })
    }

    /// The one that may serve at once, if it needs no check before.
    pub(super) fn take_ready(&self, protocol: &P, check_delay: Duration) -> Option<Box<Connection<P>>> {
        let now = turn::now();
        self.take(protocol, |connection| now.since(connection.facts.idle_since) < check_delay)
    }

    /// The one used last of those that are fit, as far as `may` says.
    pub(super) fn take(&self, protocol: &P, may: impl Fn(&Connection<P>) -> bool) -> Option<Box<Connection<P>>> {
        // At most one look at each.
        let count = self.idle.borrow().len();
        for _ in 0..count {
            let mut connection = {
                let mut idle = self.idle.borrow_mut();
                if !idle.last().is_some_and(|last| may(last)) {
                    return None;
                }
                let taken = idle.pop()?;
                self.share.counts.idle.set(idle.len());
                taken
            };
            match connection.look(protocol) {
                Look::Fit => return Some(connection),
                Look::Incomplete => self.keep_last(connection),
                Look::Over(cause) => self.close(*connection, cause),
            }
        }
        None
    }

    /// The next one that is taken.
    pub(super) fn keep(&self, connection: Box<Connection<P>>) {
        let mut idle = self.idle.borrow_mut();
        idle.push(connection);
        self.share.counts.idle.set(idle.len());
    }

    /// The last one that is taken.
    pub(super) fn keep_last(&self, connection: Box<Connection<P>>) {
        let mut idle = self.idle.borrow_mut();
        idle.insert(0, connection);
        self.share.counts.idle.set(idle.len());
    }

    /// The connections that no client has, by their numbers, and since when.
    pub(super) fn idle_times(&self) -> Vec<(u64, Time)> {
        let (idle, handed) = (self.idle.borrow(), self.handed.borrow());
        let all = idle.iter().chain(handed.iter().map(|(_, connection)| connection));
        all.map(|connection| (connection.facts.id, connection.facts.idle_since)).collect()
    }

    pub(super) fn has_idle(&self) -> bool {
        self.any_idle(|_| true)
    }

    pub(super) fn any_idle(&self, is: impl Fn(&Connection<P>) -> bool) -> bool {
        self.idle.borrow().iter().any(|connection| is(connection))
    }

    /// All idle connections, the one used last at the end.
    pub(super) fn take_all(&self) -> Vec<Box<Connection<P>>> {
        self.share.counts.idle.set(0);
        self.idle.take()
    }

    /// Closes those that needed a check at `at`: one of them did not respond to its own.
    pub(super) fn close_idle_since(&self, at: Time, check_delay: Duration) {
        let needs_check = |connection: &Connection<P>| {
            connection.facts.idle_since <= at && at.since(connection.facts.idle_since) >= check_delay
        };
        let (silent, kept): (Vec<_>, Vec<_>) = self.take_all().into_iter().partition(|idle| needs_check(idle));
        kept.into_iter().for_each(|connection| self.keep(connection));
        silent.into_iter().for_each(|connection| self.close(*connection, LossCause::Timeout));
    }

    /// Idle connections that are checked before they serve again, by their age now.
    pub(super) fn count_used(&self, now: Time, check_delay: Duration) {
        let idle = self.idle.borrow();
        let is_used = |connection: &Connection<P>| now.since(connection.facts.idle_since) >= check_delay;
        self.share.counts.used.set(idle.iter().filter(|connection| is_used(connection)).count());
    }

    /// Keeps it for number `number`, which waits on this worker.
    pub(super) fn hand(&self, number: u64, connection: Box<Connection<P>>) {
        self.handed.borrow_mut().push((number, connection));
    }

    /// The connection that is kept for that one.
    pub(super) fn take_handed(&self, number: u64) -> Option<Box<Connection<P>>> {
        let mut handed = self.handed.borrow_mut();
        let at = handed.iter().position(|(of, _)| *of == number)?;
        Some(handed.swap_remove(at).1)
    }

    /// A connection of another worker becomes one of this worker; `None`: it was lost.
    pub(super) fn adopt(&self, protocol: &P, parcel: Parcel<P>) -> Option<Box<Connection<P>>> {
        let Parcel { socket, state, facts, mut permit } = parcel;
        permit.moved_to(&self.share);
        match adopt(socket) {
            Ok(stream) => {
                self.endpoint.metrics().lane_moved();
                Some(self.connection(stream, protocol.unpack(state), facts, permit))
            }
            Err(_) => {
                self.endpoint.metrics().lane_closed(LossCause::Closed);
                None
            }
        }
    }

    /// Makes a parcel of it; `None`: it was lost.
    pub(super) fn pack(&self, protocol: &P, connection: Connection<P>) -> Option<Parcel<P>> {
        let Connection { stream, state, facts, permit, .. } = connection;
        match stream.release() {
            Ok(socket) => Some(Parcel { socket, state: protocol.pack(state), facts, permit }),
            Err(_) => {
                self.endpoint.metrics().lane_closed(LossCause::Closed);
                None
            }
        }
    }

    /// Closes it; its permit is returned.
    pub(super) fn close(&self, connection: Connection<P>, cause: LossCause) {
        drop(self.close_and_keep_permit(connection, cause));
    }

    pub(super) fn close_and_keep_permit(&self, connection: Connection<P>, cause: LossCause) -> PoolPermit<P> {
        self.endpoint.metrics().lane_closed(cause);
        let Connection { stream, permit, .. } = connection;
        if cause == LossCause::Retired && !P::FAREWELL.is_empty() && !stream.output.is_closed() {
            stream.output.append(P::FAREWELL);
            weir_engine::spawn(stream.close(FAREWELL_TIMEOUT)).detach();
        }
        permit
    }
}
