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

/// The parts of a content, each read when its turn comes.
pub(crate) struct Parts<'a> {
    place: &'static str,
    items: std::vec::IntoIter<Json<'a>>,
    /// The content is a string.
    is_string: bool,
}

/// The parts of a content.
pub(crate) fn parts<'a>(content: Json<'a>, place: &'static str) -> Result<Parts<'a>, Mistake> {
    let is_string = content.is_string();
    let items = if is_string { vec![content] } else { content.items(place)? };
    Ok(Parts { place, items: items.into_iter(), is_string })
}

impl<'a> Parts<'a> {
    /// No part follows.
    pub(crate) fn is_at_end(&self) -> bool {
        self.items.len() == 0
    }

    /// The next part. Empty texts say nothing, and Anthropic refuses them: they are skipped.
    pub(crate) fn next(&mut self, losses: &mut Losses) -> Result<Option<Part<'a>>, Mistake> {
        for item in self.items.by_ref() {
            let text = if self.is_string {
                item
            } else {
                let mut part = Object::read(item, self.place)?;
                let kind = part.need_text("type")?;
                if kind != "text" {
                    return Ok(Some(Part::Other(kind, part)));
                }
                let text = part.need_string("text")?;
                part.rest(losses);
                text
            };
            if !text.is_empty_string() {
                return Ok(Some(Part::Text(text)));
            }
        }
        Ok(None)
    }
}

/// Writes texts as one string: `null` if there is none.
pub(crate) fn write_joined(message: &mut Members<'_>, key: &'static str, texts: &[Json<'_>]) {
    match texts {
        [] => message.raw(key, "null"),
        [text] => message.raw(key, text.raw()),
        texts => message.text(key, &texts.iter().filter_map(|text| text.text()).collect::<String>()),
    };
}

/// Arguments of a call as the object that they are. A call without arguments has an empty text, or `null`.
pub(crate) fn input_of(arguments: &str) -> Option<&str> {
    if matches!(arguments.trim_ascii(), "" | "null") {
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
    let (media, coding) = head.rsplit_once(';')?;
    if !coding.eq_ignore_ascii_case("base64") {
        return None;
    }
    // Parameters between both say nothing about an image.
    let media = media.split(';').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("data:") && !media.is_empty()).then_some((media, data))
}
