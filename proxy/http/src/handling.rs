//! Requests that a handler answers.

use std::{cell::RefCell, future::poll_fn, pin::pin, task::Poll};

use bytes::Bytes;
use weir_base::{
    BytesPermit,
    error::Culprit,
    time::{Time, turn},
};
use weir_engine::Deadline;
use weir_http_codec::{BodyLength, RequestHead};
use weir_listener::CloseReason;

use crate::{
    asked::Asked,
    attempt::call_timeout,
    body::{Broken, RequestBody as _, Sink, Source, relay},
    buffering::{self, Passing},
    client::{After, Client, Replies as _, Sides},
    doors::{BrokenOff, HandlerRequest, Pieces, Response},
    failure::{EXPIRED, Failure},
    kept::Kept,
    refusal::Refusal,
    respond,
    response::OwnAnswer,
    routed::{Handled, body_bytes_max},
    routes::Action,
    settings::HttpListenerSettings,
    upgrade::Wish,
    waiting::{Cut, while_wanted},
};

/// A handler does not bring its response to an end.
const BROKEN: CloseReason = CloseReason::Broken { reason: "handler_broke_off", culprit: Culprit::Gateway };

/// Has a request answered by a handler.
pub(crate) async fn run<C: Client>(
    client: &mut C,
    asked: &mut Asked,
    head: &mut RequestHead,
    settings: &HttpListenerSettings,
    handled: Handled<'_>,
) -> After {
    // No response of a handler makes a WebSocket, and over HTTP/2 a 2xx would say that it did (RFC 8441 section 5).
    if asked.version.is_multiplexed() && asked.wish != Wish::None {
        return respond::refuse(client, asked, Refusal::CONNECT_PROTOCOL);
    }
    let Handled { handler, action, caller } = handled;
    asked.wish = Wish::None;
    asked.body_idle_timeout = action.body_idle_timeout.unwrap_or(settings.body_idle_timeout);
    asked.answer_idle_timeout = action.answer_idle_timeout.unwrap_or(settings.answer_idle_timeout);
    // The handler may hold the body for as long as it answers.
    let (body, _permit) = match read(client, asked, handler.body_bytes_max(), action, settings).await {
        Ok(read) => read,
        Err(failure) => return respond::unread(client, asked, failure, "", None),
    };
    let ends = call_timeout(asked, action, settings).map(|timeout| asked.arrived.saturating_add(timeout));
    let answers = turn::now().saturating_add(action.response_timeout.unwrap_or(settings.response_timeout));
    let until = ends.map_or(answers, |ends| ends.min(answers));
    let own = asked.own_fields();
    let request = HandlerRequest { head: std::mem::take(head), body, caller };
    match while_wanted(client, Some(until), handler.clone().handle(request)).await {
        Ok(Response::Whole(whole)) => respond::whole(client, asked, whole, "ok"),
        Ok(Response::Stream { status, fields, pieces }) => {
            let head = OwnAnswer::new(status, b"", Bytes::new()).with_own(fields).with(&own);
            stream(client, asked, head, pieces, ends).await
        }
        Err(Cut::Late) if ends == Some(until) => respond::refuse(client, asked, Refusal::REQUEST_TIMEOUT),
        Err(Cut::Late) => respond::refuse(client, asked, Refusal::RESPONSE_TIMEOUT),
        Err(cut) => respond::cut_short(client, asked, cut),
    }
}

