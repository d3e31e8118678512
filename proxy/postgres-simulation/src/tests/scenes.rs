//! Cases that the random runs cannot show, one at a time.

use std::time::Duration;

use weir_base::Time;
use weir_postgres_codec::{TransactionStatus, backend, frontend, frontend::Kind};
use weir_postgres_session::io::Event;
use weir_postgres_session::{
    CancelTarget, Cleanliness, End, Next, PinReasons, PoolMode, Recovered, Refusal, ServerState, ServerStep, Session,
    SessionSettings,
};

use super::scene::{Scene, tags};
use super::{bytes, prepare, query, run, scene, unshared};
use crate::server::ModelServer;

#[test]
fn a_batch_leaves_in_two_pieces_and_a_query_in_one() {
    let mut scene = scene();
    scene.send(&query("SELECT 'a'"));
    assert_eq!(scene.io.writes.get(), 1);
    assert_eq!(tags(&scene.turn(usize::MAX)), "TDCZ");
    scene.ask(&prepare("s", "SELECT 'a'"));
    scene.io.writes.set(0);
    scene.send(&run("s"));
    assert_eq!(scene.io.writes.get(), 2, "the Bind with its other name, and the rest");
    assert_eq!(tags(&scene.turn(usize::MAX)), "2TDCZ");
    assert_eq!(scene.releases, [Cleanliness::Clean; 3]);
}

#[test]
fn each_transaction_counts_also_of_a_client_that_keeps_its_server() {
    let session = SessionSettings { pool_mode: PoolMode::Session, ..SessionSettings::default() };
    for (settings, first) in [(session, "SELECT 'a'"), (SessionSettings::default(), "SELECT pg_advisory_lock(1)")] {
        let mut scene = Scene::new(settings, &[]);
        for text in [first, "BEGIN", "SELECT 'a'", "COMMIT", "SELECT 'a'"] {
            scene.ask(&query(text));
        }
        assert!(scene.is_attached);
        assert_eq!(scene.io.count_of(Event::Transaction), 3, "{first}");
        scene.ask(&[query("SELECT 'a'"), query("SELECT 'a'")].concat());
        assert_eq!(scene.io.count_of(Event::Transaction), 5, "{first}: of a pipeline each");
    }
}

#[test]
fn p8_messages_split_at_each_byte_give_the_same() {
    let input = [query("BEGIN"), prepare("s", "SELECT 'a'"), run("s"), query("COMMIT")].concat();
    let mut whole = scene();
    let expected = whole.ask(&input);
    let mut split = scene();
    let mut got = Vec::new();
    for byte in input {
        split.send(&[byte]);
        got.extend(split.turn(1));
    }
    assert_eq!(got, expected);
    assert_eq!(split.releases, whole.releases);
}

#[test]
fn parameters_of_the_startup_packet_are_set_before_anything_runs_and_proven_once() {
    let mut scene = Scene::new(SessionSettings::default(), &[(b"user", b"me"), (b"application_name", b"it's me")]);
    assert_eq!(scene.send(&query("SHOW application_name")), Next::Wait, "nobody has accepted them yet");
    assert_eq!(scene.to_server(), query("SET \"application_name\" = 'it''s me';"));
    let reply = scene.turn(usize::MAX);
    assert_eq!(tags(&reply), "TDCZ", "the client sees nothing of it: it knows its name");
    assert!(reply.windows(7).any(|part| part == b"it's me"));
    scene.next_client(&[]);
    scene.send(&query("SELECT 'a'"));
    assert_eq!(scene.to_server(), [query("RESET \"application_name\";"), query("SELECT 'a'")].concat());
    assert_eq!(tags(&scene.turn(usize::MAX)), "TDCZ");
    assert_eq!(scene.io.count_of(Event::Replay), 2);
}

