//! A client that speaks HTTP/2 by prior knowledge: frames, HPACK and flow control are the `h2` crate's, over the poll face of
//! the stream.

use std::rc::Rc;

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderValue, Method, Request, Response, header};
use weir_engine::{Stream, poll_face::PollStream, sleep, spawn};

use super::session::Replies;

/// Streams that a client may have open. 1,000: more than any row of the comparisons, and with the longest body for each of
/// them a connection holds less than a gibibyte.
const STREAMS_MAX: u32 = 1_000;

/// Bytes that a client may send before they are read. Bodies of requests are dropped as they arrive.
const WINDOW_BYTES: u32 = 1 << 20;

/// Serves a connection of which `received` has been read.
pub async fn serve(replies: Rc<Replies>, stream: Stream, received: &[u8]) {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let io = PollStream::new(stream, received, |_| true);
    // An error means that the client is gone, or broke a rule and got an error.
    let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        if replies.delay.is_zero() && request.body().is_end_stream() {
            answer(&replies, &request, respond);
        } else {
            spawn(answer_later(replies.clone(), request, respond)).detach();
        }
    }
}

async fn answer_later(replies: Rc<Replies>, mut request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    while let Some(Ok(data)) = request.body_mut().data().await {
        // The stream is there until its body ends.
        let _ = request.body_mut().flow_control().release_capacity(data.len());
    }
    if !replies.delay.is_zero() {
        sleep(replies.delay).await;
    }
    answer(&replies, &request, respond);
}

fn answer(replies: &Replies, request: &Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut count = String::new();
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let reply = replies.reply(target.as_bytes(), &mut count);
    let mut head = Response::new(());
    // Within 100 to 999: the origin's own.
    *head.status_mut() = http::StatusCode::from_u16(reply.status).unwrap_or_default();
    let fields = head.headers_mut();
    fields.insert(header::SERVER, HeaderValue::from_static("weir-origin"));
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    fields.insert(header::CONTENT_LENGTH, HeaderValue::from(reply.size));
    let has_body = reply.size > 0 && request.method() != Method::HEAD;
    // A client that has reset the stream wants no answer.
    let Ok(mut stream) = respond.send_response(head, !has_body) else { return };
    if has_body {
        let _ = stream.send_data(replies.body_of(&reply), true);
    }
}
