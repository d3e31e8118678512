//! A client that speaks HTTP/1.1 or 1.0: heads in, one exchange after the other.

use std::{
    cell::Cell,
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use weir_base::{
    limits,
    time::{Time, turn},
};
use weir_engine::{Deadline, Output, PeerWatch, Reader, Stream, chunk::CHUNK_BYTES};
use weir_http_codec::{
    BodyDecoder, BodyLength, BodyLimits, Fields, HeadLimits, Known, RequestHead, RequestParser, ResponseHead, Version,
    encode,
};
use weir_listener::CloseReason;

use crate::{
    access_notes::SentBytes,
    body::{BodyError, RequestBody, Sink, output_ready},
    client::{AfterExchange, Client, DisconnectWatch, ExchangeIo, ResponseSink},
    connection::Connection,
    exchange,
    failure::{STALLED, STALLED_TEXT},
    http1_body::{Framing, Http1Sink, Http1Source, receive},
    http2::preface::Preface,
    input::Input,
    limits::{DISCARD_BYTES_MAX, DISCARD_TIMEOUT, LINGER_TIMEOUT},
    local_response::LocalResponse,
    pooled_parser::PooledParser,
    refusal::Refusal,
    request_context::RequestContext,
    respond,
    tunnel_io::{Http1TunnelReader, Http1TunnelWriter, TunnelIo},
    upgrade::RequestedUpgrade,
};

/// The client's side of the exchanges of a connection.
struct Http1Client<'a> {
    connection: &'a Rc<Connection>,
    stream: &'a mut Stream,
    input: Input,
    /// The rest of the body of the present request.
    body: BodyDecoder,
    /// Deadline of the client.
    deadline: Deadline,
    /// Deadline of the origin.
    origin_deadline: Deadline,
    /// The end of the connection is the end of the present response.
    is_open_ended: Cell<bool>,
}

/// The reason why the connection serves no further request.
pub(crate) enum RequestsEnd {
    /// No response is due.
    Close(CloseReason),
    /// A response broke off, and only a reset shows the client that it is not complete.
    Reset(CloseReason),
    /// The client gets this refusal.
    Refused(Refusal),
    /// The client speaks HTTP/2, and this is what it has sent.
    Http2(Vec<u8>),
}

/// One request after the other, until there is none any more.
pub(crate) async fn run(connection: &Rc<Connection>, stream: &mut Stream) -> RequestsEnd {
    let mut client = Http1Client {
        connection,
        stream,
        input: Input::default(),
        body: BodyDecoder::new(BodyLength::default()),
        deadline: weir_engine::deadline(),
        origin_deadline: weir_engine::deadline(),
        is_open_ended: Cell::new(false),
    };
    connection.handle.entry().details().version = "HTTP/1.1";
    // In TLS only who has chosen it there may speak it (RFC 9113 section 3.3).
    let mut may_be_http2 = !connection.is_tls();
    loop {
        if let Err(end) = wait_for_request(&mut client).await {
            return end;
        }
        // The 3 KiB of a request serve the next one, of any connection: idle connections cost little.
        match weir_engine::recycled(|| requests(&mut client, &mut may_be_http2)).await {
            NoRequest::Yet => {}
            NoRequest::Ended(end) => return end,
        }
    }
}

/// The reason why a connection has no next request for now.
enum NoRequest {
    /// Nothing of it has come.
    Yet,
    Ended(RequestsEnd),
}

/// Waits for the first bytes of a request.
async fn wait_for_request(client: &mut Http1Client<'_>) -> Result<(), RequestsEnd> {
    let Http1Client { connection, stream, input, deadline, .. } = client;
    deadline.set(turn::now().saturating_add(connection.service.keep_alive_timeout()));
    input.release_chunk();
    more(connection, stream, input, deadline, true).await
}

