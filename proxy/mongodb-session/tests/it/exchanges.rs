//! Requests, replies, lost servers and clients that leave.

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::header::{Header, OpCode};
use weir_mongodb_codec::message::Flags;
use weir_mongodb_codec::reply::{Labels, Reply};
use weir_mongodb_session::pins::{Cleanup, ServerId};
use weir_mongodb_session::{AfterReply, Leave, Lost, Next, ReadMode, Refusal, Session, Want};

use crate::support::{ReplyMessage, Shell, ask, open_session, send, written};

const PRIMARY: Want = Want::Any(ReadMode::Primary);

struct Client {
    session: Session,
    shell: Shell,
}

fn lsid(body: &mut Writer<'_>) {
    body.document("lsid", |lsid| lsid.binary("id", 4, &[7; 16]));
}

fn command(name: &'static str, collection: &'static str) -> impl Fn(&mut Writer<'_>) + Copy {
    move |body| {
        body.string(name, collection);
        body.string("$db", "shop");
        lsid(body);
    }
}

fn get_more(id: i64) -> impl Fn(&mut Writer<'_>) + Copy {
    move |body| {
        body.int64("getMore", id);
        body.string("collection", "orders");
        body.string("$db", "shop");
        lsid(body);
    }
}

fn in_transaction(number: i64, name: &'static str, is_start: bool) -> impl Fn(&mut Writer<'_>) + Copy {
    move |body| {
        command(name, "orders")(body);
        body.int64("txnNumber", number);
        body.bool("autocommit", false);
        if is_start {
            body.bool("startTransaction", true);
        }
    }
}

fn ok(cursor: Option<i64>) -> Reply {
    Reply { is_ok: true, cursor, ..Reply::default() }
}

impl Client {
    fn mongos() -> Client {
        Client { session: open_session(), shell: Shell::new() }
    }

    fn balanced() -> Client {
        let mut client = Client::mongos();
        ask(&mut client.session, &client.shell, |body| {
            body.int32("hello", 1);
            body.bool("loadBalanced", true);
            body.string("$db", "admin");
        });
        client
    }

