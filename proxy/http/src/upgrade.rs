//! The upgrade that a request asks for.

use weir_http_codec::{BodyLength, Known, RequestHead, ResponseHead, Version, token};
use weir_websocket_codec::handshake;

use crate::input::Input;

/// The upgrade that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedUpgrade {
    /// Nothing that the gateway knows.
    None,
    /// A WebSocket, with this key.
    WebSocket(Box<[u8]>),
    /// A WebSocket, but not as RFC 6455 section 4.1 has it.
    Malformed,
}

impl RequestedUpgrade {
    /// The upgrade of a request of HTTP/1.1, from its original head.
    pub(crate) fn of(head: &RequestHead) -> Self {
        let is_websocket = |value| token::list(value).any(|name| name.eq_ignore_ascii_case(b"websocket"));
        let is_wanted = head.version() == Version::Http11
            && head.options().upgrade
            && head.fields.all(Known::Upgrade).any(is_websocket);
        if !is_wanted {
            return Self::None;
        }
        let only = |known| {
            let mut values = head.fields.all(known);
            values.next().filter(|_| values.next().is_none())
        };
        let key = only(Known::SecWebsocketKey).filter(|key| handshake::is_key(key));
        let is_version = only(Known::SecWebsocketVersion) == Some(handshake::VERSION);
        match key {
            Some(key) if is_version && head.method() == b"GET" && head.body() == BodyLength::Exact(0) => {
                Self::WebSocket(key.into())
            }
            _ => Self::Malformed,
        }
    }

    /// Requests the same upgrade from the origin.
    pub(crate) fn add_headers(&self, head: &mut RequestHead) {
        if let Self::WebSocket(_) = self {
            head.fields.push(b"Connection", b"Upgrade");
            head.fields.push(b"Upgrade", b"websocket");
        }
    }

    /// A 101 fulfils it: the origin has seen the key, and speaks WebSocket (RFC 6455 section 4.1).
    pub(crate) fn is_accepted_by(&self, head: &ResponseHead) -> bool {
        let Self::WebSocket(key) = self else { return false };
        let mut accepts = head.fields.all(Known::SecWebsocketAccept);
        let is_websocket = |value: &[u8]| value.eq_ignore_ascii_case(b"websocket");
        head.options().upgrade
            && head.fields.get(Known::Upgrade).is_some_and(is_websocket)
            && accepts.next() == Some(handshake::accept(key).as_bytes())
            && accepts.next().is_none()
    }
}

/// The origin has agreed.
pub(crate) struct AcceptedUpgrade {
    pub(crate) head: ResponseHead,
    /// Bytes behind its head.
    pub(crate) input: Input,
}
