//! Buffered responses with a status below 400.

mod to_chat;
mod to_messages;

use crate::direction::Direction;
use crate::json::{Json, Object};
use crate::limits::BODY_BYTES_MAX;
use crate::loss::Losses;
use crate::mistake::Mistake;

pub(crate) use to_messages::write_stop;

/// A response for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its body, JSON.
    pub body: Vec<u8>,
    /// The parts that the client does not get.
    pub losses: Losses,
}

/// Translates the body of a provider's response. `created` is the time in seconds since 1970, which a chat reports and
/// Anthropic does not.
///
/// # Errors
/// The body is no message of the provider's dialect. The client gets status 502, see [`Mistake::failure`].
pub fn translate_response(direction: Direction, body: &[u8], created: u64) -> Result<Response, Mistake> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Mistake::new("", "the body is too large"));
    }
    let message = Object::read(Json::check(body)?, "")?;
    let (mut losses, mut out) = (Losses::default(), Vec::with_capacity(body.len() + 128));
    match direction {
        Direction::ChatToMessages => to_chat::translate(message, created, &mut losses, &mut out)?,
        Direction::MessagesToChat => to_messages::translate(message, &mut losses, &mut out)?,
    }
    Ok(Response { body: out, losses })
}
