//! One connection: chunks in, the same out.

use std::{io, rc::Rc, sync::Arc, time::Duration};

use socket2::Socket;
use weir_base::{Time, limits};
use weir_engine::{Stream, StreamOptions, Watermarks, spawn};

use crate::{
    delayed_replies::{DelayedReplies, Event},
    server::{Open, WorkerStats, add},
};

/// Unsent bytes at which a client stops being read.
const HIGH_WATER_BYTES: usize = limits::WRITE_HIGH_WATER_BYTES as usize;

/// How long the last bytes may take to leave a connection that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Terms of all connections of one worker.
pub(super) struct Terms {
    pub(super) delay: Duration,
    pub(super) connections_max: usize,
    pub(super) stats: Arc<WorkerStats>,
}

/// Serves an accepted socket on this worker.
pub(super) fn admit(terms: &Rc<Terms>, socket: Socket) {
    let marks = Watermarks { high: HIGH_WATER_BYTES, low: limits::WRITE_LOW_WATER_BYTES as usize };
    // A socket that refuses its options has lost its peer.
    let Ok(stream) = Stream::new(socket, StreamOptions { marks }) else { return };
    add(&terms.stats.accepted, 1);
    spawn(serve(terms.clone(), stream)).detach();
}

async fn serve(terms: Rc<Terms>, mut stream: Stream) {
    let open = Open::new(&terms.stats, terms.connections_max);
    if open.is_some() {
        // An error means that the client is gone: no one is left to report it to.
        drop(match terms.delay.is_zero() {
            true => echo(&terms, &mut stream).await,
            false => delayed(&terms, &mut stream).await,
        });
    }
    stream.close(CLOSE_TIMEOUT).await;
}

async fn echo(terms: &Terms, stream: &mut Stream) -> io::Result<()> {
    while !stream.output.is_closed() {
        if stream.output.is_congested() {
            stream.output.relieved().await;
            continue;
        }
        let Some(chunk) = stream.reader.receive().await? else { return Ok(()) };
        add(&terms.stats.requests, 1);
        stream.output.append(&chunk);
    }
    Ok(())
}

/// The same, where each chunk goes back after the delay.
async fn delayed(terms: &Terms, stream: &mut Stream) -> io::Result<()> {
    let (mut held, mut has_input) = (DelayedReplies::default(), true);
    while !stream.output.is_closed() {
        if stream.output.is_congested() {
            stream.output.relieved().await;
            continue;
        }
        if !has_input && held.is_empty() {
            return Ok(());
        }
        let reads = has_input && held.bytes < HIGH_WATER_BYTES;
        match held.next(&mut stream.reader, reads).await {
            Event::Due => {
                while let Some(bytes) = held.pop(Time::now()) {
                    stream.output.append(&bytes);
                }
            }
            Event::Input(chunk) => match chunk? {
                None => has_input = false,
                Some(chunk) => {
                    add(&terms.stats.requests, 1);
                    held.push(Time::now().saturating_add(terms.delay), chunk.to_vec());
                }
            },
        }
    }
    Ok(())
}
