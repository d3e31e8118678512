//! SASLprep (RFC 4013), as PostgreSQL applies it to passwords: text that it forbids is used as it is.

use std::borrow::Cow;

use stringprep::tables;
use unicode_normalization::UnicodeNormalization;

/// Bytes of a password that are prepared; longer ones stay as they are. PostgreSQL has no bound here: its own is that of the
/// frame. The work grows with the length and runs before a client is known.
const PREPARED_BYTES_MAX: usize = 16 * 1024;

/// The password as both sides hash it. ASCII, bytes that are not UTF-8 and text that SASLprep forbids stay as they are, so
/// that a password of another encoding works if both sides have the same bytes.
#[must_use]
pub fn prepare(password: &[u8]) -> Cow<'_, [u8]> {
    if password.is_ascii() || password.len() > PREPARED_BYTES_MAX {
        return Cow::Borrowed(password);
    }
    let prepared = std::str::from_utf8(password).ok().and_then(prepare_text);
    prepared.map_or(Cow::Borrowed(password), |text| Cow::Owned(text.into_bytes()))
}

/// The prepared text, or `None` if it is forbidden. The checks look at the mapped text before its normalisation, as
/// PostgreSQL's do.
fn prepare_text(text: &str) -> Option<String> {
    let is_kept = |letter: &char| !tables::commonly_mapped_to_nothing(*letter);
    let blank = |letter: char| if tables::non_ascii_space_character(letter) { ' ' } else { letter };
    // A space that is also mapped to nothing (U+200B) is a space here.
    let kept = |letter: &char| tables::non_ascii_space_character(*letter) || is_kept(letter);
    let mapped: Vec<char> = text.chars().filter(kept).map(blank).collect();
    if mapped.is_empty() || mapped.iter().any(|letter| is_forbidden(*letter)) || !is_of_one_direction(&mapped) {
        return None;
    }
    Some(mapped.into_iter().nfkc().collect())
}

/// Section 2.3, and the code points that Unicode 3.2 does not have (2.5).
fn is_forbidden(letter: char) -> bool {
    tables::non_ascii_space_character(letter)
        || tables::ascii_control_character(letter)
        || tables::non_ascii_control_character(letter)
        || tables::private_use(letter)
        || tables::non_character_code_point(letter)
        || tables::surrogate_code(letter)
        || tables::inappropriate_for_plain_text(letter)
        || tables::inappropriate_for_canonical_representation(letter)
        || tables::change_display_properties_or_deprecated(letter)
        || tables::tagging_character(letter)
        || tables::unassigned_code_point(letter)
}

/// Section 2.4: text with a letter of a script from right to left has no other letters, and begins and ends with one.
fn is_of_one_direction(text: &[char]) -> bool {
    if !text.iter().any(|letter| tables::bidi_r_or_al(*letter)) {
        return true;
    }
    let is_at_end = |letter: Option<&char>| letter.is_some_and(|letter| tables::bidi_r_or_al(*letter));
    is_at_end(text.first()) && is_at_end(text.last()) && !text.iter().any(|letter| tables::bidi_l(*letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4013, section 3.
    #[test]
    fn the_examples_of_the_rfc_are_prepared() {
        for (text, expected) in
            [("I\u{ad}X", "IX"), ("user", "user"), ("USER", "USER"), ("\u{aa}", "a"), ("\u{2168}", "IX")]
        {
            assert_eq!(prepare(text.as_bytes()).as_ref(), expected.as_bytes(), "{text:?}");
        }
        for forbidden in ["\u{7}", "\u{627}1"] {
            assert_eq!(prepare(forbidden.as_bytes()).as_ref(), forbidden.as_bytes(), "{forbidden:?} stays as it is");
        }
    }

    /// Passwords of PostgreSQL's own test (src/test/authentication/t/002_saslprep.pl).
    #[test]
    fn the_passwords_of_the_test_of_postgresql_are_prepared_alike() {
        for (left, right) in [("I\u{ad}X", "IX"), ("a\u{a0}b", "a b"), ("\u{aa}", "a"), ("\u{212b}", "\u{c5}")] {
            assert_eq!(prepare(left.as_bytes()), prepare(right.as_bytes()), "{left:?} {right:?}");
        }
        assert_eq!(prepare(b"foobar\xff").as_ref(), b"foobar\xff", "bytes that are not UTF-8");
        assert_eq!(prepare("\u{ad}".as_bytes()).as_ref(), "\u{ad}".as_bytes(), "nothing would be left");
        let mixed = "\u{627}\u{aa}\u{627}";
        assert_eq!(prepare(mixed.as_bytes()).as_ref(), mixed.as_bytes(), "two directions");
    }

    #[test]
    fn a_password_of_megabytes_is_not_prepared() {
        let long = "\u{aa}".repeat(PREPARED_BYTES_MAX);
        assert_eq!(prepare(long.as_bytes()).as_ref(), long.as_bytes());
    }
}
