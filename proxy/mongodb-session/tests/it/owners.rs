//! Two users of one listener that are one user at the server (M20, L3): each guesses the ids of the other.

use std::time::Duration;

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::header::{Header, OpCode};
use weir_mongodb_codec::message::Flags;
use weir_mongodb_codec::reply::Reply;
use weir_mongodb_session::login::{Methods, TlsFacts};
use weir_mongodb_session::pins::{PinLimits, ServerId};
use weir_mongodb_session::{Next, ReadMode, Refusal, Session, Want};

use crate::support::{ReplyMessage, Shell, ask, send, session, written};

const SERVER: ServerId = ServerId(3);
/// The logical session of ann.
const HERS: [u8; 16] = [7; 16];
const HIS: [u8; 16] = [8; 16];

fn log_in(shell: &Shell, name: &str, is_balanced: bool) -> Session {
    let subject = Some(format!("CN={name}").into_bytes().into_boxed_slice());
    let mut session = session(Methods::X509, Some(TlsFacts { subject }));
    let hello = ask(&mut session, shell, |body| {
        body.int32("hello", 1);
        body.bool("loadBalanced", is_balanced);
        body.string("$db", "admin");
    });
    assert!(hello.reply().is_ok);
    let login = ask(&mut session, shell, |body| {
        body.int32("authenticate", 1);
        body.string("mechanism", "MONGODB-X509");
        body.string("$db", "$external");
    });
    assert!(login.reply().is_ok && session.login().user().is_some());
    session
}

fn reply(session: &mut Session, shell: &Shell, cursor: Option<i64>) {
    let header = Header { bytes: 100, request: 90, response_to: 40, op_code: OpCode::Msg };
    let reply = Reply { is_ok: true, cursor, ..Reply::default() };
    session.on_reply(&header, Flags::empty(), &reply, shell).expect("a reply");
}

