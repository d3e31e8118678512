//! The body of a request in memory: the part that is read before an origin gets it, and the part that a retry may need.

use std::cell::RefCell;

use bytes::Bytes;
use weir_base::{ByteLease, BytesPermit};
use weir_http_codec::Fields;

use crate::{
    body::{BodyError, Sink, Source, sink_ready},
    body_change::{ChangeError, CheckedChange, Position},
    filter::BodyChange,
    limits::BODY_PIECE_BYTES,
};

/// The beginning of a body, or all of it. Its memory belongs to `limits.buffered_bytes`, and bodies take at most half of that: uploads
/// leave the rest to others.
pub(crate) struct BufferedBody {
    bytes: Vec<u8>,
    trailers: Option<Fields>,
    lease: ByteLease,
    permit: BytesPermit,
    /// Bytes to read before an origin gets the request.
    buffer: usize,
    /// Bytes to keep of a body on its way, for a retry.
    most: usize,
    /// No origin has received the request.
    is_buffering: bool,
    /// There is no room for more.
    is_full: bool,
    /// It is on its way to an origin.
    is_sending: bool,
    /// It is not needed any more.
    is_released: bool,
    /// Not all that has come is here.
    is_lost: bool,
    /// The change with which it goes on.
    change: Option<Box<CheckedChange>>,
}

