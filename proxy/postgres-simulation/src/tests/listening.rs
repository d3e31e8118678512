//! LISTEN and NOTIFY of clients that share servers.

use weir_postgres_codec::{backend, frame, frontend, frontend::Kind};
use weir_postgres_session::io::News;
use weir_postgres_session::{CancelTarget, Cleanliness, Next, Refusal, ServerState, Session, SessionSettings};

use super::scene::{Scene, tags};
use crate::server::ModelServer;

/// The server's process, and the number that the client knows as its own.
const SERVER: u32 = 100;
const OWN: u32 = 7;

fn scene() -> Scene {
    let mut scene = Scene::new(SessionSettings::default(), &[]);
    let target = CancelTarget { pid: SERVER, secret: Box::new([0; 4]) };
    scene.state = ServerState::new(ModelServer::reports(), Some(target), &scene.share);
    let session = Session::new([], scene.settings.clone(), scene.share.clone(), scene.io.now.get());
    scene.session = session.with_process(OWN);
    scene
}

fn query(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::query(&mut out, text.as_bytes());
    out
}

/// Parse, Bind, Execute and Sync.
fn batch(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::parse(&mut out, b"", text.as_bytes(), &[]);
    frontend::bind(&mut out, b"", b"", []);
    frontend::execute(&mut out, b"", 0);
    frontend::sync(&mut out);
    out
}

/// The command tags and notifications among replies, in order.
fn words(mut bytes: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    while let Some(head) = frame::head(bytes).expect("lengths are right") {
        let body = &bytes[frame::HEAD_BYTES..head.whole()];
        match head.tag {
            backend::tag::COMMAND_COMPLETE => {
                let complete = backend::CommandComplete::read(body).expect("a tag");
                words.push(String::from_utf8_lossy(complete.tag).into_owned());
            }
            backend::tag::NOTIFICATION => {
                let notification = backend::NotificationResponse::read(body).expect("a notification");
                let payload = String::from_utf8_lossy(notification.payload);
                words.push(format!("{payload} by {}", notification.pid));
            }
            backend::tag::READY_FOR_QUERY => words.push(char::from(body[0]).to_string()),
            backend::tag::ERROR => words.push("error".to_owned()),
            backend::tag::NOTICE => words.push("notice".to_owned()),
            _ => {}
        }
        bytes = &bytes[head.whole()..];
    }
    words
}

fn replies(scene: &mut Scene, input: &[u8]) -> Vec<String> {
    words(&scene.ask(input))
}

/// News come for the client, and the shell passes them on.
fn notified(scene: &mut Scene, channel: &str, payload: &str) -> Vec<String> {
    scene.io.notify(8, channel, payload);
    scene.session.on_news(scene.is_attached.then_some(&scene.state), &scene.io);
    words(&scene.io.to_client.take())
}

#[test]
fn listen_outside_of_a_transaction_needs_no_server() {
    let mut scene = scene();
    scene.io.is_slow.set(true);
    assert_eq!(scene.send(&query("LISTEN news")), Next::Wait);
    assert_eq!(scene.pump(), Next::Wait, "the server has not confirmed it");
    assert!(scene.io.to_client.borrow().is_empty());
    scene.io.is_slow.set(false);
    assert_eq!(scene.pump(), Next::More);
    assert_eq!(words(&scene.io.to_client.take()), ["LISTEN", "I"]);
    assert_eq!((scene.session.channels(), scene.is_attached), (1, false));
    assert_eq!(notified(&mut scene, "news", "x"), ["x by 8"]);
    assert_eq!(notified(&mut scene, "other", "x"), [""; 0], "it does not listen to that");
    assert_eq!(replies(&mut scene, &query("UNLISTEN news")), ["UNLISTEN", "I"]);
    assert!(scene.io.wanted.borrow().is_empty() && scene.session.channels() == 0);
    assert!(scene.to_server().is_empty() && !scene.is_attached);
}

#[test]
fn a_channel_that_cannot_be_had_is_an_error_of_its_statement() {
    let refusal = || Refusal::error("25006", "cannot execute LISTEN during recovery");
    let mut scene = scene();
    *scene.io.refusal.borrow_mut() = Some(refusal());
    assert_eq!(replies(&mut scene, &query("LISTEN news")), ["error", "I"]);
    replies(&mut scene, &query("BEGIN"));
    *scene.io.refusal.borrow_mut() = Some(refusal());
    assert_eq!(replies(&mut scene, &query("LISTEN news"))[0], "error");
    *scene.io.refusal.borrow_mut() = Some(refusal());
    assert_eq!(tags(&scene.ask(&batch("LISTEN news"))), "12EZ");
    replies(&mut scene, &query("COMMIT"));
    assert_eq!(scene.session.channels(), 0);
}

