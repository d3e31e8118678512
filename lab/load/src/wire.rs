//! One connection as its protocol sees it: the first words, and whole replies out of received bytes.

use std::future::{Future, ready};
use std::pin::Pin;

use weir_engine::Stream;

use crate::reply::Reply;
use crate::scenario::Scenario;

/// The stream is no longer understood; the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamError;

/// Which request a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyTo {
    /// The oldest that is under way.
    Oldest,
    /// The one on this stream of a connection that is shared by several.
    Stream(u32),
}

/// The word of the peer about requests to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GoAway {
    /// Nothing.
    #[default]
    No,
    /// It takes no further request on this connection.
    Yes,
    /// The same, and streams above this one will not be answered.
    Above(u32),
}

/// Takes each whole reply, and refuses an unsolicited one.
pub type OnReply<'a> = &'a mut dyn FnMut(ReplyTo, Reply<'_>) -> Result<(), StreamError>;

/// Work on a stream that ends well or with a sentence for people.
pub type Pending<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// The reading side of one connection. `begin` is called once and first,
/// then `take` for each chunk, and `finish` when the peer has closed.
pub trait Wire {
    /// Says what comes before the first request, and hears the reply.
    ///
    /// # Errors
    /// The peer does not speak the protocol, or not as the scenario needs it; a sentence for people.
    fn begin<'a>(&'a mut self, _stream: &'a mut Stream, _scenario: &'a Scenario) -> Pending<'a> {
        Box::pin(ready(Ok(())))
    }

    /// How requests are framed on this connection; `None`: as they are.
    fn sender(&self) -> Option<Box<dyn Sender>> {
        None
    }

    /// The last bytes on a connection that has no further request.
    fn farewell(&self) -> &'static [u8] {
        b""
    }

    /// Calls `each` with every reply that `chunk` completes. Bytes that the protocol has to send back are appended to `out`.
    ///
    /// # Errors
    /// Bytes that are no reply, or `each` refused one.
    fn take(&mut self, chunk: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError>;

    /// The peer has closed: calls `each` with the reply that ends there, if there is one.
    ///
    /// # Errors
    /// `each` refused it.
    fn finish(&mut self, _each: OnReply<'_>) -> Result<(), StreamError> {
        Ok(())
    }
}

/// The writing side of a connection on which each request is a stream.
pub trait Sender {
    /// Frames a request as a new stream, whose number it gives. Numbers rise.
    fn write(&self, request: &[u8], out: &mut Vec<u8>) -> u32;

    /// The connection has had as many streams as there can be.
    fn is_spent(&self) -> bool;
}

/// Refuses a reply that comes before its request.
pub(crate) fn refuse_early_reply(_: ReplyTo, _: Reply<'_>) -> Result<(), StreamError> {
    Err(StreamError)
}

/// The next chunk while a connection begins.
pub(crate) async fn receive_chunk(stream: &mut Stream) -> Result<weir_engine::Chunk, String> {
    let chunk = stream.reader.receive().await.map_err(|error| error.to_string())?;
    chunk.ok_or_else(|| "it closed the connection".to_owned())
}
