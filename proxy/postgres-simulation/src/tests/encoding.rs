//! Texts in encodings whose bytes are not what a lexer takes them for, and tags that no text has foreseen (K5).

use weir_postgres_codec::{TransactionStatus, backend, frontend};
use weir_postgres_session::{Cleanliness, Judge, PinReasons, Recovered, Refusal, ServerState, SessionSettings};

use super::scene::{Scene, tags};
use super::{bytes, prepare, query, run, scene};
use crate::server::ModelServer;

/// In SJIS the bytes 0x83 0x5C are one character: the string ends behind it, and SET runs. For a reader of ASCII there is one string.
const TWO_READINGS: &[u8] = b"select E'\x83\x5c'; set search_path = evil; --'";

fn raw(text: &[u8]) -> Vec<u8> {
    bytes(|out| frontend::query(out, text))
}

fn parse(text: &[u8]) -> Vec<u8> {
    bytes(|out| {
        frontend::parse(out, b"s", text, &[]);
        frontend::sync(out);
    })
}

fn is_unread(scene: &Scene) -> bool {
    scene.is_attached && scene.session.pin().reasons == PinReasons::OPAQUE
}

fn leave(scene: &mut Scene) {
    let recovery = scene.session.on_client_gone(&mut scene.state, None);
    assert_eq!(scene.recover(recovery), Recovered::Clean);
}

#[test]
fn k5_a_text_in_an_encoding_that_cannot_be_read_pins_and_its_server_is_reset() {
    let startups: [&[(&[u8], &[u8])]; 3] =
        [&[(b"client_encoding", b"sjis")], &[(b"options", b"-c client_encoding=GB18030")], &[]];
    for startup in startups {
        for text in [raw(TWO_READINGS), parse(TWO_READINGS)] {
            let mut scene = Scene::new(SessionSettings::default(), startup);
            if startup.is_empty() {
                scene.ask(&query("SET client_encoding = 'BIG5'"));
            }
            scene.ask(&query("SELECT 'a'"));
            assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean), "a text of ASCII has one reading");
            scene.ask(&text);
            assert!(is_unread(&scene), "{startup:?}");
            leave(&mut scene);
            scene.next_client(&[(b"client_encoding", b"UTF8")]);
            scene.ask(&raw(TWO_READINGS));
            assert!(!scene.is_attached, "another client's texts are read");
        }
    }
}

#[test]
fn k5_texts_behind_one_that_may_change_the_encoding_wait_for_its_reply() {
    let changes = [("SET client_encoding = 'SJIS'", true), ("EXECUTE p", false), ("SET NAMES 'utf8'", false)];
    for (change, is_changed) in changes {
        let mut scene = scene();
        scene.ask(&query("PREPARE p AS SELECT 'a'"));
        scene.ask(&[query(change), raw("SELECT '\u{e9}'".as_bytes())].concat());
        assert_eq!(is_unread(&scene), is_changed, "{change}");
    }
    let mut scene = scene();
    scene.ask(&query("BEGIN"));
    scene.ask(&query("SET client_encoding = 'SJIS'"));
    scene.ask(&[query("SET client_encoding = 'UTF8'"), raw("SELECT '\u{e9}'".as_bytes())].concat());
    assert!(scene.session.pin().reasons.contains(PinReasons::OPAQUE), "a rollback may bring the other one back");
    let mut scene = Scene::new(SessionSettings::default(), &[]);
    scene.ask(&query("SET client_encoding = 'SJIS'"));
    scene.ask(&query("RESET client_encoding"));
    scene.ask(&raw("SELECT '\u{e9}'".as_bytes()));
    assert!(!scene.is_attached, "the server's encoding can be read");
}

/// The default of the role, or of the database.
#[test]
fn k5_an_encoding_that_the_server_has_by_default_counts_from_the_first_statement_on() {
    let mut scene = scene();
    let reports = ModelServer::reports().chain([(&b"client_encoding"[..], &b"SJIS"[..])]);
    scene.state = ServerState::new(reports, None, &scene.share);
    scene.ask(&raw(TWO_READINGS));
    assert!(is_unread(&scene));
}

/// At another server the text would be read in the encoding of now.
#[test]
fn k5_a_statement_of_another_encoding_is_not_prepared_again() {
    let text = "SELECT '\u{e9}'";
    let mut scene = scene();
    scene.ask(&prepare("s", text));
    scene.ask(&query(&format!("PREPARE p AS {text}")));
    scene.ask(&query("SET client_encoding = 'SJIS'"));
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ", "this server has it");
    scene.model = ModelServer::new();
    scene.state = ServerState::new(ModelServer::reports(), None, &scene.share);
    let reply = scene.ask(&run("s"));
    assert!(tags(&reply) == "EZ" && reply.windows(5).any(|part| part == b"26000"));
    assert_eq!(tags(&scene.ask(&query("EXECUTE p"))), "EZ");
    assert_eq!(scene.model.statements(), 0);
    scene.ask(&query("RESET client_encoding"));
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ");
    assert_eq!(tags(&scene.ask(&query("EXECUTE p"))), "TDCZ");
}