    fn start(&mut self, id: i32, flags: Flags, body: impl Fn(&mut Writer<'_>)) -> Want {
        match send(&mut self.session, &self.shell, &written(id, flags, body)) {
            (Next::Take(want), out) if out.is_empty() => want,
            (next, _) => panic!("{next:?}"),
        }
    }

    fn reply(&mut self, request: i32, response_to: i32, flags: Flags, reply: Reply) -> AfterReply {
        let header = Header { bytes: 100, request, response_to, op_code: OpCode::Msg };
        self.session.on_reply_head(&header).expect("a reply");
        self.session.on_reply(&header, flags, &reply, &self.shell).expect("a reply")
    }

    /// A whole exchange with this server.
    fn exchange(&mut self, body: impl Fn(&mut Writer<'_>), server: u32, reply: Reply) -> Want {
        let want = self.start(5, Flags::empty(), body);
        self.session.on_server(ServerId(server), &self.shell);
        assert!(!self.session.on_sent());
        assert_eq!(self.reply(90, 5, Flags::empty(), reply), AfterReply::Return);
        want
    }

    fn refused(&mut self, body: impl Fn(&mut Writer<'_>)) -> Reply {
        ask(&mut self.session, &self.shell, body).reply()
    }
}

#[test]
fn reads_may_leave_the_primary_and_nothing_else_may() {
    let mut client = Client::mongos();
    let preferring = |name: &'static str, concern: Option<&'static str>| {
        move |body: &mut Writer<'_>| {
            command(name, "orders")(body);
            body.document("$readPreference", |preference| preference.string("mode", "secondary"));
            if let Some(level) = concern {
                body.document("readConcern", |it| it.string("level", level));
            }
        }
    };
    let cases = [
        ("find", None, ReadMode::Secondary),
        ("find", Some("majority"), ReadMode::Secondary),
        ("find", Some("linearizable"), ReadMode::Primary),
        ("insert", None, ReadMode::Primary),
        ("newCommand", None, ReadMode::Primary),
    ];
    for (name, concern, mode) in cases {
        assert_eq!(client.exchange(preferring(name, concern), 1, ok(None)), Want::Any(mode), "{name} {concern:?}");
    }
}

#[test]
fn a_cursor_leads_to_its_server_from_any_connection_of_its_owner() {
    let mut one = Client::mongos();
    assert_eq!(one.exchange(command("find", "orders"), 3, ok(Some(77))), PRIMARY);
    // The driver goes on elsewhere.
    let mut other = Client { session: open_session(), shell: one.shell };
    assert_eq!(other.exchange(get_more(77), 3, ok(Some(77))), Want::Server(ServerId(3)));
    assert_eq!(other.exchange(get_more(77), 3, ok(Some(0))), Want::Server(ServerId(3)));
    let refused = other.refused(get_more(77));
    assert_eq!(refused.code, Some(43), "it has ended");
    let without = |body: &mut Writer<'_>| {
        body.int64("getMore", 5);
        body.string("collection", "orders");
        body.string("$db", "shop");
    };
    assert_eq!(other.refused(without).code, Some(43));
}

#[test]
fn m9_in_load_balanced_mode_a_cursor_belongs_to_its_connection() {
    let mut one = Client::balanced();
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    assert!(!one.session.is_quiet());
    assert_eq!(one.exchange(get_more(77), 3, ok(Some(77))), Want::Server(ServerId(3)));
    assert!(one.shell.pins.borrow().is_empty());
    assert_eq!(one.session.on_gone(true, &one.shell), Leave::Nothing);
    let kill =
        Cleanup::KillCursor { server: ServerId(3), db: b"shop"[..].into(), collection: b"orders"[..].into(), id: 77 };
    assert_eq!(one.session.cleanups(), [kill]);
}

#[test]
fn m9_a_mongos_keeps_what_a_closed_connection_leaves() {
    let mut one = Client::mongos();
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    one.exchange(in_transaction(4, "insert", true), 3, ok(None));
    assert_eq!(one.session.on_gone(true, &one.shell), Leave::Nothing);
    assert_eq!(one.session.cleanups(), []);
    assert_eq!(one.shell.pins.borrow().len(), (1, 1));
}

#[test]
fn a_cursor_that_no_client_has_heard_of_is_killed_at_once() {
    let mut one = Client::mongos();
    one.start(5, Flags::empty(), command("find", "orders"));
    one.session.on_server(ServerId(3), &one.shell);
    one.session.on_sent();
    assert_eq!(one.session.on_gone(true, &one.shell), Leave::Drain);
    assert_eq!(one.reply(90, 5, Flags::empty(), ok(Some(77))), AfterReply::Return);
    assert_eq!(one.session.cleanups().len(), 1);
    assert!(one.shell.pins.borrow().is_empty());
}

#[test]
fn killed_cursors_are_forgotten() {
    let mut one = Client::mongos();
    let kill = |ids: &'static [i64]| {
        move |body: &mut Writer<'_>| {
            body.string("killCursors", "orders");
            body.array("cursors", ids, |writer, name, id| writer.int64(name, *id));
            body.string("$db", "shop");
            lsid(body);
        }
    };
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    assert_eq!(one.exchange(kill(&[77]), 3, ok(None)), Want::Server(ServerId(3)));
    assert!(one.shell.pins.borrow().is_empty());
    // At several servers, or with an id that is not the client's: the gateway kills them itself.
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    one.exchange(command("find", "orders"), 4, ok(Some(78)));
    let reply = ask(&mut one.session, &one.shell, kill(&[77, 78, 79]));
    let count = |name: &str| reply.document(name).map(|list| list.elements().count());
    assert_eq!((count("cursorsKilled"), count("cursorsNotFound")), (Some(2), Some(1)));
    assert_eq!(one.session.cleanups().iter().map(Cleanup::server).collect::<Vec<_>>(), [ServerId(3), ServerId(4)]);
    // M19: a list without an end.
    let many = |body: &mut Writer<'_>| {
        body.string("killCursors", "orders");
        body.array("cursors", 0..1_001, |writer, name, id| writer.int64(name, id));
        body.string("$db", "shop");
    };
    assert_eq!(one.refused(many).code, Some(2));
}

