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
    flow::Account,
    message,
    out::{Out, flush},
    tunnel::{self, StreamInlet, StreamOutlet},
};
use crate::{
    asked::Asked,
    body::{Broken, Nowhere, RequestBody, Sink, Source},
    client::{After, Client, Replies, Sides},
    connection::Connection,
    ends::TunnelEnd,
    exchange, grpc,
    limits::{DISCARD_BYTES_MAX, DISCARD_TIMEOUT},
    notes::SentBytes,
    refusal::Refusal,
    response::OwnAnswer,
    upgrade::Wish,
};

/// Answers one stream.
pub(super) async fn serve(
    connection: &Rc<Connection>,
    account: Rc<Account>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let out = RefCell::new(Out::new(respond));
    let exchange = AssertUnwindSafe(exchange(connection, account, request, &out));
    let after = futures_util::FutureExt::catch_unwind(exchange).await;
    match after {
        Ok(After::Broken(grpc::EXPIRED)) => {
            out.borrow_mut().end(Some(&grpc::deadline_exceeded()));
            let _ = flush(&out, &weir_engine::deadline()).await;
        }
        Ok(After::Broken(_)) => {
            // What was sent goes out first: a reset drops what waits in the queue.
            turn_over().await;
            out.borrow_mut().reset(Reason::INTERNAL_ERROR);
        }
        // What is not over when it is dropped is cancelled.
        Ok(After::Another | After::Close(_)) => drop(flush(&out, &weir_engine::deadline()).await),
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
    account: Rc<Account>,
    request: Request<RecvStream>,
    out: &RefCell<Out>,
) -> After {
    let (parts, body) = request.into_parts();
    let wish = tunnel::wish(&parts, || connection.service.sessions.chance());
    let head = message::request(&parts, body.is_end_stream(), &wish);
    drop(parts);
    match head {
        Ok(mut head) => {
            let idle_timeout = connection.service.http().body_idle_timeout;
            let mut front = Front {
                connection,
                out,
                body: Incoming::of_request(body, head.body(), idle_timeout, account),
                wish,
                deadline: weir_engine::deadline(),
                origin_deadline: weir_engine::deadline(),
            };
            let after = exchange::run(&mut front, &mut head).await;
            if matches!(after, After::Another) {
                front.discard_body().await;
            }
            after
        }
        Err(error) => {
            let refusal = Refusal::malformed(error);
            connection.violated(refusal.reason, refusal.text);
            let answer = refusal.answer(None, connection.service.sessions.chance());
            out.borrow_mut().whole(&answer.head, answer.length(), answer.body(false));
            connection.log_unread("HTTP/2", &refusal, out.borrow().sent()());
            After::Another
        }
    }
}

/// The client's side of one exchange.
struct Front<'a> {
    connection: &'a Rc<Connection>,
    out: &'a RefCell<Out>,
    body: Incoming,
    wish: Wish,
    deadline: Deadline,
    origin_deadline: Deadline,
}

impl Front<'_> {
    /// Reads what is left of a request body that nobody wants any more, if that is little. Clients that still send when the
    /// stream is reset may drop the answer they have, whatever the reset says.
    async fn discard_body(&mut self) {
        let mut left = DISCARD_BYTES_MAX;
        // The answer first: what has no window yet waits for the end.
        let _ = poll_fn(|context| Poll::Ready(self.out.borrow_mut().poll_flush(context))).await;
        if self.body.is_done() {
            return;
        }
        self.body.idle_timeout = DISCARD_TIMEOUT;
        let mut body = Body { incoming: &mut self.body, out: self.out, deadline: &self.deadline };
        let rest = async {
            while !body.is_done() && body.fill().await.is_ok() {
                let count = body.incoming.current.len() as u64;
                if count > left || body.pass(&mut Nowhere).is_err() {
                    return;
                }
                left -= count;
            }
        };
        // A client that the gateway holds back has no longer either.
        let _ = weir_engine::timeout(DISCARD_TIMEOUT, rest).await;
    }
}

