//! Routes to a handler: the request goes to it, and its response to the client.

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
    attempt::call_timeout,
    body::{BodyError, RequestBody as _, Sink, Source, relay},
    buffered_body::BufferedBody,
    buffering::{self, BufferingLimits},
    client::{AfterExchange, Client, ExchangeIo, ResponseSink as _},
    destination::{HandlerRoute, body_bytes_max},
    failure::{AttemptFailure, EXPIRED},
    filter::{BodyAborted, BodyStream, HandlerRequest, HandlerResponse},
    local_response::LocalResponse,
    refusal::Refusal,
    request_context::RequestContext,
    respond,
    routes::Action,
    settings::HttpListenerSettings,
    upgrade::RequestedUpgrade,
    wait::{WaitAborted, while_client_waits},
};

/// Bytes of a piece of a handler that are copied for a client at once. Default 64 KiB: a client that reads slowly gets the next part when it has
/// taken this one.
const PART_BYTES_MAX: usize = 64 * 1024;

/// A handler does not bring its response to an end.
const HANDLER_ABORTED: CloseReason = CloseReason::Broken { reason: "handler_broke_off", culprit: Culprit::Gateway };

/// Serves a request by a handler.
pub(crate) async fn run<C: Client>(
    client: &mut C,
    request: &mut RequestContext,
    head: &mut RequestHead,
    settings: &HttpListenerSettings,
    handled: HandlerRoute<'_>,
) -> AfterExchange {
    // No response of a handler makes a WebSocket, and over HTTP/2 a 2xx would say that it did (RFC 8441 section 5).
    if request.version.is_multiplexed() && request.upgrade != RequestedUpgrade::None {
        return respond::refuse(client, request, Refusal::CONNECT_PROTOCOL);
    }
    let HandlerRoute { handler, action, caller } = handled;
    request.upgrade = RequestedUpgrade::None;
    request.body_idle_timeout = action.body_idle_timeout.unwrap_or(settings.body_idle_timeout);
    request.response_idle_timeout = action.response_idle_timeout.unwrap_or(settings.response_idle_timeout);
    if request.body != BodyLength::Exact(0)
        && let Some(refused) = handler.refuse(head)
    {
        return respond::send_whole(client, request, refused, "refused");
    }
    // The handler may hold the body until its response is over.
    let (body, _permit) = match read(client, request, handler.body_bytes_max(), action, settings).await {
        Ok(read) => read,
        Err(failure) => return respond::body_failed(client, request, failure, "", None),
    };
    let ends = call_timeout(request, action, settings).map(|timeout| request.arrived.saturating_add(timeout));
    let respond_by = turn::now().saturating_add(action.response_timeout.unwrap_or(settings.response_timeout));
    let until = ends.map_or(respond_by, |ends| ends.min(respond_by));
    let handler_request = HandlerRequest { head: std::mem::take(head), body, caller };
    match while_client_waits(client, Some(until), handler.clone().handle(handler_request)).await {
        Ok(response) => send(client, request, response, ends).await,
        Err(WaitAborted::TimedOut) if ends == Some(until) => respond::refuse(client, request, Refusal::REQUEST_TIMEOUT),
        Err(WaitAborted::TimedOut) => respond::refuse(client, request, Refusal::RESPONSE_TIMEOUT),
        Err(aborted) => respond::wait_aborted(client, request, aborted),
    }
}

/// Sends a response of another room, until the exchange `ends`. The body of the request has been read.
pub(crate) async fn send<C: Client>(
    client: &mut C,
    request: &RequestContext,
    response: HandlerResponse,
    ends: Option<Time>,
) -> AfterExchange {
    match response {
        HandlerResponse::Whole(whole) => respond::send_whole(client, request, whole, "ok"),
        HandlerResponse::Stream { status, fields, body_stream } => {
            let own = request.local_response_fields();
            let mut head = LocalResponse::new(status, b"", Bytes::new()).with_own(fields).with(&own);
            respond::change_head(request, &mut head);
            stream(client, request, head, body_stream, ends).await
        }
    }
}