impl BufferedBody {
    /// Reads `buffer` bytes before an origin gets the request, and keeps `most` bytes after that.
    pub(crate) fn new(lease: &ByteLease, buffer: usize, most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            trailers: None,
            lease: lease.clone(),
            permit: lease.empty(),
            buffer,
            most,
            is_buffering: buffer > 0,
            is_full: false,
            is_sending: false,
            is_released: false,
            is_lost: false,
            change: None,
        }
    }

    /// It is long enough, or there is no memory for more: it goes on as it is.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full || self.bytes.len() >= self.buffer
    }

    /// No more of it is waited for; gives its length if it is whole and has no trailers.
    pub(crate) fn begin(&mut self, is_whole: bool) -> Option<u64> {
        self.is_buffering = false;
        (is_whole && self.trailers.is_none()).then_some(self.bytes.len() as u64)
    }

    /// An origin may have received a part of it.
    pub(crate) fn is_begun(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// All that has come is here.
    pub(crate) fn is_all(&self) -> bool {
        !self.is_lost
    }

    /// It goes on with this change in place of an earlier one. Returns its length, if `came` is that of the body as it came.
    ///
    /// # Errors
    /// The filter broke a rule, or there is no memory.
    pub(crate) fn change(&mut self, change: BodyChange, is_whole: bool, came: u64) -> Result<u64, ChangeError> {
        self.change = None;
        self.change = CheckedChange::new(change, self.bytes.len(), is_whole, &self.lease)?.map(Box::new);
        Ok(self.change.as_ref().map_or(came, |change| change.length(came)))
    }

    /// All that is here, and the permit for its memory.
    pub(crate) fn into_parts(self) -> (Bytes, BytesPermit) {
        (self.bytes.into(), self.permit)
    }

    /// Raises the bytes to keep to `most`.
    pub(crate) fn keep(&mut self, most: usize) {
        self.most = self.most.max(most);
    }

    /// All that is here, as it came.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// It is not sent again.
    pub(crate) fn release(&mut self) {
        self.is_released = true;
        // A body on its way is still needed.
        if !self.is_sending {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.is_lost = true;
        self.change = None;
        self.bytes = Vec::new();
        self.permit.shrink(u64::MAX);
    }

    /// More of it.
    pub(crate) fn add(&mut self, data: &[u8]) {
        if self.is_lost {
            return;
        }
        let length = self.bytes.len() + data.len();
        if self.is_buffering {
            // Received bytes cannot be left: one piece of each body may be here without a permit.
            self.is_full |= !self.grow(length);
            self.bytes.reserve_exact(data.len());
            self.bytes.extend_from_slice(data);
        } else if self.is_released || length > self.most || !self.grow(length) {
            self.give_up();
        } else {
            self.bytes.extend_from_slice(data);
        }
    }

    /// Room for so much in all.
    fn grow(&mut self, length: usize) -> bool {
        if length as u64 <= self.permit.bytes() {
            return true;
        }
        let room = length.next_power_of_two();
        if !self.lease.is_half_free() || !self.permit.resize(room as u64) {
            return false;
        }
        self.bytes.reserve_exact(room - self.bytes.len());
        true
    }

    /// The trailers of the body.
    pub(crate) fn end(&mut self, trailers: &Fields) {
        self.trailers = Some(trailers.clone());
    }

    /// Passes on what follows `position`, until the sink has to be checked for room. Returns whether that was the rest.
    fn pass(&self, position: &mut Position, is_whole: bool, sink: &mut impl Sink) -> bool {
        let change = self.change.as_deref();
        let mut room = BODY_PIECE_BYTES;
        loop {
            let piece = position.next(&self.bytes, change, room);
            room -= piece.len();
            let is_over = position.is_end(&self.bytes, change);
            match &self.trailers {
                _ if !(is_over && is_whole) => sink.data(piece),
                None => sink.last(piece),
                trailers => {
                    sink.data(piece);
                    sink.end(trailers.as_ref());
                }
            }
            if is_over || room == 0 {
                return is_over;
            }
        }
    }

    /// Sends what is here of the body that comes from `source`.
    pub(crate) async fn send(
        buffered: &RefCell<Self>,
        source: &mut impl Source,
        sink: &mut impl Sink,
    ) -> Result<(), BodyError> {
        buffered.borrow_mut().is_sending = true;
        let (mut position, is_whole) = (Position::default(), source.is_done());
        loop {
            let is_over = buffered.borrow().pass(&mut position, is_whole, sink);
            if is_over {
                break;
            }
            sink_ready(source, sink).await?;
        }
        {
            let mut buffered = buffered.borrow_mut();
            buffered.is_sending = false;
            if buffered.is_released {
                buffered.give_up();
            }
        }
        sink_ready(source, sink).await
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use futures_util::FutureExt as _;
    use weir_base::Budget;

    use super::*;

    /// Takes everything, and releases the original after the first piece.
    struct ReleasingSink<'a> {
        taken: Vec<u8>,
        is_ended: bool,
        buffered: &'a RefCell<BufferedBody>,
    }

    impl Sink for ReleasingSink<'_> {
        fn data(&mut self, data: &[u8]) {
            self.taken.extend_from_slice(data);
        }

        fn end(&mut self, _: Option<&Fields>) {
            self.is_ended = true;
        }

        async fn ready(&mut self) -> Result<(), BodyError> {
            self.buffered.borrow_mut().release();
            Ok(())
        }
    }

    /// A body that is over.
    struct Whole;

    impl Source for Whole {
        fn is_done(&self) -> bool {
            true
        }

        async fn fill(&mut self) -> Result<(), BodyError> {
            Ok(())
        }

        fn pass(&mut self, _: &mut impl Sink) -> Result<(), BodyError> {
            Ok(())
        }
    }

    /// A client that leaves in the middle of its body.
    struct Leaving;

    impl Source for Leaving {
        fn is_done(&self) -> bool {
            false
        }

        async fn fill(&mut self) -> Result<(), BodyError> {
            std::future::pending().await
        }

        fn pass(&mut self, _: &mut impl Sink) -> Result<(), BodyError> {
            Ok(())
        }

        fn poll_arrived(&mut self, _: &mut Context<'_>) -> Poll<BodyError> {
            Poll::Ready(BodyError::Cancelled)
        }
    }

    /// Never has room for more.
    struct Full;

    impl Sink for Full {
        fn data(&mut self, _: &[u8]) {}

        fn end(&mut self, _: Option<&Fields>) {}

        async fn ready(&mut self) -> Result<(), BodyError> {
            std::future::pending().await
        }
    }

    #[test]
    fn a_disconnect_is_noticed_while_a_buffered_body_is_sent() {
        for bytes in [10, 2 * BODY_PIECE_BYTES] {
            let buffered = RefCell::new(BufferedBody::new(&ByteLease::new(Budget::new(8 << 20)), 1 << 20, 0));
            buffered.borrow_mut().add(&vec![7; bytes]);
            buffered.borrow_mut().begin(false);
            let sent = BufferedBody::send(&buffered, &mut Leaving, &mut Full).now_or_never();
            assert_eq!(sent, Some(Err(BodyError::Cancelled)), "{bytes}");
        }
    }

    #[test]
    fn a_buffered_body_released_while_it_is_sent_is_sent_to_its_end_and_then_freed() {
        let (budget, body) = (Budget::new(8 << 20), (0..200_000).map(|at| at as u8).collect::<Vec<_>>());
        let lease = ByteLease::with_step(budget.clone(), 1);
        let buffered = RefCell::new(BufferedBody::new(&lease, 1 << 20, 0));
        body.chunks(10_000).for_each(|piece| buffered.borrow_mut().add(piece));
        assert_eq!(buffered.borrow_mut().begin(true), Some(200_000));
        let mut sink = ReleasingSink { taken: Vec::new(), is_ended: false, buffered: &buffered };
        assert_eq!(BufferedBody::send(&buffered, &mut Whole, &mut sink).now_or_never(), Some(Ok(())));
        assert!(sink.taken == body && sink.is_ended);
        assert!(!buffered.borrow().is_all() && lease.in_use() == 0);
    }

    #[test]
    fn bodies_take_half_of_the_budget_and_lose_nothing_beyond_it() {
        let budget = Budget::new(1 << 20);
        let lease = ByteLease::with_step(budget.clone(), 1);
        let bodies: Vec<_> = (0..4)
            .map(|_| {
                let mut buffered = BufferedBody::new(&lease, 512 << 10, 0);
                while !buffered.is_full() {
                    buffered.add(&[7; 16 << 10]);
                }
                buffered
            })
            .collect();
        assert!(budget.in_use() <= (1 << 19) + (256 << 10), "{}", budget.in_use());
        assert!(bodies.last().is_some_and(|last| last.len() == 16 << 10 && last.is_all()), "it goes on at once");
        drop(bodies);
        assert_eq!(lease.in_use(), 0);
    }

    #[test]
    fn a_body_longer_than_the_retry_buffer_is_not_complete() {
        let lease = ByteLease::new(Budget::new(8 << 20));
        let mut buffered = BufferedBody::new(&lease, 0, 10);
        buffered.add(b"0123456789");
        assert!(buffered.is_all() && buffered.is_begun());
        buffered.add(b"x");
        assert!(!buffered.is_all() && lease.in_use() == 0);
    }
}
