//! The frames of a server on a subscription lane (Redis `pubsub.c`): messages, confirmations, and replies.

use weir_resp::{Version, encode};

/// The three kinds of subscription. They do not touch each other: the same name may stand in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SUBSCRIBE.
    Channel,
    /// PSUBSCRIBE.
    Pattern,
    /// SSUBSCRIBE: bound to a slot of a cluster.
    Shard,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];

    /// The command that begins it, which is also the first word of its confirmation.
    pub(crate) fn subscribe(self) -> &'static str {
        ["subscribe", "psubscribe", "ssubscribe"][self as usize]
    }

    /// The command that ends it.
    pub(crate) fn unsubscribe(self) -> &'static str {
        ["unsubscribe", "punsubscribe", "sunsubscribe"][self as usize]
    }

    /// The kind of a command, by its name: the kind, and whether it begins a subscription.
    pub(crate) fn of(command: &str) -> Option<(Kind, bool)> {
        let named = |kind: &Kind| command == kind.subscribe() || command == kind.unsubscribe();
        let kind = Kind::ALL.into_iter().find(named)?;
        Some((kind, command == kind.subscribe()))
    }
}

/// A complete frame, by kind.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerFrame<'a> {
    /// For those who subscribed to this channel or pattern.
    Message {
        /// Its kind.
        kind: Kind,
        /// The channel or pattern.
        name: &'a [u8],
    },
    /// The subscription to this channel or pattern has begun.
    Subscribed {
        /// Its kind.
        kind: Kind,
        /// The channel or pattern.
        name: &'a [u8],
    },
    /// The subscription to this channel or pattern is over.
    Unsubscribed {
        /// Its kind.
        kind: Kind,
        /// The channel or pattern.
        name: &'a [u8],
    },
    /// A command was refused.
    Error,
    /// Any other reply.
    Reply,
    /// Out of band, and not about subscriptions.
    Notice,
}

/// Kind of `frame`. The beginning of a message or a confirmation is enough, up to the end of the name.
pub fn parse_frame(frame: &[u8]) -> ServerFrame<'_> {
    let other = match frame.first() {
        Some(b'>') => ServerFrame::Notice,
        Some(b'*') => ServerFrame::Reply,
        Some(b'-' | b'!') => return ServerFrame::Error,
        _ => return ServerFrame::Reply,
    };
    let Some((word, rest)) = line(frame).and_then(|(_, rest)| bulk(rest)) else { return other };
    let Some((name, _)) = bulk(rest) else { return other };
    let kind = match word.first() {
        Some(b'p') => Kind::Pattern,
        // `subscribe` begins as `ssubscribe` and `smessage` do.
        Some(b's') if word == b"smessage" || word == b"ssubscribe" || word == b"sunsubscribe" => Kind::Shard,
        _ => Kind::Channel,
    };
    match word {
        b"message" | b"pmessage" | b"smessage" => ServerFrame::Message { kind, name },
        b"subscribe" | b"psubscribe" | b"ssubscribe" => ServerFrame::Subscribed { kind, name },
        b"unsubscribe" | b"punsubscribe" | b"sunsubscribe" => ServerFrame::Unsubscribed { kind, name },
        _ => other,
    }
}

/// The first line of `input`, without its end, and what follows.
pub(crate) fn line(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = input.iter().position(|&byte| byte == b'\n')?;
    Some((input[..end].strip_suffix(b"\r")?, &input[end + 1..]))
}

/// The bulk string at the front of `input`, and what follows. A null counts as an empty one.
pub(crate) fn bulk(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = line(input)?;
    match head {
        b"$-1" | b"_" => Some((b"", rest)),
        [b'$', digits @ ..] => {
            let length: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
            Some((rest.get(..length)?, rest.get(length.checked_add(2)?..)?))
        }
        _ => None,
    }
}

/// Appends a message or another push as a client of `version` has it: the versions differ in the first byte.
#[inline]
pub(crate) fn write_push(out: &mut Vec<u8>, frame: &[u8], version: Version) {
    out.reserve(frame.len());
    out.push(if version == Version::Resp3 { b'>' } else { b'*' });
    out.extend_from_slice(frame.get(1..).unwrap_or_default());
}

/// Appends a confirmation. `name`: `None` for an UNSUBSCRIBE of nothing.
pub(crate) fn write_confirmation(out: &mut Vec<u8>, word: &str, name: Option<&[u8]>, count: u64, version: Version) {
    encode::push(out, 3, version);
    encode::bulk(out, word.as_bytes());
    match name {
        Some(name) => encode::bulk(out, name),
        None => encode::null_bulk(out, version),
    }
    encode::integer(out, count as i64);
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn frame_kinds_are_distinguished_in_both_versions() {
        for mark in ["*", ">"] {
            let frame = |text: &str| format!("{mark}3\r\n{text}").into_bytes();
            let is =
                |text: &str, wanted: ServerFrame<'_>| assert_eq!(parse_frame(&frame(text)), wanted, "{mark} {text:?}");
            let name = b"a";
            is("$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n", ServerFrame::Message { kind: Kind::Channel, name });
            is(
                "$8\r\npmessage\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nx\r\n",
                ServerFrame::Message { kind: Kind::Pattern, name },
            );
            is("$8\r\nsmessage\r\n$1\r\na\r\n$1\r\nx\r\n", ServerFrame::Message { kind: Kind::Shard, name });
            is("$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", ServerFrame::Subscribed { kind: Kind::Channel, name });
            is("$10\r\npsubscribe\r\n$1\r\na\r\n:1\r\n", ServerFrame::Subscribed { kind: Kind::Pattern, name });
            is("$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n", ServerFrame::Subscribed { kind: Kind::Shard, name });
            is("$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n", ServerFrame::Unsubscribed { kind: Kind::Channel, name });
            is("$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n", ServerFrame::Unsubscribed { kind: Kind::Shard, name });
            is("$12\r\npunsubscribe\r\n$-1\r\n:0\r\n", ServerFrame::Unsubscribed { kind: Kind::Pattern, name: b"" });
        }
        assert_eq!(parse_frame(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"), ServerFrame::Reply);
        assert_eq!(parse_frame(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"), ServerFrame::Notice);
        assert_eq!(parse_frame(b"+PONG\r\n"), ServerFrame::Reply);
        assert_eq!(parse_frame(b":1\r\n"), ServerFrame::Reply);
        assert_eq!(parse_frame(b"-NOPERM no\r\n"), ServerFrame::Error);
    }

    #[test]
    fn names_may_hold_any_bytes_and_beginnings_are_enough() {
        let frame = b">3\r\n$7\r\nmessage\r\n$4\r\na\r\nb\r\n$100000\r\nthe beginning";
        assert_eq!(parse_frame(frame), ServerFrame::Message { kind: Kind::Channel, name: b"a\r\nb" });
        for end in 0..frame.len() {
            // Nothing that is cut off makes it panic.
            parse_frame(&frame[..end]);
        }
    }

    #[test]
    fn commands_are_known_by_their_names() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.subscribe()), Some((kind, true)));
            assert_eq!(Kind::of(kind.unsubscribe()), Some((kind, false)));
        }
        assert_eq!(Kind::of("publish"), None);
    }
}
