//! The status at the front of a header block (RFC 7541, RFC 9113 section 8.3.2). The server keeps no table, so the block can be
//! read by itself.

/// Part of the static table (RFC 7541 appendix A): `:status` with these values has the numbers 8 to 14.
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
const FIRST: u8 = 8;

/// The status; `None`: the block begins with something else.
pub(super) fn read(mut block: &[u8]) -> Option<u16> {
    // Changes of the table's size, which say that it is gone.
    while let [0x20..=0x3f, rest @ ..] = block {
        block = match block[0] {
            0x3f => &rest[1 + rest.iter().position(|byte| byte & 0x80 == 0)?..],
            _ => rest,
        };
    }
    let (first, rest) = block.split_first()?;
    if first & 0x80 != 0 {
        return STATUSES.get(usize::from((first & 0x7f).checked_sub(FIRST)?)).copied();
    }
    // With a value of its own: for the table, not for it, or never.
    let name = if first & 0x40 != 0 { first & 0x3f } else { first & 0x0f };
    if !(FIRST..FIRST + STATUSES.len() as u8).contains(&name) {
        return None;
    }
    let (length, rest) = rest.split_first()?;
    let value = rest.get(..usize::from(length & 0x7f))?;
    match length & 0x80 {
        0 => number(value.iter().map(|byte| byte.is_ascii_digit().then_some(byte & 15))),
        _ => number(huffman_digits(value)),
    }
}

/// Three digits, and nothing else.
fn number(digits: impl Iterator<Item = Option<u8>>) -> Option<u16> {
    let digits: Vec<u8> = digits.take(4).collect::<Option<_>>()?;
    match digits[..] {
        [first @ 1..=5, second, third] => Some(u16::from(first) * 100 + u16::from(second) * 10 + u16::from(third)),
        _ => None,
    }
}

/// Digits in the code of RFC 7541 appendix B: 0 to 2 have five bits, the others six. The padding bits at the end are ones.
fn huffman_digits(bytes: &[u8]) -> impl Iterator<Item = Option<u8>> {
    let bit = |at: usize| u8::from(bytes[at / 8] & (0x80 >> (at % 8)) != 0);
    let bits = move |from: usize, count: usize| (from..from + count).fold(0, |code, at| code << 1 | bit(at));
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = bytes.len() * 8 - at;
        if left < 8 && bits(at, left) == ((1_u16 << left) - 1) as u8 {
            return None;
        }
        let (digit, width) = match (left >= 5).then(|| bits(at, 5)) {
            Some(code @ 0..=2) => (Some(code), 5),
            Some(_) if left >= 6 => match bits(at, 6) {
                code @ 0b011001..=0b011111 => (Some(code - 0b011001 + 3), 6),
                _ => (None, left),
            },
            _ => (None, left),
        };
        at += width;
        Some(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_every_way_that_servers_write_it() {
        for (block, status) in [
            (&b"\x88\x0f"[..], 200),
            (b"\x8e", 500),
            (b"\x20\x88", 200),
            (b"\x3f\xe1\x1f\x8d", 404),
            (b"\x08\x03503", 503),
            (b"\x48\x03302\x58", 302),
            (b"\x1e\x03101", 101),
            // RFC 7541 appendix C.6.1 and C.6.2: "302" and "307".
            (b"\x48\x82\x64\x02", 302),
            (b"\x48\x83\x64\x0e\xff", 307),
            // "503", "429".
            (b"\x48\x83\x6c\x0c\xff", 503),
            (b"\x08\x83\x68\x4f\xff", 429),
        ] {
            assert_eq!(read(block), Some(status), "{block:x?}");
        }
    }

    #[test]
    fn an_invalid_status_is_none() {
        for block in
            [&b""[..], b"\x80", b"\x87", b"\x8f", b"\x08", b"\x08\x03", b"\x08\x0299", b"\x08\x042000", b"\x08\x03abc"]
        {
            assert_eq!(read(block), None, "{block:x?}");
        }
        for block in [&b"\x08\x80"[..], b"\x08\x81\xff", b"\x08\x82\0\0", b"\x08\x81\0", b"\x00\x01a\x01b", b"\x3f\xff"]
        {
            assert_eq!(read(block), None, "{block:x?}");
        }
    }
}
