//! A listener on one worker, as the gateway holds it.

use std::{any::Any, net::SocketAddr, pin::Pin, rc::Rc, time::Duration};

use weir_engine::Stream;
use weir_telemetry::log::Peer;

use crate::{
    connections::ConnectionGuard, departure::Mover, sessions::Sessions, succession::SuccessionTicket, tls::Security,
};

/// An admitted connection, with its PROXY header behind it.
pub struct Arrival {
    /// The stream. It comes in a box: an idle connection pays for the size of each future that it passes through.
    pub stream: Box<Stream>,
    /// The security of the stream.
    pub security: Security,
    /// The row of the connection in the table.
    pub guard: ConnectionGuard,
    /// The client.
    pub peer: Peer,
    /// The address that the client connected to, if a PROXY header says so.
    pub local: Option<SocketAddr>,
    /// The place of the connection among those of its client, where the protocol has an order of connections.
    pub place: Option<SuccessionTicket>,
    /// The session that another process began, as [`Departure::session`](crate::Departure::session) has it.
    pub moved: Option<Box<dyn Any + Send>>,
}

/// The life of one connection.
pub type ConnectionFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The longest time for [`Service::finish`]. Default 3 s: a supervisor kills the process some seconds after its drain.
pub const FINISH_MAX: Duration = Duration::from_secs(3);

/// The listener of one protocol on one worker.
pub trait Service: Any {
    /// The open sessions and the settings of the listener.
    fn sessions(&self) -> &Sessions;

    /// Serves a connection until it ends.
    fn serve(self: Rc<Self>, arrival: Arrival) -> ConnectionFuture;

    /// The bytes that a client without TLS gets when its connection is not admitted. Empty: the connection closes without a word.
    fn refusal(&self) -> &'static [u8];

    /// The bytes that a client gets that speaks the protocol in clear text where the listener has TLS. `None`: the protocol has
    /// no words for it, and the client gets the alert of TLS.
    fn clear_text_refusal(&self) -> Option<&'static [u8]> {
        None
    }

    /// Counts a response that was [`Service::clear_text_refusal`], as the protocol counts its responses.
    fn count_clear_text_refusal(&self) {}

    /// Tells whether clients ask for TLS within the protocol. Its sessions then begin with [`Security::Offer`] at a listener with
    /// TLS, and make the handshake by [`TlsAcceptor::accept`](crate::TlsAcceptor::accept) where the protocol has it.
    fn starts_tls(&self) -> bool {
        false
    }

    /// Tells whether a session may still use that upstream.
    fn uses(&self, upstream: &dyn Any) -> bool;

    /// A client's next connection is served after what its last one left behind.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Takes a message that a session on another worker has sent to this listener.
    fn deliver(&self, _message: &dyn Any) {}

    /// Looks after what no event tells. The worker calls it ten times a second.
    fn tick(&self) {}

    /// The last work of the listener on this worker, when the process ends and its sessions are cut, such as a flush of what it has
    /// gathered. The worker waits for it, but no longer than [`FINISH_MAX`]. `None`: there is none.
    fn finish(&self) -> Option<ConnectionFuture> {
        None
    }

    /// Tells whether the listener can go on with a session of that form, which another process began.
    fn takes(&self, _session: &dyn Any) -> bool {
        false
    }

    /// Sends the sessions to another process, each in its first quiet moment, by `mover`.
    fn move_away(&self, _mover: Mover) {}
}

/// Tells whether `upstream` is one of `own`: the same object, not one that is configured alike.
pub fn is_among<T: 'static>(upstream: &dyn Any, own: &[Rc<T>]) -> bool {
    upstream.downcast_ref::<T>().is_some_and(|upstream| own.iter().any(|own| std::ptr::eq(&**own, upstream)))
}
