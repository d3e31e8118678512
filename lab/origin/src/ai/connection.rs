//! One connection: requests in, replies out, one after the other.

use std::{rc::Rc, time::Duration};

use socket2::Socket;
use weir_base::limits;
use weir_engine::{Stream, StreamOptions, Watermarks, spawn};

use super::{
    error::Refusal,
    respond::respond,
    server::Shared,
    settings::REQUEST_BYTES_MAX,
    stream::{Flow, Line, send},
};
use crate::{
    input::{Input, Next},
    server::{Open, add},
};

/// Unsent bytes of replies at which nothing more is written.
const HIGH_WATER_BYTES: usize = limits::WRITE_HIGH_WATER_BYTES as usize;

/// How long the last replies may take to leave a connection that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves an accepted socket on this worker.
pub fn admit(shared: &Rc<Shared>, socket: Socket) {
    let marks = Watermarks { high: HIGH_WATER_BYTES, low: limits::WRITE_LOW_WATER_BYTES as usize };
    // A socket that refuses its options has lost its peer.
    let Ok(stream) = Stream::new(socket, StreamOptions { marks }) else { return };
    add(&shared.stats.accepted, 1);
    spawn(serve(shared.clone(), stream)).detach();
}

async fn serve(shared: Rc<Shared>, mut stream: Stream) {
    let open = Open::new(&shared.stats, shared.connections_max);
    if open.is_none() {
        let whole = Refusal::new(503, "overloaded", "too many connections").reply(false);
        stream.output.with(|out| super::stream::write_whole(&whole, &Line::LAST, out));
        return stream.close(CLOSE_TIMEOUT).await;
    }
    match exchange(&shared, &mut stream).await {
        Flow::Reset => stream.reset(),
        _ => stream.close(CLOSE_TIMEOUT).await,
    }
}

/// Responds until either side ends the connection.
async fn exchange(shared: &Shared, stream: &mut Stream) -> Flow {
    let mut input = Input::new(REQUEST_BYTES_MAX);
    loop {
        let received = match input.next(stream).await {
            Ok(Next::Request(received)) => received,
            Ok(Next::Refused(status)) => {
                let whole = Refusal::new(status, "", "the request broke a rule of HTTP").reply(false);
                stream.output.with(|out| super::stream::write_whole(&whole, &Line::LAST, out));
                return Flow::End;
            }
            Ok(Next::Ended) | Err(_) => return Flow::End,
        };
        add(&shared.stats.requests, 1);
        let reply = respond(shared, &received.head, &received.body);
        let line = Line { is_persistent: received.head.is_persistent(), is_head: received.head.method() == b"HEAD" };
        input.reuse(received.head);
        match send(shared, stream, reply, line).await {
            Flow::Next if line.is_persistent => {}
            Flow::Next => return Flow::End,
            other => return other,
        }
        while stream.output.is_congested() {
            stream.output.relieved().await;
            if stream.output.is_closed() {
                return Flow::End;
            }
        }
    }
}
