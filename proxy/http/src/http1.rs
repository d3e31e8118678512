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
    asked::Asked,
    body::{Broken, RequestBody, Sink, relieved},
    client::{After, Client, Replies, Sides, Watch},
    connection::Connection,
    ends::{TunnelEnd, WireInlet, WireOutlet},
    exchange,
    failure::{STALLED, STALLED_TEXT},
    http2::preface::Preface,
    input::Input,
    limits::{DISCARD_BYTES_MAX, DISCARD_TIMEOUT, LINGER_TIMEOUT},
    notes::SentBytes,
    refusal::Refusal,
    response::OwnAnswer,
    upgrade::Wish,
    wire::{Framing, WireSink, WireSource, receive},
};

/// The client's side of the exchanges of a connection.
struct Front<'a> {
    connection: &'a Rc<Connection>,
    stream: &'a mut Stream,
    input: Input,
    /// What is left of the body of the present request.
    body: BodyDecoder,
    /// Of what the client does.
    deadline: Deadline,
    /// Of what the origin does.
    origin_deadline: Deadline,
    /// The end of the connection is the end of the answer under way.
    is_open_ended: Cell<bool>,
}

/// Why no further request comes.
pub(crate) enum End {
    /// There is nobody to tell.
    Quiet(CloseReason),
    /// An answer broke off whose end nothing but the connection's would tell.
    Torn(CloseReason),
    /// The client is told.
    Refused(Refusal),
    /// The client speaks HTTP/2, and this is what it has sent.
    Http2(Vec<u8>),
}

/// For how long a connection without a request keeps what only requests need. 1 s: the requests of a busy client follow each other sooner.
/// Worst case: an allocation of 3 KiB for each request of a client that makes fewer.
const REST_AFTER: Duration = Duration::from_secs(1);

