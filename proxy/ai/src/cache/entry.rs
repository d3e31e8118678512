//! A stored response.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use weir_base::{Permit, Time};
use weir_http::filter::{HandlerResponse, WholeResponse};
use weir_http_codec::{Fields, Known};

use super::replay::{PIECE_BYTES, Replay};

/// Memory of an entry besides its texts: its key, its places in map and order, its object. Generous, so that the number of entries is
/// bounded, too.
pub(super) const OVERHEAD_BYTES: u64 = 512;

/// The provider of a response, as the usage log names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The name of the upstream.
    pub(crate) provider: Arc<str>,
    /// The name of the model there.
    pub(crate) model: Box<str>,
}

/// A stored response with the status 200. It keeps only one field of the head, the media type. The other fields describe the first
/// exchange or the account at the provider.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) content_type: Box<[u8]>,
    /// As the provider has sent it, with the chunk of usage that the gateway has requested.
    pub(super) body: Bytes,
    pub(super) is_stream: bool,
    pub(crate) source: Source,
    /// Tokens that the provider has reported.
    pub(crate) tokens: u64,
    pub(super) stored: Time,
    /// Its memory.
    pub(super) _memory: Permit,
}

impl Entry {
    /// The time since it was stored.
    pub(crate) fn age(&self, now: Time) -> Duration {
        now.since(self.stored)
    }

    /// It is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// All of its body.
    pub(crate) fn body(&self) -> Bytes {
        self.body.clone()
    }

    /// The response for a client, with `replay` as its body. A short object is sent whole. Anything else is sent piece by piece, at the pace
    /// of the client.
    pub(crate) fn response(&self, replay: Replay, now: Time) -> HandlerResponse {
        let mut fields = Fields::new();
        fields.push(b"content-type", &self.content_type);
        // RFC 9111 section 5.1.
        fields.set(Known::Age, self.age(now).as_secs().to_string().as_bytes());
        if !self.is_stream && self.body.len() <= PIECE_BYTES {
            return HandlerResponse::Whole(WholeResponse { status: 200, fields, body: self.body.clone() });
        }
        HandlerResponse::Stream { status: 200, fields, body_stream: Box::new(replay) }
    }
}
