//! Clients and servers that break rules.

use weir_mongodb_codec::bson::{self, Writer};
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_mongodb_session::login::Methods;
use weir_mongodb_session::server_login::{Credential, ServerIdentity, ServerLogin, Step};
use weir_mongodb_session::{Next, Refusal, Request, Session};
use weir_sasl::Nonce;

use crate::support::{ReplyMessage, Shell, ask, open_session, send, session, written};

fn sasl(name: &'static str, payload: &'static [u8], conversation: i32) -> impl Fn(&mut Writer<'_>) {
    move |body| {
        body.int32(name, 1);
        body.string("mechanism", "SCRAM-SHA-256");
        body.binary("payload", 0, payload);
        body.int32("conversationId", conversation);
        body.string("$db", "admin");
    }
}

const FIRST: &[u8] = b"n,,n=both,r=rOprNGfwEbeRWgbNEkqO";

fn scram() -> (Session, Shell) {
    (session(Methods::SCRAM_SHA_256, None), Shell::with_users())
}

#[test]
fn m16_messages_of_a_login_out_of_order_are_refused_until_the_connection_ends() {
    let (mut session, shell) = scram();
    assert_eq!(ask(&mut session, &shell, sasl("saslContinue", b"x", 1)).code(), Some(17));
    assert!(ask(&mut session, &shell, sasl("saslStart", FIRST, 0)).reply().is_ok);
    assert_eq!(ask(&mut session, &shell, sasl("saslContinue", b"x", 99)).code(), Some(17), "another conversation");
    let bytes = written(40, Flags::empty(), sasl("saslContinue", b"x", 1));
    let (next, out) = send(&mut session, &shell, &bytes);
    assert_eq!(ReplyMessage(out).code(), Some(17), "the conversation has ended");
    assert!(matches!(next, Next::Close(violation) if violation.reason == "mongodb_login_failures"));
}

#[test]
fn m16_payloads_that_are_none_fail_like_wrong_passwords() {
    for payload in [&b""[..], b"\0", b"n,,n=both", b"p=tls-unique,,n=both,r=abc", &[b'x'; 5000]] {
        let (mut session, shell) = scram();
        let leaked: &'static [u8] = payload;
        assert_eq!(ask(&mut session, &shell, sasl("saslStart", leaked, 0)).code(), Some(18), "{payload:.20?}");
    }
    let (mut session, shell) = scram();
    let other = |body: &mut Writer<'_>| {
        body.int32("saslStart", 1);
        body.string("mechanism", "GSSAPI");
        body.binary("payload", 0, FIRST);
        body.string("$db", "admin");
    };
    assert_eq!(ask(&mut session, &shell, other).code(), Some(334));
    let mut open = open_session();
    assert_eq!(ask(&mut open, &shell, sasl("saslStart", FIRST, 0)).code(), Some(334));
}

#[test]
fn m11_a_command_that_two_readers_could_read_in_two_ways_is_refused() {
    let (mut session, shell) = (open_session(), Shell::new());
    let twice = |body: &mut Writer<'_>| {
        body.string("find", "orders");
        body.string("$db", "shop");
        body.string("$db", "other");
    };
    assert_eq!(ask(&mut session, &shell, twice).code(), Some(9));
    let name = |body: &mut Writer<'_>| {
        body.string("find", "orders");
        body.string("$db", "sh\0op");
    };
    assert_eq!(ask(&mut session, &shell, name).code(), Some(73));
}

/// A command with one document sequence beside its body.
fn with_sequence(command: &str, field: Option<&str>, identifier: &str) -> Vec<u8> {
    let (mut document, mut out) = (Vec::new(), Vec::new());
    bson::document(&mut document, |document| document.string("$merge", "other"));
    let body = |body: &mut Writer<'_>| {
        body.string(command, "orders");
        if let Some(field) = field {
            body.array(field, 0..0, |writer, name, number| writer.int32(name, number));
        }
        body.string("$db", "shop");
    };
    let ids = Ids { request: 40, response_to: 0 };
    let documents = [bson::Document::read(&document).expect("a document")];
    message::write_with_sequence(&mut out, ids, Flags::empty(), body, identifier, documents);
    out
}

