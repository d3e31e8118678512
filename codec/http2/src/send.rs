//! Heads, data and ends that are sent on streams.

use weir_http_codec::{BodyLength, Fields, RequestHead, ResponseHead};

use crate::{
    config::{DATA_BYTES_MAX, OUTPUT_BYTES_MAX},
    connection::{Connection, RequestTarget},
    event::{Event, OpenError, StreamGone, StreamId},
    fields::{self, Part},
    settings::FRAME_BYTES_DEFAULT,
    stream::{ReceiveStage, SendStage, Stream},
};

/// Memory for queued data that stays with its stream.
const QUEUE_KEPT_BYTES: usize = 64 * 1024;

impl Connection {
    pub(crate) fn check_open(&self, target: RequestTarget<'_>) -> Result<(), OpenError> {
        if !self.is_client || !self.takes_streams() {
            return Err(OpenError::Closing);
        }
        if target.protocol.is_some() && !self.peer.enable_connect_protocol {
            return Err(OpenError::NoConnectProtocol);
        }
        if self.can_open() { Ok(()) } else { Err(OpenError::Full) }
    }

    pub(crate) fn open_stream(&mut self, head: &RequestHead, target: RequestTarget<'_>, is_end: bool) -> StreamId {
        let number = self.next_number;
        self.next_number += 2;
        let encoder = &mut self.encoder;
        self.output.headers(number, is_end, FRAME_BYTES_DEFAULT, |into| {
            encoder.begin(into);
            let method = if target.protocol.is_some() { b"CONNECT" } else { head.method() };
            encoder.field(into, b":method", method);
            encoder.field(into, b":scheme", target.scheme);
            encoder.field(into, b":authority", target.authority);
            encoder.field(into, b":path", head.target());
            if let Some(protocol) = target.protocol {
                encoder.field(into, b":protocol", protocol);
            }
            fields::encode(encoder, &head.fields, Part::Request, true, into);
            if let BodyLength::Exact(length @ 1..) = head.body() {
                encoder.field(into, b"content-length", itoa::Buffer::new().format(length).as_bytes());
            }
        });
        let send = if is_end { SendStage::Ended } else { SendStage::Body };
        let mut stream = Stream::new(number, ReceiveStage::Head, send, self.new_windows());
        (stream.is_head, stream.is_announced) = (head.method() == b"HEAD", true);
        self.streams.insert(stream)
    }

    pub(crate) fn respond(
        &mut self,
        id: StreamId,
        head: &ResponseHead,
        length: Option<u64>,
        is_end: bool,
    ) -> Result<(), StreamGone> {
        let stream = self.streams.get_mut(id).filter(|stream| stream.reset.is_none() && stream.send == SendStage::Head);
        let stream = stream.ok_or(StreamGone)?;
        let is_end = is_end && !head.is_interim();
        if !head.is_interim() {
            stream.send = if is_end { SendStage::Ended } else { SendStage::Body };
        }
        let encoder = &mut self.encoder;
        self.output.headers(id.number, is_end, FRAME_BYTES_DEFAULT, |into| {
            encoder.begin(into);
            encoder.status(into, head.status());
            fields::encode(encoder, &head.fields, Part::Response, length.is_some(), into);
            if let Some(length) = length {
                encoder.field(into, b"content-length", itoa::Buffer::new().format(length).as_bytes());
            }
        });
        if is_end {
            self.settle(id);
        }
        Ok(())
    }

    /// The stream, if data can be sent on it.
    fn sending(&mut self, id: StreamId) -> Result<&mut Stream, StreamGone> {
        let stream = self.streams.get_mut(id).filter(|stream| stream.reset.is_none() && stream.send == SendStage::Body);
        stream.ok_or(StreamGone)
    }

