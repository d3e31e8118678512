//! Bodies, where they come from and where they go: what arrives goes out in the same turn, and who is not read from by the other side
//! is not read.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    task::{Context, Poll},
};

use weir_base::{limits, time::turn};
use weir_engine::{Deadline, Output};
use weir_http_codec::{Fields, WireError};

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
    /// An inspection refuses the request.
    Refused,
    /// A tap on its way gave it up.
    Untapped,
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

    pub(crate) fn add(&mut self, data: &[u8]) {
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
