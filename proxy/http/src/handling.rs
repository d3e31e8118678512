//! Requests that a handler answers.

use std::{cell::RefCell, future::poll_fn, pin::pin, sync::Arc, task::Poll};

use bytes::Bytes;
use weir_base::error::Culprit;
use weir_http_codec::{BodyLength, RequestHead};
use weir_listener::CloseReason;

use crate::{
    asked::Asked,
    body::{Broken, RequestBody as _, Sink, Source, relay},
    buffering::{self, Passing},
    client::{After, Client, Replies as _, Sides},
    doors::{BrokenOff, Handler, HandlerRequest, Pieces, Response},
    failure::Failure,
    kept::Kept,
    refusal::Refusal,
    respond,
    response::OwnAnswer,
    settings::HttpListenerSettings,
    waiting::while_wanted,
};

/// A handler does not bring its response to an end.
const BROKEN: CloseReason = CloseReason::Broken { reason: "handler_broke_off", culprit: Culprit::Gateway };

/// Has a request answered by a handler.
pub(crate) async fn run<C: Client>(
    client: &mut C,
    asked: &mut Asked,
    head: &mut RequestHead,
    settings: &HttpListenerSettings,
    handler: Arc<dyn Handler>,
) -> After {
    let body = match read(client, asked, handler.body_bytes_max(), settings).await {
        Ok(body) => body,
        Err(failure) => return respond::unread(client, asked, failure, "", None),
    };
    let own = asked.own_fields();
    let request = HandlerRequest { head: std::mem::take(head), body };
    match while_wanted(client, None, handler.handle(request)).await {
        Ok(Response::Whole(whole)) => respond::whole(client, asked, whole, "ok"),
        Ok(Response::Stream { status, fields, pieces }) => {
            let head = OwnAnswer::new(status, b"", Bytes::new()).with_own(fields).with(&own);
            stream(client, asked, head, pieces).await
        }
        Err(cut) => respond::cut_short(client, asked, cut),
    }
}

/// Reads the body of a request, of at most `most` bytes.
async fn read<C: Client>(
    client: &mut C,
    asked: &mut Asked,
    most: usize,
    settings: &HttpListenerSettings,
) -> Result<Bytes, Failure> {
    if asked.body == BodyLength::Exact(0) {
        return Ok(Bytes::new());
    }
    if matches!(asked.body, BodyLength::Exact(length) if length > most as u64) {
        return Err(Failure::Client(Refusal::BODY_TOO_LONG));
    }
    // One byte more than may come: it is not full before it is whole.
    let kept = RefCell::new(Kept::new(&client.connection().service.sessions.core().bytes, most + 1, 0));
    let passing = Passing {
        room: most as u64,
        rate: settings.body_rate_min,
        timeout: settings.request_timeout,
        identity_fields: &[],
        copied: None,
        inspecting: None,
    };
    match buffering::run(client, asked, &kept, passing).await? {
        true => Ok(kept.into_inner().into_bytes()),
        false => Err(Failure::Unwilling(Refusal::BODY_NO_ROOM)),
    }
}

/// The pieces of a handler as a body.
struct Handled {
    pieces: Box<dyn Pieces>,
    current: Bytes,
    is_over: bool,
}

impl Source for Handled {
    fn is_done(&self) -> bool {
        self.is_over && self.current.is_empty()
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        match poll_fn(|context| self.pieces.poll_next(context)).await {
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

/// Sends a response as it comes.
async fn stream<C: Client>(client: &mut C, asked: &Asked, answer: OwnAnswer, pieces: Box<dyn Pieces>) -> After {
    let connection = client.connection().clone();
    let head = answer.head;
    let ended = {
        let Sides { mut body, mut replies, .. } = client.sides(asked);
        let has_body = head.has_body(asked.is_head);
        let keeps = replies.head(&head, if has_body { BodyLength::Chunked } else { BodyLength::Exact(0) }, true);
        let mut source = Handled { pieces, current: Bytes::new(), is_over: !has_body };
        let ended = {
            let mut sent = pin!(relay(&mut source, &mut replies));
            poll_fn(|context| {
                if C::poll_ended(&connection, context) || body.poll_gone(context).is_ready() {
                    return Poll::Ready(Err(CloseReason::ClientReset));
                }
                sent.as_mut().poll(context).map_err(|broken| match broken {
                    Broken::Cut => BROKEN,
                    broken => Failure::of_origin(broken).reason(),
                })
            })
            .await
        };
        connection.service.sessions.read(body.received());
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
