//! One stream of HTTP/2: one exchange.

use std::{
    panic::AssertUnwindSafe,
    rc::Rc,
    task::{Context, Poll},
};

use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Fields, Known, RequestHead, ResponseHead, WireError};
use weir_http2_codec::{ErrorCode, Request};

use super::{
    body::Incoming,
    response_stream::ResponseStream,
    stream_handle::StreamHandle,
    tunnel::{self, Http2TunnelReader, Http2TunnelWriter},
};
use crate::{
    access_notes::SentBytes,
    body::{BodyError, DiscardSink, RequestBody, Sink, Source},
    client::{AfterExchange, Client, DisconnectWatch as _, ExchangeIo, ResponseSink},
    connection::Connection,
    exchange, grpc,
    limits::{DISCARD_BYTES_MAX, DISCARD_TIMEOUT},
    local_response::LocalResponse,
    refusal::Refusal,
    request_context::RequestContext,
    respond,
    tunnel_io::TunnelIo,
    upgrade::RequestedUpgrade,
};

/// Serves one stream.
pub(super) async fn serve(connection: &Rc<Connection>, stream: Rc<StreamHandle>, request: Result<Request, WireError>) {
    let out = ResponseStream::new(stream.clone());
    let exchange = AssertUnwindSafe(exchange(connection, stream, request, &out));
    let after = futures_util::FutureExt::catch_unwind(exchange).await;
    match after {
        Ok(AfterExchange::Abort(grpc::EXPIRED)) => out.end(Some(&grpc::deadline_exceeded())),
        Ok(AfterExchange::Abort(_)) => return out.reset(ErrorCode::INTERNAL_ERROR),
        Ok(AfterExchange::KeepAlive | AfterExchange::Close(_)) => {}
        Err(_) => {
            connection.service.sessions.panicked(&connection.handle, "the exchange of a stream panicked");
            return out.reset(ErrorCode::INTERNAL_ERROR);
        }
    }
    if out.flush(&weir_engine::deadline()).await.is_err() {
        out.reset(ErrorCode::CANCEL);
    }
}

async fn exchange(
    connection: &Rc<Connection>,
    stream: Rc<StreamHandle>,
    request: Result<Request, WireError>,
    out: &ResponseStream,
) -> AfterExchange {
    let Request { mut head, protocol, is_end } = match request {
        Ok(request) => request,
        Err(error) => {
            let refusal = Refusal::malformed(error);
            connection.violated(refusal.reason, refusal.text);
            let response = respond::malformed(connection, &refusal);
            out.whole(&response.head, response.length(), response.body(false));
            connection.log_malformed("HTTP/2", &refusal, out.sent()());
            return AfterExchange::KeepAlive;
        }
    };
    let upgrade = tunnel::requested_upgrade(&head, protocol.as_deref(), || connection.service.sessions.chance());
    if let RequestedUpgrade::WebSocket(key) = &upgrade {
        head.fields.set(Known::SecWebsocketKey, key);
    }
    let mut client = Http2Client {
        connection,
        out,
        body: Incoming::of_request(stream, head.body(), is_end, connection.service.http().body_idle_timeout),
        upgrade,
        deadline: weir_engine::deadline(),
        origin_deadline: weir_engine::deadline(),
    };
    let after = exchange::run(&mut client, &mut head).await;
    if matches!(after, AfterExchange::KeepAlive) {
        client.discard_body().await;
    }
    after
}

/// The client's side of one exchange.
struct Http2Client<'a> {
    connection: &'a Rc<Connection>,
    out: &'a ResponseStream,
    body: Incoming,
    upgrade: RequestedUpgrade,
    deadline: Deadline,
    origin_deadline: Deadline,
}

impl Http2Client<'_> {
    /// Reads the rest of an unwanted request body, if it is short. Clients that still send when the stream is reset may drop the response
    /// they have, whatever the reset means.
    async fn discard_body(&mut self) {
        let mut left = DISCARD_BYTES_MAX;
        if self.body.is_done() {
            return;
        }
        self.body.idle_timeout = DISCARD_TIMEOUT;
        let mut body = Body { incoming: &mut self.body, out: self.out, deadline: &self.deadline };
        let rest = async {
            while !body.is_done() && body.fill().await.is_ok() {
                let count = body.incoming.bytes().len() as u64;
                if count > left || body.pass(&mut DiscardSink).is_err() {
                    return;
                }
                left -= count;
            }
        };
        // A client that the gateway holds back has no longer either.
        let _ = weir_engine::timeout(DISCARD_TIMEOUT, rest).await;
    }
}

