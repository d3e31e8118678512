//! The choice of a filter for an attempt: the upstream, and the body that goes there.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use weir_base::{ByteLease, BytesPermit};

/// The choice of a filter for an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestChoice {
    /// The upstream.
    pub upstream: UpstreamChoice,
    /// The body that it gets.
    pub body: BodyChange,
}

impl From<UpstreamChoice> for RequestChoice {
    /// The body goes on as it came.
    fn from(upstream: UpstreamChoice) -> Self {
        Self { upstream, body: BodyChange::Keep }
    }
}

/// The part of a request body that was seen before a choice.
#[derive(Clone, Copy, Debug)]
pub struct SeenBody<'a> {
    /// Its bytes, as they came.
    pub bytes: &'a [u8],
    /// It is all of the body, and the end has been seen.
    pub is_whole: bool,
    lease: &'a ByteLease,
}

impl<'a> SeenBody<'a> {
    pub(crate) fn new(bytes: &'a [u8], is_whole: bool, lease: &'a ByteLease) -> Self {
        Self { bytes, is_whole, lease }
    }

    /// The right to so many bytes of memory, for work on the body: they are charged to `limits.buffered_bytes` until the permit is
    /// dropped. `None`: there is no room. Never waits.
    pub fn room(&self, bytes: u64) -> Option<BytesPermit> {
        self.lease.try_acquire(bytes)
    }
}

/// The upstream that a filter chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamChoice {
    /// The upstream of the route.
    Route,
    /// Another upstream among those of the listener ([`Routes::upstreams`](crate::routes::Routes)); an unknown name gives a 503.
    Upstream {
        /// The name of the upstream.
        name: Arc<str>,
        /// The Host of the request there. `None`: as for the upstream of the route.
        host: Option<Box<[u8]>>,
    },
    /// One endpoint of an upstream, as for [`Self::Upstream`]. No other one is tried, whatever its health.
    Endpoint {
        /// The name of the upstream.
        name: Arc<str>,
        /// As above.
        host: Option<Box<[u8]>>,
        /// Its position among the endpoints of the settings of the upstream.
        number: usize,
    },
}

/// A change of the request body. It applies to the bytes that the filter has seen before its choice, and each choice begins with the body
/// as it came. All new bytes together are at most [`ADDED_BYTES_MAX`], charged to `limits.buffered_bytes`.
///
/// A change that breaks a rule of its variant refuses the request with a 500 `filter_failed`: no origin has seen it. Without memory for
/// the new bytes the response is a 503 `body_no_room`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BodyChange {
    /// It goes on as it came.
    #[default]
    Keep,
    /// Ranges of it are replaced. They stand in their order, do not overlap, and end within the buffered part. The rest of the body
    /// follows unchanged, buffered or not.
    Splice(Vec<Splice>),
    /// All of it is replaced. The filter must have seen the whole body.
    Replace(Bytes),
}

/// A range of a body, and the bytes in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// Positions in the body as it came. An empty range inserts.
    pub range: Range<usize>,
    /// In its place; empty removes it.
    pub replacement: Bytes,
}

/// New bytes of one body. Default 64 MiB: a translation between two forms may let a body grow, and `limits.buffered_bytes`
/// bounds all of them together. The memory is the filter's own until it is charged.
pub const ADDED_BYTES_MAX: usize = 64 << 20;
