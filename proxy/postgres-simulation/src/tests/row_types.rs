//! Clients that know the row type of a statement, and servers that prepare it after a change.

use weir_postgres_codec::{TransactionStatus, backend, frontend, frontend::Kind};
use weir_postgres_session::io::Event;
use weir_postgres_session::{Cleanliness, Next};

use super::scene::{Scene, tags};
use super::{bytes, prepare, query, run, scene};

const CHANGED: &str = "cached plan must not change result type";

/// Parse and Describe of a statement that reads `t`, and Sync.
fn learn(name: &str) -> Vec<u8> {
    learn_text(name, "SELECT 'a'")
}

/// The same of any text.
fn learn_text(name: &str, text: &str) -> Vec<u8> {
    bytes(|out| {
        frontend::parse(out, name.as_bytes(), text.as_bytes(), &[]);
        frontend::describe(out, Kind::Statement, name.as_bytes());
        frontend::sync(out);
    })
}

/// Bind, Execute and Sync, as a driver sends them that knows the row type.
fn use_known(name: &str) -> Vec<u8> {
    bytes(|out| {
        frontend::bind(out, b"", name.as_bytes(), []);
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    })
}

/// The pool has another server for the next message, of which the table has this version.
fn exchange(scene: &mut Scene, version: u64) {
    scene.exchange_server();
    scene.model.versions.insert("t".into(), version);
}

fn closed(name: &str) -> Vec<u8> {
    bytes(|out| frontend::close(out, Kind::Statement, name.as_bytes()))
}

#[test]
fn rows_of_another_type_at_another_server_are_refused_as_at_one_of_its_own() {
    for piece in [1, usize::MAX] {
        let mut scene = scene();
        scene.ask(&learn("s"));
        exchange(&mut scene, 1);
        for _ in 0..2 {
            scene.send(&use_known("s"));
            let reply = scene.turn(piece);
            assert_eq!(tags(&reply), "EZ");
            assert!(String::from_utf8_lossy(&reply).contains(CHANGED));
        }
        assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean));
        assert_eq!(tags(&scene.ask(&[closed("s"), learn("s")].concat())), "31tTZ");
        assert_eq!(tags(&scene.ask(&use_known("s"))), "2DCZ");
        assert_eq!(scene.model.statements(), 1);
    }
}

#[test]
fn the_same_row_type_at_another_server_is_no_error() {
    for piece in [1, usize::MAX] {
        let mut scene = scene();
        scene.ask(&learn("s"));
        exchange(&mut scene, 0);
        scene.send(&[use_known("s"), use_known("s")].concat());
        assert_eq!(tags(&scene.turn(piece)), "2DCZ2DCZ");
        assert_eq!(scene.model.statements(), 1);
        assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean));
    }
}

/// A driver such as that of Java describes the first portal, and keeps the result for the statement.
#[test]
fn a_client_learns_the_row_type_from_a_portal_as_well() {
    let mut scene = scene();
    scene.ask(&prepare("s", "SELECT 'a'"));
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ");
    exchange(&mut scene, 1);
    assert_eq!(tags(&scene.ask(&use_known("s"))), "EZ");
}

/// The portal that is described was bound to another statement.
#[test]
fn a_portal_says_nothing_of_a_statement_that_was_bound_to_another() {
    let mut scene = scene();
    scene.ask(&[prepare("s", "SELECT 'a'"), prepare("other", "SELECT 'b'")].concat());
    let both = bytes(|out| {
        frontend::bind(out, b"one", b"s", []);
        frontend::bind(out, b"two", b"other", []);
        frontend::describe(out, Kind::Portal, b"one");
        frontend::sync(out);
    });
    assert_eq!(tags(&scene.ask(&both)), "22TZ");
    exchange(&mut scene, 1);
    assert_eq!(tags(&scene.ask(&use_known("other"))), "2DCZ");
}

/// No client has described it there, so it may be of before or after the change.
#[test]
fn a_statement_of_another_client_is_prepared_again_before_it_is_used() {
    for (version, expected) in [(0, "2DCZ"), (1, "EZ")] {
        let mut scene = scene();
        scene.ask(&learn("s"));
        let knows = scene.next_client(&[]);
        exchange(&mut scene, version);
        scene.ask(&prepare("mine", "SELECT 'a'"));
        scene.session = knows;
        assert_eq!(tags(&scene.ask(&use_known("s"))), expected);
        assert_eq!(scene.model.statements(), 1, "the first is closed");
    }
}

