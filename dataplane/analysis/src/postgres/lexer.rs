//! SQL text becomes tokens, as PostgreSQL's own scanner (`scan.l`) cuts it.
//!
//! | form | rule |
//! |---|---|
//! | `--` comment, `/* /* */ */` | dropped; block comments nest |
//! | `'…'`, `N'…'`, `B'…'`, `X'…'`, `U&'…'` | `''` is a quote; a backslash is one in `'…'` and `N'…'` when the session escapes |
//! | `E'…'` | a backslash takes the next byte with it |
//! | `'…'` newline `'…'` | one string, with comments of `--` between |
//! | `$tag$…$tag$` | ends at the same tag only |
//! | `"…"`, `U&"…"` | a name |
//! | `a$1`, `é` | names go on with `$` and with every byte of 0x80 and above |
//! | `<=-1` | an operator drops trailing `+` and `-` unless it has one of ``~!@#^&|`?%`` |
//! | `$1`, `1.5e-3`, `0xff`, `1_000` | a parameter, numbers (the last two since PostgreSQL 16) |

use memchr::{memchr, memchr2};

use super::range::Range;
use super::statement::Flaw;

/// How the session reads a backslash in a plain string: its setting `standard_conforming_strings`, which servers
/// report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// On, the default since 2010: a backslash is a character.
    Conforming,
    /// Off: a backslash escapes, as in `E'…'`.
    Escaping,
    /// Not known. A text that the two readings cut at different places is not whole.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A keyword or an unquoted name.
    Word,
    /// `"…"`.
    QuotedName,
    /// `U&"…"`.
    UnicodeName,
    /// A string of any form but those with escapes.
    Text,
    /// A string with escapes: `E'…'`, `U&'…'`, or a plain one of a session that escapes.
    EscapedText,
    /// `B'…'`, `X'…'`.
    Bits,
    Number,
    Parameter,
    Operator,
    /// One of `( ) [ ] , ; : .`, or a byte that begins nothing.
    Sign(u8),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    pub range: Range,
}

/// Tokens of a text, then `None`. Comments are noted on the way.
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    reading: Reading,
    /// The content of the last block comment that was skipped.
    pub comment: Option<Range>,
}

impl<'a> Lexer<'a> {
    pub const fn new(text: &'a [u8], reading: Reading) -> Self {
        Self { text, at: 0, reading, comment: None }
    }

    fn byte(&self, ahead: usize) -> u8 {
        // A text has no byte 0: `analyse` has looked.
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self, kind: Kind, start: usize, end: usize) -> Option<Token> {
        self.at = end;
        Some(Token { kind, range: Range::new(start, end) })
    }

    pub fn next(&mut self) -> Result<Option<Token>, Flaw> {
        self.skip_blank()?;
        let Some(&first) = self.text.get(self.at) else { return Ok(None) };
        let start = self.at;
        Ok(match first {
            b'\'' => self.plain_string(start)?,
            b'"' => {
                let end = self.quoted_end(start + 1, b'"')?;
                self.token(Kind::QuotedName, start, end)
            }
            b'$' => self.dollar(start)?,
            b'0'..=b'9' => self.number(start),
            b'.' if self.byte(1).is_ascii_digit() => self.number(start),
            b'e' | b'E' if self.byte(1) == b'\'' => {
                let end = self.escaped_end(start + 2)?;
                self.token(Kind::EscapedText, start, end)
            }
            b'b' | b'B' | b'x' | b'X' if self.byte(1) == b'\'' => {
                let end = self.continued_end(start + 2)?;
                self.token(Kind::Bits, start, end)
            }
            b'n' | b'N' if self.byte(1) == b'\'' => self.plain_string(start)?,
            b'u' | b'U' if self.byte(1) == b'&' && self.byte(2) == b'\'' => {
                let end = self.continued_end(start + 3)?;
                self.token(Kind::EscapedText, start, end)
            }
            b'u' | b'U' if self.byte(1) == b'&' && self.byte(2) == b'"' => {
                let end = self.quoted_end(start + 3, b'"')?;
                self.token(Kind::UnicodeName, start, end)
            }
            _ if is_name_start(first) => {
                let end = name_end(self.text, start);
                self.token(Kind::Word, start, end)
            }
            _ if is_operator(first) => self.operator(start),
            b':' if matches!(self.byte(1), b':' | b'=') => self.token(Kind::Operator, start, start + 2),
            _ => self.token(Kind::Sign(first), start, start + 1),
        })
    }

