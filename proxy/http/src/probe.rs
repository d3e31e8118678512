//! Health checks: one small request on a connection of its own.

use std::io;

use weir_base::Secret;
use weir_engine::Stream;
use weir_http_codec::{BodyLength, HeadLimits, ResponseParser};
use weir_upstream::Probe;

use crate::http2;

/// Checks the health of an origin by one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// The kind of the request.
    pub kind: ProbeKind,
    /// The Host of the request.
    pub host: String,
    /// Further fields of a request for a path, such as a key; their names are in lower case.
    pub fields: Vec<(Box<str>, Secret)>,
    /// Speaks HTTP/2.
    pub is_http2: bool,
}

/// The request of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Nothing: that it takes a connection is enough.
    Connection,
    /// A path, with a status from 200 to 399 in the response.
    Path(String),
    /// This gRPC service, by the standard health service (`grpc.health.v1.Health`). Empty: the server as a
    /// whole. Needs HTTP/2.
    Grpc(String),
}

impl Probe for HttpProbe {
    async fn check(&self, stream: Stream) -> io::Result<Option<Stream>> {
        match (&self.kind, self.is_http2) {
            (ProbeKind::Connection, _) => Ok(None),
            (ProbeKind::Path(path), false) => self.probe_path(path, stream).await,
            (ProbeKind::Path(path), true) => {
                http2::probe::path(stream, &self.host, path, &self.fields).await.map(|()| None)
            }
            (ProbeKind::Grpc(service), _) => http2::probe::grpc(stream, &self.host, service).await.map(|()| None),
        }
    }
}

impl HttpProbe {
    async fn probe_path(&self, path: &str, mut stream: Stream) -> io::Result<Option<Stream>> {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir-health\r\nAccept: */*\r\n", self.host);
        stream.output.append(request.as_bytes());
        for (name, value) in &self.fields {
            [name.as_bytes(), b": ", value.expose(), b"\r\n"].iter().for_each(|part| stream.output.append(part));
        }
        stream.output.append(b"\r\n");
        let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let (mut parser, mut received) = (ResponseParser::new(), Vec::new());
        loop {
            let Some(chunk) = stream.reader.receive().await? else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without a response"));
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
