//! Received bytes become frames.

use weir_base::time::Time;

use crate::{
    closed::Ending,
    config::WINDOW_UPDATE_SMALL_BYTES,
    connection::{Connection, Phase},
    error::ProtocolError,
    event::{Event, StreamId},
    flood::Counted,
    frame::{DataLayout, ErrorScope, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind, flags, write},
    settings::FRAME_BYTES_DEFAULT,
    stream::ReceiveStage,
};

/// Memory for a partial frame that stays.
const KEPT_BYTES: usize = 256;

/// A DATA frame whose payload has not come to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialData {
    /// The stream that takes the data; `None`: it is dropped.
    stream: Option<StreamId>,
    data: u32,
    padding: u32,
    is_end: bool,
}

impl Connection {
    /// Takes received bytes.
    pub(crate) fn take_bytes(&mut self, mut bytes: &[u8], now: Time) -> Result<(), ProtocolError> {
        self.skip_preface(&mut bytes)?;
        while !bytes.is_empty() && self.phase != Phase::Over {
            match self.partial_data.take() {
                Some(partial) => self.data_piece(partial, &mut bytes),
                None if self.input.is_empty() => self.next_frame(&mut bytes, now)?,
                None => self.rest_of_frame(&mut bytes, now)?,
            }
        }
        Ok(())
    }

    fn skip_preface(&mut self, bytes: &mut &[u8]) -> Result<(), ProtocolError> {
        let Phase::Preface(before) = self.phase else { return Ok(()) };
        let rest = &write::PREFACE[before..];
        let (front, behind) = bytes.split_at(bytes.len().min(rest.len()));
        if !rest.starts_with(front) {
            return Err(ProtocolError::Preface);
        }
        *bytes = behind;
        self.phase = if front.len() == rest.len() { Phase::Settings } else { Phase::Preface(before + front.len()) };
        Ok(())
    }

    /// Takes the frame that `bytes` begin with, or keeps what is there of it.
    fn next_frame(&mut self, bytes: &mut &[u8], now: Time) -> Result<(), ProtocolError> {
        if let Some(header) = FrameHeader::read(bytes, FRAME_BYTES_DEFAULT)? {
            let payload = &bytes[FRAME_HEADER_BYTES..];
            let length = header.length as usize;
            if header.kind == FrameKind::Data {
                if let Some(layout) = DataLayout::read(header, payload)? {
                    let partial = self.begin_data(header, layout, now)?;
                    *bytes = &payload[layout.prefix as usize..];
                    self.data_piece(partial, bytes);
                    return Ok(());
                }
            } else if length <= payload.len() {
                let (payload, behind) = payload.split_at(length);
                *bytes = behind;
                return self.frame(header, payload, now);
            }
        }
        self.input.extend_from_slice(bytes);
        *bytes = &[];
        Ok(())
    }

    /// Goes on with a frame of which the first bytes are kept.
    fn rest_of_frame(&mut self, bytes: &mut &[u8], now: Time) -> Result<(), ProtocolError> {
        let wanted = match FrameHeader::read(&self.input, FRAME_BYTES_DEFAULT)? {
            None => FRAME_HEADER_BYTES,
            // Its payload need not be kept, except the first byte, which has the length of the padding.
            Some(header) if header.kind == FrameKind::Data => {
                FRAME_HEADER_BYTES + usize::from(header.has(flags::PADDED))
            }
            Some(header) => FRAME_HEADER_BYTES + header.length as usize,
        };
        let (front, behind) = bytes.split_at(bytes.len().min(wanted.saturating_sub(self.input.len())));
        self.input.extend_from_slice(front);
        *bytes = behind;
        if self.input.len() < wanted {
            return Ok(());
        }
        let Some(header) = FrameHeader::read(&self.input, FRAME_BYTES_DEFAULT)? else { return Ok(()) };
        let payload = FRAME_HEADER_BYTES..self.input.len();
        if header.kind == FrameKind::Data {
            if let Some(layout) = DataLayout::read(header, &self.input[payload])? {
                self.input = Vec::new();
                let partial = self.begin_data(header, layout, now)?;
                self.data_piece(partial, bytes);
            }
            return Ok(());
        }
        if payload.len() < header.length as usize {
            return Ok(());
        }
        let mut input = std::mem::take(&mut self.input);
        let taken = self.frame(header, &input[payload], now);
        if input.capacity() <= KEPT_BYTES {
            input.clear();
            self.input = input;
        }
        taken
    }

