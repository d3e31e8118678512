//! A client: what it sends, and what it expects.

use weir_base::Rng;
use weir_mongodb_codec::bson::{Value, Writer};
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::reply::Reply;

use crate::server::Lsid;

/// A cursor that the driver has open.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    id: i64,
    session: Option<Lsid>,
    tag: i64,
    /// The connection that has it, in load-balanced mode.
    connection: usize,
}

/// Users of the listener. Drivers of one user share their pins.
const OWNERS: u8 = 3;

/// A transaction of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transaction {
    session: Lsid,
    number: i64,
    connection: usize,
    is_committed: bool,
}

/// The request that waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent {
    Find {
        tag: i64,
        session: Option<Lsid>,
    },
    More {
        tag: i64,
        session: Option<Lsid>,
    },
    /// A cursor that is not the driver's.
    Foreign,
    Kill,
    Part(Transaction),
    Commit(Transaction),
    Abort,
    Plain,
    Unacknowledged,
    /// It would reach into a transaction of another owner, and must get this code.
    Intrusion(Option<i32>),
}

/// One driver.
#[derive(Debug)]
pub(crate) struct Driver {
    number: u8,
    pub(crate) is_balanced: bool,
    has_sessions: bool,
    cursors: Vec<Cursor>,
    transactions: Vec<Transaction>,
    last_session: u16,
    last_transaction: i64,
    last_tag: i64,
    last_request: i32,
    /// Batches that were compared.
    pub(crate) compared: u64,
    /// Transactions that were committed.
    pub(crate) committed: u64,
}

impl Driver {
    pub(crate) fn new(number: u8) -> Driver {
        Driver {
            number,
            is_balanced: number % 2 == 1,
            has_sessions: number % 5 != 4,
            cursors: Vec::new(),
            transactions: Vec::new(),
            last_session: 0,
            last_transaction: 0,
            last_tag: 0,
            last_request: 0,
            compared: 0,
            committed: 0,
        }
    }

    /// The name of its user.
    pub(crate) fn owner(&self) -> u8 {
        self.number % OWNERS
    }

    /// A transaction that is open, with its session: an intruder has seen both in a log.
    pub(crate) fn transaction(&self) -> Option<(Lsid, i64)> {
        self.transactions.first().map(|transaction| (transaction.session, transaction.number))
    }

    /// A request that would harm a transaction of another owner.
    pub(crate) fn intrude(&mut self, (session, number): (Lsid, i64), rng: &mut Rng) -> (Vec<u8>, Sent) {
        let transaction = |number| Transaction { session, number, connection: 0, is_committed: false };
        let lost = Sent::Intrusion(Some(251));
        match rng.below(7) {
            0 => (self.in_transaction(transaction(number), "insert", false), lost),
            1 => (self.in_transaction(transaction(number + 1), "insert", true), lost),
            2 => (self.in_transaction(transaction(number), "commitTransaction", false), lost),
            3 => (self.in_transaction(transaction(number), "abortTransaction", false), lost),
            4 => {
                let bytes = self.request(Flags::empty(), |body| {
                    body.string("insert", "orders");
                    write_session(Some(session), body);
                    body.int64("txnNumber", number + 1);
                });
                (bytes, lost)
            }
            5 => {
                let bytes = self.request(Flags::empty(), |body| {
                    body.array("endSessions", [session], |writer, name, id| {
                        writer.document(name, |lsid| lsid.binary("id", 4, &id));
                    });
                });
                (bytes, Sent::Intrusion(None))
            }
            _ => {
                let id = 1 + rng.below(20) as i64;
                let bytes = self.request(Flags::empty(), |body| {
                    body.string("killCursors", "orders");
                    body.array("cursors", [id], |writer, name, id| writer.int64(name, id));
                    write_session(Some(session), body);
                });
                (bytes, Sent::Intrusion(None))
            }
        }
    }

    fn lsid(&mut self) -> Lsid {
        self.last_session += 1;
        let mut lsid = [self.number; 16];
        lsid[..2].copy_from_slice(&self.last_session.to_le_bytes());
        lsid
    }

    /// The next request on an idle connection: bytes, and what is expected.
    pub(crate) fn next(&mut self, connection: usize, rng: &mut Rng) -> (Vec<u8>, Sent) {
        let is_mine = |its: usize| !self.is_balanced || its == connection;
        let cursors: Vec<usize> = (0..self.cursors.len()).filter(|at| is_mine(self.cursors[*at].connection)).collect();
        let pick = |rng: &mut Rng, from: &[usize]| from[rng.below(from.len() as u64) as usize];
        let mine = (0..self.transactions.len()).find(|at| is_mine(self.transactions[*at].connection));
        match rng.below(12) {
            0..=2 => self.find(),
            3..=5 if !cursors.is_empty() => {
                let at = pick(rng, &cursors);
                let streams = rng.below(4) == 0;
                self.more(at, streams)
            }
            6 if !cursors.is_empty() => {
                let at = pick(rng, &cursors);
                self.kill(at)
            }
            7 => self.foreign(rng),
            8 | 9 if self.has_sessions => match mine {
                Some(at) => self.part(at, rng),
                None => self.start(connection),
            },
            10 => {
                let body = |body: &mut Writer<'_>| body.string("insert", "orders");
                (self.request(Flags::MORE_TO_COME, body), Sent::Unacknowledged)
            }
            _ => (self.request(Flags::empty(), |body| body.string("insert", "orders")), Sent::Plain),
        }
    }

    fn find(&mut self) -> (Vec<u8>, Sent) {
        self.last_tag += 1;
        let tag = i64::from(self.number) * 1_000_000 + self.last_tag;
        let session = self.has_sessions.then(|| self.lsid());
        let bytes = self.request(Flags::empty(), |body| {
            body.string("find", "orders");
            body.int64("tag", tag);
            write_session(session, body);
        });
        (bytes, Sent::Find { tag, session })
    }