/// They are the defaults of the session, as at PostgreSQL.
#[test]
fn resets_bring_back_the_parameters_of_the_startup_packet() {
    for text in ["RESET ALL", "RESET application_name", "DISCARD ALL", "SET application_name = DEFAULT"] {
        let startup: &[(&[u8], &[u8])] = &[(b"application_name", b"mine"), (b"app.x", b"own")];
        let mut scene = Scene::new(SessionSettings::default(), startup);
        scene.ask(&query("SET application_name = 'other'"));
        let both = scene.ask(&[query(text), query("SHOW application_name")].concat());
        assert!(both.windows(4).any(|part| part == b"mine"), "{text}: {}", String::from_utf8_lossy(&both));
        let mut status = Vec::new();
        backend::parameter_status(&mut status, b"application_name", b"mine");
        assert!(both.windows(status.len()).any(|part| part == status), "{text}: the client learns it");
        let own = scene.ask(&query("SHOW app.x"));
        assert!(own.windows(3).any(|part| part == b"own"), "{text}");
        assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean));
    }
}

#[test]
fn in_a_block_resets_bring_back_the_startup_packet_and_a_rollback_the_values_before() {
    let mut scene = Scene::new(SessionSettings::default(), &[(b"application_name", b"mine"), (b"app.x", b"own")]);
    let mut shows = |text: &str, name: &str, value: &str| {
        scene.ask(&query(text));
        let reply = scene.ask(&query(&format!("SHOW {name}")));
        let is_there = reply.windows(value.len()).any(|part| part == value.as_bytes());
        assert!(is_there, "{text}, {name}: {}", String::from_utf8_lossy(&reply));
    };
    shows("SET application_name = 'other'", "application_name", "other");
    shows("SET app.x = 'changed'", "app.x", "changed");
    shows("BEGIN", "app.x", "changed");
    shows("RESET ALL", "application_name", "mine");
    shows("SELECT 'a'", "app.x", "own");
    shows("ROLLBACK", "application_name", "other");
    shows("SELECT 'a'", "app.x", "changed");
}

#[test]
fn a_changed_row_type_is_healed_once_and_the_client_sees_nothing() {
    let mut scene = scene();
    scene.ask(&prepare("s", "SELECT 'a'"));
    scene.ask(&query("ALTER TABLE t ADD b INT"));
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ");
    assert_eq!(scene.io.count_of(Event::Heal), 1);
    assert_eq!(scene.model.statements(), 1, "the outdated one is closed");
    assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean));
}

/// Parse, Describe, and Flush or Sync, as drivers learn the types of a statement.
fn learn(name: &str, ends: fn(&mut Vec<u8>)) -> Vec<u8> {
    bytes(|out| {
        frontend::parse(out, name.as_bytes(), b"SELECT 'a'", &[]);
        frontend::describe(out, Kind::Statement, name.as_bytes());
        ends(out);
    })
}

/// The server has the statement from another client, and from before the change.
#[test]
fn a_client_that_prepares_after_a_change_of_the_row_type_sees_no_error() {
    for (ends, expected) in [(frontend::sync as fn(&mut Vec<u8>), "1tTZ"), (frontend::flush, "1tT")] {
        for piece in [1, usize::MAX] {
            let mut scene = scene();
            scene.ask(&learn("s", frontend::sync));
            scene.ask(&query("ALTER TABLE t ADD b INT"));
            scene.next_client(&[]);
            scene.send(&learn("mine", ends));
            assert_eq!(tags(&scene.turn(piece)), expected);
            assert_eq!(scene.io.count_of(Event::Heal), 1);
            let rest =
                if expected.ends_with('Z') { run("mine") } else { [bytes(frontend::sync), run("mine")].concat() };
            let got = tags(&scene.ask(&rest));
            assert!(got.ends_with("2TDCZ") && !got.contains('E'), "{got}");
            assert_eq!(scene.model.statements(), 1);
            assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean));
        }
    }
}

/// It would misread the new rows. PostgreSQL gives it the error, and drivers prepare the statement again.
#[test]
fn a_client_that_knows_the_old_row_type_gets_the_error_and_may_prepare_again() {
    let mut scene = scene();
    scene.ask(&learn("s", frontend::sync));
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ");
    scene.ask(&query("ALTER TABLE t ADD b INT"));
    assert_eq!(tags(&scene.ask(&run("s"))), "EZ");
    assert_eq!(scene.io.count_of(Event::Heal), 0);
    let again = bytes(|out| frontend::close(out, Kind::Statement, b"s"));
    assert_eq!(tags(&scene.ask(&[again, learn("s", frontend::sync)].concat())), "31tTZ");
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ");
}

