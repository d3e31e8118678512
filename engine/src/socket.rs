//! The data sockets of a worker: direct non-blocking calls, and one epoll instance that says when they are worth making. The worker
//! sleeps there; the instance watches the descriptor of the runtime's driver as well.
//!
//! Each socket is registered once, edge-triggered. Requests of many clients that arrive together are found by one
//! `epoll_wait`, received into one warm buffer, and their output leaves by one `send` each. Receives and sends through io_uring were
//! tried and cost the same (ARCHITECTURE.md, "Direct calls"), but a multishot receive cannot be stopped while data keeps
//! coming, so back-pressure was not exact, and its buffers come round cold.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use slab::Slab;
use socket2::{SockAddr, SockRef, Socket};

use crate::{
    chunk::{BULK_BYTES, CHUNK_BYTES, Chunk},
    output::Output,
};

/// Events taken from the kernel at a time; more wait for the next turn.
const EVENTS_MAX: usize = 1_024;

/// The descriptors of the driver, of wakes and of the alarm among the events; no socket has these keys.
const DRIVER: u64 = u64::MAX;
const WAKES: u64 = u64::MAX - 1;
const ALARM: u64 = u64::MAX - 2;

thread_local! {
    static SOCKETS: RefCell<Option<Rc<Sockets>>> = const { RefCell::new(None) };
}

/// All data sockets of one worker.
pub(crate) struct Sockets {
    epoll: OwnedFd,
    registered: RefCell<Slab<Weak<DataSocket>>>,
    events: RefCell<Vec<libc::epoll_event>>,
}

impl Sockets {
    /// The sockets of the calling thread, whose runtime has the descriptor `driver`. An edge at `wakes` or `alarm` ends a wait.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn start(driver: RawFd, wakes: RawFd, alarm: RawFd) -> io::Result<Rc<Self>> {
        // SAFETY: takes a plain number; the result is checked before it is owned.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let sockets = Rc::new(Self {
            epoll,
            registered: RefCell::default(),
            events: RefCell::new(Vec::with_capacity(EVENTS_MAX)),
        });
        sockets.control(libc::EPOLL_CTL_ADD, driver, libc::EPOLLIN, DRIVER)?;
        sockets.control(libc::EPOLL_CTL_ADD, wakes, libc::EPOLLIN | libc::EPOLLET, WAKES)?;
        sockets.control(libc::EPOLL_CTL_ADD, alarm, libc::EPOLLIN | libc::EPOLLET, ALARM)?;
        SOCKETS.set(Some(sockets.clone()));
        Ok(sockets)
    }

    /// Wakes the tasks that wait for what has happened to their sockets. `sleeps`: waits until something happens.
    pub(crate) fn wait(&self, sleeps: bool) -> Found {
        let mut events = self.events.borrow_mut();
        events.clear();
        let (limit, mask) = (if sleeps { -1 } else { 0 }, std::ptr::null::<libc::sigset_t>());
        let room = events.spare_capacity_mut();
        // SAFETY: room for `room` entries; the mask stays as it is. See `receive_now` for the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                self.epoll.as_raw_fd(),
                room.as_mut_ptr(),
                room.len() as i32,
                limit,
                mask,
                0,
            )
        };
        // Completions that the kernel finishes on the thread of the ring interrupt the wait; others make the ring readable.
        let Ok(count) = usize::try_from(count) else { return Found { has_some: true, has_completions: true } };
        // SAFETY: the kernel has initialised `count` entries of the spare capacity, which is all of it.
        unsafe { events.set_len(count) };
        let registered = self.registered.borrow();
        let mut has_completions = false;
        for event in events.iter() {
            if event.u64 == DRIVER {
                has_completions = true;
            } else if let Some(socket) = registered.get(event.u64 as usize).and_then(Weak::upgrade) {
                socket.on_event(event.events as i32);
            }
        }
        Found { has_some: count > 0, has_completions }
    }

    fn control(&self, operation: i32, socket: RawFd, interest: i32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest as u32, u64: key };
        // SAFETY: a valid pointer to a local, which the kernel copies.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, socket, &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The outcome of a wait for events.
pub(crate) struct Found {
    /// There were events.
    pub(crate) has_some: bool,
    /// The driver may have completions.
    pub(crate) has_completions: bool,
}

/// One direction's side of readiness.
#[derive(Default)]
struct Readiness {
    is_ready: Cell<bool>,
    is_wanted: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl Readiness {
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_ready.get() {
            return Poll::Ready(());
        }
        self.want(context);
        Poll::Pending
    }

    /// The task is to be woken by the next event.
    fn want(&self, context: &mut Context<'_>) {
        self.is_wanted.set(true);
        let waker = match self.waker.take() {
            Some(waker) if waker.will_wake(context.waker()) => waker,
            _ => context.waker().clone(),
        };
        self.waker.set(Some(waker));
    }