/// It was described at the server after the change, by a client that may use it.
#[test]
fn a_statement_that_another_client_has_described_serves_those_with_the_same_row_type() {
    let mut scene = scene();
    exchange(&mut scene, 1);
    scene.ask(&learn("s"));
    scene.move_to_worker();
    scene.next_client(&[]);
    scene.ask(&learn("mine"));
    scene.io.to_server.take();
    scene.send(&use_known("mine"));
    assert!(scene.to_server().starts_with(b"B"), "no Parse is needed");
    assert_eq!(tags(&scene.turn(usize::MAX)), "2DCZ");
}

#[test]
fn the_error_of_another_row_type_ends_its_block_and_what_its_batch_has_done() {
    let mut scene = scene();
    scene.ask(&[learn("s"), prepare("other", "SELECT 'b'")].concat());
    exchange(&mut scene, 1);
    assert_eq!(scene.ask(&query("BEGIN")).last(), Some(&b'T'));
    let reply = scene.ask(&use_known("s"));
    assert_eq!((tags(&reply).as_str(), reply.last()), ("EZ", Some(&b'E')));
    assert_eq!(tags(&scene.ask(&use_known("s"))), "EZ");
    assert_eq!(scene.ask(&query("ROLLBACK")).last(), Some(&b'I'));
    let batch = bytes(|out| {
        for name in ["other", "s", "other"] {
            frontend::bind(out, b"", name.as_bytes(), []);
            frontend::execute(out, b"", 0);
        }
        frontend::sync(out);
    });
    assert_eq!(tags(&scene.ask(&batch)), "2DCEZ", "the last is skipped");
}

/// Whether the block has failed is not known when the Bind comes.
#[test]
fn a_bind_behind_an_error_that_is_on_its_way_gets_the_error_of_the_block() {
    let mut scene = scene();
    scene.ask(&learn("s"));
    let input = [query("BEGIN"), query("SELECT 1/0"), use_known("s"), query("ROLLBACK"), use_known("s")].concat();
    for (version, last) in [(0, "2DCZ"), (1, "EZ")] {
        exchange(&mut scene, version);
        assert_eq!(tags(&scene.ask(&input)), format!("CZEZEZCZ{last}"));
        exchange(&mut scene, version);
        assert_eq!(tags(&scene.ask(&[query("BEGIN"), query("SELECT 1/0")].concat())), "CZEZ");
        assert_eq!(tags(&scene.ask(&[query("ROLLBACK"), use_known("s")].concat())), format!("CZ{last}"));
    }
}

/// Each piece of an earlier reply brings the Bind to the machine again.
#[test]
fn a_bind_that_waits_has_its_statement_prepared_once() {
    let mut scene = scene();
    scene.ask(&learn("s"));
    exchange(&mut scene, 0);
    let before = scene.io.count_of(Event::ServerParse);
    scene.send(&[query("SELECT 'b'"), query("SELECT 'c'"), use_known("s")].concat());
    assert_eq!(tags(&scene.turn(1)), "TDCZTDCZ2DCZ");
    assert_eq!(scene.io.count_of(Event::ServerParse), before + 1);
}

/// The server skips the Close of the outdated statement, and has to get it later.
#[test]
fn a_statement_whose_close_was_skipped_is_closed_later() {
    let mut scene = scene();
    scene.ask(&learn("s"));
    let knows = scene.next_client(&[]);
    exchange(&mut scene, 0);
    scene.ask(&prepare("mine", "SELECT 'a'"));
    scene.session = knows;
    let fails = bytes(|out| frontend::bind(out, b"", b"none", []));
    assert_eq!(tags(&scene.ask(&[fails, use_known("s")].concat())), "EZ");
    assert_eq!(tags(&scene.ask(&use_known("s"))), "2DCZ");
    assert_eq!(scene.model.statements(), 1);
}

/// Another client, which does not know the row type, has its batch repeated.
#[test]
fn a_statement_that_was_healed_for_another_client_is_described_again() {
    let mut scene = scene();
    scene.ask(&learn("s"));
    scene.ask(&query("ALTER TABLE t ADD b INT"));
    let knows = scene.next_client(&[]);
    assert_eq!(tags(&scene.ask(&[prepare("mine", "SELECT 'a'"), use_known("mine")].concat())), "1Z2DCZ");
    assert_eq!(scene.io.count_of(Event::Heal), 1);
    scene.session = knows;
    assert_eq!(tags(&scene.ask(&use_known("s"))), "EZ");
}

/// To repeat the batch would prepare both again.
#[test]
fn a_batch_with_a_statement_whose_row_type_is_known_is_not_repeated() {
    let mut scene = scene();
    scene.ask(&[learn("s"), prepare("new", "SELECT 'b'")].concat());
    scene.ask(&query("ALTER TABLE t ADD b INT"));
    let both = bytes(|out| {
        for name in ["new", "s"] {
            frontend::bind(out, b"", name.as_bytes(), []);
            frontend::execute(out, b"", 0);
        }
        frontend::sync(out);
    });
    assert_eq!(tags(&scene.ask(&both)), "EZ");
    assert_eq!(scene.io.count_of(Event::Heal), 0);
    assert_eq!(tags(&scene.ask(&use_known("s"))), "EZ");
}

