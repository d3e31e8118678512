//! Servers that close in the place of a reply: the words of the error decide whether a driver repeats the command. The gateway repeats
//! none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_mongodb_codec::bson::Writer;
use weir_tests::gateway::Gateway;
use weir_tests::mongodb::fake::{Act, Fake, honest};
use weir_tests::mongodb::wire::{Wire, end, find, get_more, part, session};

use crate::gateway::{before, port};

const SESSION: [u8; 16] = [6; 16];

/// Its name; a command in front of it, and the command whose reply is lost; the code and the labels of the error.
type Case = (&'static str, Option<fn(&mut Writer<'_>)>, fn(&mut Writer<'_>), i64, &'static [&'static str]);

fn begin(body: &mut Writer<'_>) {
    part(body, SESSION, 1, true);
}

fn write(body: &mut Writer<'_>) {
    body.string("update", "notes");
    body.string("$db", "test");
}

const CASES: [Case; 8] = [
    ("a read", None, |body| find(body, "notes", 2), 6, &[]),
    ("a write without a number", None, write, 6, &[]),
    (
        "a retryable write",
        None,
        |body| {
            write(body);
            session(body, SESSION);
            body.int64("txnNumber", 7);
        },
        6,
        &["RetryableWriteError"],
    ),
    ("the start of a transaction", None, begin, 6, &["TransientTransactionError"]),
    ("a part of a transaction", Some(begin), |body| part(body, SESSION, 1, false), 6, &["TransientTransactionError"]),
    ("a commit", Some(begin), |body| end(body, "commitTransaction", SESSION, 1), 6, &["RetryableWriteError"]),
    ("an abort", Some(begin), |body| end(body, "abortTransaction", SESSION, 1), 6, &["RetryableWriteError"]),
    ("a getMore", Some(|body| find(body, "stream", 2)), |body| get_more(body, 99, "stream"), 43, &[]),
];

/// A server that closes instead of the next reply, once `strikes`.
fn server(strikes: &Arc<AtomicBool>) -> Fake {
    let strikes = strikes.clone();
    Fake::start(move |asked| match asked.name {
        // Those of the gateway.
        "ping" | "killCursors" => honest(asked),
        _ if strikes.swap(false, Ordering::Relaxed) => Act::Close,
        "find" if asked.body.get(b"find").ok().flatten().and_then(|name| name.as_string()) == Some(b"stream") => {
            Act::batch(asked, 99, [1, 2])
        }
        _ => honest(asked),
    })
}

#[test]
fn a_lost_reply_is_an_error_by_which_a_driver_knows_what_to_do() {
    for (what, before_it, command, code, labels) in CASES {
        let strikes = Arc::new(AtomicBool::new(false));
        let server = server(&strikes);
        let gateway = Gateway::start(before(&server.address, "", "pool_size = 4"));
        let mut wire = Wire::connect(port(&gateway));
        if let Some(before_it) = before_it {
            assert!(wire.call(before_it).is_ok(), "{what}");
        }
        let arrived = commands(&server);
        strikes.store(true, Ordering::Relaxed);
        let reply = wire.call(command);
        assert_eq!(reply.code(), code, "{what}: {reply:?}");
        assert_eq!(reply.labels(), labels, "{what}");
        assert_eq!(commands(&server) - arrived, 1, "{what}: it came once, {:?}", server.commands());
        assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2], "{what}: the connection goes on");
        drop(wire);
        gateway.finish();
    }
}

/// Commands of the client that came.
fn commands(server: &Fake) -> u64 {
    let is_its = |(name, _): &(&String, &u64)| !matches!(name.as_str(), "ping" | "killCursors");
    server.commands().iter().filter(is_its).map(|(_, count)| count).sum()
}
