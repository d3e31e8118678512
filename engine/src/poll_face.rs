//! The poll face of a stream: `futures` I/O traits over the same two queues, for well-kept crates that expect them.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_io::{AsyncRead, AsyncWrite};

use crate::{Chunk, Stream};

/// A [`Stream`] as `AsyncRead + AsyncWrite`.
///
/// A write appends to the output and is flushed by the writer at the end of the loop turn, so `poll_flush` has nothing to
/// wait for; above the high-water mark writes wait until the peer has read.
pub struct PollStream {
    stream: Stream,
    current: Option<(Chunk, usize)>,
}

impl PollStream {
    /// Wraps a stream.
    pub fn new(stream: Stream) -> Self {
        Self { stream, current: None }
    }

    /// The stream back; bytes received and not yet read are put in front again.
    ///
    /// # Errors
    /// See [`crate::Reader::unread`].
    pub fn into_inner(mut self) -> io::Result<Stream> {
        if let Some((chunk, at)) = self.current.take() {
            self.stream.reader.unread(&chunk[at..])?;
        }
        Ok(self.stream)
    }
}

impl AsyncRead for PollStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.current.is_none() {
            match ready!(this.stream.reader.poll_receive(context))? {
                Some(chunk) => this.current = Some((chunk, 0)),
                None => return Poll::Ready(Ok(0)),
            }
        }
        let Some((chunk, at)) = &mut this.current else { return Poll::Ready(Ok(0)) };
        let count = into.len().min(chunk.len() - *at);
        into[..count].copy_from_slice(&chunk[*at..*at + count]);
        *at += count;
        if *at == chunk.len() {
            this.current = None;
        }
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for PollStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let output = &self.stream.output;
        ready!(output.poll_relieved(context));
        if output.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        output.append(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.finish();
        Poll::Ready(Ok(()))
    }
}
