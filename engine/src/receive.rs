//! Receiving through the ring: one operation at a time, into a buffer that the kernel picks when data is there.
//!
//! A multishot receive would save an operation per chunk, but it cannot be stopped while data keeps coming: the kernel finds
//! nothing to cancel in a request that is just being run again. Measured, one client that sends without reading took every
//! buffer of its core, and copying them out took all its memory. With one operation at a time back-pressure is exact.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
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

use crate::chunk::{Chunk, Spare};

type Operation = Submit<RecvManaged<SharedFd<Socket>>>;
type Received = io::Result<Option<Chunk>>;

/// How long a reader waits for buffers of the pool to come back.
const POOL_WAIT: Duration = Duration::from_millis(1);

/// The receive operation of one connection. It takes a buffer of the pool only when data is there.
pub(crate) struct RingReceive {
    socket: SharedFd<Socket>,
    operation: Option<Operation>,
    /// Waiting out an empty buffer pool.
    starved: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// What arrived while nobody wanted more: copied out, so that the pool has its buffer back.
    stash: Option<Received>,
    /// The last chunk did not fill its buffer, so most likely nothing is waiting now.
    is_drained: bool,
}

impl RingReceive {
    pub(crate) fn new(socket: SharedFd<Socket>) -> Self {
        Self { socket, operation: None, starved: None, stash: None, is_drained: false }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        if let Some(received) = self.stash.take() {
            return Poll::Ready(received);
        }
        loop {
            if let Some(wait) = &mut self.starved {
                ready!(wait.as_mut().poll(context));
                self.starved = None;
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
                Err(error) if is_pool_empty(&error) => {
                    self.starved = Some(Box::pin(compio::time::sleep(POOL_WAIT)));
                }
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
