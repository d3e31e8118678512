//! Servers that go away, with and without a word.

use weir_postgres_codec::{backend, frontend};
use weir_postgres_session::{Cleanliness, End, Next, ServerStep, SessionSettings};

use super::scene::{Scene, tags};
use super::{bytes, prepare, query, scene};

/// The last words of a server that is shut down.
fn shutdown() -> Vec<u8> {
    let text = "terminating connection due to administrator command";
    bytes(|out| backend::error(out, &backend::ErrorReport::fatal("57P01", text)))
}

/// The server says `words`, and closes the connection. The result is what the client gets.
fn lose(scene: &mut Scene, words: &[u8]) -> (Next, Vec<u8>) {
    scene.io.to_server.take();
    if !words.is_empty() {
        let step = scene.session.on_server(words, &mut scene.state, &scene.io);
        assert_eq!(step, Ok(ServerStep::Continue));
    }
    scene.is_attached = false;
    let next = scene.session.on_server_lost(&mut scene.state, &scene.io);
    scene.exchange_server();
    (next, scene.io.to_client.take())
}

/// Nothing of the client has run: its statement goes to another server.
#[test]
fn a_server_that_ends_before_it_has_the_parameters_costs_nothing() {
    for words in [shutdown(), Vec::new()] {
        let mut scene = Scene::new(SessionSettings::default(), &[(b"application_name", b"mine")]);
        assert_eq!(scene.send(&query("SELECT 'a'")), Next::Wait, "the parameters are unproven");
        assert_eq!(lose(&mut scene, &words), (Next::More, Vec::new()));
        assert_eq!(scene.pump(), Next::Wait, "at another server");
        assert_eq!(tags(&scene.turn(usize::MAX)), "TDCZ");
    }
}

/// The reply to the parameters and the last words come together.
#[test]
fn a_server_that_ends_behind_the_parameters_costs_nothing() {
    let mut scene = Scene::new(SessionSettings::default(), &[(b"application_name", b"mine")]);
    assert_eq!(scene.send(&query("BEGIN")), Next::Wait, "the parameters are unproven");
    scene.model.receive(&scene.io.to_server.take());
    scene.model.run();
    let words = [scene.model.take_output(), shutdown()].concat();
    let step = scene.session.on_server(&words, &mut scene.state, &scene.io);
    assert_eq!(step, Ok(ServerStep::Release(Cleanliness::Unusable)));
    scene.is_attached = false;
    scene.exchange_server();
    assert_eq!(scene.pump(), Next::More, "at another server");
    assert_eq!(tags(&scene.turn(usize::MAX)), "CZ");
}

/// Without its Sync the server has committed nothing, although the client has the tag.
#[test]
fn a_batch_whose_server_ends_in_front_of_its_sync_ends_the_session() {
    for words in [shutdown(), Vec::new()] {
        for has_sync in [false, true] {
            let mut scene = scene();
            scene.send(&bytes(|out| {
                frontend::parse(out, b"", b"SELECT 'a'", &[]);
                frontend::bind(out, b"", b"", []);
                frontend::execute(out, b"", 0);
                frontend::flush(out);
            }));
            assert_eq!(tags(&scene.turn(usize::MAX)), "12DC");
            let step = scene.session.on_server(&words, &mut scene.state, &scene.io);
            assert_eq!(step, Ok(ServerStep::Continue));
            if has_sync {
                scene.send(&bytes(frontend::sync));
            }
            let (next, reply) = lose(&mut scene, b"");
            assert_eq!(next, Next::Close(End::ServerLost));
            assert!(tags(&reply).starts_with('E') && !tags(&reply).contains('Z'), "{has_sync}");
        }
    }
}

/// They are sure to work, so the client's requests were sent at once.
#[test]
fn a_server_that_ends_instead_of_taking_sure_parameters_costs_each_request_one_error() {
    for words in [shutdown(), Vec::new()] {
        let mut scene = scene();
        scene.ask(&query("SET work_mem = '1MB'"));
        scene.exchange_server();
        scene.send(&[query("SELECT 'a'"), query("SELECT 'b'")].concat());
        let (next, reply) = lose(&mut scene, &words);
        assert_eq!((next, tags(&reply).as_str()), (Next::More, "EZEZ"));
        let is_certain = reply.windows(21).any(|part| part == b"has not been executed");
        assert_eq!(is_certain, !words.is_empty(), "without a word, the server may have run everything");
        assert_eq!(tags(&scene.ask(&query("SHOW work_mem"))), "TDCZ", "the session goes on");
    }
}

/// The gateway prepares what the client has named by SQL, in front of its Query.
#[test]
fn a_server_that_ends_instead_of_preparing_for_a_query_costs_it_one_error() {
    for words in [shutdown(), Vec::new()] {
        let mut scene = scene();
        scene.ask(&query("PREPARE q AS SELECT 'q'"));
        scene.exchange_server();
        scene.send(&query("EXECUTE q"));
        let (next, reply) = lose(&mut scene, &words);
        assert_eq!((next, tags(&reply).as_str()), (Next::More, "EZ"));
        assert_eq!(tags(&scene.ask(&query("EXECUTE q"))), "TDCZ");
    }
}

/// Drivers close their connection at FATAL: each failover would make all clients connect again.
#[test]
fn fatal_of_a_server_is_an_error_for_a_session_that_goes_on() {
    for in_batch in [false, true] {
        let mut scene = scene();
        scene.send(&if in_batch { prepare("s", "SELECT 'a'") } else { query("SELECT 'a'") });
        scene.io.to_server.take();
        assert_eq!(scene.session.on_server(&shutdown(), &mut scene.state, &scene.io), Ok(ServerStep::Continue));
        let error = scene.io.to_client.take();
        let has = |field: &[u8]| error.windows(field.len()).any(|part| part == field);
        assert!(tags(&error) == "E" && has(b"SERROR\0VERROR\0C57P01\0") && !has(b"FATAL"));
        let (next, reply) = lose(&mut scene, b"");
        assert_eq!((next, tags(&reply).as_str()), (Next::More, "Z"));
        assert_eq!(tags(&scene.ask(&query("SELECT 'a'"))), "TDCZ");
    }
}

#[test]
fn fatal_of_a_server_ends_a_session_with_its_block() {
    let mut scene = scene();
    scene.ask(&query("BEGIN"));
    assert_eq!(scene.session.on_server(&shutdown(), &mut scene.state, &scene.io), Ok(ServerStep::Continue));
    let error = scene.io.to_client.take();
    assert!(error.windows(6).any(|part| part == b"VFATAL"));
    assert_eq!(scene.session.on_server_lost(&mut scene.state, &scene.io), Next::Close(End::ServerLost));
}
