//! One client connection: its properties, its end, and the wakers of its tasks.

use std::{
    cell::{OnceCell, RefCell},
    net::SocketAddr,
    rc::Rc,
    task::{Context, Waker},
};

use weir_base::{error::Culprit, time::turn, violation::Violation};
use weir_engine::{Deadline, Stream, tls::PeerIdentity};
use weir_listener::{Arrival, CloseReason, ConnectionHandle, DRAIN_GAP, Drain, Roster, RosterEntry, Session};

use crate::{
    forward::{self, Forwarded},
    service::Service,
};

/// The result of a TLS handshake.
pub(crate) struct Tls {
    /// Version and cipher suite, as [`Stream::tls_facts`] has them.
    facts: Option<(&'static str, &'static str)>,
    /// The client by its certificate, if it has shown one.
    pub(crate) identity: Option<PeerIdentity>,
}

impl Tls {
    /// `1.3`.
    pub(crate) fn version(&self) -> Option<&'static str> {
        self.facts.map(|(version, _)| version)
    }

    /// The cipher suite by the name that IANA has for it.
    pub(crate) fn cipher(&self) -> Option<&'static str> {
        self.facts.map(|(_, cipher)| cipher)
    }
}

/// One client connection, as its listener sees it.
pub(crate) struct Connection {
    pub(crate) service: Rc<Service>,
    pub(crate) handle: ConnectionHandle,
    /// The address that the client connected to, if a PROXY header says so.
    local: Option<SocketAddr>,
    pub(crate) tls: Option<Box<Tls>>,
    /// The client's address in X-Forwarded-For.
    pub(crate) peer_name: Box<str>,
    /// The client's certificate in X-Forwarded-Client-Cert.
    pub(crate) client_cert: Option<Box<str>>,
    /// Wakers of its other tasks: tunnels, and waits of policies.
    end_wakers: OnceCell<Roster<EndWaker>>,
}

impl Session for Connection {
    fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }

    fn wake(&self) {
        self.handle.wake();
        if let Some(end_wakers) = self.end_wakers.get() {
            end_wakers.all().iter().filter_map(|one| one.0.borrow_mut().take()).for_each(Waker::wake);
        }
    }
}

/// The waker of one task.
#[derive(Default)]
pub(crate) struct EndWaker(RefCell<Option<Waker>>);

impl EndWaker {
    /// As [`ConnectionHandle::poll_ending`], for one of several tasks of a connection.
    pub(crate) fn poll_ended(&self, connection: &Connection, context: &mut Context<'_>) -> bool {
        *self.0.borrow_mut() = Some(context.waker().clone());
        connection.handle.ending().is_some()
    }
}

impl Connection {
    /// The connection that has arrived, and its stream.
    pub(crate) fn new(service: Rc<Service>, arrival: Arrival) -> (Rc<Self>, Box<Stream>) {
        let Arrival { stream, guard, peer, local, .. } = arrival;
        let (facts, identity) = (stream.tls_facts(), stream.peer_identity());
        let tls = (!stream.is_plain()).then(|| Box::new(Tls { facts, identity }));
        let identity = tls.as_ref().and_then(|tls| tls.identity.as_ref());
        let client_cert = identity.filter(|_| service.http().forwarded_client_cert).map(forward::client_cert);
        let bytes = &service.sessions.core().bytes;
        let handle = ConnectionHandle::new(guard, peer, Some(Box::new(stream.cutter())), bytes);
        stream.output.charge_to(Some(handle.account().clone()));
        stream.count_into(service.sessions.traffic());
        let connection = Self {
            service,
            handle,
            local,
            tls,
            peer_name: forward::peer_name(peer),
            client_cert,
            end_wakers: OnceCell::new(),
        };
        (Rc::new(connection), stream)
    }

    /// The client in the forwarding fields.
    pub(crate) fn forwarded(&self) -> Forwarded<'_> {
        Forwarded { peer: &self.peer_name, is_tls: self.is_tls(), client_cert: self.client_cert.as_deref(), via: None }
    }

    /// It came through TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The address that the client has connected to.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.local.or_else(|| self.handle.local_address())
    }

    /// No further request is taken on it.
    pub(crate) fn is_draining(&self) -> bool {
        self.service.sessions.drain_state() != Drain::Off
    }

    /// Wakes a task at the connection's end and at a drain, until the result is dropped.
    pub(crate) fn end_waker(&self) -> (Rc<EndWaker>, RosterEntry<EndWaker>) {
        let end_waker = Rc::<EndWaker>::default();
        let listed = self.end_wakers.get_or_init(Roster::default).enter(&end_waker);
        (end_waker, listed)
    }

    /// Counts and logs a rule that the client broke. Returns it as the reason of an end.
    pub(crate) fn violated(&self, reason: &'static str, text: &'static str) -> CloseReason {
        self.service.sessions.violated(&self.handle, &Violation::rule(reason, Culprit::Client, text))
    }

    /// The reason to end the connection before its next request, if there is one. Between requests a gentle drain waits a moment: one may
    /// be on its way.
    pub(crate) fn poll_ending(
        &self,
        context: &mut Context<'_>,
        is_between: bool,
        deadline: &Deadline,
    ) -> Option<CloseReason> {
        if let Some(reason) = self.handle.poll_ending(context) {
            return Some(reason);
        }
        match self.service.sessions.drain_state() {
            Drain::Firm if is_between => Some(CloseReason::Drained),
            Drain::Gentle if is_between => {
                let soon = turn::now().saturating_add(DRAIN_GAP);
                if deadline.at().is_none_or(|at| at > soon) {
                    deadline.set(soon);
                }
                None
            }
            _ => None,
        }
    }
}
