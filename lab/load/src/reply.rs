//! A reply and its kind: a value, the overload reply of a gateway, or an error.

/// A whole reply of any protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The kind.
    pub kind: ReplyKind<'a>,
    /// The bytes that are checked, without the framing of the protocol; `None`: the exchange ended without a reply.
    pub body: Option<&'a [u8]>,
}

impl<'a> Reply<'a> {
    /// Anything but an error.
    #[must_use]
    pub const fn value(body: &'a [u8]) -> Self {
        Self { kind: ReplyKind::Value, body: Some(body) }
    }

    /// One more part of a reply that says something by itself arrived; the reply goes on.
    #[must_use]
    pub const fn event() -> Self {
        Self { kind: ReplyKind::Event, body: None }
    }

    /// The request was provably not worked on; the reason is a stable label.
    #[must_use]
    pub const fn refused(reason: &'static str) -> Self {
        Self { kind: ReplyKind::Shed(reason), body: None }
    }

    /// The exchange was ended without a reply.
    #[must_use]
    pub const fn lost() -> Self {
        Self { kind: ReplyKind::Lost, body: None }
    }
}

/// A reply by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind<'a> {
    /// Anything but an error; whether it is the right value is for [`Requests::check`](crate::Requests::check).
    Value,
    /// Refused before any work was done; the reason as a stable label.
    Shed(&'static str),
    /// Any other error reply: its text, code included.
    Error(&'a [u8]),
    /// None: the exchange was broken off.
    Lost,
    /// A part of one that is streamed. Nothing ends with it.
    Event,
}