/// Serves requests as long as they follow each other.
async fn requests(client: &mut Http1Client<'_>, may_be_http2: &mut bool) -> NoRequest {
    let connection = client.connection;
    let mut parser = PooledParser::from_pool();
    loop {
        let mut head = match next_head(client, &mut parser, *may_be_http2).await {
            Ok(head) => head,
            Err(NoRequest::Ended(RequestsEnd::Refused(refusal))) => {
                connection.violated(refusal.reason, refusal.text);
                let response = respond::malformed(connection, &refusal);
                let before = client.stream.output.appended();
                client.stream.output.with(|into| write(&response, false, true, into));
                connection.log_malformed("HTTP/1.1", &refusal, client.stream.output.appended() - before);
                return NoRequest::Ended(RequestsEnd::Refused(refusal));
            }
            Err(none) => return none,
        };
        *may_be_http2 = false;
        client.body = BodyDecoder::new(head.body());
        connection.handle.begins();
        let after = exchange::run(client, &mut head).await;
        connection.handle.ends();
        let after = match after {
            AfterExchange::KeepAlive => after_body(client).await,
            after => after,
        };
        match after {
            AfterExchange::KeepAlive => parser.reuse(head),
            AfterExchange::Abort(reason) if client.is_open_ended.get() => {
                // Appended bytes go out first: a reset drops those that wait.
                let _ = client.stream.output.drained(LINGER_TIMEOUT).await;
                return NoRequest::Ended(RequestsEnd::Reset(connection.handle.ending().unwrap_or(reason)));
            }
            AfterExchange::Close(reason) | AfterExchange::Abort(reason) => {
                return NoRequest::Ended(RequestsEnd::Close(connection.handle.ending().unwrap_or(reason)));
            }
        }
        // A client that sends requests and does not read the responses is not read.
        let reason = match output_ready(&client.stream.output, &client.deadline).await {
            Ok(()) => continue,
            Err(BodyError::ReceiverStalled) => {
                connection.handle.ending().unwrap_or_else(|| connection.violated(STALLED, STALLED_TEXT))
            }
            Err(_) => connection.handle.ending().unwrap_or(CloseReason::ClientReset),
        };
        return NoRequest::Ended(RequestsEnd::Close(reason));
    }
}

/// The next request's head, within its deadline: the time between requests has one, and so has the head from its first byte
/// on, whatever comes of it meanwhile.
async fn next_head(
    client: &mut Http1Client<'_>,
    parser: &mut RequestParser,
    may_be_http2: bool,
) -> Result<RequestHead, NoRequest> {
    let Http1Client { connection, stream, input, deadline, .. } = client;
    let limits = HeadLimits::default();
    let listener = connection.service.sessions.settings();
    let mut head_start: Option<Time> = None;
    loop {
        let preface = if may_be_http2 { Preface::of(input.bytes()) } else { Preface::No };
        match preface {
            Preface::Whole => {
                return Err(NoRequest::Ended(RequestsEnd::Http2(input.take())));
            }
            Preface::ResponseStart => {}
            Preface::No => match parser.parse(input.bytes(), &limits) {
                Ok(Some(used)) => {
                    input.spend(used);
                    return Ok(parser.take());
                }
                Ok(None) => {}
                Err(error) => return Err(NoRequest::Ended(RequestsEnd::Refused(Refusal::malformed(error)))),
            },
        }
        if input.bytes().is_empty() {
            return Err(NoRequest::Yet);
        }
        if head_start.is_none() {
            head_start = Some(turn::now());
            deadline.set(turn::now().saturating_add(listener.head_timeout));
        }
        input.release_chunk();
        more(connection, stream, input, deadline, false).await.map_err(NoRequest::Ended)?;
    }
}

