//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of the same length are consecutive numbers in the order of their symbols, and longer codes are the greater
//! fractions. So all tables here are made of the lengths alone.

use super::HpackError;

/// Bits of the code of each byte.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // 0x00
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, // 0x10
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, // 0x20
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, // 0x30
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // 0x40
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, // 0x50
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, // 0x60
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, // 0x70
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 0x80
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, // 0x90
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 0xa0
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, // 0xb0
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 0xc0
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, // 0xd0
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 0xe0
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, // 0xf0
];

/// Bits of EOS, the last code. All its bits are ones.
const LENGTH_MAX: u32 = 30;

/// Bits of input that the first table looks up.
const SHORT_BITS: u32 = 8;

/// Bits of the shortest code that it does not have.
const LONG_BITS_MIN: u32 = 10;

/// Symbols that 56 bits have for certain, if the first table has them all.
const SYMBOLS: usize = 7;

/// A code and its bits.
#[derive(Clone, Copy)]
struct Code {
    code: u32,
    bits: u8,
}

/// All codes of one length.
#[derive(Clone, Copy)]
struct Length {
    /// The first code and the last one, with their first bit as the top one of 32.
    first: u32,
    last: u32,
    /// The place of the first code's symbol in [`Tables::symbols`].
    place: u8,
}

struct Tables {
    codes: [Code; 256],
    /// The symbols in the order of their codes.
    symbols: [u8; 256],
    /// By the next [`SHORT_BITS`] bits: the bits of the code and its symbol, in one number; 0 if the code is longer.
    short: [u16; 1 << SHORT_BITS],
    /// By the bits of a code.
    lengths: [Length; LENGTH_MAX as usize + 1],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        codes: [Code { code: 0, bits: 0 }; 256],
        symbols: [0; 256],
        short: [0; 1 << SHORT_BITS],
        lengths: [Length { first: 1, last: 0, place: 0 }; LENGTH_MAX as usize + 1],
    };
    let (mut bits, mut code, mut place) = (1, 0_u32, 0);
    while bits <= LENGTH_MAX {
        let unused = u32::BITS - bits;
        let (first, before) = (code, place);
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as u32 == bits {
                tables.codes[symbol] = Code { code, bits: bits as u8 };
                tables.symbols[place] = symbol as u8;
                if bits <= SHORT_BITS {
                    fill_short(&mut tables.short, symbol as u8, code, bits);
                }
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        if place > before {
            let last = (code - 1) << unused;
            // Any bits may follow the last code.
            let last = last | ((1_u64 << unused) - 1) as u32;
            tables.lengths[bits as usize] = Length { first: first << unused, last, place: before as u8 };
        }
        code <<= 1;
        bits += 1;
    }
    // One code is left: EOS.
    assert!(place == 256 && code >> 1 == (1 << LENGTH_MAX) - 1);
    tables
}

const fn fill_short(short: &mut [u16; 1 << SHORT_BITS], symbol: u8, code: u32, bits: u32) {
    let count = 1 << (SHORT_BITS - bits);
    let mut at = 0;
    while at < count {
        short[code as usize * count + at] = (bits as u16) << 8 | symbol as u16;
        at += 1;
    }
}

/// Puts `text` in Huffman code at the front of `into`, which has as many bytes as `text`. The bytes of the code; `None` if it is no shorter
/// than the text.
pub(super) fn encode(into: &mut [u8], text: &[u8]) -> Option<usize> {
    debug_assert_eq!(into.len(), text.len());
    // Up to 31 bits wait, and a code has 30. Bits above them have gone before.
    let (mut waiting, mut count, mut length) = (0_u64, 0_u32, 0);
    for &byte in text {
        let Code { code, bits } = TABLES.codes[usize::from(byte)];
        waiting = waiting.wrapping_shl(u32::from(bits)) | u64::from(code);
        count = count.wrapping_add(u32::from(bits));
        if count >= 32 {
            count -= 32;
            *into.get_mut(length..)?.first_chunk_mut()? = (waiting.wrapping_shr(count) as u32).to_be_bytes();
            length += 4;
        }
    }
    // Padding is the beginning of EOS.
    let padded = (waiting.wrapping_shl(32 - count) as u32 | u32::MAX.wrapping_shr(count)).to_be_bytes();
    let last = &padded[..count.div_ceil(8) as usize];
    let end = length + last.len();
    if end >= text.len() {
        return None;
    }
    into[length..end].copy_from_slice(last);
    Some(end)
}