/// The statement that the batch prepares is not among its bytes.
#[test]
fn a_batch_that_makes_the_gateway_prepare_is_not_repeated() {
    let mut scene = scene();
    scene.ask(&prepare("s", "SELECT 'a'"));
    scene.ask(&query("ALTER TABLE t ADD b INT"));
    let both = bytes(|out| {
        frontend::bind(out, b"", b"s", []);
        frontend::execute(out, b"", 0);
        frontend::parse(out, b"other", b"SELECT 'b'", &[]);
        frontend::bind(out, b"", b"other", []);
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    });
    assert_eq!(tags(&scene.ask(&both)), "EZ");
    assert_eq!(tags(&scene.ask(&both)), "2DC12DCZ");
}

#[test]
fn in_a_block_the_error_of_a_changed_row_type_reaches_the_client() {
    let mut scene = scene();
    scene.ask(&prepare("s", "SELECT 'a'"));
    scene.ask(&query("ALTER TABLE t ADD b INT"));
    scene.ask(&query("BEGIN"));
    assert_eq!(tags(&scene.ask(&run("s"))), "EZ");
    assert_eq!(scene.io.count_of(Event::Heal), 0);
    scene.ask(&query("ROLLBACK"));
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ", "the statement is prepared again");
    assert_eq!(scene.model.statements(), 1);
}

#[test]
fn a_refusal_of_the_pool_skips_the_batch_and_leaves_the_session() {
    let mut scene = scene();
    let input = [prepare("s", "SELECT 'a'"), query("SELECT 'b'")].concat();
    assert!(matches!(scene.send_unserved(&input), Next::NeedServer(_)));
    let refusal = Refusal::wait_timeout("app", 3, Duration::from_secs(10));
    assert!(matches!(scene.refuse(refusal.clone()), Next::NeedServer(_)), "the Query wants a server too");
    assert_eq!(tags(&scene.io.to_client.take()), "EZ");
    assert_eq!(scene.refuse(refusal), Next::More);
    assert_eq!(tags(&scene.io.to_client.take()), "EZ");
    assert_eq!(tags(&scene.ask(&query("SELECT 'c'"))), "TDCZ");
}

#[test]
fn a_lost_server_costs_each_request_an_error_and_a_block_its_session() {
    let mut scene = scene();
    scene.send(&[query("SELECT 'a'"), query("SELECT 'b'")].concat());
    assert_eq!(scene.session.on_server_lost(&mut scene.state, &scene.io), Next::More);
    assert_eq!(tags(&scene.io.to_client.take()), "EZEZ");
    let mut bound = super::scene();
    bound.ask(&query("BEGIN"));
    assert_eq!(bound.session.on_server_lost(&mut bound.state, &bound.io), Next::Close(End::ServerLost));
    assert_eq!(tags(&bound.io.to_client.take()), "E");
}

/// The error of the outdated plan was kept back.
#[test]
fn a_server_that_is_lost_before_a_batch_is_repeated_costs_it_an_error() {
    for (ends, expected) in [(frontend::sync as fn(&mut Vec<u8>), "EZ"), (frontend::flush, "E")] {
        let mut scene = scene();
        scene.ask(&prepare("s", "SELECT 'a'"));
        scene.ask(&query("ALTER TABLE t ADD b INT"));
        scene.send(&bytes(|out| {
            frontend::bind(out, b"", b"s", []);
            frontend::execute(out, b"", 0);
            ends(out);
        }));
        let input = scene.io.to_server.take();
        scene.model.receive(&input);
        scene.model.run();
        let output = scene.model.take_output();
        let error = weir_postgres_codec::frame::head(&output).expect("a message").expect("it is whole").whole();
        let step = scene.session.on_server(&output[..error], &mut scene.state, &scene.io);
        assert_eq!((step, scene.io.to_client.take()), (Ok(ServerStep::Continue), Vec::new()), "the error is kept back");
        assert_eq!(scene.session.on_server_lost(&mut scene.state, &scene.io), Next::More);
        assert_eq!(tags(&scene.io.to_client.take()), expected);
        scene.is_attached = false;
        let rest = if expected == "E" { bytes(frontend::sync) } else { Vec::new() };
        assert_eq!(scene.send_unserved(&rest), Next::More);
        assert_eq!(tags(&scene.io.to_client.take()), if expected == "E" { "Z" } else { "" });
    }
}

