//! One connection: chunks in, replies out.

use std::{io, rc::Rc, time::Duration};

use socket2::Socket;
use weir_base::limits;
use weir_engine::{Stream, StreamOptions, Watermarks, spawn};
use weir_resp::encode;

use super::{
    core::Core,
    delay,
    errors::CLIENTS_MAX,
    requests::{Progress, Requests},
    session::Session,
};
use crate::server::{Open, add};

/// Unsent bytes of replies at which a client stops being read.
pub const HIGH_WATER_BYTES: usize = limits::WRITE_HIGH_WATER_BYTES as usize;

/// How long the last replies may take to leave a connection that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves an accepted socket on this worker.
pub fn admit(core: &Rc<Core>, socket: Socket) {
    let marks = Watermarks { high: HIGH_WATER_BYTES, low: limits::WRITE_LOW_WATER_BYTES as usize };
    // A socket that refuses its options has lost its peer.
    let Ok(stream) = Stream::new(socket, StreamOptions { marks }) else { return };
    add(&core.stats.accepted, 1);
    spawn(serve(core.clone(), stream)).detach();
}

async fn serve(core: Rc<Core>, mut stream: Stream) {
    let Some(_open) = Open::new(&core.stats, core.settings.connections_max) else {
        stream.output.with(|out| encode::error(out, CLIENTS_MAX.text()));
        return stream.close(CLOSE_TIMEOUT).await;
    };
    let mut session = Session::new(&core, stream.output.clone(), stream.cutter());
    // An error means that the client is gone: no one is left to report it to.
    let _ = match core.settings.faults.is_timed() {
        true => delay::exchange(&core, &mut session, &mut stream).await,
        false => exchange(&core, &mut session, &mut stream).await,
    };
    session.leave(&core);
    stream.close(CLOSE_TIMEOUT).await;
}

/// Replies until either side ends the connection. All commands of a chunk are answered in one run of appends, which
/// leave in one send at the end of the loop turn.
async fn exchange(core: &Core, session: &mut Session, stream: &mut Stream) -> io::Result<()> {
    let mut requests = Requests::new(core.memory.clone());
    while !session.is_closing {
        let Some(chunk) = stream.reader.receive().await? else { break };
        let mut progress = stream.output.with(|out| requests.execute(&chunk, core, session, out));
        // Back to the pool before anything is waited for.
        drop(chunk);
        while stream.output.is_congested() {
            stream.output.relieved().await;
            if stream.output.is_closed() {
                return Ok(());
            }
            if progress == Progress::Congested {
                progress = stream.output.with(|out| requests.resume(core, session, out));
            }
        }
    }
    Ok(())
}
