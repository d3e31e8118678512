//! One stream of HTTP/2: one exchange.

use std::{
    cell::RefCell,
    future::poll_fn,
    panic::AssertUnwindSafe,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::Request;
use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Fields, RequestHead, ResponseHead};

use super::{
    body::Incoming,
    flow::FlowAccount,
    message,
    response_stream::{ResponseStream, flush},
    tunnel::{self, Http2TunnelReader, Http2TunnelWriter},
};
use crate::{
    access_notes::SentBytes,
    body::{BodyError, DiscardSink, RequestBody, Sink, Source},
    client::{AfterExchange, Client, ExchangeIo, ResponseSink},
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
pub(super) async fn serve(
    connection: &Rc<Connection>,
    account: Rc<FlowAccount>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let out = RefCell::new(ResponseStream::new(respond));
    let exchange = AssertUnwindSafe(exchange(connection, account, request, &out));
    let after = futures_util::FutureExt::catch_unwind(exchange).await;
    match after {
        Ok(AfterExchange::Abort(grpc::EXPIRED)) => {
            out.borrow_mut().end(Some(&grpc::deadline_exceeded()));
            let _ = flush(&out, &weir_engine::deadline()).await;
        }
        Ok(AfterExchange::Abort(_)) => {
            // Sent bytes go out first: a reset drops those that wait in the queue.
            turn_over().await;
            out.borrow_mut().reset(Reason::INTERNAL_ERROR);
        }
        // An unfinished stream is cancelled when it is dropped.
        Ok(AfterExchange::KeepAlive | AfterExchange::Close(_)) => drop(flush(&out, &weir_engine::deadline()).await),
        Err(_) => {
            connection.service.sessions.panicked(&connection.handle, "the exchange of a stream panicked");
            out.borrow_mut().reset(Reason::INTERNAL_ERROR);
        }
    }
}

/// Lets the other tasks that are ready have their turn.
async fn turn_over() {
    let mut is_over = false;
    poll_fn(|context| match std::mem::replace(&mut is_over, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

async fn exchange(
    connection: &Rc<Connection>,
    account: Rc<FlowAccount>,
    request: Request<RecvStream>,
    out: &RefCell<ResponseStream>,
) -> AfterExchange {
    let (parts, body) = request.into_parts();
    let upgrade = tunnel::requested_upgrade(&parts, || connection.service.sessions.chance());
    let head = message::request(&parts, body.is_end_stream(), &upgrade);
    drop(parts);
    match head {
        Ok(mut head) => {
            let idle_timeout = connection.service.http().body_idle_timeout;
            let mut client = Http2Client {
                connection,
                out,
                body: Incoming::of_request(body, head.body(), idle_timeout, account),
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
        Err(error) => {
            let refusal = Refusal::malformed(error);
            connection.violated(refusal.reason, refusal.text);
            let response = respond::malformed(connection, &refusal);
            out.borrow_mut().whole(&response.head, response.length(), response.body(false));
            connection.log_malformed("HTTP/2", &refusal, out.borrow().sent()());
            AfterExchange::KeepAlive
        }
    }
}

/// The client's side of one exchange.
struct Http2Client<'a> {
    connection: &'a Rc<Connection>,
    out: &'a RefCell<ResponseStream>,
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
        // The response first: bytes without a window wait for the end.
        let _ = poll_fn(|context| Poll::Ready(self.out.borrow_mut().poll_flush(context))).await;
        if self.body.is_done() {
            return;
        }
        self.body.idle_timeout = DISCARD_TIMEOUT;
        let mut body = Body { incoming: &mut self.body, out: self.out, deadline: &self.deadline };
        let rest = async {
            while !body.is_done() && body.fill().await.is_ok() {
                let count = body.incoming.current.len() as u64;
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
        = &'a RefCell<ResponseStream>
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
        self.out.borrow_mut().poll_disconnected(context)
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
    ) -> ExchangeIo<'a, Body<'a>, Http2ResponseSink<'a>, &'a RefCell<ResponseStream>> {
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
        self.out.borrow().sent()
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
        let mut out = self.out.borrow_mut();
        match request.is_grpc {
            true => out.whole(&grpc::trailers_only(response), None, b""),
            false => out.whole(&response.head, response.length(), response.body(request.is_head)),
        }
        AfterExchange::KeepAlive
    }
}

/// The body of a request.
struct Body<'a> {
    incoming: &'a mut Incoming,
    out: &'a RefCell<ResponseStream>,
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
        self.out.borrow_mut().poll_disconnected(context)
    }
}

/// The sink of responses to the client.
struct Http2ResponseSink<'a> {
    out: &'a RefCell<ResponseStream>,
    deadline: &'a Deadline,
}

impl ResponseSink for Http2ResponseSink<'_> {
    fn interim(&mut self, head: &ResponseHead) {
        self.out.borrow_mut().interim(head);
    }

    fn head(&mut self, head: &ResponseHead, length: BodyLength, _: bool) -> bool {
        self.out.borrow_mut().head(head, None, length == BodyLength::Exact(0));
        true
    }
}

impl Sink for Http2ResponseSink<'_> {
    fn data(&mut self, data: &[u8]) {
        self.out.borrow_mut().data(data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.out.borrow_mut().end(trailers);
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        flush(self.out, self.deadline).await
    }
}