#[test]
fn query_timeout_is_for_each_query_of_a_pipeline() {
    let settings = SessionSettings { query_timeout: Some(Duration::from_secs(5)), ..SessionSettings::default() };
    let mut scene = Scene::new(settings, &[]);
    scene.send(&query("SELECT 'a'"));
    for _ in 0..4 {
        scene.send(&query("SELECT 'a'"));
        scene.advance(Duration::from_secs(3));
        assert!(scene.session.on_deadline(Some(&mut scene.state), &scene.io).is_none());
        scene.reply(&bytes(|out| {
            backend::command_complete(out, b"SELECT 1");
            backend::ready_for_query(out, TransactionStatus::Idle);
        }));
    }
    scene.advance(Duration::from_secs(6));
    assert_eq!(scene.session.on_deadline(Some(&mut scene.state), &scene.io), Some(End::TimedOut("57014")));
}

/// pgbench waits for each ParseComplete before its other clients may go on, and these may have all servers in their transactions.
#[test]
fn a_statement_that_a_server_has_taken_before_is_prepared_without_one() {
    let mut scene = scene();
    assert!(matches!(scene.send_unserved(&prepare("s", "SELECT 'a'")), Next::NeedServer(_)));
    scene.ask(b"");
    scene.next_client(&[]);
    assert_eq!(scene.send_unserved(&prepare("mine", "SELECT 'a'")), Next::More);
    assert_eq!(tags(&scene.io.to_client.take()), "1Z");
    assert!(matches!(scene.send_unserved(&prepare("mine", "SELECT 'a'")), Next::NeedServer(_)), "the name is taken");
    assert_eq!(tags(&scene.ask(&run("mine"))), "EZ2TDCZ");
    scene.next_client(&[]);
    scene.send_unserved(&query("SET work_mem = '1MB'"));
    scene.ask(b"");
    assert!(matches!(scene.send_unserved(&prepare("s", "SELECT 'a'")), Next::NeedServer(_)), "with other parameters");
    assert_eq!(tags(&scene.ask(b"")), "1Z");
    scene.next_client(&[]);
    scene.session =
        Session::new([], scene.settings.clone(), scene.share.clone(), scene.io.now.get()).with_pool("other");
    assert!(matches!(scene.send_unserved(&prepare("s", "SELECT 'a'")), Next::NeedServer(_)), "in another database");
}

#[test]
fn p17_an_idle_transaction_ends_with_25p03_and_the_server_is_rolled_back() {
    let mut scene = scene();
    scene.ask(&query("BEGIN"));
    assert!(scene.session.on_deadline(Some(&mut scene.state), &scene.io).is_none());
    scene.advance(Duration::from_secs(61));
    assert!(scene.session.deadline(Some(&scene.state)) <= scene.io.now.get());
    assert_eq!(scene.session.on_deadline(Some(&mut scene.state), &scene.io), Some(End::TimedOut("25P03")));
    assert_eq!(tags(&scene.io.to_client.take()), "E");
    let recovery = scene.session.on_client_gone(&mut scene.state, None);
    assert_eq!(scene.recover(recovery), Recovered::Clean);
    assert!(scene.model.state().is_pristine());
}

