//! A string, number or truth value as text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The text of a string, a number or a truth value. `None`: null, an object or an array.
///
/// Every value of a context is a text. Some clients send numbers, which Unleash Edge reads as their text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scalar<'a>(pub Option<Cow<'a, str>>);

impl Scalar<'_> {
    /// The text.
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor).map(Self)
    }
}

/// The same, for values that outlive their document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedScalar(pub Option<Box<str>>);

impl OwnedScalar {
    /// The text.
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<'de> Deserialize<'de> for OwnedScalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Scalar::deserialize(deserializer).map(|scalar| Self(scalar.0.map(Into::into)))
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(if value { "true" } else { "false" })))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(value.to_string())))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(value.to_string())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(serde_json::Number::from_f64(value).map(|number| Cow::Owned(number.to_string())))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_values_have_a_text_and_others_none() {
        let texts: Vec<Scalar<'_>> =
            serde_json::from_str(r#"["a", "\u0061", 1, -2, 1.5, 1e2, true, null, {"a":[1]}, [{}]]"#).expect("JSON");
        let texts: Vec<Option<&str>> = texts.iter().map(Scalar::as_str).collect();
        let wanted = ["a", "a", "1", "-2", "1.5", "100.0", "true"].map(Some);
        assert_eq!(texts, [&wanted[..], &[None; 3]].concat());
    }
}
