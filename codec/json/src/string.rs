//! Strings (section 7), resumable at every byte.

use crate::error::Rule;

/// Where the text of a string is between two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Between two characters.
    Plain,
    /// Behind a backslash.
    Escape,
    /// Behind `\u` and so many digits.
    Hex { value: u16, digits: u8, is_low: bool },
    /// Behind the first half of a surrogate pair: the backslash of the second follows.
    LowBackslash,
    /// Behind that backslash.
    LowLetter,
    /// Within a character of several bytes; the next is in this range.
    Utf8 { left: u8, low: u8, high: u8 },
}

/// The progress of one string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    state: State,
    /// A backslash has been seen.
    pub(crate) has_escapes: bool,
}

impl Progress {
    /// Behind the first quote.
    pub(crate) const BEGIN: Self = Self { state: State::Plain, has_escapes: false };

    /// Where the string ends: behind its last quote. `None`: it goes on in the next piece.
    ///
    /// # Errors
    /// The rule, and the place of the byte that breaks it.
    #[inline(always)]
    pub(crate) fn scan(&mut self, piece: &[u8], start: usize) -> Result<Option<usize>, (Rule, usize)> {
        let mut at = start;
        if self.state == State::Plain {
            at += plain(&piece[at..]);
            // So do most strings end.
            if piece.get(at) == Some(&b'"') {
                return Ok(Some(at + 1));
            }
        }
        self.scan_on(piece, at)
    }

    /// Goes on where something else than plain text is.
    #[inline(never)]
    fn scan_on(&mut self, piece: &[u8], start: usize) -> Result<Option<usize>, (Rule, usize)> {
        let mut at = start;
        loop {
            if self.state == State::Plain {
                at += plain(&piece[at..]);
                match &piece[at..] {
                    [] => return Ok(None),
                    [b'"', ..] => return Ok(Some(at + 1)),
                    [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => {
                        self.has_escapes = true;
                        at += 2;
                        continue;
                    }
                    rest => match characters(rest) {
                        0 => {}
                        bytes => {
                            at += bytes;
                            continue;
                        }
                    },
                }
            }
            let Some(&byte) = piece.get(at) else { return Ok(None) };
            self.has_escapes |= byte == b'\\';
            self.state = self.state.step(byte).map_err(|rule| (rule, at))?;
            at += 1;
        }
    }
}

impl State {
    /// The state behind the next byte. In `Plain` it is a byte that [`plain`] stops at, other than a quote.
    fn step(self, byte: u8) -> Result<Self, Rule> {
        Ok(match self {
            Self::Plain => match byte {
                b'\\' => Self::Escape,
                0xc2..=0xdf => Self::Utf8 { left: 1, low: 0x80, high: 0xbf },
                0xe0 => Self::Utf8 { left: 2, low: 0xa0, high: 0xbf },
                0xed => Self::Utf8 { left: 2, low: 0x80, high: 0x9f },
                0xe1..=0xef => Self::Utf8 { left: 2, low: 0x80, high: 0xbf },
                0xf0 => Self::Utf8 { left: 3, low: 0x90, high: 0xbf },
                0xf1..=0xf3 => Self::Utf8 { left: 3, low: 0x80, high: 0xbf },
                0xf4 => Self::Utf8 { left: 3, low: 0x80, high: 0x8f },
                0x80.. => return Err(Rule::Utf8),
                _ => return Err(Rule::Control),
            },
            Self::Escape => match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Self::Plain,
                b'u' => Self::Hex { value: 0, digits: 0, is_low: false },
                _ => return Err(Rule::Escape),
            },
            Self::Hex { value, digits, is_low } => {
                let digit = char::from(byte).to_digit(16).ok_or(Rule::Escape)?;
                let value = (value << 4) | digit as u16;
                match (digits, value, is_low) {
                    (0..3, ..) => Self::Hex { value, digits: digits + 1, is_low },
                    (_, 0xdc00..=0xdfff, true) => Self::Plain,
                    (_, 0xd800..=0xdbff, false) => Self::LowBackslash,
                    (_, 0xdc00..=0xdfff, false) | (_, _, true) => return Err(Rule::Surrogate),
                    _ => Self::Plain,
                }
            }
            Self::LowBackslash if byte == b'\\' => Self::LowLetter,
            Self::LowLetter if byte == b'u' => Self::Hex { value: 0, digits: 0, is_low: true },
            Self::LowBackslash | Self::LowLetter => return Err(Rule::Surrogate),
            Self::Utf8 { left, low, high } if (low..=high).contains(&byte) => match left {
                1 => Self::Plain,
                _ => Self::Utf8 { left: left - 1, low: 0x80, high: 0xbf },
            },
            Self::Utf8 { .. } => return Err(Rule::Utf8),
        })
    }
}

