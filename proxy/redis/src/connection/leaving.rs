//! A connection goes on elsewhere: in another process after an upgrade, at another upstream after a reload, or nowhere.

use std::{rc::Rc, time::Duration};

use weir_engine::Stream;
use weir_listener::{CloseReason, DRAIN_GAP, Departure, Drain, Session as _};

use super::Connection;

/// Bytes of names that a connection may take along: they travel in one message with the rest.
const MOVED_TEXT_BYTES_MAX: usize = 4 * 1024;

impl Connection {
    /// It is about to move: no more is taken from the client, and what was taken is being answered.
    pub(super) fn is_moving(&self) -> bool {
        self.may_move()
            && self.session.borrow().may_move()
            && self.handle.entry().details().text_bytes() <= MOVED_TEXT_BYTES_MAX
    }

    fn may_move(&self) -> bool {
        self.is_plain && self.service.is_moving_away()
    }

    /// Everything that the client was to get is with the kernel, and nothing of it is kept here.
    pub(super) fn moves_now(&self, stream: &Stream) -> bool {
        self.is_moving()
            && self.session.borrow().moves_now()
            && self.output.buffered() == 0
            && !stream.reader.has_unread()
            && !self.has_own_lane()
            && !self.awaits_lane()
    }

    /// Gives the connection to the process that serves in place of this one.
    pub(super) fn depart(&self, stream: Stream) {
        let Some(mover) = self.service.mover() else { return };
        let entry = self.handle.entry();
        let session = self.session.borrow_mut().depart(entry.details().clone());
        if let Ok(socket) = stream.release() {
            mover(Departure { socket, id: entry.id, peer: entry.peer.clone(), session: Box::new(session) });
        }
    }

    /// A drain may end this connection: nothing is on its way.
    pub(crate) fn drains_after(&self) -> Option<Duration> {
        let session = self.session.borrow();
        let is_quiet = session.is_quiet() && session.pending_bytes() == 0 && self.output.buffered() == 0;
        // A waiter for data or messages has nothing on its way: it may ask the next instance.
        let is_quiet = is_quiet || session.is_only_waiting_for_data();
        match self.service.sessions.drain_state() {
            // It may still get into a state in which it can move.
            Drain::Gentle if self.may_move() => None,
            Drain::Gentle if is_quiet => Some(DRAIN_GAP),
            Drain::Firm if is_quiet => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Moves to the listener's current upstream, if this is a moment in which nothing can be overtaken.
    pub(super) fn follow_upstream(&self) {
        let current = self.service.upstream();
        let is_other = !Rc::ptr_eq(&self.upstream.borrow(), &current);
        let is_whole = !self.upstream.borrow().endpoints().is_spread() && !current.endpoints().is_spread();
        // While it is not known who is the primary there, nothing may go there: subscriptions neither.
        if is_other
            && current.endpoints().primary().is_some()
            && self.session.try_borrow().is_ok_and(|session| session.is_quiet() && (is_whole || !session.is_bound()))
            && !self.has_own_lane()
        {
            *self.upstream.borrow_mut() = current;
            self.shared.take();
            self.move_subscriptions();
            self.move_tracking();
            if let Ok(mut session) = self.session.try_borrow_mut() {
                session.restart_caching(self);
            }
            self.check_database();
        }
    }

    /// A client in a database that no longer exists cannot be served: every lane would be refused its SELECT.
    pub(super) fn check_database(&self) {
        if self.session.try_borrow().is_ok_and(|session| !session.has_database(self)) {
            self.end(CloseReason::Ended("database_removed"));
        }
    }
}
