//! Nothing that one client leaves at a server reaches another (K5): cases that the random runs cannot show.

use weir_postgres_codec::{frontend, frontend::Kind};
use weir_postgres_session::{Cleanliness, End, Next, PinReasons, Recovered, ServerStep, SessionSettings};

use super::scene::{Scene, tags};
use super::{bytes, prepare, query, run, scene, unshared};
use crate::server::ADVISORY_LOCK;

/// A replay is one transaction: with one statement that fails, all that the last client wanted stays.
#[test]
fn nothing_runs_before_a_replay_that_may_fail_and_a_spoiled_server_is_cleared() {
    let mut scene = scene();
    scene.ask(&query("SET lib.x = 'a'; SET application_name = 'a'"));
    scene.ask(&query("SELECT lib_call()"));
    scene.next_client(&[]);
    assert_eq!(scene.send(&query("SHOW application_name")), Next::Wait);
    assert_eq!(
        scene.to_server(),
        query("RESET \"application_name\";RESET \"lib.x\";".replace("lib.x", "lib\".\"x").as_str())
    );
    let reply = scene.turn(usize::MAX);
    assert_eq!(tags(&reply), "TDCZ", "the client sees nothing of it");
    assert_eq!(scene.releases, [Cleanliness::Clean; 3]);
    assert!(scene.model.state().objects.settings.is_empty());
}

/// A client with a role that is gone would wipe each server that it gets.
#[test]
fn parameters_that_a_server_refuses_leave_the_statements_of_others() {
    let mut scene = scene();
    for name in ["a", "b", "c"] {
        scene.ask(&prepare(name, &format!("SELECT '{name}'")));
    }
    scene.ask(&query("SET app.x = 'a'"));
    scene.next_client(&[(b"log_statement", b"all")]);
    assert_eq!(scene.send(&query("SELECT 'a'")), Next::Wait);
    let mut steps = Vec::new();
    while !matches!(steps.last(), Some(ServerStep::Close(_))) {
        scene.model.receive(&scene.io.to_server.take());
        scene.model.run();
        let output = scene.model.take_output();
        assert!(!output.is_empty(), "{steps:?}");
        steps.push(
            scene.session.on_server(&output, &mut scene.state, &scene.io).expect("the model keeps to the protocol"),
        );
    }
    assert_eq!(steps, [ServerStep::Continue, ServerStep::Continue, ServerStep::Close(End::ParametersRefused)]);
    assert_eq!(tags(&scene.io.to_client.take()), "E");
    let recovery = scene.session.on_client_gone(&mut scene.state, None);
    assert_eq!(scene.recover(recovery), Recovered::Clean);
    assert_eq!(scene.model.statements(), 3);
}

/// On a server without anything of others, the parameters of the client are at fault.
#[test]
fn a_client_whose_own_parameters_fail_is_ended_and_its_statement_does_not_run() {
    let mut scene = Scene::new(SessionSettings::default(), &[(b"log_statement", b"all")]);
    assert_eq!(scene.send(&query("SELECT 'a'")), Next::Wait);
    let input = scene.io.to_server.take();
    scene.model.receive(&input);
    scene.model.run();
    let step = scene.session.on_server(&scene.model.take_output(), &mut scene.state, &scene.io);
    assert!(matches!(step, Ok(ServerStep::Close(End::ParametersRefused))), "{step:?}");
    assert_eq!(tags(&scene.io.to_client.take()), "E");
    assert!(scene.to_server().is_empty());
}

