//! The flags of a token by the server's stream.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    pin::pin,
    sync::Arc,
};

use futures_util::future::{Either, select};
use weir_flags_codec::{DeltaEvent, limits::DOCUMENT_BYTES_MAX};
use weir_flags_session::Token;
use weir_http::filter::{FilterRequest, FilterRequestError};
use weir_sse_codec::{Limits, Splitter};

use super::{
    Desk,
    poll::{Poller, read},
    upstream::Call,
};
use crate::{
    counts::PollResult,
    edge::Signal,
    limits::{
        READ_AT_ONCE_MAX, REQUEST_TIMEOUT, UPSTREAM_EVENTS_BYTES_MAX, UPSTREAM_STREAM_IDLE, UPSTREAM_STREAM_RETRY,
    },
    settings::UpstreamSource,
};

/// Follows the server until the stream ends, and begins again. Returns when the server refuses the token, has no streams, or has not been
/// reached: then the poller decides.
pub(super) async fn run(desk: &Desk, source: &UpstreamSource, poller: &mut Poller) -> PollResult {
    let mut attempt = 0;
    loop {
        let token = poller.token.clone();
        let last = poller.revision(desk).map(|revision| revision.to_string());
        let mut fields = vec![("accept", "text/event-stream")];
        fields.extend(last.iter().map(|last| ("last-event-id", &**last)));
        let call = Call { timeout: REQUEST_TIMEOUT, ..Call::get("/api/client/streaming", &token, &fields) };
        let Some(request) = desk.request(source, call) else { return PollResult::Failed };
        let (ended, result) = follow(desk, poller, request).await;
        match ended {
            Some(Ok(401 | 403)) => return PollResult::Refused,
            Some(Ok(404 | 405 | 501)) => return poller.lack("streams"),
            Some(Ok(200)) if result.is_some() => attempt = 0,
            None | Some(Ok(200)) => {}
            Some(_) if result.is_none() && !desk.has_flags(&poller.environment) => return PollResult::Failed,
            Some(_) => {}
        }
        if result.is_none_or(|result| result == PollResult::Garbage) {
            desk.edge.counts.polled(&poller.environment, PollResult::Failed);
        }
        let (first, longest) = UPSTREAM_STREAM_RETRY;
        let wait = desk.rng.borrow_mut().backoff(attempt, first, longest);
        attempt += 1;
        weir_engine::sleep(wait).await;
    }
}

/// Follows one connection of the stream. Returns its end and the result of its last event. `None`: an event was of no use.
async fn follow(
    desk: &Desk,
    poller: &mut Poller,
    request: FilterRequest,
) -> (Option<Result<u16, FilterRequestError>>, Option<PollResult>) {
    let stream = Stream::new(desk, poller);
    let mut splitter = Splitter::new(Limits { line_bytes: DOCUMENT_BYTES_MAX, event_bytes: DOCUMENT_BYTES_MAX });
    let take_piece = |piece: &[u8]| stream.take_piece(&mut splitter, piece);
    let following = pin!(desk.http.follow_request(request, UPSTREAM_STREAM_IDLE, take_piece));
    let mut reading = pin!(stream.read_waiting());
    let ended = match select(following, reading.as_mut()).await {
        Either::Left((ended, _)) => {
            // The events that have come are whole. The next connection begins behind them.
            stream.is_over.set(true);
            stream.has_waiting.notify();
            reading.await;
            Some(ended)
        }
        // The connection ends at once, and not with its next piece.
        Either::Right(((), _)) => None,
    };
    (ended, stream.result.get())
}

/// One connection of the stream. Events with little in them are taken as they come; larger ones are read on another thread, and those behind them
/// wait.
struct Stream<'a> {
    desk: &'a Desk,
    token: Arc<Token>,
    environment: Box<str>,
    /// Never borrowed across an await: a piece may come meanwhile.
    poller: RefCell<&'a mut Poller>,
    /// The result of the last event.
    result: Cell<Option<PollResult>>,
    /// Documents of events, from the oldest. The first one may be under way.
    waiting: RefCell<VecDeque<Vec<u8>>>,
    waiting_bytes: Cell<usize>,
    has_waiting: Signal,
    /// No further piece comes.
    is_over: Cell<bool>,
}

