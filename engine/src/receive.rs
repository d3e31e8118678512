//! Receiving through the ring: one multishot operation, and what to do with what it has taken when nobody wants more.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use compio::{
    driver::{
        BufferRef, SharedFd,
        op::{RecvFlags, RecvMulti},
    },
    runtime::{CancelToken, Runtime, StreamExt as _, SubmitMultiManaged},
};
use futures_util::Stream as _;
use socket2::Socket;

use crate::chunk::{Chunk, Spare};

type Operation = SubmitMultiManaged<RecvMulti<SharedFd<Socket>>, BufferRef>;
type Received = io::Result<Option<Chunk>>;

/// How long a reader waits for buffers of the pool to come back.
const POOL_WAIT: Duration = Duration::from_millis(1);

/// The multishot receive of one connection. The kernel picks a buffer when data is there, so an idle connection holds none.
pub(crate) struct RingReceive {
    socket: SharedFd<Socket>,
    operation: Option<(Operation, CancelToken)>,
    /// Waiting out an empty buffer pool.
    starved: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Received while nobody wanted more: copied out, so that the pool has its buffers back.
    stash: VecDeque<Chunk>,
    /// How the connection ended, behind the stash.
    end: Option<io::Result<()>>,
}

impl RingReceive {
    pub(crate) fn new(socket: SharedFd<Socket>) -> Self {
        Self { socket, operation: None, starved: None, stash: VecDeque::new(), end: None }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        if let Some(chunk) = self.stash.pop_front() {
            return Poll::Ready(Ok(Some(chunk)));
        }
        if let Some(end) = self.end.take() {
            return Poll::Ready(end.map(|()| None));
        }
        loop {
            if let Some(wait) = &mut self.starved {
                ready!(wait.as_mut().poll(context));
                self.starved = None;
            }
            if let Some(received) = ready!(self.poll_operation(context)) {
                return Poll::Ready(received.map(|buffer| buffer.map(Chunk::Pooled)));
            }
        }
    }

    /// One item of the operation; `None` if it is over and must be made anew.
    fn poll_operation(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Option<BufferRef>>>> {
        let item = match &mut self.operation {
            Some((stream, _)) => ready!(Pin::new(stream).poll_next(context)),
            None => {
                let (stream, first) = self.submit(context);
                self.operation = stream;
                ready!(first)
            }
        };
        Poll::Ready(match item {
            Some(Ok(Some(buffer))) if !buffer.is_empty() => Some(Ok(Some(buffer))),
            Some(Ok(_)) => Some(Ok(None)),
            None => {
                self.operation = None;
                None
            }
            Some(Err(error)) if error.raw_os_error() == Some(libc::ECANCELED) => {
                self.operation = None;
                None
            }
            Some(Err(error)) if is_pool_empty(&error) => {
                self.operation = None;
                self.starved = Some(Box::pin(compio::time::sleep(POOL_WAIT)));
                None
            }
            Some(Err(error)) => Some(Err(error)),
        })
    }

    #[allow(clippy::type_complexity)]
    fn submit(
        &self,
        context: &mut Context<'_>,
    ) -> (Option<(Operation, CancelToken)>, Poll<Option<io::Result<Option<BufferRef>>>>) {
        let made = Runtime::with_current(|runtime| {
            let pool = runtime.buffer_pool()?;
            let operation = RecvMulti::new(self.socket.clone(), &pool, 0, RecvFlags::empty())?;
            io::Result::Ok(runtime.submit_multi(operation).into_managed(pool))
        });
        match made {
            Err(error) => (None, Poll::Ready(Some(Err(error)))),
            Ok(mut stream) => {
                // The first poll submits the operation and registers it with the token; later polls need no wrapper.
                let cancel = CancelToken::new();
                let first = Pin::new(&mut (&mut stream).with_cancel(cancel.clone())).poll_next(context);
                (Some((stream, cancel)), first)
            }
        }
    }

    /// Ends the operation and takes in what it has received: a few dozen buffers at most, as the kernel yields in between.
    pub(crate) async fn pause(&mut self) {
        let Some((_, cancel)) = &self.operation else { return };
        cancel.clone().cancel();
        poll_fn(|context| {
            while self.operation.is_some() {
                match ready!(self.poll_operation(context)) {
                    Some(Ok(Some(buffer))) => self.stash.push_back(Chunk::Spare(Spare::copy_of(&buffer))),
                    Some(end) => {
                        self.end = Some(end.map(|_| ()));
                        self.operation = None;
                    }
                    None => {}
                }
            }
            Poll::Ready(())
        })
        .await;
    }
}

fn is_pool_empty(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy || error.raw_os_error() == Some(libc::ENOBUFS)
}
