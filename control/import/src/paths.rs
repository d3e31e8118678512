//! Paths and regular expressions, as routes can have them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};

/// The bytes of a path as a request writes them: what has no place there is an escape.
pub(crate) fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            0x21..=0x7e if byte != b'"' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Why a plain path is not one that a request can have after normalisation; `None`: it is.
pub(crate) fn oddity(path: &str) -> Option<&'static str> {
    let is_dots = |segment: &str| segment == "." || segment == "..";
    match () {
        () if !path.starts_with('/') => Some("it does not begin with a slash"),
        () if path.contains("//") => Some("several slashes become one before routes see the path"),
        () if path.split('/').any(is_dots) => Some("dot segments are resolved before routes see the path"),
        () if path.contains(['?', '#']) => Some("a path has no `?` and no `#`"),
        () if path.contains('*') => Some("`*` is not allowed in a plain path"),
        () => None,
    }
}

/// A regular expression that may match anywhere in the path, as one for the whole path.
///
/// # Errors
/// Why it cannot be used here.
pub(crate) fn whole_regex(pattern: &str, ignores_case: bool) -> Result<String, String> {
    let compiled = RegexBuilder::new(pattern).unicode(false).build();
    compiled.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("Weir's regular expressions cannot say it ({last})")
    })?;
    if pattern.contains(|c: char| !c.is_ascii_graphic()) {
        return Err("a regular expression of a route has printable ASCII characters only, and no space".to_owned());
    }
    let mut body = pattern;
    let (mut front, mut back) = (".*", ".*");
    let has_branches = top_level_bar(pattern);
    if !has_branches {
        if let Some(rest) = body.strip_prefix('^') {
            (body, front) = (rest, "");
        }
        if let Some(rest) = body.strip_suffix('$').filter(|rest| !rest.ends_with('\\')) {
            (body, back) = (rest, "");
        }
        // `.*` beside `.*` says nothing.
        if back == ".*" && body.ends_with(".*") && !body.ends_with("\\.*") {
            back = "";
        }
    }
    let body = if has_branches { format!("(?:{body})") } else { body.to_owned() };
    let flag = if ignores_case { "(?i)" } else { "" };
    Ok(format!("{flag}{front}{body}{back}"))
}

/// Text that matches nothing, and makes a regex longer.
const PADDING: &str = "(?:)";

/// Makes a regex longer than so many bytes, and leaves what it matches: of regexes the longer one is tried first.
pub(crate) fn pad(regex: &mut String, bytes: usize) {
    while regex.len() <= bytes {
        regex.push_str(PADDING);
    }
}

/// The regex without what [`pad`] has added.
pub(crate) fn unpadded(regex: &str) -> &str {
    regex.trim_end_matches(PADDING)
}

/// Compiled regexes that are kept: one is compared with many paths.
const COMPILED_MAX: usize = 1024;

/// Compiled regexes by their text; `None`: it cannot be read.
#[derive(Default)]
pub(crate) struct Regexes(RefCell<HashMap<String, Option<Regex>>>);

impl Regexes {
    /// Whether a regex matches all of a path. One that cannot be read matches, so that no rule relies on it.
    pub(crate) fn is_whole_match(&self, regex: &str, path: &str) -> bool {
        let mut compiled = self.0.borrow_mut();
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        let compile = || RegexBuilder::new(&format!(r"\A(?:{regex})\z")).unicode(false).build().ok();
        if !compiled.contains_key(regex) {
            compiled.insert(regex.to_owned(), compile());
        }
        let known = compiled.get(regex).and_then(Option::as_ref);
        known.is_none_or(|whole| whole.is_match(encoded(path).as_bytes()))
    }
}

/// The text with which all that a regex matches begins, as far as it is easily seen.
pub(crate) fn literal_prefix(regex: &str) -> String {
    if top_level_bar(regex) {
        return String::new();
    }
    let end =
        regex.find(['.', '^', '$', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|', '\\']).unwrap_or(regex.len());
    let mut text = regex[..end].to_owned();
    // A character that may be repeated may be missing.
    if regex[end..].starts_with(['*', '?', '{']) {
        text.pop();
    }
    text
}

/// Whether a `|` stands outside of all groups and classes.
fn top_level_bar(pattern: &str) -> bool {
    let (mut depth, mut in_class, mut is_escaped) = (0usize, false, false);
    for c in pattern.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            _ if in_class => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// The text with every character of a regular expression escaped.
pub(crate) fn escaped(text: &str) -> String {
    regex::escape(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regex_for_a_part_becomes_one_for_the_whole() {
        let whole = |pattern| whole_regex(pattern, false);
        assert_eq!(whole(r"\.php$").as_deref(), Ok(r".*\.php"));
        assert_eq!(whole("^/a/[0-9]+").as_deref(), Ok("/a/[0-9]+.*"));
        assert_eq!(whole("^/a|b$").as_deref(), Ok(".*(?:^/a|b$).*"));
        assert_eq!(whole("^/(a|b)$").as_deref(), Ok("/(a|b)"));
        assert_eq!(whole(r"/a\$").as_deref(), Ok(r".*/a\$.*"));
        assert_eq!(whole_regex(r"\.(gif|jpg)$", true).as_deref(), Ok(r"(?i).*\.(gif|jpg)"));
    }

    #[test]
    fn the_prefix_of_a_regex_is_common_to_all_its_paths() {
        let begin = |regex: &str| literal_prefix(regex);
        assert_eq!(
            [begin("/item/[0-9]+"), begin("/a/?b"), begin("/a|/b"), begin("(?i)/a"), begin("/a.css")],
            ["/item/", "/a", "", "", "/a"]
        );
    }

    #[test]
    fn look_around_is_refused_with_the_reason() {
        let why = whole_regex("^/(?!api)", false).expect_err("no look-around");
        assert!(why.contains("look-around"), "{why}");
    }

    #[test]
    fn odd_paths_are_named_and_odd_bytes_are_escaped() {
        assert_eq!(oddity("/a/b"), None);
        assert!(oddity("a").is_some() && oddity("/a//b").is_some() && oddity("/a/../b").is_some());
        assert_eq!(encoded("/a b/ü"), "/a%20b/%C3%BC");
    }
}
