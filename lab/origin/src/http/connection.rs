//! One connection: chunks in, replies out.

use std::{io, rc::Rc, time::Duration};

use socket2::Socket;
use weir_base::limits;
use weir_engine::{Stream, StreamOptions, Watermarks, spawn};

use super::session::{Progress, Replies, Session};
use crate::server::{Open, add};

/// Unsent bytes of replies at which a client stops being read.
pub const HIGH_WATER_BYTES: usize = limits::WRITE_HIGH_WATER_BYTES as usize;

/// How long the last replies may take to leave a connection that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves an accepted socket on this worker.
pub fn admit(replies: &Rc<Replies>, socket: Socket) {
    let marks = Watermarks { high: HIGH_WATER_BYTES, low: limits::WRITE_LOW_WATER_BYTES as usize };
    // A socket that refuses its options has lost its peer.
    let Ok(stream) = Stream::new(socket, StreamOptions { marks }) else { return };
    add(&replies.stats.accepted, 1);
    spawn(serve(replies.clone(), stream)).detach();
}

async fn serve(replies: Rc<Replies>, mut stream: Stream) {
    let open = Open::new(&replies.stats, replies.connections_max);
    match open {
        // An error means that the client is gone: there is nobody to tell.
        Some(_) => drop(exchange(&replies, &mut stream).await),
        None => stream.output.with(|out| Replies::refuse(503, out)),
    }
    stream.close(CLOSE_TIMEOUT).await;
}

/// Answers until either side ends the connection. All requests of a chunk are answered in one run of appends, which leave in
/// one send at the end of the loop turn.
async fn exchange(replies: &Replies, stream: &mut Stream) -> io::Result<()> {
    let mut session = Session::default();
    while let Some(chunk) = stream.reader.receive().await? {
        let mut progress = stream.output.with(|out| session.answer(&chunk, replies, out));
        // Back to the pool before anything is waited for.
        drop(chunk);
        while stream.output.is_congested() {
            stream.output.relieved().await;
            if stream.output.is_closed() {
                return Ok(());
            }
            if progress == Progress::Congested {
                progress = stream.output.with(|out| session.answer(&[], replies, out));
            }
        }
        if progress == Progress::Ended {
            break;
        }
    }
    Ok(())
}
