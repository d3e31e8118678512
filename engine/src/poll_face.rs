//! The poll face of a stream: tokio's I/O traits over the same two queues, for well-kept crates that expect them. The traits
//! alone: there is no runtime of tokio's behind them.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Chunk, Stream};

/// Sees what arrives before it is read; false: nothing more is to be read.
type Watch = Box<dyn FnMut(&[u8]) -> bool>;

struct Shared {
    stream: Stream,
    current: Option<(Chunk, usize)>,
    watch: Watch,
    is_stopped: bool,
}

/// A [`Stream`] as `AsyncRead + AsyncWrite`.
///
/// A write appends to the output and is flushed by the writer at the end of the loop turn, so `poll_flush` has nothing to
/// wait for; above the high-water mark writes wait until the peer has read.
pub struct PollStream {
    shared: Rc<RefCell<Shared>>,
}

impl PollStream {
    /// Wraps a stream; `received` came on it already, and is read first. `watch` sees every byte once, before it is read;
    /// when it gives false, what it has just seen is never read, nor what comes after, and the task that reads is woken to look
    /// why.
    pub fn new(stream: Stream, received: &[u8], mut watch: impl FnMut(&[u8]) -> bool + 'static) -> Self {
        let mut current = None;
        let is_stopped = !received.is_empty() && !watch(received);
        if !received.is_empty() {
            let mut chunk = Chunk::take();
            chunk.vec().extend_from_slice(received);
            current = Some((chunk, 0));
        }
        let shared = Shared { stream, current, watch: Box::new(watch), is_stopped };
        Self { shared: Rc::new(RefCell::new(shared)) }
    }

    /// Another handle of the same stream, for who wants to have it back from an owner that does not give it.
    pub fn handle(&self) -> Self {
        Self { shared: self.shared.clone() }
    }

    /// The stream back; `None` while another handle lives. Bytes that were received and not read are lost.
    pub fn into_inner(self) -> Option<Stream> {
        Rc::try_unwrap(self.shared).ok().map(|shared| shared.into_inner().stream)
    }
}

impl Shared {
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_stopped {
            return Poll::Pending;
        }
        if self.current.is_none() {
            let Some(chunk) = ready!(self.stream.reader.poll_receive(context))? else { return Poll::Ready(Ok(())) };
            if !(self.watch)(&chunk) {
                self.is_stopped = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.current = Some((chunk, 0));
        }
        let Some((chunk, at)) = &mut self.current else { return Poll::Ready(Ok(())) };
        let count = into.remaining().min(chunk.len() - *at);
        into.put_slice(&chunk[*at..*at + count]);
        *at += count;
        if *at == chunk.len() {
            self.current = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for PollStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.shared.borrow_mut().poll_read(context, into)
    }
}

impl AsyncWrite for PollStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let shared = self.shared.borrow();
        let output = &shared.stream.output;
        ready!(output.poll_relieved(context));
        if output.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        output.with(|into| slices.iter().for_each(|slice| into.extend_from_slice(slice)));
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.borrow().stream.finish();
        Poll::Ready(Ok(()))
    }
}
