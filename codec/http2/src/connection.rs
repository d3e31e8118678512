//! One HTTP/2 connection, of either role.

use std::collections::VecDeque;

use weir_base::time::Time;
use weir_http_codec::{Fields, RequestHead, ResponseHead};

use crate::{
    closed::ClosedStreams,
    config::{
        ConnectionConfig, OUTBOUND_CONTROL_BYTES_MAX, OUTPUT_CONGESTED_BYTES, OUTPUT_WAITING_BYTES_MAX,
        SETTINGS_TIMEOUT, SETTINGS_UPDATE_TIMEOUT, STREAMS_FIRST,
    },
    control::ROUND_TRIP,
    deadline::Deadline,
    error::ProtocolError,
    error_code::ErrorCode,
    event::{Event, OpenError, Received, ResetCause, StreamGone, StreamId},
    fields::Scratch,
    flood::FrameBudget,
    frame::{STREAM_ID_MAX, write},
    headers::Block,
    hpack::{Decoder, Encoder, TABLE_BYTES_DEFAULT},
    output::Output,
    receive::PartialData,
    settings::{Setting, Settings, WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX},
    stream::{ReceiveStage, SendStage, Streams},
    window::{ReceiveWindow, SendWindow},
};

/// Events for which an idle connection keeps room.
const EVENTS_KEPT: usize = 4;

/// Events for which any connection keeps room.
const EVENTS_KEPT_MAX: usize = 512;

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// So many bytes of the client's preface have come.
    Preface(usize),
    /// The peer's first frame is its SETTINGS.
    Settings,
    Open,
    /// Nothing is received any more.
    Over,
}

/// How far the end of the connection is that this side has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    No,
    /// The peer was sent a first GOAWAY; streams that it opens meanwhile are taken.
    Announced,
    /// The last stream that was taken.
    Last(u32),
}

impl Drain {
    pub(crate) fn last_taken(self) -> Option<u32> {
        if let Self::Last(last) = self { Some(last) } else { None }
    }
}

/// The state of one HTTP/2 connection, without a socket and without a clock.
///
/// **Order of calls.** [`Connection::receive`] with what the socket brought; then [`Connection::next_event`] until there is none;
/// then [`Connection::take_output`] into the socket's output, also after each call that sends. [`Connection::next_deadline`] says when
/// [`Connection::expire`] is due, and [`Connection::is_congested`] when not to receive. When the socket is gone, [`Connection::close`].
///
/// **Streams.** A stream belongs to the shell from its event (or from [`Connection::send_request`]) until [`Connection::forget`], which
/// also resets what is not over. Calls with a stream that is over or forgotten have no effect: no call panics.
///
/// **Memory.** An idle connection holds no buffer besides the tables of HPACK. Received data is at most the windows, and a header block that
/// is not whole [`crate::config::HEADER_BLOCK_BYTES_MAX`]; heads and trailers of streams that the shell has are at most
/// [`ConnectionConfig::head_limits`] each. Queued data is as much as the shell sends beyond [`Connection::send_capacity`]. Output is
/// [`OUTPUT_CONGESTED_BYTES`] where the driver keeps to [`Connection::is_congested`], and heads and trailers of open streams beyond it.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: ConnectionConfig,
    pub(crate) is_client: bool,
    pub(crate) phase: Phase,
    /// A frame that is not whole.
    pub(crate) input: Vec<u8>,
    pub(crate) partial_data: Option<PartialData>,
    pub(crate) block: Option<Block>,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) scratch: Scratch,
    pub(crate) streams: Streams,
    pub(crate) closed: ClosedStreams,
    /// The highest stream of a client.
    pub(crate) last_number: u32,
    /// Client: the next stream.
    pub(crate) next_number: u32,
    /// Window of the connection, and of a stream that begins.
    pub(crate) window: ReceiveWindow,
    pub(crate) stream_window: u32,
    /// Window of streams that the peer has not acknowledged.
    pub(crate) announced_window: Option<u32>,
    pub(crate) send_window: SendWindow,
    pub(crate) peer: Settings,
    pub(crate) has_settings: bool,
    pub(crate) output: Output,
    /// Streams that have something to send, and a window for it.
    pub(crate) turns: VecDeque<StreamId>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) drain: Drain,
    /// The last stream by the peer's GOAWAY.
    pub(crate) peer_last: Option<u32>,
    pub(crate) is_pinging: bool,
    pub(crate) budget: FrameBudget,
    /// Streams that were reset for what the peer did wrong.
    pub(crate) refused: u32,
    /// The peer has acknowledged SETTINGS, and knows how many streams it may open.
    pub(crate) is_acknowledged: bool,
    /// Streams that the peer has reset before the shell has seen them.
    pub(crate) early_resets: u32,
    /// When SETTINGS must be acknowledged.
    pub(crate) settings_deadline: Deadline,
    /// When a drain goes on without the peer.
    pub(crate) drain_deadline: Deadline,
    /// When a header block that has begun must be whole.
    pub(crate) block_deadline: Deadline,
}