/// Bytes of a text that are looked at word by word.
const SHORT: usize = 24;

/// Not an ASCII character that stands for itself. The quote (0x22) is the last of a row if one bit of each byte is turned; it and the
/// control characters are then below 0x21, and bytes that are not ASCII below zero.
const fn is_special(byte: u8) -> bool {
    (((byte ^ 2) as i8) < 0x21) | (byte == b'\\')
}

/// Bytes at the front of `input` that are ASCII and stand for themselves.
#[inline(always)]
pub(crate) fn plain(input: &[u8]) -> usize {
    let mut at = 0;
    // Most keys and names end within these.
    while at < SHORT {
        let Some(word) = input[at..].first_chunk() else { return at + plain_end(&input[at..]) };
        match specials(*word) {
            0 => at += 8,
            found => return at + found.trailing_zeros() as usize / 8,
        }
    }
    at + plain_blocks(&input[at..])
}

/// The same for a long text.
#[inline(never)]
fn plain_blocks(input: &[u8]) -> usize {
    let (blocks, _) = input.as_chunks();
    let mut at = blocks.iter().position(|block| !is_plain(block)).unwrap_or(blocks.len()) * 32;
    while let Some(word) = input[at..].first_chunk() {
        match specials(*word) {
            0 => at += 8,
            found => return at + found.trailing_zeros() as usize / 8,
        }
    }
    at + plain_end(&input[at..])
}

/// The same for the end of an input.
#[inline(never)]
fn plain_end(input: &[u8]) -> usize {
    input.iter().position(|&byte| is_special(byte)).unwrap_or(input.len())
}

/// Without a branch, so that the compiler makes vectors of it.
#[inline]
fn is_plain(block: &[u8; 32]) -> bool {
    !block.iter().fold(false, |found, &byte| found | is_special(byte))
}

/// The highest bit of each special byte, as [`is_special`] finds it. A borrow may set further bits above the first, which is exact ("Bit
/// Twiddling Hacks", "Determine if a word has a byte less than n").
#[inline]
const fn specials(word: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const TOPS: u64 = ONES << 7;
    let word = u64::from_le_bytes(word);
    let quotes_and_controls = (word ^ (ONES * 2)).wrapping_sub(ONES * 0x21);
    let backslashes = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (word | quotes_and_controls | backslashes) & TOPS
}

/// Bytes at the front of `input` that are whole characters of two bytes or more. The first that is none, or is not
/// whole, is left to [`State::step`].
#[inline]
fn characters(input: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += match &input[at..] {
            [0xc2..=0xdf, 0x80..=0xbf, ..] => 2,
            [0xe1..=0xec | 0xee | 0xef, 0x80..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xe0, 0xa0..=0xbf, 0x80..=0xbf, ..] | [0xed, 0x80..=0x9f, 0x80..=0xbf, ..] => 3,
            [0xf1..=0xf3, 0x80..=0xbf, 0x80..=0xbf, 0x80..=0xbf, ..] => 4,
            [0xf0, 0x90..=0xbf, 0x80..=0xbf, 0x80..=0xbf, ..] => 4,
            [0xf4, 0x80..=0x8f, 0x80..=0xbf, 0x80..=0xbf, ..] => 4,
            _ => return at,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_special_byte_ends_a_plain_run_at_every_place() {
        for byte in 0..=u8::MAX {
            for at in 0..80 {
                let mut input = [b'a'; 80];
                input[at] = byte;
                let is_plain = matches!(byte, b' '..=b'~' | 0x7f) && !matches!(byte, b'"' | b'\\');
                let wanted = if is_plain { 80 } else { at };
                assert_eq!(plain(&input), wanted, "{byte:x} at {at}");
                // A byte above it must not hide it.
                input[79] = 0;
                assert_eq!(plain(&input), wanted.min(79), "{byte:x} at {at}, and a NUL");
            }
        }
    }

    #[test]
    fn characters_are_those_of_the_standard_library() {
        for value in (0x80..=0x10_ffff).filter_map(char::from_u32).step_by(17) {
            let mut bytes = [0; 4];
            let encoded = value.encode_utf8(&mut bytes).as_bytes();
            assert_eq!(characters(encoded), encoded.len());
            assert_eq!(characters(&encoded[..encoded.len() - 1]), 0, "not whole");
        }
    }
}
