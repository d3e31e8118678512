//! The one form of a path, in which it is matched, judged and forwarded (RFC 3986 6.2.2).
//!
//! Escapes of unreserved characters are decoded, the others get upper-case digits, runs of slashes become one, dot
//! segments are resolved; in this order, so that `%2e%2e` is a dot segment and `/a//../b` is `/b`, as nginx has it. (RFC
//! 3986 alone, and Envoy, would say `/a/b`. The forwarded path has neither, so no server behind can disagree.)
//!
//! Parts that servers are known to read in different ways have no such form and are refused: see [`PathError`].

use std::{borrow::Cow, fmt, ops::Range};

use super::percent::{escaped, is_unreserved};

/// Treatment of a part of a path that servers read in different ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ambiguous {
    /// Refuse the request.
    #[default]
    Reject,
    /// Match and forward it as it stands. Right only where all servers behind read it alike.
    Keep,
}

/// How paths are normalised. One set of rules per listener: routes are checked against it, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// `//` becomes `/`. Default `true`, as in nginx and Contour.
    pub merge_slashes: bool,
    /// `%00`: some servers end the path there. Default `Reject`.
    pub escaped_nul: Ambiguous,
    /// `%2F`: a slash to some servers, a character of a segment to others. Default `Reject`.
    pub escaped_slash: Ambiguous,
    /// `\` and `%5C`: a slash to some servers. Default `Reject`.
    pub backslash: Ambiguous,
    /// `;` and what follows it in a segment: servlet containers do not count it to the name, so that `/admin;x` is
    /// `/admin` to them. Default `Keep`: elsewhere it is a character like any other. Reject it in front of such servers
    /// where paths are denied.
    pub parameters: Ambiguous,
}

impl PathRules {
    /// Rules for a path that was checked before and is rewritten: parts that its listener kept stay.
    #[must_use]
    pub fn judged() -> Self {
        Self { escaped_slash: Ambiguous::Keep, backslash: Ambiguous::Keep, ..Self::default() }
    }
}

impl Default for PathRules {
    fn default() -> Self {
        Self {
            merge_slashes: true,
            escaped_nul: Ambiguous::Reject,
            escaped_slash: Ambiguous::Reject,
            backslash: Ambiguous::Reject,
            parameters: Ambiguous::Keep,
        }
    }
}

/// Why a path is refused. The client is to blame: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// It does not begin with `/`. (`*` of OPTIONS is no path; it never comes here.)
    NotAbsolute,
    /// A byte that no path has: control, space, `?`, `#`, or outside of ASCII.
    Character,
    /// `%` without two hexadecimal digits behind it.
    BadEscape,
    /// `%00`.
    EscapedNul,
    /// `%2F`.
    EscapedSlash,
    /// `\` or `%5C`.
    Backslash,
    /// `;` where parameters are refused.
    Parameter,
    /// A dot segment to some servers only: `..;x`, or `..` beside a kept `%2F`, `%5C`, `\` or `%00`.
    HiddenDotSegment,
    /// More `..` than segments before it.
    AboveRoot,
}

impl PathError {
    /// The stable snake_case word for metric labels and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAbsolute => "path_not_absolute",
            Self::Character => "path_character",
            Self::BadEscape => "path_bad_escape",
            Self::EscapedNul => "path_escaped_nul",
            Self::EscapedSlash => "path_escaped_slash",
            Self::Backslash => "path_backslash",
            Self::Parameter => "path_parameter",
            Self::HiddenDotSegment => "path_hidden_dot_segment",
            Self::AboveRoot => "path_above_root",
        }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAbsolute => "the path does not begin with `/`",
            Self::Character => "the path has a control character, a space, `?`, `#` or a byte outside of ASCII",
            Self::BadEscape => "the path has `%` without two hexadecimal digits behind it",
            Self::EscapedNul => "the path has `%00`",
            Self::EscapedSlash => "the path has `%2F`",
            Self::Backslash => "the path has `\\` or `%5C`",
            Self::Parameter => "the path has `;`",
            Self::HiddenDotSegment => "the path has a segment that only some servers read as `.` or `..`",
            Self::AboveRoot => "the path climbs above the root",
        })
    }
}

