//! `GET /api/client/streaming`: changes as server-sent events.
//!
//! A stream keeps the revision of its client, and at most one event that is under way. A client that reads slowly gets the next event when it has
//! read the one before, with all changes that came until that event was begun. Nothing is queued for it.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use weir_base::time::turn;
use weir_engine::Deadline;
use weir_flags_codec::etag::revision;
use weir_flags_session::{Token, delta::StreamEvent};
use weir_http::filter::{BodyAborted, BodyStream, HandlerRequest, HandlerResponse};
use weir_http_codec::{Fields, Known};

use crate::{
    access::{Access, Denial, Sight, is_still_good},
    client_api::{Selection, bad_query},
    edge::{Edge, View, Watch, Watched, random_in},
    environment::Following,
    flight::NotMade,
    limits::{STREAM_EVENT_RETRY_MILLIS, STREAM_KEEP_ALIVE, STREAM_RETRY_MILLIS},
    reply,
    settings::FlagsListenerSettings,
};

/// One stream.
struct FlagStream {
    _place: StreamPlace,
    /// Its place among the streams of its part of the flags, for which events are made ahead.
    following: Following,
    token: Arc<Token>,
    prefix: Arc<str>,
    seen: Arc<View>,
    watch: Watch,
    /// The revision of the client.
    client: u64,
    news: News,
    /// The wait before the client connects again and the first event, until they are sent.
    first: std::array::IntoIter<Bytes, 2>,
    keep_alive: Deadline,
}

/// The next event, on its way.
enum News {
    Nothing,
    /// Another thread writes it, and it leads to this revision.
    UnderWay(Writing, u64),
    /// There was no room for it. The next attempt has a time.
    Owed(Deadline),
}

type Writing = Pin<Box<dyn Future<Output = Result<Bytes, NotMade>>>>;

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
        client: environment.snapshot.revision(),
        news: News::Nothing,
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
    /// The next event. `Ready(None)`: the token is not served any more, or the thread that wrote the event has panicked.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            while let Poll::Ready(view) = self.watch.poll_changed(&self.seen.clone(), context) {
                let is_served = is_still_good(&view, &self.token) && view.environment(&self.token).is_some();
                self.seen = view;
                if !is_served {
                    return Poll::Ready(None);
                }
            }
            let (event, revision) = match mem::replace(&mut self.news, News::Nothing) {
                News::UnderWay(mut writing, revision) => match writing.as_mut().poll(context) {
                    Poll::Ready(Ok(event)) => (event, revision),
                    Poll::Ready(Err(NotMade::Panicked)) => return Poll::Ready(None),
                    Poll::Ready(Err(NotMade::NoRoom)) => {
                        self.owe();
                        continue;
                    }
                    Poll::Pending => {
                        self.news = News::UnderWay(writing, revision);
                        return Poll::Pending;
                    }
                },
                News::Owed(retry) if retry.poll_expired(context).is_pending() => {
                    self.news = News::Owed(retry);
                    return Poll::Pending;
                }
                News::Nothing | News::Owed(_) => match self.begin_event() {
                    Some(written) => written,
                    None if matches!(self.news, News::Nothing) => return Poll::Pending,
                    None => continue,
                },
            };
            self.client = revision;
            if !event.is_empty() {
                return Poll::Ready(Some(event));
            }
        }
    }

    /// Begins the event that leads the client to the state that is seen. A short one is written at once, and comes with its revision.
    fn begin_event(&mut self) -> Option<(Bytes, u64)> {
        let environment = self.seen.environment(&self.token)?.clone();
        let (client, revision) = (self.client, environment.snapshot.revision());
        if client == revision {
            return None;
        }
        let scope = environment.scope(self.token.projects());
        self.following = scope.follow();
        let event = environment.event_at_once(&scope, &self.prefix, StreamEvent::Updated, Some(client));
        if event.is_none() {
            let prefix = self.prefix.clone();
            let write =
                async move { environment.event_elsewhere(&scope, &prefix, StreamEvent::Updated, Some(client)).await };
            self.news = News::UnderWay(Box::pin(write), revision);
        }
        event.map(|event| (event, revision))
    }

    /// Leaves the event for later. Streams that lack room at the same time come again at different ones.
    fn owe(&mut self) {
        let retry = weir_engine::deadline();
        let wait = Duration::from_millis(random_in(STREAM_EVENT_RETRY_MILLIS));
        retry.set(turn::now().saturating_add(wait));
        self.news = News::Owed(retry);
    }
}

impl BodyStream for FlagStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyAborted>>> {
        if let Some(piece) = self.first.next() {
            return Poll::Ready(Some(Ok(piece)));
        }
        let piece = match self.poll_event(context) {
            Poll::Ready(Some(event)) => event,
            // The client comes back, and its token is judged again.
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if self.keep_alive.poll_expired(context).is_ready() => Bytes::from_static(b":\n\n"),
            Poll::Pending => return Poll::Pending,
        };
        self.keep_alive.set(turn::now().saturating_add(STREAM_KEEP_ALIVE));
        Poll::Ready(Some(Ok(piece)))
    }
}

