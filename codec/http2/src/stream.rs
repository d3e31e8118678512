//! Streams of a connection, and the place where they are kept.

use std::collections::VecDeque;

use weir_http_codec::Fields;

use crate::{
    error::ProtocolError,
    event::{Event, ResetCause, StreamId},
    window::{ReceiveWindow, SendWindow},
};

/// The next part that the peer has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveStage {
    /// The head of the response.
    Head,
    /// Data, trailers, the end.
    Body,
    /// Nothing.
    Ended,
}

/// The next part that this side has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendStage {
    /// The final head.
    Head,
    /// Data, trailers, the end.
    Body,
    /// Queued data, and the end behind it.
    Ending,
    /// Nothing.
    Ended,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) number: u32,
    pub(crate) receive: ReceiveStage,
    pub(crate) send: SendStage,
    pub(crate) reset: Option<ResetCause>,
    /// The shell has given it up.
    pub(crate) is_forgotten: bool,
    /// The peer has ended it behind a reset of this side.
    pub(crate) is_ended_late: bool,
    /// The shell has its request.
    pub(crate) is_announced: bool,
    /// Its event waits.
    pub(crate) is_readable_queued: bool,
    pub(crate) is_writable_queued: bool,
    /// It waits for its turn to send.
    pub(crate) is_in_turn: bool,
    /// A response to it has no body: to HEAD.
    pub(crate) is_head: bool,
    /// A body is an error.
    pub(crate) is_bodiless: bool,
    pub(crate) interim_heads: u8,
    /// Bytes of the body that are still to come, if the peer has declared them.
    pub(crate) expected: Option<u64>,
    pub(crate) receive_window: ReceiveWindow,
    pub(crate) send_window: SendWindow,
    /// Data that has arrived; from `data_start` on it was not taken.
    pub(crate) data: Vec<u8>,
    pub(crate) data_start: usize,
    pub(crate) trailers: Option<Box<Fields>>,
    /// Data to be sent, from `queue_start` on.
    pub(crate) queue: Vec<u8>,
    pub(crate) queue_start: usize,
    pub(crate) queued_trailers: Option<Box<Fields>>,
}

impl Stream {
    /// See [`crate::Connection::take_data`].
    pub(crate) fn take_data(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let left = self.data.len() - self.data_start;
        let count = left.min(most);
        if count == 0 {
            return 0;
        }
        if into.is_empty() && self.data_start == 0 && count == left {
            std::mem::swap(into, &mut self.data);
            return count;
        }
        into.extend_from_slice(&self.data[self.data_start..self.data_start + count]);
        self.data_start += count;
        if count == left {
            (self.data, self.data_start) = (Vec::new(), 0);
        } else if self.data_start * 2 >= self.data.len() {
            // Each byte moves once at most for each that has left.
            self.data.drain(..std::mem::take(&mut self.data_start));
        }
        count
    }

    /// A stream on which the head of a request was received, or sent.
    pub(crate) fn new(
        number: u32,
        receive: ReceiveStage,
        send: SendStage,
        windows: (ReceiveWindow, SendWindow),
    ) -> Self {
        Self {
            number,
            receive,
            send,
            reset: None,
            is_forgotten: false,
            is_ended_late: false,
            is_announced: false,
            is_readable_queued: false,
            is_writable_queued: false,
            is_in_turn: false,
            is_head: false,
            is_bodiless: false,
            interim_heads: 0,
            expected: None,
            receive_window: windows.0,
            send_window: windows.1,
            data: Vec::new(),
            data_start: 0,
            trailers: None,
            queue: Vec::new(),
            queue_start: 0,
            queued_trailers: None,
        }
    }

    /// No frame of it may be sent any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.reset.is_some() || (self.receive == ReceiveStage::Ended && self.send == SendStage::Ended)
    }

    /// Takes a frame behind a reset of this side: it was in flight.
    ///
    /// # Errors
    /// The peer has ended the stream before.
    pub(crate) fn take_late(&mut self, is_end: bool) -> Result<(), ProtocolError> {
        if self.is_ended_late || self.receive == ReceiveStage::Ended {
            return Err(ProtocolError::StreamClosed);
        }
        self.is_ended_late = is_end;
        Ok(())
    }

    pub(crate) fn is_reset_by_peer(&self) -> bool {
        matches!(self.reset, Some(ResetCause::Peer(_)))
    }

    /// Queues the event that something has arrived, unless it waits already.
    pub(crate) fn queue_readable(&mut self, events: &mut VecDeque<Event>, id: StreamId) {
        if !std::mem::replace(&mut self.is_readable_queued, true) {
            events.push_back(Event::Readable(id));
        }
    }

    /// Bytes that wait to be sent.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.queue.len() - self.queue_start
    }

    /// Drops what waits to be sent.
    pub(crate) fn clear_queue(&mut self) {
        (self.queue, self.queue_start, self.queued_trailers) = (Vec::new(), 0, None);
    }
}

/// Slots that an idle connection keeps.
const SLOTS_KEPT: usize = 4;

/// All streams of a connection that are open, or that the shell has.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slots: Vec<Option<Stream>>,
    free: Vec<u32>,
    /// Numbers with their slots, in ascending order, as streams are opened.
    index: VecDeque<(u32, u32)>,
    /// Streams that are open on the wire.
    open: usize,
}

impl Streams {
    /// Streams that are kept.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Streams that are open on the wire.
    #[inline]
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Keeps a stream with a higher number than all before it.
    pub(crate) fn insert(&mut self, stream: Stream) -> StreamId {
        debug_assert!(self.index.back().is_none_or(|(last, _)| *last < stream.number));
        let number = stream.number;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(stream);
                slot
            }
            None => {
                self.slots.push(Some(stream));
                self.slots.len() as u32 - 1
            }
        };
        self.index.push_back((number, slot));
        self.open += 1;
        StreamId { number, slot }
    }

    /// The stream with a number of the wire.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<StreamId> {
        // The last one opened is in question more often than not.
        let (_, slot) = match self.index.back() {
            Some(last) if last.0 == number => *last,
            _ => self.index[self.index.binary_search_by_key(&number, |entry| entry.0).ok()?],
        };
        Some(StreamId { number, slot })
    }

    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.slots.get(id.slot as usize)?.as_ref().filter(|stream| stream.number == id.number)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.slots.get_mut(id.slot as usize)?.as_mut().filter(|stream| stream.number == id.number)
    }

    /// A stream is not open on the wire any more.
    pub(crate) fn closed(&mut self) {
        debug_assert!(self.open > 0);
        self.open -= 1;
    }

    /// Takes a stream out, which is closed.
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.slots.get_mut(id.slot as usize)?.take_if(|stream| stream.number == id.number)?;
        if self.index.back().is_some_and(|last| last.0 == id.number) {
            self.index.pop_back();
        } else if let Ok(at) = self.index.binary_search_by_key(&id.number, |entry| entry.0) {
            self.index.remove(at);
        }
        self.free.push(id.slot);
        if self.index.is_empty() && self.slots.len() > SLOTS_KEPT {
            (self.slots, self.free, self.index) = Default::default();
        }
        Some(stream)
    }

    /// All, in the order of their numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = StreamId> {
        self.index.iter().map(|&(number, slot)| StreamId { number, slot })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().flatten()
    }
}