impl std::error::Error for PathError {}

/// The one form of `path`, which is the target's without query. Linear in its length; allocates only if something in the
/// middle changes. The form of a form is itself. An empty path is `/` (RFC 9110 4.2.3).
///
/// # Errors
/// See [`PathError`].
pub fn normalise<'a>(path: &'a [u8], rules: &PathRules) -> Result<Cow<'a, [u8]>, PathError> {
    match path.first() {
        None => return Ok(Cow::Borrowed(b"/")),
        Some(b'/') => {}
        Some(_) => return Err(PathError::NotAbsolute),
    }
    if is_plain(path) {
        return Ok(Cow::Borrowed(path));
    }
    let mut output = Output { source: path, kept: 1, owned: None };
    let mut start = 1;
    loop {
        let end = path[start..].iter().position(|&byte| byte == b'/').map_or(path.len(), |at| start + at);
        let is_last = end == path.len();
        // The output ends with a slash here; behind it comes the segment.
        let at = output.bytes().len();
        write_segment(&mut output, start..end, rules)?;
        let goes_on = match &output.bytes()[at..] {
            b"." => {
                output.truncate(at);
                false
            }
            b".." => {
                let above = output.bytes()[..at - 1].iter().rposition(|&byte| byte == b'/');
                output.truncate(above.ok_or(PathError::AboveRoot)? + 1);
                false
            }
            b"" => !rules.merge_slashes,
            segment if hides_dots(segment) => return Err(PathError::HiddenDotSegment),
            _ => true,
        };
        if is_last {
            return Ok(output.into_cow());
        }
        if goes_on {
            output.push(end..end + 1);
        }
        start = end + 1;
    }
}

/// Nothing has to be changed or looked at twice. Most paths end here.
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    for &byte in path {
        let is_plain = match byte {
            b'/' | b'.' => before != b'/',
            b'%' | b'\\' | b';' => false,
            _ => is_allowed(byte),
        };
        if !is_plain {
            return false;
        }
        before = byte;
    }
    true
}

/// More than RFC 3986 allows in a path: clients send `|`, `{` and the like as they are, and all servers read them alike.
const fn is_allowed(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e) && !matches!(byte, b'?' | b'#')
}

/// Appends a segment of the source, its escapes in their one form.
fn write_segment(output: &mut Output<'_>, segment: Range<usize>, rules: &PathRules) -> Result<(), PathError> {
    let source = output.source;
    let (mut at, mut run) = (segment.start, segment.start);
    while at < segment.end {
        match source[at] {
            b'%' => {
                output.push(run..at);
                write_escape(output, at, rules)?;
                at += 3;
                run = at;
                continue;
            }
            b'\\' => refuse(rules.backslash, PathError::Backslash)?,
            b';' => refuse(rules.parameters, PathError::Parameter)?,
            byte if is_allowed(byte) => {}
            _ => return Err(PathError::Character),
        }
        at += 1;
    }
    output.push(run..segment.end);
    Ok(())
}

fn write_escape(output: &mut Output<'_>, at: usize, rules: &PathRules) -> Result<(), PathError> {
    let escape = &output.source[at..];
    let byte = escaped(escape).ok_or(PathError::BadEscape)?;
    match byte {
        0 => refuse(rules.escaped_nul, PathError::EscapedNul)?,
        b'/' => refuse(rules.escaped_slash, PathError::EscapedSlash)?,
        b'\\' => refuse(rules.backslash, PathError::Backslash)?,
        b';' => refuse(rules.parameters, PathError::Parameter)?,
        byte if is_unreserved(byte) => {
            output.push_bytes(&[byte]);
            return Ok(());
        }
        _ => {}
    }
    let digits = [escape[1].to_ascii_uppercase(), escape[2].to_ascii_uppercase()];
    if digits == escape[1..3] {
        output.push(at..at + 3);
    } else {
        output.push_bytes(&[b'%', digits[0], digits[1]]);
    }
    Ok(())
}

