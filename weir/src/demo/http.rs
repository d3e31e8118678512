//! An HTTP/1.1 connection of the demo: GET of a body that begins with a word which only this request named.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use super::traffic::{Connection, Reply, ReplyError};

/// Bytes of each body.
const BODY_BYTES: usize = 64;
/// Bytes of a body that is read, such as that of a refusal. Default 64 KiB: the gateway's are far shorter.
const BODY_BYTES_MAX: usize = 64 << 10;

/// See [`Connection`].
pub struct HttpConnection {
    socket: TcpStream,
    responses: BufReader<TcpStream>,
    /// It has carried a response: its end may then meet a request on its way.
    is_used: bool,
}

impl Connection for HttpConnection {
    fn over(socket: TcpStream) -> io::Result<Self> {
        Ok(Self { responses: BufReader::new(socket.try_clone()?), socket, is_used: false })
    }

    fn exchange(&mut self, key: &str, round: u64) -> Result<Reply, ReplyError> {
        // The server takes letters and digits.
        let word = format!("{key}x{round}");
        let request = format!("GET /{BODY_BYTES}/{word} HTTP/1.1\r\nHost: demo\r\n\r\n");
        let sent = self.socket.write_all(request.as_bytes());
        let mut status = String::new();
        let read = sent.and_then(|()| self.responses.read_line(&mut status));
        match read {
            Ok(count) if count > 0 => {}
            // As every client does with a connection that was idle (RFC 9110 section 9.2.2).
            Ok(_) if self.is_used => return Err(ReplyError::BetweenRequests),
            Err(error) if self.is_used && is_end(&error) => return Err(ReplyError::BetweenRequests),
            Ok(_) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Err(error) => return Err(error.into()),
        }
        let (is_last, body) = self.rest()?;
        self.is_used = true;
        let is_right =
            status.starts_with("HTTP/1.1 200 ") && body.len() == BODY_BYTES && body.starts_with(word.as_bytes());
        Ok(match (is_right, is_last) {
            (true, false) => Reply::Right,
            (true, true) => Reply::RightAndLast,
            (false, _) => Reply::Wrong(format!("{} {}", status.trim_end(), String::from_utf8_lossy(&body).trim_end())),
        })
    }
}

impl HttpConnection {
    /// The fields and the body: whether the connection ends behind it, and the body.
    fn rest(&mut self) -> io::Result<(bool, Vec<u8>)> {
        let (mut is_last, mut length) = (false, 0);
        loop {
            let mut line = String::new();
            if self.responses.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(':') {
                None if line.is_empty() => break,
                None => return Err(io::ErrorKind::InvalidData.into()),
                Some(("content-length", value)) => length = value.trim().parse().map_err(io::Error::other)?,
                Some(("connection", value)) => is_last = value.trim() == "close",
                Some(_) => {}
            }
        }
        if length > BODY_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; length];
        self.responses.read_exact(&mut body)?;
        Ok((is_last, body))
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}
