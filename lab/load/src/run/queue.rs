//! The requests on their way on one connection, in the order of their replies.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use weir_base::Time;

use super::tally::{EventTimes, SentRequest};
use crate::wire::ReplyTo;

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    requests: RefCell<VecDeque<SentRequest>>,
    /// The last so many were appended and not yet handed to the kernel.
    unstamped: Cell<usize>,
    /// The subscriber has reconnected. It may still receive messages from before the moment from which it is counted again.
    pub(super) is_back: Cell<bool>,
}

impl Queue {
    pub(super) fn push(&self, request: SentRequest) {
        self.requests.borrow_mut().push_back(request);
        self.unstamped.set(self.unstamped.get() + 1);
    }

    /// The kernel gets all that was appended now.
    pub(super) fn stamp(&self) {
        let count = self.unstamped.take();
        if count > 0 {
            let now = Time::now().as_nanos();
            self.requests.borrow_mut().iter_mut().rev().take(count).for_each(|request| request.sent = now);
        }
    }

    /// The request that a reply belongs to; `None` if there was no request.
    pub(super) fn pop(&self, of: ReplyTo) -> Option<SentRequest> {
        let mut requests = self.requests.borrow_mut();
        match of {
            ReplyTo::Oldest => requests.pop_front_if(|request| request.sent > 0),
            ReplyTo::Stream(stream) => {
                // Their numbers rise.
                let at = requests.binary_search_by_key(&stream, |request| request.stream).ok()?;
                if requests[at].sent == 0 {
                    return None;
                }
                requests.remove(at)
            }
        }
    }

    /// Notes an event of the oldest reply that arrived at `now`; `None` if there was no request.
    pub(super) fn note_event(&self, now: u64) -> Option<EventTimes> {
        let mut requests = self.requests.borrow_mut();
        let request = requests.front_mut().filter(|request| request.sent > 0)?;
        Some(request.note_event(now))
    }

    /// Removes the copy of a message that its subscriber will not receive.
    pub(super) fn remove(&self, index: u64) -> Option<SentRequest> {
        let mut requests = self.requests.borrow_mut();
        let at = requests.iter().position(|request| request.index == index)?;
        requests.remove(at)
    }

    /// Where the first stands that is wanted.
    pub(super) fn position(&self, is_wanted: impl Fn(&SentRequest) -> bool) -> Option<usize> {
        self.requests.borrow().iter().position(is_wanted)
    }

    /// Those on streams above `stream`.
    pub(super) fn split_off_above(&self, stream: u32) -> VecDeque<SentRequest> {
        let mut requests = self.requests.borrow_mut();
        let at = requests.partition_point(|request| request.stream <= stream);
        let above = requests.split_off(at);
        self.unstamped.set(self.unstamped.get().saturating_sub(above.len()));
        above
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.borrow().is_empty()
    }

    pub(super) fn drain(&self) -> VecDeque<SentRequest> {
        self.unstamped.set(0);
        self.requests.take()
    }
}
