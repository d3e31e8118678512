//! Two users of a gateway, who are one user at the server: neither reaches the cursors, transactions and sessions of the other. Cases M9
//! and M20. Nothing of an attempt may reach the server, which cannot tell the two apart.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use weir_mongodb_codec::bson::Writer;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::mongodb::fake::{Act, Fake, honest};
use weir_tests::mongodb::wire::{Wire, end, find, get_more, login, part, session, transaction};
use weir_tests::mongodb::{FerretDb, PASSWORD, USER};
use weir_tests::stream::Address;

use crate::gateway::port;

/// The session of ann.
const HERS: [u8; 16] = [9; 16];
/// The session of ben.
const HIS: [u8; 16] = [4; 16];

/// A gateway with the users ann and ben, who are one at the server.
fn two_users(server: &Address, upstream: &str) -> Gateway {
    two_users_with(server, "", upstream)
}

/// The same with these keys of the listener.
fn two_users_with(server: &Address, keys: &str, upstream: &str) -> Gateway {
    let folder = tempfile::tempdir().expect("a folder");
    let password = secret_file(folder.path(), "client-password", "word");
    let user = |name: &str| format!("[[listener.user]]\nname = \"{name}\"\npassword = {{ file = \"{password}\" }}\n");
    let listener = format!("[listener.mongodb]\nauth = \"scram\"\n{keys}\n{}{}", user("ann"), user("ben"));
    let config = Config { protocol: "mongodb", ..Config::to(server) };
    Gateway::start(config.listener(&listener).upstream(&format!("[upstream.mongodb]\n{upstream}")))
}

/// A connection of each.
fn both(gateway: &Gateway) -> (Wire, Wire) {
    (login(port(gateway), "ann", "word"), login(port(gateway), "ben", "word"))
}

/// Nothing that ben does with the session of ann reaches the server, which would take him for her.
#[test]
fn m20_a_transaction_of_another_user_is_unknown() {
    let server = Fake::honest();
    let gateway = two_users(&server.address, "");
    let (mut ann, mut ben) = both(&gateway);
    assert!(ann.call(|body| part(body, HERS, 1, true)).is_ok());
    let inserts = server.count("insert");
    assert_eq!(ben.call(|body| part(body, HERS, 1, false)).code(), 251, "a statement");
    assert_eq!(server.count("insert"), inserts, "a statement");
    for command in ["commitTransaction", "abortTransaction"] {
        let reply = ben.call(|body| end(body, command, HERS, 1));
        assert_eq!(reply.code(), 251, "{command}: {reply:?}");
        assert_eq!(server.count(command), 0, "{command}");
    }
    assert!(ann.call(|body| part(body, HERS, 1, false)).is_ok(), "its owner goes on");
    assert!(ann.call(|body| end(body, "commitTransaction", HERS, 1)).is_ok(), "and ends it");
    assert_eq!(server.count("commitTransaction"), 1);
    drop((ann, ben));
    gateway.finish();
}

/// Two users of the gateway, one login at the server: the server does not tell them apart.
#[test]
fn m9_cursors_of_another_user_are_unknown() {
    let server = FerretDb::start_with_logins();
    let folder = tempfile::tempdir().expect("a folder");
    let own = secret_file(folder.path(), "server-password", PASSWORD);
    let gateway = two_users(&server.address, &format!("user = \"{USER}\"\npassword = {{ file = \"{own}\" }}"));
    let (mut ann, mut ben) = both(&gateway);
    let insert = ann.call(|body| {
        body.string("insert", "notes");
        body.array("documents", 0..10, |array, name, id| array.document(name, |one| one.int32("_id", id)));
        body.string("$db", "test");
    });
    assert!(insert.is_ok(), "{insert:?}");
    let id = [7; 16];
    let opened = ann.call(|body| {
        find(body, "notes", 2);
        session(body, id);
    });
    let cursor = opened.cursor();
    assert!(cursor != 0, "{opened:?}");
    let theirs = |body: &mut Writer<'_>| {
        get_more(body, cursor, "notes");
        session(body, id);
    };
    assert_eq!(ben.call(theirs).code(), 43, "with the same session");
    let killed = ben.call(|body| {
        body.string("killCursors", "notes");
        body.array("cursors", [cursor], |array, name, id| array.int64(name, id));
        session(body, id);
        body.string("$db", "test");
    });
    assert!(killed.value(&["cursorsKilled"]).is_none_or(|list| list.bytes.len() <= 5), "{killed:?}");
    let own = ann.call(theirs);
    assert!(own.is_ok() && !own.batch().is_empty(), "its owner goes on: {own:?}");
    drop((ann, ben));
    gateway.finish();
}