/// The way of a command to its server, with this cursor in its reply; `Err`: its reply of the gateway.
fn run(
    session: &mut Session,
    shell: &Shell,
    cursor: Option<i64>,
    body: impl FnOnce(&mut Writer<'_>),
) -> Result<Want, ReplyMessage> {
    let (next, out) = send(session, shell, &written(40, Flags::empty(), body));
    match next {
        Next::Take(want) => {
            session.on_server(SERVER, shell);
            assert!(!session.on_sent());
            reply(session, shell, cursor);
            Ok(want)
        }
        Next::Replied => Err(ReplyMessage(out)),
        next => panic!("{next:?}"),
    }
}

fn code(result: Result<Want, ReplyMessage>) -> Option<i32> {
    result.expect_err("nothing reaches a server").code()
}

fn command(name: &'static str, lsid: [u8; 16]) -> impl Fn(&mut Writer<'_>) + Copy {
    move |body| {
        match name {
            "getMore" => {
                body.int64("getMore", 77);
                body.string("collection", "orders");
            }
            "killCursors" => {
                body.string("killCursors", "orders");
                body.array("cursors", [77], |writer, name, id| writer.int64(name, id));
            }
            "endSessions" | "killSessions" => body.array(name, [HERS], |writer, name, id| {
                writer.document(name, |lsid| lsid.binary("id", 4, &id));
            }),
            _ => body.string(name, "orders"),
        }
        body.document("lsid", |inner| inner.binary("id", 4, &lsid));
        body.string("$db", "shop");
    }
}

fn part(name: &'static str, lsid: [u8; 16], is_start: bool) -> impl Fn(&mut Writer<'_>) + Copy {
    move |body| {
        command(name, lsid)(body);
        body.int64("txnNumber", 1);
        body.bool("autocommit", false);
        if is_start {
            body.bool("startTransaction", true);
        }
    }
}

#[test]
fn m20_pins_of_another_owner_are_out_of_reach() {
    for (hers, his) in [(false, false), (false, true), (true, false), (true, true)] {
        let shell = Shell::new();
        let (mut ann, mut ben) = (log_in(&shell, "ann", hers), log_in(&shell, "ben", his));
        assert!(run(&mut ann, &shell, None, part("insert", HERS, true)).is_ok());
        assert!(run(&mut ann, &shell, Some(77), command("find", HERS)).is_ok());
        assert!(run(&mut ben, &shell, None, part("insert", HIS, true)).is_ok());

        let mut his = |body: &dyn Fn(&mut Writer<'_>)| code(run(&mut ben, &shell, None, body));
        for name in ["find", "commitTransaction", "abortTransaction"] {
            assert_eq!(his(&part(name, HERS, false)), Some(251), "{name}");
        }
        assert_eq!(his(&part("insert", HERS, true)), Some(251), "it would abort hers");
        let numbered = |body: &mut Writer<'_>| {
            command("insert", HERS)(body);
            body.int64("txnNumber", 2);
        };
        assert_eq!(his(&numbered), Some(251), "this one too");
        for name in ["commitTransaction", "abortTransaction", "killSessions"] {
            assert_eq!(his(&command(name, HERS)), Some(251), "{name}");
        }
        let kill_all = |body: &mut Writer<'_>| {
            body.array("killSessions", [0; 0], |writer, name, id| writer.int32(name, id));
            body.string("$db", "admin");
        };
        assert_eq!(his(&kill_all), Some(251));
        for lsid in [HERS, HIS] {
            assert_eq!(his(&command("getMore", lsid)), Some(43));
        }
        assert_eq!(his(&part("getMore", HIS, false)), Some(43));
        for body in [&command("killCursors", HERS) as &dyn Fn(&mut Writer<'_>), &part("killCursors", HIS, false)] {
            let reply = run(&mut ben, &shell, None, body).expect_err("nothing reaches a server");
            assert_eq!(reply.document("cursorsNotFound").map(|ids| ids.elements().count()), Some(1));
        }
        let ended = run(&mut ben, &shell, None, command("endSessions", HIS)).expect_err("nothing reaches a server");
        assert!(ended.reply().is_ok && ben.cleanups().is_empty());

        // She has noticed nothing.
        let there = Some(Want::Server(SERVER));
        assert_eq!(run(&mut ann, &shell, Some(77), command("getMore", HERS)).ok(), there);
        assert_eq!(run(&mut ann, &shell, None, part("commitTransaction", HERS, false)).ok(), there);
        assert_eq!(run(&mut ben, &shell, None, part("find", HIS, false)).ok(), there);
        assert!(run(&mut ann, &shell, None, command("endSessions", HERS)).is_ok());
        // The session is free again.
        assert!(run(&mut ben, &shell, None, part("insert", HERS, true)).is_ok());
    }
}

/// Servers that compare names without case would take them for the commands that the session guards.
#[test]
fn m9_commands_in_another_case_reach_no_server() {
    let shell = Shell::new();
    let mut ben = log_in(&shell, "ben", false);
    for name in ["GETMORE", "KillCursors", "committransaction", "ENDSESSIONS", "Find", "SHUTDOWN"] {
        let other = |body: &mut Writer<'_>| {
            body.int64(name, 77);
            body.document("lsid", |inner| inner.binary("id", 4, &HERS));
            body.string("$db", "shop");
        };
        assert_eq!(code(run(&mut ben, &shell, None, other)), Some(59), "{name}");
    }
    // The first one is unknown, and the others are second names that servers have registered.
    for name in ["getMoreOrLess", "dbstats", "collstats", "datasize", "findandmodify", "movechunk", "enablesharding"] {
        let known = |body: &mut Writer<'_>| {
            body.string(name, "orders");
            body.string("$db", "shop");
        };
        assert!(run(&mut ben, &shell, None, known).is_ok(), "{name}: the server knows");
    }
}

/// All connections of an owner have one bound, behind either face.
/// A find as `findOne` of a driver sends it.
fn find_one(writer: &mut Writer<'_>) {
    writer.string("find", "notes");
    writer.int32("limit", 1);
    writer.bool("singleBatch", true);
    writer.document("lsid", |lsid| lsid.binary("id", 4, &HERS));
    writer.string("$db", "test");
}

#[test]
fn m9_an_owner_at_its_bound_of_cursors_gets_an_overload_and_another_one_nothing() {
    for is_balanced in [false, true] {
        let shell = Shell::new();
        let most = if is_balanced { PinLimits::CONNECTION.cursors_max } else { PinLimits::SHARED.cursors_max } as i64;
        let (mut ann, mut ben) = (log_in(&shell, "ann", is_balanced), log_in(&shell, "ben", is_balanced));
        for id in 1..=most {
            assert!(run(&mut ann, &shell, Some(id), command("find", HERS)).is_ok(), "{id}");
        }
        for name in ["find", "aggregate", "listIndexes"] {
            let refused = run(&mut ann, &shell, None, command(name, HERS)).expect_err("nothing reaches a server");
            assert_eq!(refused.code(), Some(462), "{name}");
        }
        for name in ["count", "insert"] {
            assert!(run(&mut ann, &shell, None, command(name, HERS)).is_ok(), "{name} opens none");
        }
        assert!(run(&mut ann, &shell, None, find_one).is_ok(), "its cursor ends with its batch");
        assert!(run(&mut ben, &shell, Some(77), command("find", HIS)).is_ok());
        assert!(run(&mut ben, &shell, Some(77), command("getMore", HIS)).is_ok());
        // Each of hers goes on, and its end makes room.
        assert!(run(&mut ann, &shell, Some(0), command("getMore", HERS)).is_ok());
        assert!(run(&mut ann, &shell, Some(77), command("find", HERS)).is_ok());
    }
}