    pub(crate) fn send(&mut self, id: StreamId, data: &[u8]) -> Result<(), StreamGone> {
        // Up to a frame more, so that none is cut for the sake of the output.
        let room = OUTPUT_BYTES_MAX.checked_sub(self.output.len()).map_or(0, |room| room + DATA_BYTES_MAX);
        let window = if self.turns.is_empty() { self.send_window.room().min(room) } else { 0 };
        let stream = self.sending(id)?;
        let mut sent = 0;
        if stream.queued() == 0 {
            sent = data.len().min(window).min(stream.send_window.room());
            stream.send_window.spend(sent);
        }
        let rest = &data[sent..];
        if !rest.is_empty() {
            stream.queue.extend_from_slice(rest);
        }
        if sent > 0 {
            self.send_window.spend(sent);
            self.output.data(id.number, &data[..sent], false, DATA_BYTES_MAX);
        }
        if !rest.is_empty() {
            self.queue_turn(id);
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, id: StreamId, trailers: Option<&Fields>) -> Result<(), StreamGone> {
        let stream = self.sending(id)?;
        stream.send = SendStage::Ending;
        if stream.queued() > 0 {
            stream.queued_trailers = trailers.map(|trailers| Box::new(trailers.clone()));
            return Ok(());
        }
        self.write_end(id, trailers);
        Ok(())
    }

    /// Sends the end of a stream, behind all of its data.
    fn write_end(&mut self, id: StreamId, trailers: Option<&Fields>) {
        match trailers {
            None => self.output.end(id.number),
            Some(trailers) => {
                let encoder = &mut self.encoder;
                self.output.headers(id.number, true, FRAME_BYTES_DEFAULT, |into| {
                    encoder.begin(into);
                    fields::encode(encoder, trailers, Part::Trailers, false, into);
                });
            }
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send = SendStage::Ended;
        }
        self.settle(id);
    }

    /// Gives the stream a turn to send, if it has something to send and its own window lets it.
    pub(crate) fn queue_turn(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !stream.is_in_turn && stream.queued() > 0 && stream.send_window.room() > 0 {
            stream.is_in_turn = true;
            self.turns.push_back(id);
        }
    }

    /// Windows have shrunk: streams that may send nothing now have no turn.
    pub(crate) fn check_turns(&mut self) {
        let streams = &mut self.streams;
        self.turns.retain(|id| {
            streams.get_mut(*id).is_some_and(|stream| {
                stream.is_in_turn = stream.send_window.room() > 0;
                stream.is_in_turn
            })
        });
    }

    /// The stream sends no more.
    pub(crate) fn leave_turn(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && std::mem::take(&mut stream.is_in_turn)
        {
            self.turns.retain(|other| *other != id);
        }
    }

    /// Moves queued data to the output, a frame of each stream in turn.
    pub(crate) fn fill_output(&mut self) {
        while self.output.len() < OUTPUT_BYTES_MAX && self.send_window.room() > 0 {
            let Some(id) = self.turns.pop_front() else { return };
            self.take_turn(id);
        }
    }

    fn take_turn(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.is_in_turn = false;
        let room = self.send_window.room().min(stream.send_window.room()).min(DATA_BYTES_MAX);
        let count = stream.queued().min(room);
        if count > 0 {
            stream.send_window.spend(count);
            self.send_window.spend(count);
            let is_end =
                count == stream.queued() && stream.send == SendStage::Ending && stream.queued_trailers.is_none();
            let piece = &stream.queue[stream.queue_start..stream.queue_start + count];
            self.output.data(id.number, piece, is_end, DATA_BYTES_MAX);
            stream.take_from_queue(count);
            if !stream.is_forgotten && !std::mem::replace(&mut stream.is_writable_queued, true) {
                self.events.push_back(Event::Writable(id));
            }
        }
        if stream.queued() > 0 {
            self.queue_turn(id);
        } else if stream.send == SendStage::Ending {
            match stream.queued_trailers.take() {
                Some(trailers) => self.write_end(id, Some(&trailers)),
                None => {
                    stream.send = SendStage::Ended;
                    self.settle(id);
                }
            }
        }
    }
}

impl Stream {
    /// `count` bytes of the queue have left.
    fn take_from_queue(&mut self, count: usize) {
        self.queue_start += count;
        if self.queue_start == self.queue.len() {
            self.queue.clear();
            self.queue_start = 0;
            if self.queue.capacity() > QUEUE_KEPT_BYTES {
                self.queue = Vec::new();
            }
        } else if self.queue_start >= QUEUE_KEPT_BYTES && self.queue_start * 2 >= self.queue.len() {
            // Each byte moves once at most for each that has left.
            self.queue.drain(..self.queue_start);
            self.queue_start = 0;
        }
    }
}