    /// Checks the place of a frame, before the frame itself.
    fn check_order(&mut self, header: FrameHeader) -> Result<(), ProtocolError> {
        if self.phase == Phase::Settings {
            if header.kind != FrameKind::Settings || header.is_ack() {
                return Err(ProtocolError::Preface);
            }
            self.phase = Phase::Open;
        }
        let is_continuation = header.kind == FrameKind::Continuation;
        let belongs = match &self.block {
            Some(block) => is_continuation && block.number == header.stream_id,
            None => !is_continuation,
        };
        // On stream 0 it has an error of its own.
        if belongs || (is_continuation && header.stream_id == 0) { Ok(()) } else { Err(ProtocolError::Continuation) }
    }

    /// Takes a whole frame of any kind but DATA.
    fn frame(&mut self, header: FrameHeader, payload: &[u8], now: Time) -> Result<(), ProtocolError> {
        self.check_order(header)?;
        let frame = match Frame::parse(header, payload) {
            Ok(frame) => frame,
            Err(error) => {
                self.count(header, 0, now)?;
                return self.frame_error(header.stream_id, error);
            }
        };
        let increment = if let Frame::WindowUpdate(increment) = frame { increment } else { 0 };
        self.count(header, increment, now)?;
        match frame {
            Frame::Headers(headers) => self.take_headers(header, headers, now),
            Frame::Continuation(fragment) => self.take_continuation(header, fragment, now),
            Frame::RstStream(code) => self.take_reset(header.stream_id, code),
            Frame::Settings(settings) => self.take_settings(settings),
            Frame::SettingsAck => self.take_settings_ack(),
            Frame::PushPromise(_) => Err(ProtocolError::PushPromise),
            Frame::Ping(data) => {
                self.output.control(|into| write::ping_ack(into, data));
                Ok(())
            }
            Frame::PingAck(data) => self.take_ping_ack(data),
            Frame::GoAway { last_stream_id, code, .. } => self.take_go_away(last_stream_id, code),
            Frame::WindowUpdate(increment) => self.take_window_update(header.stream_id, increment),
            Frame::PriorityUpdate { .. } if self.is_client => Err(ProtocolError::PriorityUpdate),
            Frame::Data(_) | Frame::Priority(_) | Frame::PriorityUpdate { .. } | Frame::Unknown => Ok(()),
        }
    }

    /// Counts frames of a client that cost it nothing. An origin is one that the gateway has chosen, and its streams are the gateway's.
    fn count(&mut self, header: FrameHeader, increment: u32, now: Time) -> Result<(), ProtocolError> {
        if self.is_client {
            return Ok(());
        }
        let counted = match header.kind {
            FrameKind::RstStream => Counted::Reset,
            FrameKind::Settings if !header.is_ack() => Counted::Settings,
            FrameKind::Ping if !header.is_ack() => Counted::Ping,
            FrameKind::WindowUpdate if increment < WINDOW_UPDATE_SMALL_BYTES => Counted::WindowUpdate,
            FrameKind::Priority | FrameKind::PriorityUpdate | FrameKind::Unknown(_) => Counted::Priority,
            _ => return Ok(()),
        };
        self.budget.count(counted, self.config.streams_max, now)
    }

    fn frame_error(&mut self, number: u32, error: FrameError) -> Result<(), ProtocolError> {
        if error.scope() == ErrorScope::Connection || self.is_idle(number) {
            return Err(error.into());
        }
        match self.streams.find(number) {
            Some(stream) => self.breach(stream, error.into()),
            // The frame may have crossed the end of the stream. Its sender gets the same error as before that end.
            None if self.is_client || self.closed.is_reset_here(number) => Ok(()),
            None => self.refuse(number, error.into()),
        }
    }

    /// A DATA frame begins: its whole payload is counted.
    fn begin_data(&mut self, header: FrameHeader, layout: DataLayout, now: Time) -> Result<PartialData, ProtocolError> {
        self.check_order(header)?;
        let is_end = header.ends_stream();
        if layout.data == 0 && !is_end && !self.is_client {
            self.budget.count(Counted::EmptyData, self.config.streams_max, now)?;
        }
        let mut partial = PartialData { stream: None, data: layout.data, padding: layout.padding, is_end };
        if !self.window.receive(header.length, 0) {
            return Err(ProtocolError::WindowExceeded);
        }
        match self.streams.find(header.stream_id) {
            None => self.data_of_none(header.stream_id, is_end)?,
            Some(id) if self.is_complete(id) => return Err(ProtocolError::StreamClosed),
            Some(id) if self.is_reset_here(id) => self.take_late(id, is_end)?,
            Some(id) => match self.data_of(id, header.length, layout.data, is_end) {
                Ok(is_taken) => partial.stream = is_taken.then_some(id),
                Err(error) => self.breach(id, error)?,
            },
        }
        self.renew_connection_window();
        Ok(partial)
    }

