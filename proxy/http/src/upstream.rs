//! Upstreams of HTTP and their lanes.

use weir_upstream::{ExclusiveLane, ExclusiveUpstream};

use crate::http2::origin::Http2Multiplexer;

/// An upstream of HTTP on one worker.
pub type HttpUpstream = ExclusiveUpstream<Http2Multiplexer>;
/// A lane of an upstream of HTTP.
pub(crate) type HttpLane = ExclusiveLane<Http2Multiplexer>;
