//! Frames (RFC 9113 sections 4.1 and 6): a header of 9 bytes, and views of a payload that is borrowed. Nothing is held or allocated.
//!
//! Call [`FrameHeader::read`] first, then [`Frame::parse`] with the whole payload. DATA can be taken in pieces instead: see
//! [`DataLayout`]. Rules between frames (states of streams, CONTINUATION behind HEADERS, windows) are for the connection to judge.

mod error;
mod header;
mod view;
pub mod write;

pub use error::{ErrorScope, FrameError};
pub use header::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, STREAM_ID_MAX, flags};
pub use view::{DataLayout, Frame, Headers, Priority, PushPromise};