/// One request after the other, until there is none any more.
pub(crate) async fn run(connection: &Rc<Connection>, stream: &mut Stream) -> End {
    let mut parser = RequestParser::new();
    let mut front = Front {
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
    let mut rested = Duration::ZERO;
    loop {
        if let Err(end) = rest(&mut front, rested).await {
            return end;
        }
        // In a box, which the connection gives back when it has no request for a while: idle ones cost little.
        match Box::pin(requests(&mut front, &mut parser, &mut may_be_http2)).await {
            Over::Rests => rested = REST_AFTER,
            Over::Ended(end) => return end,
        }
    }
}

/// Why a connection has no next request for now.
enum Over {
    /// Its client has made none for [`REST_AFTER`].
    Rests,
    Ended(End),
}

/// Waits for the first bytes of a request; `rested`: for so long there have been none.
async fn rest(front: &mut Front<'_>, rested: Duration) -> Result<(), End> {
    let Front { connection, stream, input, deadline, .. } = front;
    deadline.set(turn::now().saturating_add(connection.service.keep_alive_timeout().saturating_sub(rested)));
    input.keep();
    more(connection, stream, input, deadline, true).await
}

/// Serves requests as long as they follow each other.
async fn requests(front: &mut Front<'_>, parser: &mut RequestParser, may_be_http2: &mut bool) -> Over {
    let connection = front.connection;
    loop {
        let mut head = match next_head(front, parser, *may_be_http2).await {
            Ok(head) => head,
            Err(Over::Ended(End::Refused(refusal))) => {
                connection.violated(refusal.reason, refusal.text);
                let answer = refusal.answer(None, connection.service.sessions.chance());
                let before = front.stream.output.appended();
                front.stream.output.with(|into| write(&answer, false, true, into));
                connection.log_unread("HTTP/1.1", &refusal, front.stream.output.appended() - before);
                return Over::Ended(End::Refused(refusal));
            }
            Err(over) => return over,
        };
        *may_be_http2 = false;
        front.body = BodyDecoder::new(head.body());
        connection.handle.begins();
        let after = exchange::run(front, &mut head).await;
        connection.handle.ends();
        let after = match after {
            After::Another => after_body(front).await,
            after => after,
        };
        match after {
            After::Another => parser.reuse(head),
            After::Broken(reason) if front.is_open_ended.get() => {
                // What was sent goes out first: a reset drops what waits.
                let _ = front.stream.output.drained(LINGER_TIMEOUT).await;
                return Over::Ended(End::Torn(connection.handle.ending().unwrap_or(reason)));
            }
            After::Close(reason) | After::Broken(reason) => {
                return Over::Ended(End::Quiet(connection.handle.ending().unwrap_or(reason)));
            }
        }
        // Who sends requests and does not read the answers is not read from.
        let reason = match relieved(&front.stream.output, &front.deadline).await {
            Ok(()) => continue,
            Err(Broken::Stalled) => {
                connection.handle.ending().unwrap_or_else(|| connection.violated(STALLED, STALLED_TEXT))
            }
            Err(_) => connection.handle.ending().unwrap_or(CloseReason::ClientReset),
        };
        return Over::Ended(End::Quiet(reason));
    }
}

/// The next request's head, within its deadline: the time between requests has one, and so has the head from its first byte
/// on, whatever comes of it meanwhile.
async fn next_head(front: &mut Front<'_>, parser: &mut RequestParser, may_be_http2: bool) -> Result<RequestHead, Over> {
    let Front { connection, stream, input, deadline, .. } = front;
    let limits = HeadLimits::default();
    let listener = connection.service.sessions.settings();
    let mut begun: Option<Time> = None;
    loop {
        let preface = if may_be_http2 { Preface::of(input.bytes()) } else { Preface::No };
        match preface {
            Preface::Whole => {
                return Err(Over::Ended(End::Http2(input.take())));
            }
            Preface::Begun => {}
            Preface::No => match parser.parse(input.bytes(), &limits) {
                Ok(Some(used)) => {
                    input.spend(used);
                    return Ok(parser.take());
                }
                Ok(None) => {}
                Err(error) => return Err(Over::Ended(End::Refused(Refusal::malformed(error)))),
            },
        }
        let is_between = input.bytes().is_empty();
        let rests = is_between && connection.service.keep_alive_timeout() > REST_AFTER;
        if is_between {
            let wait = if rests { REST_AFTER } else { connection.service.keep_alive_timeout() };
            deadline.set(turn::now().saturating_add(wait));
        } else if begun.is_none() {
            begun = Some(turn::now());
            deadline.set(turn::now().saturating_add(listener.head_timeout));
        }
        input.keep();
        match more(connection, stream, input, deadline, is_between).await {
            Ok(()) => {}
            Err(End::Quiet(CloseReason::IdleTimeout)) if rests => return Err(Over::Rests),
            Err(end) => return Err(Over::Ended(end)),
        }
    }
}

/// Waits for more of what the client sends. `is_between`: nothing of a request is there.
async fn more(
    connection: &Connection,
    stream: &mut Stream,
    input: &mut Input,
    deadline: &Deadline,
    is_between: bool,
) -> Result<(), End> {
    let received = poll_fn(|context| {
        if let Some(reason) = connection.poll_ending(context, is_between, deadline) {
            return Poll::Ready(Err(End::Quiet(reason)));
        }
        if let Poll::Ready(received) = input.poll_more(&mut stream.reader, context) {
            return Poll::Ready(Ok(received));
        }
        match deadline.poll_expired(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) if !is_between => Poll::Ready(Err(End::Refused(Refusal::HEAD_TIMEOUT))),
            Poll::Ready(()) if connection.is_draining() => Poll::Ready(Err(End::Quiet(CloseReason::Drained))),
            Poll::Ready(()) => Poll::Ready(Err(End::Quiet(CloseReason::IdleTimeout))),
        }
    });
    match received.await? {
        Ok(0) => Err(End::Quiet(CloseReason::ClientClosed)),
        Ok(_) => Ok(()),
        Err(_) => Err(End::Quiet(CloseReason::ClientReset)),
    }
}

/// Reads what is left of a request body that nobody wants any more, if that is little.
async fn after_body(front: &mut Front<'_>) -> After {
    let Front { stream, input, deadline, body, .. } = front;
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
                Some(Ok(0)) => return After::Close(CloseReason::ClientClosed),
                Some(Err(_)) => return After::Close(CloseReason::ClientReset),
                Some(Ok(_)) | None => return After::Close(CloseReason::Ended("early_answer")),
            }
        }
        match body.decode(input.bytes(), &limits) {
            Ok(piece) => {
                let taken = piece.taken;
                input.spend(taken);
            }
            Err(error) => return After::Close(CloseReason::of_client(error.reason())),
        }
    }
    match stream.output.is_closed() {
        true => After::Close(CloseReason::ClientReset),
        false => After::Another,
    }
}

