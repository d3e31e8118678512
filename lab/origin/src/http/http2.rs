//! A client that speaks HTTP/2 by prior knowledge.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    io,
    pin::Pin,
    task::Poll,
};

use weir_base::{Time, time::turn};
use weir_engine::{Chunk, Output, Stream, sleep};
use weir_http_codec::{BodyLength, Fields, RequestHead, ResponseHead, Version};
use weir_http2_codec::{Connection, ConnectionConfig, Event, StreamId};

use super::session::Replies;

/// Streams that a client may have open. 1,000: more than any row of the comparisons, and with the longest body for each of
/// them a connection holds less than a gibibyte.
const STREAMS_MAX: u32 = 1_000;

/// Bytes that a client may send before they are read. Bodies of requests are dropped as they arrive.
const WINDOW_BYTES: u32 = 1 << 20;

/// Serves a connection of which `received` has been read, until either side ends it.
pub async fn serve(replies: &Replies, stream: &mut Stream, received: &[u8]) {
    let mut client = Client::new(replies);
    client.receive(received);
    loop {
        client.send(&stream.output);
        if client.codec.is_over() {
            return;
        }
        match client.next(stream).await {
            Some(Ok(Some(chunk))) => client.receive(&chunk),
            // An error means that the client is gone: no one is left to report it to.
            Some(Ok(None) | Err(_)) => return,
            None => client.respond_due(),
        }
    }
}

/// One client.
struct Client<'a> {
    replies: &'a Replies,
    codec: Connection,
    /// The fields of every response.
    fields: Fields,
    /// Requests whose bodies are on their way.
    uploads: HashMap<StreamId, RequestHead>,
    /// Requests that are answered later, in the order of their times.
    due: VecDeque<(Time, StreamId, RequestHead)>,
    timer: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl<'a> Client<'a> {
    fn new(replies: &'a Replies) -> Self {
        let config = ConnectionConfig {
            streams_max: STREAMS_MAX,
            stream_window: WINDOW_BYTES,
            connection_window: WINDOW_BYTES,
            ..ConnectionConfig::default()
        };
        let mut fields = Fields::new();
        fields.push(b"server", b"weir-origin");
        fields.push(b"content-type", b"text/plain");
        let (codec, uploads, due, timer) = (Connection::server(config), HashMap::new(), VecDeque::new(), None);
        Self { replies, codec, fields, uploads, due, timer }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.codec.receive(bytes, turn::now());
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.codec.next_event() {
            match event {
                Event::Request(stream, Ok(request)) if request.is_end => self.whole(stream, request.head),
                Event::Request(stream, Ok(request)) => drop(self.uploads.insert(stream, request.head)),
                Event::Request(stream, Err(error)) => self.send_response(stream, error.status(), 0, b""),
                Event::Readable(stream) => self.upload(stream),
                Event::Reset(stream, _) => {
                    self.uploads.remove(&stream);
                    self.codec.forget(stream);
                }
                _ => {}
            }
        }
    }

    /// Drops what has arrived of the body of a request.
    fn upload(&mut self, stream: StreamId) {
        let count = self.codec.take_data(stream, &mut Vec::new(), usize::MAX);
        self.codec.release(stream, count);
        if self.codec.received(stream).is_end
            && let Some(head) = self.uploads.remove(&stream)
        {
            self.whole(stream, head);
        }
    }

    /// A request is whole.
    fn whole(&mut self, stream: StreamId, head: RequestHead) {
        match self.replies.delay {
            delay if delay.is_zero() => self.respond(stream, &head),
            delay => self.due.push_back((Time::now().saturating_add(delay), stream, head)),
        }
    }

    fn respond_due(&mut self) {
        while let Some((_, stream, head)) = self.due.pop_front_if(|(due, ..)| *due <= Time::now()) {
            self.respond(stream, &head);
        }
    }

    fn respond(&mut self, stream: StreamId, head: &RequestHead) {
        let mut count = String::new();
        let reply = self.replies.reply(head.target(), &mut count);
        let body = if head.method() == b"HEAD" { Default::default() } else { self.replies.body_of(&reply) };
        self.send_response(stream, reply.status, reply.size as u64, &body);
    }

    /// Sends a response. `length`: of the body, if it was not a response to HEAD.
    fn send_response(&mut self, stream: StreamId, status: u16, length: u64, body: &[u8]) {
        let mut head = ResponseHead::from_parts(Version::Http2, status, BodyLength::Exact(length));
        head.fields = self.fields.clone();
        // A client that has reset the stream wants no response.
        if self.codec.send_response(stream, &head, Some(length), body.is_empty()).is_ok() && !body.is_empty() {
            let _ = self.codec.send_data(stream, body).and_then(|()| self.codec.send_end(stream, None));
        }
        self.codec.forget(stream);
    }

    fn send(&mut self, output: &Output) {
        while !output.is_congested() && self.codec.has_output() {
            output.with(|into| self.codec.take_output(into));
        }
        self.take_events();
    }

    /// Waits for the next bytes of the client; `None`: a reply is due, or the output has room again.
    async fn next(&mut self, stream: &mut Stream) -> Option<io::Result<Option<Chunk>>> {
        poll_fn(|context| {
            if let Some((due, ..)) = self.due.front() {
                let wait = due.since(Time::now());
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(wait)));
                if timer.as_mut().poll(context).is_ready() {
                    self.timer = None;
                    return Poll::Ready(None);
                }
            }
            if self.codec.has_output() && stream.output.poll_relieved(context).is_ready() {
                return Poll::Ready(None);
            }
            // A client that does not read is not read.
            match self.codec.is_congested() && !stream.output.is_closed() {
                true => Poll::Pending,
                false => stream.reader.poll_receive(context).map(Some),
            }
        })
        .await
    }
}
