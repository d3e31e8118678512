//! The body of a stored response, event by event.

use std::task::{Context, Poll};

use bytes::Bytes;
use weir_ai_session::{Dialect, ResponseStream, UsageChunk};
use weir_http::filter::{BodyAborted, BodyStream};
use weir_sse_codec::{Limits, Splitter};

/// Bytes of a body without events that go on at once. Default 64 KiB, the buffer of a stream.
pub(super) const PIECE_BYTES: usize = 64 * 1024;

/// A body in pieces: those of a stream are its events, as they were. The next piece is made when the client has room for it.
pub(crate) struct Replay {
    rest: Bytes,
    /// Finds the events. `None`: there are none.
    events: Option<Splitter>,
    /// Finds the chunk of usage that the client has not requested. `None`: everything passes.
    filter: Option<Box<ResponseStream>>,
}

impl Replay {
    /// A stream of events for a client to which a chunk of usage is given or not.
    pub(crate) fn events(body: Bytes, dialect: Dialect, usage_chunk: UsageChunk) -> Self {
        let filter = (usage_chunk == UsageChunk::Drop)
            .then(|| Box::new(ResponseStream::new(dialect, usage_chunk, Limits::default())));
        Self { rest: body, events: Some(Splitter::new(Limits::default())), filter }
    }

    /// Another body.
    pub(crate) fn whole(body: Bytes) -> Self {
        Self { rest: body, events: None, filter: None }
    }

    /// The next piece; `None`: the body is over.
    fn next(&mut self) -> Option<Bytes> {
        while !self.rest.is_empty() {
            let bytes = match &mut self.events {
                None => PIECE_BYTES,
                // Bytes behind the last event pass, as they did when they came.
                Some(splitter) => match splitter.next(&self.rest) {
                    Ok(Some(unit)) => unit.bytes,
                    Ok(None) | Err(_) => self.rest.len(),
                },
            };
            let piece = self.rest.split_to(bytes.min(self.rest.len()));
            if !self.drops(&piece) {
                return Some(piece);
            }
        }
        None
    }

    /// The client must not see the event.
    fn drops(&mut self, event: &[u8]) -> bool {
        let Some(filter) = &mut self.filter else { return false };
        let mut passed = 0;
        let is_followed = filter.push(event, &mut |bytes| passed += bytes.len()).is_ok();
        // Bytes that it holds are no whole event.
        is_followed && passed == 0 && filter.held_bytes() == 0
    }
}

impl BodyStream for Replay {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyAborted>>> {
        Poll::Ready(self.next().map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hi\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\nrest";

    fn pieces(mut replay: Replay) -> Vec<String> {
        let pieces = std::iter::from_fn(|| replay.next());
        pieces.map(|piece| String::from_utf8(piece.to_vec()).expect("UTF-8")).collect()
    }

    #[test]
    fn a_stream_is_replayed_event_by_event_with_the_same_bytes() {
        let replay = Replay::events(Bytes::from_static(STREAM.as_bytes()), Dialect::Chat, UsageChunk::Forward);
        let pieces = pieces(replay);
        assert_eq!(pieces.concat(), STREAM);
        assert!(pieces.contains(&"data: [DONE]\n\n".to_owned()) && pieces.len() >= 5, "{pieces:?}");
    }

    #[test]
    fn the_chunk_of_usage_is_left_out_as_in_a_live_response() {
        let mut live = ResponseStream::new(Dialect::Chat, UsageChunk::Drop, Limits::default());
        let mut wanted = Vec::new();
        live.push(STREAM.as_bytes(), &mut |bytes| wanted.extend_from_slice(bytes)).expect("within limits");
        live.finish(&mut |bytes| wanted.extend_from_slice(bytes));
        let replay = Replay::events(Bytes::from_static(STREAM.as_bytes()), Dialect::Chat, UsageChunk::Drop);
        let replayed = pieces(replay).concat();
        assert_eq!(replayed.as_bytes(), wanted);
        assert!(!replayed.contains("prompt_tokens"));
    }

    #[test]
    fn a_long_object_goes_in_pieces() {
        let body = vec![b'x'; 2 * PIECE_BYTES + 1];
        let pieces = pieces(Replay::whole(body.clone().into()));
        assert_eq!(pieces.iter().map(String::len).collect::<Vec<_>>(), [PIECE_BYTES, PIECE_BYTES, 1]);
        assert_eq!(pieces.concat().as_bytes(), body);
    }
}
