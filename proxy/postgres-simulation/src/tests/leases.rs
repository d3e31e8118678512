//! A client without work for a server gives it back, whatever has just happened.

use weir_postgres_codec::frontend;
use weir_postgres_session::{Cleanliness, Next, Recovered, Refusal};

use super::scene::tags;
use super::{bytes, prepare, query, scene};

/// PDO sends it as the last thing of a request.
#[test]
fn a_deallocate_of_a_statement_of_the_protocol_needs_no_server() {
    let mut scene = scene();
    scene.ask(&prepare("s", "SELECT 'a'"));
    assert_eq!(scene.send_unserved(&query("DEALLOCATE s")), Next::More);
    assert_eq!(tags(&scene.io.to_client.take()), "CZ");
    assert!(scene.session.busy_since().is_none() && !scene.is_attached);
    assert_eq!(tags(&scene.ask(&super::run("s"))), "EZ", "the name is gone");
}

/// The client holds a server when it sends the statement, and nothing is due behind it.
#[test]
fn a_server_goes_back_behind_a_statement_that_the_gateway_answers() {
    let mut scene = scene();
    scene.ask(&prepare("s", "SELECT 'a'"));
    // A message that needs a server is looked at again with it: its channel is refused meanwhile.
    scene.io.is_slow.set(true);
    assert!(matches!(scene.send_unserved(&query("BEGIN; LISTEN a")), Next::NeedServer(_) | Next::Wait));
    scene.io.is_slow.set(false);
    assert!(matches!(scene.send_unserved(b""), Next::NeedServer(_)));
    scene.is_attached = true;
    *scene.io.refusal.borrow_mut() = Some(Refusal::error("53400", "too many channels"));
    assert_eq!(scene.pump(), Next::More);
    assert_eq!(tags(&scene.io.to_client.take()), "EZ");
    assert!(!scene.is_attached, "nothing was sent to the server");
    assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean));
}

/// libpq sends pieces of 8 KiB: the error of a bad row nearly always comes within one.
#[test]
fn a_copy_that_fails_while_data_are_half_sent_gives_its_server_back() {
    let mut scene = scene();
    let data = bytes(|out| frontend::copy_data(out, b"bad"));
    assert_eq!(tags(&scene.ask(&query("COPY t FROM STDIN"))), "G");
    scene.send(&data);
    let half = bytes(|out| frontend::copy_data(out, &[b'1'; 8_000]));
    scene.send(&half[..4_000]);
    assert_eq!(tags(&scene.turn(usize::MAX)), "EZ");
    assert!(scene.is_attached, "the rest of the message belongs to this server");
    scene.send(&half[4_000..]);
    scene.send(&bytes(frontend::copy_done));
    assert!(!scene.is_attached && scene.session.busy_since().is_none());
    assert_eq!(scene.releases, [Cleanliness::Clean]);
    scene.next_client(&[]);
    assert_eq!(tags(&scene.ask(&query("SELECT 'b'"))), "TDCZ", "the server ignores the rest of the data");
}

/// Batch jobs that fail would turn a pool of transactions into one of sessions.
#[test]
fn what_was_rolled_back_pins_nothing() {
    let made = ["CREATE TEMP TABLE t1 (a int)", "DECLARE c1 CURSOR WITH HOLD FOR SELECT 1"];
    for made in made {
        for [begin, end] in [
            ["BEGIN", "ROLLBACK"],
            ["BEGIN; SAVEPOINT a", "ROLLBACK TO SAVEPOINT a; COMMIT"],
            ["BEGIN; SAVEPOINT a; SAVEPOINT b", "RELEASE SAVEPOINT b; ROLLBACK TO SAVEPOINT a; COMMIT"],
        ] {
            let mut scene = scene();
            for text in [begin, made, end] {
                scene.ask(&query(text));
            }
            assert!(!scene.is_attached && scene.model.state().is_pristine(), "{begin}; {made}; {end}");
            assert_eq!(scene.releases, [Cleanliness::Clean], "{begin}; {made}; {end}");
        }
        let mut scene = scene();
        scene.ask(&query(&format!("{made}; SELECT 1/0")));
        assert_eq!(scene.releases, [Cleanliness::Clean], "{made}");
        for commit in ["BEGIN; SAVEPOINT a; {}; RELEASE SAVEPOINT a; COMMIT", "{}", "BEGIN; {}; COMMIT; SELECT 1/0"] {
            let mut scene = super::scene();
            scene.ask(&query(&commit.replace("{}", made)));
            assert!(scene.is_attached && scene.session.pin().is_held(), "{commit}: {made}");
        }
    }
}

/// Its COMMIT is on its way when the client is gone.
#[test]
fn a_commit_that_no_client_sees_leaves_a_server_that_is_reset() {
    let mut scene = scene();
    scene.ask(&query("BEGIN; CREATE TEMP TABLE t1 (a int)"));
    scene.send(&query("COMMIT"));
    let recovery = scene.session.on_client_gone(&mut scene.state, None);
    assert_eq!(scene.recover(recovery), Recovered::Clean);
    assert!(scene.model.state().is_pristine());
}
