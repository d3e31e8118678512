//! Bodies of requests and responses that the admin API shows, if an operator wants so. Heads are never kept.

use std::{rc::Rc, sync::Arc};

use weir_base::Secret;

use super::{RecentRequests, redact::redacted};

/// A body as far as it is kept, without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentBody {
    /// Its beginning.
    pub text: Box<[u8]>,
    /// Bytes of the whole body, as far as it came.
    pub length: u64,
}

/// The bodies of an exchange: that of the request as the client has sent it, and that of the response as the client has got it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentBodies {
    /// That of the client.
    pub request: RecentBody,
    /// That of the provider, or from the cache.
    pub response: RecentBody,
}

impl RecentBodies {
    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.request.text.len() + self.response.text.len()
    }
}

/// The right to memory for bodies. Dropped, it is given back.
pub(super) struct BodyRoom {
    pub(super) recent: Rc<RecentRequests>,
    pub(super) bytes: usize,
}

impl Drop for BodyRoom {
    fn drop(&mut self) {
        self.recent.give_back(self.bytes);
    }
}

/// The bodies of an exchange that is under way.
pub(crate) struct BodyCapture {
    bytes_max: usize,
    request: Part,
    response: Part,
    /// The key of the client.
    client_key: Secret,
    _room: BodyRoom,
}

#[derive(Default)]
struct Part {
    text: Vec<u8>,
    length: u64,
}

impl Part {
    fn push(&mut self, piece: &[u8], bytes_max: usize) {
        self.length += piece.len() as u64;
        let room = bytes_max.saturating_sub(self.text.len());
        let piece = &piece[..piece.len().min(room)];
        if self.text.capacity() - self.text.len() < piece.len() {
            // It doubles, and never beyond its room.
            self.text.reserve_exact(self.text.len().max(piece.len()).min(room));
        }
        self.text.extend_from_slice(piece);
    }

    fn finish(&self, secrets: &[&[u8]], bytes_max: usize) -> RecentBody {
        let mut text = redacted(&self.text, secrets, self.length > self.text.len() as u64);
        // A mark may be longer than its secret.
        text.truncate(bytes_max);
        RecentBody { text: text.into(), length: self.length }
    }
}

impl BodyCapture {
    /// For an exchange, with its request: up to `bytes_max` of each body. `None`: there is no room in the memory for them.
    pub(crate) fn begin(
        recent: &Rc<RecentRequests>,
        bytes_max: usize,
        request: &[u8],
        client_key: &[u8],
    ) -> Option<Self> {
        let room = recent.room(bytes_max.saturating_mul(2))?;
        let (mut own, client_key) = (Part::default(), Secret::new(client_key.to_vec()));
        own.push(request, bytes_max);
        Some(Self { bytes_max, request: own, response: Part::default(), client_key, _room: room })
    }

    /// Another attempt has a response: that before it has not reached the client.
    pub(crate) fn begin_response(&mut self) {
        self.response = Part::default();
    }

    /// Takes a piece of the response.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.response.push(piece, self.bytes_max);
    }

    /// The bodies without secrets. `provider_keys`: those of all providers that may have been involved.
    pub(crate) fn finish(self, provider_keys: &[&[u8]]) -> Arc<RecentBodies> {
        let mut secrets = vec![self.client_key.expose()];
        secrets.extend_from_slice(provider_keys);
        let part = |part: &Part| part.finish(&secrets, self.bytes_max);
        Arc::new(RecentBodies { request: part(&self.request), response: part(&self.response) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_cut_and_lose_the_keys() {
        let recent = Rc::new(RecentRequests::new(10, 1_000));
        let mut capture =
            BodyCapture::begin(&recent, 40, b"use client-key-1234 and more than that", b"client-key-1234")
                .expect("room");
        capture.push(b"of another attempt");
        capture.begin_response();
        capture.push(b"a password is provider-key, ");
        capture.push(b"and the rest does not fit");
        let bodies = capture.finish(&[b"provider-key"]);
        assert_eq!(&*bodies.request.text, b"use [redacted] and more than that");
        assert_eq!(&*bodies.response.text, b"a password is [redacted], and the rest");
        assert_eq!((bodies.request.length, bodies.response.length), (38, 53));
    }

    #[test]
    fn a_mark_makes_no_body_longer_than_it_may_be() {
        let recent = Rc::new(RecentRequests::new(10, 1_000));
        let request = br#"{"password":"a"}"#;
        let bodies = BodyCapture::begin(&recent, 16, request, b"").expect("room").finish(&[]);
        assert_eq!(&*bodies.request.text, br#"{"password":"[re"#);
    }
}