/// The gateway's statements are at the server for all clients.
#[test]
fn the_statements_of_the_gateway_are_out_of_reach_for_sql() {
    for text in ["EXECUTE weir_1", "EXECUTE \"weir_1\"", "DEALLOCATE weir_1", "SELECT 'b'; EXECUTE weir_1"] {
        let mut scene = scene();
        scene.ask(&prepare("s", "SELECT 'secret'"));
        scene.next_client(&[]);
        let reply = scene.ask(&query(text));
        assert_eq!(tags(&reply), "EZ", "{text}");
        assert!(reply.windows(5).any(|part| part == b"26000"), "{text}");
        assert_eq!(scene.model.statements(), 1, "{text}");
        assert_eq!(tags(&scene.ask(&[prepare("s", "SELECT 'secret'"), run("s")].concat())), "1Z2TDCZ");
        scene.ask(&query("BEGIN"));
        assert_eq!(scene.ask(&query(text)).last(), Some(&b'E'), "{text}: the block has failed, as without a gateway");
        scene.ask(&query("ROLLBACK"));
        assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean));
        let batch = [prepare("own", text), run("own")].concat();
        assert!(tags(&scene.ask(&batch)).starts_with("EZ"), "{text}");
        assert_eq!(scene.model.statements(), 1, "{text}");
    }
    let mut scene = scene();
    let reply = scene.ask(&query("PREPARE weir_1 AS SELECT 'mine'"));
    assert!(tags(&reply) == "EZ" && reply.windows(5).any(|part| part == b"42P05"));
    assert_eq!(tags(&scene.ask(&[prepare("s", "SELECT 'a'"), run("s")].concat())), "1Z2TDCZ", "the name is free");
}

/// At another server the login may not set what a role may set.
#[test]
fn a_parameter_that_only_a_role_may_set_pins_and_is_reset_with_its_client() {
    for [before, after] in [["SET ROLE 'adm'", "RESET ROLE"], ["BEGIN; SET LOCAL ROLE 'adm'", "COMMIT"]] {
        for set in ["SET log_statement = 'all'", "SELECT set_config('log_statement', 'all', false)"] {
            let mut scene = scene();
            scene.ask(&query(before));
            scene.ask(&query(set));
            scene.ask(&query(after));
            assert!(scene.is_attached, "{before}; {set}");
            assert_eq!(scene.session.pin().reasons, PinReasons::UNKNOWN_SETTING);
            let recovery = scene.session.on_client_gone(&mut scene.state, None);
            assert_eq!(scene.recover(recovery), Recovered::Clean);
            assert!(scene.model.state().objects.settings.is_empty());
        }
    }
    let mut scene = scene();
    scene.ask(&query("SET ROLE 'adm'; SET work_mem = '1MB'; SET app.x = '1'"));
    assert!(!scene.is_attached, "every user may set these");
}

/// The server has them all; what follows the client is bounded.
#[test]
fn a_client_with_too_many_parameters_keeps_its_server() {
    let mut scene = scene();
    for number in 0..256 {
        scene.ask(&query(&format!("SET app.k{number} = '1'")));
        assert!(!scene.is_attached, "{number}");
    }
    scene.ask(&query("SET app.more = '1'"));
    assert_eq!(scene.session.pin().reasons, PinReasons::UNKNOWN_SETTING);
    let recovery = scene.session.on_client_gone(&mut scene.state, None);
    assert_eq!(scene.recover(recovery), Recovered::Clean);
    assert!(scene.model.state().objects.settings.is_empty());
    scene.next_client(&[]);
    scene.ask(&query(&format!("SET app.large = '{}'", "x".repeat(70_000))));
    assert_eq!(scene.session.pin().reasons, PinReasons::UNKNOWN_SETTING);
}

/// Its query keeps the role, and the gateway would take it for gone.
#[test]
fn a_reset_of_the_configuration_that_keeps_the_role_is_not_enough() {
    for query_of_configuration in [&b"RESET ALL"[..], b"DEALLOCATE ALL", b"", b"DISCARD ALL"] {
        let mut scene = scene();
        scene.ask(&query("SET ROLE 'adm'"));
        scene.ask(&query("CREATE TEMP TABLE t1 (a int)"));
        let recovery = scene.session.on_client_gone(&mut scene.state, Some(query_of_configuration));
        assert_eq!(scene.recover(recovery), Recovered::Clean);
        assert!(scene.model.state().is_pristine() && scene.model.state().user().is_empty());
    }
}

