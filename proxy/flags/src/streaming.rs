//! `GET /api/client/streaming`: changes as server-sent events.
//!
//! A stream keeps nothing but a revision: a client that reads slowly gets the next event when it has read the one before, and that event leads
//! to the newest state. Nothing is queued for it.

use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use bytes::Bytes;
use weir_base::{Rng, time::turn};
use weir_engine::Deadline;
use weir_flags_codec::etag::revision;
use weir_flags_session::{Token, delta::StreamEvent};
use weir_http::filter::{BodyAborted, BodyStream, HandlerRequest, HandlerResponse};
use weir_http_codec::{Fields, Known};

use crate::{
    access::{Access, Denial, is_still_good},
    client_api::{Selection, bad_query},
    edge::{Edge, View, Watch, Watched, seed},
    limits::{STREAM_KEEP_ALIVE, STREAM_RETRY_MILLIS},
    reply,
    settings::FlagsListenerSettings,
};

/// One stream.
struct FlagStream {
    edge: Arc<Edge>,
    token: Arc<Token>,
    prefix: Box<str>,
    seen: Arc<View>,
    watch: Watch,
    /// The revision of the client. `None`: it has none that is known.
    client: Option<u64>,
    /// The first event is still to come.
    is_new: bool,
    keep_alive: Deadline,
}

/// Opens a stream.
pub(crate) fn stream(
    edge: &Arc<Edge>,
    access: Access,
    request: &HandlerRequest,
    query: &str,
    settings: &FlagsListenerSettings,
) -> Result<HandlerResponse, Denial> {
    access.sight()?;
    let Some(selection) = Selection::of(query) else { return Ok(HandlerResponse::Whole(bad_query())) };
    if edge.streams.fetch_add(1, Ordering::Relaxed) >= settings.streams_max {
        edge.streams.fetch_sub(1, Ordering::Relaxed);
        return Ok(HandlerResponse::Whole(reply::too_many_streams()));
    }
    let stream = FlagStream {
        edge: edge.clone(),
        prefix: selection.prefix.unwrap_or_default().into(),
        watch: Watch::new(edge.clone(), Watched::Flags),
        client: reply::field(&request.head.fields, "last-event-id").and_then(revision).filter(|own| *own > 0),
        is_new: true,
        keep_alive: weir_engine::deadline(),
        token: access.token,
        seen: access.view,
    };
    stream.keep_alive.set(turn::now().saturating_add(STREAM_KEEP_ALIVE));
    let mut fields = Fields::new();
    fields.add(Known::ContentType, b"text/event-stream");
    fields.add(Known::CacheControl, b"no-cache, no-transform");
    // nginx in front would hold events back.
    fields.push(b"x-accel-buffering", b"no");
    Ok(HandlerResponse::Stream { status: 200, fields, body_stream: Box::new(stream) })
}

impl FlagStream {
    /// The event that leads the client to the state that is seen. `None`: there is nothing new for it.
    fn event(&mut self) -> Option<Bytes> {
        let environment = self.seen.environment(&self.token)?;
        let scope = environment.scope(self.token.projects());
        let kind = if self.is_new { StreamEvent::Connected } else { StreamEvent::Updated };
        let event = environment.stream_event(&scope, &self.prefix, kind, self.client);
        self.client = Some(environment.snapshot.event_id());
        if !std::mem::take(&mut self.is_new) {
            return event;
        }
        let (low, high) = STREAM_RETRY_MILLIS;
        let retry = low + Rng::new(seed()).below(high - low + 1);
        let mut first = format!("retry: {retry}\n").into_bytes();
        first.extend_from_slice(&event.unwrap_or_default());
        Some(first.into())
    }
}

impl BodyStream for FlagStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyAborted>>> {
        loop {
            if self.is_new
                && let Some(event) = self.event()
            {
                return Poll::Ready(Some(Ok(event)));
            }
            match self.watch.poll_changed(&self.seen.clone(), context) {
                Poll::Ready(view) => {
                    let is_served = is_still_good(&view, &self.token) && view.environment(&self.token).is_some();
                    self.seen = view;
                    if !is_served {
                        // The client comes back, and its token is judged again.
                        return Poll::Ready(None);
                    }
                    if let Some(event) = self.event() {
                        self.keep_alive.set(turn::now().saturating_add(STREAM_KEEP_ALIVE));
                        return Poll::Ready(Some(Ok(event)));
                    }
                }
                Poll::Pending => break,
            }
        }
        if self.keep_alive.poll_expired(context).is_ready() {
            self.keep_alive.set(turn::now().saturating_add(STREAM_KEEP_ALIVE));
            return Poll::Ready(Some(Ok(Bytes::from_static(b":\n\n"))));
        }
        Poll::Pending
    }
}

impl Drop for FlagStream {
    fn drop(&mut self) {
        self.edge.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
