//! Names of tables and functions in rules: `orders`, `audit.*`, `*`.

use std::fmt;

use weir_analysis::postgres::QualifiedName;

use crate::star::fits;

/// Bytes of a pattern. Default 255: a schema and a name of 63 bytes each, twice over.
pub const PATTERN_BYTES_MAX: usize = 255;

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// A part is empty, or the whole is longer than [`PATTERN_BYTES_MAX`].
    Length,
    /// More than one dot: a name has a schema and an object.
    Dots,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "a part is empty, or the name is too long",
            Self::Dots => "a name has one dot at most: schema.name",
        })
    }
}

/// A name, with `*` for any bytes. Names are compared as the server keeps them, so `Orders` is another one than `orders`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Absent: any schema.
    schema: Option<Box<[u8]>>,
    object: Box<[u8]>,
}

impl Pattern {
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let mut parts = text.split('.');
        let (first, second, third) = (parts.next(), parts.next(), parts.next());
        if third.is_some() {
            return Err(PatternError::Dots);
        }
        let parts = [first, second].into_iter().flatten().collect::<Vec<_>>();
        if text.len() > PATTERN_BYTES_MAX || parts.iter().any(|part| part.is_empty()) {
            return Err(PatternError::Length);
        }
        let bytes = |text: &str| Box::from(text.as_bytes());
        Ok(match parts[..] {
            [schema, object] => Self { schema: Some(bytes(schema)), object: bytes(object) },
            _ => Self { schema: None, object: bytes(text) },
        })
    }

    /// Whether the name is surely one of the pattern.
    pub fn covers(&self, name: &QualifiedName<'_>) -> bool {
        let schema = match (&self.schema, &name.schema) {
            (None, _) => true,
            (Some(pattern), Some(schema)) => fits(pattern, schema),
            // The search path decides.
            (Some(pattern), None) => **pattern == *b"*",
        };
        schema && fits(&self.object, &name.object)
    }

    /// Whether the name may be one of the pattern: without a schema it may be in any.
    pub fn touches(&self, name: &QualifiedName<'_>) -> bool {
        let schema = match (&self.schema, &name.schema) {
            (Some(pattern), Some(schema)) => fits(pattern, schema),
            _ => true,
        };
        schema && fits(&self.object, &name.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn name(text: &'static str) -> QualifiedName<'static> {
        let part = |text: &'static str| Cow::Borrowed(text.as_bytes());
        match text.split_once('.') {
            Some((schema, object)) => QualifiedName { schema: Some(part(schema)), object: part(object) },
            None => QualifiedName { schema: None, object: part(text) },
        }
    }

    #[test]
    fn a_name_without_schema_may_be_in_any_and_is_surely_in_none() {
        for (pattern, text, covers, touches) in [
            ("orders", "orders", true, true),
            ("orders", "sales.orders", true, true),
            ("orders", "orders2", false, false),
            ("sales.orders", "sales.orders", true, true),
            ("sales.orders", "orders", false, true),
            ("sales.orders", "other.orders", false, false),
            ("sales.*", "sales.x", true, true),
            ("sales.*", "x", false, true),
            ("*.x", "x", true, true),
            ("*", "a.b", true, true),
            ("a*c*e", "abcde", true, true),
            ("a*c*e", "abcd", false, false),
            ("*ab", "aab", true, true),
            ("Orders", "orders", false, false),
        ] {
            let pattern = Pattern::new(pattern).expect("a pattern");
            let found = (pattern.covers(&name(text)), pattern.touches(&name(text)));
            assert_eq!(found, (covers, touches), "{pattern:?} {text}");
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        for (text, error) in [
            ("", PatternError::Length),
            (".a", PatternError::Length),
            ("a.", PatternError::Length),
            ("a.b.c", PatternError::Dots),
        ] {
            assert_eq!(Pattern::new(text), Err(error), "{text}");
        }
        assert_eq!(Pattern::new(&"x".repeat(256)), Err(PatternError::Length));
    }
}