#[test]
fn a_transaction_stays_at_its_server_and_its_commit_may_be_repeated() {
    let mut one = Client::mongos();
    assert_eq!(one.exchange(in_transaction(4, "insert", true), 3, ok(None)), PRIMARY);
    let at = Want::Server(ServerId(3));
    assert_eq!(one.exchange(in_transaction(4, "find", false), 3, ok(None)), at);
    assert_eq!(one.exchange(in_transaction(4, "commitTransaction", false), 3, ok(None)), at);
    assert_eq!(one.exchange(in_transaction(4, "commitTransaction", false), 3, ok(None)), at);
    assert_eq!(one.exchange(in_transaction(5, "insert", true), 4, ok(None)), PRIMARY);
    assert_eq!(one.exchange(in_transaction(5, "abortTransaction", false), 4, ok(None)), Want::Server(ServerId(4)));
    // One that is not known here may be another owner's at the server.
    let unknown = one.refused(in_transaction(5, "find", false));
    assert_eq!((unknown.code, unknown.labels), (Some(251), Labels::TRANSIENT_TRANSACTION));
    // Without logins all clients are one.
    assert_eq!(one.exchange(in_transaction(9, "abortTransaction", false), 4, ok(None)), PRIMARY);
    assert!(one.session.cleanups().is_empty());
}

#[test]
fn m10_in_load_balanced_mode_a_transaction_ends_with_its_client() {
    let mut one = Client::balanced();
    one.exchange(in_transaction(4, "insert", true), 3, ok(None));
    assert_eq!(one.session.on_gone(true, &one.shell), Leave::Nothing);
    let abort = Cleanup::AbortTransaction { server: ServerId(3), session: [7; 16], number: 4 };
    assert_eq!(one.session.cleanups(), std::slice::from_ref(&abort));
    // Behind the end of what is under way.
    let mut two = Client::balanced();
    two.exchange(in_transaction(4, "insert", true), 3, ok(None));
    two.start(5, Flags::empty(), in_transaction(4, "insert", false));
    two.session.on_server(ServerId(3), &two.shell);
    assert_eq!(two.session.on_gone(true, &two.shell), Leave::Drain);
    assert_eq!(two.session.cleanups(), []);
    two.reply(90, 5, Flags::empty(), ok(None));
    assert_eq!(two.session.cleanups(), [abort]);
}

#[test]
fn a_transaction_whose_server_is_gone_says_so_with_its_label() {
    let mut one = Client::mongos();
    one.exchange(in_transaction(4, "insert", true), 3, ok(None));
    one.shell.pins.borrow_mut().on_server_lost(ServerId(3));
    let refused = one.refused(in_transaction(4, "find", false));
    assert_eq!((refused.code, refused.labels), (Some(251), Labels::TRANSIENT_TRANSACTION));
    assert_eq!(one.exchange(in_transaction(4, "commitTransaction", false), 1, ok(None)), PRIMARY);
}

#[test]
fn a_write_without_a_reply_ends_when_it_is_sent() {
    let mut one = Client::mongos();
    one.start(5, Flags::MORE_TO_COME, command("insert", "orders"));
    one.session.on_server(ServerId(3), &one.shell);
    assert!(one.session.on_sent() && one.session.is_quiet());
    let header = Header { bytes: 100, request: 90, response_to: 5, op_code: OpCode::Msg };
    assert_eq!(one.session.on_reply_head(&header).expect_err("no reply").reason, "mongodb_reply_unexpected");
    // Also if the rules forbid it.
    one.shell.forbidden = Some(b"insert");
    let bytes = written(6, Flags::MORE_TO_COME, command("insert", "orders"));
    let (next, out) = send(&mut one.session, &one.shell, &bytes);
    assert!(matches!(next, Next::Replied) && out.is_empty());
    let bytes = written(6, Flags::empty(), command("insert", "orders"));
    assert_eq!(ReplyMessage(send(&mut one.session, &one.shell, &bytes).1).code(), Some(13));
}

#[test]
fn l1_a_reply_names_its_request() {
    let mut one = Client::mongos();
    one.start(5, Flags::empty(), command("find", "orders"));
    one.session.on_server(ServerId(3), &one.shell);
    for (response_to, op_code) in [(4, OpCode::Msg), (0, OpCode::Msg), (5, OpCode::Reply), (5, OpCode::Compressed)] {
        let header = Header { bytes: 100, request: 90, response_to, op_code };
        assert!(one.session.on_reply_head(&header).is_err(), "{header:?}");
    }
    let header = Header { bytes: 100, request: 90, response_to: 5, op_code: OpCode::Msg };
    let unwanted = one.session.on_reply(&header, Flags::MORE_TO_COME, &ok(None), &one.shell);
    assert_eq!(unwanted.expect_err("no stream was wanted").reason, "mongodb_reply_stream");
}