impl<'a> Stream<'a> {
    fn new(desk: &'a Desk, poller: &'a mut Poller) -> Self {
        Self {
            desk,
            token: poller.token.clone(),
            environment: poller.environment.clone(),
            poller: RefCell::new(poller),
            result: Cell::new(None),
            waiting: RefCell::default(),
            waiting_bytes: Cell::new(0),
            has_waiting: Signal::default(),
            is_over: Cell::new(false),
        }
    }

    /// Takes the events that end in a piece. False: the stream is of no use any more.
    fn take_piece(&self, splitter: &mut Splitter, piece: &[u8]) -> bool {
        self.desk.edge.counts.note_contact(&self.environment);
        let mut rest = piece;
        loop {
            let unit = match splitter.next(rest) {
                Ok(Some(unit)) => unit,
                Ok(None) => return true,
                Err(error) => {
                    self.result.set(Some(self.poller.borrow().garbage(&error)));
                    return false;
                }
            };
            let bytes = unit.bytes;
            let is_ours = matches!(unit.name, Some(b"unleash-connected" | b"unleash-updated"));
            if let Some(data) = unit.data.filter(|_| is_ours)
                && !self.take_data(data)
            {
                return false;
            }
            rest = &rest[bytes..];
        }
    }

    /// Takes the document of an event, or has it wait. False: the stream is of no use any more.
    fn take_data(&self, data: &[u8]) -> bool {
        if self.waiting_bytes.get() == 0 && data.len() <= READ_AT_ONCE_MAX {
            let mut poller = self.poller.borrow_mut();
            let taken = match DeltaEvent::read_all(data) {
                Ok(events) => poller.take_few(self.desk, events),
                Err(error) => poller.garbage(&error),
            };
            self.note(taken);
            return taken != PollResult::Garbage;
        }
        let bytes = self.waiting_bytes.get() + data.len();
        if self.waiting_bytes.get() > 0 && bytes > UPSTREAM_EVENTS_BYTES_MAX {
            self.result.set(Some(self.poller.borrow().garbage(&"its events come faster than they are read")));
            return false;
        }
        self.waiting_bytes.set(bytes);
        self.waiting.borrow_mut().push_back(data.to_vec());
        self.has_waiting.notify();
        true
    }

    /// Reads the events that wait, and later ones. Returns when one is of no use, or when the stream is over.
    async fn read_waiting(&self) {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(text) = next else {
                if self.is_over.get() {
                    return;
                }
                self.has_waiting.wait().await;
                continue;
            };
            let bytes = text.len();
            let taken = match read(text, DeltaEvent::read_all).await {
                Ok(events) => self.take(events).await,
                Err(error) => self.poller.borrow().garbage(&error),
            };
            self.note(taken);
            self.waiting_bytes.set(self.waiting_bytes.get() - bytes);
            if taken == PollResult::Garbage {
                // Later events would lack this one.
                self.waiting.borrow_mut().clear();
                return;
            }
        }
    }

    async fn take(&self, events: Vec<DeltaEvent>) -> PollResult {
        let taken = self.desk.take_events(&self.environment, self.token.projects(), events).await;
        match taken {
            Ok(taken) => self.poller.borrow_mut().taken(taken),
            Err(error) => self.poller.borrow().garbage(&error),
        }
    }

    fn note(&self, taken: PollResult) {
        self.desk.edge.counts.polled(&self.environment, taken);
        self.result.set(Some(taken));
        if matches!(taken, PollResult::Changed | PollResult::Unchanged) {
            self.desk.forget_unseen(&self.environment);
        }
    }
}