/// Reads the body of a request, up to `most` bytes.
async fn read<C: Client>(
    client: &mut C,
    request: &mut RequestContext,
    most: usize,
    action: &Action,
    settings: &HttpListenerSettings,
) -> Result<(Bytes, Option<BytesPermit>), AttemptFailure> {
    if request.body == BodyLength::Exact(0) {
        return Ok((Bytes::new(), None));
    }
    let connection = client.connection().clone();
    let room = body_bytes_max(action, settings, request, false).min(most as u64);
    if matches!(request.body, BodyLength::Exact(length) if length > room) {
        connection.service.metrics.denied(Refusal::BODY_TOO_LONG.reason);
        return Err(AttemptFailure::Declined(Refusal::BODY_TOO_LONG));
    }
    // One byte more than may come: it is not full before it is whole.
    let buffered =
        RefCell::new(BufferedBody::new(&connection.service.sessions.core().bytes, most.saturating_add(1), 0));
    let buffering_limits = BufferingLimits {
        room,
        rate: action.body_rate_min.unwrap_or(settings.body_rate_min),
        timeout: action.request_timeout.or(settings.request_timeout),
        identity_fields: &[],
        copy: None,
        inspection: None,
    };
    if buffering::run(client, request, &buffered, buffering_limits).await? {
        let (body, permit) = buffered.into_inner().into_parts();
        return Ok((body, Some(permit)));
    }
    connection.service.metrics.shed(Refusal::BODY_NO_ROOM.reason);
    Err(AttemptFailure::Declined(Refusal::BODY_NO_ROOM))
}

/// The pieces of a handler as a body.
struct HandlerBody<'a> {
    body_stream: Box<dyn BodyStream>,
    current: Bytes,
    is_over: bool,
    /// Deadline of the next piece.
    deadline: &'a Deadline,
    request: &'a RequestContext,
}

impl Source for HandlerBody<'_> {
    fn is_done(&self) -> bool {
        self.is_over && self.current.is_empty()
    }

    async fn fill(&mut self) -> Result<(), BodyError> {
        if !self.current.is_empty() {
            return Ok(());
        }
        self.deadline.set(turn::now().saturating_add(self.request.response_idle_timeout));
        let next = poll_fn(|context| match self.body_stream.poll_next(context) {
            Poll::Ready(next) => Poll::Ready(Ok(next)),
            Poll::Pending => self.deadline.poll_expired(context).map(|()| Err(BodyError::TimedOut)),
        });
        match next.await? {
            Some(Ok(piece)) => self.current = piece,
            Some(Err(BodyAborted)) => return Err(BodyError::Truncated),
            None => self.is_over = true,
        }
        Ok(())
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        match self.is_over {
            true => sink.end(None),
            false => sink.data(&next_part(&mut self.current)),
        }
        Ok(())
    }
}

/// The part of a piece that is sent next. Many clients may share a piece, and each holds no more than a part of its own.
fn next_part(piece: &mut Bytes) -> Bytes {
    piece.split_to(piece.len().min(PART_BYTES_MAX))
}

/// Sends a response as it comes, until the exchange `ends`.
async fn stream<C: Client>(
    client: &mut C,
    request: &RequestContext,
    response: LocalResponse,
    body_stream: Box<dyn BodyStream>,
    ends: Option<Time>,
) -> AfterExchange {
    let connection = client.connection().clone();
    let head = response.head;
    let ended = {
        let ExchangeIo { mut body, mut response_sink, origin_deadline, .. } = client.exchange_io(request);
        let has_body = head.has_body(request.is_head);
        let keeps = response_sink.head(&head, if has_body { BodyLength::Chunked } else { BodyLength::Exact(0) }, true);
        let mut source =
            HandlerBody { body_stream, current: Bytes::new(), is_over: !has_body, deadline: origin_deadline, request };
        let all = ends.map(|ends| {
            let all = weir_engine::deadline();
            all.set(ends);
            all
        });
        let ended = {
            let mut sent = pin!(relay(&mut source, &mut response_sink));
            poll_fn(|context| {
                if C::poll_ended(&connection, context) || body.poll_disconnected(context).is_ready() {
                    return Poll::Ready(Err(connection.disconnect_reason()));
                }
                if all.as_ref().is_some_and(|all| all.poll_expired(context).is_ready()) {
                    return Poll::Ready(Err(EXPIRED));
                }
                sent.as_mut().poll(context).map_err(|broken| match broken {
                    BodyError::Truncated => HANDLER_ABORTED,
                    broken => AttemptFailure::of_origin(broken).reason(),
                })
            })
            .await
        };
        ended.map(|()| keeps)
    };
    match ended {
        Ok(keeps) => {
            connection.record_response(request, head.status(), None, "", "ok");
            if keeps { AfterExchange::KeepAlive } else { AfterExchange::Close(CloseReason::Ended("after_response")) }
        }
        Err(reason) => respond::abort(&connection, request, head.status(), reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_piece_is_sent_in_parts() {
        let mut piece = Bytes::from(vec![b'x'; 2 * PART_BYTES_MAX + 1]);
        let parts = std::array::from_fn(|_| next_part(&mut piece).len());
        assert_eq!(parts, [PART_BYTES_MAX, PART_BYTES_MAX, 1, 0]);
    }
}