/// Appends a whole answer of the gateway's own.
fn write(answer: &OwnAnswer, is_head: bool, closes: bool, into: &mut Vec<u8>) {
    encode::response(&answer.head, into);
    if let Some(length) = answer.length() {
        encode::framing(length, into);
    }
    if closes {
        encode::field(b"Connection", b"close", into);
    }
    encode::end_of_head(into);
    into.extend_from_slice(answer.body(is_head));
}

impl Client for Front<'_> {
    type Body<'a>
        = Body<'a>
    where
        Self: 'a;
    type Replies<'a>
        = WireReplies<'a>
    where
        Self: 'a;
    type Watch<'a>
        = WireWatch
    where
        Self: 'a;
    type Inlet<'a>
        = WireInlet<'a>
    where
        Self: 'a;
    type Outlet<'a>
        = WireOutlet<'a>
    where
        Self: 'a;

    fn connection(&self) -> &Rc<Connection> {
        self.connection
    }

    fn poll_ended(connection: &Connection, context: &mut Context<'_>) -> bool {
        connection.handle.poll_ending(context).is_some()
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let watch = WireWatch::of(self.connection, &self.stream.reader);
        if watch.poll_gone(context).is_ready() {
            return Poll::Ready(());
        }
        match read_ahead(&mut self.stream.reader, &mut self.input, context) {
            Some(Ahead::Ended) if watch.serves_half_closed => Poll::Pending,
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        }
    }

    fn has_whole_body(&self) -> bool {
        matches!(self.body, BodyDecoder::Exact(left) if left <= self.input.bytes().len() as u64)
    }

    fn sides<'a>(&'a mut self, asked: &'a Asked) -> Sides<'a, Body<'a>, WireReplies<'a>, WireWatch> {
        let Front { connection, stream, input, body, deadline, origin_deadline, is_open_ended } = self;
        let idle_timeout = asked.body_idle_timeout;
        let Stream { reader, output, .. } = &mut **stream;
        let watch = WireWatch::of(connection, reader);
        let source = WireSource { reader, input, decoder: body, deadline, idle_timeout, is_ended: false };
        let sink = WireSink { output, framing: Framing::Plain, deadline: origin_deadline };
        Sides {
            body: Body { source, watch: watch.clone(), half_closed: None, connection, output },
            replies: WireReplies { connection, asked, sink, is_open_ended },
            watch,
            deadline,
            origin_deadline,
        }
    }

    fn sent_bytes(&self) -> SentBytes {
        let output = self.stream.output.clone();
        Box::new(move || output.appended())
    }

    fn wish(&self, head: &RequestHead) -> Wish {
        Wish::of(head)
    }

    fn tunnel_end(&mut self) -> TunnelEnd<'_, WireInlet<'_>, WireOutlet<'_>> {
        let Front { stream, input, deadline, origin_deadline, .. } = self;
        let Stream { reader, output, .. } = &mut **stream;
        let (inlet, outlet) = (WireInlet::new(reader, input), WireOutlet(output));
        TunnelEnd { inlet, outlet, deadline, other_deadline: origin_deadline }
    }

    fn reply(&mut self, asked: &Asked, answer: &OwnAnswer, closes: bool, reason: &'static str) -> After {
        let closes = closes || self.closes_after(asked);
        self.stream.output.with(|into| write(answer, asked.is_head, closes, into));
        if closes { After::Close(CloseReason::Ended(reason)) } else { After::Another }
    }
}

impl Front<'_> {
    /// An answer without an origin is the last one here: what is left of the request is much, or not known.
    fn closes_after(&self, asked: &Asked) -> bool {
        let is_little =
            self.body.is_done() || matches!(self.body, BodyDecoder::Exact(left) if left <= DISCARD_BYTES_MAX);
        let is_over = !asked.is_persistent || self.connection.is_draining() || self.stream.output.is_closed();
        is_over || !is_little || asked.expects_continue
    }
}