/// Each is looked for with each Bind, and none is forgotten before its transaction ends.
#[test]
fn portals_of_a_transaction_are_bounded() {
    let bind = |number: usize| {
        bytes(|out| {
            frontend::bind(out, format!("p{number}").as_bytes(), b"s", []);
            frontend::sync(out);
        })
    };
    let mut scene = scene();
    scene.ask(&prepare("s", "SET app.x = '1'"));
    // With a lock it keeps the server from block to block.
    scene.ask(&query("SELECT pg_advisory_lock(1)"));
    for _ in 0..3 {
        scene.ask(&query("BEGIN"));
        for number in 0..200 {
            assert_eq!(tags(&scene.ask(&bind(number))), "2Z");
        }
        scene.ask(&query("COMMIT"));
        assert_eq!(scene.session.pin().reasons, PinReasons::ADVISORY_LOCK);
    }
    scene.ask(&query("BEGIN; SELECT 1/0"));
    for number in 0..300 {
        assert_eq!(tags(&scene.ask(&bind(number))), "EZ", "25P02");
    }
    assert_eq!(scene.session.pin().reasons, PinReasons::ADVISORY_LOCK | PinReasons::OPAQUE);
}

/// A server reads the whole replay in the encoding of its last client.
#[test]
fn parameters_are_replayed_in_the_encoding_of_their_client() {
    let latin: &[(&[u8], &[u8])] = &[(b"client_encoding", b"LATIN1"), (b"app.x", b"caf\xe9")];
    let mut scene = Scene::new(SessionSettings::default(), latin);
    let reply = scene.ask(&query("SHOW app.x"));
    assert!(tags(&reply) == "TDCZ" && reply.windows(4).any(|part| part == b"caf\xe9"), "{}", tags(&reply));
    // The server has LATIN1 now.
    scene.next_client(&[(b"app.x", "Zo\u{eb}".as_bytes())]);
    let reply = scene.ask(&query("SHOW app.x"));
    assert!(reply.windows(4).any(|part| part == "Zo\u{eb}".as_bytes()), "{}", String::from_utf8_lossy(&reply));
    assert_eq!(scene.model.state().value("app.x"), "Zo\u{eb}");
    assert_eq!(scene.releases, [Cleanliness::Clean; 2]);
}

/// The encoding is set, and the text behind it fails: the server must not keep it.
#[test]
fn an_encoding_in_front_of_parameters_that_fail_is_reset() {
    let parameters: &[(&[u8], &[u8])] = &[(b"client_encoding", b"LATIN1"), (b"log_statement", b"caf\xe9")];
    let mut scene = Scene::new(SessionSettings::default(), parameters);
    scene.send(&query("SELECT 'a'"));
    scene.model.receive(&scene.io.to_server.take());
    scene.model.run();
    let step = scene.session.on_server(&scene.model.take_output(), &mut scene.state, &scene.io);
    assert!(matches!(step, Ok(ServerStep::Close(End::ParametersRefused))), "{step:?}");
    let recovery = scene.session.on_client_gone(&mut scene.state, None);
    assert_eq!(scene.recover(recovery), Recovered::Clean);
    assert_eq!(scene.model.state().value("client_encoding"), "UTF8");
    assert!(scene.state.variables().iter().next().is_none());
}

