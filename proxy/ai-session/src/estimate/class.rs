//! Classes of characters, and what a character weighs behind another one.

/// Weights, in thousandths of a token.
const WORD: u16 = 450;
const LETTER: u16 = 125;
const DIGITS: u16 = 1_500;
const PUNCTUATION_RUN: u16 = 450;
const PUNCTUATION: u16 = 200;
/// A line break, or a run of spaces. A single space belongs to the word behind it.
const GAP: u16 = 1_750;
/// Ideographs, kana, hangul.
const IDEOGRAPH: u16 = 800;
/// Letters of two bytes: Latin ones of the west, Cyrillic.
const TWO_BYTES: u16 = 480;
/// Latin letters of Central Europe, the Baltic and Turkish. The words around them weigh more than English ones, and these letters show it.
const CENTRAL_LATIN: u16 = 1_500;
const GREEK: u16 = 820;
/// Armenian, Hebrew, Arabic and other letters of two bytes.
const EASTERN: u16 = 600;
const THREE_BYTES: u16 = 600;
/// Mostly emoji.
const FOUR_BYTES: u16 = 2_000;

/// The class of a character by its first byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Letter,
    Digit,
    Space,
    /// A line break, or a tab.
    Break,
    Punctuation,
    TwoBytes,
    CentralLatin,
    Greek,
    Eastern,
    ThreeBytes,
    Ideograph,
    FourBytes,
    /// The rest of a character.
    Rest,
}

const CLASSES: usize = Class::Rest as usize + 1;

/// The class of each byte.
static OF_BYTES: [Class; 256] = {
    let (mut classes, mut byte) = ([Class::Rest; 256], 0);
    while byte < classes.len() {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b' ' => Class::Space,
            b'\n' | b'\r' | b'\t' => Class::Break,
            0..0x80 => Class::Punctuation,
            0x80..0xC0 => Class::Rest,
            0xC4 | 0xC5 | 0xC8 | 0xC9 => Class::CentralLatin,
            0xCE | 0xCF => Class::Greek,
            0xD5..0xE0 => Class::Eastern,
            0xC0..0xD5 => Class::TwoBytes,
            0xE3..=0xED | 0xEF => Class::Ideograph,
            0xE0..0xF0 => Class::ThreeBytes,
            0xF0.. => Class::FourBytes,
        };
        byte += 1;
    }
    classes
};

impl Class {
    #[inline]
    pub(super) fn of(byte: u8) -> Self {
        OF_BYTES[usize::from(byte)]
    }

    /// The class of the character that an escape stands for, by the text behind its backslash, and the bytes of that. A pair of units of
    /// UTF-16 counts with its first half.
    pub(super) fn of_escape(text: &[u8]) -> (Self, usize) {
        match text.first() {
            None => (Self::Rest, 0),
            Some(b'n' | b'r' | b't') => (Self::Break, 1),
            Some(b'u') => {
                let digits = text.get(1..5).and_then(|digits| std::str::from_utf8(digits).ok());
                let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
                unit.map_or((Self::Rest, 1), |unit| (Self::of_unit(unit), 5))
            }
            Some(_) => (Self::Punctuation, 1),
        }
    }

    fn of_unit(unit: u16) -> Self {
        match unit {
            0xDC00..=0xDFFF => Self::Rest,
            0xD800..=0xDBFF => Self::FourBytes,
            0..0x20 => Self::Break,
            _ => {
                let character = char::from_u32(u32::from(unit)).unwrap_or_default();
                Self::of(character.encode_utf8(&mut [0; 3]).as_bytes()[0])
            }
        }
    }
}

/// The run of a class in which a text is, between two characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Run {
    /// No run: behind a character that counts by itself.
    #[default]
    None,
    Letters,
    /// Digits have a weight for each group of three.
    OneDigit,
    TwoDigits,
    ThreeDigits,
    /// A single space, without a weight so far.
    Space,
    /// White space that has its weight.
    Gap,
    Punctuation,
}

const RUNS: [Run; 8] =
    [Run::None, Run::Letters, Run::OneDigit, Run::TwoDigits, Run::ThreeDigits, Run::Space, Run::Gap, Run::Punctuation];

