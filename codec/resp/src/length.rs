//! Canonical decimal lengths: `0`, or digits that start with 1 to 9; `-` only where a caller allows it.
//! No blanks, no `+`, no leading zeros: two parsers that disagree on a length disagree on where a command ends.

/// Digits a length may have: 4,294,967,296 has ten, and all caps are at most that.
const DIGITS_MAX: u8 = 10;

/// Reads `digits CRLF` at the front of `bytes`. Gives the value and the bytes used, CRLF included.
/// `None` for anything else: unfinished, negative, malformed, or more than nine digits; the caller then looks closer.
#[inline(always)]
pub(crate) fn whole(bytes: &[u8]) -> Option<(u32, usize)> {
    // One and two digits cover almost every header of small commands and replies.
    match *bytes {
        [a @ b'0'..=b'9', b'\r', b'\n', ..] => Some((u32::from(a - b'0'), 3)),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some((u32::from(a - b'0') * 10 + u32::from(b - b'0'), 4))
        }
        [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9', ..] => whole_long(bytes),
        _ => None,
    }
}

/// Three to nine digits.
#[inline]
fn whole_long(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0u32;
    for (at, &byte) in bytes.iter().enumerate().take(usize::from(DIGITS_MAX)) {
        if byte.is_ascii_digit() && at < 9 {
            value = value * 10 + u32::from(byte - b'0');
        } else {
            return match bytes.get(at..at + 2) {
                Some(b"\r\n") => Some((value, at + 2)),
                _ => None,
            };
        }
    }
    None
}

/// A canonical number that is the whole of `text`, as Redis' `string2ll` reads it.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value = 0i64;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        // Built downwards, since the most negative number has no positive twin.
        value = value.checked_mul(10)?.checked_sub(i64::from(byte - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// The length of a finished length line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// A count of bytes or elements.
    Count(u64),
    /// `-1`.
    Null,
}

/// A length line that arrives in pieces. Fails at the first byte that cannot belong to a canonical one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LengthLine {
    value: u64,
    digits: u8,
    negative: bool,
    cr: bool,
}

/// The byte cannot stand here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadLength;

impl LengthLine {
    /// Before the first byte.
    pub(crate) const START: Self = Self { value: 0, digits: 0, negative: false, cr: false };

    /// Takes the next byte; `Some` once the line feed came.
    pub(crate) fn push(&mut self, byte: u8) -> Result<Option<Length>, BadLength> {
        match byte {
            b'0'..=b'9' if !self.cr => {
                let leading_zero = self.digits == 1 && self.value == 0;
                if leading_zero || self.digits == DIGITS_MAX {
                    return Err(BadLength);
                }
                self.value = self.value * 10 + u64::from(byte - b'0');
                self.digits += 1;
                Ok(None)
            }
            b'-' if self.digits == 0 && !self.negative && !self.cr => {
                self.negative = true;
                Ok(None)
            }
            b'\r' if self.digits > 0 && !self.cr => {
                self.cr = true;
                Ok(None)
            }
            b'\n' if self.cr => match (self.negative, self.value) {
                (false, value) => Ok(Some(Length::Count(value))),
                (true, 1) => Ok(Some(Length::Null)),
                (true, _) => Err(BadLength),
            },
            _ => Err(BadLength),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &[u8]) -> Result<Option<Length>, BadLength> {
        let mut line = LengthLine::START;
        let mut last = Ok(None);
        for &byte in text {
            last = line.push(byte);
            if last != Ok(None) {
                break;
            }
        }
        last
    }

    #[test]
    fn whole_and_pieces_agree_on_canonical_lengths() {
        for value in [0u32, 1, 9, 10, 99, 100, 999, 16_384, 65_536, 536_870_912, 999_999_999] {
            let text = format!("{value}\r\n");
            assert_eq!(whole(text.as_bytes()), Some((value, text.len())));
            assert_eq!(pieces(text.as_bytes()), Ok(Some(Length::Count(u64::from(value)))));
            for cut in 0..text.len() {
                assert_eq!(whole(&text.as_bytes()[..cut]), None, "{text:?} cut at {cut}");
            }
        }
        assert_eq!(whole(b"1000000000\r\n"), None);
        assert_eq!(pieces(b"4294967296\r\n"), Ok(Some(Length::Count(1 << 32))));
        assert_eq!(pieces(b"-1\r\n"), Ok(Some(Length::Null)));
    }

    #[test]
    fn anything_but_canonical_is_refused() {
        let bad: &[&[u8]] = &[
            b"\r\n",
            b"00\r\n",
            b"04\r\n",
            b"+4\r\n",
            b" 4\r\n",
            b"4 \r\n",
            b"4\n",
            b"4\r4\r\n",
            b"-\r\n",
            b"-0\r\n",
            b"-2\r\n",
            b"-01\r\n",
            b"--1\r\n",
            b"x\r\n",
            b"012\r\n",
            b"1x2\r\n",
            b"12345678901\r\n",
            b"4\r\r\n",
        ];
        for text in bad {
            assert_eq!(whole(text), None, "{text:?}");
            assert_eq!(pieces(text), Err(BadLength), "{text:?}");
        }
    }

    #[test]
    fn number_reads_as_redis_does() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"-5"), Some(-5));
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(number(b"-9223372036854775808"), Some(i64::MIN));
        for text in [&b""[..], b"-", b"-0", b"+1", b"01", b"1 ", b" 1", b"9223372036854775808", b"1x", b"-01"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }
}