/// The text may not be sent in an encoding in which it reads as another.
#[test]
fn k5_a_text_of_another_encoding_is_not_prepared_again_to_learn_its_row_type() {
    let mut scene = scene();
    let text = "SELECT '\u{e9}'";
    assert_eq!(tags(&scene.ask(&learn_text("s", text))), "1tTZ");
    let knows = scene.next_client(&[]);
    exchange(&mut scene, 0);
    scene.ask(&prepare("mine", text));
    scene.session = knows;
    scene.ask(&query("SET client_encoding = 'GBK'"));
    assert_eq!(tags(&scene.ask(&use_known("s"))), "EZ");
    scene.ask(&query("SET client_encoding = 'UTF8'"));
    assert_eq!(tags(&scene.ask(&use_known("s"))), "2DCZ");
}

/// A CALL of a procedure that gives no rows any more, for example. The statement would be prepared again without end.
#[test]
fn a_statement_that_has_no_rows_at_another_server_is_refused_once() {
    let mut scene = scene();
    scene.ask(&learn("s"));
    exchange(&mut scene, 0);
    scene.send(&use_known("s"));
    assert_eq!(tags(&scene.io.to_server.take()), "PDH");
    let replies = bytes(|out| {
        backend::parse_complete(out);
        backend::parameter_description(out, []);
        backend::no_data(out);
    });
    scene.reply(&replies);
    assert_eq!(tags(&scene.to_server()), "BS", "a Bind that fails; the rest of the batch is skipped");
    let reply = scene.turn(usize::MAX);
    assert_eq!(tags(&reply), "EZ");
    assert!(String::from_utf8_lossy(&reply).contains(CHANGED));
}

/// Its rows are those of the cursor at the time, at a server of the client's own as well.
#[test]
fn a_fetch_is_not_compared() {
    let mut scene = scene();
    scene.send(&learn_text("s", "FETCH 1 FROM c1"));
    scene.io.to_server.take();
    let replies = bytes(|out| {
        backend::parse_complete(out);
        backend::parameter_description(out, []);
        backend::row_description(out, [backend::Column::text(b"a", 23, 4)]);
        backend::ready_for_query(out, TransactionStatus::Idle);
    });
    scene.reply(&replies);
    exchange(&mut scene, 1);
    scene.send(&use_known("s"));
    assert_eq!(tags(&scene.to_server()), "PBES");
}

/// Each server takes the parameters of the client before it is lost.
#[test]
fn a_bind_whose_servers_take_the_parameters_and_are_lost_goes_to_another_a_few_times() {
    let mut scene = scene();
    scene.ask(&[learn("s"), query("SET app.tenant = 'a'")].concat());
    exchange(&mut scene, 0);
    scene.send(&use_known("s"));
    for round in 0..4 {
        assert_eq!(tags(&scene.to_server()), "Q", "round {round}");
        scene.reply(&bytes(|out| {
            backend::command_complete(out, b"SET");
            backend::ready_for_query(out, TransactionStatus::Idle);
        }));
        scene.io.to_server.take();
        scene.pump();
        scene.session.on_server_lost(&mut scene.state, &scene.io);
        scene.is_attached = false;
        exchange(&mut scene, 0);
        scene.io.to_server.take();
        scene.pump();
    }
    let error = scene.io.to_client.take();
    assert!(tags(&error).starts_with('E'), "{}", tags(&error));
}

/// Only what the gateway itself has sent is lost with the server.
#[test]
fn a_bind_that_waits_when_its_server_is_lost_goes_to_another_a_few_times() {
    let mut scene = scene();
    scene.ask(&learn("s"));
    exchange(&mut scene, 0);
    scene.send(&use_known("s"));
    for _ in 0..3 {
        assert_eq!(scene.session.on_server_lost(&mut scene.state, &scene.io), Next::More);
        scene.is_attached = false;
        exchange(&mut scene, 0);
        scene.io.to_server.take();
        scene.pump();
        assert_eq!(tags(&scene.to_server()), "PDH");
    }
    scene.session.on_server_lost(&mut scene.state, &scene.io);
    scene.is_attached = false;
    exchange(&mut scene, 0);
    scene.io.to_server.take();
    scene.pump();
    assert_eq!(tags(&scene.ask(b"")), "EZ");
    assert_eq!(tags(&scene.ask(&use_known("s"))), "2DCZ");
}