/// The line that names the wait before the client connects again.
fn retry() -> Bytes {
    format!("retry: {}\n", random_in(STREAM_RETRY_MILLIS)).into()
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

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        future::poll_fn,
        sync::{Mutex, mpsc},
    };

    use futures_util::FutureExt as _;
    use weir_base::Time;
    use weir_flags_session::TokenTable;

    use super::*;
    use crate::{
        environment::{Environment, lock, tests::later_snapshot},
        flight::on_worker,
        limits::{FLIGHTS_MAX, WRITE_AT_ONCE_MAX},
    };

    fn token() -> Arc<Token> {
        Arc::new(Token::parse("*:development.secret").expect("a token"))
    }

    /// A state with so many changes that take long to write.
    fn view(changes: usize) -> View {
        let snapshot = later_snapshot(changes, WRITE_AT_ONCE_MAX + 1);
        let environment = Arc::new(Environment::new("development", snapshot, None, Time::now()));
        let mut tokens = TokenTable::new(0);
        tokens.restore(Token::clone(&token()));
        View {
            tokens,
            is_offline: false,
            sources: vec![token()],
            awaits_sources: false,
            environments: HashMap::from([("development".into(), environment)]),
        }
    }

    /// A stream with a beginning of names whose client lacks the last change.
    fn stream(edge: &Arc<Edge>) -> FlagStream {
        edge.publish(view(1), Watched::Flags);
        let (seen, token) = (edge.view(), token());
        let environment = seen.environment(&token).expect("it has flags").clone();
        let mut stream = FlagStream {
            _place: StreamPlace::take(edge, 1).expect("room"),
            following: environment.scope(token.projects()).follow(),
            token,
            prefix: "a".into(),
            watch: Watch::new(edge.clone(), Watched::Flags),
            client: environment.snapshot.revision() - 1,
            news: News::Nothing,
            first: [retry(), retry()].into_iter(),
            keep_alive: weir_engine::deadline(),
            seen,
        };
        stream.first.by_ref().for_each(drop);
        stream.keep_alive.set(turn::now().saturating_add(STREAM_KEEP_ALIVE));
        stream
    }

    /// Whether there is nothing to send now.
    async fn waits(stream: &mut FlagStream) -> bool {
        poll_fn(|context| Poll::Ready(stream.poll_next(context).is_pending())).await
    }

    #[test]
    fn a_long_event_is_written_on_another_thread_as_soon_as_there_is_room() {
        on_worker(|| async {
            let edge = Arc::<Edge>::default();
            let mut stream = stream(&edge);
            let environment = stream.seen.environment(&stream.token).expect("it has flags").clone();
            let scope = environment.scope(stream.token.projects());
            let (go, gate) = mpsc::channel::<()>();
            let gate = Arc::new(Mutex::new(gate));
            let occupy = |number: usize| {
                let (scope, gate) = (scope.clone(), gate.clone());
                let wait = move || {
                    let _ = lock(&gate).recv();
                    Bytes::new()
                };
                let key = (format!("{number}").into(), None);
                let mut work = Box::pin(async move { scope.prefix_updates.join(key, || None, wait).await });
                assert!(work.as_mut().now_or_never().is_none());
                work
            };
            let others: Vec<_> = (0..FLIGHTS_MAX).map(occupy).collect();
            assert!(waits(&mut stream).await);
            assert!(matches!(stream.news, News::Owed(_)), "there is no room");
            stream.keep_alive.set(turn::now());
            let comment = poll_fn(|context| stream.poll_next(context)).await.and_then(Result::ok);
            assert_eq!(comment.as_deref(), Some(&b":\n\n"[..]), "while the event is owed");
            drop((go, others));
            let event = poll_fn(|context| stream.poll_next(context)).await.and_then(Result::ok).expect("it goes on");
            assert!(event.starts_with(b"event: unleash-updated\n") && event.len() > WRITE_AT_ONCE_MAX);
            assert!(stream.client == environment.snapshot.revision() && matches!(stream.news, News::Nothing));
            assert!(waits(&mut stream).await, "nothing else is new");
        });
    }

    /// A stream whose event is under way.
    async fn under_way(edge: &Arc<Edge>) -> FlagStream {
        let mut stream = stream(edge);
        assert!(waits(&mut stream).await);
        assert!(matches!(stream.news, News::UnderWay(..)));
        stream
    }

    #[test]
    fn a_token_that_is_refused_ends_its_stream_though_an_event_is_under_way() {
        on_worker(|| async {
            let edge = Arc::<Edge>::default();
            let mut stream = under_way(&edge).await;
            let mut later = view(1);
            later.tokens.revoke("*:development.secret", turn::now());
            edge.publish(later, Watched::Flags);
            let end = poll_fn(|context| stream.poll_next(context)).await;
            assert!(end.is_none(), "{:?}", end.map(|piece| piece.is_ok()));
        });
    }

    #[test]
    fn a_change_that_comes_while_an_event_is_under_way_has_an_event_of_its_own() {
        on_worker(|| async {
            let edge = Arc::<Edge>::default();
            let mut stream = under_way(&edge).await;
            let first = stream.client + 1;
            edge.publish(view(2), Watched::Flags);
            stream.keep_alive.set(turn::now());
            for revision in [first, first + 1] {
                let event = loop {
                    let piece = poll_fn(|context| stream.poll_next(context)).await.and_then(Result::ok);
                    let piece = piece.expect("the stream goes on");
                    // It is due while the first event is under way, unless that was fast.
                    if *piece != *b":\n\n" {
                        break piece;
                    }
                };
                let head = format!("event: unleash-updated\nid: {revision}\n");
                assert!(event.starts_with(head.as_bytes()), "{:?}", &event[..head.len()]);
                assert!(stream.client == revision && event.len() < 2 * WRITE_AT_ONCE_MAX, "one change");
            }
        });
    }

    #[test]
    fn a_stream_ends_with_the_thread_that_writes_its_event() {
        on_worker(|| async {
            let edge = Arc::<Edge>::default();
            let mut stream = stream(&edge);
            stream.news = News::UnderWay(Box::pin(std::future::ready(Err(NotMade::Panicked))), 0);
            assert!(poll_fn(|context| stream.poll_next(context)).await.is_none());
        });
    }
}
