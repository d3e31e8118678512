//! A string without its escapes, with the way back to the raw bytes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// A raw text that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeError {
    /// The text has more bytes than the caller takes.
    TooLong,
    /// It is not the inside of a string of JSON. A text that a scanner has passed is.
    Invalid,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the string is too long",
            Self::Invalid => "the string is invalid",
        })
    }
}

impl std::error::Error for DecodeError {}

/// The value of a string whose `raw` text stands between its quotes. Without an escape it is borrowed.
///
/// # Errors
/// The value has more than `bytes_max` bytes, or `raw` is no string.
pub fn text(raw: &[u8], bytes_max: usize) -> Result<Cow<'_, str>, DecodeError> {
    if memchr::memchr(b'\\', raw).is_none() {
        return match raw.len() <= bytes_max {
            true => std::str::from_utf8(raw).map(Cow::Borrowed).map_err(|_| DecodeError::Invalid),
            false => Err(DecodeError::TooLong),
        };
    }
    let mut decoded = Decoded::default();
    decoded.decode(raw, bytes_max)?;
    Ok(Cow::Owned(decoded.text))
}

/// An escape of a decoded string.
#[derive(Clone, Copy, Debug)]
struct Escape {
    /// Where it begins in the decoded text.
    decoded: u32,
    /// Where it begins in the raw text.
    raw: u32,
    decoded_bytes: u8,
    raw_bytes: u8,
}

/// A decoded string. Its buffers serve further strings.
///
/// Worst case for a string of `n` decoded bytes that is nothing but escapes: 13 `n` bytes.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    text: String,
    escapes: Vec<Escape>,
}

impl Decoded {
    /// Decodes `raw`, the text of a string between its quotes, in place of the string before.
    ///
    /// # Errors
    /// The value has more than `bytes_max` bytes, or `raw` is no string. The decoded text is then of no use.
    pub fn decode(&mut self, raw: &[u8], bytes_max: usize) -> Result<(), DecodeError> {
        self.text.clear();
        self.escapes.clear();
        if u32::try_from(raw.len()).is_err() {
            return Err(DecodeError::TooLong);
        }
        let mut at = 0;
        while at < raw.len() {
            let part = Part::first(&raw[at..])?;
            let decoded = self.text.len();
            if part.decoded_bytes() > bytes_max - decoded {
                return Err(DecodeError::TooLong);
            }
            match part {
                Part::Plain(text) => self.text.push_str(std::str::from_utf8(text).map_err(|_| DecodeError::Invalid)?),
                Part::Escape(character, raw_bytes) => {
                    self.text.push(character);
                    self.escapes.push(Escape {
                        decoded: decoded as u32,
                        raw: at as u32,
                        decoded_bytes: character.len_utf8() as u8,
                        raw_bytes,
                    });
                }
            }
            at += part.raw_bytes();
        }
        Ok(())
    }

    /// The decoded text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The bytes of the raw text that stand for these bytes of the decoded one, escapes as a whole. The ends are those
    /// of characters.
    pub fn raw(&self, decoded: Range<usize>) -> Range<usize> {
        self.raw_offset(decoded.start, false)..self.raw_offset(decoded.end, true)
    }

    fn raw_offset(&self, decoded: usize, is_end: bool) -> usize {
        let behind = self.escapes.partition_point(|escape| escape.decoded as usize <= decoded);
        let Some(escape) = behind.checked_sub(1).map(|last| self.escapes[last]) else { return decoded };
        let (start, raw) = (escape.decoded as usize, escape.raw as usize);
        let end = start + usize::from(escape.decoded_bytes);
        match decoded {
            _ if decoded >= end => raw + usize::from(escape.raw_bytes) + (decoded - end),
            _ if is_end && decoded > start => raw + usize::from(escape.raw_bytes),
            _ => raw,
        }
    }
}

/// The value of a short string, if it fits the buffer.
pub(crate) fn into_slice<'a>(raw: &[u8], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let (mut at, mut length) = (0, 0);
    while at < raw.len() {
        let part = Part::first(&raw[at..]).ok()?;
        let target = buffer.get_mut(length..length + part.decoded_bytes())?;
        match part {
            Part::Plain(text) => target.copy_from_slice(text),
            Part::Escape(character, _) => {
                character.encode_utf8(target);
            }
        }
        length += part.decoded_bytes();
        at += part.raw_bytes();
    }
    Some(&buffer[..length])
}