/// Waits for more of what the client sends. `is_between`: nothing of a request is there.
async fn more(
    connection: &Connection,
    stream: &mut Stream,
    input: &mut Input,
    deadline: &Deadline,
    is_between: bool,
) -> Result<(), RequestsEnd> {
    let received = poll_fn(|context| {
        if let Some(reason) = connection.poll_ending(context, is_between, deadline) {
            return Poll::Ready(Err(RequestsEnd::Close(reason)));
        }
        if let Poll::Ready(received) = input.poll_more(&mut stream.reader, context) {
            return Poll::Ready(Ok(received));
        }
        match deadline.poll_expired(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) if !is_between => Poll::Ready(Err(RequestsEnd::Refused(Refusal::HEAD_TIMEOUT))),
            Poll::Ready(()) if connection.is_draining() => Poll::Ready(Err(RequestsEnd::Close(CloseReason::Drained))),
            Poll::Ready(()) => Poll::Ready(Err(RequestsEnd::Close(CloseReason::IdleTimeout))),
        }
    });
    match received.await? {
        Ok(0) => Err(RequestsEnd::Close(CloseReason::ClientClosed)),
        Ok(_) => Ok(()),
        Err(_) => Err(RequestsEnd::Close(CloseReason::ClientReset)),
    }
}

/// Reads the rest of an unwanted request body, if it is short.
async fn after_body(client: &mut Http1Client<'_>) -> AfterExchange {
    let Http1Client { stream, input, deadline, body, .. } = client;
    let (limits, mut left) = (BodyLimits::default(), DISCARD_BYTES_MAX);
    if !body.is_done() {
        deadline.set(turn::now().saturating_add(DISCARD_TIMEOUT));
    }
    while !body.is_done() {
        if input.bytes().is_empty() {
            match receive(&mut stream.reader, input, deadline).await {
                Some(Ok(count)) if count > 0 && count as u64 <= left => {
                    left -= count as u64;
                }
                Some(Ok(0)) => return AfterExchange::Close(CloseReason::ClientClosed),
                Some(Err(_)) => return AfterExchange::Close(CloseReason::ClientReset),
                Some(Ok(_)) | None => return AfterExchange::Close(CloseReason::Ended("early_response")),
            }
        }
        match body.decode(input.bytes(), &limits) {
            Ok(piece) => {
                let taken = piece.taken;
                input.spend(taken);
            }
            Err(error) => return AfterExchange::Close(CloseReason::of_client(error.reason())),
        }
    }
    match stream.output.is_closed() {
        true => AfterExchange::Close(CloseReason::ClientReset),
        false => AfterExchange::KeepAlive,
    }
}

/// Appends a whole response of the gateway's own.
fn write(response: &LocalResponse, is_head: bool, closes: bool, into: &mut Vec<u8>) {
    encode::response(&response.head, into);
    if let Some(length) = response.length() {
        encode::framing(length, into);
    }
    if closes {
        encode::field(b"Connection", b"close", into);
    }
    encode::end_of_head(into);
    into.extend_from_slice(response.body(is_head));
}