/// Some servers make a field of any sequence: a stage that writes would pass for a read.
#[test]
fn s9_a_sequence_is_an_argument_of_its_command_or_the_command_is_refused() {
    let (mut session, shell) = (open_session(), Shell::new());
    let mut sent = |command: &str, field: Option<&str>, identifier: &str| {
        let (next, out) = send(&mut session, &shell, &with_sequence(command, field, identifier));
        match next {
            Next::Take(_) => {
                session.on_no_server(&Refusal::overloaded("full"), &shell, &mut Vec::new());
                None
            }
            Next::Replied => ReplyMessage(out).code(),
            next => panic!("{next:?}"),
        }
    };
    for (command, own) in [("insert", "documents"), ("update", "updates"), ("delete", "deletes"), ("bulkWrite", "ops")]
    {
        assert_eq!(sent(command, None, own), None, "{command}");
        assert_eq!(sent(command, Some(own), own), Some(9), "{command}: in the body as well");
        for other in ["pipeline", "$db", "lsid", "writeConcern", "filter"] {
            assert_eq!(sent(command, None, other), Some(9), "{command} {other}");
        }
    }
    for (command, other) in
        [("aggregate", "pipeline"), ("find", "filter"), ("hello", "documents"), ("insert", "updates")]
    {
        assert_eq!(sent(command, None, other), Some(9), "{command} {other}");
    }
}

/// The server that checks a login must not read another user than the gateway does.
#[test]
fn m16_a_login_that_a_server_checks_has_each_field_once_and_a_reply() {
    let twice = |name: &'static str, field: &'static str| {
        move |body: &mut Writer<'_>| {
            body.int32(name, 1);
            body.string("mechanism", "SCRAM-SHA-256");
            body.binary("payload", 0, b"n,,n=bob,r=rOprNGfwEbeRWgbNEkqO");
            match field {
                "payload" => body.binary(field, 0, FIRST),
                "mechanism" => body.string(field, "PLAIN"),
                _ => body.int32(field, 1),
            }
            body.int32("conversationId", 1);
            body.string("$db", "admin");
        }
    };
    for name in ["saslStart", "saslContinue"] {
        for field in ["payload", "mechanism", "conversationId"] {
            let (mut session, shell) = (session(Methods::RELAYED, None), Shell::new());
            assert_eq!(ask(&mut session, &shell, twice(name, field)).code(), Some(9), "{name} {field}");
        }
    }
    let (mut session, shell) = (session(Methods::RELAYED, None), Shell::new());
    let bytes = written(40, Flags::MORE_TO_COME, sasl("saslStart", FIRST, 0));
    let (next, out) = send(&mut session, &shell, &bytes);
    assert!(matches!(next, Next::Replied) && out.is_empty(), "{next:?}");
    let (next, _) = send(&mut session, &shell, &written(40, Flags::empty(), sasl("saslStart", FIRST, 0)));
    assert!(matches!(next, Next::Relay(None)), "{next:?}");
}

#[test]
fn m6_retired_opcodes_are_no_requests() {
    for code in [1_i32, 2001, 2002, 2005, 2006, 2007, 2010, 2011, 2012] {
        let bytes = [&20_i32.to_le_bytes()[..], &[0; 8], &code.to_le_bytes(), &[0; 4]].concat();
        assert!(Request::read(&bytes).is_err(), "{code}");
    }
}

fn login() -> (ServerLogin, Vec<u8>) {
    let credential = Credential::Password("pencil".into());
    let (source, application) = ("admin".into(), "tests".into());
    let identity = ServerIdentity { user: "both".into(), source, credential, application, is_encrypted: false };
    let mut login = ServerLogin::new(identity, Nonce::from_random(&[9; 18]));
    let mut out = Vec::new();
    login.start(&mut out);
    (login, out)
}

/// A reply to the first message.
fn reply(response_to: i32, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    message::write(&mut out, Ids { request: 1, response_to }, Flags::empty(), body);
    out
}

fn failure(bytes: &[u8]) -> Option<&'static str> {
    let (mut login, mut out) = login();
    match login.on_bytes(bytes, &mut out).step {
        Step::Failed(failure) => Some(failure.reason()),
        _ => None,
    }
}

fn challenged(payload: &'static str) -> Vec<u8> {
    reply(1, |body| {
        body.int32("maxWireVersion", 21);
        body.int32("minWireVersion", 0);
        body.document("speculativeAuthenticate", |sasl| {
            sasl.int32("conversationId", 1);
            sasl.bool("done", false);
            sasl.binary("payload", 0, payload.as_bytes());
        });
        body.double("ok", 1.0);
    })
}

