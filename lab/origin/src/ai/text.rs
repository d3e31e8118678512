//! The text of a reply: each group of 16 bytes says whose it is and where it stands, so that a lost, doubled, moved or foreign
//! piece shows.
//!
//! A group has the eight hexadecimal digits of the word, the number of the group in seven more, and a blank:
//! `5eed00010000000 5eed00010000001 `. A mixed text has two-, three- and four-byte characters and characters with an escape
//! between its groups. So a generator checks every byte of a text that it never got from here.

use std::cell::RefCell;

/// Bytes of a group.
pub const GROUP_BYTES: usize = 16;

/// Digits of a word.
pub const WORD_BYTES: usize = 8;

/// Bytes of a text. 16 MiB: more than the kernel buffers for a client that does not read. A worker keeps one template of this size at
/// the most.
pub const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of text that are billed as one token.
pub const TOKEN_BYTES: usize = 4;

/// Stands behind each group of a mixed text.
const MIXED: &str = "\u{e9}\u{20ac}\u{1f600}\"\\\n";

/// A word of eight hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word([u8; WORD_BYTES]);

impl Word {
    /// The low 32 bits of a number.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self(std::array::from_fn(|at| b"0123456789abcdef"[(number >> (28 - 4 * at)) as usize & 15]))
    }

    /// Eight hexadecimal digits in lower case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits: [u8; WORD_BYTES] = text.as_bytes().try_into().ok()?;
        digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(digits))
    }

    /// The digits as bytes.
    #[must_use]
    pub fn digits(self) -> [u8; WORD_BYTES] {
        self.0
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Nothing but ASCII gets in.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A text, from which pieces are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Groups alone: this many bytes.
    Plain {
        /// At the front of each group.
        word: Word,
        /// Bytes of the whole.
        bytes: usize,
    },
    /// Anything else as it is.
    Own(String),
}

impl Text {
    /// A mixed text of about `bytes` bytes; its end is filled up with `x`.
    #[must_use]
    pub fn mixed(word: Word, bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes + GROUP_BYTES + MIXED.len());
        let mut number = 0;
        while text.len() < bytes {
            text.push_str(word.as_str());
            text.push_str(&format!("{number:07x} {MIXED}"));
            number += 1;
        }
        let end = text.floor_char_boundary(bytes);
        text.truncate(end);
        text.extend(std::iter::repeat_n('x', bytes - end));
        Self::Own(text)
    }

    /// Bytes of the whole.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Plain { bytes, .. } => *bytes,
            Self::Own(text) => text.len(),
        }
    }

    /// There is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same text up to `bytes`.
    #[must_use]
    pub fn cut(self, bytes: usize) -> Self {
        match self {
            Self::Plain { word, bytes: all } => Self::Plain { word, bytes: all.min(bytes) },
            Self::Own(mut text) => {
                text.truncate(text.floor_char_boundary(bytes.min(text.len())));
                Self::Own(text)
            }
        }
    }

    /// Where piece `at` of `of` begins; `at == of`: the end.
    fn boundary(&self, at: usize, of: usize) -> usize {
        let place = (self.len() as u64 * at as u64 / of.max(1) as u64) as usize;
        match self {
            Self::Plain { .. } => place,
            Self::Own(text) => text.floor_char_boundary(place),
        }
    }

    /// Appends piece `at` of `of` as the inside of a JSON string. The tokens that are billed for it: those of all pieces are those of
    /// the whole.
    pub fn write_piece(&self, at: usize, of: usize, templates: &Templates, out: &mut Vec<u8>) -> u64 {
        let (begin, end) = (self.boundary(at, of), self.boundary(at + 1, of));
        match self {
            Self::Plain { word, .. } => templates.write(*word, begin, end, out),
            Self::Own(text) => super::json::escape(&text[begin..end], out),
        }
        tokens_of(end) - tokens_of(begin)
    }

    /// Tokens that are billed for the whole.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        tokens_of(self.len())
    }

    /// Appends the whole as the inside of a JSON string.
    pub fn write(&self, templates: &Templates, out: &mut Vec<u8>) {
        self.write_piece(0, 1, templates, out);
    }
}

/// Tokens that are billed for so many bytes.
#[must_use]
pub fn tokens_of(bytes: usize) -> u64 {
    bytes.div_ceil(TOKEN_BYTES) as u64
}

/// Groups with their numbers, and without a word: the longest text so far of one worker.
#[derive(Debug, Default)]
pub struct Templates(RefCell<Vec<u8>>);

impl Templates {
    /// The bytes of a text between two places.
    fn write(&self, word: Word, begin: usize, end: usize, out: &mut Vec<u8>) {
        let mut template = self.0.borrow_mut();
        while template.len() < end {
            let number = template.len() / GROUP_BYTES;
            template.extend_from_slice(format!("00000000{number:07x} ").as_bytes());
        }
        let start = out.len();
        out.extend_from_slice(&template[begin..end]);
        let piece = &mut out[start..];
        // The first group may have begun before the piece.
        let head = (GROUP_BYTES - begin % GROUP_BYTES) % GROUP_BYTES;
        if head > 0 {
            let skipped = begin % GROUP_BYTES;
            let wanted = word.0.get(skipped..).unwrap_or_default();
            piece.iter_mut().zip(wanted).for_each(|(byte, digit)| *byte = *digit);
        }
        let Some(rest) = piece.get_mut(head..) else { return };
        for group in rest.chunks_mut(GROUP_BYTES) {
            let count = group.len().min(WORD_BYTES);
            group[..count].copy_from_slice(&word.0[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &Text, of: usize) -> Vec<String> {
        let (templates, mut tokens) = (Templates::default(), 0);
        let piece = |at| {
            let mut out = Vec::new();
            tokens += text.write_piece(at, of, &templates, &mut out);
            String::from_utf8(out).expect("text")
        };
        let pieces = (0..of).map(piece).collect();
        assert_eq!(tokens, text.tokens());
        pieces
    }

    #[test]
    fn groups_have_the_word_and_their_number() {
        let word = Word::parse("5eed0001").expect("a word");
        assert_eq!(word, Word::of(0x77_5eed_0001));
        assert_eq!(pieces(&Text::Plain { word, bytes: 40 }, 1), ["5eed00010000000 5eed00010000001 5eed0001"]);
        for wrong in ["", "5eed000", "5EED0001", "5eed00010", "5eed000g"] {
            assert_eq!(Word::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pieces_are_the_whole_however_many_they_are() {
        for bytes in [0, 1, 7, 8, 9, 15, 16, 17, 31, 100, 1_000] {
            let text = Text::Plain { word: Word::of(0xabcd_ef01), bytes };
            let whole = pieces(&text, 1).concat();
            assert_eq!(whole.len(), bytes);
            for of in [1, 2, 3, 7, 16, 1_001] {
                assert_eq!(pieces(&text, of).concat(), whole, "{bytes} in {of}");
            }
        }
    }

    #[test]
    fn a_mixed_text_is_never_cut_within_a_character() {
        let text = Text::mixed(Word::of(1), 100);
        assert_eq!(text.len(), 100);
        let whole = pieces(&text, 1).concat();
        assert!(whole.contains("\\\"\\\\\\n") && whole.contains('\u{1f600}'), "{whole}");
        for of in [2, 3, 9, 50, 101] {
            assert_eq!(pieces(&text, of).concat(), whole, "in {of}");
        }
        assert_eq!(text.clone().cut(17).len(), 16, "a character of two bytes has no room");
        assert_eq!(tokens_of(0), 0);
        assert_eq!((tokens_of(1), tokens_of(4), tokens_of(5)), (1, 1, 2));
    }
}
