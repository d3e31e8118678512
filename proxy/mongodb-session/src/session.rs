//! One client: requests in, the next task of the shell out.
//!
//! Order of calls: [`Session::on_request`] with each request whose body is there. [`Next::Take`] makes the shell get a connection and call
//! [`Session::on_server`]; then it sends the request, byte for byte, and calls [`Session::on_sent`] behind its last byte. Each reply goes
//! through [`Session::on_reply_head`] before its first byte goes to the client, and [`Session::on_reply`] behind its last one. Until the
//! exchange is over the next request stays with the shell. [`Session::cleanups`] may have something behind every call.
//!
//! | file | concept |
//! |---|---|
//! | `handshake` | hello, also one that waits |
//! | `local` | commands that the gateway answers itself |
//! | `relay` | logins that a server checks |
//! | `ending` | lost servers, and clients that leave |

mod ending;
mod handshake;
mod local;
mod relay;

use std::borrow::Cow;
use std::sync::Arc;

use weir_analysis::mongodb::{Class, classify, lookup_in_another_case};
use weir_base::error::Culprit;
use weir_base::time::Time;
use weir_base::violation::Violation;
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::header::{HEADER_BYTES, Header};
use weir_mongodb_codec::limits::{COLLECTION_BYTES_MAX, MESSAGE_BYTES_MAX, PREAUTH_MESSAGE_BYTES_MAX};
use weir_mongodb_codec::message::Flags;
use weir_mongodb_codec::reply::Reply;
use weir_sasl::Derivation;

pub use ending::{Leave, Lost};
pub use relay::AfterRelay;

use crate::exchange::{Exchange, Part, Repeat};
use crate::face::Face;
use crate::hello::is_hello;
use crate::io::Io;
use crate::login::{Login, LoginPolicy, Peer};
use crate::monitor::Awaited;
use crate::pins::{Cleanup, CursorKey, CursorPlace, PinLimits, Pins, ServerId, SessionKey};
use crate::refusal::Refusal;
use crate::request::{Asker, Form, Request};
use crate::route::{
    ReadMode, Want, Way, concerns_pins, concerns_transaction, ended, is_single_batch, may_open_cursor, way,
};
use crate::users::Owner;

/// Code of a server for a cursor that it does not have.
const CURSOR_NOT_FOUND: i32 = 43;
/// Code of a server for a transaction that it does not have.
const NO_SUCH_TRANSACTION: i32 = 251;

/// One client connection.
#[derive(Debug)]
pub struct Session {
    peer: Peer,
    login: Login,
    /// The server that the client sees, from its first hello on (L4).
    face: Option<Face>,
    /// The client has described itself.
    has_metadata: bool,
    /// Pins of this connection, in load-balanced mode.
    own: Pins,
    /// They are in the index of sessions that the listener's pins share.
    is_linked: bool,
    state: State,
    /// The id of the last message of our own.
    last_id: i32,
    /// Namespace of the present request, and bytes of its database: its reply may open a cursor.
    namespace: Vec<u8>,
    database_bytes: usize,
    cleanups: Vec<Cleanup>,
}

#[derive(Debug)]
enum State {
    Idle,
    /// A hello waits.
    Awaiting(Awaited),
    /// The shell derives keys.
    Deriving(Asker),
    /// A server answers a part of a login.
    Relaying(relay::Relayed),
    /// The shell gets a connection.
    Routed(Box<Exchange>),
    /// The request goes to the server, or its reply comes.
    Open(Box<Exchange>, ServerId),
    /// The same, and the client is gone.
    Left(Box<Exchange>, ServerId),
    End,
}

/// The next task of the shell.
#[derive(Debug)]
pub enum Next {
    /// The reply, if there is one, is written: go on with the next request.
    Replied,
    /// Get a connection, then call [`Session::on_server`].
    Take(Want),
    /// Hold the next request until [`Session::on_time`] has answered this one.
    Wait,
    /// Find the keys in a cache or derive them, then call [`Session::on_keys`].
    Derive(Box<Derivation>),
    /// Send these bytes, or the request as it is, on the client's own connection to a server, which is not logged in, and call
    /// [`Session::on_relayed`] with the reply.
    Relay(Option<Vec<u8>>),
    /// Send the bytes that are written, count the violation, close.
    Close(Violation),
}

