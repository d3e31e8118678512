//! The content of a message: in both dialects a string, or an array of typed parts.

use std::borrow::Cow;

use crate::json::{Json, Object};
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::write::Members;

/// A part of a content.
pub(crate) enum Part<'a> {
    /// A text, as the string that came.
    Text(Json<'a>),
    /// A part of another type.
    Other(Cow<'a, str>, Object<'a>),
}

/// The parts of a content. Empty texts say nothing, and Anthropic refuses them: there are none.
pub(crate) fn parts<'a>(content: Json<'a>, place: &'static str, losses: &mut Losses) -> Result<Vec<Part<'a>>, Mistake> {
    let mut found = Vec::new();
    if content.is_string() {
        found.push(Part::Text(content));
    } else {
        for item in content.items(place)? {
            let mut part = Object::read(item, place)?;
            let kind = part.need_text("type")?;
            if kind == "text" {
                found.push(Part::Text(part.need_string("text")?));
                part.rest(losses);
            } else {
                found.push(Part::Other(kind, part));
            }
        }
    }
    found.retain(|part| !matches!(part, Part::Text(text) if text.is_empty_string()));
    Ok(found)
}

/// Writes texts as one string: `null` if there is none.
pub(crate) fn write_joined(message: &mut Members<'_>, key: &'static str, texts: &[Json<'_>]) {
    match texts {
        [] => message.raw(key, "null"),
        [text] => message.raw(key, text.raw()),
        texts => message.text(key, &texts.iter().filter_map(|text| text.text()).collect::<String>()),
    };
}

/// Arguments of a call as the object that they are. A call without arguments has an empty text.
pub(crate) fn input_of(arguments: &str) -> Option<&str> {
    if arguments.trim_ascii().is_empty() {
        return Some("{}");
    }
    let json = Json::check(arguments.as_bytes()).ok()?;
    (json.is_object() && json.has_room()).then_some(json.raw())
}

/// The mistake of a part that has no counterpart.
pub(crate) fn no_counterpart(place: &'static str) -> Mistake {
    Mistake::new(place, "this type has no counterpart at the provider of the model")
}

/// The bytes of a `data:` URL in base64 (RFC 2397): media type and text.
pub(crate) fn data_url(url: &str) -> Option<(&str, &str)> {
    let scheme = url.get(..5)?;
    let (head, data) = url[5..].split_once(',')?;
    let media = head.strip_suffix(";base64")?;
    // Parameters between both say nothing about an image.
    let media = media.split(';').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("data:") && !media.is_empty()).then_some((media, data))
}
