//! Events, by which the shell learns from the machine.

use weir_http_codec::{RequestHead, ResponseHead, WireError};

use crate::{error::ProtocolError, error_code::ErrorCode};

/// A stream of one connection. It stays valid until [`crate::Connection::forget`]; later calls with it have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub(crate) number: u32,
    pub(crate) slot: u32,
}

impl StreamId {
    /// The number on the wire, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// A small number, from 0, that no other stream has at the same time: a place in a table of the shell. The next stream may have it
    /// once this one is forgotten.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// A request that a client has sent, as far as its head.
#[derive(Debug)]
pub struct Request {
    /// The head, as HTTP/1.1 has it too. An extended CONNECT has the method GET and no body here (RFC 8441 section 5).
    pub head: RequestHead,
    /// `:protocol` of an extended CONNECT: DATA in both directions is then the tunnel's.
    pub protocol: Option<Box<[u8]>>,
    /// No body and no trailers follow.
    pub is_end: bool,
}

/// The next thing that happened. Each stream's task is woken by the events that name the stream.
#[derive(Debug)]
pub enum Event {
    /// Server: a new stream. An error is no breach of HTTP/2: the request is answered with its status, as in HTTP/1.1 (431 among them),
    /// with [`crate::Connection::send_response`]. In both cases the stream is open until the shell forgets it.
    Request(StreamId, Result<Request, WireError>),
    /// Client: a head of the response; several interim ones may come before the final one. `is_end`: no body and no trailers follow.
    Response {
        /// The stream of the request.
        stream: StreamId,
        /// An interim or the final head.
        head: ResponseHead,
        /// Nothing follows.
        is_end: bool,
    },
    /// Data, trailers or the end have arrived: see [`crate::Connection::received`]. It stands for all that arrives until it was seen;
    /// later data makes another one, whether the first was taken or not.
    Readable(StreamId),
    /// Queued data of the stream has left, so that its queue has room: see [`crate::Connection::send_capacity`].
    Writable(StreamId),
    /// The stream has ended early: nothing more is sent or received on it. Data that arrived before can still be taken.
    Reset(StreamId, ResetCause),
    /// The peer broke a rule on a stream that the shell does not have: the head of its request in most cases. The stream was reset; to be
    /// counted, like [`ResetCause::Breach`].
    Refused(ProtocolError),
    /// The peer opens no more streams here (server), or takes none (client): streams above `last` come as [`Event::Reset`] with
    /// [`ResetCause::Unprocessed`].
    GoAway {
        /// The last stream that the peer has processed or will process.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
    /// The peer's SETTINGS have arrived: [`crate::Connection::streams_max`] may be another one.
    Settings,
    /// The peer has confirmed SETTINGS: [`crate::Connection::set_initial_stream_window`] is possible again.
    SettingsAcked,
    /// The peer has acknowledged [`crate::Connection::ping`].
    Pong,
    /// The peer broke a rule that ends the connection. GOAWAY is in the output; nothing more is received. All streams are over with
    /// [`ResetCause::Connection`], without an event for each.
    Failed(ProtocolError),
}

/// Why a stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCause {
    /// The peer has sent RST_STREAM.
    Peer(ErrorCode),
    /// The peer broke a rule on the stream and was sent RST_STREAM; to be counted by its reason.
    Breach(ProtocolError),
    /// The shell has reset it: [`crate::Connection::reset`].
    Local(ErrorCode),
    /// The peer's GOAWAY says that it has not begun with the request: it may be sent again elsewhere (RFC 9113 section 8.7).
    Unprocessed,
    /// The peer broke a rule that ended the connection.
    Connection(ProtocolError),
    /// The connection was closed: [`crate::Connection::close`], [`crate::Connection::abort`].
    Closed,
}

/// The part of a stream that has arrived and was not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of DATA that wait for [`crate::Connection::take_data`].
    pub bytes: usize,
    /// The peer has ended the stream: no DATA comes behind these bytes. Trailers are there, if there are any.
    pub is_end: bool,
    /// It ended early.
    pub reset: Option<ResetCause>,
}

/// Why no stream can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// As many streams are open as the peer allows.
    Full,
    /// GOAWAY was sent or received, the connection is over, or its numbers are used up: another one is needed.
    Closing,
    /// An extended CONNECT, and the peer has not offered it (RFC 8441 section 3).
    NoConnectProtocol,
}

/// The stream takes nothing any more: it was reset, forgotten, or ended by this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamGone;