/// The fate of the server's connection behind a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterReply {
    /// It may serve another client.
    Return,
    /// It stays with this client: another reply follows.
    Stay,
}

/// The name of a command for an error, cut: clients choose it.
fn shown<'a>(command: &Command<'a>) -> Cow<'a, str> {
    String::from_utf8_lossy(&command.name[..command.name.len().min(64)])
}

impl Session {
    /// A new connection.
    #[must_use]
    pub fn new(peer: Peer, policy: Arc<LoginPolicy>, limits: PinLimits) -> Session {
        let login = Login::new(policy, peer.tls.clone());
        Session {
            peer,
            login,
            face: None,
            has_metadata: false,
            own: Pins::new(limits),
            is_linked: false,
            state: State::Idle,
            last_id: 0,
            namespace: Vec::new(),
            database_bytes: 0,
            cleanups: Vec::new(),
        }
    }

    /// Bytes that the next message may have: few before the login.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        if self.login.is_done() { MESSAGE_BYTES_MAX } else { PREAUTH_MESSAGE_BYTES_MAX }
    }

    /// The login.
    #[must_use]
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// The server that the client sees; `None` before its first hello.
    #[must_use]
    pub fn face(&self) -> Option<Face> {
        self.face
    }

    /// Every request has its complete reply, and nothing is pinned: the connection may end unnoticed.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        matches!(self.state, State::Idle) && self.own.is_empty()
    }

    /// Cursors or transactions of this connection's own are pinned.
    #[must_use]
    pub fn has_pins(&self) -> bool {
        !self.own.is_empty()
    }

    /// Further replies may follow the present one: the server's connection stays with the client behind it.
    #[must_use]
    pub fn may_stream(&self) -> bool {
        matches!(&self.state, State::Open(exchange, _) | State::Left(exchange, _) if exchange.may_stream)
    }

    /// Refuses a message that the shell cannot hold as far as its body. `first` begins with its header.
    pub fn refuse_unread(&mut self, header: &Header, first: &[u8], refusal: &Refusal, out: &mut Vec<u8>) {
        let bits = first.get(HEADER_BYTES..).and_then(<[u8]>::first_chunk);
        let flags = bits.map_or(Flags::empty(), |bits| Flags::from_bits_truncate(u32::from_le_bytes(*bits)));
        let wants_reply = !flags.contains(Flags::MORE_TO_COME);
        let id = self.next_id();
        Asker { id: header.request, form: Form::Msg, wants_reply }.refuse(out, id, refusal);
    }

    /// Takes commands that the shell sends on the gateway's own behalf.
    pub fn cleanups(&mut self) -> Vec<Cleanup> {
        std::mem::take(&mut self.cleanups)
    }

    /// A request. The exchange before it is over.
    pub fn on_request<I: Io>(&mut self, request: &Request<'_>, io: &I, out: &mut Vec<u8>) -> Next {
        debug_assert!(matches!(self.state, State::Idle), "the exchange before is under way");
        let command = match request.command() {
            Ok(command) => command,
            Err(error) => return self.refuse(request, &error.into(), out),
        };
        if is_hello(command.name) {
            return self.on_hello(request, &command, io, out);
        }
        if request.form == Form::Legacy {
            return self.refuse(request, &Refusal::legacy_command(), out);
        }
        if let Some(next) = self.on_local(request, &command, io, out) {
            return next;
        }
        if !self.login.is_done() {
            return self.refuse(request, &Refusal::login_required(&shown(&command)), out);
        }
        if let Some(refusal) = io.judge(request, &command, self.login.user().map(AsRef::as_ref)) {
            return self.refuse(request, &refusal, out);
        }
        self.on_command(request, &command, io, out)
    }

    fn on_command<I: Io>(&mut self, request: &Request<'_>, command: &Command<'_>, io: &I, out: &mut Vec<u8>) -> Next {
        self.link(io);
        if let Some(next) = self.guard_sessions(request, command, io, out) {
            return next;
        }
        let (row, class) = classify(command);
        // Some servers compare names without case, and nothing here would know the command.
        if row.is_none() && lookup_in_another_case(command.name).is_some() {
            return self.refuse(request, &Refusal::unknown_command(&shown(command)), out);
        }
        let may_repeat = match (class, command.txn_number) {
            (Class::Read, _) => Repeat::Read,
            (Class::Transaction, _) | (_, Some(_)) => Repeat::Write,
            _ => Repeat::Never,
        };
        if may_open_cursor(command, class) && !self.has_room_for_cursor(io) && !is_single_batch(command) {
            return self.refuse(request, &Refusal::overloaded("mongodb_cursors"), out);
        }
        let mut exchange = Exchange::new(request, command, may_repeat);
        let want = if concerns_pins(command) {
            let owner = self.owner();
            let is_shared = owner.is_some() && !self.login.is_relayed();
            let way = self.with_pins(io, |pins| way(command, (&owner, is_shared), pins, &mut exchange));
            match way {
                Ok(Way::Take(want)) => want,
                // The client has its own login there: the server knows which cursors are its user's, and the gateway could kill none.
                Ok(Way::Kill { found, .. }) if self.login.is_relayed() => {
                    exchange.killed = found.into_iter().map(|(key, _)| key).collect();
                    Want::Any(ReadMode::Primary)
                }
                Ok(Way::Kill { found, unknown }) => return self.kill(request, found, &unknown, io, out),
                Err(refusal) => return self.refuse(request, &refusal, out),
            }
        } else {
            Want::Any(ReadMode::of(command))
        };
        self.note_namespace(command);
        self.state = State::Routed(Box::new(exchange));
        Next::Take(want)
    }

    /// The connection that [`Next::Take`] wanted, to this server.
    pub fn on_server<I: Io>(&mut self, server: ServerId, io: &I) {
        let State::Routed(mut exchange) = std::mem::replace(&mut self.state, State::End) else {
            debug_assert!(false, "no connection was wanted");
            return;
        };
        if let Some(transaction) = exchange.transaction.filter(|transaction| transaction.part == Part::Start) {
            let key = SessionKey { owner: self.owner(), session: transaction.session };
            let number = transaction.number;
            let before = self.with_pins(io, |pins| {
                let before = pins.begin_transaction(key.clone(), number, server, io.now());
                if std::mem::take(&mut exchange.has_claim) {
                    pins.release_claim(&key);
                }
                if !exchange.uses_transaction && !exchange.is_unacknowledged {
                    exchange.uses_transaction = pins.use_transaction(&key, number);
                }
                before
            });
            self.cleanups.extend(before);
        }
        self.state = State::Open(exchange, server);
    }

    /// The last byte of the request was given to the server's connection. `true`: no reply will come, and the connection may serve
    /// another client.
    pub fn on_sent(&mut self) -> bool {
        let is_over = matches!(&self.state, State::Open(exchange, _) if exchange.is_unacknowledged);
        if is_over {
            self.state = State::Idle;
        }
        is_over
    }

    /// The header of a reply, before any of its bytes goes to the client.
    ///
    /// # Errors
    /// It is no reply to this request. Close the server's connection and call [`Session::on_server_lost`].
    pub fn on_reply_head(&self, header: &Header) -> Result<(), Violation> {
        match &self.state {
            State::Open(exchange, _) | State::Left(exchange, _) => exchange.check(header),
            _ => {
                let text = "the server sends a reply without a request";
                Err(Violation::rule("mongodb_reply_unexpected", Culprit::Upstream, text))
            }
        }
    }

    /// The last byte of a reply has come.
    ///
    /// # Errors
    /// The reply breaks a rule. Close the server's connection and call [`Session::on_server_lost`].
    pub fn on_reply<I: Io>(
        &mut self,
        header: &Header,
        flags: Flags,
        reply: &Reply,
        io: &I,
    ) -> Result<AfterReply, Violation> {
        self.on_reply_head(header)?;
        let (mut exchange, server, is_left) = match std::mem::replace(&mut self.state, State::End) {
            State::Open(exchange, server) => (exchange, server, false),
            State::Left(exchange, server) => (exchange, server, true),
            _ => return Ok(AfterReply::Return),
        };
        let follows = match exchange.note(header, flags) {
            Ok(follows) => follows,
            Err(violation) => {
                self.state = if is_left { State::Left(exchange, server) } else { State::Open(exchange, server) };
                return Err(violation);
            }
        };
        self.note_cursor(&exchange, server, reply, is_left, io);
        self.note_transaction(&exchange, reply, io);
        if !follows {
            self.release(&exchange, io);
        }
        match (follows, is_left) {
            (true, true) => self.state = State::Left(exchange, server),
            (true, false) => self.state = State::Open(exchange, server),
            (false, true) => self.finish(),
            (false, false) => self.state = State::Idle,
        }
        Ok(if follows { AfterReply::Stay } else { AfterReply::Return })
    }

    /// A reply may open a cursor, keep it, or end it. One that no client has heard of is killed at once.
    fn note_cursor<I: Io>(&mut self, exchange: &Exchange, server: ServerId, reply: &Reply, is_left: bool, io: &I) {
        for key in &exchange.killed {
            self.with_pins(io, |pins| pins.end_cursor(key, server));
        }
        let key = |id: i64| CursorKey { owner: self.owner(), session: exchange.session, id };
        match (reply.cursor.filter(|_| reply.is_ok), exchange.cursor) {
            (Some(0), Some(known)) => {
                let key = key(known);
                self.with_pins(io, |pins| pins.end_cursor(&key, server));
            }
            (Some(0), None) => {}
            (Some(id), known) => {
                let (key, place) = (key(id), self.place(server));
                let is_new = known != Some(id);
                let cleanups = self.with_pins(io, |pins| {
                    let mut cleanups = pins.note_cursor(key.clone(), place, io.now());
                    if is_new && is_left {
                        cleanups.extend(pins.take_cursor(&key, server));
                    }
                    cleanups
                });
                self.cleanups.extend(cleanups);
            }
            (None, Some(known)) if reply.code == Some(CURSOR_NOT_FOUND) => {
                let key = key(known);
                self.with_pins(io, |pins| pins.end_cursor(&key, server));
            }
            (None, _) => {}
        }
    }

    fn note_transaction<I: Io>(&mut self, exchange: &Exchange, reply: &Reply, io: &I) {
        let Some(transaction) = exchange.transaction else { return };
        let key = SessionKey { owner: self.owner(), session: transaction.session };
        let (number, now) = (transaction.number, io.now());
        let is_unknown = reply.code == Some(NO_SUCH_TRANSACTION);
        self.with_pins(io, |pins| match transaction.part {
            Part::Abort => pins.end_transaction(&key, number),
            Part::Commit if is_unknown => pins.end_transaction(&key, number),
            Part::Commit => pins.commit_transaction(&key, number, now),
            Part::Start | Part::Inside => pins.touch_transaction(&key, number, now),
        });
    }

    /// The exchange is over: the pins that it has used are idle from now on.
    fn release<I: Io>(&mut self, exchange: &Exchange, io: &I) {
        if !(exchange.uses_cursor || exchange.uses_transaction || exchange.has_claim) {
            return;
        }
        let (owner, now) = (self.owner(), io.now());
        self.with_pins(io, |pins| {
            if let Some(id) = exchange.cursor.filter(|_| exchange.uses_cursor) {
                pins.release_cursor(&CursorKey { owner: owner.clone(), session: exchange.session, id }, now);
            }
            let Some(transaction) = exchange.transaction else { return };
            let key = SessionKey { owner, session: transaction.session };
            if exchange.uses_transaction {
                pins.release_transaction(&key, transaction.number, now);
            }
            if exchange.has_claim {
                pins.release_claim(&key);
            }
        });
    }

    /// Works on the pins of this client: its own, or those that it shares.
    fn with_pins<I: Io, R>(&mut self, io: &I, act: impl FnOnce(&mut Pins) -> R) -> R {
        match self.face {
            Some(Face::LoadBalancer) => act(&mut self.own),
            _ => io.with_pins(act),
        }
    }

    /// The owner may open another cursor.
    fn has_room_for_cursor<I: Io>(&mut self, io: &I) -> bool {
        if self.face != Some(Face::LoadBalancer) && !io.has_full_owner() {
            return true;
        }
        let owner = self.owner();
        self.with_pins(io, |pins| pins.has_room_for_cursor(&owner))
    }

    fn owner(&self) -> Owner {
        self.login.user().cloned()
    }

    fn note_namespace(&mut self, command: &Command<'_>) {
        self.namespace.clear();
        self.namespace.extend_from_slice(command.db);
        self.database_bytes = command.db.len();
        let (prefix, name) = match command.collection() {
            Some(collection) => (&b""[..], collection),
            None => (&b"$cmd."[..], command.name),
        };
        // A longer text is no collection, has no cursor, and would stay here as long as the client does.
        if name.len() <= COLLECTION_BYTES_MAX {
            self.namespace.extend_from_slice(prefix);
            self.namespace.extend_from_slice(name);
        }
    }

    fn place(&self, server: ServerId) -> CursorPlace {
        let (db, collection) = self.namespace.split_at(self.database_bytes);
        CursorPlace { server, db: db.into(), collection: collection.into() }
    }

    /// The pins of this connection are known to those of the others before there is one.
    fn link<I: Io>(&mut self, io: &I) {
        if !std::mem::replace(&mut self.is_linked, true) {
            let limits = self.own.limits();
            self.own = io.with_pins(|shared| shared.beside(limits));
        }
    }

    /// The reply to a command that would reach into a session in which another owner has something (M20); `None`: it would not. Pins of the
    /// client itself in sessions that it ends are given back.
    fn guard_sessions<I: Io>(
        &mut self,
        request: &Request<'_>,
        command: &Command<'_>,
        io: &I,
        out: &mut Vec<u8>,
    ) -> Option<Next> {
        let is_end = command.name == b"endSessions";
        if is_end || command.name == b"killSessions" {
            let owner = self.owner();
            let sessions = match ended(command) {
                Ok(sessions) => sessions,
                Err(refusal) => return Some(self.refuse(request, &refusal, out)),
            };
            // An empty list means every session of the user, and all clients may be one user at the server.
            let is_all = !is_end && sessions.is_empty() && owner.is_some() && !self.login.is_relayed();
            let is_foreign = is_all || self.own.has_foreign(&owner, &sessions);
            if !is_end {
                return is_foreign.then(|| self.refuse(request, &Refusal::foreign_session(), out));
            }
            let cleanups = self.with_pins(io, |pins| pins.end_sessions(&owner, &sessions));
            self.cleanups.extend(cleanups);
            // A server forgets the client's own sessions in its time.
            return is_foreign.then(|| {
                self.reply(request, out, |_| {});
                Next::Replied
            });
        }
        // Parts of transactions have their own look.
        let is_part = command.is_in_transaction && command.txn_number.is_some();
        let session = *command.session.filter(|_| !is_part && concerns_transaction(command))?;
        let is_foreign = self.own.has_foreign_transaction(&SessionKey { owner: self.owner(), session });
        is_foreign.then(|| self.refuse(request, &Refusal::foreign_session(), out))
    }

    fn next_id(&mut self) -> i32 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }

    /// Replies with an error, unless the request wants no reply (L2).
    fn refuse(&mut self, request: &Request<'_>, refusal: &Refusal, out: &mut Vec<u8>) -> Next {
        let id = self.next_id();
        request.asker().refuse(out, id, refusal);
        Next::Replied
    }

    /// When [`Session::on_time`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Awaiting(awaited) => Some(awaited.deadline()),
            _ => None,
        }
    }
}