#[test]
fn m20_an_abort_of_a_transaction_that_is_not_known_here_reaches_no_server() {
    for is_balanced in [false, true] {
        let shell = Shell::new();
        let mut ben = log_in(&shell, "ben", is_balanced);
        assert_eq!(code(run(&mut ben, &shell, None, part("abortTransaction", HERS, false))), Some(251));
        // The first attempt may have ended elsewhere.
        let commit = run(&mut ben, &shell, None, part("commitTransaction", HERS, false));
        assert_eq!(commit.ok(), Some(Want::Any(ReadMode::Primary)));
    }
}

#[test]
fn m20_the_first_of_two_owners_has_the_session_even_without_a_server() {
    let shell = Shell::new();
    let (mut ann, mut ben) = (log_in(&shell, "ann", false), log_in(&shell, "ben", true));
    let start =
        |session: &mut Session| send(session, &shell, &written(40, Flags::empty(), part("insert", HERS, true))).0;
    assert!(matches!(start(&mut ann), Next::Take(_)));
    assert_eq!(code(run(&mut ben, &shell, None, part("insert", HERS, true))), Some(251));
    ann.on_no_server(&Refusal::overloaded("full"), &shell, &mut Vec::new());
    // The same when the client leaves, or its connection ends without a word.
    assert!(matches!(start(&mut ann), Next::Take(_)));
    ann.on_gone(false, &shell);
    assert!(run(&mut ben, &shell, None, part("insert", HERS, true)).is_ok());
    drop(ben);
    assert!(run(&mut log_in(&shell, "ann", false), &shell, None, part("insert", HERS, true)).is_ok());
}

#[test]
fn m9_pins_in_use_do_not_expire() {
    let shell = Shell::new();
    let mut ann = log_in(&shell, "ann", false);
    assert!(run(&mut ann, &shell, Some(77), command("find", HERS)).is_ok());
    assert!(run(&mut ann, &shell, None, part("insert", HERS, true)).is_ok());
    let later = |seconds| shell.now.set(shell.now.get().saturating_add(Duration::from_secs(seconds)));
    let expire = || shell.pins.borrow_mut().expire(shell.now.get()).len();
    let (next, _) = send(&mut ann, &shell, &written(40, Flags::empty(), part("find", HERS, false)));
    assert!(matches!(next, Next::Take(Want::Server(_))));
    // It may wait as long for its server as the server works on it.
    later(70);
    assert_eq!(expire(), 0);
    ann.on_server(SERVER, &shell);
    later(70);
    assert_eq!(expire(), 0);
    reply(&mut ann, &shell, None);
    later(59);
    assert_eq!(expire(), 0);
    later(1);
    assert_eq!(expire(), 1, "the transaction");
    let (next, _) = send(&mut ann, &shell, &written(40, Flags::empty(), command("getMore", HERS)));
    assert!(matches!(next, Next::Take(_)));
    later(3_600);
    assert_eq!(expire(), 0);
    ann.on_gone(false, &shell);
    later(600);
    assert_eq!(expire(), 1, "the cursor");
    assert!(shell.pins.borrow().is_empty());
}

#[test]
fn m11_sessions_that_end_are_named_in_one_form_and_not_without_end() {
    let shell = Shell::new();
    let mut ann = log_in(&shell, "ann", false);
    let ending = |ids: &'static [&'static [u8]], count: usize| {
        move |body: &mut Writer<'_>| {
            body.array("endSessions", 0..count, |writer, name, _| {
                writer.document(name, |lsid| ids.iter().for_each(|id| lsid.binary("id", 4, id)));
            });
            body.string("$db", "admin");
        }
    };
    assert_eq!(code(run(&mut ann, &shell, None, ending(&[&HERS, &HIS], 1))), Some(9));
    assert_eq!(code(run(&mut ann, &shell, None, ending(&[], 1))), Some(14));
    assert_eq!(code(run(&mut ann, &shell, None, ending(&[&[1, 2]], 1))), Some(14));
    assert_eq!(code(run(&mut ann, &shell, None, ending(&[&HERS], 10_001))), Some(2));
    assert!(run(&mut ann, &shell, None, ending(&[&HERS], 10_000)).is_ok());
}
