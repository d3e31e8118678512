//! Bodies, both ways at once: what arrives goes out in the same turn, and who is not read from by the other side is not read.

use std::{
    cell::RefCell,
    future::{Future as _, poll_fn},
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use weir_base::{limits, time::turn};
use weir_engine::{Deadline, Output};
use weir_http_codec::{Fields, WireError};

use crate::{kept::Kept, policies};

/// Why a body did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Who sends it broke a rule.
    Malformed(WireError),
    /// Who sends it went away.
    Cut,
    /// Who sends it wants no answer any more, and has said so.
    Cancelled,
    /// Who sends it paused for too long.
    Idle,
    /// It is longer than it may be.
    TooLong,
    /// Who takes it is gone.
    Untaken,
    /// Who takes it takes nothing, or next to nothing, for too long.
    Stalled,
    /// Its receiver is not taking it, and others need the memory.
    GivenUp,
}

/// Where a body comes from.
pub(crate) trait Source {
    /// All of it has been passed on.
    fn is_done(&self) -> bool;

    /// Waits until something can be passed on, or the body is over.
    async fn fill(&mut self) -> Result<(), Broken>;

    /// Passes on all that is there, and the end of the body if it is.
    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken>;

    /// Looks at what arrives while the sink has no room; ready if the body is given up for it.
    fn poll_arrived(&mut self, _: &mut Context<'_>) -> Poll<Broken> {
        Poll::Pending
    }

    /// The gateway lets less of it come than its sender may want to send.
    fn is_held_back(&self) -> bool {
        false
    }
}

/// Where a body goes.
pub(crate) trait Sink {
    /// A piece of it, which may be empty.
    fn data(&mut self, data: &[u8]);

    /// There is no more of it.
    fn end(&mut self, trailers: Option<&Fields>);

    /// The last piece, when that is known with it.
    fn last(&mut self, data: &[u8]) {
        self.data(data);
        self.end(None);
    }

    /// Waits until it has room for more.
    async fn relieved(&mut self) -> Result<(), Broken>;
}

/// A place of which only so much is taken, and not every trailer. What is past it goes nowhere, and the body has no end there.
pub(crate) struct Limited<'a, S> {
    sink: S,
    /// Names of fields that do not pass in trailers.
    dropped: &'a [Box<str>],
    /// Gets the same, if a mirror wants it.
    copied: Option<&'a RefCell<Copied>>,
    /// Keeps it, if it may have to be sent later or again.
    kept: Option<&'a RefCell<Kept>>,
    /// Bytes that may still come.
    pub(crate) room: u64,
    is_too_long: bool,
}

impl<'a, S: Sink> Limited<'a, S> {
    pub(crate) fn new(
        sink: S,
        room: u64,
        dropped: &'a [Box<str>],
        copied: Option<&'a RefCell<Copied>>,
        kept: Option<&'a RefCell<Kept>>,
    ) -> Self {
        Self { sink, dropped, copied, kept, room, is_too_long: false }
    }

    /// Sends what is kept of the body that comes from `source`: it was read before, or sent to another origin.
    pub(crate) async fn again(&mut self, source: &mut impl Source) -> Result<(), Broken> {
        let Some(kept) = self.kept else {
            self.sink.last(b"");
            return self.sink.relieved().await;
        };
        self.room = self.room.saturating_sub(kept.borrow().len() as u64);
        Kept::send(kept, source, &mut self.sink).await
    }

    fn copy(&self, data: &[u8]) {
        if let Some(copied) = self.copied {
            copied.borrow_mut().add(data);
        }
        if let Some(kept) = self.kept {
            kept.borrow_mut().add(data);
        }
    }

    fn end_with(&mut self, trailers: &Fields) {
        if let Some(kept) = self.kept {
            kept.borrow_mut().end(trailers);
        }
        self.sink.end(Some(trailers));
    }

    /// Whether these bytes may pass.
    fn takes(&mut self, data: &[u8]) -> bool {
        match self.room.checked_sub(data.len() as u64) {
            Some(room) if !self.is_too_long => self.room = room,
            _ => self.is_too_long = true,
        }
        !self.is_too_long
    }
}

impl<S: Sink> Sink for Limited<'_, S> {
    fn data(&mut self, data: &[u8]) {
        if self.takes(data) {
            self.copy(data);
            self.sink.data(data);
        }
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        match trailers {
            _ if self.is_too_long => {}
            Some(trailers) if !self.dropped.is_empty() => {
                let mut trailers = trailers.clone();
                policies::clean(self.dropped, &mut trailers);
                self.end_with(&trailers);
            }
            Some(trailers) => self.end_with(trailers),
            None => self.sink.end(None),
        }
    }

    fn last(&mut self, data: &[u8]) {
        if self.takes(data) {
            self.copy(data);
            self.sink.last(data);
        }
    }

    async fn relieved(&mut self) -> Result<(), Broken> {
        if self.is_too_long { Err(Broken::TooLong) } else { self.sink.relieved().await }
    }
}

/// Takes what nobody wants.
pub(crate) struct Nowhere;

impl Sink for Nowhere {
    fn data(&mut self, _: &[u8]) {}

    fn end(&mut self, _: Option<&Fields>) {}

    async fn relieved(&mut self) -> Result<(), Broken> {
        Ok(())
    }
}

/// A copy of a body, up to a length.
pub(crate) struct Copied {
    bytes: Vec<u8>,
    most: usize,
    is_too_long: bool,
}

