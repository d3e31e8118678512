//! A stream as the end of a tunnel (RFC 8441): WebSocket in DATA frames, behind an extended CONNECT.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use h2::ext::Protocol;
use http::request::Parts;
use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Known, ResponseHead};
use weir_websocket_codec::handshake;

use super::{
    body::Incoming,
    response_stream::{ResponseStream, flush},
};
use crate::{
    body::BodyError,
    tunnel_io::{TunnelReader, TunnelWriter},
    upgrade::RequestedUpgrade,
};

/// The upgrade that a request asks for. Over HTTP/1.1 it has a key, which this version does without: the origin gets one of the
/// gateway's.
pub(super) fn requested_upgrade(parts: &Parts, chance: impl Fn() -> u64) -> RequestedUpgrade {
    let Some(protocol) = parts.extensions.get::<Protocol>() else { return RequestedUpgrade::None };
    let mut versions = parts.headers.get_all("sec-websocket-version").iter();
    let is_version = versions.next().is_some_and(|version| version.as_bytes() == handshake::VERSION);
    match protocol.as_str() {
        "websocket" if is_version && versions.next().is_none() => RequestedUpgrade::WebSocket(
            handshake::key([chance().to_ne_bytes(), chance().to_ne_bytes()]).into_bytes().into(),
        ),
        _ => RequestedUpgrade::Malformed,
    }
}

/// Reads the tunnel's bytes from a stream.
pub(crate) struct Http2TunnelReader<'a>(pub(super) &'a mut Incoming);

impl TunnelReader for Http2TunnelReader<'_> {
    fn bytes(&self) -> &[u8] {
        &self.0.current
    }

    fn spend(&mut self, count: usize) {
        self.0.current.advance(count);
        self.0.release(count);
    }

    fn release_chunk(&mut self) {}

    async fn receive(&mut self, deadline: &Deadline) -> Option<io::Result<usize>> {
        poll_fn(|context| match self.poll_receive(context) {
            Poll::Ready(received) => Poll::Ready(Some(received)),
            Poll::Pending => deadline.poll_expired(context).map(|()| None),
        })
        .await
    }

    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        self.0.poll_arrived(context)
    }
}

impl Http2TunnelReader<'_> {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Self(incoming) = self;
        loop {
            let Some(data) = ready!(incoming.poll_data(context)) else { return Poll::Ready(Ok(0)) };
            let data = data.map_err(io::Error::other)?;
            let count = data.len();
            if count == 0 {
                continue;
            }
            incoming.current = match incoming.current.is_empty() {
                true => data,
                // The beginning of a frame's header.
                false => {
                    let mut joined = BytesMut::from(&*incoming.current);
                    joined.extend_from_slice(&data);
                    joined.freeze()
                }
            };
            return Poll::Ready(Ok(count));
        }
    }
}

/// Writes the tunnel's bytes to a stream.
pub(crate) struct Http2TunnelWriter<'a>(pub(super) &'a RefCell<ResponseStream>);

impl TunnelWriter for Http2TunnelWriter<'_> {
    fn accept_upgrade(&self, head: &ResponseHead) {
        let mut agreed = ResponseHead::from_parts(head.version(), 200, BodyLength::Chunked);
        agreed.fields = head.fields.clone();
        agreed.fields.remove(Known::SecWebsocketAccept);
        self.0.borrow_mut().head(&agreed, None, false);
    }

    fn append(&self, bytes: &[u8]) {
        self.0.borrow_mut().data(bytes);
    }

    fn is_full(&self) -> bool {
        // Nothing goes out by itself.
        true
    }

    async fn ready(&self, deadline: &Deadline) -> Result<(), BodyError> {
        flush(self.0, deadline).await
    }

    fn finish(&self) {
        self.0.borrow_mut().end(None);
    }
}