    /// White space and comments. A vertical tab is white space since PostgreSQL 16 and an error before.
    pub fn skip_blank(&mut self) -> Result<(), Flaw> {
        loop {
            match self.byte(0) {
                b' ' | b'\t'..=b'\r' => self.at += 1,
                b'-' if self.byte(1) == b'-' => self.at = line_end(self.text, self.at),
                b'/' if self.byte(1) == b'*' => {
                    let end = block_comment_end(self.text, self.at).ok_or(Flaw::Unterminated)?;
                    self.comment = Some(Range::new(self.at + 2, end - 2));
                    self.at = end;
                }
                _ => return Ok(()),
            }
        }
    }

    /// `'…'` or `N'…'`, in the session's reading.
    fn plain_string(&mut self, start: usize) -> Result<Option<Token>, Flaw> {
        let inside = if self.text[start] == b'\'' { start + 1 } else { start + 2 };
        let conforming = self.continued_end(inside);
        let end = match self.reading {
            Reading::Conforming => conforming?,
            Reading::Escaping => self.escaped_end(inside)?,
            Reading::Unknown => {
                let end = conforming.map_err(|_| Flaw::Ambiguous);
                if end != self.escaped_end(inside).map_err(|_| Flaw::Ambiguous) {
                    return Err(Flaw::Ambiguous);
                }
                conforming?
            }
        };
        let kind = if self.reading == Reading::Escaping { Kind::EscapedText } else { Kind::Text };
        Ok(self.token(kind, start, end))
    }

    /// Behind the closing quote of a string without escapes and of its continuations. `at` is behind the opening quote.
    fn continued_end(&self, at: usize) -> Result<usize, Flaw> {
        let mut at = at;
        loop {
            let end = self.quoted_end(at, b'\'')?;
            match continuation(self.text, end) {
                Some(next) => at = next,
                None => return Ok(end),
            }
        }
    }

    /// The same for a string with escapes.
    fn escaped_end(&self, at: usize) -> Result<usize, Flaw> {
        let mut at = at;
        loop {
            at += memchr2(b'\'', b'\\', self.text.get(at..).unwrap_or_default()).ok_or(Flaw::Unterminated)?;
            if self.text[at] == b'\\' || self.text.get(at + 1) == Some(&b'\'') {
                at += 2;
                continue;
            }
            match continuation(self.text, at + 1) {
                Some(next) => at = next,
                None => return Ok(at + 1),
            }
        }
    }

    /// Behind the closing `quote`, where a doubled one is a character.
    fn quoted_end(&self, at: usize, quote: u8) -> Result<usize, Flaw> {
        quoted_end(self.text, at, quote).ok_or(Flaw::Unterminated)
    }

    /// `$1`, `$tag$…$tag$`, or the sign alone.
    fn dollar(&mut self, start: usize) -> Result<Option<Token>, Flaw> {
        if self.byte(1).is_ascii_digit() {
            let end = digits_end(self.text, start + 1);
            return Ok(self.token(Kind::Parameter, start, end));
        }
        let Some(inside) = dollar_tag_end(self.text, start) else {
            return Ok(self.token(Kind::Sign(b'$'), start, start + 1));
        };
        let end = dollar_end(self.text, start, inside).ok_or(Flaw::Unterminated)?;
        Ok(self.token(Kind::Text, start, end))
    }

    fn number(&mut self, start: usize) -> Option<Token> {
        let end = number_end(self.text, start);
        self.token(Kind::Number, start, end)
    }

    fn operator(&mut self, start: usize) -> Option<Token> {
        let end = operator_end(self.text, start);
        self.token(Kind::Operator, start, end)
    }
}

pub(super) const fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

const fn is_name(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit() || byte == b'$'
}

/// [`is_name`] by byte: names are most of a text.
static IS_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = is_name(byte as u8);
        byte += 1;
    }
    table
};

/// Behind the name that goes on at `at`.
#[inline]
pub(super) fn name_end(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| !IS_NAME[usize::from(byte)]).unwrap_or(rest.len())
}

const fn is_operator(byte: u8) -> bool {
    matches!(byte, b'~' | b'!' | b'@' | b'#' | b'^' | b'&' | b'|' | b'`' | b'?' | b'+' | b'-' | b'*' | b'/' | b'%')
        || matches!(byte, b'<' | b'>' | b'=')
}

/// Operators with one of these keep a trailing `+` or `-`.
const fn keeps_sign(byte: u8) -> bool {
    matches!(byte, b'~' | b'!' | b'@' | b'#' | b'^' | b'&' | b'|' | b'`' | b'?' | b'%')
}

/// The end of the line at `at`.
pub(super) fn line_end(text: &[u8], at: usize) -> usize {
    memchr2(b'\n', b'\r', &text[at..]).map_or(text.len(), |length| at + length)
}

