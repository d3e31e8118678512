//! Whether an origin answers: one small request on a connection of its own.

use std::io;

use weir_engine::Stream;
use weir_http_codec::{BodyLength, HeadLimits, ResponseParser};
use weir_upstream::Probe;

use crate::http2;

/// Asks an origin something and looks at the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// What is asked.
    pub question: Question,
    /// The Host of the request.
    pub host: String,
    /// It is asked in HTTP/2.
    pub is_http2: bool,
}

/// What is asked of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Nothing: that it takes a connection is enough.
    Connection,
    /// A path, with a status from 200 to 399 in the answer.
    Path(String),
    /// Whether it serves this gRPC service, by the standard health service (`grpc.health.v1.Health`). Empty: the server as a
    /// whole. Needs HTTP/2.
    Grpc(String),
}

impl Probe for HttpProbe {
    async fn ask(&self, stream: Stream) -> io::Result<Option<Stream>> {
        match (&self.question, self.is_http2) {
            (Question::Connection, _) => Ok(None),
            (Question::Path(path), false) => self.ask_path(path, stream).await,
            (Question::Path(path), true) => http2::probe::path(stream, &self.host, path).await.map(|()| None),
            (Question::Grpc(service), _) => http2::probe::grpc(stream, &self.host, service).await.map(|()| None),
        }
    }
}

impl HttpProbe {
    async fn ask_path(&self, path: &str, mut stream: Stream) -> io::Result<Option<Stream>> {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir-health\r\nAccept: */*\r\n\r\n", self.host);
        stream.output.append(request.as_bytes());
        let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let (mut parser, mut received) = (ResponseParser::new(), Vec::new());
        loop {
            let Some(chunk) = stream.reader.receive().await? else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer"));
            };
            received.extend_from_slice(&chunk);
            let Some(used) = parser.parse(&received, &HeadLimits::default()).map_err(malformed)? else { continue };
            let head = parser.take();
            match head.status() {
                100..200 => drop(received.drain(..used)),
                status => {
                    check(status)?;
                    let is_whole = head.body(false) == BodyLength::Exact((received.len() - used) as u64);
                    return Ok((is_whole && head.is_persistent()).then_some(stream));
                }
            }
        }
    }
}

/// # Errors
/// The status is no sign of health.
pub(crate) fn check(status: u16) -> io::Result<()> {
    match status {
        200..400 => Ok(()),
        status => Err(io::Error::other(format!("status {status}"))),
    }
}
