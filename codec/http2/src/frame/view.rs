//! Payloads of the kinds of frames (RFC 9113 section 6), as views.

use super::{FrameError, FrameHeader, FrameKind, STREAM_ID_MAX, flags};
use crate::{error_code::ErrorCode, settings::SettingsPayload};

/// A frame with its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// DATA, without its padding. All bytes of the payload count for flow control: `header.length` of them.
    Data(&'a [u8]),
    /// HEADERS.
    Headers(Headers<'a>),
    /// PRIORITY.
    Priority(Priority),
    /// RST_STREAM.
    RstStream(ErrorCode),
    /// SETTINGS with parameters, which are not judged yet.
    Settings(SettingsPayload<'a>),
    /// The acknowledgement of our SETTINGS.
    SettingsAck,
    /// PUSH_PROMISE.
    PushPromise(PushPromise<'a>),
    /// PING that requires an acknowledgement with the same bytes.
    Ping([u8; 8]),
    /// The acknowledgement of a PING of ours.
    PingAck([u8; 8]),
    /// GOAWAY.
    GoAway {
        /// The last stream of ours that the sender may have worked on.
        last_stream_id: u32,
        /// Why.
        code: ErrorCode,
        /// Bytes for people, of any content.
        debug: &'a [u8],
    },
    /// WINDOW_UPDATE: so many bytes more, from 1 to 2^31-1.
    WindowUpdate(u32),
    /// CONTINUATION: more of the header block.
    Continuation(&'a [u8]),
    /// PRIORITY_UPDATE (RFC 9218 section 7.1).
    PriorityUpdate {
        /// The stream that it is about.
        stream_id: u32,
        /// A structured field.
        value: &'a [u8],
    },
    /// A kind that is not known, to be ignored.
    Unknown,
}

/// The payload of HEADERS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    /// The first part of the header block.
    pub fragment: &'a [u8],
    /// The deprecated priority. Check [`Priority::is_of_itself`]: such a frame is an error of its stream, but its header block has to be
    /// decoded all the same.
    pub priority: Option<Priority>,
}

/// Priority as RFC 7540 had it. A receiver of RFC 9113 ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The stream that it depends on.
    pub dependency: u32,
    /// It alone shall depend on that stream.
    pub is_exclusive: bool,
    /// The weight less one.
    pub weight: u8,
}

impl Priority {
    const BYTES: usize = 5;

    const fn of([a, b, c, d, weight]: [u8; Self::BYTES]) -> Self {
        let dependency = u32::from_be_bytes([a, b, c, d]);
        Self { dependency: dependency & STREAM_ID_MAX, is_exclusive: dependency > STREAM_ID_MAX, weight }
    }

    /// True if it makes the stream depend on itself (RFC 7540 section 5.3.1): [`FrameError::SelfDependency`].
    pub const fn is_of_itself(self, stream_id: u32) -> bool {
        self.dependency == stream_id
    }
}

/// The payload of PUSH_PROMISE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushPromise<'a> {
    /// The stream that the server reserves.
    pub promised_stream_id: u32,
    /// The first part of the header block.
    pub fragment: &'a [u8],
}

/// The bytes of a DATA frame before and behind its data, for a receiver that takes the payload in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataLayout {
    /// Bytes of payload before the data: 0 or 1.
    pub prefix: u32,
    /// Bytes of data.
    pub data: u32,
    /// Bytes of padding behind it.
    pub padding: u32,
}

impl DataLayout {
    /// The layout of the frame. `received`: the bytes of its payload that have come; `None`: one byte of it is needed.
    ///
    /// # Errors
    /// [`FrameError::StreamMissing`], [`FrameError::Length`] or [`FrameError::Padding`].
    #[inline]
    pub fn read(header: FrameHeader, received: &[u8]) -> Result<Option<Self>, FrameError> {
        if header.stream_id == 0 {
            return Err(FrameError::StreamMissing);
        }
        if !header.has(flags::PADDED) {
            return Ok(Some(Self { prefix: 0, data: header.length, padding: 0 }));
        }
        let Some(rest) = header.length.checked_sub(1) else { return Err(FrameError::Length) };
        let Some(&padding) = received.first() else { return Ok(None) };
        let padding = u32::from(padding);
        match rest.checked_sub(padding) {
            Some(data) => Ok(Some(Self { prefix: 1, data, padding })),
            None => Err(FrameError::Padding),
        }
    }
}

