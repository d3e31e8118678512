//! S11: a distance to the client, or to the server, costs no more round trips than without a gateway.

use std::time::{Duration, Instant};

use weir_tests::gateway::Gateway;
use weir_tests::isolation::Link;
use weir_tests::postgres::torture::wire::{SYNC, V3_0, Wire, message, parse, query, run};
use weir_tests::postgres::{Major, Options, Postgres, USER};

use crate::gateway::{before, before_address};
use crate::hostile::value;

const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Bytes each way.
const BYTES: usize = 4_000_000;
/// The time that a debug build and a busy machine add.
const ROOM: Duration = Duration::from_millis(600);

/// Transfers down and up, and ten small transactions of each protocol; each with its time.
fn times(port: u16) -> [(&'static str, Duration); 4] {
    let mut wire = Wire::connect_with(port, V3_0, &["user", USER, "database", USER]).expect("a login");
    // The first transaction has the login of its server.
    value(&mut wire, "set datestyle = 'German'; create temporary table sink (t text)");
    let timed = |work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        begun.elapsed()
    };
    let down = timed(&mut || {
        let rows = wire.query(&format!("select repeat('x', 1000) from generate_series(1, {})", BYTES / 1000));
        assert_eq!(rows.expect("a result").rows.len(), BYTES / 1000);
    });
    let up = timed(&mut || {
        assert!(wire.query("copy sink from stdin").expect("a reply").wants_copy);
        let line = message(b'd', format!("{}\n", "x".repeat(999)).as_bytes());
        wire.send(&line.repeat(BYTES / 1000)).expect("sent");
        wire.send(&message(b'c', b"")).expect("sent");
        assert_eq!(wire.reply().expect("a reply").tags, [format!("COPY {}", BYTES / 1000)]);
    });
    value(&mut wire, "discard all");
    value(&mut wire, "set datestyle = 'German'");
    let simple = timed(&mut || {
        for _ in 0..10 {
            wire.send(&query("select current_setting('datestyle')")).expect("sent");
            assert!(wire.reply().expect("a reply").rows[0][0].starts_with("German"));
        }
    });
    let extended = timed(&mut || {
        for n in 0..10 {
            wire.send(&[parse("", "select $1::text"), run("", &[&n.to_string()]), SYNC.to_vec()].concat())
                .expect("sent");
            assert_eq!(wire.reply().expect("a reply").rows, [[n.to_string()]]);
        }
    });
    [("down", down), ("up", up), ("ten queries", simple), ("ten batches", extended)]
}

/// Another client leaves its own parameters behind at the only server: each transaction begins with a difference.
#[test]
fn s11_a_distance_costs_at_most_twice_the_time_without_a_gateway() {
    let hba = vec![format!("host all {USER} 127.0.0.1/32 trust")];
    let server = Postgres::start_with(Major::Fifteen, Options { hba, ..Options::default() });
    let folder = tempfile::tempdir().expect("a folder");
    let far_server = Link::before(&server.address, ROUND_TRIP);
    let far = Gateway::start(before_address(&far_server.address, folder.path(), "", "pool_size = 1"));
    let near = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let far_client = Link::before(&near.address, ROUND_TRIP);
    let port = |address: &weir_tests::stream::Address| address.tcp().port();
    let direct = times(port(&far_server.address));
    for (way, port) in [("the client is far", port(&far_client.address)), ("the server is far", port(&far.address))] {
        for ((what, took), (_, direct)) in times(port).into_iter().zip(direct) {
            eprintln!("{way}: {what} {took:?}, directly {direct:?}");
            assert!(took <= direct * 2 + ROOM, "{way}: {what} takes {took:?}, directly {direct:?}");
        }
    }
    changes_hands(&far);
}

/// Two clients with parameters of their own take turns: the difference travels with the statement.
fn changes_hands(gateway: &Gateway) {
    let mut clients: Vec<Wire> = (0..2).map(|_| crate::hostile::login(gateway)).collect();
    for (client, style) in clients.iter_mut().zip(["SQL", "German"]) {
        value(client, &format!("set datestyle = '{style}'"));
    }
    // The first replay of a set of parameters is waited for.
    for client in &mut clients {
        value(client, "select 1");
    }
    let begun = Instant::now();
    for _ in 0..5 {
        for (client, style) in clients.iter_mut().zip(["SQL", "German"]) {
            assert!(value(client, "show datestyle").starts_with(style));
        }
    }
    let allowed = ROUND_TRIP * 10 * 2 + ROOM;
    assert!(begun.elapsed() <= allowed, "ten transactions with a replay each take {:?}", begun.elapsed());
}
