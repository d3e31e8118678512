//! S11: a distance to the client, or to the server, costs a small request no more round trips than without a gateway, and a large message
//! at most twice the time.

use std::time::{Duration, Instant};

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::message::Flags;
use weir_tests::gateway::Gateway;
use weir_tests::isolation::Link;
use weir_tests::mongodb::fake::{Act, Fake, honest};
use weir_tests::mongodb::wire::{Wire, message};

use super::is_served;
use crate::gateway::{before, port};

const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Small requests, one after the other. One round trip more for each would double their time.
const REQUESTS: usize = 40;
/// Bytes each way.
const BYTES: usize = 4_000_000;
/// The time that a debug build and a busy machine add.
const ROOM: Duration = Duration::from_millis(600);

/// Small requests, a large reply and a large request; each with its time, and whether it is one of many round trips.
fn times(port: u16) -> [(&'static str, Duration, bool); 3] {
    let mut wire = Wire::connect(port);
    // The first request has the connection to its server.
    is_served(&mut wire);
    let mut timed = |work: &mut dyn FnMut(&mut Wire)| {
        let begun = Instant::now();
        work(&mut wire);
        begun.elapsed()
    };
    let small = timed(&mut |wire| (0..REQUESTS).for_each(|_| is_served(wire)));
    let down = timed(&mut |wire| {
        let reply = wire.call(|body| {
            body.string("aggregate", "notes");
            body.string("$db", "test");
        });
        assert_eq!(reply.text(&["text"]).len(), BYTES);
    });
    let text = "x".repeat(BYTES);
    let large = message(1, Flags::empty(), |body: &mut Writer<'_>| {
        body.string("update", "notes");
        body.string("text", &text);
        body.string("$db", "test");
    });
    let up = timed(&mut |wire| {
        wire.send(&large).expect("sent");
        let reply = wire.reply().expect("a reply");
        assert!(reply.is_ok(), "{reply:?}");
    });
    [("small requests", small, true), ("down", down, false), ("up", up, false)]
}

#[test]
fn s11_a_distance_costs_no_more_round_trips_than_without_a_gateway() {
    let server = Fake::start(|asked| match asked.name {
        "aggregate" => Act::reply(|body| body.string("text", "x".repeat(BYTES))),
        _ => honest(asked),
    });
    let far = Link::before(&server.address, ROUND_TRIP);
    let direct = times(far.address.tcp().port());
    let near = Gateway::start(before(&server.address, "", ""));
    let to_gateway = Link::before(&near.address, ROUND_TRIP);
    let distant = Gateway::start(before(&far.address, "", ""));
    for (place, port) in [("clients are far", to_gateway.address.tcp().port()), ("the server is far", port(&distant))] {
        for ((what, through, is_of_trips), (_, direct, _)) in times(port).into_iter().zip(direct) {
            let allowed = ROOM + if is_of_trips { direct + direct / 4 } else { direct * 2 };
            assert!(through <= allowed, "{place}, {what}: {through:?}, directly {direct:?}");
        }
    }
    drop(to_gateway);
    near.finish();
    distant.finish();
}
