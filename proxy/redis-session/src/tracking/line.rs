//! What a server says on a tracking lane (Redis `tracking.c`).

use weir_resp::encode;

use crate::pubsub::frame::{bulk, line};

/// What makes a connection a tracking lane.
pub fn request() -> Vec<u8> {
    let mut out = Vec::new();
    encode::command(&mut out, [&b"CLIENT"[..], b"TRACKING", b"ON", b"BCAST"]);
    out
}

/// What a whole frame is.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// These keys have changed.
    Changed(Vec<&'a [u8]>),
    /// All have: FLUSHALL, FLUSHDB.
    AllChanged,
    /// The answer to what was asked.
    Reply,
    /// It is refused.
    Error,
    /// Out of band, and of no interest; or not understood.
    Notice,
}

/// Tells what `frame` is.
pub fn hear(frame: &[u8]) -> Heard<'_> {
    match frame.first() {
        Some(b'>') => {}
        Some(b'-' | b'!') => return Heard::Error,
        _ => return Heard::Reply,
    }
    let Some((b"invalidate", rest)) = line(frame).and_then(|(_, rest)| bulk(rest)) else { return Heard::Notice };
    // What is not understood may be anything.
    keys(rest).map_or(Heard::AllChanged, Heard::Changed)
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
    fn frames_are_told_apart() {
        let two = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$4\r\nb\r\nc\r\n";
        assert_eq!(hear(two), Heard::Changed(vec![b"a", b"b\r\nc"]));
        assert_eq!(hear(b">2\r\n$10\r\ninvalidate\r\n_\r\n"), Heard::AllChanged);
        assert_eq!(hear(b">2\r\n$10\r\ninvalidate\r\n$-1\r\n"), Heard::AllChanged);
        assert_eq!(hear(b">2\r\n$21\r\ntracking-redir-broken\r\n:1\r\n"), Heard::Notice);
        assert_eq!(hear(b"+OK\r\n"), Heard::Reply);
        assert_eq!(hear(b"-ERR no\r\n"), Heard::Error);
        for end in 0..two.len() {
            // Nothing that is cut off makes it panic, and nothing of it is lost in silence.
            assert_ne!(hear(&two[..end]), Heard::Changed(vec![b"a"]));
        }
    }
}
