//! Header blocks that arrive: heads and trailers.

use weir_base::time::Time;
use weir_http_codec::{BodyLength, Fields};

use crate::{
    closed::Ending,
    config::{CONTINUATIONS_MAX, HEADER_BLOCK_BYTES_MAX, HEADER_BLOCK_TIMEOUT, INTERIM_HEADS_MAX},
    connection::Connection,
    deadline::Deadline,
    error::ProtocolError,
    error_code::ErrorCode,
    event::{Event, StreamId},
    fields::{FieldCollector, Part, Response},
    flood::Counted,
    frame::{FrameError, FrameHeader, Headers},
    stream::{ReceiveStage, SendStage, Stream},
    window::{ReceiveWindow, SendWindow},
};

/// A header block that goes on in CONTINUATION frames.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) number: u32,
    is_end: bool,
    depends_on_itself: bool,
    continuations: u32,
    bytes: Vec<u8>,
}

/// The place of a header block in its stream.
enum Place {
    /// A stream begins.
    New,
    /// A request that is not taken.
    Refused,
    /// A request that comes behind the last one of a drain.
    Late,
    /// A stream that goes on.
    Open(StreamId, Part),
    /// Its stream is gone.
    Ignored,
    /// It breaks a rule on its stream.
    Breach(ProtocolError),
}

impl Connection {
    pub(crate) fn take_headers(
        &mut self,
        header: FrameHeader,
        headers: Headers<'_>,
        now: Time,
    ) -> Result<(), ProtocolError> {
        let number = header.stream_id;
        let depends_on_itself = headers.priority.is_some_and(|priority| priority.is_of_itself(number));
        let (is_end, bytes) = (header.ends_stream(), headers.fragment);
        if !header.ends_headers() {
            let bytes = bytes.to_vec();
            self.block_deadline = Deadline::after(HEADER_BLOCK_TIMEOUT);
            self.block = Some(Block { number, is_end, depends_on_itself, continuations: 0, bytes });
            return Ok(());
        }
        self.take_block((number, is_end, depends_on_itself), bytes, now)
    }

    pub(crate) fn take_continuation(
        &mut self,
        header: FrameHeader,
        fragment: &[u8],
        now: Time,
    ) -> Result<(), ProtocolError> {
        let Some(mut block) = self.block.take() else { return Err(ProtocolError::Continuation) };
        block.continuations += 1;
        if block.continuations > CONTINUATIONS_MAX {
            return Err(ProtocolError::ContinuationFlood);
        }
        if block.bytes.len() + fragment.len() > HEADER_BLOCK_BYTES_MAX {
            return Err(ProtocolError::HeaderBlockTooLong);
        }
        block.bytes.extend_from_slice(fragment);
        if !header.ends_headers() {
            self.block = Some(block);
            return Ok(());
        }
        self.block_deadline = Deadline::No;
        self.take_block((block.number, block.is_end, block.depends_on_itself), &block.bytes, now)
    }

    /// Takes a whole block. It is decoded in any case: the next ones need its entries in the table.
    fn take_block(
        &mut self,
        (number, is_end, depends_on_itself): (u32, bool, bool),
        bytes: &[u8],
        now: Time,
    ) -> Result<(), ProtocolError> {
        let mut place = self.place(number, is_end)?;
        if matches!(place, Place::Late | Place::Ignored) && !self.is_client {
            self.budget.count(Counted::LateHeaders, self.config.streams_max, now)?;
        }
        if depends_on_itself && matches!(place, Place::New | Place::Open(..)) {
            place = Place::Breach(FrameError::SelfDependency.into());
        }
        let list_bytes_max = self.config.head_limits.bytes;
        let part = match place {
            Place::New => Part::Request,
            Place::Open(_, part) => part,
            Place::Refused | Place::Late | Place::Ignored | Place::Breach(_) => {
                self.decoder.decode(bytes, list_bytes_max, |_| {})?;
                return self.leave_out(number, place);
            }
        };
        let mut collector = FieldCollector::new(part, &mut self.scratch);
        let is_over = self.decoder.decode(bytes, list_bytes_max, |field| collector.add(&field))?.is_over;
        match place {
            Place::Open(id, Part::Trailers) => {
                let trailers = match is_over {
                    true => Err(ProtocolError::TrailersTooLong),
                    false => collector.into_trailers(&self.config.head_limits),
                };
                self.take_trailing(id, trailers)
            }
            Place::Open(id, _) => {
                let is_head = self.streams.get(id).is_some_and(|stream| stream.is_head);
                let head = match is_over {
                    true => Err(ProtocolError::HeadTooLong),
                    false => collector.into_response(is_end, is_head, &self.config.head_limits),
                };
                match head {
                    Ok(head) => self.take_response(id, head, is_end),
                    Err(error) => self.breach(id, error),
                }
            }
            _ => {
                let config = &self.config;
                let request = collector.into_request(is_end, is_over, &config.head_limits, config.connect_protocol);
                match request {
                    Ok(request) => {
                        self.take_request(number, request, is_end);
                        Ok(())
                    }
                    Err(error) => self.leave_out(number, Place::Breach(error)),
                }
            }
        }
    }

