//! The client's side of an exchange, whatever version of HTTP it speaks.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use weir_engine::Deadline;
use weir_http_codec::{BodyLength, RequestHead, ResponseHead};
use weir_listener::CloseReason;

use crate::{
    asked::Asked,
    body::{Broken, RequestBody, Sink},
    connection::Connection,
    ends::{Inlet, Outlet, TunnelEnd},
    notes::SentBytes,
    response::OwnAnswer,
    upgrade::Wish,
};

/// What happens to the connection after an exchange.
pub(crate) enum After {
    /// It may bring another request.
    Another,
    /// It ends, for this reason.
    Close(CloseReason),
    /// So it does, with an answer that must not look complete.
    Broken(CloseReason),
}

/// The client of one exchange.
pub(crate) trait Client {
    /// Its request body.
    type Body<'a>: RequestBody
    where
        Self: 'a;
    /// Where answers go.
    type Replies<'a>: Replies
    where
        Self: 'a;

    /// What tells of its departure while its body is not read.
    type Watch<'a>: Watch
    where
        Self: 'a;

    /// Where its frames come from, once it has become a tunnel.
    type Inlet<'a>: Inlet
    where
        Self: 'a;
    /// Where they go.
    type Outlet<'a>: Outlet
    where
        Self: 'a;

    /// The connection it came on.
    fn connection(&self) -> &Rc<Connection>;

    /// The connection was told to end at once. The task is woken when it is.
    fn poll_ended(connection: &Connection, context: &mut Context<'_>) -> bool;

    /// Ready once nobody waits for an answer any more. At most a buffer of what the client sends meanwhile is taken in.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Looks at what arrives of its body while nobody takes it; ready if the body is given up for it.
    fn poll_arrived(&mut self, _: &mut Context<'_>) -> Poll<Broken> {
        Poll::Pending
    }

    /// All of the request's body has been received already, as far as that is seen at once.
    fn has_whole_body(&self) -> bool;

    /// What an attempt to have the request answered needs of it.
    fn sides<'a>(&'a mut self, asked: &'a Asked) -> Sides<'a, Self::Body<'a>, Self::Replies<'a>, Self::Watch<'a>>;

    /// Tells how many bytes the client has been sent so far, on its connection or on its stream.
    fn sent_bytes(&self) -> SentBytes;

    /// What its connection or its stream is to become.
    fn wish(&self, head: &RequestHead) -> Wish;

    /// That, as the end of a tunnel.
    fn tunnel_end(&mut self) -> TunnelEnd<'_, Self::Inlet<'_>, Self::Outlet<'_>>;

    /// Sends a whole answer of the gateway's own. `closes`: no further request can be told from what is left of this one.
    fn reply(&mut self, asked: &Asked, answer: &OwnAnswer, closes: bool, reason: &'static str) -> After;
}

/// Both directions of a client, and the deadlines of an exchange.
pub(crate) struct Sides<'a, B, R, W> {
    pub(crate) body: B,
    pub(crate) replies: R,
    pub(crate) watch: W,
    /// Of what the client does.
    pub(crate) deadline: &'a Deadline,
    /// Of what the origin does.
    pub(crate) origin_deadline: &'a Deadline,
}

/// Tells of a client's departure without reading.
pub(crate) trait Watch {
    /// Ready once nobody waits for an answer any more.
    fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()>;
}

/// Where answers go.
pub(crate) trait Replies: Sink {
    /// Passes an interim answer on, if the client can take one.
    fn interim(&mut self, head: &ResponseHead);

    /// Passes the final head on; a body of that length follows. `is_uploaded`: the request has been sent to its end. Gives
    /// whether the connection may bring another request.
    fn head(&mut self, head: &ResponseHead, length: BodyLength, is_uploaded: bool) -> bool;
}
