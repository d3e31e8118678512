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
    /// By the next [`SHORT_BITS`] bits: the symbol, and the bits of its code; 0 bits if it is longer.
    short: [(u8, u8); 1 << SHORT_BITS],
    /// By the bits of a code.
    lengths: [Length; LENGTH_MAX as usize + 1],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        codes: [Code { code: 0, bits: 0 }; 256],
        symbols: [0; 256],
        short: [(0, 0); 1 << SHORT_BITS],
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
            // The bits behind the last code are those of its length, whatever they are.
            let last = last | ((1_u64 << unused) - 1) as u32;
            tables.lengths[bits as usize] = Length { first: first << unused, last, place: before as u8 };
        }
        code <<= 1;
        bits += 1;
    }
    // What is left is one code: EOS.
    assert!(place == 256 && code >> 1 == (1 << LENGTH_MAX) - 1);
    tables
}

const fn fill_short(short: &mut [(u8, u8); 1 << SHORT_BITS], symbol: u8, code: u32, bits: u32) {
    let count = 1 << (SHORT_BITS - bits);
    let mut at = 0;
    while at < count {
        short[code as usize * count + at] = (symbol, bits as u8);
        at += 1;
    }
}

/// Bytes of `text` in Huffman code.
#[inline]
pub(super) fn encoded_bytes(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Appends `text` in Huffman code.
pub(super) fn encode(into: &mut Vec<u8>, text: &[u8]) {
    // Up to 31 bits wait, and a code has 30.
    let (mut waiting, mut count) = (0_u64, 0_u32);
    for &byte in text {
        let Code { code, bits } = TABLES.codes[usize::from(byte)];
        waiting = waiting << bits | u64::from(code);
        count += u32::from(bits);
        if count >= 32 {
            count -= 32;
            into.extend_from_slice(&((waiting >> count) as u32).to_be_bytes());
        }
    }
    // Padding is the beginning of EOS.
    let padded = ((waiting << (32 - count)) as u32) | (u32::MAX >> count);
    into.extend_from_slice(&padded.to_be_bytes()[..count.div_ceil(8) as usize]);
}

/// The next bits of the input, the first one on top.
struct Bits<'a> {
    rest: &'a [u8],
    bits: u64,
    count: u32,
}

impl Bits<'_> {
    /// Has at least 32 bits, or all that are left.
    #[inline]
    fn fill(&mut self) {
        if self.count >= 32 {
            return;
        }
        if let Some((bytes, rest)) = self.rest.split_first_chunk() {
            self.bits |= u64::from(u32::from_be_bytes(*bytes)) << (32 - self.count);
            self.count += 32;
            self.rest = rest;
        } else {
            self.fill_end();
        }
    }

    #[cold]
    fn fill_end(&mut self) {
        for &byte in self.rest {
            self.bits |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
        self.rest = &[];
    }

    #[inline]
    fn skip(&mut self, count: u32) {
        self.bits <<= count;
        self.count -= count;
    }

    /// The symbol of a code that the first table does not have.
    #[cold]
    fn long(&mut self) -> Result<u8, HpackError> {
        let front = (self.bits >> 32) as u32;
        for bits in SHORT_BITS + 1..=LENGTH_MAX.min(self.count) {
            let Length { first, last, place } = TABLES.lengths[bits as usize];
            if front <= last && front >= first {
                self.skip(bits);
                let nth = (front - first) >> (u32::BITS - bits);
                return Ok(TABLES.symbols[usize::from(place) + nth as usize]);
            }
        }
        // EOS, a code cut short, or padding of more than 7 bits.
        Err(HpackError::Huffman)
    }
}

/// Appends the text of `code`: at most 8/5 of its bytes.
///
/// # Errors
/// [`HpackError::Huffman`]; then `into` has more bytes than before, of no meaning.
pub(super) fn decode(into: &mut Vec<u8>, code: &[u8]) -> Result<(), HpackError> {
    let start = into.len();
    into.resize(start + code.len() * 8 / 5 + 1, 0);
    let text = &mut into[start..];
    let mut bits = Bits { rest: code, bits: 0, count: 0 };
    let mut length = 0;
    loop {
        bits.fill();
        if bits.count < SHORT_BITS {
            break;
        }
        let (symbol, used) = TABLES.short[(bits.bits >> (u64::BITS - SHORT_BITS)) as usize];
        if used == 0 {
            text[length] = bits.long()?;
        } else {
            text[length] = symbol;
            bits.skip(u32::from(used));
        }
        length += 1;
    }
    // Fewer than 8 bits are left: one symbol of 5 to 7 bits, or none, and padding of ones.
    let front = |bits: &Bits<'_>| (bits.bits >> (u64::BITS - SHORT_BITS)) as u8 | (0xff_u16 >> bits.count) as u8;
    let (symbol, used) = TABLES.short[usize::from(front(&bits))];
    if used != 0 && u32::from(used) <= bits.count {
        text[length] = symbol;
        length += 1;
        bits.skip(u32::from(used));
    }
    if front(&bits) != 0xff {
        return Err(HpackError::Huffman);
    }
    into.truncate(start + length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut code = Vec::new();
        encode(&mut code, text);
        assert_eq!(code.len(), encoded_bytes(text));
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
    fn every_text_of_two_bytes_comes_back() {
        for first in 0..=u8::MAX {
            assert_eq!(decoded(&encoded(&[first])), Ok(vec![first]));
            for second in 0..=u8::MAX {
                let text = [first, second, b'a', second];
                assert_eq!(decoded(&encoded(&text)), Ok(text.to_vec()));
            }
        }
        assert_eq!((encoded(b""), decoded(b"")), (vec![], Ok(vec![])));
    }

    #[test]
    fn only_padding_of_up_to_7_ones_is_valid() {
        // "a" is 00011, with three bits of padding.
        assert_eq!(decoded(&[0b00011_111]), Ok(b"a".to_vec()));
        for padding in 0..0b111 {
            assert_eq!(decoded(&[0b00011_000 | padding]), Err(HpackError::Huffman), "{padding:b}");
        }
        // 8 bits of padding and more, and codes that are cut.
        for code in [&[0xff][..], &[0xff; 2], &[0xff; 3], &[0b00011_111, 0xff], &[0xff, 0xc0], &[0xfe]] {
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
