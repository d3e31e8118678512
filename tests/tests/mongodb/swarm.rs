//! Many clients with cursors, streams of replies and transactions, of which many vanish at any moment: each document that a client gets is
//! its own, and nothing of those that are gone stays at the server.

use std::time::Duration;

use weir_base::rng::Rng;
use weir_mongodb_codec::bson::{Value, Writer};
use weir_mongodb_codec::message::Flags;
use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::mongodb::Scripted;
use weir_tests::mongodb::wire::{Reply, Wire, end, get_more, part, transaction};
use weir_tests::seed::seeded;

use crate::gateway::{before, port};

const THREADS: usize = 16;
/// Connections of each thread, one after the other.
const ROUNDS: usize = 25;
/// Documents of each collection of the server.
const DOCUMENTS: i64 = 500;

/// A client, and its next marks: the server repeats the comment of a command in its reply and in every document.
struct Client<'a> {
    wire: Wire,
    random: &'a mut Rng,
    name: String,
    marks: u32,
}

impl Client<'_> {
    fn mark(&mut self) -> String {
        self.marks += 1;
        format!("{}-{}", self.name, self.marks)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    /// Sends a find, of a transaction if there is one.
    fn find(&mut self, mark: &str, within: Option<([u8; 16], i64)>) -> Reply {
        let size = 1 + self.random.below(150) as i32;
        self.wire.call(|body| {
            body.string("find", "notes");
            body.int32("batchSize", size);
            body.string("comment", mark);
            if let Some((session, number)) = within {
                transaction(body, session, number, false);
            }
            body.string("$db", "test");
        })
    }

    /// Reads a result to its end, or leaves it, with or without a word.
    fn read(&mut self) {
        let (mark, mut next) = (self.mark(), 1);
        let mut reply = self.find(&mark, None);
        loop {
            is_own(&reply, &mark, &mut next);
            let cursor = reply.cursor();
            if cursor == 0 {
                assert_eq!(next, DOCUMENTS + 1, "{mark}: the result is whole");
                return;
            }
            if self.chance(8) {
                if self.chance(2) {
                    self.kill(cursor);
                }
                return;
            }
            let size = 1 + self.random.below(200) as i32;
            reply = self.wire.call(|body| more(body, cursor, size));
        }
    }

    fn kill(&mut self, cursor: i64) {
        let killed = self.wire.call(|body| {
            body.string("killCursors", "notes");
            body.array("cursors", [cursor], |array, name, id| array.int64(name, id));
            body.string("$db", "test");
        });
        assert!(killed.is_ok(), "{killed:?}");
    }

    /// Reads a stream of replies; false: it leaves within it.
    fn stream(&mut self) -> bool {
        let (mark, mut next) = (self.mark(), 1);
        let first = self.find(&mark, None);
        is_own(&first, &mark, &mut next);
        let cursor = first.cursor();
        if cursor == 0 {
            return true;
        }
        self.wire.ask(Flags::EXHAUST_ALLOWED, |body| more(body, cursor, 30));
        loop {
            if self.chance(12) {
                return false;
            }
            let reply = self.wire.reply().unwrap_or_else(|error| panic!("{mark}: {error}"));
            is_own(&reply, &mark, &mut next);
            if !reply.flags.contains(Flags::MORE_TO_COME) {
                assert_eq!(next, DOCUMENTS + 1, "{mark}: the stream is whole");
                return true;
            }
        }
    }

    /// A transaction that ends, or is left open.
    fn transact(&mut self) {
        let mut session = [0; 16];
        session[..8].copy_from_slice(&self.random.next_u64().to_le_bytes());
        session[8..].copy_from_slice(&self.random.next_u64().to_le_bytes());
        let begun = self.wire.call(|body| part(body, session, 1, true));
        assert!(begun.is_ok(), "{begun:?}");
        let (mark, mut next) = (self.mark(), 1);
        let found = self.find(&mark, Some((session, 1)));
        is_own(&found, &mark, &mut next);
        let command = match self.random.below(3) {
            0 => return,
            1 => "commitTransaction",
            _ => "abortTransaction",
        };
        let ended = self.wire.call(|body| end(body, command, session, 1));
        assert!(ended.is_ok(), "{command}: {ended:?}");
    }

    /// Some work, and an end at any moment of it.
    fn live(mut self) {
        for _ in 0..1 + self.random.below(5) {
            let goes_on = match self.random.below(4) {
                0 | 1 => {
                    self.read();
                    true
                }
                2 => self.stream(),
                _ => {
                    self.transact();
                    true
                }
            };
            if !goes_on {
                break;
            }
            if self.chance(4) {
                // It leaves in front of the reply.
                self.wire.ask(Flags::empty(), |body| {
                    body.string("find", "notes");
                    body.int32("batchSize", 3);
                    body.string("comment", "nobody");
                    body.string("$db", "test");
                });
                break;
            }
        }
        let with_reset = self.chance(2);
        self.wire.leave(with_reset);
    }
}

fn more(body: &mut Writer<'_>, cursor: i64, size: i32) {
    get_more(body, cursor, "notes");
    body.int32("batchSize", size);
}

/// Each document is one of the request with this mark, and the next one of its result.
fn is_own(reply: &Reply, mark: &str, next: &mut i64) {
    assert!(reply.is_ok(), "{mark}: {reply:?}");
    for one in reply.documents() {
        let field = |name: &[u8]| one.get(name).ok().flatten();
        let request = field(b"request").and_then(Value::as_string).map(String::from_utf8_lossy);
        assert_eq!(request.as_deref(), Some(mark), "a document of another request");
        assert_eq!(field(b"_id").and_then(Value::as_integer), Some(*next), "{mark}");
        *next += 1;
    }
}

/// Runs the clients, and waits until the server has neither cursors nor transactions.
fn run(is_balanced: bool, listener: &str) {
    let server = Scripted::mongos();
    let gateway = Gateway::start(before(&server.address, listener, "pool_size = 8").workers(2));
    let (at, mut random) = (port(&gateway), seeded());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut random = random.fork();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let (wire, _) = Wire::connect_with(at, |body| body.bool("loadBalanced", is_balanced));
                    let name = format!("{thread}-{round}");
                    Client { wire, random: &mut random, name, marks: 0 }.live();
                }
            });
        }
    });
    until_true("nothing is left at the server", || {
        let counts = server.counts();
        ["cursors", "transactions"].iter().all(|kind| counts.number(&[kind, "open"]) == Some(0))
    });
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(gateway.metric("weir_defensive_closes_total"), 0.0, "{}", gateway.log());
    gateway.finish();
}

/// Cursors and transactions end with the connections of their clients.
#[test]
fn clients_behind_a_load_balancer_that_vanish_leave_nothing_and_get_no_document_of_another() {
    run(true, "");
}

/// They end by their time: another connection of the driver may go on with them.
#[test]
fn clients_of_a_mongos_that_vanish_leave_nothing_for_long_and_get_no_document_of_another() {
    run(false, "cursor_idle_timeout = \"2s\"\ntransaction_idle_timeout = \"2s\"");
}