impl<'a> Frame<'a> {
    /// The view of a whole payload, which has `header.length` bytes.
    ///
    /// # Errors
    /// The frame breaks a rule by itself. An error of scope `Stream` leaves the connection as it was: no such frame has a header block.
    #[inline]
    pub fn parse(header: FrameHeader, payload: &'a [u8]) -> Result<Self, FrameError> {
        debug_assert_eq!(payload.len(), header.length as usize);
        match header.kind {
            FrameKind::Data => on_stream(header).and_then(|()| unpadded(header, payload)).map(Self::Data),
            FrameKind::Headers => headers(header, payload).map(Self::Headers),
            FrameKind::Priority => priority(header, payload).map(Self::Priority),
            FrameKind::RstStream => {
                on_stream(header)?;
                Ok(Self::RstStream(ErrorCode::from_u32(u32::from_be_bytes(exact(payload)?))))
            }
            FrameKind::Settings => settings(header, payload),
            FrameKind::PushPromise => push_promise(header, payload).map(Self::PushPromise),
            FrameKind::Ping => {
                on_connection(header)?;
                let data = exact(payload)?;
                Ok(if header.is_ack() { Self::PingAck(data) } else { Self::Ping(data) })
            }
            FrameKind::GoAway => go_away(header, payload),
            FrameKind::WindowUpdate => window_update(header, payload).map(Self::WindowUpdate),
            FrameKind::Continuation => on_stream(header).map(|()| Self::Continuation(payload)),
            FrameKind::PriorityUpdate => priority_update(header, payload),
            FrameKind::Unknown(_) => Ok(Self::Unknown),
        }
    }
}

#[inline]
fn on_stream(header: FrameHeader) -> Result<(), FrameError> {
    if header.stream_id == 0 { Err(FrameError::StreamMissing) } else { Ok(()) }
}

#[inline]
fn on_connection(header: FrameHeader) -> Result<(), FrameError> {
    if header.stream_id == 0 { Ok(()) } else { Err(FrameError::StreamUnexpected) }
}

#[inline]
fn exact<const BYTES: usize>(payload: &[u8]) -> Result<[u8; BYTES], FrameError> {
    payload.try_into().map_err(|_| FrameError::Length)
}

#[inline]
fn unpadded(header: FrameHeader, payload: &[u8]) -> Result<&[u8], FrameError> {
    if !header.has(flags::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(FrameError::Length)?;
    let bytes = rest.len().checked_sub(usize::from(padding)).ok_or(FrameError::Padding)?;
    Ok(&rest[..bytes])
}

#[inline]
fn headers(header: FrameHeader, payload: &[u8]) -> Result<Headers<'_>, FrameError> {
    on_stream(header)?;
    if !header.has(flags::PRIORITY) {
        return Ok(Headers { fragment: unpadded(header, payload)?, priority: None });
    }
    // Padding may cover the whole fragment, never the fields before it.
    let prefix = usize::from(header.has(flags::PADDED)) + Priority::BYTES;
    if payload.len() < prefix {
        return Err(FrameError::Length);
    }
    let (priority, fragment) = unpadded(header, payload)?.split_first_chunk().ok_or(FrameError::Padding)?;
    Ok(Headers { fragment, priority: Some(Priority::of(*priority)) })
}

fn priority(header: FrameHeader, payload: &[u8]) -> Result<Priority, FrameError> {
    on_stream(header)?;
    let priority = Priority::of(exact(payload).map_err(|_| FrameError::PriorityLength)?);
    if priority.is_of_itself(header.stream_id) { Err(FrameError::SelfDependency) } else { Ok(priority) }
}

fn settings(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, FrameError> {
    on_connection(header)?;
    match header.is_ack() {
        true if payload.is_empty() => Ok(Frame::SettingsAck),
        true => Err(FrameError::Length),
        false => SettingsPayload::new(payload).map(Frame::Settings),
    }
}

fn push_promise(header: FrameHeader, payload: &[u8]) -> Result<PushPromise<'_>, FrameError> {
    on_stream(header)?;
    let prefix = usize::from(header.has(flags::PADDED)) + size_of::<u32>();
    if payload.len() < prefix {
        return Err(FrameError::Length);
    }
    let (promised, fragment) = unpadded(header, payload)?.split_first_chunk().ok_or(FrameError::Padding)?;
    Ok(PushPromise { promised_stream_id: u32::from_be_bytes(*promised) & STREAM_ID_MAX, fragment })
}

fn go_away(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, FrameError> {
    on_connection(header)?;
    let (&[a, b, c, d, e, f, g, h], debug) = payload.split_first_chunk().ok_or(FrameError::Length)?;
    let last_stream_id = u32::from_be_bytes([a, b, c, d]) & STREAM_ID_MAX;
    Ok(Frame::GoAway { last_stream_id, code: ErrorCode::from_u32(u32::from_be_bytes([e, f, g, h])), debug })
}

#[inline]
fn window_update(header: FrameHeader, payload: &[u8]) -> Result<u32, FrameError> {
    match u32::from_be_bytes(exact(payload)?) & STREAM_ID_MAX {
        0 if header.stream_id == 0 => Err(FrameError::ConnectionIncrement),
        0 => Err(FrameError::StreamIncrement),
        increment => Ok(increment),
    }
}

fn priority_update(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, FrameError> {
    on_connection(header)?;
    let (stream_id, value) = payload.split_first_chunk().ok_or(FrameError::Length)?;
    match u32::from_be_bytes(*stream_id) & STREAM_ID_MAX {
        0 => Err(FrameError::StreamMissing),
        stream_id => Ok(Frame::PriorityUpdate { stream_id, value }),
    }
}
