//! hello and what else the gateway answers itself.

use std::time::Duration;

use weir_base::time::Time;
use weir_mongodb_codec::bson::{Value, Writer};
use weir_mongodb_codec::legacy::{self, LegacyReply};
use weir_mongodb_codec::message::{Flags, Message};
use weir_mongodb_session::face::{Face, TopologyVersion};
use weir_mongodb_session::login::Methods;
use weir_mongodb_session::{Next, Session};

use crate::support::{ReplyMessage, Shell, ask, open_session, send, session, written};

fn hello(body: &mut Writer<'_>) {
    body.int32("hello", 1);
    body.string("$db", "admin");
}

#[test]
fn m6_an_old_driver_gets_its_reply_in_its_form() {
    let (mut session, shell) = (open_session(), Shell::new());
    let mut bytes = Vec::new();
    legacy::write_query(&mut bytes, 3, "admin", |body| {
        body.int32("ismaster", 1);
        body.bool("helloOk", true);
    });
    let (next, out) = send(&mut session, &shell, &bytes);
    assert!(matches!(next, Next::Replied));
    let reply = LegacyReply::read(&out).expect("an OP_REPLY");
    assert_eq!(reply.header.response_to, 3);
    let is = |name: &[u8]| reply.body.get(name).unwrap().is_some_and(Value::is_true);
    assert!(is(b"ismaster") && is(b"helloOk") && is(b"ok"));
    // Nothing else has this form any more.
    let mut find = Vec::new();
    legacy::write_query(&mut find, 4, "shop", |body| body.string("find", "orders"));
    let (next, out) = send(&mut session, &shell, &find);
    assert!(matches!(next, Next::Replied));
    let code = LegacyReply::read(&out).unwrap().body.get(b"code").unwrap().and_then(Value::as_integer);
    assert_eq!(code, Some(352));
}

#[test]
fn l4_the_face_is_that_of_the_first_hello() {
    let (mut session, shell) = (open_session(), Shell::new());
    let balanced = |body: &mut Writer<'_>| {
        body.int32("hello", 1);
        body.bool("loadBalanced", true);
        body.string("$db", "admin");
    };
    let reply = ask(&mut session, &shell, balanced);
    assert_eq!(reply.field("serviceId").and_then(Value::as_object_id), Some([5; 12]));
    assert_eq!(session.face(), Some(Face::LoadBalancer));
    assert!(ask(&mut session, &shell, hello).field("serviceId").is_some());
    let mut other = open_session();
    assert!(ask(&mut other, &shell, hello).field("serviceId").is_none(), "never unasked");
    assert!(ask(&mut other, &shell, balanced).field("serviceId").is_none());
}

#[test]
fn a_client_describes_itself_once() {
    let (mut session, shell) = (open_session(), Shell::new());
    let described = |body: &mut Writer<'_>| {
        body.int32("hello", 1);
        body.document("client", |client| client.document("driver", |driver| driver.string("name", "x")));
        body.string("$db", "admin");
    };
    assert!(ask(&mut session, &shell, described).reply().is_ok);
    assert!(ask(&mut session, &shell, hello).reply().is_ok);
    assert_eq!(ask(&mut session, &shell, described).code(), Some(186));
}

#[test]
fn before_the_login_only_the_handshake_passes() {
    let (mut session, shell) = (session(Methods::SCRAM_SHA_256, None), Shell::with_users());
    assert_eq!(session.message_bytes_max(), 16 * 1024);
    for command in ["find", "insert", "getMore", "endSessions", "whatsmyuri", "newCommand"] {
        let reply = ask(&mut session, &shell, |body| {
            body.string(command, "orders");
            body.string("$db", "shop");
        });
        assert_eq!(reply.code(), Some(13), "{command}");
    }
    for command in ["ping", "buildInfo", "logout"] {
        let reply = ask(&mut session, &shell, |body| {
            body.int32(command, 1);
            body.string("$db", "admin");
        });
        assert!(reply.reply().is_ok, "{command}");
    }
    let version = ask(&mut session, &shell, |body| {
        body.int32("buildInfo", 1);
        body.string("$db", "admin");
    });
    assert_eq!(version.field("version").and_then(Value::as_string), Some(&b"7.0.0"[..]));
}