impl Client for Front<'_> {
    type Body<'a>
        = Body<'a>
    where
        Self: 'a;
    type Replies<'a>
        = StreamReplies<'a>
    where
        Self: 'a;
    type Watch<'a>
        = &'a RefCell<Out>
    where
        Self: 'a;
    type Inlet<'a>
        = StreamInlet<'a>
    where
        Self: 'a;
    type Outlet<'a>
        = StreamOutlet<'a>
    where
        Self: 'a;

    fn connection(&self) -> &Rc<Connection> {
        self.connection
    }

    fn poll_ended(connection: &Connection, _: &mut Context<'_>) -> bool {
        // A stream is woken by the end of its connection anyway.
        connection.handle.ending().is_some()
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.out.borrow_mut().poll_gone(context)
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Broken> {
        self.body.poll_arrived(context)
    }

    fn has_whole_body(&self) -> bool {
        self.body.is_done()
    }

    fn sides<'a>(&'a mut self, asked: &'a Asked) -> Sides<'a, Body<'a>, StreamReplies<'a>, &'a RefCell<Out>> {
        let Front { out, body, deadline, origin_deadline, .. } = self;
        body.idle_timeout = asked.body_idle_timeout;
        Sides {
            body: Body { incoming: body, out, deadline },
            replies: StreamReplies { out, deadline: origin_deadline },
            watch: out,
            deadline,
            origin_deadline,
        }
    }

    fn sent_bytes(&self) -> SentBytes {
        self.out.borrow().sent()
    }

    fn wish(&self, _: &RequestHead) -> Wish {
        self.wish.clone()
    }

    fn tunnel_end(&mut self) -> TunnelEnd<'_, StreamInlet<'_>, StreamOutlet<'_>> {
        let Front { out, body, deadline, origin_deadline, .. } = self;
        TunnelEnd { inlet: StreamInlet(body), outlet: StreamOutlet(out), deadline, other_deadline: origin_deadline }
    }

    fn reply(&mut self, asked: &Asked, answer: &OwnAnswer, _: bool, _: &'static str) -> After {
        let mut out = self.out.borrow_mut();
        match asked.is_grpc {
            true => out.whole(&grpc::trailers_only(answer), None, b""),
            false => out.whole(&answer.head, answer.length(), answer.body(asked.is_head)),
        }
        After::Another
    }
}

/// The body of a request.
struct Body<'a> {
    incoming: &'a mut Incoming,
    out: &'a RefCell<Out>,
    deadline: &'a Deadline,
}

impl Source for Body<'_> {
    fn is_done(&self) -> bool {
        self.incoming.is_done()
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        self.incoming.fill(self.deadline).await
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
        self.incoming.pass(sink)
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Broken> {
        self.incoming.poll_arrived(context)
    }

    fn is_held_back(&self) -> bool {
        self.incoming.is_held_back()
    }
}

impl RequestBody for Body<'_> {
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.out.borrow_mut().poll_gone(context)
    }
}

/// Answers on their way to the client.
struct StreamReplies<'a> {
    out: &'a RefCell<Out>,
    deadline: &'a Deadline,
}

impl Replies for StreamReplies<'_> {
    fn interim(&mut self, head: &ResponseHead) {
        self.out.borrow_mut().interim(head);
    }

    fn head(&mut self, head: &ResponseHead, length: BodyLength, _: bool) -> bool {
        self.out.borrow_mut().head(head, None, length == BodyLength::Exact(0));
        true
    }
}

impl Sink for StreamReplies<'_> {
    fn data(&mut self, data: &[u8]) {
        self.out.borrow_mut().data(data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.out.borrow_mut().end(trailers);
    }

    async fn relieved(&mut self) -> Result<(), Broken> {
        flush(self.out, self.deadline).await
    }
}
