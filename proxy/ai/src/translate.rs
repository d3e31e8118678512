//! The translation of one attempt, where the provider speaks another dialect than the client: body and head of the request, names of
//! header fields, and what the response needs to know of both.

use std::borrow::Cow;

use bytes::Bytes;
use weir_ai_session::Splice;
use weir_ai_translate::{ANTHROPIC_VERSION, Direction, Losses, Options, headers, translate_request};
use weir_analysis::ai::Endpoint;
use weir_http::filter::SeenBody;
use weir_http_codec::{Fields, Known, RequestHead};

use crate::{
    error::ApiError,
    settings::{Abilities, Provider, ProviderDialect},
};

/// Bytes of a whole response that is translated. Default 8 MiB: ten times what the longest output of a model has as text. A longer one
/// is a 502.
pub(crate) const RESPONSE_BYTES_MAX: usize = 8 << 20;

/// Bytes of an error of a provider that are read for its translation. Default 64 KiB, many times the longest message that passes. Behind them
/// the client gets the usual words of the status.
pub(crate) const ERROR_BYTES_MAX: usize = 64 << 10;

/// Bytes of memory for each byte of a body that is translated: see [`weir_ai_translate::limits::BODY_BYTES_MAX`].
pub(crate) const MEMORY_PER_BYTE: u32 = 8;

/// The field that names what a translation has left out, of the request and of a whole response.
pub(crate) const LOSS_FIELD: &[u8] = b"x-weir-translation-loss";

/// The media type of translated bodies.
pub(crate) const CONTENT_TYPE: &[u8] = b"application/json";

/// The facts of a translated request that its response needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    pub(crate) direction: Direction,
    /// The client wants the chunk of usage at the end of a chat's stream.
    pub(crate) includes_usage: bool,
    /// The parts of the request that the provider does not get.
    pub(crate) losses: Losses,
}

/// The translation between the clients of an endpoint and a provider. `None`: none exists, or none is needed.
pub(crate) const fn direction(endpoint: Endpoint, provider: ProviderDialect) -> Option<Direction> {
    match (endpoint, provider) {
        (Endpoint::Chat, ProviderDialect::Anthropic) => Some(Direction::ChatToMessages),
        (Endpoint::Messages, ProviderDialect::OpenAi | ProviderDialect::Azure) => Some(Direction::MessagesToChat),
        _ => None,
    }
}

/// Translates a request for a provider, behind the edits of its own dialect.
///
/// # Errors
/// It says something that has no counterpart, or there is no memory for the work.
pub(crate) fn request(
    (direction, provider): (Direction, &Provider),
    seen: SeenBody<'_>,
    edits: &Splice,
) -> Result<(Bytes, Translation), ApiError> {
    // The edited body is one more.
    let memory = (seen.bytes.len() as u64).saturating_mul(u64::from(MEMORY_PER_BYTE) + 1);
    let _permit = seen.room(memory).ok_or(ApiError::NO_ROOM)?;
    let body = match edits.is_empty() {
        true => Cow::Borrowed(seen.bytes),
        false => Cow::Owned(edits.apply(seen.bytes)),
    };
    let Abilities { default_max_tokens, max_completion_tokens, reasoning_effort } = provider.abilities;
    let options = Options {
        tokens_max: default_max_tokens,
        has_completion_limit: max_completion_tokens,
        has_effort: reasoning_effort,
        has_stream_usage: provider.include_usage,
    };
    let translated = translate_request(direction, &body, &options);
    let mut request = translated.map_err(|mistake| ApiError::of_mistake(&mistake))?;
    // Members that were left out take no memory: its length alone is charged.
    request.body.shrink_to_fit();
    let translation = Translation { direction, includes_usage: request.includes_usage, losses: request.losses };
    Ok((request.body.into(), translation))
}

/// Turns a head of the client's dialect into one of the provider's, except its key.
pub(crate) fn request_head(direction: Direction, provider: &Provider, head: &mut RequestHead) {
    let key = crate::credentials::of_client(&head.fields).to_vec();
    head.fields.retain(|field| headers::passes_request(direction, &lower(field.name)));
    // A key of the client's own goes on in the field of the provider.
    crate::credentials::place(&mut head.fields, provider.dialect, &key);
    head.fields.set(Known::ContentType, CONTENT_TYPE);
    // A body that is translated is read, and without the field a provider may choose any coding (RFC 9110 section 12.5.3).
    head.fields.set(Known::AcceptEncoding, b"identity");
    if direction == Direction::ChatToMessages {
        head.fields.set_named(b"anthropic-version", ANTHROPIC_VERSION.as_bytes());
    }
    // A query belongs to the dialect of its path.
    head.set_target(format!("{}{}", provider.base_path, direction.path()).as_bytes());
}

/// Gives the fields of a response the names that they have for the client.
pub(crate) fn response_fields(translation: &Translation, fields: &mut Fields) {
    for field in std::mem::take(fields).iter() {
        if let Some(name) = headers::response_name(translation.direction, &lower(field.name)) {
            let is_renamed = !name.as_bytes().eq_ignore_ascii_case(field.name);
            fields.push(if is_renamed { name.as_bytes() } else { field.name }, field.value);
        }
    }
    name_losses(&translation.losses, fields);
}

/// Names the parts that are left out, beside those that are named already.
pub(crate) fn name_losses(losses: &Losses, fields: &mut Fields) {
    if !losses.is_empty() {
        fields.push(LOSS_FIELD, losses.header_value().as_bytes());
    }
}

/// A name in lower case. It is a token, and so ASCII.
fn lower(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        fields
    }

    fn written(fields: &Fields) -> String {
        let mut out = Vec::new();
        fields.write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn only_chats_and_messages_are_translated() {
        use ProviderDialect::{Anthropic, Azure, OpenAi};
        for endpoint in Endpoint::ALL {
            let to_anthropic = (endpoint == Endpoint::Chat).then_some(Direction::ChatToMessages);
            assert_eq!(direction(endpoint, Anthropic), to_anthropic, "{endpoint:?}");
            let to_chat = (endpoint == Endpoint::Messages).then_some(Direction::MessagesToChat);
            assert_eq!([OpenAi, Azure].map(|dialect| direction(endpoint, dialect)), [to_chat; 2], "{endpoint:?}");
        }
    }

    #[test]
    fn fields_of_a_response_get_the_names_of_the_client() {
        let mut losses = fields(&[("Request-Id", "r"), ("Anthropic-Organization-Id", "o"), ("Retry-After", "3")]);
        let direction = Direction::ChatToMessages;
        let translation = Translation { direction, includes_usage: false, losses: Losses::default() };
        response_fields(&translation, &mut losses);
        assert_eq!(written(&losses), "x-request-id: r\r\nRetry-After: 3\r\n");
    }

    #[test]
    fn a_key_of_the_client_goes_on_in_the_field_of_the_provider() {
        for (dialect, wanted) in [
            (ProviderDialect::Anthropic, "x-api-key: k\r\n"),
            (ProviderDialect::Azure, "api-key: k\r\n"),
            (ProviderDialect::OpenAi, "authorization: Bearer k\r\n"),
        ] {
            let mut fields = fields(&[("Authorization", "Bearer k")]);
            crate::credentials::place(&mut fields, dialect, b"k");
            assert_eq!(written(&fields).to_ascii_lowercase(), wanted.to_ascii_lowercase());
        }
    }
}