#[test]
fn an_exhaust_stream_is_a_chain_that_holds_its_connection() {
    let mut one = Client::mongos();
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    assert_eq!(one.start(5, Flags::EXHAUST_ALLOWED, get_more(77)), Want::Server(ServerId(3)));
    one.session.on_server(ServerId(3), &one.shell);
    assert_eq!(one.reply(90, 5, Flags::MORE_TO_COME, ok(Some(77))), AfterReply::Stay);
    let old = Header { bytes: 100, request: 91, response_to: 5, op_code: OpCode::Msg };
    assert!(one.session.on_reply_head(&old).is_err(), "each replies to the one before");
    assert_eq!(one.reply(91, 90, Flags::MORE_TO_COME, ok(Some(77))), AfterReply::Stay);
    assert_eq!(one.reply(92, 91, Flags::empty(), ok(Some(0))), AfterReply::Return);
    assert!(one.session.is_quiet() && one.shell.pins.borrow().is_empty());
    // A client that leaves cannot be drained.
    one.exchange(command("find", "orders"), 3, ok(Some(78)));
    one.start(5, Flags::EXHAUST_ALLOWED, get_more(78));
    one.session.on_server(ServerId(3), &one.shell);
    one.reply(90, 5, Flags::MORE_TO_COME, ok(Some(78)));
    assert_eq!(one.session.on_gone(true, &one.shell), Leave::Close);
    assert_eq!(one.session.cleanups().len(), 1, "the cursor");
}

#[test]
fn m10_a_server_that_is_out_of_reach_keeps_nothing_when_it_is_back() {
    let mut one = Client::mongos();
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    one.exchange(in_transaction(4, "insert", true), 3, ok(None));
    let mut unreachable = |body: &dyn Fn(&mut Writer<'_>)| {
        one.start(5, Flags::empty(), body);
        let refusal = Refusal::host_unreachable(Labels::RETRYABLE_WRITE);
        one.session.on_no_server(&refusal, &one.shell, &mut Vec::new());
        one.session.cleanups()
    };
    assert!(matches!(unreachable(&get_more(77))[..], [Cleanup::KillCursor { id: 77, .. }]));
    let aborted = unreachable(&in_transaction(4, "abortTransaction", false));
    assert!(matches!(aborted[..], [Cleanup::AbortTransaction { number: 4, .. }]));
    assert!(one.shell.pins.borrow().is_empty());
    // A commit may be repeated, at any primary.
    one.exchange(in_transaction(5, "insert", true), 3, ok(None));
    one.start(5, Flags::empty(), in_transaction(5, "commitTransaction", false));
    let refusal = Refusal::host_unreachable(Labels::RETRYABLE_WRITE);
    one.session.on_no_server(&refusal, &one.shell, &mut Vec::new());
    assert_eq!(one.session.cleanups(), []);
}

/// The text behind a command that names no collection may have megabytes.
#[test]
fn m18_a_long_text_is_not_kept_as_a_namespace() {
    let mut one = Client::mongos();
    let text = "x".repeat(1 << 20);
    one.exchange(
        |body| {
            body.string("newCommand", &text);
            body.string("$db", "shop");
        },
        3,
        ok(Some(77)),
    );
    one.start(5, Flags::empty(), command("find", "orders"));
    assert!(format!("{:?}", one.session).len() < 4_096);
    let cleanups = one.shell.pins.borrow_mut().drain();
    assert!(matches!(&cleanups[..], [Cleanup::KillCursor { collection, .. }] if collection.is_empty()));
}

/// Servers stream the batches of a cursor alone: another command with the flag costs no server connection when its client leaves.
#[test]
fn m15_nothing_but_a_cursor_is_streamed() {
    for name in ["find", "insert", "ping"] {
        let mut one = Client::mongos();
        one.start(5, Flags::EXHAUST_ALLOWED, command(name, "orders"));
        one.session.on_server(ServerId(3), &one.shell);
        let header = Header { bytes: 100, request: 90, response_to: 5, op_code: OpCode::Msg };
        let streamed = one.session.on_reply(&header, Flags::MORE_TO_COME, &ok(None), &one.shell);
        assert_eq!(streamed.expect_err("no stream was wanted").reason, "mongodb_reply_stream");
        one.session.on_sent();
        assert_eq!(one.session.on_gone(true, &one.shell), Leave::Drain, "{name}");
    }
}