impl Client for Http1Client<'_> {
    type Body<'a>
        = Body<'a>
    where
        Self: 'a;
    type ResponseSink<'a>
        = Http1ResponseSink<'a>
    where
        Self: 'a;
    type DisconnectWatch<'a>
        = Http1DisconnectWatch
    where
        Self: 'a;
    type TunnelReader<'a>
        = Http1TunnelReader<'a>
    where
        Self: 'a;
    type TunnelWriter<'a>
        = Http1TunnelWriter<'a>
    where
        Self: 'a;

    fn connection(&self) -> &Rc<Connection> {
        self.connection
    }

    fn poll_ended(connection: &Connection, context: &mut Context<'_>) -> bool {
        connection.handle.poll_ending(context).is_some()
    }

    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let watch = Http1DisconnectWatch::of(self.connection, &self.stream.reader);
        if watch.poll_disconnected(context).is_ready() {
            return Poll::Ready(());
        }
        match read_ahead(&mut self.stream.reader, &mut self.input, context) {
            Some(ReadAhead::Ended) if watch.serves_half_closed => Poll::Pending,
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        }
    }

    fn has_whole_body(&self) -> bool {
        matches!(self.body, BodyDecoder::Exact(left) if left <= self.input.bytes().len() as u64)
    }

    fn exchange_io<'a>(
        &'a mut self,
        request: &'a RequestContext,
    ) -> ExchangeIo<'a, Body<'a>, Http1ResponseSink<'a>, Http1DisconnectWatch> {
        let Http1Client { connection, stream, input, body, deadline, origin_deadline, is_open_ended } = self;
        let idle_timeout = request.body_idle_timeout;
        let Stream { reader, output, .. } = &mut **stream;
        let watch = Http1DisconnectWatch::of(connection, reader);
        let source = Http1Source { reader, input, decoder: body, deadline, idle_timeout, is_ended: false };
        let sink = Http1Sink { output, framing: Framing::Plain, deadline: origin_deadline };
        ExchangeIo {
            body: Body { source, watch: watch.clone(), half_closed: None, connection, output },
            response_sink: Http1ResponseSink { connection, request, sink, is_open_ended },
            watch,
            deadline,
            origin_deadline,
        }
    }

    fn sent_bytes(&self) -> SentBytes {
        let output = self.stream.output.clone();
        Box::new(move || output.appended())
    }

    fn requested_upgrade(&self, head: &RequestHead) -> RequestedUpgrade {
        RequestedUpgrade::of(head)
    }

    fn tunnel_io(&mut self) -> TunnelIo<'_, Http1TunnelReader<'_>, Http1TunnelWriter<'_>> {
        let Http1Client { stream, input, deadline, origin_deadline, .. } = self;
        let Stream { reader, output, .. } = &mut **stream;
        let (tunnel_reader, tunnel_writer) = (Http1TunnelReader::new(reader, input), Http1TunnelWriter(output));
        TunnelIo { tunnel_reader, tunnel_writer, deadline, other_deadline: origin_deadline }
    }

    fn reply(
        &mut self,
        request: &RequestContext,
        response: &LocalResponse,
        closes: bool,
        reason: &'static str,
    ) -> AfterExchange {
        let closes = closes || self.closes_after(request);
        self.stream.output.with(|into| write(response, request.is_head, closes, into));
        if closes { AfterExchange::Close(CloseReason::Ended(reason)) } else { AfterExchange::KeepAlive }
    }
}

impl Http1Client<'_> {
    /// A response without an origin is the last one here: the rest of the request is long, or of unknown length.
    fn closes_after(&self, request: &RequestContext) -> bool {
        let is_little =
            self.body.is_done() || matches!(self.body, BodyDecoder::Exact(left) if left <= DISCARD_BYTES_MAX);
        let is_over = !request.is_persistent || self.connection.is_draining() || self.stream.output.is_closed();
        is_over || !is_little || request.expects_continue
    }
}

/// Watches for the end of a client's connection.
#[derive(Clone)]
pub(crate) struct Http1DisconnectWatch {
    peer: PeerWatch,
    /// A client that has closed its direction still wants its responses.
    serves_half_closed: bool,
}

impl Http1DisconnectWatch {
    fn of(connection: &Connection, reader: &Reader) -> Self {
        Self { peer: reader.peer_watch(), serves_half_closed: connection.service.http().half_close }
    }
}

impl DisconnectWatch for Http1DisconnectWatch {
    fn poll_disconnected(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.serves_half_closed {
            true => self.peer.poll_broken(context),
            false => self.peer.poll_ended(context),
        }
    }
}

/// The result of reading ahead.
enum ReadAhead {
    /// The client's direction is over.
    Ended,
    /// The connection is.
    Broken,
}

/// Reads ahead, into the client's next requests, to see its end: TLS reports that in a record of its own. A FIN and a reset are seen even
/// beyond a buffer of bytes.
fn read_ahead(reader: &mut Reader, input: &mut Input, context: &mut Context<'_>) -> Option<ReadAhead> {
    while input.bytes().len() < CHUNK_BYTES {
        match input.poll_more(reader, context) {
            Poll::Pending => return None,
            Poll::Ready(Ok(0)) => return Some(ReadAhead::Ended),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(_)) => return Some(ReadAhead::Broken),
        }
    }
    None
}

