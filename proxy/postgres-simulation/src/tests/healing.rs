//! Batches with statements whose tables have changed.

use weir_base::Rng;
use weir_postgres_codec::{frontend, frontend::Kind};
use weir_postgres_session::Cleanliness;
use weir_postgres_session::io::Event;

use super::scene::{Scene, tags};
use super::{bytes, prepare, query, run, scene};

/// Bind and Execute.
fn pair(name: &str) -> Vec<u8> {
    bytes(|out| {
        frontend::bind(out, b"", name.as_bytes(), []);
        frontend::execute(out, b"", 0);
    })
}

/// A client with statements of two tables, which its server has from others.
fn with_two_tables() -> Scene {
    let mut scene = scene();
    scene.ask(&query("CREATE TEMP TABLE t1 (a int)"));
    scene.ask(&prepare("s1", "SELECT 'a'"));
    scene.ask(&prepare("s2", "SELECT a FROM t1"));
    scene
}

/// The first statement of the implicit transaction has been reported as done: the client has to learn that it is rolled back.
#[test]
fn an_outdated_plan_behind_replies_in_the_same_piece_is_an_error() {
    for (ends, expected) in [(frontend::sync as fn(&mut Vec<u8>), "2DCEZ"), (frontend::flush, "2DCE")] {
        for piece in [1, usize::MAX] {
            let mut scene = scene();
            scene.ask(&prepare("s1", "SELECT 'a'"));
            scene.ask(&prepare("s2", "SELECT a FROM t1"));
            scene.ask(&query("ALTER TABLE t1 ADD b INT"));
            assert!(!scene.is_attached, "the names are certain: the whole pipeline is sent at once");
            scene.send(&[pair("s1"), pair("s2"), bytes(ends)].concat());
            assert_eq!(tags(&scene.turn(piece)), expected, "{piece}");
            assert_eq!(scene.io.count_of(Event::Heal), 0);
        }
    }
}

/// No text shows that the function drops what the gateway has prepared for all clients.
#[test]
fn statements_that_a_function_has_dropped_are_prepared_again() {
    for piece in [1, usize::MAX] {
        let mut scene = scene();
        scene.model.names_missing = true;
        scene.ask(&[prepare("s", "SELECT 'a'"), run("s"), prepare("r", "SELECT 'b'"), run("r")].concat());
        scene.ask(&query("SELECT drop_statements()"));
        assert_eq!(scene.model.statements(), 0);
        scene.send(&run("s"));
        assert_eq!(tags(&scene.turn(piece)), "2TDCZ", "the client has used it before, and gets no error");
        assert_eq!(scene.io.count_of(Event::Heal), 1);
        assert_eq!(scene.releases.last(), Some(&Cleanliness::Dirty), "what else the function did is unknown");
        scene.next_client(&[]);
        assert_eq!(tags(&scene.ask(&[prepare("mine", "SELECT 'b'"), run("mine")].concat())), "1Z2TDCZ");
        assert_eq!(scene.model.statements(), 1);
    }
}

/// A batch that cannot run again has the error, and the next one works.
#[test]
fn a_block_gets_the_error_of_a_statement_that_a_function_has_dropped() {
    let mut scene = scene();
    scene.model.names_missing = true;
    scene.ask(&[prepare("s", "SELECT 'a'"), run("s")].concat());
    scene.ask(&query("SELECT drop_statements()"));
    scene.ask(&query("BEGIN"));
    assert_eq!(tags(&scene.ask(&run("s"))), "EZ");
    scene.ask(&query("ROLLBACK"));
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ");
}

/// Whatever a pipeline has, and however its replies are cut: a batch is there as a whole, or with an error at its end.
#[test]
fn each_batch_of_a_pipeline_is_whole_or_has_its_error() {
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed);
        let mut scene = with_two_tables();
        let mut batches = Vec::new();
        for _ in 0..1 + rng.below(5) {
            if rng.below(2) == 0 {
                let table = ["t", "t1"][rng.below(2) as usize];
                scene.ask(&query(&format!("ALTER TABLE {table} ADD b INT")));
            }
            let mut input = Vec::new();
            for _ in 0..1 + rng.below(3) {
                let mut whole = String::new();
                for _ in 0..1 + rng.below(3) {
                    let name = ["s1", "s2"][rng.below(2) as usize];
                    if rng.below(4) == 0 {
                        frontend::describe(&mut input, Kind::Statement, name.as_bytes());
                        whole += "tT";
                    }
                    input.extend_from_slice(&pair(name));
                    whole += if name == "s1" { "2DC" } else { "2C" };
                }
                frontend::sync(&mut input);
                batches.push(whole);
            }
            scene.send(&input);
            let piece = [1, 7, usize::MAX][rng.below(3) as usize];
            let got = tags(&scene.turn(piece));
            let mut replies = got.split_terminator('Z');
            for whole in batches.drain(..) {
                let reply = replies.next().expect("each Sync has its ReadyForQuery");
                let is_right = match reply.strip_suffix('E') {
                    Some(before) => whole.starts_with(before),
                    None => reply == whole,
                };
                assert!(is_right, "seed {seed}: {reply} for {whole}");
            }
            assert_eq!(replies.next(), None, "seed {seed}");
        }
    }
}
