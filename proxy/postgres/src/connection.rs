//! One client connection: its login, its session, and its end.

mod admission;
mod identity;
mod lease;
mod life;
mod news;
mod place;
mod slow;
mod surroundings;

use std::{any::Any, cell::RefCell, net::IpAddr, panic::AssertUnwindSafe, rc::Rc, time::Duration};

use futures_util::FutureExt as _;
use weir_base::violation::Violation;
use weir_engine::{ClientWait, Stream};
use weir_listener::{
    Arrival, CloseReason, ConnectionFuture, ConnectionHandle, Linger, Security, Session as ListedSession, Sessions,
};
use weir_telemetry::log::Peer;

use self::admission::Admitted;
pub(crate) use self::admission::shutdown;
pub(crate) use self::place::SeenBy;
use crate::{
    console::Console,
    service::{PostgresUpstream, Service},
};

/// The time of a refused client before the socket closes: a reset would destroy the reply. Default 1 s.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// The same when the drain is over.
const CUT_TIMEOUT: Duration = Duration::from_millis(100);
/// Bytes that such a client may still send.
const LINGER_BYTES_MAX: u64 = 256 * 1024;

/// Bytes of the objects of one client, without buffers and names.
pub(crate) const CLIENT_BYTES: usize = size_of::<Connection>() + size_of::<life::Life<'static>>();

/// One client connection, as its listener sees it.
pub(crate) struct Connection {
    pub(crate) service: Rc<Service>,
    pub(crate) handle: ConnectionHandle,
    /// The upstreams of its session; none before the login.
    pub(crate) upstreams: RefCell<Vec<Rc<PostgresUpstream>>>,
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
}

/// Whether a session of the listener uses that upstream.
pub(crate) fn uses(sessions: &Sessions, upstream: &dyn Any) -> bool {
    let Some(upstream) = upstream.downcast_ref::<PostgresUpstream>() else { return false };
    let connections = sessions.all().into_iter().filter_map(|session| (session as Rc<dyn Any>).downcast().ok());
    connections.into_iter().any(|connection: Rc<Connection>| {
        connection.upstreams.borrow().iter().any(|own| std::ptr::eq(&**own, upstream))
    })
}

/// Serves one admitted connection until it ends.
///
/// Rare work goes into boxes: an idle connection pays for the size of this future, which keeps room for each value that was moved within
/// it. So the parts of the arrival are taken apart before it begins.
pub(crate) fn serve(service: Rc<Service>, arrival: Arrival) -> ConnectionFuture {
    let Arrival { mut stream, guard, peer, security, .. } = arrival;
    let handle = ConnectionHandle::new(guard, peer, None, &service.sessions.core().bytes);
    stream.output.charge_to(Some(handle.account().clone()));
    stream.count_into(service.sessions.traffic());
    {
        let mut details = handle.entry().details();
        (details.version, details.has_users) = ("PostgreSQL 3", true);
    }
    let connection =
        Rc::new(Connection { service, handle, upstreams: RefCell::default(), wait: ClientWait::default() });
    Box::pin(async move {
        let sessions = &connection.service.sessions;
        let opened = sessions.open(connection.clone());
        let reason = match AssertUnwindSafe(enter(&connection, &mut stream, security)).catch_unwind().await {
            Ok(reason) => reason,
            Err(_) => sessions.panicked(&connection.handle, "the session of a connection panicked"),
        };
        connection.handle.entry().leave();
        connection.upstreams.take();
        opened.close(reason);
        Box::pin(close(*stream, reason)).await;
    })
}

/// The login, and what follows it.
async fn enter(connection: &Rc<Connection>, stream: &mut Stream, security: Security) -> CloseReason {
    match Box::pin(admission::admit(connection, stream, security)).await {
        Ok(Admitted::Client(client)) => life::live(connection, stream, client).await,
        Ok(Admitted::Console(input)) => Box::pin(Console::new(connection).run(stream, input)).await,
        Err(reason) => reason,
    }
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
    use weir_postgres_session::Session;

    use super::*;
    use crate::{cancel::CancelSlot, listen::ClientFeed};

    /// The size of the future that a call returns.
    fn future_bytes<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Bytes of the states that an idle client keeps in this room. Buffers are not among them: it has none.
    #[test]
    fn the_states_of_an_idle_client_are_small() {
        type Parts = (&'static Rc<Connection>, &'static mut Stream, Security);
        let parts = [
            ("future", future_bytes(|(connection, stream, security): Parts| enter(connection, stream, security))),
            ("connection", size_of::<Connection>()),
            ("life", size_of::<life::Life<'static>>()),
            ("cancel slot", size_of::<CancelSlot>()),
        ];
        let within = [("session", size_of::<Session>()), ("feed", size_of::<ClientFeed>())];
        let all: usize = parts.iter().map(|(_, bytes)| bytes).sum();
        assert!(all <= 1_600, "{all} bytes: {parts:?}, of the life {within:?}");
        assert!(parts[0].1 <= 256, "values that were moved within the future: {parts:?}");
    }
}
