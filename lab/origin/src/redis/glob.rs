//! Patterns of `KEYS` and `SCAN` (`util.c`, `stringmatchlen`), without recursion.

/// Whether `text` matches `pattern`: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that means itself.
///
/// Takes at most `pattern x text` steps: only the last `*` is ever tried again.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut index) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while index < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            retry = Some((at, index));
            continue;
        }
        if let Some(next) = one(pattern, at, text[index]) {
            at = next;
            index += 1;
            continue;
        }
        let Some((after_star, from)) = retry else { return false };
        retry = Some((after_star, from + 1));
        (at, index) = (after_star, from + 1);
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Matches one byte against the pattern's element at `at`; gives where the next element begins.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => class(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (literal == byte).then_some(at + 1),
    }
}

/// A class from behind its `[`. One that is never closed ends with the pattern, as in Redis.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let is_negated = pattern.get(at) == Some(&b'^');
    at += usize::from(is_negated);
    let mut is_member = false;
    loop {
        match pattern.get(at..)? {
            [b'\\', literal, ..] => {
                is_member |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [] => break,
            [low, b'-', high, ..] => {
                is_member |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_member |= *literal == byte;
                at += 1;
            }
        }
    }
    (is_member != is_negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a\\*c", "a*c", true),
            ("a\\*c", "abc", false),
            ("user:*:name", "user:1:2:name", true),
            ("[abc", "b", true),
            ("", "", true),
            ("", "a", false),
            ("a**", "a", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = "a*".repeat(2_000) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 4_000]));
    }
}