/// A user that leaves its cursors open costs another one nothing, and gets an error after which its driver waits.
#[test]
fn m9_a_user_at_its_bound_of_cursors_is_refused_and_another_one_is_not() {
    let ids = AtomicI64::new(0);
    let server = Fake::start(move |asked| match asked.name {
        "find" => Act::batch(asked, ids.fetch_add(1, Relaxed) + 1, [1, 2]),
        "getMore" => Act::batch(asked, 0, [3]),
        _ => honest(asked),
    });
    let gateway = two_users_with(&server.address, "cursors_max = 20", "");
    let (mut ann, mut ben) = both(&gateway);
    let opened: Vec<i64> = (0..20).map(|_| ann.call(|body| find(body, "notes", 2)).cursor()).collect();
    let refused = ann.call(|body| find(body, "notes", 2));
    assert_eq!(refused.code(), 462, "{refused:?}");
    assert!(refused.labels().iter().any(|label| label == "SystemOverloadedError"), "{refused:?}");
    assert_eq!(login(port(&gateway), "ann", "word").call(|body| find(body, "notes", 2)).code(), 462, "everywhere");
    assert_eq!(server.count("find"), 20);
    for _ in 0..30 {
        let cursor = ben.call(|body| find(body, "notes", 2)).cursor();
        assert_eq!(ben.call(|body| get_more(body, cursor, "notes")).batch(), [3]);
    }
    assert_eq!(ann.call(|body| get_more(body, opened[7], "notes")).batch(), [3], "hers go on");
    assert!(ann.call(|body| find(body, "notes", 2)).is_ok(), "one has ended");
    assert_eq!(server.count("killCursors"), 0);
    drop((ann, ben));
    gateway.finish();
}

/// The list of an endSessions or a killSessions.
fn sessions(body: &mut Writer<'_>, command: &str, ids: &[[u8; 16]]) {
    body.array(command, ids, |array, name, id| array.document(name, |lsid| lsid.binary("id", 4, id)));
    body.string("$db", "admin");
}

/// Servers end the transaction of a session with the session, and at its next number.
#[test]
fn m20_a_session_of_another_user_is_neither_ended_nor_used() {
    let server = Fake::honest();
    let gateway = two_users(&server.address, "");
    let (mut ann, mut ben) = both(&gateway);
    assert!(ann.call(|body| part(body, HERS, 1, true)).is_ok());
    let inserts = server.count("insert");
    // Drivers take no notice of the reply to endSessions, so it is no error.
    for ids in [&[HERS][..], &[HIS, HERS]] {
        let reply = ben.call(|body| sessions(body, "endSessions", ids));
        assert!(reply.is_ok(), "{reply:?}");
    }
    for ids in [&[HERS][..], &[HIS, HERS], &[]] {
        let reply = ben.call(|body| sessions(body, "killSessions", ids));
        assert_eq!(reply.code(), 251, "{} sessions: {reply:?}", ids.len());
    }
    for command in ["endSessions", "killSessions"] {
        assert_eq!(server.count(command), 0, "{command}");
    }
    let numbered = |body: &mut Writer<'_>| {
        body.string("insert", "notes");
        session(body, HERS);
        body.int64("txnNumber", 2);
        body.string("$db", "test");
    };
    assert_eq!(ben.call(numbered).code(), 251, "a retryable write");
    assert_eq!(ben.call(|body| part(body, HERS, 2, true)).code(), 251, "another transaction");
    assert_eq!(server.count("insert"), inserts);
    // The same of his own passes.
    assert!(ben.call(|body| part(body, HIS, 2, true)).is_ok());
    assert!(ben.call(|body| end(body, "abortTransaction", HIS, 2)).is_ok());
    assert!(ben.call(|body| sessions(body, "endSessions", &[HIS])).is_ok());
    assert_eq!((server.count("abortTransaction"), server.count("endSessions")), (1, 1));
    assert!(ann.call(|body| part(body, HERS, 1, false)).is_ok(), "its owner goes on");
    assert!(ann.call(|body| end(body, "commitTransaction", HERS, 1)).is_ok(), "and ends it");
    drop((ann, ben));
    gateway.finish();
}

