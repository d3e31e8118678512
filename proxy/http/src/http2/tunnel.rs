//! A stream as the end of a tunnel (RFC 8441): WebSocket in DATA frames, behind an extended CONNECT.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Known, RequestHead, ResponseHead};
use weir_websocket_codec::handshake;

use super::{body::Incoming, response_stream::ResponseStream};
use crate::{
    body::BodyError,
    tunnel_io::{TunnelReader, TunnelWriter},
    upgrade::RequestedUpgrade,
};

/// The upgrade that a request with this `:protocol` asks for. Over HTTP/1.1 it has a key, which this version does without: the origin gets
/// one of the gateway's.
pub(super) fn requested_upgrade(
    head: &RequestHead,
    protocol: Option<&[u8]>,
    chance: impl Fn() -> u64,
) -> RequestedUpgrade {
    let Some(protocol) = protocol else { return RequestedUpgrade::None };
    let mut versions = head.fields.all(Known::SecWebsocketVersion);
    let is_version = versions.next() == Some(handshake::VERSION) && versions.next().is_none();
    match protocol {
        b"websocket" if is_version => RequestedUpgrade::WebSocket(
            handshake::key([chance().to_ne_bytes(), chance().to_ne_bytes()]).into_bytes().into(),
        ),
        _ => RequestedUpgrade::Malformed,
    }
}

/// Reads the tunnel's bytes from a stream.
pub(crate) struct Http2TunnelReader<'a>(pub(super) &'a mut Incoming);

impl TunnelReader for Http2TunnelReader<'_> {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn spend(&mut self, count: usize) {
        self.0.spend(count);
    }

    fn release_chunk(&mut self) {}

    async fn receive(&mut self, deadline: &Deadline) -> Option<io::Result<usize>> {
        poll_fn(|context| match self.0.poll_more(context) {
            Poll::Ready(received) => Poll::Ready(Some(received.map_err(|_| io::ErrorKind::ConnectionReset.into()))),
            Poll::Pending => deadline.poll_expired(context).map(|()| None),
        })
        .await
    }

    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        self.0.poll_arrived(context)
    }
}

/// Writes the tunnel's bytes to a stream.
pub(crate) struct Http2TunnelWriter<'a>(pub(super) &'a ResponseStream);

impl TunnelWriter for Http2TunnelWriter<'_> {
    fn accept_upgrade(&self, head: &ResponseHead) {
        let mut agreed = ResponseHead::from_parts(head.version(), 200, BodyLength::Chunked);
        agreed.fields = head.fields.clone();
        agreed.fields.remove(Known::SecWebsocketAccept);
        self.0.head(&agreed, None, false);
    }

    fn append(&self, bytes: &[u8]) {
        self.0.data(bytes);
    }

    fn is_full(&self) -> bool {
        self.0.is_blocked()
    }

    async fn ready(&self, deadline: &Deadline) -> Result<(), BodyError> {
        self.0.flush(deadline).await
    }

    fn finish(&self) {
        self.0.end(None);
    }
}
