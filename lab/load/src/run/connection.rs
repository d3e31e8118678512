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
use super::wire::{Broken, Replies, Wire};
use crate::requests::Preload;
use crate::scenario::Scenario;

/// Default 5 s: what a target on the same network never needs.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections made at the same time by one shard. Default 64: quick, and below the accept queue of any server.
const CONNECTS_AT_ONCE: usize = 64;
/// Pause before a lost connection is made again, doubled after each refusal. A target that closes at once must not turn
/// the generator into a connection flood.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// SETs of the preload under way at a time, and their bytes: one round trip for each batch.
const PRELOAD_BATCH: usize = 512;
const PRELOAD_BATCH_BYTES: usize = 1 << 20;
/// For the replies to one batch. Default 10 s.
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection on which the first request may be sent.
pub(super) struct Line {
    pub(super) stream: Stream,
    pub(super) wire: Wire,
}

/// Why a connection does not stand.
pub(super) enum Refusal {
    /// There is none.
    Connect(io::Error),
    /// It does not speak the protocol; a sentence for people.
    Protocol(String),
}

async fn connect(target: &Address, scenario: &Scenario) -> Result<Line, Refusal> {
    let marks =
        Watermarks { high: limits::WRITE_HIGH_WATER_BYTES as usize, low: limits::WRITE_LOW_WATER_BYTES as usize };
    let socket = net::connect(target, CONNECT_TIMEOUT).await.map_err(Refusal::Connect)?;
    let mut stream = Stream::new(socket, StreamOptions { marks }).map_err(Refusal::Connect)?;
    let wire = Wire::begin(scenario, &mut stream, CONNECT_TIMEOUT).await.map_err(Refusal::Protocol)?;
    Ok(Line { stream, wire })
}

/// `count` connections to `target`.
///
/// # Errors
/// The first refusal.
pub(super) async fn connect_all(
    target: &Address,
    scenario: &Arc<Scenario>,
    count: usize,
) -> Result<Vec<Line>, Refusal> {
    let mut lines = Vec::new();
    while lines.len() < count {
        let wave = CONNECTS_AT_ONCE.min(count - lines.len());
        let connecting = (0..wave).map(|_| {
            let (target, scenario) = (target.clone(), scenario.clone());
            spawn(async move { connect(&target, &scenario).await })
        });
        for one in connecting.collect::<Vec<_>>() {
            let cut = |_| Refusal::Connect(io::Error::other("a connection attempt was cut short"));
            lines.push(one.await.map_err(cut)??);
        }
    }
    Ok(lines)
}

/// Writes the keys of this shard.
///
/// # Errors
/// What the target answered instead of OK, or did.
pub(super) async fn preload(stream: &mut Stream, preload: &mut Preload, bytes_max: usize) -> Result<(), String> {
    let mut replies = Replies::new(bytes_max);
    loop {
        let mut wanted = 0;
        stream.output.with(|out| {
            while wanted < PRELOAD_BATCH && out.len() < PRELOAD_BATCH_BYTES && preload.write_next(out) {
                wanted += 1;
            }
        });
        if wanted == 0 {
            return Ok(());
        }
        let mut refusal = None;
        while wanted > 0 {
            let chunk = timeout(PRELOAD_TIMEOUT, stream.reader.receive()).await;
            let chunk = chunk.map_err(|_| format!("no reply within {PRELOAD_TIMEOUT:?}"))?;
            let chunk = chunk.map_err(|error| error.to_string())?.ok_or("it closed the connection")?;
            let each = |reply: &[u8]| {
                if reply != b"+OK\r\n" {
                    refusal = Some(String::from_utf8_lossy(reply).trim_end().to_owned());
                }
                wanted = usize::checked_sub(wanted, 1).ok_or(Broken)?;
                Ok(())
            };
            replies.take(&chunk, each).map_err(|Broken| "its reply is not RESP".to_owned())?;
        }
        if let Some(reply) = refusal {
            return Err(format!("it answered {reply:?} to a SET"));
        }
    }
}

/// Keeps connection `at` of the generator standing, for ever. It begins with `line`.
pub(super) async fn keep(generator: Rc<Generator>, at: usize, mut line: Line) {
    loop {
        let end = read(&generator, at, line).await;
        generator.disconnected(at, end);
        let mut pause = BACKOFF_MIN;
        line = loop {
            sleep(pause).await;
            match connect(&generator.target, &generator.scenario).await {
                Ok(line) => break line,
                Err(_) => pause = (pause * 2).min(BACKOFF_MAX),
            }
        };
    }
}

/// Reads replies until the connection ends.
async fn read(generator: &Generator, at: usize, line: Line) -> End<'static> {
    let Line { mut stream, mut wire } = line;
    let queue = generator.connected(at, &stream, &wire);
    let mut out = Vec::new();
    loop {
        let chunk = match stream.reader.receive().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                // The answer whose end it is, if there is one: what else is under way is lost either way.
                let _ = wire.finish(|of, reply| generator.answered(at, &queue, of, reply));
                return End::Lost;
            }
            Err(_) => return End::Lost,
        };
        generator.received(chunk.len());
        let taken = wire.take(&chunk, &mut out, |of, reply| generator.answered(at, &queue, of, reply));
        generator.bell.ring();
        if !out.is_empty() {
            stream.output.append(&out);
            out.clear();
        }
        match taken {
            Err(Broken) => return End::Protocol,
            Ok(leaving) if generator.leave(at, &queue, leaving) => return End::Lost,
            Ok(_) => {}
        }
    }
}
