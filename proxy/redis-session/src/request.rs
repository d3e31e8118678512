//! One command as the machine sees it.

use weir_analysis::redis::Args;
use weir_resp::{RequestParser, encode};

/// One command: its arguments, and its bytes as they came.
pub(crate) struct Request<'a> {
    pub(crate) parser: &'a RequestParser,
    pub(crate) bytes: &'a [u8],
    pub(crate) is_inline: bool,
}

impl Args for Request<'_> {
    /// As declared: of a command that is streamed not every argument is here, and what it may do depends on all.
    fn argc(&self) -> usize {
        self.parser.args_declared() as usize
    }

    fn arg(&self, index: usize) -> Option<&[u8]> {
        (index < self.parser.argc()).then(|| self.parser.arg(index, self.bytes))
    }
}

impl Request<'_> {
    /// Argument `index`, or nothing.
    pub(crate) fn text(&self, index: usize) -> &[u8] {
        self.arg(index).unwrap_or_default()
    }

    /// Hands the command to `send` as an array of bulk strings.
    #[inline]
    pub(crate) fn with_wire<R>(&self, send: impl FnOnce(&[u8]) -> R) -> R {
        if !self.is_inline {
            return send(self.bytes);
        }
        let mut wire = Vec::new();
        let args: Vec<&[u8]> = (0..self.argc()).map(|index| self.text(index)).collect();
        encode::command(&mut wire, args);
        send(&wire)
    }
}

/// An integer as Redis reads one: digits with an optional minus, no blanks, no plus, no leading zeros, no minus zero.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if text == b"-0" {
        return None;
    }
    let is_plain = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || !digits.starts_with(b"0"));
    if digits.is_empty() || !is_plain {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
