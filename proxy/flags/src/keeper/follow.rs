//! The flags of a token by the server's stream.

use weir_flags_codec::{DeltaEvent, limits::DOCUMENT_BYTES_MAX};
use weir_sse_codec::{Limits, Splitter};

use super::{Desk, poll::Poller, upstream::Call};
use crate::{
    counts::PollResult,
    limits::{REQUEST_TIMEOUT, UPSTREAM_STREAM_IDLE, UPSTREAM_STREAM_RETRY},
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
        let mut splitter = Splitter::new(Limits { line_bytes: DOCUMENT_BYTES_MAX, event_bytes: DOCUMENT_BYTES_MAX });
        let mut result = None;
        let ended = desk.http.follow_request(request, UPSTREAM_STREAM_IDLE, |piece| {
            desk.edge.counts.note_contact(&poller.environment);
            take_piece(desk, poller, &mut splitter, piece, &mut result)
        });
        match ended.await {
            Ok(401 | 403) => return PollResult::Refused,
            Ok(404 | 405 | 501) => return poller.lack("streams"),
            Ok(200) if result.is_some() => attempt = 0,
            Ok(200) => {}
            Ok(_) | Err(_) if result.is_none() && !desk.has_flags(&poller.environment) => return PollResult::Failed,
            Ok(_) | Err(_) => {}
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

/// Takes the events that end in a piece. False: the stream is of no use any more.
fn take_piece(
    desk: &Desk,
    poller: &mut Poller,
    splitter: &mut Splitter,
    piece: &[u8],
    result: &mut Option<PollResult>,
) -> bool {
    let mut rest = piece;
    loop {
        let unit = match splitter.next(rest) {
            Ok(Some(unit)) => unit,
            Ok(None) => return true,
            Err(error) => {
                *result = Some(poller.garbage(&error));
                return false;
            }
        };
        let bytes = unit.bytes;
        let is_ours = matches!(unit.name, Some(b"unleash-connected" | b"unleash-updated"));
        if let Some(data) = unit.data.filter(|_| is_ours) {
            let taken = match DeltaEvent::read_all(data) {
                Ok(events) => poller.take(desk, events),
                Err(error) => poller.garbage(&error),
            };
            desk.edge.counts.polled(&poller.environment, taken);
            *result = Some(taken);
            if taken == PollResult::Garbage {
                return false;
            }
        }
        rest = &rest[bytes..];
    }
}
