//! Where one RESP message ends and the next begins: all that pairing replies with clients asks for.
//!
//! Nothing is decoded. A splitter keeps its place inside a message, so bytes that came earlier are not read again.

use anyhow::{Context, Result, bail};

/// Longest bulk, and most elements of one array, that are believed: what a Redis server takes by default
/// (`proto-max-bulk-len`). More means that the stream is out of step. Nothing is allocated from it.
const COUNT_MAX: usize = 512 << 20;
/// Longest line. Only a length, a status or an error stands on one.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The sender of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    /// Arrays of bulks, as every client library sends them. Inline commands are refused, and so are empty arrays, to
    /// which the server gives no reply.
    Client,
    /// Any reply of RESP2, and those of RESP3 that reply to a request.
    Server,
}

/// The place inside the message that is not whole yet.
#[derive(Debug)]
pub(super) struct Splitter {
    speaker: Speaker,
    /// Bytes of the message that are accounted for; past the end of what came while a bulk is incomplete.
    at: usize,
    /// Elements still to come. One at the start: the message itself.
    elements: usize,
}

impl Splitter {
    /// At the start of a message.
    pub(super) fn new(speaker: Speaker) -> Self {
        Self { speaker, at: 0, elements: 1 }
    }

    /// Length in bytes of the message at the start of `bytes`, or `None` if it is not whole yet: the next call then
    /// gets the same bytes and more. Fails if the bytes are no message of this speaker.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        while self.elements > 0 {
            let Some(rest) = bytes.get(self.at..) else { return Ok(None) };
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                if rest.len() > LINE_BYTES_MAX {
                    bail!("a line without end");
                }
                return Ok(None);
            };
            let is_first = self.at == 0;
            let element = Element::read(&rest[..end])?;
            if self.speaker == Speaker::Client {
                element.check_request(is_first)?;
            }
            self.at += end + 1 + element.payload;
            self.elements = self.elements - 1 + element.children;
        }
        if self.at > bytes.len() {
            return Ok(None);
        }
        let length = self.at;
        *self = Self::new(self.speaker);
        Ok(Some(length))
    }
}

/// One element, by its line: how many bytes and elements follow it.
struct Element {
    kind: u8,
    /// Bytes behind the line that belong to it.
    payload: usize,
    /// Elements that follow and belong to it.
    children: usize,
}

impl Element {
    /// From a line without its LF.
    fn read(line: &[u8]) -> Result<Self> {
        let (kind, count) = match line {
            [kind, count @ .., b'\r'] => (*kind, count),
            _ => bail!("a line that does not end with CR LF, or an empty one"),
        };
        let (payload, children) = match kind {
            // The null bulk has neither bytes nor a CR LF behind them.
            b'$' | b'=' | b'!' => (number(count)?.map_or(0, |length| length + 2), 0),
            b'*' | b'~' => (0, number(count)?.unwrap_or(0)),
            b'%' => (0, number(count)?.unwrap_or(0) * 2),
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => (0, 0),
            // A push is no reply to any request.
            _ => bail!("an element that starts with {:?}", char::from(kind)),
        };
        Ok(Self { kind, payload, children })
    }

    fn check_request(&self, is_first: bool) -> Result<()> {
        match (is_first, self.kind) {
            (true, b'*') if self.children > 0 => Ok(()),
            (false, b'$') if self.payload > 0 => Ok(()),
            _ => bail!("a request that is no array of bulks"),
        }
    }
}

/// A length or a count; `None` for the -1 of a null.
fn number(digits: &[u8]) -> Result<Option<usize>> {
    if digits == b"-1" {
        return Ok(None);
    }
    // The bound also keeps the next step far from an overflow.
    let step = |number: usize, digit: &u8| {
        (digit.is_ascii_digit() && number <= COUNT_MAX).then(|| number * 10 + usize::from(digit - b'0'))
    };
    let number = digits.iter().try_fold(0, step).filter(|number| *number <= COUNT_MAX && !digits.is_empty());
    number.map(Some).with_context(|| format!("{:?} is no length", String::from_utf8_lossy(digits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: &[&str] = &[
        "*2\r\n$3\r\nGET\r\n$5\r\n*1\r\n$\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n",
        "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$4\r\nsave\r\n",
    ];
    const REPLIES: &[&str] = &[
        "$3\r\n\n\r\n\r\n",
        "$0\r\n\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "+OK\r\n",
        "-ERR unknown command\r\n",
        ":1000\r\n",
        "*2\r\n$4\r\nsave\r\n$0\r\n\r\n",
        "*2\r\n*2\r\n:1\r\n$-1\r\n+x\r\n",
        "%1\r\n$1\r\nk\r\n*1\r\n:1\r\n",
    ];

    /// The messages that come out when `bytes` arrive in pieces of `piece` bytes.
    fn split(speaker: Speaker, bytes: &[u8], piece: usize) -> Vec<String> {
        let mut splitter = Splitter::new(speaker);
        let (mut start, mut messages) = (0, Vec::new());
        for end in (0..bytes.len()).step_by(piece).skip(1).chain([bytes.len()]) {
            while let Some(length) = splitter.next(&bytes[start..end]).unwrap() {
                messages.push(String::from_utf8(bytes[start..start + length].to_vec()).unwrap());
                start += length;
            }
        }
        assert_eq!(start, bytes.len(), "every byte belongs to a message");
        messages
    }

    #[test]
    fn a_pipeline_is_split_the_same_however_it_is_cut() {
        for (speaker, messages) in [(Speaker::Client, REQUESTS), (Speaker::Server, REPLIES)] {
            let bytes = messages.concat();
            for piece in 1..=bytes.len() {
                assert_eq!(split(speaker, bytes.as_bytes(), piece), messages, "pieces of {piece} bytes");
            }
        }
    }

    #[test]
    fn a_large_value_is_whole_with_its_last_byte() {
        let reply = format!("${}\r\n{}\r\n", 64 << 10, "x".repeat(64 << 10));
        let mut splitter = Splitter::new(Speaker::Server);
        assert_eq!(splitter.next(&reply.as_bytes()[..reply.len() - 1]).unwrap(), None);
        assert_eq!(splitter.next(reply.as_bytes()).unwrap(), Some(reply.len()));
    }

    #[test]
    fn commands_that_would_break_the_pairing_are_refused() {
        for request in ["PING\r\n", "*0\r\n", "*-1\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\n", "\r\n"] {
            assert!(Splitter::new(Speaker::Client).next(request.as_bytes()).is_err(), "{request:?}");
        }
        for reply in [">1\r\n+x\r\n", "$99999999999\r\n", "$+3\r\n", "$\r\n", "OK\r\n"] {
            assert!(Splitter::new(Speaker::Server).next(reply.as_bytes()).is_err(), "{reply:?}");
        }
        let endless = vec![b'+'; LINE_BYTES_MAX + 1];
        assert!(Splitter::new(Speaker::Server).next(&endless).is_err());
    }
}
