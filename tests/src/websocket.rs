//! WebSocket as the tests see it: frames in the plainest way, and a scripted origin behind its 101.
//! Deliberately not the codec under test, except for the response to a key, which RFC 6455's example and real clients check.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::deadline::WAIT;
use crate::http::{HttpClient, Response, field};
use crate::port;
use crate::stream::Address;

/// The key of RFC 6455 section 1.3.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const MASK: [u8; 4] = [0x11, 0x22, 0x33, 0x44];

/// A frame with its first byte as given, as a server sends it.
pub fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, None)
}

/// The same as a client sends it.
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, Some(MASK))
}

fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let bit = if mask.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(bit | length as u8),
        length @ 126..65_536 => {
            bytes.push(bit | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(bit | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(mask.unwrap_or_default().iter().take(if mask.is_some() { 4 } else { 0 }));
    let mask = mask.unwrap_or_default();
    bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    bytes
}

/// The next frame of `read`, which gives as many bytes as requested: first byte, whether it was masked, payload.
pub fn next_frame(mut read: impl FnMut(usize) -> Option<Vec<u8>>) -> Option<(u8, bool, Vec<u8>)> {
    let head = read(2)?;
    let length = match head[1] & 0x7f {
        126 => u64::from(u16::from_be_bytes(read(2)?.try_into().ok()?)),
        127 => u64::from_be_bytes(read(8)?.try_into().ok()?),
        length => u64::from(length),
    };
    let is_masked = head[1] & 0x80 != 0;
    let mask = if is_masked { read(4)? } else { vec![0; 4] };
    let payload = read(length as usize)?;
    Some((head[0], is_masked, payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]).collect()))
}

/// The text of a handshake for `path`.
pub fn handshake(path: &str, fields: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: test.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{fields}\r\n"
    )
}

/// A client behind its handshake, and the 101.
pub fn open(address: &Address, fields: &str) -> (HttpClient, Response) {
    let mut client = HttpClient::connect(address);
    client.send(handshake("/chat", fields));
    let response = client.response();
    assert_eq!(response.status, 101, "{}", String::from_utf8_lossy(&response.head));
    (client, response)
}

/// The next frame that the gateway sends: first byte and payload.
pub fn received(client: &mut HttpClient) -> (u8, Vec<u8>) {
    let (first, is_masked, payload) = next_frame(|count| Some(client.exactly(count))).expect("a frame");
    assert!(!is_masked, "a server masks nothing");
    (first, payload)
}

/// The code of the close frame that comes next.
pub fn close_code(client: &mut HttpClient) -> u16 {
    let (first, payload) = received(client);
    assert_eq!(first, 0x88, "{payload:?}");
    u16::from_be_bytes([payload[0], payload[1]])
}

/// The bytes that an origin received on one connection behind its 101.
#[derive(Clone, Debug, Default)]
pub struct ReceivedMessages {
    /// The request.
    pub head: String,
    /// Frames: first byte and unmasked payload.
    pub frames: Vec<(u8, Vec<u8>)>,
    /// The connection has ended.
    pub is_ended: bool,
}

/// A WebSocket origin.
pub struct WebSocketOrigin {
    /// Where it listens.
    pub address: Address,
    seen: Arc<Mutex<Vec<ReceivedMessages>>>,
}

impl WebSocketOrigin {
    /// Sends every data frame back, answers pings and closes.
    pub fn echo() -> Self {
        Self::with("", |stream, first, payload| match first {
            0x88 => {
                let _ = stream.write_all(&unmasked(0x88, payload));
                false
            }
            0x89 => stream.write_all(&unmasked(0x8a, payload)).is_ok(),
            0x8a => true,
            _ => stream.write_all(&unmasked(first, payload)).is_ok(),
        })
    }

    /// Responds to handshakes with these fields besides, and then calls `act` with every frame until that says no.
    ///
    /// # Panics
    /// If no port can be bound.
    pub fn with(fields: &'static str, act: impl Fn(&mut TcpStream, u8, &[u8]) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port::free())).expect("bound");
        let address = Address::Tcp(listener.local_addr().expect("bound"));
        let (seen, act) = (Arc::new(Mutex::new(Vec::new())), Arc::new(act));
        let all = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (act, all) = (act.clone(), all.clone());
                std::thread::spawn(move || serve(stream, fields, &*act, &all));
            }
        });
        Self { address, seen }
    }

    /// The messages received so far, by connections that sent a request.
    ///
    /// # Panics
    /// If a connection of it panicked.
    pub fn seen(&self) -> Vec<ReceivedMessages> {
        self.seen.lock().expect("no panic").clone()
    }
}

fn serve(
    mut stream: TcpStream,
    fields: &str,
    act: &dyn Fn(&mut TcpStream, u8, &[u8]) -> bool,
    all: &Mutex<Vec<ReceivedMessages>>,
) -> Option<()> {
    let _ = stream.set_nodelay(true);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let accept = weir_websocket_codec::handshake::accept(field(&head, "sec-websocket-key")?.as_bytes());
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\
         {fields}\r\n"
    );
    // Before the response: a client that has it may look at once.
    let number = {
        let mut all = all.lock().ok()?;
        all.push(ReceivedMessages { head: String::from_utf8_lossy(&head).into_owned(), ..ReceivedMessages::default() });
        all.len() - 1
    };
    stream.write_all(response.as_bytes()).ok()?;
    let mut reader = stream.try_clone().ok()?;
    let mut read = |count: usize| {
        let mut bytes = vec![0; count];
        reader.read_exact(&mut bytes).ok()?;
        Some(bytes)
    };
    while let Some((first, is_masked, payload)) = next_frame(&mut read) {
        assert!(is_masked, "a client masks everything");
        all.lock().ok()?[number].frames.push((first, payload.clone()));
        if !act(&mut stream, first, &payload) {
            break;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.set_read_timeout(Some(WAIT));
    while let Ok(1..) = stream.read(&mut [0; 4096]) {}
    all.lock().ok()?[number].is_ended = true;
    Some(())
}