#[test]
fn listen_takes_effect_at_commit_and_never_reaches_the_server() {
    for listen in [query("LISTEN news"), batch("LISTEN news")] {
        let mut scene = scene();
        assert_eq!(replies(&mut scene, &query("BEGIN")), ["BEGIN", "T"]);
        assert_eq!(replies(&mut scene, &listen), ["LISTEN", "T"]);
        assert_eq!((scene.session.channels(), &scene.io.wanted.borrow()[..]), (0, &[b"news".to_vec()][..]));
        assert_eq!(notified(&mut scene, "news", "early"), [""; 0]);
        scene.send(&query("COMMIT"));
        scene.io.notify(8, "news", "late");
        assert_eq!(words(&scene.turn(usize::MAX)), ["COMMIT", "late by 8", "I"]);
        assert_eq!(scene.session.channels(), 1);
        assert!(scene.model.state().is_pristine() && !scene.is_attached);
        assert_eq!(scene.releases, [Cleanliness::Clean], "nothing is left at the server");
    }
}

#[test]
fn a_rollback_undoes_listen_and_unlisten() {
    let mut scene = scene();
    replies(&mut scene, &query("LISTEN old"));
    for end in ["ROLLBACK", "SELECT 1/0"] {
        replies(&mut scene, &query("BEGIN"));
        replies(&mut scene, &query("LISTEN news"));
        replies(&mut scene, &query("UNLISTEN *"));
        assert_eq!(scene.io.wanted.borrow().len(), 2);
        replies(&mut scene, &query(end));
        replies(&mut scene, &query("ROLLBACK"));
        assert_eq!((scene.session.channels(), &scene.io.wanted.borrow()[..]), (1, &[b"old".to_vec()][..]), "{end}");
    }
    assert_eq!(replies(&mut scene, &query("LISTEN a; SELECT 1/0")), ["LISTEN", "error", "I"]);
    assert_eq!((scene.session.channels(), scene.io.wanted.borrow().len()), (1, 1));
    assert_eq!(notified(&mut scene, "old", "x"), ["x by 8"]);
}

#[test]
fn savepoints_decide_about_what_came_behind_them() {
    let mut scene = scene();
    for text in ["BEGIN", "SAVEPOINT one", "LISTEN a", "SAVEPOINT two", "LISTEN b", "ROLLBACK TO SAVEPOINT two"] {
        replies(&mut scene, &query(text));
    }
    for text in ["LISTEN c", "RELEASE SAVEPOINT two", "SAVEPOINT three", "LISTEN d", "RELEASE SAVEPOINT three"] {
        replies(&mut scene, &query(text));
    }
    replies(&mut scene, &query("COMMIT"));
    let mut wanted = scene.io.wanted.take();
    wanted.sort();
    assert_eq!(wanted, [b"a".to_vec(), b"c".to_vec(), b"d".to_vec()]);
    *scene.io.wanted.borrow_mut() = wanted;
    for text in ["BEGIN", "SAVEPOINT one", "LISTEN e", "RELEASE SAVEPOINT one", "ROLLBACK"] {
        replies(&mut scene, &query(text));
    }
    assert_eq!((scene.session.channels(), scene.io.wanted.borrow().len()), (3, 3));
}

#[test]
fn listen_within_a_text_has_its_place_and_its_tag() {
    let mut scene = scene();
    let text = "BEGIN; SELECT 'a'; LISTEN \"News\"; COMMIT; LISTEN b; ROLLBACK; UNLISTEN *; LISTEN c";
    let expected = ["BEGIN", "SELECT 1", "LISTEN", "COMMIT", "LISTEN", "notice", "ROLLBACK", "UNLISTEN", "LISTEN", "I"];
    assert_eq!(replies(&mut scene, &query(text)), expected);
    assert_eq!((scene.session.channels(), &scene.io.wanted.borrow()[..]), (1, &[b"c".to_vec()][..]));
    assert!(scene.model.state().is_pristine());
    // In pieces of one byte, the replies are the same.
    scene.send(&query("SELECT 'a'; LISTEN d"));
    assert_eq!(words(&scene.turn(1)), ["SELECT 1", "LISTEN", "I"]);
    assert_eq!(replies(&mut scene, &query("DISCARD ALL")), ["DISCARD ALL", "I"]);
    assert!(scene.io.wanted.borrow().is_empty());
}

