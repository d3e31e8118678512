//! The judge is judged: traffic in front of servers that misbehave once, in a known way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{DEPTH, Traffic, TrafficCounts, Way};
use crate::deadline::until_true;
use crate::faulty::{Act, Faulty};

/// The one fault of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Executes an INCR, does not answer, and closes.
    LoseReply,
    /// Neither executes nor answers the first INCR of a round, and closes.
    CloseBefore,
    /// Executes the first INCR of a round, answers with one byte, and closes.
    CutReply,
    /// Replies to a GET with this value.
    Value(&'static str),
    /// Replies to an INCR with an error, and does not execute it.
    Refuse,
    /// Replies to an INCR twice.
    ReplyTwice,
}

/// The fault comes when the counter of the pipelining client stands here: between two rounds.
const AT: u64 = 20 * DEPTH;
/// Commands after which the traffic is stopped: two dozen rounds behind the fault.
const COMMANDS: u64 = 3 * (AT + 24 * DEPTH);

/// A server of one fault.
struct Server {
    fault: Fault,
    is_done: AtomicBool,
    commands: AtomicU64,
    values: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl Server {
    fn act(&self, words: &[Vec<u8>]) -> Act {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let mut values = self.values.lock().expect("the values");
        let counter = |values: &HashMap<Vec<u8>, Vec<u8>>, key: &[u8]| {
            let text = values.get(key).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            text.map_or(0, |text| text.parse().expect("a counter"))
        };
        let wanted: &[&[u8]] =
            if matches!(self.fault, Fault::Value(_)) { &[b"GET", b"value-0"] } else { &[b"INCR", b"count-0"] };
        let is_due = words[0] == wanted[0] && words[1] == wanted[1] && counter(&values, b"count-0") >= AT;
        let is_now = self.fault != Fault::None && is_due && !self.is_done.swap(true, Ordering::Relaxed);
        let fault = if is_now { self.fault } else { Fault::None };
        match fault {
            Fault::CloseBefore => return Act::Reset,
            Fault::Refuse => return Act::Reply(b"-ERR not now\r\n".to_vec()),
            Fault::Value(text) => return Act::Reply(bulk(text.as_bytes())),
            _ => {}
        }
        let reply = match words[0].as_slice() {
            b"INCR" => {
                let next = counter(&values, &words[1]) + 1;
                values.insert(words[1].clone(), next.to_string().into_bytes());
                format!(":{next}\r\n").into_bytes()
            }
            b"SET" => {
                values.insert(words[1].clone(), words[2].clone());
                b"+OK\r\n".to_vec()
            }
            _ => values.get(&words[1]).map_or_else(|| b"$-1\r\n".to_vec(), |value| bulk(value)),
        };
        match fault {
            Fault::LoseReply => Act::Reset,
            Fault::CutReply => Act::ReplyThenClose(reply[..1].to_vec()),
            Fault::ReplyTwice => Act::Reply(reply.repeat(2)),
            _ => Act::Reply(reply),
        }
    }
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The account of one pipelining client and of the newcomers, in front of a server with this fault.
fn seen_with(fault: Fault) -> TrafficCounts {
    let server = Arc::new(Server {
        fault,
        is_done: AtomicBool::new(false),
        commands: AtomicU64::new(0),
        values: Mutex::default(),
    });
    let acting = Arc::clone(&server);
    let faulty = Faulty::start(move |words| acting.act(words));
    let traffic = Traffic::start(&Way::plain(&faulty.address), 1);
    until_true("the rounds behind the fault", || server.commands.load(Ordering::Relaxed) > COMMANDS);
    let seen = traffic.stop();
    assert!(seen.right > AT && server.is_done.load(Ordering::Relaxed) == (fault != Fault::None), "{seen:?}");
    seen
}

/// The account has an error with these words. Others may follow, for the rest of the round goes on at the server.
fn is_seen(fault: Fault, words: &str) {
    let seen = seen_with(fault);
    assert!(seen.errors.keys().any(|text| text.contains(words)), "wanted `{words}`: {seen:?}");
}

#[test]
fn a_good_server_gives_nothing_to_complain_about() {
    let seen = seen_with(Fault::None);
    assert!(seen.errors.is_empty() && seen.crossed == 0, "{seen:?}");
}

#[test]
fn a_request_that_was_executed_without_a_reply_is_lost() {
    is_seen(Fault::LoseReply, "1 executed without a reply");
}

#[test]
fn requests_that_were_neither_executed_nor_answered_only_crossed_the_close() {
    let seen = seen_with(Fault::CloseBefore);
    assert!(seen.errors.is_empty() && seen.crossed == 3 * DEPTH, "{seen:?}");
}

#[test]
fn a_reply_that_stops_in_the_middle_is_an_error() {
    is_seen(Fault::CutReply, "among the replies");
}

#[test]
fn old_and_foreign_values_are_errors() {
    is_seen(Fault::Value("0:1"), "came $3\\r\\n0:1");
    is_seen(Fault::Value("1:321"), "came $5\\r\\n1:321");
}

#[test]
fn an_error_reply_is_counted_by_its_words() {
    is_seen(Fault::Refuse, "ERR not now");
}

#[test]
fn one_reply_too_many_does_not_pass() {
    is_seen(Fault::ReplyTwice, "wanted +OK");
}