#[test]
fn p15_a_client_for_which_its_server_waits_may_not_be_silent() {
    let large = query(&format!("SELECT '{}'", "x".repeat(200_000)));
    let cases = [
        query("COPY t FROM STDIN"),
        bytes(|out| frontend::parse(out, b"", b"SELECT 1", &[])),
        large[..150_000].to_vec(),
    ];
    for input in cases {
        let mut scene = scene();
        scene.ask(&input);
        scene.io.to_client.take();
        scene.advance(Duration::from_secs(59));
        assert!(scene.session.on_deadline(Some(&mut scene.state), &scene.io).is_none());
        scene.advance(Duration::from_secs(2));
        assert!(scene.session.deadline(Some(&scene.state)) <= scene.io.now.get());
        assert_eq!(scene.session.on_deadline(Some(&mut scene.state), &scene.io), Some(End::TimedOut("25P03")));
    }
    // A query that runs, with or without its Sync, has its time.
    let executed = bytes(|out| {
        frontend::parse(out, b"", b"SELECT 1", &[]);
        frontend::bind(out, b"", b"", []);
        frontend::execute(out, b"", 0);
    });
    for input in [query("SELECT 'a'"), executed] {
        let mut scene = scene();
        scene.send(&input);
        scene.advance(Duration::from_secs(600));
        assert!(scene.session.on_deadline(Some(&mut scene.state), &scene.io).is_none());
        assert_eq!(scene.session.deadline(Some(&scene.state)), Time::NEVER);
    }
}

/// A server keeps the replies of a batch until a Flush or a Sync: it may be running, or wait for the client.
#[test]
fn p17_a_batch_without_its_sync_has_a_time_limit() {
    let mut scene = scene();
    scene.send(&bytes(|out| {
        frontend::parse(out, b"", b"SELECT 'a'", &[]);
        frontend::bind(out, b"", b"", []);
        frontend::execute(out, b"", 0);
    }));
    let sent = scene.to_server();
    scene.advance(Duration::from_secs(61));
    assert!(scene.session.deadline(Some(&scene.state)) <= scene.io.now.get());
    assert!(scene.session.on_deadline(Some(&mut scene.state), &scene.io).is_none(), "perhaps it runs");
    assert_eq!(scene.to_server(), [sent, bytes(frontend::flush)].concat());
    assert_eq!(scene.session.deadline(Some(&scene.state)), Time::NEVER, "until the replies come");
    assert_eq!(tags(&scene.turn(usize::MAX)), "12DC");
    assert!(scene.session.deadline(Some(&scene.state)) <= scene.io.now.get());
    assert_eq!(scene.session.on_deadline(Some(&mut scene.state), &scene.io), Some(End::TimedOut("25P03")));
}

/// Five bytes of a large Parse name no statement yet.
#[test]
fn p17_the_head_of_a_large_message_takes_no_server() {
    let mut scene = scene();
    let parse = bytes(|out| frontend::parse(out, b"", "x".repeat(200_000).as_bytes(), &[]));
    assert_eq!(scene.send_unserved(&parse[..5]), Next::More);
    assert!(scene.session.busy_since().is_none());
    assert!(matches!(scene.send_unserved(&parse[5..6]), Next::NeedServer(_)));
}

#[test]
fn p15_a_client_that_vanishes_within_copy_leaves_a_clean_server() {
    for is_extended in [false, true] {
        let mut scene = scene();
        scene.ask(&bytes(|out| {
            if is_extended {
                frontend::parse(out, b"", b"COPY t FROM STDIN", &[]);
                frontend::bind(out, b"", b"", []);
                frontend::execute(out, b"", 0);
                frontend::sync(out);
            } else {
                frontend::query(out, b"COPY t FROM STDIN");
            }
        }));
        scene.ask(&bytes(|out| frontend::copy_data(out, b"1\n")));
        let recovery = scene.session.on_client_gone(&mut scene.state, None);
        assert_eq!(scene.recover(recovery), Recovered::Clean);
        assert!(scene.model.is_idle() && scene.model.state().is_pristine());
    }
}

