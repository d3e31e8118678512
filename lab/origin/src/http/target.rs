//! The body that a target requests.

use super::settings::BODY_BYTES_MAX;

/// Bytes of a word that a body begins with: more belongs into no target.
const WORD_BYTES_MAX: usize = 64;

/// A body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedBody<'a> {
    /// Its bytes.
    pub size: usize,
    /// Its first bytes, at most `size`; the rest is `x`.
    pub word: &'a [u8],
}

/// The body that a target asks for: `/`, `/N`, or `/N/WORD`.
pub fn requested_body(target: &[u8], payload: usize) -> Option<RequestedBody<'_>> {
    let rest = target.strip_prefix(b"/")?;
    if rest.is_empty() {
        return Some(RequestedBody { size: payload, word: b"" });
    }
    let (digits, word) = match rest.iter().position(|byte| *byte == b'/') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &b""[..]),
    };
    // No number with seven digits is much too large to be counted.
    if !(1..=7).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let is_word = word.len() <= WORD_BYTES_MAX && word.iter().all(u8::is_ascii_alphanumeric);
    let size = digits.iter().fold(0, |size, digit| size * 10 + usize::from(digit & 15));
    (size <= BODY_BYTES_MAX && is_word).then(|| RequestedBody { size, word: &word[..word.len().min(size)] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_a_size_and_a_word_or_nothing_that_is_served() {
        assert_eq!(requested_body(b"/", 128), Some(RequestedBody { size: 128, word: b"" }));
        assert_eq!(requested_body(b"/5", 128), Some(RequestedBody { size: 5, word: b"" }));
        assert_eq!(requested_body(b"/5/a1", 128), Some(RequestedBody { size: 5, word: b"a1" }));
        assert_eq!(requested_body(b"/1/a1", 128), Some(RequestedBody { size: 1, word: b"a" }));
        for other in [&b"/x"[..], b"/1048577", b"/99999999", b"/5?x", b"/5/a/b", b"*", b"//a", b"/requests"] {
            assert_eq!(requested_body(other, 128), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
