//! Entity tags (RFC 9110 section 8.8.3), and the fields of a request that name some.

use std::fmt;

/// A strong tag, made of a number: of a hash of the content, or of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntityTag {
    /// A hash, as sixteen hexadecimal digits.
    Hash(u64),
    /// A revision of a delta, in decimal.
    Revision(u64),
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash(hash) => write!(f, "\"{hash:016x}\""),
            Self::Revision(revision) => write!(f, "\"{revision}\""),
        }
    }
}

impl EntityTag {
    /// Whether `If-None-Match` names this tag (RFC 9110 section 13.1.2): a list or `*`, compared weakly. The response is then a 304.
    pub fn is_in(self, if_none_match: &str) -> bool {
        let mut tags = if_none_match.split(',').map(str::trim);
        tags.any(|tag| tag == "*" || self.is(tag.strip_prefix("W/").unwrap_or(tag)))
    }

    fn is(self, tag: &str) -> bool {
        let Some(text) = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) else { return false };
        match self {
            Self::Hash(hash) => text.len() == 16 && u64::from_str_radix(text, 16) == Ok(hash) && !text.starts_with('+'),
            Self::Revision(revision) => text.parse() == Ok(revision) && !text.starts_with('+'),
        }
    }
}

/// The revision that a client of a delta has, from `If-None-Match` or `Last-Event-ID`: `"7"`, `W/"7"` or `7`. `None`: it has none, or a text
/// that is none.
pub fn revision(field: &str) -> Option<u64> {
    let text = field.trim();
    let text = text.strip_prefix("W/").unwrap_or(text);
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_a_list_and_compared_weakly() {
        let tag = EntityTag::Hash(0xab);
        assert_eq!(tag.to_string(), "\"00000000000000ab\"");
        for list in ["*", "\"00000000000000ab\"", "\"x\", W/\"00000000000000ab\"", " \"00000000000000ab\" "] {
            assert!(tag.is_in(list), "{list}");
        }
        for list in ["", "00000000000000ab", "\"ab\"", "\"+0000000000000ab\"", "\"00000000000000ac\"", "W/*"] {
            assert!(!tag.is_in(list), "{list}");
        }
        assert!(EntityTag::Revision(7).is_in("W/\"7\"") && !EntityTag::Revision(7).is_in("\"+7\""));
    }

    #[test]
    fn a_revision_has_quotes_or_none() {
        for text in ["7", "\"7\"", " W/\"7\" "] {
            assert_eq!(revision(text), Some(7), "{text}");
        }
        for text in ["", "\"\"", "\"7", "-7", "+7", "99999999999999999999", "\"a:7:v1\""] {
            assert_eq!(revision(text), None, "{text}");
        }
    }
}
