//! Patterns of model and tool names: `*` for any text, `?` for one character, all else as it stands.

use std::fmt;

/// Bytes of a pattern. Default 256; names of models and tools are shorter.
pub const GLOB_BYTES_MAX: usize = 256;

/// A pattern.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Glob {
    text: Box<str>,
    /// It has neither `*` nor `?`.
    is_exact: bool,
}

/// A pattern that matches nothing sensible: empty, longer than `GLOB_BYTES_MAX`, or with a control character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobError(String);

impl fmt::Display for GlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no pattern: 1 to {GLOB_BYTES_MAX} bytes without control characters", self.0.escape_debug())
    }
}

impl std::error::Error for GlobError {}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// See [`GlobError`].
    pub fn new(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() || text.len() > GLOB_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(GlobError(text.chars().take(GLOB_BYTES_MAX).collect()));
        }
        Ok(Self { text: text.into(), is_exact: !text.contains(['*', '?']) })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// It matches one name only.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Characters that stand for themselves: the more, the more specific.
    pub fn literals(&self) -> usize {
        self.text.chars().filter(|letter| !matches!(letter, '*' | '?')).count()
    }

    /// Whether all of `name` fits. Case counts. Time grows with the product of both lengths at most.
    pub fn matches(&self, name: &str) -> bool {
        if self.is_exact { *self.text == *name } else { matches(self.text.as_bytes(), name.as_bytes()) }
    }

    /// Whether a name exists that fits both. Time grows with the product of both lengths.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self.is_exact, other.is_exact) {
            (true, _) => other.matches(&self.text),
            (false, true) => self.matches(&other.text),
            (false, false) => overlaps(&self.text, &other.text),
        }
    }
}

/// For each prefix of `one`, and each prefix of `other`: whether a text fits both. A row at a time.
fn overlaps(one: &str, other: &str) -> bool {
    let other: Vec<char> = other.chars().collect();
    let mut above: Vec<bool> = Vec::with_capacity(other.len() + 1);
    above.push(true);
    for (at, letter) in other.iter().enumerate() {
        above.push(above[at] && *letter == '*');
    }
    for letter in one.chars() {
        let mut row = Vec::with_capacity(above.len());
        row.push(above[0] && letter == '*');
        for (at, with) in other.iter().enumerate() {
            row.push(match (letter, *with) {
                // A star is empty, or takes one more letter of the other pattern.
                ('*', _) | (_, '*') => above[at + 1] || row[at],
                (letter, with) => above[at] && (letter == with || letter == '?' || with == '?'),
            });
        }
        above = row;
    }
    above.last().copied().unwrap_or_default()
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Goes back to the last star only: a longer match of an earlier one helps no more.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut byte) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while byte < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, byte));
                at += 1;
            }
            Some(b'?') => {
                at += 1;
                byte += char_length(name[byte]);
            }
            Some(plain) if *plain == name[byte] => {
                at += 1;
                byte += 1;
            }
            _ => {
                let Some((behind, from)) = star else { return false };
                let from = from + char_length(name[from]);
                star = Some((behind, from));
                (at, byte) = (behind, from);
            }
        }
    }
    byte == name.len() && pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Bytes of the character of UTF-8 that begins with `first`.
fn char_length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_match(pattern: &str, name: &str) -> bool {
        Glob::new(pattern).unwrap().matches(name)
    }

    /// The definition, by recursion over characters.
    fn reference(pattern: &[char], name: &[char]) -> bool {
        match pattern {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|skip| reference(rest, &name[skip..])),
            ['?', rest @ ..] => !name.is_empty() && reference(rest, &name[1..]),
            [plain, rest @ ..] => name.first() == Some(plain) && reference(rest, &name[1..]),
        }
    }

    #[test]
    fn patterns_fit_whole_names() {
        assert!(is_match("gpt-4o*", "gpt-4o-mini") && is_match("gpt-4o*", "gpt-4o") && !is_match("gpt-4o*", "gpt-4"));
        assert!(is_match("*/llama-?b", "meta/llama-8b") && !is_match("llama", "llama2"));
        assert!(is_match("?", "é") && !is_match("??", "é"));
        assert!(!is_match("GPT*", "gpt-4o"), "case counts");
        assert!(Glob::new("").is_err() && Glob::new("a\nb").is_err() && Glob::new(&"a".repeat(257)).is_err());
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!is_match(&("*a".repeat(120) + "b"), &"a".repeat(5_000)));
    }

    #[test]
    fn patterns_overlap_if_a_name_fits_both() {
        let overlap = |one: &str, other: &str| Glob::new(one).unwrap().overlaps(&Glob::new(other).unwrap());
        for (one, other) in
            [("gpt-*", "gpt-4o"), ("*-mini", "gpt-*"), ("a?c", "*b*"), ("*", "?"), ("a*", "a"), ("x", "x")]
        {
            assert!(overlap(one, other) && overlap(other, one), "{one} {other}");
        }
        for (one, other) in [("gpt-*", "claude-*"), ("*a", "*b"), ("a?", "a"), ("x", "y"), ("?", "ab*")] {
            assert!(!overlap(one, other) && !overlap(other, one), "{one} {other}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn overlapping_agrees_with_a_search(one in "[ab*?]{1,4}", other in "[ab*?]{1,4}") {
            // The shortest common name has at most as many letters as both patterns together.
            let mut names = vec![String::new()];
            let mut at = 0;
            while let Some(name) = names.get(at).cloned().filter(|name| name.len() < 8) {
                names.extend(["a", "b"].map(|letter| format!("{name}{letter}")));
                at += 1;
            }
            let found = names.iter().any(|name| is_match(&one, name) && is_match(&other, name));
            prop_assert_eq!(Glob::new(&one).unwrap().overlaps(&Glob::new(&other).unwrap()), found);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn matching_agrees_with_its_definition(pattern in "[ab*?é]{1,8}", name in "[abé]{0,8}") {
            let (p, n): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(is_match(&pattern, &name), reference(&p, &n));
        }
    }
}