/// A server converts a text with the encoding that it has when the text comes.
#[test]
fn k5_parameters_of_one_encoding_are_not_sent_while_the_server_has_another() {
    let mut scene = scene();
    scene.ask(&query("SET client_encoding = 'SJIS'"));
    scene.next_client(&[(b"lib.x", "\u{e9}".as_bytes())]);
    scene.send(&query("SELECT 'a'"));
    let expected = [query("RESET \"client_encoding\";"), query("SET \"lib\".\"x\" = '\u{e9}';")].concat();
    assert_eq!(scene.to_server(), expected, "nothing of the client goes out before both are known to have worked");
    assert_eq!(tags(&scene.turn(usize::MAX)), "TDCZ");
    // And the other way round.
    let mut scene = Scene::new(SessionSettings::default(), &[]);
    scene.ask(&query("SET lib.x = '\u{e9}'"));
    scene.ask(&query("SET client_encoding = 'SJIS'"));
    scene.model = ModelServer::new();
    scene.state = ServerState::new(ModelServer::reports(), None, &scene.share);
    scene.send(&query("SELECT 'a'"));
    let texts =
        ["SET \"client_encoding\" = 'UTF8';", "SET \"lib\".\"x\" = '\u{e9}';", "SET \"client_encoding\" = 'SJIS';"];
    assert_eq!(scene.to_server(), texts.map(query).concat());
    assert_eq!(tags(&scene.turn(usize::MAX)), "TDCZ");
}

struct Strict;

impl Judge for Strict {
    fn text(&self, _: &[u8]) -> Option<Refusal> {
        None
    }

    fn unread(&self) -> Option<Refusal> {
        Some(Refusal::error("42501", "unread"))
    }

    fn function_call(&self) -> Option<Refusal> {
        None
    }
}

/// With rules, what cannot be read may not run; also in session pooling, which follows no effects otherwise.
#[test]
fn a_text_that_cannot_be_read_is_judged_as_unread_in_each_mode() {
    use weir_postgres_session::PoolMode::{Session as SessionMode, Transaction};
    for pool_mode in [Transaction, SessionMode] {
        for is_pipelined in [false, true] {
            let mut scene = Scene::new(SessionSettings { pool_mode, ..SessionSettings::default() }, &[]);
            let session = std::mem::replace(
                &mut scene.session,
                weir_postgres_session::Session::new(
                    [],
                    scene.settings.clone(),
                    scene.share.clone(),
                    scene.io.now.get(),
                ),
            );
            scene.session = session.with_judge(Some(std::rc::Rc::new(Strict)));
            assert_eq!(tags(&scene.ask(&raw("SELECT '\u{e9}'".as_bytes()))), "TDCZ");
            let set = query("SET client_encoding = 'SJIS'");
            let mut reply = Vec::new();
            if is_pipelined {
                reply.extend(scene.ask(&[set, raw(TWO_READINGS)].concat()));
            } else {
                reply.extend(scene.ask(&set));
                // The report of a server; the model has none of this parameter.
                let report = bytes(|out| backend::parameter_status(out, b"client_encoding", b"SJIS"));
                if scene.is_attached {
                    scene.reply(&report);
                    scene.io.to_client.take();
                }
                reply.extend(scene.ask(&raw(TWO_READINGS)));
            }
            assert!(reply.windows(6).any(|part| part == b"unread"), "{pool_mode:?} {is_pipelined}");
        }
    }
}

/// Whatever the analysis missed: the reply shows it.
#[test]
fn k5_a_server_whose_reply_shows_a_change_that_no_text_did_is_reset() {
    let reply = |tag: &[u8]| {
        bytes(|out| {
            backend::command_complete(out, tag);
            backend::ready_for_query(out, TransactionStatus::Idle);
        })
    };
    let tags = ["SET", "RESET", "LISTEN", "PREPARE", "DEALLOCATE", "LOAD", "DECLARE CURSOR", "DO", "CALL"];
    for tag in tags {
        let mut scene = scene();
        scene.send(&query("SELECT 'a'"));
        scene.io.to_server.take();
        scene.reply(&reply(tag.as_bytes()));
        assert_eq!(scene.releases, [Cleanliness::Dirty], "{tag}");
    }
    for (text, tag) in
        [("SET TRANSACTION READ ONLY", "SET"), ("DISCARD PLANS", "DISCARD PLANS"), ("SELECT 'a'", "SELECT 1")]
    {
        let mut scene = scene();
        scene.send(&query(text));
        scene.io.to_server.take();
        scene.reply(&reply(tag.as_bytes()));
        assert_eq!(scene.releases, [Cleanliness::Clean], "{text}");
    }
}
