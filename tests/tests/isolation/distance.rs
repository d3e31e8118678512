//! S11: distance, towards clients and towards servers.

use std::time::Duration;

use weir_tests::isolation::{Ask, Cell, Link, Protocol, Stand, every, transferred};

/// Limit for a transfer over a distance, as a multiple of the best peer's time: the same client without a gateway.
const FACTOR_MAX: u32 = 2;
/// The time that a debug build and a busy machine add.
const ROOM: Duration = Duration::from_millis(600);

fn row(protocol: &'static dyn Protocol, ask: &Ask, round_trip: Duration) -> Cell {
    let near = Stand::start(protocol);
    near.origin.prepare(ask);
    let towards_server = Link::before(&near.origin.address(), round_trip);
    let far = weir_tests::gateway::Gateway::start(protocol.config(std::slice::from_ref(&towards_server.address)));
    let towards_client = Link::before(&near.gateway.address, round_trip);
    let direct = transferred(protocol, &towards_server.address, ask);
    let allowed = direct.as_ref().map_or(ROOM, |direct| *direct * FACTOR_MAX + ROOM);
    let mut texts = Vec::new();
    let mut faults = Vec::new();
    let ways = [("client far", &towards_client.address), ("server far", &far.address)];
    for (name, address) in ways {
        match transferred(protocol, address, ask) {
            Ok(took) => {
                texts.push(format!("{name} {:.2} s", took.as_secs_f64()));
                if took > allowed {
                    faults.push(format!("{name}: {} ms, directly {direct:?}", took.as_millis()));
                }
            }
            Err(error) => {
                texts.push(format!("{name}: {error}"));
                faults.push(format!("{name}: {error}"));
            }
        }
    }
    match direct {
        Ok(took) => texts.push(format!("direct {:.2} s", took.as_secs_f64())),
        Err(error) => faults.push(format!("direct: {error}")),
    }
    drop(towards_client);
    Cell::figure(texts.join(", "), faults)
}

#[test]
fn s11_distance_costs_no_more_than_without_a_gateway() {
    every("S11", |protocol, extent| {
        let length = extent.pick(4_000_000, 20_000_000);
        let distances = extent.pick(&[50][..], &[0, 20, 50, 100]);
        let mut rows = Vec::new();
        for distance in distances {
            for (name, ask) in [("down", Ask::Bytes(length)), ("up", Ask::Sink(length))] {
                let name = format!("{} MB {name} over {distance} ms", length / 1_000_000);
                rows.push((name, row(protocol, &ask, Duration::from_millis(*distance))));
            }
        }
        rows
    });
}