impl Copied {
    pub(crate) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, is_too_long: false }
    }

    fn add(&mut self, data: &[u8]) {
        if self.is_too_long || self.bytes.len() + data.len() > self.most {
            (self.is_too_long, self.bytes) = (true, Vec::new());
        } else {
            self.bytes.extend_from_slice(data);
        }
    }

    /// All of it; `None` if it is too long.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        (!self.is_too_long).then(|| std::mem::take(&mut self.bytes))
    }
}

impl Sink for Copied {
    fn data(&mut self, data: &[u8]) {
        self.add(data);
    }

    fn end(&mut self, _: Option<&Fields>) {}

    async fn relieved(&mut self) -> Result<(), Broken> {
        if self.is_too_long { Err(Broken::TooLong) } else { Ok(()) }
    }
}

/// The body of a request, and who sends it.
pub(crate) trait RequestBody: Source {
    /// Ready once nobody waits for an answer any more. What the client sends meanwhile is kept.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Bytes that were received for it, where they are not counted elsewhere.
    fn received(&self) -> u64;
}

/// Moves a body to its end.
pub(crate) async fn relay(source: &mut impl Source, sink: &mut impl Sink) -> Result<(), Broken> {
    while !source.is_done() {
        source.fill().await?;
        source.pass(sink)?;
        passed(source, sink).await?;
    }
    Ok(())
}

/// How long a body may be waited for before its rate counts, and over how long it is taken. The wait for its first bytes does not
/// count: the client may wait for a word of the origin (`Expect: 100-continue`), and `body_idle_timeout` bounds it.
const RATE_PERIOD: Duration = Duration::from_secs(10);

/// As [`relay`], until `is_enough`, from a client that must not be slower than `rate` bytes a second, in the time in which it was
/// waited for and could send. 0: as slow as it likes.
pub(crate) async fn relay_paced<S: Sink>(
    source: &mut impl Source,
    sink: &mut Limited<'_, S>,
    rate: u64,
    is_enough: impl Fn() -> bool,
) -> Result<(), Broken> {
    let (mut waited, mut before) = (Duration::ZERO, sink.room);
    let mut has_begun = false;
    while !source.is_done() && !is_enough() {
        let (since, was_held_back) = (turn::now(), source.is_held_back());
        source.fill().await?;
        if std::mem::replace(&mut has_begun, true) && !was_held_back && !source.is_held_back() {
            waited += turn::now().since(since);
        }
        source.pass(sink)?;
        // What is over was not too slow, however short it is.
        if waited >= RATE_PERIOD && rate > 0 && !source.is_done() {
            if before - sink.room < rate * waited.as_secs() {
                return Err(Broken::Idle);
            }
            (waited, before) = (Duration::ZERO, sink.room);
        }
        passed(source, sink).await?;
    }
    Ok(())
}

/// Waits until the sink has room.
pub(crate) async fn passed(source: &mut impl Source, sink: &mut impl Sink) -> Result<(), Broken> {
    let mut relieved = pin!(sink.relieved());
    poll_fn(|context| match relieved.as_mut().poll(context) {
        Poll::Ready(relieved) => Poll::Ready(relieved),
        Poll::Pending => source.poll_arrived(context).map(Err),
    })
    .await
}

/// Bytes that a peer must take within each [`limits::WRITE_IDLE_TIMEOUT`] while more wait for it. Default 4 KiB: a socket tells
/// of progress about as seldom.
pub(crate) const TAKEN_BYTES_MIN: u64 = 4 * 1024;

/// Waits until the output has room; who takes less than [`TAKEN_BYTES_MIN`] in [`limits::WRITE_IDLE_TIMEOUT`] is given up.
pub(crate) async fn relieved(output: &Output, deadline: &Deadline) -> Result<(), Broken> {
    while output.is_congested() {
        let progress = output.progress();
        deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
        let is_relieved = poll_fn(|context| {
            if output.poll_relieved(context).is_ready() {
                return Poll::Ready(true);
            }
            deadline.poll_expired(context).map(|()| false)
        });
        if !is_relieved.await && output.progress() - progress < TAKEN_BYTES_MIN {
            return Err(Broken::Stalled);
        }
    }
    if output.is_closed() { Err(Broken::Untaken) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use weir_base::time::Time;

    use super::*;

    /// A body of which a byte comes every second.
    struct Slow {
        left: u32,
        is_held_back: bool,
    }

    impl Source for Slow {
        fn is_done(&self) -> bool {
            self.left == 0
        }

        async fn fill(&mut self) -> Result<(), Broken> {
            turn::set(Time::from_nanos(turn::now().as_nanos() + 1_000_000_000));
            Ok(())
        }

        fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
            self.left -= 1;
            sink.data(b"x");
            Ok(())
        }

        fn is_held_back(&self) -> bool {
            self.is_held_back
        }
    }

    fn relayed(is_held_back: bool, seconds: u32) -> Option<Result<(), Broken>> {
        let mut sink = Limited::new(Nowhere, 1 << 20, &[], None, None);
        relay_paced(&mut Slow { left: seconds, is_held_back }, &mut sink, 2, || false).now_or_never()
    }

    #[test]
    fn a_client_is_too_slow_only_while_it_could_send() {
        assert_eq!(relayed(false, 60), Some(Err(Broken::Idle)));
        assert_eq!(relayed(false, 11), Some(Ok(())), "its rate is not known yet");
        assert_eq!(relayed(true, 60), Some(Ok(())), "the gateway held it back");
    }
}