/// The text of EXECUTE does not show what it does.
#[test]
fn an_execute_does_what_its_statement_does() {
    let cases = [
        ("SELECT pg_advisory_lock(1)", PinReasons::ADVISORY_LOCK),
        ("SELECT set_config('log_statement', $1, false)", PinReasons::UNKNOWN_SETTING),
    ];
    let direct = |name: &str| query(&format!("EXECUTE {name}"));
    for (text, reason) in cases {
        for execute in [direct, run] {
            let mut scene = scene();
            scene.ask(&query(&format!("PREPARE p AS {text}")));
            assert_eq!(scene.releases, [Cleanliness::Clean], "{text}");
            scene.ask(&query("SET ROLE 'adm'"));
            scene.ask(&execute("p"));
            assert!(scene.is_attached && scene.session.pin().reasons == reason, "{text}");
            let recovery = scene.session.on_client_gone(&mut scene.state, None);
            assert_eq!(scene.recover(recovery), Recovered::Clean);
            assert!(scene.model.state().is_pristine() && scene.model.state().objects.settings.is_empty(), "{text}");
        }
    }
    let mut scene = scene();
    scene.ask(&query("PREPARE p AS SELECT set_config('app.x', 'mine', false)"));
    scene.ask(&query("EXECUTE p"));
    scene.next_client(&[]);
    let reply = scene.ask(&query("SHOW app.x"));
    assert!(!reply.windows(4).any(|part| part == b"mine"), "the setting is known, and goes with its client");
}

#[test]
fn a_function_call_pins_unless_it_is_about_large_objects() {
    let call = |function: u32| bytes(|out| frontend::function_call(out, function, []));
    let mut scene = scene();
    assert_eq!(tags(&scene.ask(&call(952))), "VZ");
    assert_eq!(scene.releases, [Cleanliness::Clean]);
    for at in 1..call(ADVISORY_LOCK).len() {
        let (first, rest) = (&call(ADVISORY_LOCK)[..at], &call(ADVISORY_LOCK)[at..]);
        scene.send(first);
        assert_eq!(tags(&scene.ask(rest)), "VZ", "split at {at}");
        assert_eq!(scene.session.pin().reasons, PinReasons::OPAQUE);
        scene.ask(&query("DISCARD ALL"));
        assert!(!scene.is_attached && scene.model.state().is_pristine());
    }
}

#[test]
fn the_unnamed_statement_of_another_client_is_unknown_behind_a_move_to_another_worker() {
    let mut scene = scene();
    let whole = bytes(|out| {
        frontend::parse(out, b"", b"SELECT 'secret'", &[]);
        out.extend_from_slice(&run(""));
    });
    assert_eq!(tags(&scene.ask(&whole)), "12TDCZ");
    scene.move_to_worker();
    scene.next_client(&[]);
    let reply = scene.ask(&run(""));
    assert_eq!(tags(&reply), "EZ", "{}", String::from_utf8_lossy(&reply));
    assert!(reply.windows(5).any(|part| part == b"26000"));
}

/// The text of an unlock does not show whether there was a lock.
#[test]
fn a_client_keeps_its_server_until_it_has_no_advisory_lock() {
    let mut scene = scene();
    scene.ask(&query("SELECT pg_advisory_lock(1)"));
    scene.ask(&query("SELECT pg_advisory_lock(1)"));
    for unlock in ["SELECT pg_advisory_unlock(99)", "SELECT pg_advisory_unlock(1)", "SELECT pg_advisory_unlock(99)"] {
        assert_eq!(tags(&scene.ask(&query(unlock))), "TDCZ");
        assert!(scene.is_attached && scene.model.state().locks > 0, "{unlock}");
        assert_eq!(scene.session.pin().reasons, PinReasons::ADVISORY_LOCK);
    }
    scene.ask(&query("BEGIN"));
    scene.ask(&query("SELECT pg_advisory_unlock(1)"));
    assert_eq!(tags(&scene.ask(&query("COMMIT"))), "CZ");
    assert_eq!(scene.releases, [Cleanliness::Clean], "nothing is left to reset");
    scene.ask(&query("SELECT pg_advisory_lock(1)"));
    scene.ask(&query("SELECT pg_advisory_unlock_all()"));
    assert_eq!(scene.releases.len(), 2);
}