/// Bytes that are taken together.
const BLOCK_BYTES: usize = 8;

/// Above the weight of any block.
const DEPENDS: u32 = 1 << 20;
const _: () = assert!(BLOCK_BYTES as u32 * (FOUR_BYTES as u32) < DEPENDS && BLOCK_BYTES as u32 * DEPENDS < 1 << 31);

/// The run behind a character, and the weight of that, by run and class.
static STEPS: [[(Run, u16); CLASSES]; RUNS.len()] = {
    let (mut steps, mut run) = ([[(Run::None, 0); CLASSES]; RUNS.len()], 0);
    while run < RUNS.len() {
        steps[run] = RUNS[run].steps();
        run += 1;
    }
    steps
};

/// The run behind a character by its class alone: that behind a character of no run.
static BEHIND: [Run; CLASSES] = {
    let (mut behind, mut class) = ([Run::None; CLASSES], 0);
    while class < CLASSES {
        behind[class] = Run::None.steps()[class].0;
        class += 1;
    }
    behind
};

/// The weight of a character, by run and class; [`DEPENDS`] if another run follows than [`BEHIND`] says.
static WEIGHTS: [[u32; CLASSES]; RUNS.len()] = {
    let (mut weights, mut run) = ([[DEPENDS; CLASSES]; RUNS.len()], 0);
    while run < RUNS.len() {
        let (steps, mut class) = (RUNS[run].steps(), 0);
        while class < CLASSES {
            if steps[class].0 as usize == Run::None.steps()[class].0 as usize {
                weights[run][class] = steps[class].1 as u32;
            }
            class += 1;
        }
        run += 1;
    }
    weights
};

impl Run {
    /// Takes characters. Their weight, in thousandths of a token.
    pub(super) fn take(&mut self, bytes: &[u8]) -> u64 {
        let one_by_one = |run: &mut Self, block: &[u8]| block.iter().map(|&byte| run.step(Class::of(byte))).sum();
        bytes.chunks(BLOCK_BYTES).map(|block| self.block(block).unwrap_or_else(|| one_by_one(self, block))).sum()
    }

    /// The same, if each run follows from a class alone: no step waits for the one before. In most texts only numbers and spaces in a row
    /// need more.
    fn block(&mut self, block: &[u8]) -> Option<u64> {
        let (mut run, mut weight) = (*self, 0);
        for &byte in block {
            let class = Class::of(byte) as usize;
            weight += WEIGHTS[run as usize][class];
            run = BEHIND[class];
        }
        (weight < DEPENDS).then(|| {
            *self = run;
            u64::from(weight)
        })
    }

    /// Takes a character.
    #[inline]
    pub(super) fn step(&mut self, class: Class) -> u64 {
        let (next, weight) = STEPS[*self as usize][class as usize];
        *self = next;
        u64::from(weight)
    }

    /// In the order of the classes.
    const fn steps(self) -> [(Self, u16); CLASSES] {
        [
            (Self::Letters, if matches!(self, Self::Letters) { LETTER } else { WORD + LETTER }),
            match self {
                Self::OneDigit => (Self::TwoDigits, 0),
                Self::TwoDigits => (Self::ThreeDigits, 0),
                _ => (Self::OneDigit, DIGITS),
            },
            match self {
                Self::Space => (Self::Gap, GAP),
                Self::Gap => (Self::Gap, 0),
                _ => (Self::Space, 0),
            },
            (Self::Gap, if matches!(self, Self::Gap) { 0 } else { GAP }),
            (
                Self::Punctuation,
                if matches!(self, Self::Punctuation) { PUNCTUATION } else { PUNCTUATION_RUN + PUNCTUATION },
            ),
            (Self::None, TWO_BYTES),
            (Self::None, CENTRAL_LATIN),
            (Self::None, GREEK),
            (Self::None, EASTERN),
            (Self::None, THREE_BYTES),
            (Self::None, IDEOGRAPH),
            (Self::None, FOUR_BYTES),
            (self, 0),
        ]
    }
}
