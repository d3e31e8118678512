//! The form of a query string: pairs of keys and values (URL standard, "application/x-www-form-urlencoded parsing"), and keys with brackets.

use std::borrow::Cow;

use crate::ContextError;

/// A key of a context's query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    /// `name`
    Plain(Cow<'a, str>),
    /// `properties[name]`
    Property(Cow<'a, str>),
    /// A member of another object or of an inner one, or an item of an array. No value of a context has that form.
    Nested,
}

impl<'a> Key<'a> {
    /// The form of a decoded key.
    pub(crate) fn of(key: Cow<'a, str>) -> Result<Self, ContextError> {
        let Some(open) = key.find('[').filter(|open| *open > 0) else { return Ok(Self::Plain(key)) };
        let Some(inner) = key[open + 1..].strip_suffix(']') else { return Err(ContextError::Bracket) };
        if inner.is_empty() || inner.contains("][") || &key[..open] != "properties" {
            return Ok(Self::Nested);
        }
        let range = open + 1..key.len() - 1;
        Ok(Self::Property(match key {
            Cow::Borrowed(key) => Cow::Borrowed(&key[range]),
            Cow::Owned(key) => Cow::Owned(key[range].to_owned()),
        }))
    }
}

/// The decoded pairs of a query. A key without `=` has an empty value.
pub fn pairs(text: &str) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), ContextError>> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(key)?, decode(value)?))
    })
}

/// The text without its escapes. A percent sign without two hexadecimal digits stands for itself.
fn decode(text: &str) -> Result<Cow<'_, str>, ContextError> {
    if !text.contains(['%', '+']) {
        return Ok(Cow::Borrowed(text));
    }
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = match behind {
            [high, low, ..] if first == b'%' => hexadecimal(*high).zip(hexadecimal(*low)),
            _ => None,
        };
        rest = if escaped.is_some() { &behind[2..] } else { behind };
        out.push(match (first, escaped) {
            (_, Some((high, low))) => high << 4 | low,
            (b'+', None) => b' ',
            (byte, None) => byte,
        });
    }
    String::from_utf8(out).map(Cow::Owned).map_err(|_| ContextError::Utf8)
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_others_stand_for_themselves() {
        for (text, decoded) in [
            ("a", "a"),
            ("a+b%20c", "a b c"),
            ("%5Bx%5d", "[x]"),
            ("%c3%A6", "æ"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%%41", "%A"),
        ] {
            assert_eq!(decode(text).as_deref(), Ok(decoded), "{text}");
        }
        assert_eq!(decode("%ff"), Err(ContextError::Utf8));
    }

    #[test]
    fn keys_have_one_pair_of_brackets_or_none() {
        let of = |text: &'static str| Key::of(Cow::Borrowed(text));
        assert_eq!(of("userId"), Ok(Key::Plain("userId".into())));
        assert_eq!(of("properties[plan]"), Ok(Key::Property("plan".into())));
        assert_eq!(of("properties[a[b]"), Ok(Key::Property("a[b".into())));
        assert_eq!(of("[a]"), Ok(Key::Plain("[a]".into())));
        for nested in ["properties[a][b]", "properties[]", "other[a]", "userId[0]"] {
            assert_eq!(of(nested), Ok(Key::Nested), "{nested}");
        }
        for broken in ["properties[a", "properties[a]b", "x["] {
            assert_eq!(of(broken), Err(ContextError::Bracket), "{broken}");
        }
    }
}