/// A cancel request that was on its way, or a `statement_timeout`: the client is idle, and would take the error for its next reply.
#[test]
fn the_look_for_locks_fails_without_a_word() {
    let mut scene = scene();
    scene.ask(&query("SELECT pg_advisory_lock(1)"));
    scene.send(&query("SELECT pg_advisory_unlock(1)"));
    assert!(scene.state.runs_request());
    scene.serve();
    assert_eq!(tags(&scene.io.to_client.take()), "TDCZ");
    assert!(!scene.state.runs_request() && scene.is_attached, "only the gateway's own statement is under way");
    scene.model.cancel();
    assert_eq!(tags(&scene.turn(usize::MAX)), "", "the client has its reply");
    assert!(scene.is_attached && scene.session.pin().reasons == PinReasons::ADVISORY_LOCK);
    assert!(scene.to_server().is_empty(), "it is not tried without end");
    assert_eq!(tags(&scene.ask(&query("SELECT 'a'"))), "TDCZ");
    assert!(!scene.is_attached, "the next look finds no lock");
}

/// The CREATE does not say that its table is temporary.
#[test]
fn a_path_of_temporary_objects_pins_wherever_it_comes_from() {
    let startup: [&[(&[u8], &[u8])]; 2] = [&[(b"search_path", b"pg_temp")], &[(b"options", b"-c search_path=pg_temp")]];
    let texts = ["SELECT set_config('search_path', 'pg_temp', false)", "SET search_path = pg_temp", "DISCARD ALL"];
    let cases = texts.map(|text| (&[][..], text)).into_iter().take(2);
    for (startup, text) in cases.chain(startup.map(|startup| (startup, "SELECT 'a'"))).chain([(startup[0], texts[2])]) {
        let mut scene = Scene::new(SessionSettings::default(), startup);
        scene.ask(&query(text));
        assert_eq!(tags(&scene.ask(&query("CREATE TABLE t1 (a int)"))), "CZ", "{text}");
        assert_eq!(scene.session.pin().reasons, PinReasons::TEMPORARY_TABLE, "{text}");
        let recovery = scene.session.on_client_gone(&mut scene.state, None);
        assert_eq!(scene.recover(recovery), Recovered::Clean, "{text}");
        scene.next_client(&[]);
        let reply = scene.ask(&query("SELECT a FROM t1"));
        assert!(reply.windows(5).any(|part| part == b"42P01"), "{text}");
    }
}

#[test]
fn the_end_of_the_last_channel_ends_the_pin() {
    let mut scene = unshared();
    for text in ["LISTEN a", "LISTEN a", "LISTEN b", "UNLISTEN a"] {
        scene.ask(&query(text));
        assert!(scene.is_attached, "{text}");
    }
    scene.ask(&query("UNLISTEN b"));
    assert!(!scene.is_attached && scene.model.state().is_pristine());
    assert_eq!(scene.releases, [Cleanliness::Clean], "nothing is left to reset");
}

/// Prepared statements stay with their client: each name costs memory.
#[test]
fn p13_statements_of_sql_and_their_bytes_count_as_those_of_the_protocol_do() {
    let settings =
        SessionSettings { client_statements_max: 3, client_statement_bytes_max: 950, ..SessionSettings::default() };
    let sql = |name: &str, text: &str| query(&format!("PREPARE {name} AS SELECT '{text}'"));
    let large = "x".repeat(900);
    let mut scene = Scene::new(settings, &[]);
    scene.ask(&sql("a", "1"));
    scene.ask(&prepare("b", "SELECT 'b'"));
    assert_eq!(tags(&scene.ask(&sql("c", &large))), "EZ", "bytes");
    assert_eq!(tags(&scene.ask(&prepare("c", &format!("SELECT '{large}'")))), "EZ");
    assert_eq!(tags(&scene.ask(&query("PREPARE c AS SELECT '1'; PREPARE d AS SELECT '1'"))), "EZ", "names");
    assert_eq!(tags(&scene.ask(&sql("c", "3"))), "CZ");
    let refused = scene.ask(&sql("d", "4"));
    assert!(tags(&refused) == "EZ" && refused.windows(5).any(|part| part == b"53000"));
    for end in ["DEALLOCATE a", "DEALLOCATE ALL"] {
        scene.ask(&query(end));
        assert_eq!(tags(&scene.ask(&sql("a", "5"))), "CZ", "{end}");
    }
    assert_eq!(tags(&scene.ask(&sql("l", &large))), "CZ", "there is room again");
    assert_eq!(scene.session.statements(), 2);
}

