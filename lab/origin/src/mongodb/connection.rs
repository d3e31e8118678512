//! One connection: chunks in, replies out, held back if there is a delay.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use socket2::Socket;
use weir_base::{Time, limits};
use weir_engine::{Chunk, Reader, Stream, StreamOptions, Watermarks, sleep, spawn};

use super::session::Session;
use super::state::Core;
use crate::{
    delayed_replies::DelayedReplies,
    server::{Open, add},
};

/// Unsent bytes of replies at which a client stops being read.
pub(super) const HIGH_WATER_BYTES: usize = limits::WRITE_HIGH_WATER_BYTES as usize;

/// Bytes that a client may send while a request of it waits. 64 KiB: it should wait as well, and is read to see its end.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// How long the last replies may take to leave a connection that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves an accepted socket on this worker.
pub(super) fn admit(core: &Rc<Core>, socket: Socket) {
    let marks = Watermarks { high: HIGH_WATER_BYTES, low: limits::WRITE_LOW_WATER_BYTES as usize };
    // A socket that refuses its options has lost its peer.
    let Ok(stream) = Stream::new(socket, StreamOptions { marks }) else { return };
    add(&core.stats.accepted, 1);
    spawn(serve(core.clone(), stream)).detach();
}

async fn serve(core: Rc<Core>, mut stream: Stream) {
    // A server with too many connections closes the next one without a word.
    let Some(_open) = Open::new(&core.stats, core.settings.connections_max) else {
        return stream.close(CLOSE_TIMEOUT).await;
    };
    let mut connection = Connection { session: Session::new(&core), kept: Vec::new(), held: DelayedReplies::default() };
    // An error means that the client is gone: no one is left to report it to.
    drop(connection.exchange(&core, &mut stream).await);
    connection.session.leave(&core);
    stream.close(CLOSE_TIMEOUT).await;
}

struct Connection {
    session: Session,
    /// Bytes of the client that are not answered yet.
    kept: Vec<u8>,
    /// Replies that are not due yet.
    held: DelayedReplies,
}

/// The earliest event.
enum Event {
    Input(io::Result<Option<Chunk>>),
    Due,
}

impl Connection {
    /// Responds until either side ends the connection.
    async fn exchange(&mut self, core: &Core, stream: &mut Stream) -> io::Result<()> {
        let mut has_input = true;
        while !stream.output.is_closed() {
            if stream.output.is_congested() {
                stream.output.relieved().await;
                continue;
            }
            let now = Time::now();
            while let Some(bytes) = self.held.pop(now) {
                stream.output.append(&bytes);
            }
            if self.held.bytes < HIGH_WATER_BYTES && self.go_on(core, now, stream) {
                continue;
            }
            let due = [self.session.due(), self.held.first_due()].into_iter().flatten().min();
            if due.is_none() && (self.session.is_closing() || !has_input) {
                return Ok(());
            }
            let has_room = self.session.due().is_none() || self.kept.len() < KEPT_BYTES_MAX;
            let reads = has_input && has_room && !self.session.is_closing() && self.held.bytes < HIGH_WATER_BYTES;
            match next(&mut stream.reader, reads, due).await {
                Event::Due => {}
                Event::Input(chunk) => match chunk? {
                    Some(chunk) => self.take(core, &chunk, stream),
                    // A client that leaves does not wait.
                    None if self.session.due().is_some() => return Ok(()),
                    None => has_input = false,
                },
            }
        }
        Ok(())
    }

    /// Work that needs no further input; false: there is none.
    fn go_on(&mut self, core: &Core, now: Time, stream: &Stream) -> bool {
        if self.kept.is_empty() && self.session.due().is_none() {
            return false;
        }
        let (session, kept) = (&mut self.session, &mut self.kept);
        let work = |out: &mut Vec<u8>| {
            let used = session.respond(core, now, kept, out);
            kept.drain(..used);
            used > 0 || session.go_on(core, now, out)
        };
        output(&mut self.held, core, now, stream, work)
    }

    fn take(&mut self, core: &Core, chunk: &[u8], stream: &Stream) {
        if !self.kept.is_empty() || self.session.due().is_some() {
            self.kept.extend_from_slice(chunk);
            return;
        }
        let now = Time::now();
        let session = &mut self.session;
        let used = output(&mut self.held, core, now, stream, |out| session.respond(core, now, chunk, out));
        // An idle connection has no room for what is not there.
        self.kept = chunk[used..].to_vec();
    }
}

/// Gives the replies that `work` writes to the client: at once, or behind the delay.
fn output<T>(
    held: &mut DelayedReplies,
    core: &Core,
    now: Time,
    stream: &Stream,
    work: impl FnOnce(&mut Vec<u8>) -> T,
) -> T {
    let delay = core.settings.delay;
    if delay.is_zero() {
        return stream.output.with(work);
    }
    let mut reply = Vec::new();
    let done = work(&mut reply);
    held.push(now.saturating_add(delay), reply);
    done
}

/// The next chunk, if `reads`, or the time `due`.
async fn next(reader: &mut Reader, reads: bool, due: Option<Time>) -> Event {
    let Some(due) = due else { return Event::Input(reader.receive().await) };
    let mut timer = pin!(sleep(due.since(Time::now())));
    poll_fn(|context| {
        if timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Event::Due);
        }
        match reads {
            true => reader.poll_receive(context).map(Event::Input),
            false => Poll::Pending,
        }
    })
    .await
}