    /// DATA on a stream that is not there.
    fn data_of_none(&mut self, number: u32, is_end: bool) -> Result<(), ProtocolError> {
        if self.is_idle(number) {
            return Err(ProtocolError::IdleStream);
        }
        match self.closed.find(number) {
            // It was in flight.
            Some(Ending::ResetHere) => {
                if is_end {
                    self.closed.end(number);
                }
                Ok(())
            }
            // A client has opened its streams itself, and cancels any number of them.
            None if self.is_client => Ok(()),
            Some(Ending::ResetByPeer) => self.refuse(number, ProtocolError::StreamClosed),
            Some(Ending::Complete) | None => Err(ProtocolError::StreamClosed),
        }
    }

    /// DATA on a stream, of `count` bytes with its padding. True: the stream takes it.
    fn data_of(&mut self, id: StreamId, count: u32, data: u32, is_end: bool) -> Result<bool, ProtocolError> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(false) };
        if stream.is_reset_by_peer() {
            return Err(ProtocolError::StreamClosed);
        }
        match stream.receive {
            ReceiveStage::Head => return Err(ProtocolError::HeadMissing),
            ReceiveStage::Ended => return Err(ProtocolError::StreamClosed),
            ReceiveStage::Body => {}
        }
        if stream.is_bodiless && data > 0 {
            return Err(ProtocolError::BodyUnexpected);
        }
        if let Some(expected) = &mut stream.expected {
            *expected = expected.checked_sub(u64::from(data)).ok_or(ProtocolError::ContentLength)?;
            if is_end && *expected > 0 {
                return Err(ProtocolError::ContentLength);
            }
        }
        let kept = if stream.is_forgotten { 0 } else { data };
        if !stream.receive_window.receive(count, kept) {
            return Err(ProtocolError::WindowExceeded);
        }
        self.window.hold(kept);
        // Padding is released as it comes. A stream that was given up takes no more than it has to.
        if !is_end
            && !stream.is_forgotten
            && let Some(increment) = stream.receive_window.increment()
        {
            self.output.control(|into| write::window_update(into, id.number, increment));
        }
        Ok(true)
    }

    /// Takes what is there of the payload of a DATA frame.
    fn data_piece(&mut self, mut partial: PartialData, bytes: &mut &[u8]) {
        let (data, behind) = bytes.split_at(bytes.len().min(partial.data as usize));
        let skipped = behind.len().min(partial.padding as usize);
        *bytes = &behind[skipped..];
        partial.data -= data.len() as u32;
        let is_short = partial.data > 0 || partial.padding as usize > skipped;
        partial.padding -= skipped as u32;
        if is_short {
            self.partial_data = Some(partial);
        }
        let Some(id) = partial.stream else { return };
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.reset.is_none()) else { return };
        let is_end = partial.is_end && !is_short;
        if !stream.is_forgotten {
            stream.data.extend_from_slice(data);
            if !data.is_empty() || is_end {
                stream.queue_readable(&mut self.events, id);
            }
        }
        if is_end {
            stream.receive = ReceiveStage::Ended;
            self.settle(id);
        }
    }

    /// The stream was never opened.
    pub(crate) fn is_idle(&self, number: u32) -> bool {
        let is_own = (number % 2 == 1) == self.is_client;
        match (is_own, self.is_client) {
            (true, true) => number >= self.next_number,
            // Neither side pushes.
            (true, false) | (false, true) => true,
            (false, false) => number > self.last_number,
        }
    }

    /// Both sides have ended the stream, and the shell has not given it up.
    pub(crate) fn is_complete(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.is_closed() && stream.reset.is_none())
    }

    /// This side has reset the stream, and the shell has not given it up.
    pub(crate) fn is_reset_here(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.reset.is_some() && !stream.is_reset_by_peer())
    }

    /// Takes a frame that was in flight when this side has reset its stream.
    pub(crate) fn take_late(&mut self, id: StreamId, is_end: bool) -> Result<(), ProtocolError> {
        self.streams.get_mut(id).map_or(Ok(()), |stream| stream.take_late(is_end))
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }
}