    fn set(&self) {
        self.is_ready.set(true);
        if self.is_wanted.take()
            && let Some(waker) = self.waker.take()
        {
            waker.wake_by_ref();
            // The task waits again more often than not.
            self.waker.set(Some(waker));
        }
    }
}

/// A socket that carries data, registered with its worker until it is dropped: a connected stream, or datagrams.
pub(crate) struct DataSocket {
    socket: Socket,
    sockets: Rc<Sockets>,
    key: usize,
    readable: Readiness,
    writable: Readiness,
    /// The peer has sent its last byte, or the connection is broken: there is no further event to wait for.
    ended: Readiness,
    /// The connection was reset, or both directions are closed.
    is_broken: Cell<bool>,
    /// Its last receive filled a buffer: there is more where that came from.
    sends_much: Cell<bool>,
    /// Room to write is watched from the first send on that found none.
    watches_room: Cell<bool>,
    /// The connection goes on elsewhere.
    is_released: Cell<bool>,
}

impl DataSocket {
    /// Registers a socket with the calling worker. Whether it is non-blocking does not matter: each call on it says so.
    ///
    /// # Errors
    /// No memory or watches left in the kernel.
    ///
    /// # Panics
    /// Outside a worker thread.
    pub(crate) fn new(socket: Socket) -> io::Result<Rc<Self>> {
        let sockets = SOCKETS.with_borrow(|sockets| sockets.clone()).expect("on a worker thread");
        let enter = |me: &Weak<Self>| sockets.registered.borrow_mut().insert(me.clone());
        let socket = Rc::new_cyclic(|me| Self {
            key: enter(me),
            socket,
            sockets: sockets.clone(),
            readable: Readiness::default(),
            writable: Readiness::default(),
            ended: Readiness::default(),
            is_broken: Cell::new(false),
            sends_much: Cell::new(false),
            watches_room: Cell::new(false),
            is_released: Cell::new(false),
        });
        socket.watch(libc::EPOLL_CTL_ADD, 0)?;
        Ok(socket)
    }

    /// Waits until there is something to receive, or a connection to accept.
    pub(crate) async fn readable(&self) {
        poll_fn(|context| self.readable.poll(context)).await;
    }

