//! A client of HTTP/1.1 that shows chunks as they were cut, and how a connection ended.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use weir_http_codec::{BodyDecoder, BodyLimits, HeadLimits, ResponseParser};
use weir_origin::ai::{AiOriginSettings, Origin, start};

/// Nothing a test waits for takes longer on a healthy machine, however busy.
const DEADLINE: Duration = Duration::from_secs(30);

pub fn origin() -> (Origin, SocketAddr) {
    origin_with(AiOriginSettings::default())
}

pub fn origin_with(settings: AiOriginSettings) -> (Origin, SocketAddr) {
    let origin = start(settings).expect("an origin");
    let address = origin.addresses()[0];
    (origin, address)
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As its framing says.
    Whole,
    /// The connection was closed before.
    Closed,
    /// The connection was reset before.
    Reset,
    /// Nothing came within the time that the test gave.
    Silence,
}

pub struct Reply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    /// As they came; a body with a length comes in one or several.
    pub chunks: Vec<Vec<u8>>,
    pub end: End,
}

impl Reply {
    pub fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body()).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body()).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Data of the events, `[DONE]` too.
    pub fn events(&self) -> Vec<String> {
        let text = self.text().replace("\r\n", "\n").replace('\r', "\n");
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    /// The text of the chunks of chat.
    pub fn said(&self) -> String {
        let content = |data: &String| {
            let chunk: Value = serde_json::from_str(data).ok()?;
            Some(chunk.pointer("/choices/0/delta/content")?.as_str()?.to_owned())
        };
        self.events().iter().filter_map(content).collect()
    }
}

pub struct Client(TcpStream);

impl Client {
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self(stream)
    }

    /// After so long without a byte a reply counts as silent.
    pub fn patience(self, limit: Duration) -> Self {
        self.0.set_read_timeout(Some(limit)).expect("a timeout");
        self
    }

    pub fn send(&mut self, method: &str, path: &str, fields: &str, body: &str) {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{fields}\r\n");
        self.0.write_all(head.as_bytes()).and_then(|()| self.0.write_all(body.as_bytes())).expect("send");
    }

    pub fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, "", "");
        self.reply()
    }

    pub fn post(&mut self, path: &str, body: &str) -> Reply {
        self.send("POST", path, "Content-Type: application/json\r\n", body);
        self.reply()
    }

    /// A prompt of chat with `directives`, and more fields of the body.
    pub fn chat(&mut self, directives: &str, more: &str) -> Reply {
        self.post("/v1/chat/completions", &prompt(directives, more))
    }

    pub fn reply(&mut self) -> Reply {
        let mut reply = Reply { status: 0, fields: Vec::new(), chunks: Vec::new(), end: End::Whole };
        let (mut parser, mut decoder, mut received) = (ResponseParser::new(), None::<BodyDecoder>, Vec::new());
        loop {
            if decoder.is_none()
                && let Some(taken) = parser.parse(&received, &HeadLimits::default()).expect("a head")
            {
                received.drain(..taken);
                let head = parser.take();
                reply.status = head.status();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_lowercase();
                reply.fields = head.fields.iter().map(|field| (text(field.name), text(field.value))).collect();
                decoder = Some(BodyDecoder::new(head.body(false)));
            }
            while let Some(decoder) = &mut decoder {
                if decoder.is_done() {
                    assert!(received.is_empty(), "bytes behind a reply");
                    return reply;
                }
                let piece = decoder.decode(&received, &BodyLimits::default()).expect("a body");
                if piece.taken == 0 {
                    break;
                }
                if !piece.data.is_empty() {
                    reply.chunks.push(piece.data.to_vec());
                }
                let taken = piece.taken;
                received.drain(..taken);
            }
            let mut chunk = [0; 16 * 1024];
            match self.0.read(&mut chunk) {
                Ok(0) => reply.end = End::Closed,
                Ok(count) => {
                    received.extend_from_slice(&chunk[..count]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => reply.end = End::Reset,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    reply.end = End::Silence;
                }
                Err(error) => panic!("receive: {error}"),
            }
            return reply;
        }
    }

    /// Bytes as they come, at least one.
    pub fn some(&mut self) -> Vec<u8> {
        let mut chunk = vec![0; 64 * 1024];
        let count = self.0.read(&mut chunk).expect("receive");
        assert!(count > 0, "closed");
        chunk.truncate(count);
        chunk
    }
}

/// The body of a chat with `directives` in its prompt, and more fields.
pub fn prompt(directives: &str, more: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!(",{more}") };
    format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"hi [weir {directives}]\"}}]{more}}}")
}
