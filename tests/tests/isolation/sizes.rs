//! S7: messages at and around every size at which the code path changes, pipelined, mixed with small ones.

use std::io::Result;

use weir_tests::gateway::Gateway;
use weir_tests::isolation::{Ask, Cell, Extent, Protocol, connect, every};
use weir_tests::stream::Address;

/// Buffers, `stream_bytes` and frames; lengths of frames' headers; marks of outputs; more than any of them.
const SIZES: [usize; 6] = [126, 16 << 10, 64 << 10, 256 << 10, 1 << 20, (1 << 20) + 300_000];

/// Sizes of a run of large ones without anything small between them.
const RUN: [usize; 4] = [70_000, (64 << 10) + 1, 300_000, 110_000];
/// How often a pipeline has that run.
const RUNS: usize = 12;

/// Asks for all of them in one go; how many came back changed.
fn changed(
    protocol: &dyn Protocol,
    address: &Address,
    sizes: impl Iterator<Item = usize>,
    round: usize,
) -> Result<usize> {
    let mut caller = protocol.caller(connect(address)?)?;
    let asks: Vec<(Ask, Vec<u8>)> = sizes
        .enumerate()
        .map(|(at, size)| (Ask::Echo(size), (0..size).map(|byte| (byte * 7 + at * 31 + round) as u8).collect()))
        .collect();
    let responses = caller.exchange(&asks)?;
    Ok(responses.iter().zip(&asks).filter(|(response, (_, sent))| *response != sent).count())
}

/// Large ones behind small ones, and behind each other.
fn mixed(protocol: &dyn Protocol, address: &Address, round: usize) -> Result<usize> {
    let around = SIZES.iter().flat_map(|size| [10, size - 1, *size, size + 1, 20]);
    let run = (0..RUNS).flat_map(|_| RUN);
    Ok(changed(protocol, address, around, round)? + changed(protocol, address, run, round)?)
}

fn row(protocol: &'static dyn Protocol, extent: Extent, servers: usize) -> Cell {
    let origins: Vec<_> = (0..servers).map(|_| protocol.origin()).collect();
    let addresses: Vec<Address> = origins.iter().map(|origin| origin.address()).collect();
    let gateway = Gateway::start(protocol.config(&addresses));
    let rounds = extent.pick(2, 20);
    let mut faults = Vec::new();
    for round in 0..rounds {
        match mixed(protocol, &gateway.address, round) {
            Ok(0) => {}
            Ok(changed) => faults.push(format!("round {round}: {changed} came back changed")),
            Err(error) => faults.push(format!("round {round}: {error}")),
        }
    }
    Cell::figure(format!("{} of {rounds} pipelines as sent", rounds - faults.len()), faults)
}

#[test]
fn s7_messages_of_every_size_are_the_same_behind_the_gateway() {
    every("S7", |protocol, extent| {
        let one = ("sizes around each limit, one server".to_owned(), row(protocol, extent, 1));
        let three = match protocol.name() {
            "Redis" => row(protocol, extent, 3),
            _ => Cell::None("endpoints are alike: which one is chosen changes no message"),
        };
        vec![one, ("sizes around each limit, three shards".to_owned(), three)]
    });
}
