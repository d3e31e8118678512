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
use weir_flags_session::Token;
use weir_http::filter::{BodyAborted, BodyStream, HandlerRequest, HandlerResponse};
use weir_http_codec::{Fields, Known};

use crate::{
    access::{Access, Denial, Sight, is_still_good},
    client_api::{Selection, bad_query},
    edge::{Edge, View, Watch, Watched, seed},
    environment::Following,
    limits::{STREAM_KEEP_ALIVE, STREAM_RETRY_MILLIS},
    reply,
    settings::FlagsListenerSettings,
};

/// One stream.
struct FlagStream {
    _place: StreamPlace,
    /// Its place among the streams of its part of the flags, for which events are made ahead.
    following: Following,
    token: Arc<Token>,
    prefix: Box<str>,
    seen: Arc<View>,
    watch: Watch,
    /// The revision of the client. `None`: it has none that is known.
    client: Option<u64>,
    /// The wait before the client connects again and the first event, until they are sent.
    first: std::array::IntoIter<Bytes, 2>,
    keep_alive: Deadline,
}

/// Opens a stream.
pub(crate) async fn stream(
    edge: &Arc<Edge>,
    access: Access,
    request: &HandlerRequest,
    query: &str,
    settings: &FlagsListenerSettings,
) -> Result<HandlerResponse, Denial> {
    let Sight { environment, scope } = access.sight()?;
    let Some(selection) = Selection::of(query) else { return Ok(HandlerResponse::Whole(bad_query())) };
    let Some(place) = StreamPlace::take(edge, settings.streams_max) else {
        return Ok(HandlerResponse::Whole(reply::too_many_streams()));
    };
    let prefix = selection.prefix.unwrap_or_default();
    let client = reply::field(&request.head.fields, "last-event-id").and_then(revision).filter(|own| *own > 0);
    let following = scope.follow();
    let first = environment.first_event(&scope, &prefix, client).await.ok_or(Denial::NotYet)?;
    let stream = FlagStream {
        _place: place,
        following,
        prefix: prefix.into(),
        watch: Watch::new(edge.clone(), Watched::Flags),
        client: Some(environment.snapshot.revision()),
        first: [retry(), first].into_iter(),
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
        self.following = scope.follow();
        let event = environment.next_event(&scope, &self.prefix, self.client);
        self.client = Some(environment.snapshot.revision());
        event
    }
}

impl BodyStream for FlagStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyAborted>>> {
        if let Some(piece) = self.first.next() {
            return Poll::Ready(Some(Ok(piece)));
        }
        while let Poll::Ready(view) = self.watch.poll_changed(&self.seen.clone(), context) {
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
        if self.keep_alive.poll_expired(context).is_ready() {
            self.keep_alive.set(turn::now().saturating_add(STREAM_KEEP_ALIVE));
            return Poll::Ready(Some(Ok(Bytes::from_static(b":\n\n"))));
        }
        Poll::Pending
    }
}

/// The line that names the wait before the client connects again.
fn retry() -> Bytes {
    let (low, high) = STREAM_RETRY_MILLIS;
    format!("retry: {}\n", low + Rng::new(seed()).below(high - low + 1)).into()
}

/// A place among the streams of the listener, until it is dropped.
struct StreamPlace(Arc<Edge>);

impl StreamPlace {
    /// `None`: all are taken.
    fn take(edge: &Arc<Edge>, most: usize) -> Option<Self> {
        // It is given back with the value, also if there is no room.
        let place = Self(edge.clone());
        (edge.streams.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
