//! HTTP/1.1, and WebSocket behind it.

use std::io::{Error, ErrorKind, Result};

use super::origin::{Scripted, Speech};
use super::wire::beside;
use super::{Ask, Caller, Origin, Protocol, RawTransfer, Transfer, Wire};
use crate::gateway::Config;
use crate::http::field;
use crate::stream::{Address, Stream};
use crate::websocket::{handshake, masked, next_frame};

/// HTTP/1.1 on both sides.
pub const HTTP1: Http1 = Http1 { is_websocket: false };
/// WebSocket over HTTP/1.1 on both sides.
pub const WEBSOCKET: Http1 = Http1 { is_websocket: true };

/// See [`HTTP1`] and [`WEBSOCKET`].
pub struct Http1 {
    is_websocket: bool,
}

/// A request without its body.
fn head(ask: &Ask) -> Vec<u8> {
    let method = if ask.upload() > 0 || matches!(ask, Ask::Put(_)) { "POST" } else { "GET" };
    let length = match method {
        "POST" => format!("Content-Length: {}\r\n", ask.upload()),
        _ => String::new(),
    };
    format!("{method} /{} HTTP/1.1\r\nHost: test.example\r\n{length}\r\n", ask.word()).into_bytes()
}

/// A request of the origin behind WebSocket, without the message that is its upload.
fn message(ask: &Ask) -> Vec<u8> {
    masked(0x81, format!("{} {}", ask.word(), ask.upload()).as_bytes())
}

/// The header of an upload: a WebSocket frame whose mask changes nothing.
fn message_head(length: usize) -> Vec<u8> {
    let mut head = vec![0x82, 0x80 | 127];
    head.extend((length as u64).to_be_bytes());
    head.extend([0; 4]);
    head
}

impl Http1 {
    /// Behind its handshake, if it has one.
    fn opened(&self, stream: Stream, path: &str) -> Result<Stream> {
        if !self.is_websocket {
            return Ok(stream);
        }
        let mut wire = Wire::over(stream)?;
        wire.send(handshake(path, "").as_bytes())?;
        let head = wire.until(b"\r\n\r\n")?;
        if !head.starts_with(b"HTTP/1.1 101") {
            return Err(refused(&head));
        }
        Ok(wire.into_stream())
    }

    /// The bytes of a request, up to its upload.
    fn request(&self, ask: &Ask) -> Vec<u8> {
        match (self.is_websocket, ask.upload()) {
            (false, _) => head(ask),
            (true, 0) => message(ask),
            (true, length) => [message(ask), message_head(length)].concat(),
        }
    }
}

/// A response that is no 200, by its first line.
fn refused(head: &[u8]) -> Error {
    let line = String::from_utf8_lossy(head).lines().next().unwrap_or_default().to_owned();
    Error::new(ErrorKind::ResourceBusy, line)
}

impl Protocol for Http1 {
    fn name(&self) -> &'static str {
        if self.is_websocket { "WebSocket" } else { "HTTP/1.1" }
    }

    fn origin(&self) -> Box<dyn Origin> {
        Box::new(Scripted::start(Speech::Http))
    }

    fn lone_origin(&self) -> std::result::Result<Box<dyn Origin>, &'static str> {
        match self.is_websocket {
            true => Err("a WebSocket is its client's own connection"),
            false => Ok(Box::new(Scripted::lone(Speech::Http))),
        }
    }

    fn config(&self, origins: &[Address]) -> Config {
        let config = Config { protocol: "http", ..Config::to_all(origins) };
        match self.is_websocket {
            // An upload is one message, and the longest of them has 20 MB.
            true => config.listener(
                "[listener.http]\nupgrades = [\"websocket\"]\n[listener.http.websocket]\nmessage_max = \"32MiB\"",
            ),
            false => config,
        }
    }

    fn caller(&self, stream: Stream) -> Result<Box<dyn Caller>> {
        let wire = Wire::over(self.opened(stream, "/chat")?)?;
        Ok(Box::new(Exchanges { wire, is_websocket: self.is_websocket }))
    }

    fn begin(&self, stream: Stream, ask: &Ask) -> Result<Box<dyn Transfer>> {
        RawTransfer::begin(self.opened(stream, "/chat")?, &self.request(ask))
    }

    fn unread(&self, stream: Stream, ask: &Ask, count: usize) -> std::result::Result<Box<dyn Transfer>, &'static str> {
        let begun = self.opened(stream, "/chat").and_then(|stream| {
            let request = self.request(ask);
            RawTransfer::begin(stream, &request.repeat(count))
        });
        begun.map_err(|_| "the connection has ended")
    }

    fn shares_upstream(&self) -> std::result::Result<(), &'static str> {
        match self.is_websocket {
            true => Err("each WebSocket has an upstream connection of its own"),
            false => Err("an exchange has its upstream connection for itself"),
        }
    }
}

struct Exchanges {
    wire: Wire,
    is_websocket: bool,
}

impl Caller for Exchanges {
    fn exchange(&mut self, asks: &[(Ask, Vec<u8>)]) -> Result<Vec<Vec<u8>>> {
        let is_websocket = self.is_websocket;
        let bytes = |(ask, body): &(Ask, Vec<u8>)| match (is_websocket, body.is_empty()) {
            (false, _) => [head(ask), body.clone()].concat(),
            (true, true) => message(ask),
            (true, false) => [message(ask), message_head(body.len()), body.clone()].concat(),
        };
        let sent = asks.iter().flat_map(bytes).collect();
        beside(&mut self.wire, sent, |wire| {
            let one = |_| if is_websocket { frame(wire) } else { response(wire) };
            asks.iter().map(one).collect()
        })
    }
}

fn response(wire: &mut Wire) -> Result<Vec<u8>> {
    let head = wire.until(b"\r\n\r\n")?;
    let length = field(&head, "content-length").and_then(|length| length.parse().ok());
    let length = length.ok_or_else(|| Error::other(format!("no length: {}", String::from_utf8_lossy(&head))))?;
    let body = wire.exactly(length)?;
    if head.starts_with(b"HTTP/1.1 200") { Ok(body) } else { Err(refused(&head)) }
}

fn frame(wire: &mut Wire) -> Result<Vec<u8>> {
    let mut failure = None;
    let read = |count| wire.exactly(count).map_err(|error| failure = Some(error)).ok();
    match next_frame(read) {
        Some((0x88, _, payload)) => Err(Error::other(format!("closed: {payload:?}"))),
        Some((_, _, payload)) => Ok(payload),
        None => Err(failure.unwrap_or_else(|| Error::other("no frame"))),
    }
}
