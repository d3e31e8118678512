//! Receiving through the ring: one operation at a time, into a buffer that the kernel picks when data is there.
//!
//! A multishot receive would save an operation per chunk, but it cannot be stopped while data keeps coming: the kernel finds
//! nothing to cancel in a request that is just being run again. Measured, one client that sends without reading took every
//! buffer of its core, and copying them out took all its memory. With one operation at a time back-pressure is exact.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    pin::Pin,
    task::{Context, Poll, ready},
};

use compio::{
    buf::IoBufMut,
    driver::{
        BufferRef, PollFirst, ResultTakeBuffer, SharedFd,
        op::{RecvFlags, RecvManaged},
    },
    runtime::{Runtime, Submit},
};
use socket2::Socket;

use crate::chunk::{Chunk, SPARE_BYTES, Spare};

type Operation = Submit<RecvManaged<SharedFd<Socket>>>;
type Received = io::Result<Option<Chunk>>;

/// The receive operation of one connection. It takes a buffer of the pool only when data is there.
pub(crate) struct RingReceive {
    socket: SharedFd<Socket>,
    operation: Option<Operation>,
    /// What arrived while nobody wanted more: copied out, so that the pool has its buffer back.
    stash: Option<Received>,
    /// The last chunk did not fill its buffer, so most likely nothing is waiting now.
    is_drained: bool,
}

impl RingReceive {
    pub(crate) fn new(socket: SharedFd<Socket>) -> Self {
        Self { socket, operation: None, stash: None, is_drained: true }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        if let Some(received) = self.stash.take() {
            return Poll::Ready(received);
        }
        loop {
            if !self.is_drained && self.operation.is_none() {
                // More is most likely there: a direct call fills a buffer that is warm, where the pool's come round cold.
                match self.receive_directly() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_drained = true,
                    received => return Poll::Ready(received),
                }
            }
            if self.operation.is_none() {
                self.operation = Some(self.submit()?);
            }
            match ready!(self.poll_operation(context)) {
                Ok(Some(mut buffer)) => {
                    self.is_drained = buffer.len() < buffer.buf_capacity();
                    return Poll::Ready(Ok(Some(Chunk::Pooled(buffer))));
                }
                Ok(None) => return Poll::Ready(Ok(None)),
                // Data is there and no buffer of the pool: take it directly.
                Err(error) if is_pool_empty(&error) => self.is_drained = false,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Frees the buffer of an operation that was under way when its reader stopped wanting more; begins no other.
    pub(crate) fn poll_idle(&mut self, context: &mut Context<'_>) {
        if self.operation.is_none() || self.stash.is_some() {
            return;
        }
        if let Poll::Ready(received) = self.poll_operation(context) {
            let copied = received.map(|buffer| buffer.map(|buffer| Chunk::Spare(Spare::copy_of(&buffer))));
            self.stash = match copied {
                Err(error) if is_pool_empty(&error) => None,
                copied => Some(copied),
            };
        }
    }

    fn receive_directly(&mut self) -> Received {
        let mut spare = Spare::take();
        let count = receive_now(self.socket.as_raw_fd(), spare.vec())?;
        self.is_drained = count < SPARE_BYTES;
        Ok((count > 0).then_some(Chunk::Spare(spare)))
    }

    fn submit(&self) -> io::Result<Operation> {
        Runtime::with_current(|runtime| {
            let pool = runtime.buffer_pool()?;
            let mut operation = RecvManaged::new(self.socket.clone(), &pool, 0, RecvFlags::empty())?;
            if self.is_drained {
                operation.poll_first();
            }
            Ok(runtime.submit(operation))
        })
    }

    fn poll_operation(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<BufferRef>>> {
        let Some(operation) = &mut self.operation else { return Poll::Pending };
        let result = ready!(Pin::new(operation).poll(context));
        self.operation = None;
        // SAFETY: the result belongs to the very operation whose buffer is taken, so its length is initialised.
        let buffer = unsafe { result.take_buffer() }?;
        Poll::Ready(Ok(buffer.filter(|buffer| !buffer.is_empty())))
    }
}

fn is_pool_empty(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// A receive that never blocks, into the spare capacity of an empty vector.
pub(crate) fn receive_now(socket: RawFd, vec: &mut Vec<u8>) -> io::Result<usize> {
    debug_assert!(vec.is_empty() && vec.capacity() >= SPARE_BYTES);
    // SAFETY: the pointer is valid for SPARE_BYTES writes, which the capacity guarantees.
    let count = unsafe { libc::recv(socket, vec.as_mut_ptr().cast(), SPARE_BYTES, libc::MSG_DONTWAIT) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has initialised `count` bytes, at most the capacity.
    unsafe { vec.set_len(count as usize) };
    Ok(count as usize)
}
