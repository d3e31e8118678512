//! Integers with a prefix (RFC 7541 section 5.1).

use super::HpackError;

/// The integer at the front of `input`, whose prefix has the lower `prefix_bits` bits of the first byte.
///
/// # Errors
/// [`HpackError::Truncated`], or [`HpackError::Integer`]: above 2^32-1, or with more bytes than that takes.
#[inline]
pub(super) fn decode(input: &mut &[u8], prefix_bits: u32) -> Result<u32, HpackError> {
    let (&first, rest) = input.split_first().ok_or(HpackError::Truncated)?;
    let mask = (1_u32 << prefix_bits) - 1;
    let prefix = u32::from(first) & mask;
    *input = rest;
    if prefix < mask { Ok(prefix) } else { decode_rest(input, mask) }
}

/// The bytes behind a prefix of ones.
fn decode_rest(input: &mut &[u8], prefix: u32) -> Result<u32, HpackError> {
    let mut sum = u64::from(prefix);
    for shift in [0, 7, 14, 21, 28] {
        let (&byte, rest) = input.split_first().ok_or(HpackError::Truncated)?;
        *input = rest;
        sum += u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(sum).map_err(|_| HpackError::Integer);
        }
    }
    Err(HpackError::Integer)
}

/// Appends `number`. `pattern`: the bits of the first byte above its prefix.
#[inline]
pub(super) fn encode(into: &mut Vec<u8>, number: u32, prefix_bits: u32, pattern: u8) {
    let mask = (1_u32 << prefix_bits) - 1;
    if number < mask {
        into.push(pattern | number as u8);
    } else {
        into.push(pattern | mask as u8);
        encode_rest(into, number - mask);
    }
}

fn encode_rest(into: &mut Vec<u8>, mut rest: u32) {
    while rest >= 0x80 {
        into.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_the_examples_of_the_rfc() {
        let cases: [(&[u8], u32, u32); 3] = [(&[0x0a], 10, 5), (&[0x1f, 0x9a, 0x0a], 1337, 5), (&[0x2a], 42, 8)];
        for (bytes, number, prefix_bits) in cases {
            let mut input = bytes;
            assert_eq!((decode(&mut input, prefix_bits), input), (Ok(number), &[][..]));
            let mut output = Vec::new();
            encode(&mut output, number, prefix_bits, 0);
            assert_eq!(output, bytes);
        }
    }

    #[test]
    fn every_number_comes_back_and_no_part_of_it_is_one() {
        let edges = (0..32).flat_map(|bit| [(1_u32 << bit) - 1, 1 << bit, (1 << bit) + 1, (1 << bit) + 30]);
        for number in edges.chain([u32::MAX - 1, u32::MAX]) {
            for prefix_bits in 4..=7 {
                let mut bytes = Vec::new();
                encode(&mut bytes, number, prefix_bits, 0x80);
                let mut input = &bytes[..];
                assert_eq!((decode(&mut input, prefix_bits), input), (Ok(number), &[][..]));
                for cut in 0..bytes.len() {
                    assert_eq!(decode(&mut &bytes[..cut], prefix_bits), Err(HpackError::Truncated));
                }
            }
        }
    }

    #[test]
    fn numbers_beyond_32_bits_and_long_forms_are_refused() {
        for rest in [&[0x80, 0x80, 0x80, 0x80, 0x10][..], &[0xff; 5], &[0x80; 5], &[0x80, 0x80, 0x80, 0x80, 0x80, 0]] {
            let bytes = [&[0x7f], rest].concat();
            assert_eq!(decode(&mut &bytes[..], 7), Err(HpackError::Integer), "{bytes:x?}");
        }
        // Zeros at the end of five bytes are a longer form of the same number, which RFC 7541 does not forbid.
        assert_eq!(decode(&mut &[0x7f, 0x80, 0x80, 0x80, 0x80, 0][..], 7), Ok(127));
    }
}
