//! The frames of a server on a tracking lane (Redis `tracking.c`).

use weir_resp::encode;

use crate::pubsub::frame::{bulk, line};

/// The command that turns a connection into a tracking lane.
pub fn request() -> Vec<u8> {
    let mut out = Vec::new();
    encode::command(&mut out, [&b"CLIENT"[..], b"TRACKING", b"ON", b"BCAST"]);
    out
}

/// A complete frame, by kind.
#[derive(Debug, PartialEq, Eq)]
pub enum TrackingFrame<'a> {
    /// These keys have changed.
    Changed(Vec<&'a [u8]>),
    /// All have: FLUSHALL, FLUSHDB.
    AllChanged,
    /// The reply to a request.
    Reply,
    /// It is refused.
    Error,
    /// Out of band, and of no interest; or not understood.
    Notice,
}

/// Tells what `frame` is.
pub fn parse_frame(frame: &[u8]) -> TrackingFrame<'_> {
    match frame.first() {
        Some(b'>') => {}
        Some(b'-' | b'!') => return TrackingFrame::Error,
        _ => return TrackingFrame::Reply,
    }
    let Some((b"invalidate", rest)) = line(frame).and_then(|(_, rest)| bulk(rest)) else {
        return TrackingFrame::Notice;
    };
    // An unknown frame may be anything.
    keys(rest).map_or(TrackingFrame::AllChanged, TrackingFrame::Changed)
}

/// An array of bulk strings.
fn keys(input: &[u8]) -> Option<Vec<&[u8]>> {
    let (head, mut rest) = line(input)?;
    let count: usize = std::str::from_utf8(head.strip_prefix(b"*")?).ok()?.parse().ok()?;
    let mut keys = Vec::new();
    for _ in 0..count {
        let (key, behind) = bulk(rest)?;
        keys.push(key);
        rest = behind;
    }
    Some(keys)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn frame_kinds_are_distinguished() {
        let two = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$4\r\nb\r\nc\r\n";
        assert_eq!(parse_frame(two), TrackingFrame::Changed(vec![b"a", b"b\r\nc"]));
        assert_eq!(parse_frame(b">2\r\n$10\r\ninvalidate\r\n_\r\n"), TrackingFrame::AllChanged);
        assert_eq!(parse_frame(b">2\r\n$10\r\ninvalidate\r\n$-1\r\n"), TrackingFrame::AllChanged);
        assert_eq!(parse_frame(b">2\r\n$21\r\ntracking-redir-broken\r\n:1\r\n"), TrackingFrame::Notice);
        assert_eq!(parse_frame(b"+OK\r\n"), TrackingFrame::Reply);
        assert_eq!(parse_frame(b"-ERR no\r\n"), TrackingFrame::Error);
        for end in 0..two.len() {
            // Nothing that is cut off makes it panic, and nothing of it is lost in silence.
            assert_ne!(parse_frame(&two[..end]), TrackingFrame::Changed(vec![b"a"]));
        }
    }
}