/// Behind the comment that begins at `at`; `None` without its end.
pub(super) fn block_comment_end(text: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, at);
    loop {
        at += memchr2(b'/', b'*', text.get(at..)?)?;
        match (text[at], text.get(at + 1)) {
            (b'/', Some(b'*')) => {
                depth += 1;
                at += 2;
            }
            (b'*', Some(b'/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

/// Behind the closing `quote` of what begins at `at`, where a doubled one is a character.
pub(super) fn quoted_end(text: &[u8], at: usize, quote: u8) -> Option<usize> {
    let mut at = at;
    loop {
        at += memchr(quote, text.get(at..)?)? + 1;
        if text.get(at) != Some(&quote) {
            return Some(at);
        }
        at += 1;
    }
}

/// Where a string that ended at `at` goes on: behind the next quote, if only white space with a line break and comments
/// of `--` are between.
pub(super) fn continuation(text: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut has_break) = (at, false);
    loop {
        match *text.get(at)? {
            b'\n' | b'\r' => {
                has_break = true;
                at += 1;
            }
            b' ' | b'\t' | b'\x0b' | b'\x0c' => at += 1,
            b'-' if text.get(at + 1) == Some(&b'-') => at = line_end(text, at),
            b'\'' if has_break => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Behind the `$tag$` at `at`; `None` if there is none.
pub(super) fn dollar_tag_end(text: &[u8], at: usize) -> Option<usize> {
    let tag = text.get(at + 1..)?;
    let length = tag.iter().position(|&byte| !is_name(byte) || byte == b'$')?;
    (tag[length] == b'$' && !tag[0].is_ascii_digit()).then_some(at + length + 2)
}

/// Behind the closing tag of the string whose opening tag is `start..inside`.
pub(super) fn dollar_end(text: &[u8], start: usize, inside: usize) -> Option<usize> {
    let tag = &text[start..inside];
    let mut at = inside;
    loop {
        at += memchr(b'$', text.get(at..)?)?;
        if text[at..].starts_with(tag) {
            return Some(at + tag.len());
        }
        at += 1;
    }
}

fn digits_end(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|byte| !byte.is_ascii_digit()).map_or(text.len(), |length| at + length)
}

/// Digits with single underscores between them.
fn grouped_end(text: &[u8], at: usize, is_digit: fn(&u8) -> bool) -> usize {
    let mut at = at;
    loop {
        match text.get(at) {
            Some(byte) if is_digit(byte) => at += 1,
            Some(b'_') if text.get(at + 1).is_some_and(is_digit) => at += 1,
            _ => return at,
        }
    }
}

pub(super) fn number_end(text: &[u8], start: usize) -> usize {
    let radix: Option<fn(&u8) -> bool> = match (text[start], text.get(start + 1)) {
        (b'0', Some(b'x' | b'X')) => Some(u8::is_ascii_hexdigit),
        (b'0', Some(b'o' | b'O')) => Some(|byte| matches!(byte, b'0'..=b'7')),
        (b'0', Some(b'b' | b'B')) => Some(|byte| matches!(byte, b'0' | b'1')),
        _ => None,
    };
    if let Some(is_digit) = radix {
        let end = grouped_end(text, start + 2, is_digit);
        if end > start + 2 {
            return end;
        }
    }
    let mut at = grouped_end(text, start, u8::is_ascii_digit);
    // `1..10` is a range of PL/pgSQL.
    if text.get(at) == Some(&b'.') && text.get(at + 1) != Some(&b'.') {
        at = grouped_end(text, at + 1, u8::is_ascii_digit);
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let end = grouped_end(text, (at + 1 + sign).min(text.len()), u8::is_ascii_digit);
        if end > at + 1 + sign {
            return end;
        }
    }
    at
}

pub(super) fn operator_end(text: &[u8], start: usize) -> usize {
    let rest = &text[start..];
    let mut length = rest.iter().position(|&byte| !is_operator(byte)).unwrap_or(rest.len());
    // A comment ends an operator.
    let mut at = 0;
    while let Some(found) = memchr2(b'-', b'/', &rest[at..length]).map(|found| at + found) {
        if matches!((rest[found], rest.get(found + 1)), (b'-', Some(b'-')) | (b'/', Some(b'*'))) && found > 0 {
            length = found;
            break;
        }
        at = found + 1;
    }
    if !rest[..length].iter().copied().any(keeps_sign) {
        while length > 1 && matches!(rest[length - 1], b'+' | b'-') {
            length -= 1;
        }
    }
    start + length
}