    /// The last poll of the worker's sockets found something to receive, and it was not all received.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.readable.is_ready.get()
    }

    /// The task is to be woken when there is something to receive.
    pub(crate) fn want_readable(&self, context: &mut Context<'_>) {
        self.readable.want(context);
    }

    /// There was nothing: [`DataSocket::readable`] waits for the next event.
    pub(crate) fn found_nothing(&self) {
        self.readable.is_ready.set(false);
    }

    /// Shuts a direction down; its waiters get the events of that. A released connection is no longer ours to end.
    pub(crate) fn shut_down(&self, direction: Shutdown) {
        if !self.is_released.get() {
            let _ = self.socket.shutdown(direction);
        }
    }

    /// The end of the connection that is here.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Closing it will reset the connection.
    pub(crate) fn reset_at_close(&self) {
        if !self.is_released.get() {
            let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
        }
    }

    /// A descriptor for the code that continues the connection.
    ///
    /// # Errors
    /// No descriptors left; then it is not released.
    pub(crate) fn release(&self) -> io::Result<OwnedFd> {
        let copy = self.socket.as_fd().try_clone_to_owned()?;
        self.is_released.set(true);
        Ok(copy)
    }

    /// Ready once the peer has sent its last byte, however much of what it sent is unread, or the connection is broken.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        self.ended.poll(context)
    }

    /// Ready once the connection is broken. One task at a time waits for this or for the end.
    pub(crate) fn poll_broken(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_broken.get() {
            return Poll::Ready(());
        }
        self.ended.want(context);
        Poll::Pending
    }

    /// The peer has sent its last byte, or the connection is broken, as the kernel has it now: the last look at all sockets may be older. It
    /// costs a system call.
    pub(crate) fn has_ended_now(&self) -> bool {
        if self.ended.is_ready.get() {
            return true;
        }
        let mut look = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: a valid pointer to one entry, which is a local; the call does not wait.
        let count = unsafe { libc::poll(&mut look, 1, 0) };
        count > 0
    }

    /// The next receive asks the kernel.
    pub(crate) fn expect_more(&self) {
        self.readable.is_ready.set(true);
    }

    /// The next bytes; `None` once the peer has closed its write side.
    ///
    /// No more than `limit` bytes, nor than [`CHUNK_BYTES`] unless the peer sends much, nor than [`BULK_BYTES`].
    pub(crate) fn poll_receive(&self, context: &mut Context<'_>, limit: usize) -> Poll<io::Result<Option<Chunk>>> {
        loop {
            ready!(self.readable.poll(context));
            let is_bulk = limit > CHUNK_BYTES && self.sends_much.get();
            let (mut chunk, size) = match is_bulk {
                true => (Chunk::take_bulk(), BULK_BYTES),
                false => (Chunk::take(), CHUNK_BYTES),
            };
            let most = size.min(limit);
            match receive_now(self.socket.as_raw_fd(), chunk.vec(), most) {
                Ok(0) => return Poll::Ready(Ok(None)),
                Ok(count) => {
                    // A stream that gave less than was requested is empty (epoll(7)), and its next bytes are an event. But
                    // its end may have been announced together with these bytes.
                    self.readable.is_ready.set(count >= most || self.ended.is_ready.get());
                    self.sends_much.set(count >= CHUNK_BYTES);
                    return Poll::Ready(Ok(Some(chunk)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable.is_ready.set(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// The next datagram and its sender.
    pub(crate) fn poll_receive_from(&self, context: &mut Context<'_>) -> Poll<io::Result<(Chunk, SocketAddr)>> {
        loop {
            ready!(self.readable.poll(context));
            // A buffer for bulk holds the longest datagram.
            let mut chunk = Chunk::take_bulk();
            match receive_from_now(&self.socket, chunk.vec()) {
                Ok(sender) => return Poll::Ready(Ok((chunk, sender))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable.is_ready.set(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends one datagram; false if there is no room for it.
    pub(crate) fn send_to(&self, bytes: &[u8], to: &SockAddr) -> io::Result<bool> {
        match self.socket.send_to_with_flags(bytes, to, libc::MSG_DONTWAIT) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends what the socket takes at once; how much that is.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        match send_now(self.socket.as_raw_fd(), bytes) {
            Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            sent => sent,
        }
    }

    /// Sends all of `bytes`, however long the peer takes; tells `output` of each step.
    pub(crate) async fn send_all(&self, bytes: &[u8], output: &Output) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            match send_now(self.socket.as_raw_fd(), &bytes[at..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    at += count;
                    output.note_progress(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable.is_ready.set(false);
                    if !self.watches_room.replace(true) {
                        self.watch(libc::EPOLL_CTL_MOD, libc::EPOLLOUT)?;
                    }
                    poll_fn(|context| self.writable.poll(context)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn watch(&self, operation: i32, also: i32) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET | also;
        self.sockets.control(operation, self.socket.as_raw_fd(), interest, self.key as u64)
    }

    fn on_event(&self, events: i32) {
        let is_broken = events & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
        if is_broken {
            self.is_broken.set(true);
        }
        if is_broken || events & libc::EPOLLRDHUP != 0 {
            self.ended.set();
        }
        if self.ended.is_ready.get() || events & libc::EPOLLIN != 0 {
            self.readable.set();
        }
        if is_broken || events & libc::EPOLLOUT != 0 {
            self.writable.set();
        }
    }
}

impl Drop for DataSocket {
    fn drop(&mut self) {
        // By hand, because a copy of the descriptor elsewhere would keep the registration alive.
        let _ = self.watch(libc::EPOLL_CTL_DEL, 0);
        self.sockets.registered.borrow_mut().remove(self.key);
    }
}

/// A receive that never blocks, into the capacity of an empty vector.
///
/// Not by libc's own `recv`, nor `send` below: those are places where a thread can be cancelled, and preparing for that at each
/// call costs as much as parsing a head.
fn receive_now(socket: RawFd, vec: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    debug_assert!(vec.is_empty());
    let room = most.min(vec.capacity());
    let (nobody, flags) = (std::ptr::null::<u8>(), libc::MSG_DONTWAIT);
    // SAFETY: the pointer is valid for `room` writes, which the capacity guarantees; the address is not requested.
    let count = unsafe { libc::syscall(libc::SYS_recvfrom, socket, vec.as_mut_ptr(), room, flags, nobody, nobody) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has initialised `count` bytes, at most the capacity.
    unsafe { vec.set_len(count) };
    Ok(count)
}

/// A receive of one datagram that never blocks, into the capacity of an empty vector; its sender.
fn receive_from_now(socket: &Socket, vec: &mut Vec<u8>) -> io::Result<SocketAddr> {
    debug_assert!(vec.is_empty());
    let (count, sender) = socket.recv_from_with_flags(vec.spare_capacity_mut(), libc::MSG_DONTWAIT)?;
    // SAFETY: the kernel has initialised `count` bytes, at most the spare capacity.
    unsafe { vec.set_len(count) };
    sender.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn send_now(socket: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let (nobody, flags) = (std::ptr::null::<u8>(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: the pointer is valid for `bytes.len()` reads for the duration of the call; the address is that of the peer.
    let count = unsafe { libc::syscall(libc::SYS_sendto, socket, bytes.as_ptr(), bytes.len(), flags, nobody, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