#[test]
fn hostile_servers_end_the_login_with_a_reason() {
    assert_eq!(failure(&reply(2, |body| body.double("ok", 1.0))), Some("mongodb_login_order"));
    assert_eq!(failure(&reply(1, |body| body.double("ok", 1.0))), Some("mongodb_login_versions"));
    assert_eq!(failure(b"HTTP/1.1 400 Bad Request"), Some("mongodb_message_length"));
    assert_eq!(failure(&70_000_u32.to_le_bytes()), None, "the header is not whole");
    let long = [&70_000_u32.to_le_bytes()[..], &[0; 8], &2013_u32.to_le_bytes()].concat();
    assert_eq!(failure(&long), Some("mongodb_login_message_size"));
    let old = reply(1, |body| {
        body.int32("maxWireVersion", 5);
        body.int32("minWireVersion", 0);
        body.double("ok", 1.0);
    });
    assert_eq!(failure(&old), Some("mongodb_server_version"));
}

#[test]
fn a_server_that_makes_the_password_cheap_is_refused() {
    // The nonce of the client is nine times eighteen, in base64.
    let nonce = "CQkJCQkJCQkJCQkJCQkJCQkJ";
    let cheap = format!("r={nonce}server,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095").leak();
    assert_eq!(failure(&challenged(cheap)), Some("mongodb_server_scram"));
    let dear = format!("r={nonce}server,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000").leak();
    assert_eq!(failure(&challenged(dear)), Some("mongodb_server_scram"));
    let other = "r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=15000";
    assert_eq!(failure(&challenged(other)), Some("mongodb_server_scram"));
    let right = format!("r={nonce}server,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=15000").leak();
    assert_eq!(failure(&challenged(right)), None);
}

#[test]
fn a_server_that_skips_its_own_proof_is_refused() {
    let (mut login, mut out) = login();
    let right = "r=CQkJCQkJCQkJCQkJCQkJCQkJserver,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    let Step::Derive(derivation) = login.on_bytes(&challenged(right), &mut out).step else { panic!("a challenge") };
    assert!(matches!(login.on_keys(&derivation.run(), &mut out), Step::More));
    let done = reply(2, |body| {
        body.int32("conversationId", 1);
        body.bool("done", true);
        body.binary("payload", 0, b"");
        body.double("ok", 1.0);
    });
    let Step::Failed(failure) = login.on_bytes(&done, &mut out).step else { panic!("no proof") };
    assert_eq!(failure.reason(), "mongodb_server_scram");
}

#[test]
fn a_reply_in_any_pieces_is_one_reply() {
    let whole = reply(1, |body| {
        body.int32("maxWireVersion", 21);
        body.int32("minWireVersion", 0);
        body.double("ok", 1.0);
    });
    for cut in 0..whole.len() {
        let (mut login, mut out) = login();
        let progress = login.on_bytes(&whole[..cut], &mut out);
        assert!(matches!(progress.step, Step::More) && progress.consumed == 0, "cut at {cut}");
        assert_eq!(login.on_bytes(&whole, &mut out).consumed, whole.len());
    }
}

#[test]
fn a_server_that_does_not_know_hello_gets_its_older_name() {
    let (mut login, mut out) = login();
    let unknown = reply(1, |body| {
        body.double("ok", 0.0);
        body.int32("code", 59);
    });
    out.clear();
    assert!(matches!(login.on_bytes(&unknown, &mut out).step, Step::More));
    let command = Request::read(&out).expect("a request");
    assert_eq!((command.id, command.command().expect("a command").name), (2, &b"isMaster"[..]));
    let again = reply(2, |body| {
        body.double("ok", 0.0);
        body.int32("code", 59);
    });
    let Step::Failed(failure) = login.on_bytes(&again, &mut out).step else { panic!("it knows neither") };
    assert_eq!(failure.reason(), "mongodb_server_refused");
}

#[test]
fn l2_a_login_without_a_reply_has_none() {
    let (mut session, shell) = scram();
    for payload in [FIRST, b"x"] {
        let bytes = written(40, Flags::MORE_TO_COME, sasl("saslStart", payload, 0));
        let (next, out) = send(&mut session, &shell, &bytes);
        assert!(matches!(next, Next::Replied) && out.is_empty());
    }
}
