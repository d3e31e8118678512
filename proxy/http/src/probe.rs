//! Whether an origin answers: one small request on a connection of its own.

use std::io;

use weir_engine::Stream;
use weir_http_codec::{BodyLength, HeadLimits, ResponseParser};
use weir_upstream::{Probe, Reuse};

/// Asks for a path and looks at the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// What is asked for; `None`: that it takes a connection is enough.
    pub path: Option<String>,
    /// The Host of the request.
    pub host: String,
}

impl Probe for HttpProbe {
    async fn ask(&self, stream: &mut Stream) -> io::Result<Reuse> {
        let Some(path) = &self.path else { return Ok(Reuse::No) };
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
                200..400 => {
                    let is_whole = head.body(false) == BodyLength::Exact((received.len() - used) as u64);
                    return Ok(if is_whole && head.is_persistent() { Reuse::Yes } else { Reuse::No });
                }
                status => return Err(io::Error::other(format!("status {status}"))),
            }
        }
    }
}