/// The Query is over when its client is gone, and the Parse behind it has had its effect before.
#[test]
fn a_statement_that_was_parsed_behind_a_query_is_known_when_its_client_vanishes() {
    let mut scene = scene();
    scene.send(&query("SELECT 'a'"));
    scene.send(&bytes(|out| {
        frontend::parse(out, b"", b"SELECT 'secret'", &[]);
        frontend::sync(out);
    }));
    let recovery = scene.session.on_client_gone(&mut scene.state, None);
    assert_eq!(scene.recover(recovery), Recovered::Clean);
    scene.next_client(&[]);
    assert_eq!(tags(&scene.ask(&run(""))), "EZ");
}

/// A reset that is under way must not end the pin of what comes behind it.
#[test]
fn a_function_call_waits_for_a_discard_before_it() {
    let mut scene = scene();
    let call = bytes(|out| frontend::function_call(out, ADVISORY_LOCK, []));
    assert_eq!(tags(&scene.ask(&[query("DISCARD ALL"), call].concat())), "CZVZ");
    assert!(scene.is_attached && scene.session.pin().reasons == PinReasons::OPAQUE);
}

/// The first of two outstanding ones has its reply; the second fails yet, and takes no later one along.
#[test]
fn an_unnamed_statement_behind_one_that_fails_is_known() {
    let mut scene = scene();
    let parse = |text: &str| bytes(|out| frontend::parse(out, b"", text.as_bytes(), &[]));
    scene.send(&[parse("SELECT 'a'"), parse("nonsense"), bytes(frontend::sync)].concat());
    scene.model.receive(&scene.io.to_server.take());
    scene.model.run();
    let output = scene.model.take_output();
    scene.reply(&output[..5]);
    scene.send(&[parse("SELECT 'secret'"), bytes(frontend::sync)].concat());
    scene.reply(&output[5..]);
    assert_eq!(tags(&scene.turn(usize::MAX)), "1EZ1Z");
    scene.next_client(&[]);
    assert_eq!(tags(&scene.ask(&run(""))), "EZ");
}

/// The name is there only with the reply.
#[test]
fn a_close_behind_a_prepare_of_sql_closes_it() {
    let mut scene = scene();
    let close = bytes(|out| {
        frontend::close(out, Kind::Statement, b"q");
        frontend::sync(out);
    });
    assert_eq!(tags(&scene.ask(&[query("PREPARE q AS SELECT 'q'"), close].concat())), "CZ3Z");
    assert_eq!(tags(&scene.ask(&query("EXECUTE q"))), "EZ");
    assert_eq!(scene.model.statements(), 0);
}

/// The Sync of a COPY counts for nothing if it comes before the data: the batch is open.
#[test]
fn a_deallocate_that_the_gateway_executes_ends_an_open_batch() {
    let mut scene = scene();
    scene.ask(&prepare("s", "SELECT 'a'"));
    scene.ask(&bytes(|out| {
        frontend::parse(out, b"", b"COPY t FROM STDIN", &[]);
        frontend::bind(out, b"", b"", []);
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    }));
    assert_eq!(tags(&scene.ask(&bytes(frontend::copy_done))), "C");
    assert_eq!(tags(&scene.ask(&query("DEALLOCATE s"))), "CZ");
    let reply = scene.ask(&bytes(|out| {
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    }));
    assert!(tags(&reply) == "EZ" && reply.windows(5).any(|part| part == b"34000"));
}
