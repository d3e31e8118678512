//! The handle by which a listener lists, wakes and ends one of its connections.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Waker},
};

use weir_base::{
    connection::ConnectionEntry,
    permit::{ByteLease, BytesPermit},
    time::turn,
};
use weir_engine::{Account, Cutter};
use weir_telemetry::log::Peer;

use crate::{
    close::CloseReason,
    connections::{ConnectionGuard, ConnectionTable},
};

/// The bytes that are held for one connection, charged to `limits.buffered_bytes` and shown in its row of the table.
pub struct ConnectionAccount {
    permit: RefCell<BytesPermit>,
    entry: Arc<ConnectionEntry>,
}

impl ConnectionAccount {
    /// Bytes that are charged.
    pub fn bytes(&self) -> u64 {
        self.permit.borrow().bytes()
    }
}

impl Account for ConnectionAccount {
    fn charge(&self, before: usize, now: usize) -> bool {
        let has_room = self.permit.charge(before, now);
        self.entry.buffered.store(self.bytes(), Relaxed);
        has_room
    }
}

/// The transport of a connection, as its listener sees it: a socket, or a connection within one.
pub trait AbortTransport {
    /// Ends both directions now. Buffered bytes are lost, and the task of the session sees the end.
    fn cut(&self);

    /// The address that the peer has connected to. `None`: a Unix socket, or a broken connection.
    fn local_address(&self) -> Option<SocketAddr>;
}

impl AbortTransport for Cutter {
    fn cut(&self) {
        self.cut();
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.local_address()
    }
}

/// The part of a connection that is the same for every protocol.
///
/// The task of a session calls [`ConnectionHandle::register`] or [`ConnectionHandle::poll_ending`] before it waits. The listener
/// ends and wakes a session by [`Session::end`](crate::Session::end) and [`Session::wake`](crate::Session::wake).
pub struct ConnectionHandle {
    guard: ConnectionGuard,
    peer: Peer,
    /// `None`: the task ends by itself when it is woken.
    transport: Option<Box<dyn AbortTransport>>,
    account: Rc<ConnectionAccount>,
    waker: RefCell<Option<Waker>>,
    is_woken: Cell<bool>,
    ending: Cell<Option<CloseReason>>,
}

impl ConnectionHandle {
    /// The handle of a connection that stands in the table by `guard`, and whose bytes are charged to `lease`. An end cuts its
    /// transport, if it comes with one.
    pub fn new(
        guard: ConnectionGuard,
        peer: Peer,
        transport: Option<Box<dyn AbortTransport>>,
        lease: &ByteLease,
    ) -> Self {
        let (waker, is_woken, ending) = (RefCell::default(), Cell::new(false), Cell::new(None));
        let account = ConnectionAccount { permit: RefCell::new(lease.empty()), entry: guard.entry().clone() };
        Self { guard, peer, transport, account: Rc::new(account), waker, is_woken, ending }
    }

    /// The account of the bytes that are held for the connection, at its client's side and at that of its origins.
    pub fn account(&self) -> &Rc<ConnectionAccount> {
        &self.account
    }

    /// The number of the connection, by which operators and other clients name it.
    pub fn id(&self) -> u64 {
        self.guard.entry().id
    }

    /// The address of the client.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The address that the client has connected to, as its transport has it.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.transport.as_ref().and_then(|transport| transport.local_address())
    }

    /// The row of the connection in the table.
    pub fn entry(&self) -> &Arc<ConnectionEntry> {
        self.guard.entry()
    }

    /// The table of all connections.
    pub fn table(&self) -> &Arc<ConnectionTable> {
        self.guard.table()
    }

    /// Notes the reason of the end, if it is the first, and cuts the transport.
    pub(crate) fn end(&self, reason: CloseReason) {
        if self.ending.get().is_none() {
            self.ending.set(Some(reason));
            if let Some(transport) = &self.transport {
                transport.cut();
            }
        }
    }

    /// Lets the task of the session look around.
    pub fn wake(&self) {
        self.is_woken.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Tells whether the task was woken since the last call.
    pub fn take_woken(&self) -> bool {
        self.is_woken.take()
    }

    /// The reason of the end, if the listener has ended the connection.
    pub fn ending(&self) -> Option<CloseReason> {
        self.ending.get()
    }

    /// As [`ConnectionHandle::ending`]; the task is woken at the end.
    pub fn poll_ending(&self, context: &Context<'_>) -> Option<CloseReason> {
        self.register(context);
        self.ending.get()
    }

    /// Wakes the task of `context` at the next [`ConnectionHandle::wake`].
    pub fn register(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }

    /// An exchange begins.
    pub fn begins(&self) {
        let entry = self.entry();
        entry.in_flight.fetch_add(1, Relaxed);
        entry.active_at.store(turn::now().as_nanos(), Relaxed);
    }

    /// An exchange is over.
    pub fn ends(&self) {
        self.entry().in_flight.fetch_sub(1, Relaxed);
    }
}