#[test]
fn p12_locks_tables_and_cursors_pin_and_are_gone_with_their_client() {
    let cases = [
        ("SELECT pg_advisory_lock(1)", PinReasons::ADVISORY_LOCK),
        ("CREATE TEMP TABLE t1 (a int)", PinReasons::TEMPORARY_TABLE),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", PinReasons::HELD_CURSOR),
        ("LISTEN news", PinReasons::LISTEN),
    ];
    for (text, reason) in cases {
        let mut scene = unshared();
        scene.ask(&query(text));
        assert!(scene.is_attached, "{text}");
        assert_eq!(scene.session.pin().reasons, reason, "{text}");
        let recovery = scene.session.on_client_gone(&mut scene.state, None);
        assert_eq!(scene.recover(recovery), Recovered::Clean, "{text}");
        assert!(scene.model.state().is_pristine(), "{text}");
    }
}

#[test]
fn p11_half_a_message_at_a_server_makes_it_unusable() {
    let mut scene = scene();
    scene.send(&query("COPY t FROM STDIN"));
    scene.turn(usize::MAX);
    scene.send(&bytes(|out| frontend::copy_data(out, &[7; 100]))[..50]);
    let recovery = scene.session.on_client_gone(&mut scene.state, None);
    assert_eq!(scene.recover(recovery), Recovered::Unusable);
}

#[test]
fn p18_a_text_that_is_too_large_streams_and_pins() {
    let settings = SessionSettings { message_bytes: 64, ..SessionSettings::default() };
    let long = query(&format!("SELECT '{}'", "a".repeat(100)));
    let mut scene = Scene::new(settings, &[]);
    scene.send(&long[..80]);
    assert_eq!(scene.to_server(), &long[..80], "it is not held");
    scene.send(&long[80..]);
    assert_eq!(tags(&scene.turn(3)), "TDCZ");
    assert_eq!(scene.session.pin().reasons, PinReasons::OPAQUE);
}

#[test]
fn p18_a_large_text_without_a_name_takes_the_place_of_the_unnamed_statement() {
    let settings = SessionSettings { message_bytes: 64, ..SessionSettings::default() };
    let long = prepare("", &format!("SELECT '{}'", "a".repeat(100)));
    for before in ["", "SELECT 'own'"] {
        let mut scene = Scene::new(settings.clone(), &[]);
        scene.ask(&[prepare("", "SELECT 'foreign'"), run("")].concat());
        scene.next_client(&[]);
        if !before.is_empty() {
            scene.ask(&prepare("", before));
        }
        scene.ask(&long);
        let reply = scene.ask(&run(""));
        assert!(reply.windows(100).any(|part| part == [b'a'; 100]), "{:?}", String::from_utf8_lossy(&reply));
        // One that is skipped leaves the earlier one.
        let failing = bytes(|out| frontend::parse(out, b"t", b"SELEKT", &[]));
        scene.ask(&[failing, long.clone()].concat());
        let reply = scene.ask(&run(""));
        assert!(reply.windows(100).any(|part| part == [b'a'; 100]), "{:?}", String::from_utf8_lossy(&reply));
    }
}

#[test]
fn a_sync_among_the_data_of_a_copy_that_fails_ends_the_session() {
    let mut scene = scene();
    scene.ask(&query("COPY t FROM STDIN"));
    scene.send(&bytes(|out| {
        frontend::copy_data(out, b"bad");
        frontend::sync(out);
    }));
    let input = scene.io.to_server.take();
    scene.model.receive(&input);
    scene.model.run();
    let output = scene.model.take_output();
    let step = scene.session.on_server(&output[..output.len() - 12], &mut scene.state, &scene.io);
    let closes = matches!(step, Ok(weir_postgres_session::ServerStep::Close(End::Violation(_))));
    assert!(closes, "{step:?}");
}

