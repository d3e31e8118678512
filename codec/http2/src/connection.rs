//! One HTTP/2 connection, of either role.

use weir_base::time::Time;
use weir_http_codec::{Fields, RequestHead, ResponseHead};

use crate::{
    config::ConnectionConfig,
    error_code::ErrorCode,
    event::{Event, OpenError, Received, StreamGone, StreamId},
};

/// The state of one HTTP/2 connection, without a socket and without a clock.
///
/// **Order of calls.** [`Connection::receive`] with what the socket brought; then [`Connection::next_event`] until there is none;
/// then [`Connection::take_output`] into the socket's output, also after each call that sends. [`Connection::next_deadline`] says when
/// [`Connection::expire`] is due. When the socket is gone, [`Connection::close`].
///
/// **Streams.** A stream belongs to the shell from its event (or from [`Connection::send_request`]) until [`Connection::forget`], which
/// also resets what is not over. Calls with a stream that is over or forgotten have no effect: no call panics.
///
/// **Memory.** An idle connection holds no buffer besides the tables of HPACK. Received data is at most the windows; queued data is as
/// much as the shell sends beyond [`Connection::send_capacity`].
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
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
        Self { config }
    }

    /// The end that opened the connection. Its preface and SETTINGS are in the output, and push is off.
    pub fn client(config: ConnectionConfig) -> Self {
        Self { config }
    }

    // What the socket does.

    /// Takes received bytes, cut anywhere. Frames are read in place, and only what belongs to an unfinished one is kept. After
    /// [`Event::Failed`] and [`Connection::abort`] all bytes are ignored.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        let _ = (bytes, now);
        todo!()
    }

    /// The next event, in the order of the wire.
    pub fn next_event(&mut self) -> Option<Event> {
        todo!()
    }

    /// Moves the frames to be sent to the end of `into`: about 64 KiB at most, and without a copy if `into` is empty. False: there were
    /// none. Call it again until then, or until `into` is full: DATA beyond stays in the queues of its streams, which share the
    /// connection's window in turn.
    pub fn take_output(&mut self, into: &mut Vec<u8>) -> bool {
        let _ = into;
        todo!()
    }

    /// There are frames to be sent.
    pub fn has_output(&self) -> bool {
        todo!()
    }

    /// When [`Connection::expire`] is due: SETTINGS of this side are not acknowledged.
    pub fn next_deadline(&self) -> Option<Time> {
        todo!()
    }

    /// Looks at the deadlines.
    pub fn expire(&mut self, now: Time) {
        let _ = now;
        todo!()
    }

    /// The socket is gone: all streams are over with [`crate::ResetCause::Closed`], without an event for each. A stream whose end has
    /// come is complete all the same.
    pub fn close(&mut self) {
        todo!()
    }

    // The connection.

    /// No stream is left, and none will come: GOAWAY was sent or received, or the connection has failed. The socket can be closed when
    /// the output is empty.
    pub fn is_over(&self) -> bool {
        todo!()
    }

    /// Streams that the shell has, or whose last bytes wait to be sent.
    pub fn open_streams(&self) -> usize {
        todo!()
    }

    /// Client: a request can be sent now.
    pub fn can_open(&self) -> bool {
        todo!()
    }

    /// Client: streams that the server allows at a time; 100 until its SETTINGS arrive, 0 once the connection takes none any more.
    pub fn streams_max(&self) -> u32 {
        todo!()
    }

    /// Ends the connection without a loss, in two steps (RFC 9113 section 6.8): GOAWAY with the highest stream there can be, and PING;
    /// with its answer, GOAWAY with the last stream that was taken. Streams above that are refused. Streams that are open go on.
    pub fn shut_down(&mut self) {
        todo!()
    }

    /// Ends the connection at once: GOAWAY with that code. All streams are over with [`crate::ResetCause::Closed`].
    pub fn abort(&mut self, code: ErrorCode) {
        let _ = code;
        todo!()
    }

    /// Sends PING, whose answer is [`Event::Pong`]. False: one is not answered yet.
    pub fn ping(&mut self) -> bool {
        todo!()
    }

    /// Sets the window of the connection: bytes that were received and not released, and bytes that the peer may still send, together.
    /// A granted window is not taken back, but is not renewed either. Begins with [`ConnectionConfig::connection_window`].
    pub fn set_connection_window(&mut self, bytes: u32) {
        let _ = bytes;
        todo!()
    }

    /// Sets the window of each stream, by SETTINGS; streams that are open have it once the peer has acknowledged. False: an earlier one
    /// is not acknowledged yet, and nothing was sent; [`Event::SettingsAcked`] says when.
    pub fn set_initial_stream_window(&mut self, bytes: u32) -> bool {
        let _ = bytes;
        todo!()
    }

    /// Bytes that were received on all streams and not released.
    pub fn held(&self) -> u64 {
        todo!()
    }

    // What arrives on a stream.

    /// What has arrived and was not taken. A stream that was forgotten has ended early.
    pub fn received(&self, stream: StreamId) -> Received {
        let _ = stream;
        todo!()
    }

    /// Moves the data that has arrived to the end of `into`; gives the number of bytes. Without a copy if `into` is empty, whose memory
    /// the stream then uses for the next data. The bytes count for the windows until [`Connection::release`].
    pub fn take_data(&mut self, stream: StreamId, into: &mut Vec<u8>) -> usize {
        let _ = (stream, into);
        todo!()
    }

    /// The trailers, once the peer has ended the stream. Fields that none may be ([`weir_http_codec::is_trailer`]) are not among them.
    pub fn take_trailers(&mut self, stream: StreamId) -> Option<Fields> {
        let _ = stream;
        todo!()
    }

    /// Gives bytes back to the windows of the stream and the connection. WINDOW_UPDATE is sent when half of a window is used up.
    pub fn release(&mut self, stream: StreamId, bytes: usize) {
        let _ = (stream, bytes);
        todo!()
    }

    /// Bytes that were received on the stream and not released, taken or not.
    pub fn held_by(&self, stream: StreamId) -> usize {
        let _ = stream;
        todo!()
    }

    // What is sent on a stream.

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
        let _ = (head, target, is_end);
        todo!()
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
        let _ = (stream, head, length, is_end);
        todo!()
    }

    /// Sends data behind the head. All of it is taken: what the windows do not let through waits in the queue of the stream, which
    /// [`Connection::send_capacity`] bounds for callers that keep to it. Small pieces share frames.
    ///
    /// # Errors
    /// The stream takes none.
    pub fn send_data(&mut self, stream: StreamId, data: &[u8]) -> Result<(), StreamGone> {
        let _ = (stream, data);
        todo!()
    }

    /// Ends the stream behind the data: this side has said all.
    ///
    /// # Errors
    /// The stream takes none.
    pub fn send_end(&mut self, stream: StreamId, trailers: Option<&Fields>) -> Result<(), StreamGone> {
        let _ = (stream, trailers);
        todo!()
    }

    /// Bytes of data until the queue of the stream is full; 0 also for a stream that takes none. [`Event::Writable`] says when there is
    /// more.
    pub fn send_capacity(&self, stream: StreamId) -> usize {
        let _ = stream;
        todo!()
    }

    /// Bytes that wait in the queue of the stream, for windows or for room in the output.
    pub fn queued(&self, stream: StreamId) -> usize {
        let _ = stream;
        todo!()
    }

    /// Resets the stream, unless it is over in both directions, and drops what is queued. Nothing more arrives on it. Not counted as a
    /// refusal.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        let _ = (stream, code);
        todo!()
    }

    /// Gives the stream up; data that was not released is given back to the connection's window. A stream that this side has ended goes on
    /// sending what is queued; behind it the peer gets RST_STREAM with NO_ERROR if it still sends. Else RST_STREAM with CANCEL.
    pub fn forget(&mut self, stream: StreamId) {
        let _ = stream;
        todo!()
    }
}
