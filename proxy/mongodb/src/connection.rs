//! One client connection: its requests, the servers that it gets for them, and its end.

mod deadlines;
mod intake;
mod lease;
mod leave;
mod life;
mod login;
mod passthrough;
mod replies;
mod reply;
mod surroundings;

use std::{any::Any, cell::RefCell, net::IpAddr, panic::AssertUnwindSafe, rc::Rc, time::Duration};

use futures_util::FutureExt as _;
use weir_base::{error::Culprit, violation::Violation};
use weir_engine::{ClientWait, Stream};
use weir_listener::{
    Arrival, CloseReason, ConnectionFuture, ConnectionHandle, Linger, Security, Session as ListedSession, Sessions,
};
use weir_mongodb_session::login::{Peer as LoginPeer, TlsFacts};
use weir_telemetry::log::Peer;

use crate::{service::Service, upstream::MongodbUpstream};

/// The time of a refused client before the socket closes: a reset would destroy the reply. Default 1 s.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// The same when the drain is over.
const CUT_TIMEOUT: Duration = Duration::from_millis(100);
/// Bytes that such a client may still send.
const LINGER_BYTES_MAX: u64 = 256 * 1024;

/// One client connection, as its listener sees it.
pub(crate) struct Connection {
    pub(crate) service: Rc<Service>,
    pub(crate) handle: ConnectionHandle,
    /// The upstream of its session.
    pub(crate) upstream: RefCell<Option<Rc<MongodbUpstream>>>,
    /// For a server, or its reply.
    wait: ClientWait,
}

impl ListedSession for Connection {
    fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }
}

impl Connection {
    /// The address of the client. `None`: a Unix socket.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self.handle.peer() {
            Peer::Ip(address) => Some(address.ip().to_canonical()),
            _ => None,
        }
    }

    fn violated(&self, violation: &Violation) -> CloseReason {
        self.service.sessions.violated(&self.handle, violation)
    }

    /// The facts that the session has of the connection.
    fn peer(&self, stream: &Stream, security: &Security) -> LoginPeer {
        let tls = matches!(security, Security::Tls).then(|| {
            let subject = stream.peer_identity().and_then(|identity| identity.subject);
            TlsFacts { subject: subject.map(|subject| subject.into_bytes().into_boxed_slice()) }
        });
        let address = match self.handle.peer() {
            Peer::Ip(address) => address.to_string(),
            _ => "127.0.0.1:0".to_owned(),
        };
        // Drivers take a positive number of 31 bits.
        let connection_id = (self.handle.id() & 0x7fff_ffff) as i32;
        LoginPeer { connection_id, address: address.into(), tls }
    }
}

/// The end of a client that a server has refused too often.
fn too_many_failures() -> Violation {
    let text = "the client has failed to log in too often";
    Violation::rule("mongodb_login_failures", Culprit::Client, text)
}

/// Whether a session of the listener uses that upstream.
pub(crate) fn uses(sessions: &Sessions, upstream: &dyn Any) -> bool {
    let Some(upstream) = upstream.downcast_ref::<MongodbUpstream>() else { return false };
    let connections = sessions.all().into_iter().filter_map(|session| (session as Rc<dyn Any>).downcast().ok());
    connections.into_iter().any(|connection: Rc<Connection>| {
        connection.upstream.borrow().as_ref().is_some_and(|own| std::ptr::eq(&**own, upstream))
    })
}

/// Serves one admitted connection until it ends.
pub(crate) fn serve(service: Rc<Service>, arrival: Arrival) -> ConnectionFuture {
    let Arrival { mut stream, guard, peer, security, .. } = arrival;
    let handle = ConnectionHandle::new(guard, peer, None, &service.sessions.core().bytes);
    stream.output.charge_to(Some(handle.account().clone()));
    stream.count_into(service.sessions.traffic());
    {
        let mut details = handle.entry().details();
        (details.version, details.has_users) = ("MongoDB", !service.policy().methods.is_empty());
        let tls = stream.tls_facts().map(|(version, suite)| format!("TLSv{version}/{suite}"));
        details.tls = tls.unwrap_or_default();
    }
    let connection = Rc::new(Connection { service, handle, upstream: RefCell::default(), wait: ClientWait::default() });
    let peer = connection.peer(&stream, &security);
    Box::pin(async move {
        let sessions = &connection.service.sessions;
        let opened = sessions.open(connection.clone());
        let reason = match AssertUnwindSafe(life::live(&connection, &mut stream, peer)).catch_unwind().await {
            Ok(reason) => reason,
            Err(_) => sessions.panicked(&connection.handle, "the session of a connection panicked"),
        };
        connection.handle.entry().leave();
        connection.upstream.take();
        opened.close(reason);
        Box::pin(close(*stream, reason)).await;
    })
}

/// Closes the socket; a client that does not know why gets the time to read it.
async fn close(stream: Stream, reason: CloseReason) {
    match reason {
        CloseReason::InternalInvariant | CloseReason::ClientReset => {}
        // The worker ends soon.
        CloseReason::DrainCut => stream.close(CUT_TIMEOUT).await,
        // The kernel has all that was sent, and delivers it.
        CloseReason::ClientClosed if stream.is_plain() && stream.output.buffered() == 0 => {}
        CloseReason::ClientClosed => stream.close(LINGER_TIMEOUT).await,
        _ => {
            let linger = Linger { stalled: Duration::ZERO, limit: LINGER_TIMEOUT, bytes_max: LINGER_BYTES_MAX };
            linger.close(stream).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_mongodb_session::Session;

    use super::*;

    /// The size of the future that a call returns.
    fn future_bytes<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Bytes of the states that an idle client keeps in this room. Buffers are not among them: it has none.
    #[test]
    fn the_states_of_an_idle_client_are_small() {
        type Parts = (&'static Rc<Connection>, &'static mut Stream, LoginPeer);
        let parts = [
            ("future", future_bytes(|(connection, stream, peer): Parts| life::live(connection, stream, peer))),
            ("connection", size_of::<Connection>()),
            ("life", size_of::<life::Life<'static>>()),
        ];
        let all: usize = parts.iter().map(|(_, bytes)| bytes).sum();
        assert!(all <= 1_900, "{all} bytes: {parts:?}, of the life {} of the session", size_of::<Session>());
    }
}