/// As PostgreSQL ends it, by the same words.
#[test]
fn a_request_within_the_data_of_a_copy_ends_the_connection() {
    let close = bytes(|out| frontend::close(out, Kind::Statement, b"s"));
    for request in [query("SELECT 'b'"), query("DEALLOCATE s"), close, prepare("s2", "SELECT 'a'"), run("s")] {
        let mut scene = scene();
        scene.ask(&prepare("s", "SELECT 'a'"));
        scene.ask(&query("COPY t FROM STDIN"));
        scene.ask(&bytes(|out| frontend::copy_data(out, b"1\n")));
        let next = scene.send(&request);
        assert!(matches!(&next, Next::Close(End::Violation(why)) if why.reason == "postgres_copy_message"), "{next:?}");
        let said = scene.io.to_client.take();
        scene.model.receive(&request);
        scene.model.run();
        let direct = scene.model.take_output();
        assert!(direct.ends_with(&said) && tags(&said) == "EE", "{}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn a_request_that_comes_before_its_copy_begins_ends_the_connection_when_the_server_does() {
    let mut scene = scene();
    scene.send(&[query("COPY t FROM STDIN"), query("SELECT 'b'")].concat());
    let input = scene.io.to_server.take();
    scene.model.receive(&input);
    scene.model.run();
    let step = scene.session.on_server(&scene.model.take_output(), &mut scene.state, &scene.io);
    assert!(matches!(&step, Ok(ServerStep::Close(End::Violation(_)))), "{step:?}");
    assert_eq!(tags(&scene.io.to_client.take()), "GEE");
}

/// The gateway replies to the Close itself: the server would read the data behind it.
#[test]
fn a_request_that_no_server_gets_ends_the_connection_in_place_of_the_data_of_a_copy() {
    let mut scene = scene();
    scene.ask(&prepare("s", "SELECT 'a'"));
    scene.send(&bytes(|out| {
        frontend::parse(out, b"", b"COPY t FROM STDIN", &[]);
        frontend::bind(out, b"", b"", []);
        frontend::execute(out, b"", 0);
        frontend::close(out, Kind::Statement, b"s");
        frontend::sync(out);
        frontend::copy_done(out);
    }));
    scene.model.receive(&scene.io.to_server.take());
    scene.model.run();
    let step = scene.session.on_server(&scene.model.take_output(), &mut scene.state, &scene.io);
    assert!(matches!(step, Ok(ServerStep::Close(End::Violation(_)))), "{step:?}");
    let reply = scene.io.to_client.take();
    assert!(tags(&reply) == "12GEE" && reply.windows(5).any(|part| part == b"08P01"), "{}", tags(&reply));
}

/// Its own notifications come from itself, and those of others never do.
#[test]
fn notifications_come_from_the_processes_that_the_client_knows() {
    let mut scene = unshared();
    let target = CancelTarget { pid: 100, secret: Box::new([0; 4]) };
    scene.state = ServerState::new(ModelServer::reports(), Some(target), &scene.share);
    let session = Session::new([], scene.settings.clone(), scene.share.clone(), scene.io.now.get());
    scene.session = session.with_process(7);
    scene.ask(&query("LISTEN c"));
    for (notifier, shown) in [(100, 7), (7, 100), (8, 8)] {
        let complete = |out: &mut Vec<u8>| backend::command_complete(out, b"SELECT 1");
        let reply = |pid| {
            bytes(|out| {
                complete(out);
                backend::notification(out, pid, b"c", b"text");
                backend::ready_for_query(out, TransactionStatus::Idle);
            })
        };
        scene.send(&query("SELECT 'a'"));
        scene.io.to_server.take();
        scene.reply(&reply(notifier));
        assert_eq!(scene.io.to_client.take(), reply(shown), "from {notifier}");
    }
}

#[test]
fn messages_that_need_no_server_get_none() {
    let mut scene = scene();
    let input = bytes(|out| {
        frontend::sync(out);
        frontend::flush(out);
        frontend::close(out, Kind::Statement, b"unknown");
        frontend::sync(out);
        frontend::copy_done(out);
    });
    assert_eq!(scene.send_unserved(&input), Next::More);
    assert_eq!(tags(&scene.io.to_client.take()), "Z3Z");
    assert_eq!(scene.send_unserved(&bytes(frontend::terminate)), Next::Close(End::Terminated));
    let mut wrong = super::scene();
    assert!(matches!(wrong.send_unserved(b"y\0\0\0\x04"), Next::Close(End::Violation(_))));
    assert_eq!(tags(&wrong.io.to_client.take()), "E");
}