    /// The cursor is the request's until its reply: a driver uses one at a time.
    fn more(&mut self, at: usize, streams: bool) -> (Vec<u8>, Sent) {
        let Cursor { id, session, tag, .. } = self.cursors.swap_remove(at);
        let flags = if streams { Flags::EXHAUST_ALLOWED } else { Flags::empty() };
        let bytes = self.request(flags, |body| {
            body.int64("getMore", id);
            body.string("collection", "orders");
            write_session(session, body);
        });
        (bytes, Sent::More { tag, session })
    }

    fn kill(&mut self, at: usize) -> (Vec<u8>, Sent) {
        let Cursor { id, session, .. } = self.cursors.swap_remove(at);
        let bytes = self.request(Flags::empty(), |body| {
            body.string("killCursors", "orders");
            body.array("cursors", [id], |writer, name, id| writer.int64(name, id));
            write_session(session, body);
        });
        (bytes, Sent::Kill)
    }

    fn foreign(&mut self, rng: &mut Rng) -> (Vec<u8>, Sent) {
        let (id, session) = (1 + rng.below(20) as i64, Some(self.lsid()));
        let bytes = self.request(Flags::empty(), |body| {
            body.int64("getMore", id);
            body.string("collection", "orders");
            write_session(session, body);
        });
        (bytes, Sent::Foreign)
    }

    fn start(&mut self, connection: usize) -> (Vec<u8>, Sent) {
        self.last_transaction += 1;
        let (session, number) = (self.lsid(), self.last_transaction);
        let transaction = Transaction { session, number, connection, is_committed: false };
        (self.in_transaction(transaction, "insert", true), Sent::Part(transaction))
    }

    /// The transaction is the request's until its reply: a session does one thing at a time.
    fn part(&mut self, at: usize, rng: &mut Rng) -> (Vec<u8>, Sent) {
        let transaction = self.transactions.swap_remove(at);
        let (name, sent) = match rng.below(4) {
            _ if transaction.is_committed => ("commitTransaction", Sent::Commit(transaction)),
            0 => ("commitTransaction", Sent::Commit(transaction)),
            1 => ("abortTransaction", Sent::Abort),
            _ => ("insert", Sent::Part(transaction)),
        };
        (self.in_transaction(transaction, name, false), sent)
    }

    fn in_transaction(&mut self, transaction: Transaction, name: &str, is_start: bool) -> Vec<u8> {
        self.request(Flags::empty(), |body| {
            body.string(name, "orders");
            write_session(Some(transaction.session), body);
            body.int64("txnNumber", transaction.number);
            body.bool("autocommit", false);
            if is_start {
                body.bool("startTransaction", true);
            }
        })
    }

    fn request(&mut self, flags: Flags, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        // Ids of two drivers are the same.
        self.last_request += 1;
        let mut out = Vec::new();
        message::write(&mut out, Ids { request: self.last_request, response_to: 0 }, flags, |writer| {
            body(writer);
            writer.string("$db", "shop");
        });
        out
    }

    /// A reply on this connection. `is_calm`: nothing was ever lost, so that nothing may fail.
    pub(crate) fn on_reply(&mut self, sent: Sent, bytes: &[u8], connection: usize, is_calm: bool) {
        let message = Message::read(bytes).expect("whole messages");
        let reply = Reply::read(message.body).expect("a reply");
        let tag = message.body.get(b"tag").ok().flatten().and_then(Value::as_integer);
        match sent {
            Sent::Find { tag: mine, session } | Sent::More { tag: mine, session } if reply.is_ok => {
                assert_eq!(tag, Some(mine), "a batch of another cursor");
                self.compared += 1;
                let id = reply.cursor.expect("a cursor");
                // In a stream the next batch comes by itself.
                if id != 0 && !message.flags.contains(Flags::MORE_TO_COME) {
                    self.cursors.push(Cursor { id, session, tag: mine, connection });
                }
            }
            Sent::Intrusion(code) => assert!(!is_calm || reply.code == code, "{reply:?}"),
            Sent::Foreign => assert_eq!(reply.code, Some(43), "a cursor of another session"),
            Sent::Part(transaction) if reply.is_ok => self.transactions.push(transaction),
            Sent::Commit(transaction) if reply.is_ok => {
                self.committed += 1;
                if !transaction.is_committed {
                    self.transactions.push(Transaction { is_committed: true, ..transaction });
                }
            }
            Sent::Unacknowledged => panic!("a reply to a request that wants none"),
            // Without sessions, cursors of two drivers may have one key: both are given back.
            Sent::More { session: None, .. } => assert!(matches!(reply.code, Some(43 | 6))),
            Sent::Find { .. } | Sent::More { .. } | Sent::Part(_) | Sent::Commit(_) => {
                assert!(!is_calm, "{sent:?} failed: {reply:?}");
            }
            Sent::Kill | Sent::Abort | Sent::Plain => assert!(reply.is_ok || !is_calm, "{sent:?} failed: {reply:?}"),
        }
    }

    /// A connection is closed: in load-balanced mode its cursors and transactions go with it.
    pub(crate) fn on_closed(&mut self, connection: usize) {
        if self.is_balanced {
            self.cursors.retain(|cursor| cursor.connection != connection);
            self.transactions.retain(|transaction| transaction.connection != connection);
        }
    }
}

fn write_session(session: Option<Lsid>, body: &mut Writer<'_>) {
    if let Some(session) = session {
        body.document("lsid", |lsid| lsid.binary("id", 4, &session));
    }
}
