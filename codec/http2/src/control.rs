//! Frames that move the connection and its windows: SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM.

use std::collections::VecDeque;

use crate::{
    closed::Ending,
    config::{DRAIN_TIMEOUT, EARLY_RESETS_MAX, REFUSED_STREAMS_MAX},
    connection::{Connection, Drain, Phase},
    deadline::Deadline,
    error::ProtocolError,
    error_code::ErrorCode,
    event::{Event, ResetCause, StreamId},
    frame::{STREAM_ID_MAX, write},
    settings::{Sender, Setting, SettingsPayload},
    stream::{ReceiveStage, SendStage},
};

/// Payloads of the pings that are sent: one measures round trips, one ends a drain.
pub(crate) const ROUND_TRIP: [u8; 8] = *b"weir rtt";
const DRAINING: [u8; 8] = *b"weirlast";

impl Connection {
    pub(crate) fn take_settings(&mut self, settings: SettingsPayload<'_>) -> Result<(), ProtocolError> {
        let sender = if self.is_client { Sender::Server } else { Sender::Client };
        let window = self.peer.initial_window_bytes;
        for setting in settings.iter() {
            let setting = setting?;
            self.peer.apply(setting, sender)?;
            if let Setting::HeaderTableSize(bytes) = setting {
                self.encoder.set_table_bytes_max(bytes);
            }
        }
        self.has_settings = true;
        let change = i64::from(self.peer.initial_window_bytes) - i64::from(window);
        if change != 0 {
            let mut is_allowed = true;
            let open = self.streams.iter_mut().filter(|stream| !stream.is_closed());
            open.for_each(|stream| is_allowed &= stream.send_window.add(change));
            if !is_allowed {
                return Err(ProtocolError::WindowOverflow);
            }
        }
        if change > 0 {
            let waiting: Vec<_> = self.streams.ids().collect();
            waiting.into_iter().for_each(|id| self.queue_turn(id));
        } else if change < 0 {
            self.check_turns();
        }
        self.output.control(write::settings_ack);
        self.push(Event::Settings);
        Ok(())
    }

    pub(crate) fn take_settings_ack(&mut self) -> Result<(), ProtocolError> {
        let Some(window) = self.announced_window.take() else { return Err(ProtocolError::SettingsAck) };
        (self.settings_deadline, self.is_acknowledged) = (Deadline::No, true);
        self.stream_window = window;
        for stream in self.streams.iter_mut() {
            stream.receive_window.resize(window);
        }
        let ids: Vec<_> = self.streams.ids().collect();
        ids.into_iter().for_each(|id| self.renew_window(id));
        self.push(Event::SettingsAcked);
        Ok(())
    }

    pub(crate) fn take_ping_ack(&mut self, data: [u8; 8]) -> Result<(), ProtocolError> {
        if data == DRAINING && self.drain == Drain::Announced {
            self.finish_drain();
        } else if data == ROUND_TRIP && std::mem::take(&mut self.is_pinging) {
            self.push(Event::Pong);
        }
        Ok(())
    }

    pub(crate) fn take_go_away(&mut self, last: u32, code: ErrorCode) -> Result<(), ProtocolError> {
        match self.peer_last {
            Some(before) if last > before => return Err(ProtocolError::GoAwayGrows),
            Some(before) if last == before => return Ok(()),
            _ => self.peer_last = Some(last),
        }
        self.push(Event::GoAway { last, code });
        if self.is_client {
            let unprocessed: Vec<_> = self.streams.ids().filter(|id| id.number > last).collect();
            for id in unprocessed {
                self.close_stream(id, ResetCause::Unprocessed);
            }
        }
        Ok(())
    }