/// The next bits of the input, the first one on top. Behind its last bit stand ones.
struct Bits<'a> {
    rest: &'a [u8],
    bits: u64,
    count: u32,
}

impl Bits<'_> {
    /// Has at least 56 bits, or all that are left.
    #[inline]
    fn fill(&mut self) {
        if let Some(bytes) = self.rest.first_chunk() {
            // Bits of a byte that has no room as a whole are taken again.
            self.bits |= u64::from_be_bytes(*bytes).wrapping_shr(self.count);
            self.rest = &self.rest[((63 - self.count) / 8) as usize..];
            self.count |= 56;
        } else {
            self.fill_end();
        }
    }

    fn fill_end(&mut self) {
        let mut bytes = [0; 8];
        bytes[..self.rest.len()].copy_from_slice(self.rest);
        self.bits |= u64::from_be_bytes(bytes).wrapping_shr(self.count);
        let taken = self.rest.len().min(((63 - self.count) / 8) as usize);
        self.rest = &self.rest[taken..];
        self.count += 8 * taken as u32;
        if self.rest.is_empty() {
            self.bits |= u64::MAX.wrapping_shr(self.count);
        }
    }

    /// The symbol of the next bits in the first table, and the bits of its code.
    #[inline]
    fn short(&self) -> (u8, u32) {
        let found = TABLES.short[(self.bits >> (u64::BITS - SHORT_BITS)) as usize];
        (found as u8, u32::from(found >> 8))
    }

    #[inline]
    fn skip(&mut self, count: u32) {
        self.bits = self.bits.wrapping_shl(count);
        self.count = self.count.wrapping_sub(count);
    }

    /// The symbol of a code that the first table does not have; `None` at the end.
    #[inline(never)]
    fn long(&mut self) -> Result<Option<u8>, HpackError> {
        self.fill();
        // Padding: fewer than 8 ones.
        if self.count < SHORT_BITS && self.bits >> (u64::BITS - SHORT_BITS) == 0xff {
            return Ok(None);
        }
        let front = (self.bits >> 32) as u32;
        for bits in LONG_BITS_MIN..=LENGTH_MAX.min(self.count) {
            let Length { first, last, place } = TABLES.lengths[bits as usize];
            if front <= last && front >= first {
                self.skip(bits);
                let nth = (front - first) >> (u32::BITS - bits);
                return Ok(Some(TABLES.symbols[usize::from(place) + nth as usize]));
            }
        }
        // EOS, a code cut short, or padding that is too long or not of ones.
        Err(HpackError::Huffman)
    }
}