/// The parts of a request that HTTP/1.1 has in its connection.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'a> {
    /// `http` or `https`.
    pub scheme: &'a [u8],
    /// The authority that the request is for; the host field of the head is not sent.
    pub authority: &'a [u8],
    /// `:protocol`: the request becomes an extended CONNECT (RFC 8441 section 4), whatever its method.
    pub protocol: Option<&'a [u8]>,
}

impl Connection {
    /// The end that took the connection; it expects the preface of a client first. Its SETTINGS are in the output.
    pub fn server(config: ConnectionConfig) -> Self {
        let mut connection = Self::new(config, false);
        connection.send_settings(Settings {
            max_concurrent_streams: Some(config.streams_max),
            enable_connect_protocol: config.connect_protocol,
            ..Settings::default()
        });
        connection
    }

    /// The end that opened the connection. Its preface and SETTINGS are in the output, and push is off.
    pub fn client(config: ConnectionConfig) -> Self {
        let mut connection = Self::new(config, true);
        connection.output.bytes.extend_from_slice(write::PREFACE);
        connection.send_settings(Settings { enable_push: false, ..Settings::default() });
        connection
    }

    // The socket.

    /// Takes received bytes, cut anywhere. Frames are read in place, and only what belongs to an unfinished one is kept. After
    /// [`Event::Failed`] and [`Connection::abort`] all bytes are ignored.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        if self.phase == Phase::Over {
            return;
        }
        match self.take_bytes(bytes, now) {
            Err(error) => self.fail(error),
            Ok(()) if self.output.control_bytes() > OUTBOUND_CONTROL_BYTES_MAX => {
                self.fail(ProtocolError::OutboundControlFlood)
            }
            Ok(()) if self.output.len() > OUTPUT_WAITING_BYTES_MAX => self.fail(ProtocolError::OutputFlood),
            Ok(()) => self.expire(now),
        }
    }

    /// The next event, in the order of the wire.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let Some(event) = self.events.pop_front() else {
                self.early_resets = 0;
                let kept = if self.streams.len() == 0 { EVENTS_KEPT } else { EVENTS_KEPT_MAX };
                if self.events.capacity() > kept {
                    self.events = VecDeque::new();
                }
                return None;
            };
            if self.is_current(&event) {
                return Some(event);
            }
            if let Event::Reset(_, ResetCause::Breach(error)) = event {
                return Some(Event::Refused(error));
            }
        }
    }

    /// Moves the frames to be sent to the end of `into`: about 64 KiB of DATA at most, with all heads, trailers and control frames that
    /// wait, and without a copy if `into` is empty. False: there were none. Call it again until then, or until `into` is full: DATA beyond
    /// stays in the queues of its streams, which share the connection's window in turn.
    pub fn take_output(&mut self, into: &mut Vec<u8>) -> bool {
        self.fill_output();
        if self.output.len() == 0 {
            return false;
        }
        self.output.take(into, self.streams.len() == 0);
        true
    }

    /// There are frames to be sent.
    pub fn has_output(&self) -> bool {
        self.output.len() > 0 || (!self.turns.is_empty() && self.send_window.room() > 0)
    }

    /// More waits in the output than a peer that reads leaves there: [`OUTPUT_CONGESTED_BYTES`]. Heads, trailers and resets have no window. The
    /// driver of a server receives nothing until [`Connection::take_output`] has moved them; else the connection fails with
    /// [`ProtocolError::OutputFlood`] above [`OUTPUT_WAITING_BYTES_MAX`]. That of a client goes on, since an origin may read no request
    /// while its responses are not read; [`Connection::can_open`] is false meanwhile. Both end a connection whose output does not move.
    pub fn is_congested(&self) -> bool {
        self.output.len() > OUTPUT_CONGESTED_BYTES
    }

    /// When [`Connection::expire`] is due: SETTINGS of this side are not acknowledged, a drain is not confirmed, or a header block does not
    /// end. [`Time::ZERO`]: at once, since the time of a deadline begins with the next call that has a clock. That can be so after
    /// [`Connection::shut_down`] and [`Connection::set_initial_stream_window`].
    pub fn next_deadline(&self) -> Option<Time> {
        if self.phase == Phase::Over {
            return None;
        }
        let deadlines = [self.settings_deadline, self.drain_deadline, self.block_deadline];
        deadlines.into_iter().filter_map(Deadline::next_look).min()
    }

    /// Looks at the deadlines. There may be events and output then.
    pub fn expire(&mut self, now: Time) {
        if self.phase == Phase::Over {
            return;
        }
        if self.drain_deadline.is_due(now) {
            self.finish_drain();
        }
        if self.settings_deadline.is_due(now) {
            self.fail(ProtocolError::SettingsTimeout);
        } else if self.block_deadline.is_due(now) {
            self.fail(ProtocolError::HeaderBlockTimeout);
        }
    }

    /// The socket is gone: all streams are over with [`crate::ResetCause::Closed`], without an event for each. A stream whose end has
    /// come is complete all the same.
    pub fn close(&mut self) {
        self.close_all(ResetCause::Closed);
    }

    // The connection.

    /// No stream is left, and none will come: GOAWAY was sent or received, or the connection has failed. The socket can be closed when
    /// the output is empty.
    pub fn is_over(&self) -> bool {
        let is_closing = self.peer_last.is_some() || self.drain.last_taken().is_some();
        self.phase == Phase::Over || (is_closing && self.streams.len() == 0)
    }

    /// Streams that the shell has, or whose last bytes wait to be sent.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Client: a request can be sent now. The value may change with the end of a stream, with [`Event::Settings`], and when output was
    /// taken.
    pub fn can_open(&self) -> bool {
        self.is_client
            && self.takes_streams()
            && !self.is_congested()
            && self.streams.open() < self.streams_allowed() as usize
    }

    /// Client: streams that the server allows at a time; 100 until its SETTINGS arrive, and 1 at least, since a server that allows none
    /// now may allow some later. 0 once the connection takes none any more.
    pub fn streams_max(&self) -> u32 {
        if self.takes_streams() { self.streams_allowed().max(1) } else { 0 }
    }

    /// Ends the connection without a loss, in two steps (RFC 9113 section 6.8): GOAWAY with the highest stream there can be, and PING;
    /// with its acknowledgement, GOAWAY with the last stream that was taken. Streams above that are refused. Streams that are open go on.
    pub fn shut_down(&mut self) {
        self.begin_drain();
    }

    /// Ends the connection at once: GOAWAY with that code. All streams are over with [`crate::ResetCause::Closed`].
    pub fn abort(&mut self, code: ErrorCode) {
        self.end(code, b"", ResetCause::Closed);
    }

    /// Sends PING, whose acknowledgement is [`Event::Pong`]. False: one is not acknowledged yet.
    pub fn ping(&mut self) -> bool {
        let is_sent = !self.is_pinging && self.phase != Phase::Over;
        if is_sent {
            self.is_pinging = true;
            write::ping(&mut self.output.bytes, ROUND_TRIP);
        }
        is_sent
    }

    /// Sets the window of the connection: bytes that were received and not released, and bytes that the peer may still send, together.
    /// A granted window is not taken back, but is not renewed either. Begins with [`ConnectionConfig::connection_window`].
    pub fn set_connection_window(&mut self, bytes: u32) {
        self.window.set_size(bytes);
        self.renew_connection_window();
    }

    /// Sets the window of each stream, by SETTINGS; streams that are open have it once the peer has acknowledged. False: an earlier one
    /// is not acknowledged yet, and nothing was sent; [`Event::SettingsAcked`] says when.
    pub fn set_initial_stream_window(&mut self, bytes: u32) -> bool {
        if self.announced_window.is_some() || self.phase == Phase::Over {
            return false;
        }
        let bytes = bytes.min(WINDOW_BYTES_MAX);
        self.announced_window = Some(bytes);
        self.settings_deadline = Deadline::after(SETTINGS_UPDATE_TIMEOUT);
        write::settings(&mut self.output.bytes, &[Setting::InitialWindowSize(bytes)]);
        true
    }

    /// Bytes that were received on all streams and not released.
    pub fn held(&self) -> u64 {
        self.window.held()
    }

    // Streams, as far as they are received.

    /// The data that has arrived and was not taken, and how far the stream is. A stream that was forgotten has ended early.
    pub fn received(&self, stream: StreamId) -> Received {
        let Some(stream) = self.streams.get(stream).filter(|stream| !stream.is_forgotten) else {
            return Received { bytes: 0, is_end: false, reset: Some(ResetCause::Closed) };
        };
        let is_end = stream.receive == ReceiveStage::Ended;
        Received { bytes: stream.data.len() - stream.data_start, is_end, reset: stream.reset }
    }

    /// Moves data that has arrived to the end of `into`, `most` bytes of it at most; gives the number of bytes. Without a copy if `into` is
    /// empty and gets all, whose memory the stream then uses for the next data. The bytes count for the windows until
    /// [`Connection::release`].
    pub fn take_data(&mut self, stream: StreamId, into: &mut Vec<u8>, most: usize) -> usize {
        self.streams.get_mut(stream).map_or(0, |stream| stream.take_data(into, most))
    }

    /// The trailers, once the peer has ended the stream. Fields that none may be ([`weir_http_codec::is_trailer`]) are not among them.
    pub fn take_trailers(&mut self, stream: StreamId) -> Option<Fields> {
        self.streams.get_mut(stream)?.trailers.take().map(|trailers| *trailers)
    }

    /// Gives bytes back to the windows of the stream and the connection. WINDOW_UPDATE is sent when half of a window is used up.
    pub fn release(&mut self, stream: StreamId, bytes: usize) {
        let Some(held) = self.streams.get_mut(stream) else { return };
        let bytes = held.receive_window.release(bytes);
        self.window.release(bytes);
        self.renew_window(stream);
        self.renew_connection_window();
    }

    /// Bytes that were received on the stream and not released, taken or not.
    pub fn held_by(&self, stream: StreamId) -> usize {
        self.streams.get(stream).map_or(0, |stream| stream.receive_window.held() as usize)
    }

    // Streams, as far as they are sent.

    /// Client: opens a stream with a request. Content-Length is that of [`RequestHead::body`], if it is exact and not 0; fields that
    /// belong to a connection of HTTP/1.1 are left out, and names are in lower case on the wire. `is_end`: there is no body.
    ///
    /// # Errors
    /// No stream was opened, and nothing is sent.
    pub fn send_request(
        &mut self,
        head: &RequestHead,
        target: RequestTarget<'_>,
        is_end: bool,
    ) -> Result<StreamId, OpenError> {
        self.check_open(target)?;
        Ok(self.open_stream(head, target, is_end))
    }

    /// Server: sends an interim head, any number of times, or the final one once. `length` stands for the content-length of the head, if
    /// it is given. `is_end`: there is no body, and no trailers.
    ///
    /// # Errors
    /// The stream takes none.
    pub fn send_response(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        length: Option<u64>,
        is_end: bool,
    ) -> Result<(), StreamGone> {
        self.respond(stream, head, length, is_end)
    }

    /// Sends data behind the head. All of it is taken: what the windows do not let through waits in the queue of the stream, which
    /// [`Connection::send_capacity`] bounds for callers that keep to it. Small pieces share frames.
    ///
    /// # Errors
    /// The stream takes none.
    pub fn send_data(&mut self, stream: StreamId, data: &[u8]) -> Result<(), StreamGone> {
        self.send(stream, data)
    }

    /// Ends the stream behind the data: this side has said all.
    ///
    /// # Errors
    /// The stream takes none.
    pub fn send_end(&mut self, stream: StreamId, trailers: Option<&Fields>) -> Result<(), StreamGone> {
        self.finish(stream, trailers)
    }

    /// Bytes of data until the queue of the stream is full; 0 also for a stream that takes none. [`Event::Writable`] says when there is
    /// more.
    pub fn send_capacity(&self, stream: StreamId) -> usize {
        let stream = self.streams.get(stream);
        let stream = stream.filter(|stream| stream.reset.is_none() && stream.send == SendStage::Body);
        stream.map_or(0, |stream| self.config.send_queue_bytes.saturating_sub(stream.queued()))
    }

    /// Bytes that wait in the queue of the stream, for windows or for room in the output.
    pub fn queued(&self, stream: StreamId) -> usize {
        self.streams.get(stream).filter(|stream| !stream.is_forgotten).map_or(0, |stream| stream.queued())
    }

    /// Resets the stream, unless it is over in both directions, and drops what is queued. Nothing more arrives on it. Not counted as a
    /// refusal.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        if self.streams.get(stream).is_some_and(|stream| !stream.is_closed() && !stream.is_forgotten) {
            self.reset_here(stream, code);
        }
    }

    /// Gives the stream up; data that was not released is given back to the connection's window. A response that this side has ended goes on
    /// sending what is queued; behind it the peer gets RST_STREAM with NO_ERROR if it still sends. In all other cases, and for a request
    /// that is queued, RST_STREAM with CANCEL goes out at once unless the stream is over.
    pub fn forget(&mut self, stream: StreamId) {
        let Some(forgotten) = self.streams.get_mut(stream).filter(|stream| !stream.is_forgotten) else { return };
        forgotten.is_forgotten = true;
        let held = forgotten.receive_window.held() as usize;
        let released = forgotten.receive_window.release(held);
        (forgotten.data, forgotten.data_start, forgotten.trailers) = (Vec::new(), 0, None);
        let (is_closed, send) = (forgotten.is_closed(), forgotten.send);
        self.window.release(released);
        match send {
            _ if is_closed => self.remove(stream),
            SendStage::Ended => self.settle(stream),
            // A response goes on to its end. A request does not: its windows may never open, and the stream would stay.
            SendStage::Ending if !self.is_client => {}
            SendStage::Ending | SendStage::Head | SendStage::Body => self.reset_here(stream, ErrorCode::CANCEL),
        }
        self.renew_connection_window();
    }

    // Parts of the above.

    fn new(config: ConnectionConfig, is_client: bool) -> Self {
        let window = config.connection_window.clamp(WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX);
        Self {
            config,
            is_client,
            phase: if is_client { Phase::Settings } else { Phase::Preface(0) },
            input: Vec::new(),
            partial_data: None,
            block: None,
            decoder: Decoder::new(TABLE_BYTES_DEFAULT),
            encoder: Encoder::new(),
            scratch: Scratch::default(),
            streams: Streams::default(),
            closed: ClosedStreams::default(),
            last_number: 0,
            next_number: 1,
            window: ReceiveWindow::new(window, WINDOW_BYTES_DEFAULT),
            stream_window: WINDOW_BYTES_DEFAULT,
            announced_window: None,
            send_window: SendWindow::new(WINDOW_BYTES_DEFAULT),
            peer: Settings::default(),
            has_settings: false,
            output: Output::default(),
            turns: VecDeque::new(),
            events: VecDeque::new(),
            drain: Drain::No,
            peer_last: None,
            is_pinging: false,
            budget: FrameBudget::default(),
            refused: 0,
            is_acknowledged: false,
            early_resets: 0,
            settings_deadline: Deadline::after(SETTINGS_TIMEOUT),
            drain_deadline: Deadline::No,
            block_deadline: Deadline::No,
        }
    }

    fn send_settings(&mut self, settings: Settings) {
        let window = self.config.stream_window.min(WINDOW_BYTES_MAX);
        let list = u32::try_from(self.config.head_limits.bytes).unwrap_or(u32::MAX);
        let settings = Settings { initial_window_bytes: window, max_header_list_bytes: Some(list), ..settings };
        settings.write(&mut self.output.bytes);
        self.announced_window = Some(window);
        if let Some(increment) = self.window.first_increment() {
            write::window_update(&mut self.output.bytes, 0, increment);
        }
    }

    /// Client: neither side has begun to end the connection.
    pub(crate) fn takes_streams(&self) -> bool {
        let is_closing = self.peer_last.is_some() || self.drain.last_taken().is_some();
        self.phase != Phase::Over && !is_closing && self.next_number <= STREAM_ID_MAX
    }

    fn streams_allowed(&self) -> u32 {
        match self.has_settings {
            true => self.peer.max_concurrent_streams.unwrap_or(u32::MAX),
            false => STREAMS_FIRST,
        }
    }

    fn fail(&mut self, error: ProtocolError) {
        self.end(error.code(), error.text().as_bytes(), ResetCause::Connection(error));
        self.push(Event::Failed(error));
    }

    /// The event is about something that is still there.
    fn is_current(&mut self, event: &Event) -> bool {
        let id = match event {
            Event::Request(id, _) | Event::Readable(id) | Event::Writable(id) | Event::Reset(id, _) => *id,
            Event::Response { stream, .. } => *stream,
            _ => return true,
        };
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.is_forgotten) else { return false };
        match event {
            Event::Request(..) => stream.is_announced = true,
            Event::Readable(_) => stream.is_readable_queued = false,
            Event::Writable(_) => stream.is_writable_queued = false,
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Stream;

    /// 16,384 idle connections have 16 MiB of this, and what their tables hold.
    #[test]
    fn an_idle_connection_and_a_stream_are_small() {
        assert!(size_of::<Connection>() <= 1_024, "{}", size_of::<Connection>());
        assert!(size_of::<Stream>() <= 288, "{}", size_of::<Stream>());
    }
}
