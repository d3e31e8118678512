//! Names and values of a query, as forms write it (`application/x-www-form-urlencoded`, WHATWG URL 5.1).
//!
//! Pairs are split at `&` only. A name without `=` has an empty value; empty pieces are no pairs. Decoding is put off until
//! somebody looks, and an escape that is none stands for itself: a query is forwarded as it came, so nothing is refused.

use std::{borrow::Cow, iter};

use super::percent::escaped;

/// A name or value as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded<'a>(&'a [u8]);

impl<'a> Encoded<'a> {
    /// As it was sent.
    pub const fn raw(self) -> &'a [u8] {
        self.0
    }

    /// Decoded, `+` as a space. Allocates only if there is something to decode.
    pub fn decoded(self) -> Cow<'a, [u8]> {
        if self.is_encoded() { Cow::Owned(self.bytes().collect()) } else { Cow::Borrowed(self.0) }
    }

    /// Whether it says `plain` when decoded. Allocates nothing.
    pub fn is(self, plain: &[u8]) -> bool {
        // Decoding never makes it longer.
        plain.len() <= self.0.len() && self.bytes().eq(plain.iter().copied())
    }

    fn is_encoded(self) -> bool {
        self.0.iter().any(|byte| matches!(byte, b'%' | b'+'))
    }

    fn bytes(self) -> impl Iterator<Item = u8> + 'a {
        let mut rest = self.0;
        iter::from_fn(move || {
            let (&first, behind) = rest.split_first()?;
            if let Some(byte) = escaped(rest) {
                rest = &rest[3..];
                return Some(byte);
            }
            rest = behind;
            Some(if first == b'+' { b' ' } else { first })
        })
    }
}

/// The pairs of a query, in order. `query` comes without its `?`.
pub fn pairs(query: &[u8]) -> impl Iterator<Item = (Encoded<'_>, Encoded<'_>)> {
    query.split(|&byte| byte == b'&').filter(|piece| !piece.is_empty()).map(|piece| {
        let at = piece.iter().position(|&byte| byte == b'=');
        let (name, value) = at.map_or((piece, &[][..]), |at| (&piece[..at], &piece[at + 1..]));
        (Encoded(name), Encoded(value))
    })
}

/// The value of the first pair whose name says `name`, case-sensitive.
pub fn first<'a>(query: &'a [u8], name: &[u8]) -> Option<Encoded<'a>> {
    pairs(query).find(|(candidate, _)| candidate.is(name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(query: &str) -> Vec<(String, String)> {
        let text = |part: Encoded<'_>| String::from_utf8_lossy(&part.decoded()).into_owned();
        pairs(query.as_bytes()).map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn pairs_are_split_and_decoded() {
        for (query, expected) in [
            ("", vec![]),
            ("a", vec![("a", "")]),
            ("a=1&b=2", vec![("a", "1"), ("b", "2")]),
            ("&&a=&=x&", vec![("a", ""), ("", "x")]),
            ("a=b=c", vec![("a", "b=c")]),
            ("q=x+y%20z%2B&%61=1", vec![("q", "x y z+"), ("a", "1")]),
            ("a=%zz%4&b=%", vec![("a", "%zz%4"), ("b", "%")]),
            ("a=1;b=2", vec![("a", "1;b=2")]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(decoded(query), expected, "{query}");
        }
    }

    #[test]
    fn the_first_of_a_name_counts_and_case_matters() {
        let query = b"A=0&%61=1&a=2&a+b=3";
        let value = |name: &[u8]| first(query, name).map(|value| value.raw());
        assert_eq!(value(b"a"), Some(&b"1"[..]), "an escaped name is the name");
        assert_eq!(value(b"A"), Some(&b"0"[..]));
        assert_eq!(value(b"a b"), Some(&b"3"[..]));
        assert_eq!(value(b"a+b"), None, "a plus is a space");
        assert_eq!(value(b"%61"), None);
        assert_eq!(value(b"b"), None);
    }

    #[test]
    fn nothing_is_copied_where_nothing_is_encoded() {
        let value = first(b"a=plain", b"a").expect("there");
        assert!(matches!(value.decoded(), Cow::Borrowed(b"plain")));
        assert!(value.is(b"plain") && !value.is(b"plai") && !value.is(b"plainer"));
    }
}