/// The beginning of a raw text.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// Bytes that stand for themselves.
    Plain(&'a [u8]),
    /// An escape, or a pair of them, with its raw bytes.
    Escape(char, u8),
}

impl<'a> Part<'a> {
    /// The part that `raw`, which is not empty, begins with.
    fn first(raw: &'a [u8]) -> Result<Self, DecodeError> {
        let [b'\\', escaped @ ..] = raw else {
            let end = memchr::memchr(b'\\', raw).unwrap_or(raw.len());
            return Ok(Self::Plain(&raw[..end]));
        };
        let character = match escaped.first() {
            Some(&byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return Self::unicode(&escaped[1..]),
            _ => return Err(DecodeError::Invalid),
        };
        Ok(Self::Escape(character, 2))
    }

    /// By the text behind `\u`.
    fn unicode(text: &[u8]) -> Result<Self, DecodeError> {
        let first = digits(text).ok_or(DecodeError::Invalid)?;
        if let Some(character) = char::from_u32(u32::from(first)) {
            return Ok(Self::Escape(character, 6));
        }
        let second = text[4..].strip_prefix(b"\\u").and_then(digits).ok_or(DecodeError::Invalid)?;
        match char::decode_utf16([first, second]).next() {
            Some(Ok(character)) => Ok(Self::Escape(character, 12)),
            _ => Err(DecodeError::Invalid),
        }
    }

    fn decoded_bytes(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Escape(character, _) => character.len_utf8(),
        }
    }

    fn raw_bytes(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Escape(_, bytes) => usize::from(*bytes),
        }
    }
}

/// The value of the four hexadecimal digits at the front.
fn digits(text: &[u8]) -> Option<u16> {
    let digits = text.first_chunk::<4>()?;
    digits.iter().try_fold(0, |value: u16, &digit| Some((value << 4) | char::from(digit).to_digit(16)? as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escape_is_decoded_and_leads_back_to_its_bytes() {
        let raw = br#"a\n\u00e9\ud83d\ude00z"#;
        let mut decoded = Decoded::default();
        decoded.decode(raw, 64).expect("a string");
        assert_eq!(decoded.text(), "a\n\u{e9}\u{1f600}z");
        let raws: Vec<&[u8]> = decoded
            .text()
            .char_indices()
            .map(|(at, character)| &raw[decoded.raw(at..at + character.len_utf8())])
            .collect();
        assert_eq!(raws, [&b"a"[..], br"\n", br"\u00e9", br"\ud83d\ude00", b"z"]);
        assert_eq!(decoded.raw(0..decoded.text().len()), 0..raw.len());
        assert_eq!(decoded.raw(3..4), 3..9, "a part of a character is all of it");
        assert_eq!(decoded.raw(1..1), 1..1);
    }

    #[test]
    fn a_text_is_bounded_and_borrowed_if_it_has_no_escape() {
        assert!(matches!(text("gpt-\u{e9}".as_bytes(), 6), Ok(Cow::Borrowed("gpt-\u{e9}"))));
        assert_eq!(text(b"seven77", 6), Err(DecodeError::TooLong));
        assert_eq!(text(br"\u0041\\", 2).as_deref(), Ok("A\\"));
        assert_eq!(text(br"\u0041\\", 1), Err(DecodeError::TooLong));
        for raw in [&br"\"[..], br"\x", br"\u12", br"\ud800", br"\udc00", br"\ud800\u0041", br"\ud800x", b"\xff"] {
            assert_eq!(text(raw, 64), Err(DecodeError::Invalid), "{raw:?}");
        }
    }

    #[test]
    fn a_short_string_is_decoded_in_place_or_not_at_all() {
        let mut buffer = [0; 5];
        assert_eq!(into_slice(br"mo\u0064el", &mut buffer), Some(&b"model"[..]));
        assert_eq!(into_slice(br"mo\u0064els", &mut buffer), None);
        assert_eq!(into_slice(br"\ud800", &mut buffer), None);
        assert_eq!(into_slice(b"", &mut buffer), Some(&b""[..]));
    }
}
