//! Replies that are held back. Requests go on being read and carried out when they arrive; a reply leaves when it is due, so
//! that a delay is a delay and not a lower rate.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    task::Poll,
};

use weir_base::Time;
use weir_engine::{Chunk, Reader, sleep};

/// Replies that are not due yet, in order.
#[derive(Default)]
pub(crate) struct DelayedReplies {
    replies: VecDeque<(Time, Vec<u8>)>,
    /// Bytes of all replies.
    pub(crate) bytes: usize,
    timer: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

/// The earliest event.
pub(crate) enum Event {
    /// Something arrived.
    Input(io::Result<Option<Chunk>>),
    /// The first reply is due.
    Due,
}

impl DelayedReplies {
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// When the first reply is due.
    pub(crate) fn first_due(&self) -> Option<Time> {
        self.replies.front().map(|(due, _)| *due)
    }

    pub(crate) fn push(&mut self, due: Time, reply: Vec<u8>) {
        if !reply.is_empty() {
            self.bytes += reply.len();
            self.replies.push_back((due, reply));
        }
    }

    /// The first reply, if it is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Vec<u8>> {
        let (due, _) = self.replies.front()?;
        if *due > now {
            return None;
        }
        let (_, reply) = self.replies.pop_front()?;
        self.bytes -= reply.len();
        Some(reply)
    }

    /// The next chunk, if `reads`, or the time of the first held reply.
    pub(crate) async fn next(&mut self, reader: &mut Reader, reads: bool) -> Event {
        poll_fn(|context| {
            if let Some((due, _)) = self.replies.front() {
                let due = *due;
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(due.since(Time::now()))));
                if timer.as_mut().poll(context).is_ready() {
                    self.timer = None;
                    return Poll::Ready(Event::Due);
                }
            }
            match reads {
                true => reader.poll_receive(context).map(Event::Input),
                false => Poll::Pending,
            }
        })
        .await
    }
}
