//! The condition on one value.

use std::fmt;

use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};

use crate::{
    RouteError,
    limits::{REGEX_BYTES_MAX, REGEX_CACHE_BYTES_MAX, REGEX_PROGRAM_BYTES_MAX},
};

/// How a value is looked at. In order of precedence: the first is the most specific (contract of routing, step 7; prefix
/// and suffix have their place between regex and contains, which the contract does not name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// The whole value is this text.
    Exact,
    /// The whole value matches this regex.
    Regex,
    /// It begins with this text.
    Prefix,
    /// It ends with this text.
    Suffix,
    /// It has this text in it.
    Contains,
    /// There is one, whatever it is.
    Present,
}

impl Operator {
    /// The word of configuration files and dumps.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Regex => "regex",
            Self::Prefix => "prefix",
            Self::Suffix => "suffix",
            Self::Contains => "contains",
            Self::Present => "present",
        }
    }
}

/// A test of one value, compiled.
#[derive(Clone, Debug)]
pub struct TextTest {
    operator: Operator,
    ignore_case: bool,
    /// As it was written; empty for `Present`.
    text: Box<str>,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    Always,
    /// Exact, prefix or suffix: a comparison with the text.
    Compare,
    Find(Box<Finder<'static>>),
    Regex(Regex),
}

impl TextTest {
    /// A test for `text`. `ignore_case` is about ASCII letters; nothing else in HTTP has a case.
    ///
    /// # Errors
    /// A regex that is none or over the limits.
    pub fn new(operator: Operator, text: &str, ignore_case: bool) -> Result<Self, RouteError> {
        let matcher = match operator {
            Operator::Present => Matcher::Always,
            Operator::Exact | Operator::Prefix | Operator::Suffix => Matcher::Compare,
            Operator::Regex => Matcher::Regex(whole(text, ignore_case)?),
            // A search that ignores case and stays linear: the engine of regexes has one.
            Operator::Contains if ignore_case => Matcher::Regex(compile(&literal(text), true, text)?),
            Operator::Contains => Matcher::Find(Box::new(Finder::new(text).into_owned())),
        };
        let text = if operator == Operator::Present { "" } else { text };
        Ok(Self { operator, ignore_case, text: text.into(), matcher })
    }

    /// How it looks at values.
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// Whether it is the same test.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.operator, self.ignore_case, &self.text) == (other.operator, other.ignore_case, &other.text)
    }

    /// The one value that passes, if there is only one.
    pub(crate) fn only_value(&self) -> Option<&[u8]> {
        (self.operator == Operator::Exact && !self.ignore_case).then_some(self.text.as_bytes())
    }

    /// Whether `value` passes. Linear in its length.
    pub fn matches(&self, value: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Always => true,
            Matcher::Compare => self.compare(value),
            Matcher::Find(finder) => finder.find(value).is_some(),
            Matcher::Regex(regex) => regex.is_match(value),
        }
    }

    fn compare(&self, value: &[u8]) -> bool {
        let text = self.text.as_bytes();
        let part = match self.operator {
            Operator::Prefix => value.get(..text.len()),
            Operator::Suffix => value.len().checked_sub(text.len()).map(|start| &value[start..]),
            _ => Some(value),
        };
        part.is_some_and(|part| if self.ignore_case { part.eq_ignore_ascii_case(text) } else { part == text })
    }
}

impl fmt::Display for TextTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operator.name())?;
        if self.operator != Operator::Present {
            write!(f, " `{}`", self.text)?;
        }
        f.write_str(if self.ignore_case { " (any case)" } else { "" })
    }
}

/// A regex that has to match all of a value. Bytes, not characters: values need not be UTF-8, and classes as `\d` mean
/// ASCII.
pub(crate) fn whole(text: &str, ignore_case: bool) -> Result<Regex, RouteError> {
    // Alone first: `a)|(?:b` is no regex, but would be one between parentheses.
    compile(text, ignore_case, text)?;
    compile(&format!(r"\A(?:{text})\z"), ignore_case, text)
}

/// A regex for exactly this text. Byte by byte: outside of ASCII the engine takes no characters where it reads bytes.
fn literal(text: &str) -> String {
    text.bytes().map(|byte| format!(r"\x{byte:02X}")).collect()
}

/// A regex that may match anywhere. `shown` is what the user wrote, for the message.
pub(crate) fn compile(pattern: &str, ignore_case: bool, shown: &str) -> Result<Regex, RouteError> {
    let error = |why: String| RouteError::Regex { text: shown.chars().take(128).collect(), why };
    if shown.len() > REGEX_BYTES_MAX {
        return Err(error(format!("it has more than {REGEX_BYTES_MAX} bytes")));
    }
    RegexBuilder::new(pattern)
        .unicode(false)
        .case_insensitive(ignore_case)
        .size_limit(REGEX_PROGRAM_BYTES_MAX)
        .dfa_size_limit(REGEX_CACHE_BYTES_MAX)
        .build()
        .map_err(|why| error(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(operator: Operator, text: &str, ignore_case: bool, value: &str) -> bool {
        TextTest::new(operator, text, ignore_case).expect("a test").matches(value.as_bytes())
    }

    #[test]
    fn each_operator_looks_at_its_part() {
        use Operator::*;
        for (operator, text, ignore_case, good, bad) in [
            (Exact, "ab", false, "ab", "AB"),
            (Exact, "ab", true, "aB", "abc"),
            (Prefix, "ab", false, "abc", "aBc"),
            (Prefix, "ab", true, "ABc", "a"),
            (Suffix, "bc", false, "abc", "abC"),
            (Suffix, "bc", true, "aBC", "c"),
            (Contains, "b", false, "abc", "aBc"),
            (Contains, "b.", true, "aB.c", "abc"),
            (Contains, "\u{e9}a", true, "\u{e9}A", "ea"),
            (Regex, "a|ab", false, "ab", "abc"),
            (Regex, "a.c", true, "ABC", "xabc"),
            (Regex, r"(?m)^a$", false, "a", "a\nb"),
            (Regex, r"\d+", false, "42", "\u{664}"),
        ] {
            assert!(passes(operator, text, ignore_case, good), "{operator:?} {text} {good}");
            assert!(!passes(operator, text, ignore_case, bad), "{operator:?} {text} {bad}");
        }
        assert!(passes(Present, "", false, ""));
        assert!(passes(Contains, "", false, "") && passes(Prefix, "", true, "x"));
    }

    #[test]
    fn values_need_not_be_text() {
        let test = TextTest::new(Operator::Regex, "a.b", false).expect("a regex");
        assert!(test.matches(b"a\xffb"));
    }

    #[test]
    fn bad_and_huge_regexes_are_refused() {
        for text in ["(", "a)|(?:b", "(a{1000}){1000}", r"(a)\1", &"a".repeat(REGEX_BYTES_MAX + 1)] {
            let error = TextTest::new(Operator::Regex, text, false).expect_err("refused");
            assert!(matches!(error, RouteError::Regex { .. }), "{error}");
            assert!(error.to_string().len() < 20_000);
        }
    }
}
