//! The client's side of an exchange, whatever version of HTTP it speaks.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use weir_engine::Deadline;
use weir_http_codec::{BodyLength, RequestHead, ResponseHead};
use weir_listener::CloseReason;

use crate::{
    access_notes::SentBytes,
    body::{BodyError, RequestBody, Sink},
    connection::Connection,
    local_response::LocalResponse,
    request_context::RequestContext,
    tunnel_io::{TunnelIo, TunnelReader, TunnelWriter},
    upgrade::RequestedUpgrade,
};

/// The state of the connection after an exchange.
pub(crate) enum AfterExchange {
    /// It may bring another request.
    KeepAlive,
    /// It ends, for this reason.
    Close(CloseReason),
    /// It ends, with a response that must not look complete.
    Abort(CloseReason),
}

/// The client of one exchange.
pub(crate) trait Client {
    /// Its request body.
    type Body<'a>: RequestBody
    where
        Self: 'a;
    /// The sink of responses.
    type ResponseSink<'a>: ResponseSink
    where
        Self: 'a;

    /// Watches for a disconnect while its body is not read.
    type DisconnectWatch<'a>: DisconnectWatch
    where
        Self: 'a;

    /// The reader of its frames, once it has become a tunnel.
    type TunnelReader<'a>: TunnelReader
    where
        Self: 'a;
    /// The writer of its frames.
    type TunnelWriter<'a>: TunnelWriter
    where
        Self: 'a;

    /// The connection it came on.
    fn connection(&self) -> &Rc<Connection>;

    /// The connection has to end at once. The task is woken then.
    fn poll_ended(connection: &Connection, context: &mut Context<'_>) -> bool;

    /// Ready once the client does not wait for the response any more. Takes in at most a buffer of bytes that it sends meanwhile.
    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Looks at arriving bytes of its body while no sink takes them. Ready if the body is given up for memory.
    fn poll_arrived(&mut self, _: &mut Context<'_>) -> Poll<BodyError> {
        Poll::Pending
    }

    /// All of the request's body has been received already, as far as that is seen at once.
    fn has_whole_body(&self) -> bool;

    /// The two directions of the exchange, for an attempt.
    fn exchange_io<'a>(
        &'a mut self,
        request: &'a RequestContext,
    ) -> ExchangeIo<'a, Self::Body<'a>, Self::ResponseSink<'a>, Self::DisconnectWatch<'a>>;

    /// Returns the bytes sent to the client so far, on its connection or on its stream.
    fn sent_bytes(&self) -> SentBytes;

    /// The upgrade that the request asks for.
    fn requested_upgrade(&self, head: &RequestHead) -> RequestedUpgrade;

    /// Its reader and writer, as one end of a tunnel.
    fn tunnel_io(&mut self) -> TunnelIo<'_, Self::TunnelReader<'_>, Self::TunnelWriter<'_>>;

    /// Sends a whole response of the gateway's own. `closes`: the rest of this request hides the beginning of the next.
    fn reply(
        &mut self,
        request: &RequestContext,
        response: &LocalResponse,
        closes: bool,
        reason: &'static str,
    ) -> AfterExchange;
}

/// Both directions of a client, and the deadlines of an exchange.
pub(crate) struct ExchangeIo<'a, B, R, W> {
    pub(crate) body: B,
    pub(crate) response_sink: R,
    pub(crate) watch: W,
    /// Deadline of the client.
    pub(crate) deadline: &'a Deadline,
    /// Deadline of the origin.
    pub(crate) origin_deadline: &'a Deadline,
}

/// Watches for a client's disconnect without reading.
pub(crate) trait DisconnectWatch {
    /// Ready once the client does not wait for the response any more.
    fn poll_disconnected(&self, context: &mut Context<'_>) -> Poll<()>;
}

/// The sink of responses.
pub(crate) trait ResponseSink: Sink {
    /// Forwards an interim response, if the client can take one.
    fn interim(&mut self, head: &ResponseHead);

    /// Passes the final head on; a body of that length follows. `is_uploaded`: the request has been sent to its end. Gives
    /// whether the connection may bring another request.
    fn head(&mut self, head: &ResponseHead, length: BodyLength, is_uploaded: bool) -> bool;
}