    /// Where a header block belongs.
    fn place(&mut self, number: u32, is_end: bool) -> Result<Place, ProtocolError> {
        if let Some(id) = self.streams.find(number) {
            if self.is_complete(id) {
                return Err(ProtocolError::StreamClosed);
            }
            if self.is_reset_here(id) {
                return self.take_late(id, is_end).map(|()| Place::Ignored);
            }
            return Ok(self.place_in(id, is_end));
        }
        if !self.is_idle(number) {
            return match self.closed.find(number) {
                Some(Ending::ResetHere) => {
                    if is_end {
                        self.closed.end(number);
                    }
                    Ok(Place::Ignored)
                }
                // A client has opened its streams itself, and cancels any number of them.
                None if self.is_client => Ok(Place::Ignored),
                Some(Ending::ResetByPeer) => Ok(Place::Breach(ProtocolError::StreamClosed)),
                Some(Ending::Complete) => Err(ProtocolError::StreamClosed),
                None => Err(ProtocolError::StreamNumber),
            };
        }
        if self.is_client {
            return Err(ProtocolError::IdleStream);
        }
        if number.is_multiple_of(2) {
            return Err(ProtocolError::StreamNumber);
        }
        self.last_number = number;
        if self.drain.last_taken().is_some() {
            return Ok(Place::Late);
        }
        let max = self.config.streams_max as usize;
        // Streams that are over, and that the shell has still to give up, cost as much as open ones.
        if self.streams.open() >= max || self.streams.len() >= max.saturating_mul(2) {
            // A client may open more at first: the limit is on its way (RFC 9113 section 6.5.3).
            self.refused += u32::from(self.is_acknowledged);
            return Ok(Place::Refused);
        }
        Ok(Place::New)
    }

    fn place_in(&self, id: StreamId, is_end: bool) -> Place {
        let Some(stream) = self.streams.get(id) else { return Place::Ignored };
        if stream.is_reset_by_peer() {
            return Place::Breach(ProtocolError::StreamClosed);
        }
        match stream.receive {
            ReceiveStage::Head => Place::Open(id, Part::Response),
            ReceiveStage::Body if is_end => Place::Open(id, Part::Trailers),
            ReceiveStage::Body => Place::Breach(ProtocolError::TrailersOpen),
            ReceiveStage::Ended => Place::Breach(ProtocolError::StreamClosed),
        }
    }

    /// Replies to a block that no stream takes.
    fn leave_out(&mut self, number: u32, place: Place) -> Result<(), ProtocolError> {
        match place {
            Place::Refused | Place::Late => {
                self.check_refused()?;
                self.output.reset(number, ErrorCode::REFUSED_STREAM);
                self.closed.push(number, Ending::ResetHere);
                Ok(())
            }
            Place::Breach(error) => match self.streams.find(number) {
                Some(id) => self.breach(id, error),
                None => self.refuse(number, error),
            },
            _ => Ok(()),
        }
    }

    /// A stream begins with the head of a request.
    fn take_request(
        &mut self,
        number: u32,
        request: Result<crate::event::Request, weir_http_codec::WireError>,
        is_end: bool,
    ) {
        let receive = if is_end { ReceiveStage::Ended } else { ReceiveStage::Body };
        let mut stream = Stream::new(number, receive, SendStage::Head, self.new_windows());
        if let Ok(request) = &request
            && request.protocol.is_none()
            && let BodyLength::Exact(length) = request.head.body()
        {
            stream.expected = Some(length);
        }
        let id = self.streams.insert(stream);
        self.push(Event::Request(id, request));
    }

    /// Windows of a stream that begins.
    pub(crate) fn new_windows(&self) -> (ReceiveWindow, SendWindow) {
        let receive = ReceiveWindow::new(self.stream_window, self.stream_window);
        (receive, SendWindow::new(self.peer.initial_window_bytes))
    }

    fn take_response(
        &mut self,
        id: StreamId,
        Response { head, is_empty }: Response,
        is_end: bool,
    ) -> Result<(), ProtocolError> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if head.is_interim() {
            stream.interim_heads += 1;
            if stream.interim_heads > INTERIM_HEADS_MAX {
                return self.breach(id, ProtocolError::InterimFlood);
            }
        } else {
            stream.receive = if is_end { ReceiveStage::Ended } else { ReceiveStage::Body };
            stream.is_bodiless = !head.has_body(stream.is_head);
            if let BodyLength::Exact(length) = head.announced()
                && !stream.is_bodiless
            {
                stream.expected = Some(length);
            }
            if is_empty {
                stream.expected = Some(0);
            }
        }
        if !stream.is_forgotten {
            self.events.push_back(Event::Response { stream: id, head, is_end });
        }
        if is_end {
            self.settle(id);
        }
        Ok(())
    }

    fn take_trailing(&mut self, id: StreamId, trailers: Result<Fields, ProtocolError>) -> Result<(), ProtocolError> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let trailers = trailers.and_then(|trailers| match stream.expected {
            None | Some(0) => Ok(trailers),
            Some(_) => Err(ProtocolError::ContentLength),
        });
        match trailers {
            Err(error) => return self.breach(id, error),
            Ok(trailers) if !trailers.is_empty() && !stream.is_forgotten => stream.trailers = Some(Box::new(trailers)),
            Ok(_) => {}
        }
        stream.receive = ReceiveStage::Ended;
        if !stream.is_forgotten {
            stream.queue_readable(&mut self.events, id);
        }
        self.settle(id);
        Ok(())
    }
}
