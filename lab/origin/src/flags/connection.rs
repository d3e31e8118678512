//! One connection: requests in, replies out, one after the other.

use std::{rc::Rc, time::Duration};

use socket2::Socket;
use weir_base::limits;
use weir_engine::{Stream, StreamOptions, Watermarks, sleep, spawn};
use weir_http_codec::{BodyLength, encode};

use super::{
    respond::{Reply, Whole, respond},
    route::endpoint,
    server::Shared,
    settings::REQUEST_BYTES_MAX,
    streaming,
};
use crate::{
    input::{Input, Next, Received},
    server::{Open, add},
};

/// Unsent bytes of replies at which nothing more is written.
const HIGH_WATER_BYTES: usize = limits::WRITE_HIGH_WATER_BYTES as usize;

/// How long the last replies may take to leave a connection that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a connection goes on.
enum Flow {
    Next,
    End,
    Reset,
}

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
        refuse(&stream, 503);
        return stream.close(CLOSE_TIMEOUT).await;
    }
    let mut input = Input::new(REQUEST_BYTES_MAX);
    loop {
        let received = match input.next(&mut stream).await {
            Ok(Next::Request(received)) => received,
            Ok(Next::Refused(status)) => {
                refuse(&stream, status);
                break;
            }
            Ok(Next::Ended) | Err(_) => break,
        };
        match exchange(&shared, &mut stream, &received).await {
            Flow::Next => input.reuse(received.head),
            Flow::End => break,
            Flow::Reset => return stream.reset(),
        }
    }
    stream.close(CLOSE_TIMEOUT).await;
}

async fn exchange(shared: &Shared, stream: &mut Stream, received: &Received) -> Flow {
    add(&shared.stats.requests, 1);
    let head = &received.head;
    let endpoint = endpoint(head.method(), head.target(), shared.has_deltas);
    let (reply, delay) = respond(shared, endpoint, head, &received.body);
    if !delay.is_zero() {
        sleep(delay).await;
    }
    match reply {
        Reply::Whole(whole) => {
            let is_persistent = head.is_persistent();
            stream.output.with(|out| write(&whole, is_persistent, out));
            while stream.output.is_congested() && !stream.output.is_closed() {
                stream.output.relieved().await;
            }
            if is_persistent && !stream.output.is_closed() { Flow::Next } else { Flow::End }
        }
        Reply::Stream(place, fields) => {
            // In a box: a worker holds thousands of streams, and few other replies.
            Box::pin(streaming::run(shared, stream, *place, &fields)).await;
            Flow::End
        }
        Reply::Reset => Flow::Reset,
    }
}

fn refuse(stream: &Stream, status: u16) {
    let whole = Whole::error(status, "BadRequest", "the request broke a rule of HTTP, or there are too many");
    stream.output.with(|out| write(&whole, false, out));
}

fn write(whole: &Whole, is_persistent: bool, out: &mut Vec<u8>) {
    let body = whole.body.bytes();
    encode::status_line(whole.status, b"", out);
    out.extend_from_slice(b"Server: weir-origin\r\n");
    out.extend_from_slice(whole.fields.as_bytes());
    if !body.is_empty() {
        encode::field(b"Content-Type", b"application/json; charset=utf-8", out);
    }
    if whole.status != 304 {
        encode::framing(BodyLength::Exact(body.len() as u64), out);
    }
    if !is_persistent {
        encode::field(b"Connection", b"close", out);
    }
    encode::end_of_head(out);
    out.extend_from_slice(body);
}