/// Appends the text of `code`: at most 8/5 of its bytes.
///
/// # Errors
/// [`HpackError::Huffman`]; then `into` has more bytes than before, of no meaning.
pub(super) fn decode(into: &mut Vec<u8>, code: &[u8]) -> Result<(), HpackError> {
    let mut length = into.len();
    into.resize(length + code.len() * 8 / 5 + SYMBOLS, 0);
    let mut bits = Bits { rest: code, bits: 0, count: 0 };
    while let Some(slots) = into[length..].first_chunk_mut::<SYMBOLS>() {
        bits.fill();
        let mut found = SYMBOLS;
        for (at, slot) in slots.iter_mut().enumerate() {
            let (symbol, used) = bits.short();
            // No code of the first table, or one that goes beyond the end.
            if used.wrapping_sub(1) >= bits.count {
                let Some(symbol) = bits.long()? else {
                    into.truncate(length + at);
                    return Ok(());
                };
                *slot = symbol;
                found = at + 1;
                break;
            }
            *slot = symbol;
            bits.skip(used);
        }
        length += found;
    }
    debug_assert!(false, "a symbol has 5 bits at least");
    Err(HpackError::Huffman)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code, bit by bit.
    fn encoded(text: &[u8]) -> Vec<u8> {
        let codes = text.iter().map(|&byte| TABLES.codes[usize::from(byte)]);
        let mut bits: Vec<u8> =
            codes.flat_map(|Code { code, bits }| (0..bits).rev().map(move |bit| (code >> bit & 1) as u8)).collect();
        bits.resize(bits.len().next_multiple_of(8), 1);
        let code: Vec<u8> = bits.chunks(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit)).collect();
        let mut into = vec![0; text.len()];
        let found = encode(&mut into, text).map(|bytes| &into[..bytes]);
        assert_eq!(found, (code.len() < text.len()).then_some(&code[..]));
        code
    }

    fn decoded(code: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut text = b"before".to_vec();
        decode(&mut text, code).map(|()| text.split_off(6))
    }

    #[test]
    fn codes_are_those_of_appendix_b() {
        let codes = [
            (0, 0x1ff8, 13),
            (10, 0x3fff_fffc, 30),
            (22, 0x3fff_fffe, 30),
            (b' ', 0x14, 6),
            (b'0', 0x0, 5),
            (b'&', 0xf8, 8),
            (b'<', 0x7ffc, 15),
            (b'Z', 0xfd, 8),
            (b'\\', 0x7fff0, 19),
            (b'a', 0x3, 5),
            (b'z', 0x7b, 7),
            (127, 0xfff_fffc, 28),
            (195, 0x7fff1, 19),
            (199, 0x1ff_ffec, 25),
            (238, 0x3ff_ffea, 26),
            (249, 0xfff_fffe, 28),
            (255, 0x3ff_ffee, 26),
        ];
        for (symbol, code, bits) in codes {
            let found = TABLES.codes[usize::from(symbol)];
            assert_eq!((found.code, found.bits), (code, bits), "{symbol}");
        }
    }

    #[test]
    fn every_pair_of_bytes_comes_back() {
        for first in 0..=u8::MAX {
            assert_eq!(decoded(&encoded(&[first])), Ok(vec![first]));
            for second in 0..=u8::MAX {
                let text = [first, second, b'a', second].repeat(5);
                for end in [2, 3, 4, 19, 20] {
                    assert_eq!(decoded(&encoded(&text[..end])), Ok(text[..end].to_vec()));
                }
            }
        }
        assert_eq!((encoded(b""), decoded(b"")), (vec![], Ok(vec![])));
    }

    #[test]
    fn long_codes_are_found_wherever_they_stand() {
        for last in 0..=u8::MAX {
            for (short, count) in [(b'a', 30), (b'X', 30)] {
                for before in 0..count {
                    let mut text = vec![short; before];
                    text.extend([last, short, last, last]);
                    assert_eq!(decoded(&encoded(&text)), Ok(text));
                }
            }
        }
    }

    #[test]
    fn only_padding_of_up_to_7_ones_is_valid() {
        // "a" is 00011, with three bits of padding.
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        for padding in 0..0b111 {
            assert_eq!(decoded(&[0b0001_1000 | padding]), Err(HpackError::Huffman), "{padding:b}");
        }
        // 8 bits of padding and more, and codes that are cut.
        for code in [&[0xff][..], &[0xff; 2], &[0xff; 3], &[0b0001_1111, 0xff], &[0xff, 0xc0], &[0xfe]] {
            assert_eq!(decoded(code), Err(HpackError::Huffman), "{code:x?}");
        }
        // Five times "a" leave 7 bits, and four times "b" none.
        assert_eq!(decoded(&encoded(b"aaaaa")), Ok(b"aaaaa".to_vec()));
        assert_eq!(decoded(&[&encoded(b"bbbb")[..], &[0xff]].concat()), Err(HpackError::Huffman));
    }

    #[test]
    fn eos_is_refused_wherever_it_stands() {
        for before in 0..8 {
            let mut code = encoded(&b"00000000"[..before]);
            // The bits of "0" are zeros, so the next code begins behind them.
            let used = before * 5;
            code.resize(used / 8, 0);
            code.push((0xff_u16 >> (used % 8)) as u8);
            code.extend([0xff; 4]);
            assert_eq!(decoded(&code), Err(HpackError::Huffman), "{before}");
        }
    }
}