/// The body of a request, and what the client sends behind it.
pub(crate) struct Body<'a> {
    source: Http1Source<'a>,
    watch: Http1DisconnectWatch,
    /// The client's direction is over: how long the other may be silent then, and the bytes that the client had taken at the last look.
    half_closed: Option<(Duration, u64)>,
    connection: &'a Connection,
    output: &'a Output,
}

impl crate::body::Source for Body<'_> {
    fn is_done(&self) -> bool {
        self.source.is_done()
    }

    async fn fill(&mut self) -> Result<(), BodyError> {
        self.source.fill().await
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        self.source.pass(sink)
    }
}

impl RequestBody for Body<'_> {
    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.watch.poll_disconnected(context).is_ready() {
            return Poll::Ready(());
        }
        let Http1Source { reader, input, deadline, .. } = &mut self.source;
        if let Some((timeout, progress)) = &mut self.half_closed {
            let now = self.output.progress();
            if deadline.poll_expired(context).is_ready() && std::mem::replace(progress, now) == now {
                return Poll::Ready(());
            }
            // Whatever else woke the task is a sign of life, as are bytes that the client has taken.
            deadline.set(turn::now().saturating_add(*timeout));
            return deadline.poll_expired(context);
        }
        match read_ahead(reader, input, context) {
            Some(ReadAhead::Ended) if self.watch.serves_half_closed => {
                let timeout = self.connection.service.sessions.settings().half_close_timeout;
                self.half_closed = Some((timeout, self.output.progress()));
                deadline.set(turn::now().saturating_add(timeout));
                deadline.poll_expired(context)
            }
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        }
    }
}

/// The sink of responses to the client.
pub(crate) struct Http1ResponseSink<'a> {
    connection: &'a Connection,
    request: &'a RequestContext,
    sink: Http1Sink<'a>,
    is_open_ended: &'a Cell<bool>,
}

impl ResponseSink for Http1ResponseSink<'_> {
    fn interim(&mut self, head: &ResponseHead) {
        if self.request.version == Version::Http10 {
            return;
        }
        self.sink.output.with(|into| {
            encode::response(head, into);
            encode::end_of_head(into);
        });
    }

    fn head(&mut self, head: &ResponseHead, length: BodyLength, is_uploaded: bool) -> bool {
        let request = self.request;
        let framing = Framing::of(length, request.version.has_chunks(), request.wants_trailers);
        let is_framed = matches!(length, BodyLength::Exact(_)) || framing != Framing::Plain;
        // A client without a 100 may or may not send the body now: the next bytes could be either (RFC 9110 section 10.1.1).
        let is_certain = is_uploaded || !request.expects_continue;
        let keeps = is_framed && is_certain && request.is_persistent && !self.connection.is_draining();
        self.sink.framing = framing;
        self.is_open_ended.set(!is_framed);
        self.sink.output.with(|into| {
            encode::response(head, into);
            match length {
                _ if framing != Framing::Plain => encode::framing(BodyLength::Chunked, into),
                // HTTP/2 needs no words for it.
                BodyLength::Exact(_) if head.version().is_multiplexed() && is_unsaid(head, request.is_head) => {
                    encode::framing(length, into);
                }
                _ => {}
            }
            match (keeps, request.version) {
                (false, _) => encode::field(b"Connection", b"close", into),
                (true, Version::Http10) => encode::field(b"Connection", b"keep-alive", into),
                (true, _) => {}
            }
            encode::end_of_head(into);
        });
        keeps
    }
}

/// A body may follow, and no field says how long it is.
fn is_unsaid(head: &ResponseHead, is_head: bool) -> bool {
    head.has_body(is_head) && !head.fields.has(Known::ContentLength)
}

impl Sink for Http1ResponseSink<'_> {
    fn data(&mut self, data: &[u8]) {
        self.sink.data(data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.sink.end(trailers);
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        self.sink.ready().await
    }
}

const _: () = assert!(DISCARD_BYTES_MAX <= limits::WRITE_HIGH_WATER_BYTES);
