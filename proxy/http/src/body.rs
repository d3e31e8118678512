//! Bodies, their sources and their sinks: bytes go out in the turn in which they arrive, and a sender is not read while its receiver does
//! not read.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    task::{Context, Poll},
};

use weir_base::{limits, time::turn};
use weir_engine::{Deadline, Output};
use weir_http_codec::{Fields, WireError};

/// The reason why a body did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The sender broke a rule.
    Malformed(WireError),
    /// The sender disconnected.
    Truncated,
    /// The sender does not want the response any more, and has said so.
    Cancelled,
    /// The sender paused for too long.
    TimedOut,
    /// It is longer than it may be.
    TooLong,
    /// An inspection refuses the request.
    Inspected,
    /// A tap on its way gave it up.
    TapFailed,
    /// The receiver is gone.
    ReceiverGone,
    /// The receiver takes nothing, or next to nothing, for too long.
    ReceiverStalled,
    /// Its receiver is not taking it, and others need the memory.
    Evicted,
}

/// The source of a body.
pub(crate) trait Source {
    /// All of it has been passed on.
    fn is_done(&self) -> bool;

    /// Waits until something can be passed on, or the body is over.
    async fn fill(&mut self) -> Result<(), BodyError>;

    /// Passes on what is there, or a piece of it, and the end of the body if nothing is left.
    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError>;

    /// Looks at what arrives while the sink has no room; ready if the body is given up for it.
    fn poll_arrived(&mut self, _: &mut Context<'_>) -> Poll<BodyError> {
        Poll::Pending
    }

    /// The gateway lets less of it come than its sender may want to send.
    fn is_held_back(&self) -> bool {
        false
    }
}

/// The sink of a body.
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
    async fn ready(&mut self) -> Result<(), BodyError>;
}

/// Discards a body.
pub(crate) struct DiscardSink;

impl Sink for DiscardSink {
    fn data(&mut self, _: &[u8]) {}

    fn end(&mut self, _: Option<&Fields>) {}

    async fn ready(&mut self) -> Result<(), BodyError> {
        Ok(())
    }
}

/// A copy of a body, up to a length.
pub(crate) struct BodyCopy {
    bytes: Vec<u8>,
    most: usize,
    is_too_long: bool,
}

impl BodyCopy {
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

impl Sink for BodyCopy {
    fn data(&mut self, data: &[u8]) {
        self.add(data);
    }

    fn end(&mut self, _: Option<&Fields>) {}

    async fn ready(&mut self) -> Result<(), BodyError> {
        if self.is_too_long { Err(BodyError::TooLong) } else { Ok(()) }
    }
}

/// The body of a request, and who sends it.
pub(crate) trait RequestBody: Source {
    /// Ready once the client does not wait for the response any more. Bytes that it sends meanwhile are buffered.
    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

/// Moves a body to its end.
pub(crate) async fn relay(source: &mut impl Source, sink: &mut impl Sink) -> Result<(), BodyError> {
    relay_from(source, false, sink).await
}

/// The same; `is_filled`: the source has something to pass on, if only the end.
pub(crate) async fn relay_from(
    source: &mut impl Source,
    mut is_filled: bool,
    sink: &mut impl Sink,
) -> Result<(), BodyError> {
    while is_filled || !source.is_done() {
        if !std::mem::take(&mut is_filled) {
            source.fill().await?;
        }
        source.pass(sink)?;
        sink_ready(source, sink).await?;
    }
    Ok(())
}

/// Waits until the sink has room.
pub(crate) async fn sink_ready(source: &mut impl Source, sink: &mut impl Sink) -> Result<(), BodyError> {
    let mut ready = pin!(sink.ready());
    poll_fn(|context| match ready.as_mut().poll(context) {
        Poll::Ready(ready) => Poll::Ready(ready),
        Poll::Pending => source.poll_arrived(context).map(Err),
    })
    .await
}

/// Bytes that a peer must take within each [`limits::WRITE_IDLE_TIMEOUT`] while more wait for it. Default 4 KiB: a socket reports
/// progress about as rarely.
pub(crate) const TAKEN_BYTES_MIN: u64 = 4 * 1024;

/// Waits until the output has room. Gives up a peer that takes less than [`TAKEN_BYTES_MIN`] in [`limits::WRITE_IDLE_TIMEOUT`].
pub(crate) async fn output_ready(output: &Output, deadline: &Deadline) -> Result<(), BodyError> {
    while output.is_congested() {
        let progress = output.progress();
        deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
        let is_ready = poll_fn(|context| {
            if output.poll_relieved(context).is_ready() {
                return Poll::Ready(true);
            }
            deadline.poll_expired(context).map(|()| false)
        });
        if !is_ready.await && output.progress() - progress < TAKEN_BYTES_MIN {
            return Err(BodyError::ReceiverStalled);
        }
    }
    if output.is_closed() { Err(BodyError::ReceiverGone) } else { Ok(()) }
}
