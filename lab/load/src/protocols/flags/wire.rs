//! Responses of one connection, and requests that get the tag of its first one.

use weir_engine::Stream;

use super::check::body_bytes_max;
use super::first;
use crate::protocols::http;
use crate::protocols::http1::wire::ResponseReader;
use crate::reply::{Reply, ReplyKind};
use crate::scenario::{Flags, Scenario};
use crate::wire::{GoAway, OnReply, Pending, Sender, StreamError, Wire};

/// The end of a head.
const END: &[u8] = b"\r\n";

/// The reading side of a connection.
pub(super) struct Responses {
    reader: ResponseReader,
    is_conditional: bool,
    tag: Vec<u8>,
}

impl Responses {
    pub(super) fn new(flags: &Flags) -> Self {
        let judge = if flags.is_conditional { unchanged } else { http::reply };
        let reader = ResponseReader::judged(body_bytes_max(flags.data), judge);
        Self { reader, is_conditional: flags.is_conditional, tag: Vec::new() }
    }
}

/// A 304 is right, and a whole response is not.
fn unchanged(status: u16, body: &[u8]) -> Reply<'_> {
    match status {
        304 => Reply::value(body),
        200..=299 => Reply { kind: ReplyKind::Error(body), body: Some(body) },
        _ => http::reply(status, body),
    }
}

impl Wire for Responses {
    fn begin<'a>(&'a mut self, stream: &'a mut Stream, scenario: &'a Scenario) -> Pending<'a> {
        Box::pin(async move {
            if scenario.churn {
                // The connection is part of the measured exchange.
                return Ok(());
            }
            let tag = first::request(stream, &scenario.flags).await?;
            if self.is_conditional {
                self.tag = tag.ok_or("its response with flags has no ETag")?;
            }
            Ok(())
        })
    }

    fn sender(&self) -> Option<Box<dyn Sender>> {
        self.is_conditional.then(|| Box::new(Tagged { tag: self.tag.clone() }) as Box<dyn Sender>)
    }

    fn take(&mut self, chunk: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        self.reader.take(chunk, out, each)
    }

    fn finish(&mut self, each: OnReply<'_>) -> Result<(), StreamError> {
        self.reader.finish(each)
    }
}

/// Adds `If-None-Match` to each request. None of them has a body.
struct Tagged {
    tag: Vec<u8>,
}

impl Sender for Tagged {
    /// Replies come in order, so all have one number.
    fn write(&self, request: &[u8], out: &mut Vec<u8>) -> u32 {
        out.extend_from_slice(request.strip_suffix(END).unwrap_or(request));
        out.extend_from_slice(b"If-None-Match: ");
        out.extend_from_slice(&self.tag);
        out.extend_from_slice(END);
        out.extend_from_slice(END);
        0
    }

    fn is_spent(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_its_tag_as_the_last_field() {
        let mut out = Vec::new();
        Tagged { tag: b"\"a:1\"".to_vec() }.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut out);
        assert_eq!(out, b"GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"a:1\"\r\n\r\n");
    }

    #[test]
    fn a_304_is_right_only_where_it_is_wanted() {
        assert_eq!(unchanged(304, b"").kind, ReplyKind::Value);
        assert_eq!(unchanged(200, b"x").kind, ReplyKind::Error(b"x"));
        assert_eq!(unchanged(503, b"").kind, ReplyKind::Shed("status_503"));
        assert_eq!(http::reply(304, b"").kind, ReplyKind::Error(b""));
    }
}
