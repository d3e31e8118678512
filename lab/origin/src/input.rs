//! Requests of HTTP/1.1 out of the bytes of one connection, each with its whole body.

use std::io;

use weir_engine::Stream;
use weir_http_codec::{BodyDecoder, BodyLimits, HeadLimits, RequestHead, RequestParser};

/// The input side of one client.
pub struct Input {
    parser: RequestParser,
    /// Bytes of a body.
    body_bytes_max: usize,
    /// Received and not spent.
    kept: Vec<u8>,
}

/// A whole request.
pub struct Received {
    /// Its head.
    pub head: RequestHead,
    /// Its body, without framing.
    pub body: Vec<u8>,
}

/// The next event on the input side.
pub enum Next {
    /// A request.
    Request(Box<Received>),
    /// Something that is refused with this status, after which the connection ends.
    Refused(u16),
    /// The client has said its last.
    Ended,
}

impl Input {
    /// Before the first request. A body of more bytes is refused.
    pub fn new(body_bytes_max: usize) -> Self {
        Self { parser: RequestParser::default(), body_bytes_max, kept: Vec::new() }
    }

    /// Reads up to the end of the next request.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn next(&mut self, stream: &mut Stream) -> io::Result<Next> {
        loop {
            match self.parser.parse(&self.kept, &HeadLimits::default()) {
                Err(error) => return Ok(Next::Refused(error.status())),
                Ok(Some(taken)) => {
                    self.kept.drain(..taken);
                    break;
                }
                Ok(None) => {}
            }
            if !self.receive(stream).await? {
                return Ok(Next::Ended);
            }
        }
        let head = self.parser.take();
        if head.expects_continue() {
            stream.output.append(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.body(head, stream).await
    }

    async fn body(&mut self, head: RequestHead, stream: &mut Stream) -> io::Result<Next> {
        let (mut decoder, mut body) = (BodyDecoder::new(head.body()), Vec::new());
        while !decoder.is_done() {
            let Ok(piece) = decoder.decode(&self.kept, &BodyLimits::default()) else { return Ok(Next::Refused(400)) };
            if body.len() + piece.data.len() > self.body_bytes_max {
                return Ok(Next::Refused(413));
            }
            body.extend_from_slice(piece.data);
            let taken = piece.taken;
            self.kept.drain(..taken);
            if taken == 0 && !decoder.is_done() && !self.receive(stream).await? {
                return Ok(Next::Ended);
            }
        }
        if self.kept.is_empty() {
            // An idle connection has no room for what is not there.
            self.kept = Vec::new();
        }
        Ok(Next::Request(Box::new(Received { head, body })))
    }

    /// False: no more comes.
    async fn receive(&mut self, stream: &mut Stream) -> io::Result<bool> {
        let Some(chunk) = stream.reader.receive().await? else { return Ok(false) };
        self.kept.extend_from_slice(&chunk);
        Ok(true)
    }

    /// Gives the head of a request back, for the next one.
    pub fn reuse(&mut self, head: RequestHead) {
        self.parser.reuse(head);
    }
}
