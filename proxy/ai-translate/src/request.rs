//! Requests.

mod to_chat;
mod to_messages;

use crate::direction::Direction;
use crate::json::{Json, Object};
use crate::limits::BODY_BYTES_MAX;
use crate::loss::Losses;
use crate::mistake::Mistake;

/// The abilities of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Tokens that a response may have, if a chat's request does not say: Anthropic requires a limit. Default 8,192,
    /// which every model since Claude 3.5 has; Claude 3 has 4,096. A response beyond it ends with `length`.
    pub tokens_max: u64,
    /// The provider of chats takes `max_completion_tokens`. Older compatible servers know only `max_tokens`. Default
    /// true.
    pub has_completion_limit: bool,
    /// The model of Anthropic takes `output_config.effort`. Older ones refuse it, and then `reasoning_effort` is lost.
    /// Default true.
    pub has_effort: bool,
    /// The provider of chats takes `stream_options.include_usage`. Without it a stream reports no tokens. Default true.
    pub has_stream_usage: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { tokens_max: 8192, has_completion_limit: true, has_effort: true, has_stream_usage: true }
    }
}

/// A request for the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its body, JSON.
    pub body: Vec<u8>,
    /// The response is a stream.
    pub is_stream: bool,
    /// The client requests the chunk of usage at the end of a chat's stream: see
    /// [`StreamTranslator::new`](crate::StreamTranslator::new).
    pub includes_usage: bool,
    /// The parts that the provider does not get.
    pub losses: Losses,
}

/// Translates the body of a client's request.
///
/// # Errors
/// The request is malformed, or says something that has no counterpart and that changes the meaning. The client gets
/// status 400 with [`Mistake::body`].
pub fn translate_request(direction: Direction, body: &[u8], options: &Options) -> Result<Request, Mistake> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Mistake::new("", "the body is too large"));
    }
    let mut request = Object::read(Json::check(body)?, "")?;
    let (mut losses, mut out) = (Losses::default(), Vec::with_capacity(body.len() + 128));
    let is_stream = request.flag("stream")?;
    let includes_usage = match direction {
        Direction::ChatToMessages => to_messages::translate(request, is_stream, options, &mut losses, &mut out)?,
        Direction::MessagesToChat => {
            to_chat::translate(request, is_stream, options, &mut losses, &mut out)?;
            false
        }
    };
    Ok(Request { body: out, is_stream, includes_usage, losses })
}