fn refuse(policy: Ambiguous, error: PathError) -> Result<(), PathError> {
    match policy {
        Ambiguous::Reject => Err(error),
        Ambiguous::Keep => Ok(()),
    }
}

/// Whether a segment in its one form is, or has in it, a dot segment for servers that split it further or cut it.
fn hides_dots(segment: &[u8]) -> bool {
    let mut rest = segment;
    // A part begins at the start of the segment and behind each separator.
    loop {
        let dots = rest.iter().take(3).take_while(|&&byte| byte == b'.').count();
        let behind = &rest[dots..];
        let is_dot_segment = matches!(dots, 1 | 2) && (behind.is_empty() || separator(behind) > 0);
        if is_dot_segment {
            return true;
        }
        let Some(at) = (0..rest.len()).find(|&at| separator(&rest[at..]) > 0) else { return false };
        rest = &rest[at + separator(&rest[at..])..];
    }
}

/// Bytes of what some servers split or cut a segment at, if `bytes` begin with it; else 0.
fn separator(bytes: &[u8]) -> usize {
    match bytes {
        [b';' | b'\\', ..] => 1,
        [b'%', b'2', b'F', ..] | [b'%', b'5', b'C', ..] | [b'%', b'3', b'B', ..] | [b'%', b'0', b'0', ..] => 3,
        _ => 0,
    }
}

/// The output so far: the first bytes of the source while nothing has changed, a copy from then on.
struct Output<'a> {
    source: &'a [u8],
    /// Bytes of the source that are the output; of no meaning once there is a copy.
    kept: usize,
    owned: Option<Vec<u8>>,
}

impl<'a> Output<'a> {
    fn bytes(&self) -> &[u8] {
        self.owned.as_deref().unwrap_or(&self.source[..self.kept])
    }

    /// Appends a part of the source.
    fn push(&mut self, range: Range<usize>) {
        match &mut self.owned {
            // An empty part must not be what makes a copy necessary.
            _ if range.is_empty() => {}
            Some(owned) => owned.extend_from_slice(&self.source[range]),
            None if range.start == self.kept => self.kept = range.end,
            None => self.push_bytes(&self.source[range]),
        }
    }

    /// Appends what is not in the source.
    fn push_bytes(&mut self, bytes: &[u8]) {
        let owned = self.owned.get_or_insert_with(|| {
            // The form is never longer than the source.
            let mut owned = Vec::with_capacity(self.source.len());
            owned.extend_from_slice(&self.source[..self.kept]);
            owned
        });
        owned.extend_from_slice(bytes);
    }

    fn truncate(&mut self, len: usize) {
        match &mut self.owned {
            Some(owned) => owned.truncate(len),
            None => self.kept = len,
        }
    }