/// A server that looks at the transaction alone takes a cursor of any session.
#[test]
fn m9_a_cursor_of_another_user_is_unknown_within_a_transaction_too() {
    let server = Fake::honest();
    let gateway = two_users(&server.address, "");
    let (mut ann, mut ben) = both(&gateway);
    let cursor = ann.call(|body| find(body, "notes", 2)).cursor();
    assert!(cursor != 0);
    let more = ben.call(|body| {
        get_more(body, cursor, "notes");
        transaction(body, HIS, 1, true);
    });
    assert_eq!(more.code(), 43, "{more:?}");
    let killed = ben.call(|body| {
        body.string("killCursors", "notes");
        body.array("cursors", [cursor], |array, name, id| array.int64(name, id));
        transaction(body, HIS, 1, true);
        body.string("$db", "test");
    });
    assert!(killed.value(&["cursorsKilled"]).is_none_or(|list| list.bytes.len() <= 5), "{killed:?}");
    assert_eq!((server.count("getMore"), server.count("killCursors")), (0, 0));
    assert_eq!(ann.call(|body| get_more(body, cursor, "notes")).batch(), [3, 4, 5], "its owner goes on");
    drop((ann, ben));
    gateway.finish();
}

/// Some servers take these for a cursor, and the gateway could not tell whose it is.
#[test]
fn m9_a_cursor_that_is_no_long_integer_is_refused() {
    let server = Fake::honest();
    let gateway = two_users(&server.address, "");
    let (mut ann, mut ben) = both(&gateway);
    assert!(ann.call(|body| find(body, "notes", 2)).cursor() != 0);
    let forms: [fn(&mut Writer<'_>); 3] = [
        |body| body.int32("getMore", 7_001),
        |body| body.double("getMore", 7_001.0),
        |body| body.string("getMore", "7001"),
    ];
    for (number, write) in forms.into_iter().enumerate() {
        for wire in [&mut ann, &mut ben] {
            let reply = wire.call(|body| {
                write(body);
                body.string("collection", "notes");
                body.string("$db", "test");
            });
            assert_eq!(reply.code(), 14, "form {number}: {reply:?}");
        }
    }
    assert_eq!(server.count("getMore"), 0);
    drop((ann, ben));
    gateway.finish();
}

/// Writes a command with this name, for this cursor.
type WriteForm = fn(&mut Writer<'_>, &str, i64);

/// Some servers compare the names of commands without case, so that a name that the gateway does not know reaches what it guards.
#[test]
fn m9_a_command_in_another_case_is_unknown() {
    let server = Fake::honest();
    let gateway = two_users(&server.address, "");
    let (mut ann, mut ben) = both(&gateway);
    let cursor = ann.call(|body| find(body, "notes", 2)).cursor();
    let forms: [(&str, i64, WriteForm); 4] = [
        ("SHUTDOWN", 13, |body, name, _| body.int32(name, 1)),
        ("GETMORE", 59, |body, name, cursor| {
            body.int64(name, cursor);
            body.string("collection", "notes");
        }),
        ("KillCursors", 59, |body, name, cursor| {
            body.string(name, "notes");
            body.array("cursors", [cursor], |array, name, id| array.int64(name, id));
        }),
        ("committransaction", 59, |body, name, _| {
            body.int32(name, 1);
            transaction(body, HERS, 1, false);
        }),
    ];
    for (name, code, write) in forms {
        let reply = ben.call(|body| {
            write(body, name, cursor);
            body.string("$db", "admin");
        });
        assert_eq!((reply.code(), server.count(name)), (code, 0), "{name}: {reply:?}");
    }
    assert_eq!(ann.call(|body| get_more(body, cursor, "notes")).batch(), [3, 4, 5], "its owner goes on");
    drop((ann, ben));
    gateway.finish();
}
