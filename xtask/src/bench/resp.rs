//! A blocking Redis client of a few lines. It judges gateways, so it shares no code with them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Longest bulk reply that is taken. The load asks for far less; more means that the stream is out of step.
const BULK_BYTES_MAX: usize = 1 << 20;
/// Longest line.
const LINE_BYTES_MAX: usize = 64 << 10;

/// One reply. Aggregates are not asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+text`
    Simple(String),
    /// `-text`
    Error(String),
    /// `:number`
    Integer(i64),
    /// `$length`, or `None` for the null bulk.
    Bulk(Option<Vec<u8>>),
}

/// Why no reply came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// The stream ended, or was reset, before the first byte of the reply.
    ClosedBefore(ErrorKind),
    /// It ended, or was reset, inside the reply.
    ClosedInside(ErrorKind),
    /// Nothing came in time.
    TimedOut,
    /// What came is no reply.
    Malformed(String),
}

impl std::fmt::Display for NoReply {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ClosedBefore(kind) => write!(out, "closed before the reply ({kind})"),
            Self::ClosedInside(kind) => write!(out, "closed inside the reply ({kind})"),
            Self::TimedOut => out.write_str("no reply in time"),
            Self::Malformed(text) => write!(out, "malformed reply: {text}"),
        }
    }
}

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Connection {
    /// Connects to a port of loopback; every reply then has to come within `reply_limit`.
    pub(crate) fn open(port: u16, reply_limit: Duration) -> std::io::Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, reply_limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(reply_limit))?;
        stream.set_write_timeout(Some(reply_limit))?;
        Ok(Self { stream, buffer: Vec::new(), at: 0 })
    }

    /// Sends a command.
    pub(crate) fn send(&mut self, words: &[&[u8]]) -> std::io::Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&request)
    }

    /// Reads one reply.
    pub(crate) fn reply(&mut self) -> Result<Reply, NoReply> {
        let line = self.line()?;
        let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default()).into_owned();
        match line.first() {
            Some(b'+') => Ok(Reply::Simple(text)),
            Some(b'-') => Ok(Reply::Error(text)),
            Some(b':') => text.parse().map(Reply::Integer).map_err(|_| NoReply::Malformed(format!(":{text}"))),
            Some(b'$') if text == "-1" => Ok(Reply::Bulk(None)),
            Some(b'$') => match text.parse::<usize>() {
                Ok(length) if length <= BULK_BYTES_MAX => self.bulk(length).map(|bytes| Reply::Bulk(Some(bytes))),
                _ => Err(NoReply::Malformed(format!("${text}"))),
            },
            _ => Err(NoReply::Malformed(String::from_utf8_lossy(&line).into_owned())),
        }
    }

    /// Sends a command and reads its reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply> {
        self.send(words)?;
        self.reply().map_err(|failure| anyhow::anyhow!("{failure}"))
    }

    /// A field of `INFO`, as a number.
    pub(crate) fn info(&mut self, section: &str, fields: &[&str]) -> Result<Vec<u64>> {
        let Reply::Bulk(Some(bytes)) = self.ask(&[b"INFO", section.as_bytes()])? else {
            bail!("INFO {section} gave no text");
        };
        let text = String::from_utf8(bytes)?;
        let find = |field: &&str| {
            let prefix = format!("{field}:");
            let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
            value.and_then(|value| value.trim().parse().ok()).with_context(|| format!("INFO {section} has no {field}"))
        };
        fields.iter().map(find).collect()
    }

    fn line(&mut self) -> Result<Vec<u8>, NoReply> {
        let mut seen = self.at;
        loop {
            if let Some(end) = self.buffer[seen..].iter().position(|byte| *byte == b'\n') {
                let line = &self.buffer[self.at..seen + end];
                let Some(line) = line.strip_suffix(b"\r") else {
                    return Err(NoReply::Malformed("a line that ends with LF only".into()));
                };
                let line = line.to_vec();
                self.at = seen + end + 1;
                return Ok(line);
            }
            if self.buffer.len() - self.at > LINE_BYTES_MAX {
                return Err(NoReply::Malformed("a line without end".into()));
            }
            // Positions move when the buffer is compacted.
            let length = self.buffer.len() - self.at;
            self.fill(length == 0)?;
            seen = self.at + length;
        }
    }

    fn bulk(&mut self, length: usize) -> Result<Vec<u8>, NoReply> {
        while self.buffer.len() - self.at < length + 2 {
            self.fill(false)?;
        }
        let end = self.at + length;
        if &self.buffer[end..end + 2] != b"\r\n" {
            return Err(NoReply::Malformed("a bulk without CR LF behind it".into()));
        }
        let bytes = self.buffer[self.at..end].to_vec();
        self.at = end + 2;
        Ok(bytes)
    }

    /// Reads more. `is_first`: no byte of this reply has come yet.
    fn fill(&mut self, is_first: bool) -> Result<(), NoReply> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let mut chunk = [0; 16 << 10];
        let closed = if is_first { NoReply::ClosedBefore } else { NoReply::ClosedInside };
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(closed(ErrorKind::UnexpectedEof)),
                Ok(length) => {
                    self.buffer.extend_from_slice(&chunk[..length]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(error.kind()) => return Err(NoReply::TimedOut),
                Err(error) => return Err(closed(error.kind())),
            }
        }
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    const LIMIT: Duration = Duration::from_secs(5);

    /// A connection to a peer that writes `bytes` in two parts and closes.
    fn talking(bytes: &'static [u8], split: usize) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            peer.write_all(&bytes[..split]).unwrap();
            thread::sleep(Duration::from_millis(5));
            peer.write_all(&bytes[split..]).unwrap();
        });
        Connection::open(port, LIMIT).unwrap()
    }

    #[test]
    fn replies_are_read_wherever_the_stream_is_cut() {
        let bytes = b"+OK\r\n$5\r\nab\r\nc\r\n$-1\r\n:-7\r\n-ERR no\r\n";
        for split in 0..bytes.len() {
            let mut connection = talking(bytes, split);
            assert_eq!(connection.reply(), Ok(Reply::Simple("OK".into())));
            assert_eq!(connection.reply(), Ok(Reply::Bulk(Some(b"ab\r\nc".to_vec()))));
            assert_eq!(connection.reply(), Ok(Reply::Bulk(None)));
            assert_eq!(connection.reply(), Ok(Reply::Integer(-7)));
            assert_eq!(connection.reply(), Ok(Reply::Error("ERR no".into())));
            assert_eq!(connection.reply(), Err(NoReply::ClosedBefore(ErrorKind::UnexpectedEof)));
        }
    }

    #[test]
    fn an_end_inside_a_reply_is_told_from_one_between_replies() {
        let mut connection = talking(b"+OK\r\n$5\r\nab", 7);
        assert_eq!(connection.reply(), Ok(Reply::Simple("OK".into())));
        assert_eq!(connection.reply(), Err(NoReply::ClosedInside(ErrorKind::UnexpectedEof)));
    }

    #[test]
    fn what_is_no_reply_is_refused_without_allocating_its_length() {
        assert!(matches!(talking(b"$99999999999\r\n", 3).reply(), Err(NoReply::Malformed(_))));
        assert!(matches!(talking(b"hello\r\n", 3).reply(), Err(NoReply::Malformed(_))));
        assert!(matches!(talking(b"$2\r\nabcd", 3).reply(), Err(NoReply::Malformed(_))));
    }
}