/// Reads the body of a request, of at most `most` bytes.
async fn read<C: Client>(
    client: &mut C,
    asked: &mut Asked,
    most: usize,
    action: &Action,
    settings: &HttpListenerSettings,
) -> Result<(Bytes, Option<BytesPermit>), Failure> {
    if asked.body == BodyLength::Exact(0) {
        return Ok((Bytes::new(), None));
    }
    let connection = client.connection().clone();
    let room = body_bytes_max(action, settings, asked, false).min(most as u64);
    if matches!(asked.body, BodyLength::Exact(length) if length > room) {
        connection.service.metrics.denied(Refusal::BODY_TOO_LONG.reason);
        return Err(Failure::Unwilling(Refusal::BODY_TOO_LONG));
    }
    // One byte more than may come: it is not full before it is whole.
    let kept = RefCell::new(Kept::new(&connection.service.sessions.core().bytes, most.saturating_add(1), 0));
    let passing = Passing {
        room,
        rate: action.body_rate_min.unwrap_or(settings.body_rate_min),
        timeout: action.request_timeout.or(settings.request_timeout),
        identity_fields: &[],
        copied: None,
        inspecting: None,
    };
    if buffering::run(client, asked, &kept, passing).await? {
        let (body, permit) = kept.into_inner().into_parts();
        return Ok((body, Some(permit)));
    }
    connection.service.metrics.shed(Refusal::BODY_NO_ROOM.reason);
    Err(Failure::Unwilling(Refusal::BODY_NO_ROOM))
}

/// The pieces of a handler as a body.
struct HandlerBody<'a> {
    pieces: Box<dyn Pieces>,
    current: Bytes,
    is_over: bool,
    /// Of the next piece.
    deadline: &'a Deadline,
    asked: &'a Asked,
}

impl Source for HandlerBody<'_> {
    fn is_done(&self) -> bool {
        self.is_over && self.current.is_empty()
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        self.deadline.set(turn::now().saturating_add(self.asked.answer_idle_timeout));
        let next = poll_fn(|context| match self.pieces.poll_next(context) {
            Poll::Ready(next) => Poll::Ready(Ok(next)),
            Poll::Pending => self.deadline.poll_expired(context).map(|()| Err(Broken::Idle)),
        });
        match next.await? {
            Some(Ok(piece)) => self.current = piece,
            Some(Err(BrokenOff)) => return Err(Broken::Cut),
            None => self.is_over = true,
        }
        Ok(())
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
        match self.is_over {
            true => sink.end(None),
            false => sink.data(&std::mem::take(&mut self.current)),
        }
        Ok(())
    }
}

/// Sends a response as it comes, until the exchange `ends`.
async fn stream<C: Client>(
    client: &mut C,
    asked: &Asked,
    answer: OwnAnswer,
    pieces: Box<dyn Pieces>,
    ends: Option<Time>,
) -> After {
    let connection = client.connection().clone();
    let head = answer.head;
    let ended = {
        let Sides { mut body, mut replies, origin_deadline, .. } = client.sides(asked);
        let has_body = head.has_body(asked.is_head);
        let keeps = replies.head(&head, if has_body { BodyLength::Chunked } else { BodyLength::Exact(0) }, true);
        let mut source =
            HandlerBody { pieces, current: Bytes::new(), is_over: !has_body, deadline: origin_deadline, asked };
        let all = ends.map(|ends| {
            let all = weir_engine::deadline();
            all.set(ends);
            all
        });
        let ended = {
            let mut sent = pin!(relay(&mut source, &mut replies));
            poll_fn(|context| {
                if C::poll_ended(&connection, context) || body.poll_gone(context).is_ready() {
                    return Poll::Ready(Err(CloseReason::ClientReset));
                }
                if all.as_ref().is_some_and(|all| all.poll_expired(context).is_ready()) {
                    return Poll::Ready(Err(EXPIRED));
                }
                sent.as_mut().poll(context).map_err(|broken| match broken {
                    Broken::Cut => BROKEN,
                    broken => Failure::of_origin(broken).reason(),
                })
            })
            .await
        };
        ended.map(|()| keeps)
    };
    match ended {
        Ok(keeps) => {
            connection.answered(asked, head.status(), None, "", "ok");
            if keeps { After::Another } else { After::Close(CloseReason::Ended("answered")) }
        }
        Err(reason) => respond::broke_off(&connection, asked, head.status(), reason),
    }
}
