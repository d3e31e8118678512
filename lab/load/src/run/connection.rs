//! One connection of the generator: made, read, and made again when it is lost.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_base::limits;
use weir_engine::settings::Address;
use weir_engine::{Stream, StreamOptions, Watermarks, net, sleep, spawn, timeout};

use super::generator::Generator;
use super::tally::End;
use crate::protocols::Seat;
use crate::scenario::Scenario;
use crate::shard::Shard;
use crate::wire::{StreamError, Wire};

/// Default 5 s: what a target on the same network never needs.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections made at the same time by one shard. Default 64: quick, and below the accept queue of any server.
const CONNECTS_AT_ONCE: usize = 64;
/// Pause before a lost connection is made again, doubled after each refusal. A target that closes at once must not turn
/// the generator into a connection flood.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A connection on which the first request may be sent.
pub(super) struct Line {
    pub(super) stream: Stream,
    pub(super) wire: Box<dyn Wire>,
}

/// Why a connection does not stand.
pub(super) enum Refusal {
    /// There is none.
    Connect(io::Error),
    /// It does not speak the protocol; a sentence for people.
    Protocol(String),
}

pub(super) async fn connect(target: &Address, scenario: &Scenario, seat: Seat) -> Result<Line, Refusal> {
    let marks =
        Watermarks { high: limits::WRITE_HIGH_WATER_BYTES as usize, low: limits::WRITE_LOW_WATER_BYTES as usize };
    let socket = net::connect(target, CONNECT_TIMEOUT).await.map_err(Refusal::Connect)?;
    let mut stream = Stream::new(socket, StreamOptions { marks }).map_err(Refusal::Connect)?;
    let mut wire = scenario.protocol.wire(scenario, seat);
    match timeout(CONNECT_TIMEOUT, wire.begin(&mut stream, scenario)).await {
        Ok(begun) => begun.map_err(Refusal::Protocol)?,
        Err(_) => return Err(Refusal::Protocol(format!("it sent nothing within {CONNECT_TIMEOUT:?}"))),
    }
    Ok(Line { stream, wire })
}

/// `count` connections to `target`.
///
/// # Errors
/// The first refusal.
pub(super) async fn connect_all(
    target: &Address,
    scenario: &Arc<Scenario>,
    shard: Shard,
    count: usize,
) -> Result<Vec<Line>, Refusal> {
    let mut lines = Vec::new();
    while lines.len() < count {
        let wave = CONNECTS_AT_ONCE.min(count - lines.len());
        let connecting = (lines.len()..lines.len() + wave).map(|at| {
            let (target, scenario) = (target.clone(), scenario.clone());
            spawn(async move { connect(&target, &scenario, Seat { shard, at }).await })
        });
        for one in connecting.collect::<Vec<_>>() {
            let cut = |_| Refusal::Connect(io::Error::other("a connection attempt was cut short"));
            lines.push(one.await.map_err(cut)??);
        }
    }
    Ok(lines)
}

/// Keeps connection `at` of the generator standing, for ever. It begins with `line`.
pub(super) async fn keep(generator: Rc<Generator>, at: usize, mut line: Line) {
    loop {
        let end = read(&generator, at, line).await;
        generator.disconnected(at, end);
        let mut pause = BACKOFF_MIN;
        line = loop {
            sleep(pause).await;
            match connect(&generator.target, &generator.scenario, Seat { shard: generator.shard, at }).await {
                Ok(line) => break line,
                Err(_) => pause = (pause * 2).min(BACKOFF_MAX),
            }
        };
    }
}

/// Reads replies until the connection ends.
async fn read(generator: &Generator, at: usize, line: Line) -> End<'static> {
    let Line { mut stream, mut wire } = line;
    let queue = generator.connected(at, &stream, wire.sender());
    let mut out = Vec::new();
    loop {
        let chunk = match stream.reader.receive().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                // The reply whose end it is, if there is one: what else is under way is lost either way.
                let _ = wire.finish(&mut |of, reply| generator.on_reply(at, &queue, of, reply));
                return End::Lost;
            }
            Err(_) => return End::Lost,
        };
        generator.received(chunk.len());
        let taken = wire.take(&chunk, &mut out, &mut |of, reply| generator.on_reply(at, &queue, of, reply));
        generator.bell.ring();
        if !out.is_empty() {
            stream.output.append(&out);
            out.clear();
        }
        match taken {
            Err(StreamError) => return End::Protocol,
            Ok(leaving) if generator.leave(at, &queue, leaving) => return End::Lost,
            Ok(_) => {}
        }
    }
}
