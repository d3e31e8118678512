//! One connection of the origin.

use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read as _, Result, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Shared, Speech};
use crate::http::field;
use crate::websocket::{next_frame, unmasked};

/// How responses are framed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Http {
        /// The connection ends behind the response.
        is_last: bool,
    },
    WebSocket,
    None,
}

/// A request: its word, and how much follows it.
struct Request {
    kind: &'static str,
    number: u64,
    upload: usize,
}

impl Request {
    fn of(word: &str, upload: usize) -> Result<Self> {
        let (kind, number) = word.split_once('/').unwrap_or((word, "0"));
        let kinds = ["small", "bytes", "hold", "sink", "unread", "echo", "put", "busy"];
        let kind = kinds.into_iter().find(|known| *known == kind);
        let number = number.parse().map_err(|_| Error::other("no number"))?;
        Ok(Self { kind: kind.ok_or_else(|| Error::other("no word"))?, number, upload })
    }
}

/// Serves until the peer ends.
pub(super) fn connection(stream: TcpStream, shared: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 * 1024, stream.try_clone()?);
    match shared.speech {
        Speech::Http => http(&mut reader, stream, shared),
        Speech::Lines => loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let (word, length) = line.trim_end().split_once(' ').ok_or_else(|| Error::other("no length"))?;
            let upload = length.parse().map_err(|_| Error::other("no length"))?;
            respond(&Request::of(word, upload)?, &mut reader, &stream, Framing::None, shared)?;
        },
    }
}

fn http(reader: &mut BufReader<TcpStream>, stream: TcpStream, shared: &Shared) -> Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let path = text.split(' ').nth(1).unwrap_or_default();
        if let Some(key) = field(&head, "sec-websocket-key") {
            return websocket(reader, stream, key.as_bytes(), path == "/busy", shared);
        }
        let upload = field(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let framing = Framing::Http { is_last: shared.is_lone };
        respond(&Request::of(path.trim_start_matches('/'), upload)?, reader, &stream, framing, shared)?;
        if shared.is_lone {
            return Ok(());
        }
    }
}

fn websocket(
    reader: &mut BufReader<TcpStream>,
    mut stream: TcpStream,
    key: &[u8],
    is_busy: bool,
    shared: &Shared,
) -> Result<()> {
    if is_busy {
        return stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    }
    let accept = weir_websocket_codec::handshake::accept(key);
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut read = |count: usize| {
        let mut bytes = vec![0; count];
        reader.read_exact(&mut bytes).ok()?;
        Some(bytes)
    };
    while let Some((first, _, payload)) = next_frame(&mut read) {
        match first {
            0x81 => {}
            0x88 => {
                stream.write_all(&unmasked(0x88, &payload))?;
                return Ok(());
            }
            0x89 => {
                stream.write_all(&unmasked(0x8a, &payload))?;
                continue;
            }
            _ => continue,
        }
        let text = String::from_utf8_lossy(&payload).into_owned();
        let (word, length) = text.split_once(' ').ok_or_else(|| Error::other("no length"))?;
        let request = Request::of(word, length.parse().map_err(|_| Error::other("no length"))?)?;
        match request.kind {
            // The next message is the upload.
            "sink" | "echo" => {
                let _call = shared.begin(request.kind);
                let (_, _, payload) = next_frame(&mut read).ok_or(ErrorKind::UnexpectedEof)?;
                send(&stream, Framing::WebSocket, if request.kind == "echo" { &payload } else { b"ok" })?;
            }
            "hold" => {
                let _call = shared.begin(request.kind);
                while next_frame(&mut read).is_some_and(|(first, ..)| first != 0x88) {}
                return Ok(());
            }
            _ => respond(&request, &mut BufReader::new(stream.try_clone()?), &stream, Framing::WebSocket, shared)?,
        }
    }
    Ok(())
}

fn respond(
    request: &Request,
    reader: &mut BufReader<TcpStream>,
    stream: &TcpStream,
    framing: Framing,
    shared: &Shared,
) -> Result<()> {
    let _call = shared.begin(request.kind);
    match request.kind {
        "bytes" => {
            let length = request.number as usize;
            let chunk = [b'x'; 64 * 1024];
            let message = if framing == Framing::WebSocket { chunk.len() } else { length };
            let mut sent = 0;
            while sent < length {
                let count = chunk.len().min(length - sent);
                if sent % message == 0 {
                    begin(stream, framing, "200 OK", message.min(length - sent))?;
                }
                (&mut &*stream).write_all(&chunk[..count])?;
                sent += count;
            }
            Ok(())
        }
        "hold" => {
            // Nothing follows but the end.
            while !reader.fill_buf()?.is_empty() {
                let length = reader.buffer().len();
                reader.consume(length);
            }
            Err(ErrorKind::UnexpectedEof.into())
        }
        "unread" => {
            // The pace of one who does not read.
            while !shared.stop.load(Ordering::Relaxed) && stream.take_error()?.is_none() {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(ErrorKind::UnexpectedEof.into())
        }
        "echo" => {
            let mut upload = vec![0; request.upload];
            reader.read_exact(&mut upload)?;
            send(stream, framing, &upload)
        }
        kind => {
            let read = std::io::copy(&mut reader.take(request.upload as u64), &mut std::io::sink())?;
            if read < request.upload as u64 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            match kind {
                "put" => shared.value.store(request.number, Ordering::SeqCst),
                "busy" if framing != Framing::None => return begin(stream, framing, "503 Service Unavailable", 0),
                _ => {}
            }
            send(stream, framing, b"ok")
        }
    }
}

fn send(mut stream: &TcpStream, framing: Framing, payload: &[u8]) -> Result<()> {
    begin(stream, framing, "200 OK", payload.len())?;
    stream.write_all(payload)
}

/// Writes the head of a response of this length.
fn begin(mut stream: &TcpStream, framing: Framing, status: &str, length: usize) -> Result<()> {
    match framing {
        Framing::None => Ok(()),
        Framing::Http { is_last } => {
            let connection = if is_last { "Connection: close\r\n" } else { "" };
            stream.write_all(format!("HTTP/1.1 {status}\r\n{connection}Content-Length: {length}\r\n\r\n").as_bytes())
        }
        Framing::WebSocket if length < 126 => stream.write_all(&[0x82, length as u8]),
        Framing::WebSocket => {
            let mut head = vec![0x82, 127];
            head.extend((length as u64).to_be_bytes());
            stream.write_all(&head)
        }
    }
}
