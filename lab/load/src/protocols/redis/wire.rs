//! Whole replies out of the chunks of one connection.

use weir_resp::{ReplyFramer, limits::ReplyLimits};

use super::reply::classify;
use crate::reply::Reply;
use crate::scenario::{CommandKind, Scenario};
use crate::wire::{GoAway, OnReply, ReplyTo, StreamError, Wire};

/// Bytes of a reply besides its values: length lines, and the line of an error. More is cut off, which no check accepts.
const OVERHEAD_BYTES: usize = 1_024;
/// Bytes around one value of an array.
const ELEMENT_BYTES: usize = 32;

/// Collects replies. One that lies whole in a chunk is never copied.
pub(super) struct Replies {
    framer: ReplyFramer,
    partial: Vec<u8>,
    bytes_max: usize,
}

impl Replies {
    /// Keeps at most `bytes_max` bytes of a reply.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { framer: ReplyFramer::new(ReplyLimits::default()), partial: Vec::new(), bytes_max }
    }

    /// The longest reply that the commands of `scenario` can have.
    pub(super) fn bytes_max(scenario: &Scenario) -> usize {
        let values = |kind: &CommandKind| if let CommandKind::Mget { keys } = kind { *keys as usize } else { 1 };
        let values = scenario.commands.iter().map(|command| values(&command.kind)).max().unwrap_or(1);
        OVERHEAD_BYTES + values * (scenario.payload.bytes_max() + ELEMENT_BYTES)
    }

    /// Calls `each` with every reply that `chunk` completes.
    ///
    /// # Errors
    /// Bytes that are no reply, or `each` refused one.
    pub(super) fn each(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        while !chunk.is_empty() {
            let scan = self.framer.advance(chunk).map_err(|_| StreamError)?;
            let (bytes, rest) = chunk.split_at(scan.taken);
            chunk = rest;
            if scan.end.is_some() && self.partial.is_empty() {
                each(bytes)?;
                continue;
            }
            let room = self.bytes_max - self.partial.len();
            self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if scan.end.is_some() {
                each(&self.partial)?;
                self.partial.clear();
            }
        }
        Ok(())
    }
}

impl Wire for Replies {
    fn take(&mut self, chunk: &[u8], _out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        self.each(chunk, |reply| each(ReplyTo::Oldest, Reply { kind: classify(reply), body: Some(reply) }))?;
        Ok(GoAway::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(replies: &mut Replies, chunk: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let each = |reply: &[u8]| {
            found.push(String::from_utf8_lossy(reply).into_owned());
            Ok(())
        };
        replies.each(chunk, each).expect("replies");
        found
    }

    #[test]
    fn replies_are_the_same_however_they_are_cut() {
        let wire = b"+OK\r\n$5\r\nhello\r\n*2\r\n$1\r\na\r\n$-1\r\n-ERR x\r\n";
        let whole = collect(&mut Replies::new(64), wire);
        assert_eq!(whole, ["+OK\r\n", "$5\r\nhello\r\n", "*2\r\n$1\r\na\r\n$-1\r\n", "-ERR x\r\n"]);
        for at in 0..wire.len() {
            let mut replies = Replies::new(64);
            let mut found = collect(&mut replies, &wire[..at]);
            found.extend(collect(&mut replies, &wire[at..]));
            assert_eq!(found, whole, "cut at {at}");
        }
    }

    #[test]
    fn a_reply_beyond_the_cap_is_cut_and_rubbish_is_refused() {
        let mut replies = Replies::new(8);
        assert!(collect(&mut replies, b"$20\r\n0123456789").is_empty());
        assert_eq!(collect(&mut replies, b"0123456789\r\n+OK\r\n"), ["$20\r\n012", "+OK\r\n"]);
        assert_eq!(replies.each(b"HTTP/1.1 400\r\n", |_| Ok(())), Err(StreamError));
    }
}