    fn into_cow(self) -> Cow<'a, [u8]> {
        match self.owned {
            Some(owned) => Cow::Owned(owned),
            None => Cow::Borrowed(&self.source[..self.kept]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(path: &str) -> Result<String, PathError> {
        let form = normalise(path.as_bytes(), &PathRules::default())?;
        Ok(String::from_utf8(form.into_owned()).expect("ASCII"))
    }

    fn keep_all() -> PathRules {
        PathRules {
            merge_slashes: true,
            escaped_nul: Ambiguous::Keep,
            escaped_slash: Ambiguous::Keep,
            backslash: Ambiguous::Keep,
            parameters: Ambiguous::Keep,
        }
    }

    #[test]
    fn dot_segments_are_resolved_and_slashes_merged() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("/.", "/"),
            ("/./", "/"),
            ("//", "/"),
            ("/a/./b", "/a/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/..", "/"),
            ("/a/b/c/./../../g", "/a/g"),
            ("/a//b///c/", "/a/b/c/"),
            ("/a//../b", "/b"),
            ("/...", "/..."),
            ("/..a/b..", "/..a/b.."),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(form(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn unreserved_escapes_are_decoded_and_the_others_upper_cased() {
        for (path, expected) in [
            ("/%61%7E%2D%5f", "/a~-_"),
            ("/%c3%a9%20", "/%C3%A9%20"),
            ("/%252e%252e/", "/%252e%252e/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/%2e/b", "/a/b"),
            ("/a/.%2e", "/"),
        ] {
            assert_eq!(form(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn paths_that_servers_read_differently_are_refused() {
        for (path, error) in [
            ("a", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("/a b", PathError::Character),
            ("/a?b", PathError::Character),
            ("/a#b", PathError::Character),
            ("/\u{e9}", PathError::Character),
            ("/\0", PathError::Character),
            ("/\x7f", PathError::Character),
            ("/%", PathError::BadEscape),
            ("/%4", PathError::BadEscape),
            ("/%zz", PathError::BadEscape),
            ("/%4/1", PathError::BadEscape),
            ("/%+1", PathError::BadEscape),
            ("/a%00", PathError::EscapedNul),
            ("/a%2fb", PathError::EscapedSlash),
            ("/a%5cb", PathError::Backslash),
            ("/a\\b", PathError::Backslash),
            ("/..", PathError::AboveRoot),
            ("/a/../..", PathError::AboveRoot),
            ("//..", PathError::AboveRoot),
            ("/a/..;/b", PathError::HiddenDotSegment),
            ("/a/.;x/b", PathError::HiddenDotSegment),
            ("/a/%2e%2e;x=1/b", PathError::HiddenDotSegment),
            ("/a/..%3b/b", PathError::HiddenDotSegment),
        ] {
            assert_eq!(form(path), Err(error), "{path}");
        }
    }

    #[test]
    fn kept_escapes_hide_no_dot_segment() {
        let form = |path: &'static str| normalise(path.as_bytes(), &keep_all());
        for path in ["/a%2Fb", "/a%5Cb", "/a\\b", "/a%00", "/a;x=1/b", "/...;x", "/a..%2F..b"] {
            assert_eq!(form(path), Ok(Cow::Borrowed(path.as_bytes())), "{path}");
        }
        assert_eq!(form("/a%2fb").expect("kept").as_ref(), b"/a%2Fb");
        for path in ["/a/..%2fb", "/a/x%2F..", "/a/..\\b", "/a/b%5c..%5cc", "/a/..%00", "/a/x;%2F../b", "/a/x\\.\\y"] {
            assert_eq!(form(path), Err(PathError::HiddenDotSegment), "{path}");
        }
    }

    #[test]
    fn parameters_can_be_refused() {
        let rules = PathRules { parameters: Ambiguous::Reject, ..PathRules::default() };
        for path in ["/a;x", "/;/a", "/a%3Bx"] {
            assert_eq!(normalise(path.as_bytes(), &rules), Err(PathError::Parameter), "{path}");
        }
    }

    #[test]
    fn slashes_stay_where_they_are_not_merged() {
        let rules = PathRules { merge_slashes: false, ..PathRules::default() };
        for (path, expected) in [
            ("//a//b//", "//a//b//"),
            ("/a//../b", "/a/b"),
            ("//..", "/"),
            ("/a/.//b", "/a//b"),
            ("/a//%2e/b", "/a//b"),
        ] {
            assert_eq!(normalise(path.as_bytes(), &rules).as_deref(), Ok(expected.as_bytes()), "{path}");
        }
        assert_eq!(normalise(b"//../..", &rules), Err(PathError::AboveRoot));
    }

    #[test]
    fn nothing_is_copied_while_nothing_changes() {
        for path in [
            "/",
            "/a/b.c/d_e",
            "/.well-known/acme",
            "/a%20b/%C3%A9",
            "/a;v=1/b",
            "/a/..b/",
            "/a/b/..",
            "/a/b/../",
            "/a/.",
        ] {
            let form = normalise(path.as_bytes(), &PathRules::default()).expect(path);
            assert!(matches!(form, Cow::Borrowed(_)), "{path}");
        }
    }
}