#[test]
fn mechanisms_are_those_of_the_user() {
    let shell = Shell::with_users();
    let listed = |user: &str| {
        let mut session = session(Methods::SCRAM_SHA_256.and(Methods::SCRAM_SHA_1), None);
        let reply = ask(&mut session, &shell, |body| {
            body.int32("hello", 1);
            body.string("saslSupportedMechs", user);
            body.string("$db", "admin");
        });
        let list = reply.document("saslSupportedMechs").expect("a list");
        list.elements()
            .map(|name| String::from_utf8(name.unwrap().value.as_string().unwrap().to_vec()).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed("admin.both"), ["SCRAM-SHA-256", "SCRAM-SHA-1"]);
    assert_eq!(listed("admin.old"), ["SCRAM-SHA-1"]);
    assert_eq!(listed("admin.stranger"), ["SCRAM-SHA-256", "SCRAM-SHA-1"]);
}

/// A monitor that knows this version.
fn monitor(counter: i64, flags: Flags) -> Vec<u8> {
    written(50, flags, |body| {
        hello(body);
        body.document("topologyVersion", |version| {
            version.object_id("processId", [1; 12]);
            version.int64("counter", counter);
        });
        body.int32("maxAwaitTimeMS", 10_000);
    })
}

fn streaming() -> (Session, Shell) {
    let mut shell = Shell::new();
    shell.presentation.topology = Some(TopologyVersion { process_id: [1; 12], counter: 4 });
    (open_session(), shell)
}

#[test]
fn m7_a_hello_waits_until_the_version_changes_or_its_time_is_over() {
    let (mut session, mut shell) = streaming();
    let (next, out) = send(&mut session, &shell, &monitor(3, Flags::empty()));
    assert!(matches!(next, Next::Replied) && !out.is_empty(), "an older version");
    let (next, mut out) = send(&mut session, &shell, &monitor(4, Flags::empty()));
    assert!(matches!(next, Next::Wait) && out.is_empty() && session.is_awaiting());
    let deadline = Time::ZERO.saturating_add(Duration::from_secs(10));
    assert_eq!(session.deadline(), Some(deadline));
    assert!(!session.on_time(&shell, &mut out), "too early");
    shell.now.set(deadline);
    assert!(session.on_time(&shell, &mut out) && !session.is_awaiting());
    assert!(ReplyMessage(out).reply().is_ok);
    let (_, mut out) = send(&mut session, &shell, &monitor(4, Flags::empty()));
    shell.presentation.topology = Some(TopologyVersion { process_id: [1; 12], counter: 5 });
    assert!(session.on_time(&shell, &mut out));
    let (next, out) = send(&mut session, &shell, &monitor(6, Flags::empty()));
    assert!(matches!(next, Next::Replied));
    assert_eq!(ReplyMessage(out).code(), Some(31368), "a version that has not been");
}

#[test]
fn a_stream_of_hellos_is_a_chain() {
    let (mut session, mut shell) = streaming();
    let (next, out) = send(&mut session, &shell, &monitor(3, Flags::EXHAUST_ALLOWED));
    assert!(matches!(next, Next::Wait));
    let first = Message::read(&out).expect("the first reply");
    assert_eq!((first.header.response_to, first.flags), (50, Flags::MORE_TO_COME));
    let mut more = Vec::new();
    shell.presentation.topology = Some(TopologyVersion { process_id: [1; 12], counter: 5 });
    assert!(session.on_time(&shell, &mut more));
    let second = Message::read(&more).expect("the second reply");
    assert_eq!((second.header.response_to, second.flags), (first.header.request, Flags::MORE_TO_COME));
    assert!(session.is_awaiting());
    // The gateway stops streaming: the last reply says that none follows.
    shell.presentation.topology = None;
    let mut last = Vec::new();
    assert!(session.on_time(&shell, &mut last) && !session.is_awaiting());
    assert_eq!(Message::read(&last).unwrap().flags, Flags::empty());
}

/// A client that may not have logged in gets two replies in a second at most, however short a wait it wants.
#[test]
fn s1_a_stream_of_hellos_without_a_wait_is_no_flood() {
    let (mut session, shell) = streaming();
    let eager = written(50, Flags::EXHAUST_ALLOWED, |body| {
        hello(body);
        body.document("topologyVersion", |version| {
            version.object_id("processId", [1; 12]);
            version.int64("counter", 4);
        });
        body.int32("maxAwaitTimeMS", 0);
    });
    let (next, mut out) = send(&mut session, &shell, &eager);
    assert!(matches!(next, Next::Wait) && out.is_empty());
    for replies in 1..=3 {
        let before = shell.now.get();
        assert!(!session.on_time(&shell, &mut out), "too early");
        shell.now.set(before.saturating_add(Duration::from_millis(499)));
        assert!(!session.on_time(&shell, &mut out), "too early");
        shell.now.set(before.saturating_add(Duration::from_millis(500)));
        assert!(session.on_time(&shell, &mut out), "reply {replies}");
    }
}

#[test]
fn without_a_version_of_our_own_a_hello_is_answered_at_once() {
    let (mut session, shell) = (open_session(), Shell::new());
    let (next, out) = send(&mut session, &shell, &monitor(4, Flags::EXHAUST_ALLOWED));
    assert!(matches!(next, Next::Replied));
    assert!(ReplyMessage(out).field("topologyVersion").is_none());
}

#[test]
fn what_concerns_the_connection_is_answered_here() {
    let (mut session, shell) = (open_session(), Shell::new());
    let reply = ask(&mut session, &shell, |body| {
        body.int32("whatsmyuri", 1);
        body.string("$db", "admin");
    });
    assert_eq!(reply.field("you").and_then(Value::as_string), Some(&b"192.0.2.1:5000"[..]));
    let reply = ask(&mut session, &shell, |body| {
        body.int32("connectionStatus", 1);
        body.string("$db", "admin");
    });
    assert!(reply.document("authInfo").is_some());
    let (next, out) = send(&mut session, &shell, &written(1, Flags::MORE_TO_COME, hello));
    assert!(matches!(next, Next::Replied) && out.is_empty(), "L2: no reply is wanted");
}