    pub(crate) fn take_window_update(&mut self, number: u32, increment: u32) -> Result<(), ProtocolError> {
        let increment = i64::from(increment);
        if number == 0 {
            return if self.send_window.add(increment) { Ok(()) } else { Err(ProtocolError::WindowOverflow) };
        }
        let Some(id) = self.streams.find(number) else {
            return if self.is_idle(number) { Err(ProtocolError::IdleStream) } else { Ok(()) };
        };
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.is_closed()) else { return Ok(()) };
        if !stream.send_window.add(increment) {
            return self.breach(id, ProtocolError::WindowOverflow);
        }
        self.queue_turn(id);
        Ok(())
    }

    pub(crate) fn take_reset(&mut self, number: u32, code: ErrorCode) -> Result<(), ProtocolError> {
        let Some(id) = self.streams.find(number) else {
            return if self.is_idle(number) { Err(ProtocolError::IdleStream) } else { Ok(()) };
        };
        let is_early = self.streams.get(id).is_some_and(|stream| !stream.is_announced);
        self.close_stream(id, ResetCause::Peer(code));
        self.early_resets += u32::from(is_early);
        if self.early_resets > EARLY_RESETS_MAX { Err(ProtocolError::StreamFlood) } else { Ok(()) }
    }

    /// The peer broke a rule on a stream: the stream ends, the others go on.
    pub(crate) fn breach(&mut self, id: StreamId, error: ProtocolError) -> Result<(), ProtocolError> {
        let Some(stream) = self.streams.get(id) else { return self.refuse(id.number, error) };
        if stream.is_closed() {
            return self.refuse(id.number, error);
        }
        self.refused += 1;
        self.check_refused()?;
        self.output.reset(id.number, error.code());
        self.close_stream(id, ResetCause::Breach(error));
        Ok(())
    }

    /// The peer broke a rule on a stream that the shell does not have.
    pub(crate) fn refuse(&mut self, number: u32, error: ProtocolError) -> Result<(), ProtocolError> {
        self.refused += 1;
        self.check_refused()?;
        self.output.reset(number, error.code());
        self.closed.push(number, Ending::ResetHere);
        self.push(Event::Refused(error));
        Ok(())
    }

    /// Streams that a client makes the gateway reset cost as much as those that it resets itself.
    pub(crate) fn check_refused(&self) -> Result<(), ProtocolError> {
        match self.refused > REFUSED_STREAMS_MAX && !self.is_client {
            true => Err(ProtocolError::StreamFlood),
            false => Ok(()),
        }
    }

    /// This side ends a stream, which is not closed.
    pub(crate) fn reset_here(&mut self, id: StreamId, code: ErrorCode) {
        write::rst_stream(&mut self.output.bytes, id.number, code);
        self.close_stream(id, ResetCause::Local(code));
    }

    /// A stream ends before its time.
    pub(crate) fn close_stream(&mut self, id: StreamId, cause: ResetCause) {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.is_closed()) else { return };
        stream.reset = Some(cause);
        stream.clear_queue();
        let (is_announced, is_forgotten) = (stream.is_announced, stream.is_forgotten);
        let is_ended = stream.receive == ReceiveStage::Ended;
        self.streams.closed();
        self.leave_turn(id);
        let is_by_peer = matches!(cause, ResetCause::Peer(_));
        self.closed.push(id.number, if is_by_peer { Ending::ResetByPeer } else { Ending::ResetHere });
        if is_ended {
            self.closed.end(id.number);
        }
        if is_forgotten || !is_announced {
            self.remove(id);
        }
        let is_event = match cause {
            ResetCause::Connection(_) | ResetCause::Closed | ResetCause::Local(_) => false,
            // A breach is counted, also on a stream that the shell has given up.
            ResetCause::Breach(_) => true,
            ResetCause::Peer(_) | ResetCause::Unprocessed => is_announced && !is_forgotten,
        };
        if is_event {
            self.push(Event::Reset(id, cause));
        }
    }

    /// Both sides may have ended the stream.
    pub(crate) fn settle(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(id).filter(|stream| stream.reset.is_none()) else { return };
        let is_sent = stream.send == SendStage::Ended;
        match stream.receive {
            ReceiveStage::Ended if is_sent => {
                let is_forgotten = stream.is_forgotten;
                self.streams.closed();
                self.closed.push(id.number, Ending::Complete);
                if is_forgotten {
                    self.remove(id);
                }
            }
            _ if is_sent && stream.is_forgotten => {
                // A response is complete without the rest of its request (RFC 9113 section 8.1).
                let code = if self.is_client { ErrorCode::CANCEL } else { ErrorCode::NO_ERROR };
                self.reset_here(id, code);
            }
            _ => {}
        }
    }

    /// Takes a closed stream out, and gives its bytes back to the window of the connection.
    pub(crate) fn remove(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.remove(id) {
            self.window.release(stream.receive_window.held() as usize);
            self.renew_connection_window();
            if self.streams.len() == 0 {
                self.output.rest();
            }
        }
    }

    /// Sends the window update of the connection that is due.
    pub(crate) fn renew_connection_window(&mut self) {
        if self.phase != Phase::Over
            && let Some(increment) = self.window.increment()
        {
            self.output.control(|into| write::window_update(into, 0, increment));
        }
    }

    /// Sends the window update of a stream that is due.
    pub(crate) fn renew_window(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.receive != ReceiveStage::Ended
            && stream.reset.is_none()
            && !stream.is_forgotten
            && let Some(increment) = stream.receive_window.increment()
        {
            self.output.control(|into| write::window_update(into, id.number, increment));
        }
    }

    /// Begins a drain: see [`Connection::shut_down`].
    pub(crate) fn begin_drain(&mut self) {
        if self.drain != Drain::No || self.phase == Phase::Over {
            return;
        }
        if self.is_client {
            // No stream of the peer can be in flight.
            self.finish_drain();
            return;
        }
        self.drain = Drain::Announced;
        self.drain_deadline = Deadline::after(DRAIN_TIMEOUT);
        write::go_away(&mut self.output.bytes, STREAM_ID_MAX, ErrorCode::NO_ERROR, b"");
        write::ping(&mut self.output.bytes, DRAINING);
    }

    pub(crate) fn finish_drain(&mut self) {
        self.drain_deadline = Deadline::No;
        self.drain = Drain::Last(self.last_number);
        write::go_away(&mut self.output.bytes, self.last_number, ErrorCode::NO_ERROR, b"");
    }

    /// Ends the connection with GOAWAY.
    pub(crate) fn end(&mut self, code: ErrorCode, debug: &[u8], cause: ResetCause) {
        if self.phase == Phase::Over {
            return;
        }
        let last = self.drain.last_taken().unwrap_or(self.last_number);
        write::go_away(&mut self.output.bytes, last, code, debug);
        self.close_all(cause);
    }

    /// Ends all streams.
    pub(crate) fn close_all(&mut self, cause: ResetCause) {
        self.phase = Phase::Over;
        (self.block, self.partial_data, self.input) = (None, None, Vec::new());
        self.turns = VecDeque::new();
        self.streams.iter_mut().for_each(|stream| stream.is_in_turn = false);
        let ids: Vec<_> = self.streams.ids().collect();
        ids.into_iter().for_each(|id| self.close_stream(id, cause));
    }
}