#[test]
fn a_prepared_listen_works_again_and_again() {
    let mut scene = scene();
    let mut prepare = Vec::new();
    frontend::parse(&mut prepare, b"one", b"LISTEN news", &[]);
    frontend::describe(&mut prepare, Kind::Statement, b"one");
    frontend::sync(&mut prepare);
    assert_eq!(tags(&scene.ask(&prepare)), "1tnZ");
    let mut run = Vec::new();
    frontend::bind(&mut run, b"", b"one", []);
    frontend::execute(&mut run, b"", 0);
    frontend::sync(&mut run);
    for _ in 0..2 {
        assert_eq!(tags(&scene.ask(&run)), "2CZ");
        assert_eq!(scene.session.channels(), 1);
        replies(&mut scene, &query("UNLISTEN *"));
    }
    assert!(scene.model.state().is_pristine());
}

#[test]
fn a_server_that_is_lost_takes_its_transaction_and_no_channel() {
    let mut scene = scene();
    replies(&mut scene, &query("LISTEN old"));
    scene.send(&query("BEGIN; LISTEN news; COMMIT"));
    let next = scene.session.on_server_lost(&mut scene.state, &scene.io);
    assert_eq!(next, Next::More, "it was between transactions when the text was sent");
    assert_eq!(
        (scene.session.channels(), scene.io.wanted.borrow().len()),
        (1, 1),
        "whether it has committed is unknown"
    );
    assert_eq!(notified(&mut scene, "old", "x")[2..], ["x by 8"]);
}

#[test]
fn news_wait_for_the_end_of_a_transaction_and_come_before_its_ready() {
    let mut scene = scene();
    replies(&mut scene, &query("LISTEN news"));
    replies(&mut scene, &query("BEGIN"));
    assert_eq!(notified(&mut scene, "news", "one"), [""; 0]);
    scene.send(&query("SELECT 'a'"));
    assert_eq!(notified(&mut scene, "news", "two"), [""; 0]);
    assert_eq!(words(&scene.turn(3)), ["SELECT 1", "T"]);
    assert_eq!(replies(&mut scene, &query("ROLLBACK")), ["ROLLBACK", "one by 8", "two by 8", "I"]);
    scene.io.news.borrow_mut().push_back(News::Gap);
    assert_eq!(notified(&mut scene, "news", "three"), ["notice", "three by 8"]);
}

#[test]
fn its_own_notifications_come_before_ready_and_with_its_own_number() {
    for notify in ["SELECT pg_notify('news', 'x')", "BEGIN; NOTIFY news, 'x'; COMMIT"] {
        let mut scene = scene();
        // The model knows neither; what counts is what the session does around it.
        replies(&mut scene, &query("LISTEN news"));
        scene.io.notify(SERVER, "news", "another's");
        assert_eq!(scene.send(&query(notify)), Next::Wait, "a fence first");
        assert_eq!((scene.io.fences.get(), scene.to_server().is_empty()), (1, true));
        scene.io.notify(SERVER, "news", "another's, too");
        scene.session.on_fence(Some(&scene.state), &scene.io);
        assert_eq!(scene.pump(), Next::More);
        scene.send(&query("SELECT 'behind'"));
        assert_eq!(words(&scene.turn(usize::MAX)).last().expect("replies"), &format!("another's, too by {SERVER}"));
        assert_eq!(scene.io.fences.get(), 2, "Ready waits for the second");
        assert!(scene.is_attached, "the server's process is its own until then");
        scene.io.notify(SERVER, "news", "own");
        scene.session.on_fence(Some(&scene.state), &scene.io);
        let sent = words(&scene.io.to_client.take());
        assert_eq!(sent, [format!("own by {OWN}"), "I".to_owned()]);
        scene.reply(&[]);
        assert_eq!(words(&scene.turn(usize::MAX)), ["SELECT 1", "I"]);
        assert!(!scene.is_attached);
        scene.io.notify(SERVER, "news", "later");
        scene.session.on_news(None, &scene.io);
        assert_eq!(words(&scene.io.to_client.take()), [format!("later by {SERVER}")]);
    }
}

#[test]
fn a_client_that_listens_to_nothing_notifies_without_a_fence() {
    let mut scene = scene();
    assert_eq!(scene.send(&query("NOTIFY news")), Next::More);
    scene.turn(usize::MAX);
    assert_eq!(scene.io.fences.get(), 0);
}

#[test]
fn a_ready_that_waits_is_sent_though_the_server_is_lost() {
    let mut scene = scene();
    replies(&mut scene, &query("LISTEN news"));
    scene.send(&query("SELECT pg_notify('news', 'x')"));
    scene.session.on_fence(Some(&scene.state), &scene.io);
    scene.pump();
    scene.turn(usize::MAX);
    assert_eq!(scene.session.on_server_lost(&mut scene.state, &scene.io), Next::More);
    scene.is_attached = false;
    scene.session.on_fence(None, &scene.io);
    assert_eq!(words(&scene.io.to_client.take()), ["I"]);
    assert_eq!(replies(&mut scene, &query("SELECT 'a'")), ["SELECT 1", "I"]);
}