#[test]
fn a_lost_reply_has_the_labels_by_which_drivers_decide() {
    let retryable = |body: &mut Writer<'_>| {
        command("insert", "orders")(body);
        body.int64("txnNumber", 9);
    };
    let mut one = Client::mongos();
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    one.exchange(in_transaction(4, "insert", true), 3, ok(None));
    let mut lost = |body: &dyn Fn(&mut Writer<'_>)| {
        one.start(5, Flags::empty(), body);
        one.session.on_server(ServerId(3), &one.shell);
        let mut out = Vec::new();
        assert_eq!(one.session.on_server_lost(false, &one.shell, &mut out), Lost::Replied);
        let reply = ReplyMessage(out).reply();
        (reply.code, reply.labels)
    };
    assert_eq!(lost(&command("find", "orders")), (Some(6), Labels::empty()));
    assert_eq!(lost(&command("insert", "orders")), (Some(6), Labels::empty()));
    assert_eq!(lost(&retryable), (Some(6), Labels::RETRYABLE_WRITE));
    assert_eq!(lost(&get_more(77)), (Some(43), Labels::empty()));
    assert_eq!(lost(&in_transaction(4, "find", false)), (Some(6), Labels::TRANSIENT_TRANSACTION));
    assert_eq!(lost(&in_transaction(4, "commitTransaction", false)), (Some(6), Labels::RETRYABLE_WRITE));
}

#[test]
fn a_reply_that_has_begun_cannot_become_an_error() {
    let mut one = Client::mongos();
    one.start(5, Flags::empty(), command("find", "orders"));
    one.session.on_server(ServerId(3), &one.shell);
    let mut out = Vec::new();
    assert_eq!(one.session.on_server_lost(true, &one.shell, &mut out), Lost::Close);
    assert!(out.is_empty());
}

#[test]
fn without_a_server_the_shell_chooses_the_words_and_pins_theirs() {
    let mut one = Client::mongos();
    let mut no_server = |body: &dyn Fn(&mut Writer<'_>)| {
        one.start(5, Flags::empty(), body);
        let mut out = Vec::new();
        one.session.on_no_server(&Refusal::overloaded("full"), &one.shell, &mut out);
        assert!(one.session.is_quiet());
        ReplyMessage(out).code()
    };
    assert_eq!(no_server(&command("find", "orders")), Some(462));
    assert_eq!(no_server(&in_transaction(4, "insert", true)), Some(462));
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    one.exchange(in_transaction(4, "insert", true), 3, ok(None));
    // A busy server keeps what lives there.
    one.start(5, Flags::empty(), get_more(77));
    let mut out = Vec::new();
    one.session.on_no_server(&Refusal::overloaded("full"), &one.shell, &mut out);
    assert_eq!(ReplyMessage(out).code(), Some(462));
    assert_eq!(one.shell.pins.borrow().len(), (1, 1));
    let mut gone = |body: &dyn Fn(&mut Writer<'_>)| {
        one.start(5, Flags::empty(), body);
        let mut out = Vec::new();
        one.session.on_no_server(&Refusal::host_unreachable(Labels::RETRYABLE_WRITE), &one.shell, &mut out);
        ReplyMessage(out).reply()
    };
    // A driver reports its first attempt then, which may have happened.
    let unsent = Labels::RETRYABLE_WRITE | Labels::NO_WRITES_PERFORMED;
    assert_eq!(gone(&command("insert", "orders")).labels, unsent);
    assert_eq!(gone(&get_more(77)).code, Some(43));
    assert_eq!(gone(&in_transaction(4, "find", false)).labels, Labels::TRANSIENT_TRANSACTION);
    assert_eq!(gone(&in_transaction(4, "commitTransaction", false)).labels, unsent);
}

#[test]
fn sessions_that_end_give_back_what_they_have() {
    let mut one = Client::mongos();
    one.exchange(command("find", "orders"), 3, ok(Some(77)));
    one.exchange(in_transaction(4, "insert", true), 4, ok(None));
    let end = |body: &mut Writer<'_>| {
        body.array("endSessions", 0..1, |writer, name, _| {
            writer.document(name, |lsid| lsid.binary("id", 4, &[7; 16]));
        });
        body.string("$db", "admin");
    };
    assert_eq!(one.exchange(end, 1, ok(None)), PRIMARY);
    assert_eq!(one.session.cleanups().len(), 2);
    assert!(one.shell.pins.borrow().is_empty());
}