impl Client for Http2Client<'_> {
    type Body<'a>
        = Body<'a>
    where
        Self: 'a;
    type ResponseSink<'a>
        = Http2ResponseSink<'a>
    where
        Self: 'a;
    type DisconnectWatch<'a>
        = &'a ResponseStream
    where
        Self: 'a;
    type TunnelReader<'a>
        = Http2TunnelReader<'a>
    where
        Self: 'a;
    type TunnelWriter<'a>
        = Http2TunnelWriter<'a>
    where
        Self: 'a;

    fn connection(&self) -> &Rc<Connection> {
        self.connection
    }

    fn poll_ended(connection: &Connection, _: &mut Context<'_>) -> bool {
        // A stream is woken by the end of its connection anyway.
        connection.handle.ending().is_some()
    }

    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.out.poll_disconnected(context)
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        self.body.poll_arrived(context)
    }

    fn has_whole_body(&self) -> bool {
        self.body.is_done()
    }

    fn exchange_io<'a>(
        &'a mut self,
        request: &'a RequestContext,
    ) -> ExchangeIo<'a, Body<'a>, Http2ResponseSink<'a>, &'a ResponseStream> {
        let Http2Client { out, body, deadline, origin_deadline, .. } = self;
        body.idle_timeout = request.body_idle_timeout;
        ExchangeIo {
            body: Body { incoming: body, out, deadline },
            response_sink: Http2ResponseSink { out, deadline: origin_deadline },
            watch: out,
            deadline,
            origin_deadline,
        }
    }

    fn sent_bytes(&self) -> SentBytes {
        self.out.sent()
    }

    fn requested_upgrade(&self, _: &RequestHead) -> RequestedUpgrade {
        self.upgrade.clone()
    }

    fn tunnel_io(&mut self) -> TunnelIo<'_, Http2TunnelReader<'_>, Http2TunnelWriter<'_>> {
        let Http2Client { out, body, deadline, origin_deadline, .. } = self;
        TunnelIo {
            tunnel_reader: Http2TunnelReader(body),
            tunnel_writer: Http2TunnelWriter(out),
            deadline,
            other_deadline: origin_deadline,
        }
    }

    fn reply(&mut self, request: &RequestContext, response: &LocalResponse, _: bool, _: &'static str) -> AfterExchange {
        match request.is_grpc {
            true => self.out.whole(&grpc::trailers_only(response), None, b""),
            false => self.out.whole(&response.head, response.length(), response.body(request.is_head)),
        }
        AfterExchange::KeepAlive
    }
}

/// The body of a request.
struct Body<'a> {
    incoming: &'a mut Incoming,
    out: &'a ResponseStream,
    deadline: &'a Deadline,
}

impl Source for Body<'_> {
    fn is_done(&self) -> bool {
        self.incoming.is_done()
    }

    async fn fill(&mut self) -> Result<(), BodyError> {
        self.incoming.fill(self.deadline).await
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        self.incoming.pass(sink)
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        self.incoming.poll_arrived(context)
    }

    fn is_held_back(&self) -> bool {
        self.incoming.is_held_back()
    }
}

impl RequestBody for Body<'_> {
    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.out.poll_disconnected(context)
    }
}

/// The sink of responses to the client.
struct Http2ResponseSink<'a> {
    out: &'a ResponseStream,
    deadline: &'a Deadline,
}

impl ResponseSink for Http2ResponseSink<'_> {
    fn interim(&mut self, head: &ResponseHead) {
        self.out.head(head, None, false);
    }

    fn head(&mut self, head: &ResponseHead, length: BodyLength, _: bool) -> bool {
        self.out.head(head, None, length == BodyLength::Exact(0));
        true
    }
}

impl Sink for Http2ResponseSink<'_> {
    fn data(&mut self, data: &[u8]) {
        self.out.data(data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.out.end(trailers);
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        self.out.flush(self.deadline).await
    }
}
