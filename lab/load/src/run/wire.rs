//! The protocol of one connection: what is said first, and whole replies out of what arrives.

use std::time::Duration;

use weir_engine::{Stream, timeout};

use crate::answer::Reply;
use crate::scenario::{Protocol, Scenario};

mod http1;
mod http2;
mod resp;
mod websocket;

pub(super) use http2::Sender;
pub(super) use resp::Replies;

/// The stream is no longer understood; the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Which request a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The oldest that is under way.
    Oldest,
    /// The one on this stream of HTTP/2.
    Stream(u32),
}

/// What the peer has said of the requests to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Nothing.
    #[default]
    No,
    /// It takes no further request on this connection.
    Yes,
    /// The same, and streams above this one will not be answered.
    Above(u32),
}

/// The reading side of one connection, and what of its protocol writing needs to know.
pub(super) enum Wire {
    Resp(Replies),
    Http1(Box<http1::Answers>),
    Http2(Box<http2::Frames>),
    WebSocket(Box<websocket::Messages>),
}

impl Wire {
    /// Of a connection on which nothing was said yet.
    fn new(scenario: &Scenario) -> Self {
        let bytes_max = scenario.payload.bytes_max();
        match scenario.protocol {
            Protocol::Redis => Self::Resp(Replies::new(Replies::bytes_max(scenario))),
            Protocol::Http1 => Self::Http1(Box::new(http1::Answers::new(bytes_max))),
            Protocol::Http2 => Self::Http2(Box::new(http2::Frames::new(bytes_max))),
            Protocol::WebSocket => Self::WebSocket(Box::new(websocket::Messages::new(bytes_max))),
        }
    }

    /// Says what comes before the first request, and hears the answer.
    ///
    /// # Errors
    /// The peer does not speak the protocol, or not as the scenario needs it; a sentence for people.
    pub(super) async fn begin(scenario: &Scenario, stream: &mut Stream, limit: Duration) -> Result<Self, String> {
        let mut wire = Self::new(scenario);
        let begun = timeout(limit, async {
            match &mut wire {
                Self::Resp(_) | Self::Http1(_) => Ok(()),
                Self::Http2(frames) => frames.begin(stream, scenario.pipeline).await,
                Self::WebSocket(messages) => messages.begin(stream, &scenario.request).await,
            }
        });
        begun.await.map_err(|_| format!("it said nothing within {limit:?}"))??;
        Ok(wire)
    }

    /// How requests are framed on this connection; `None`: as they are.
    pub(super) fn sender(&self) -> Option<Sender> {
        matches!(self, Self::Http2(_)).then(Sender::default)
    }

    /// Calls `each` with every reply that `chunk` completes. What the protocol wants said back is appended to `out`.
    ///
    /// # Errors
    /// Bytes that are no reply, or `each` refused one.
    pub(super) fn take(
        &mut self,
        chunk: &[u8],
        out: &mut Vec<u8>,
        mut each: impl FnMut(Of, Reply<'_>) -> Result<(), Broken>,
    ) -> Result<Leaving, Broken> {
        match self {
            Self::Resp(replies) => {
                replies.take(chunk, |reply| each(Of::Oldest, Reply::Resp(reply)))?;
                Ok(Leaving::No)
            }
            Self::Http1(answers) => answers.take(chunk, |reply| each(Of::Oldest, reply)),
            Self::Http2(frames) => frames.take(chunk, out, |stream, reply| each(Of::Stream(stream), reply)),
            Self::WebSocket(messages) => messages.take(chunk, out, |reply| each(Of::Oldest, reply)),
        }
    }
}

impl Wire {
    /// The peer has closed: calls `each` with the reply that ends there, if there is one.
    ///
    /// # Errors
    /// `each` refused it.
    pub(super) fn finish(&mut self, mut each: impl FnMut(Of, Reply<'_>) -> Result<(), Broken>) -> Result<(), Broken> {
        match self {
            Self::Http1(answers) => answers.finish(|reply| each(Of::Oldest, reply)),
            Self::Resp(_) | Self::Http2(_) | Self::WebSocket(_) => Ok(()),
        }
    }
}

/// Nothing may be answered before it was asked.
fn unasked(_: Reply<'_>) -> Result<(), Broken> {
    Err(Broken)
}

/// The next chunk while a connection begins.
async fn hear(stream: &mut Stream) -> Result<weir_engine::Chunk, String> {
    let chunk = stream.reader.receive().await.map_err(|error| error.to_string())?;
    chunk.ok_or_else(|| "it closed the connection".to_owned())
}
