//! One connection of the generator: made, read, and made again when it is lost.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use weir_base::limits;
use weir_engine::settings::Address;
use weir_engine::{Stream, StreamOptions, Watermarks, net, sleep, spawn, timeout};

use super::generator::Generator;
use super::replies::{Broken, Replies};
use super::tally::End;
use crate::requests::Preload;

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

async fn connect(target: &Address) -> io::Result<Stream> {
    let marks =
        Watermarks { high: limits::WRITE_HIGH_WATER_BYTES as usize, low: limits::WRITE_LOW_WATER_BYTES as usize };
    Stream::new(net::connect(target, CONNECT_TIMEOUT).await?, StreamOptions { marks })
}

/// `count` connections to `target`.
///
/// # Errors
/// The first refusal.
pub(super) async fn connect_all(target: &Address, count: usize) -> io::Result<Vec<Stream>> {
    let mut streams = Vec::new();
    while streams.len() < count {
        let wave = CONNECTS_AT_ONCE.min(count - streams.len());
        let connecting = (0..wave).map(|_| {
            let target = target.clone();
            spawn(async move { connect(&target).await })
        });
        for one in connecting.collect::<Vec<_>>() {
            streams.push(one.await.map_err(|_| io::Error::other("a connection attempt was cut short"))??);
        }
    }
    Ok(streams)
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

/// Keeps connection `at` of the generator standing, for ever. It begins with `stream`.
pub(super) async fn keep(generator: Rc<Generator>, at: usize, mut stream: Stream) {
    loop {
        let end = read(&generator, at, stream).await;
        generator.disconnected(at, end);
        let mut pause = BACKOFF_MIN;
        stream = loop {
            sleep(pause).await;
            match connect(&generator.target).await {
                Ok(stream) => break stream,
                Err(_) => pause = (pause * 2).min(BACKOFF_MAX),
            }
        };
    }
}

/// Reads replies until the connection ends.
async fn read(generator: &Generator, at: usize, mut stream: Stream) -> End<'static> {
    let queue = generator.connected(at, &stream);
    let mut replies = Replies::new(Replies::bytes_max(&generator.scenario));
    loop {
        let Ok(Some(chunk)) = stream.reader.receive().await else { return End::Lost };
        generator.received(chunk.len());
        let taken = replies.take(&chunk, |reply| generator.answered(at, &queue, reply));
        generator.bell.ring();
        if taken == Err(Broken) {
            return End::Protocol;
        }
    }
}
