//! Lost servers, and clients that leave.

use weir_base::time::Time;
use weir_mongodb_codec::reply::Labels;

use super::{Session, State};
use crate::exchange::{Exchange, Part, Repeat};
use crate::face::Face;
use crate::io::Io;
use crate::pins::{CursorKey, ServerId, SessionKey};
use crate::refusal::Refusal;

/// The consequence for a client when its server's connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// An error was written, or none was due: go on with the next request.
    Replied,
    /// The reply has begun, or others were to follow: close the client's connection.
    Close,
}

/// The fate of the server's connection of a client that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// There is none. If one was wanted, do not wait for it.
    Nothing,
    /// Read the reply to its end, through [`Session::on_reply`], and let the connection serve another client. Within a limit of time:
    /// otherwise close it and call [`Session::on_server_lost`].
    Drain,
    /// Close it.
    Close,
}

impl Session {
    /// There is no connection: every server is busy, or the one that is needed is gone. `refusal`: for a plain command.
    pub fn on_no_server<I: Io>(&mut self, refusal: &Refusal, io: &I, out: &mut Vec<u8>) {
        let State::Routed(exchange) = std::mem::replace(&mut self.state, State::Idle) else {
            debug_assert!(false, "no connection was wanted");
            return;
        };
        self.release(&exchange, io);
        // An overload does not mean that the server is gone, so its cursors and transactions stay pinned.
        let forgotten = if refusal.is_overload() { None } else { self.forget(&exchange, io) };
        let refusal = forgotten.unwrap_or_else(|| refusal.clone()).unsent();
        self.refuse_exchange(&exchange, &refusal, out);
    }

    /// The refusal of a command whose cursor or transaction cannot be reached. Its pin is gone with it.
    fn forget<I: Io>(&mut self, exchange: &Exchange, io: &I) -> Option<Refusal> {
        if let Some(transaction) = exchange.transaction {
            return match transaction.part {
                // The transaction has not begun.
                Part::Start => None,
                Part::Inside => Some(Refusal::no_such_transaction(transaction.number)),
                Part::Commit | Part::Abort => {
                    let key = SessionKey { owner: self.owner(), session: transaction.session };
                    // The next attempt may go to any primary. A server that was out of reach for a moment must not keep its locks.
                    let is_abort = transaction.part == Part::Abort;
                    let cleanup = self.with_pins(io, |pins| pins.take_transaction(&key, transaction.number));
                    self.cleanups.extend(cleanup.filter(|_| is_abort));
                    Some(Refusal::host_unreachable(Labels::RETRYABLE_WRITE))
                }
            };
        }
        let id = exchange.cursor?;
        let key = CursorKey { owner: self.owner(), session: exchange.session, id };
        let cleanup = self.with_pins(io, |pins| pins.cursor(&key).and_then(|server| pins.take_cursor(&key, server)));
        self.cleanups.extend(cleanup);
        Some(Refusal::cursor_not_found(id))
    }

    /// The server's connection broke, or the shell has closed it. `is_reply_begun`: a part of a reply has gone to the client.
    /// If the whole server is gone, [`Session::on_server_gone`] follows.
    pub fn on_server_lost<I: Io>(&mut self, is_reply_begun: bool, io: &I, out: &mut Vec<u8>) -> Lost {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Open(exchange, server) => {
                let refusal = self.lost(&exchange, server, io);
                // An unacknowledged write is lost without a word, as at a server that loses its place as primary: it closes.
                if is_reply_begun || exchange.replies > 0 || exchange.is_unacknowledged {
                    self.state = State::End;
                    return Lost::Close;
                }
                self.refuse_exchange(&exchange, &refusal, out);
                Lost::Replied
            }
            State::Left(exchange, server) => {
                self.lost(&exchange, server, io);
                self.finish();
                Lost::Replied
            }
            other => {
                self.state = other;
                Lost::Replied
            }
        }
    }

    /// The refusal of a command whose reply is lost. It may have happened.
    fn lost<I: Io>(&mut self, exchange: &Exchange, server: ServerId, io: &I) -> Refusal {
        self.release(exchange, io);
        match exchange.transaction.map(|transaction| transaction.part) {
            Some(Part::Start | Part::Inside) => return Refusal::host_unreachable(Labels::TRANSIENT_TRANSACTION),
            Some(Part::Commit | Part::Abort) => return Refusal::host_unreachable(Labels::RETRYABLE_WRITE),
            None => {}
        }
        // A batch may be lost with the reply: the cursor must not go on behind it.
        if let Some(id) = exchange.cursor {
            let key = CursorKey { owner: self.owner(), session: exchange.session, id };
            let cleanup = self.with_pins(io, |pins| pins.take_cursor(&key, server));
            self.cleanups.extend(cleanup);
            return Refusal::cursor_not_found(id);
        }
        let labels = if exchange.may_repeat == Repeat::Write { Labels::RETRYABLE_WRITE } else { Labels::empty() };
        Refusal::host_unreachable(labels)
    }

    fn refuse_exchange(&mut self, exchange: &Exchange, refusal: &Refusal, out: &mut Vec<u8>) {
        let id = self.next_id();
        exchange.asker.refuse(out, id, refusal);
    }

    /// The client is gone. `is_sent`: its last request was given to the server's connection whole.
    ///
    /// In load-balanced mode its cursors and transactions go with it, behind the end of its last exchange. Behind the face of a mongos
    /// they stay: the driver may go on with them on another connection (M9, M10).
    pub fn on_gone<I: Io>(&mut self, is_sent: bool, io: &I) -> Leave {
        match std::mem::replace(&mut self.state, State::End) {
            State::Open(exchange, server) if is_sent && !exchange.may_stream => {
                self.state = State::Left(exchange, server);
                Leave::Drain
            }
            State::Open(exchange, server) | State::Left(exchange, server) => {
                self.lost(&exchange, server, io);
                self.finish();
                Leave::Close
            }
            State::Routed(exchange) => {
                self.release(&exchange, io);
                self.finish();
                Leave::Nothing
            }
            State::Idle | State::Awaiting(_) | State::Deriving(_) | State::Relaying(_) | State::End => {
                self.finish();
                Leave::Nothing
            }
        }
    }

    /// A whole server is gone. For pins that clients share, the shell calls
    /// [`Pins::on_server_lost`](crate::pins::Pins::on_server_lost).
    pub fn on_server_gone(&mut self, server: ServerId) {
        self.own.on_server_lost(server);
    }

    /// The client has moved away from a server that is there still: pins of this connection at it are given back. For pins that clients share,
    /// the shell calls [`Pins::take_server`](crate::pins::Pins::take_server).
    pub fn leave_server(&mut self, server: ServerId) {
        let cleanups = self.own.take_server(server);
        self.cleanups.extend(cleanups);
    }

    /// Gives back pins of this connection whose time is over. Every minute is often enough.
    pub fn expire_pins(&mut self, now: Time) {
        self.cleanups.extend(self.own.expire(now));
    }

    /// Nothing of this client is left.
    pub(super) fn finish(&mut self) {
        self.state = State::End;
        if self.face == Some(Face::LoadBalancer) {
            self.cleanups.extend(self.own.drain());
        }
    }
}