/// Tells of the end of a client's connection.
#[derive(Clone)]
pub(crate) struct WireWatch {
    peer: PeerWatch,
    /// The end of the client's direction is no end of its wish.
    serves_half_closed: bool,
}

impl WireWatch {
    fn of(connection: &Connection, reader: &Reader) -> Self {
        Self { peer: reader.peer_watch(), serves_half_closed: connection.service.http().half_close }
    }
}

impl Watch for WireWatch {
    fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.serves_half_closed {
            true => self.peer.poll_broken(context),
            false => self.peer.poll_ended(context),
        }
    }
}

/// What a look at the bytes ahead has found.
enum Ahead {
    /// The client's direction is over.
    Ended,
    /// The connection is.
    Broken,
}

/// Takes in what the client sends ahead, which is of its next requests, so that its end is seen: TLS says it in a record of its
/// own. Of who sends more than a buffer ahead, a FIN and a reset are seen all the same.
fn read_ahead(reader: &mut Reader, input: &mut Input, context: &mut Context<'_>) -> Option<Ahead> {
    while input.bytes().len() < CHUNK_BYTES {
        match input.poll_more(reader, context) {
            Poll::Pending => return None,
            Poll::Ready(Ok(0)) => return Some(Ahead::Ended),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(_)) => return Some(Ahead::Broken),
        }
    }
    None
}

/// The body of a request, and what the client sends behind it.
pub(crate) struct Body<'a> {
    source: WireSource<'a>,
    watch: WireWatch,
    /// The client's direction is over: how long the other may be silent then, and what the client had taken when last looked at.
    half_closed: Option<(Duration, u64)>,
    connection: &'a Connection,
    output: &'a Output,
}

impl crate::body::Source for Body<'_> {
    fn is_done(&self) -> bool {
        self.source.is_done()
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        self.source.fill().await
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
        self.source.pass(sink)
    }
}

impl RequestBody for Body<'_> {
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.watch.poll_gone(context).is_ready() {
            return Poll::Ready(());
        }
        let WireSource { reader, input, deadline, .. } = &mut self.source;
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
            Some(Ahead::Ended) if self.watch.serves_half_closed => {
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

/// Answers on their way to the client.
pub(crate) struct WireReplies<'a> {
    connection: &'a Connection,
    asked: &'a Asked,
    sink: WireSink<'a>,
    is_open_ended: &'a Cell<bool>,
}

impl Replies for WireReplies<'_> {
    fn interim(&mut self, head: &ResponseHead) {
        if self.asked.version == Version::Http10 {
            return;
        }
        self.sink.output.with(|into| {
            encode::response(head, into);
            encode::end_of_head(into);
        });
    }

    fn head(&mut self, head: &ResponseHead, length: BodyLength, is_uploaded: bool) -> bool {
        let asked = self.asked;
        let framing = Framing::of(length, asked.version.has_chunks(), asked.wants_trailers);
        let is_framed = matches!(length, BodyLength::Exact(_)) || framing != Framing::Plain;
        // Who was not told to go on may or may not send the body now: what comes next could be either (RFC 9110 section 10.1.1).
        let is_certain = is_uploaded || !asked.expects_continue;
        let keeps = is_framed && is_certain && asked.is_persistent && !self.connection.is_draining();
        self.sink.framing = framing;
        self.is_open_ended.set(!is_framed);
        self.sink.output.with(|into| {
            encode::response(head, into);
            match length {
                _ if framing != Framing::Plain => encode::framing(BodyLength::Chunked, into),
                // HTTP/2 needs no words for it.
                BodyLength::Exact(_) if head.version().is_multiplexed() && is_unsaid(head, asked.is_head) => {
                    encode::framing(length, into);
                }
                _ => {}
            }
            match (keeps, asked.version) {
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

impl Sink for WireReplies<'_> {
    fn data(&mut self, data: &[u8]) {
        self.sink.data(data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.sink.end(trailers);
    }

    async fn relieved(&mut self) -> Result<(), Broken> {
        self.sink.relieved().await
    }
}

const _: () = assert!(DISCARD_BYTES_MAX <= limits::WRITE_HIGH_WATER_BYTES);
