//! A client's socket with a deadline on every response.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::seats::Seat;

/// A socket that fails once a response has been waiting for the client for too long.
///
/// The clock starts with the first byte that the socket does not take and stops when the whole response is
/// out (hyper flushes only then). Progress in between does not extend it.
pub(crate) struct ClientStream {
    socket: TcpStream,
    seat: Rc<Seat>,
    response_deadline: Duration,
    overdue: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    pub(crate) fn new(socket: TcpStream, seat: Rc<Seat>, response_deadline: Duration) -> Self {
        Self { socket, seat, response_deadline, overdue: None }
    }

    /// Ready once the response is overdue; starts the clock if it does not run yet.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.seat.set_writing(true);
        let deadline = self.response_deadline;
        self.overdue.get_or_insert_with(|| Box::pin(sleep(deadline))).as_mut().poll(cx)
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = Pin::new(&mut self.socket).poll_write(cx, bytes) {
            return Poll::Ready(result);
        }
        self.poll_overdue(cx).map(|()| Err(response_overdue()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = Pin::new(&mut self.socket).poll_write_vectored(cx, slices) {
            return Poll::Ready(result);
        }
        self.poll_overdue(cx).map(|()| Err(response_overdue()))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.overdue.take().is_some() {
            self.seat.set_writing(false);
        }
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

fn response_overdue() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client does not read its response")
}
