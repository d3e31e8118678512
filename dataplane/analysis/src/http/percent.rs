//! Percent-encoding (RFC 3986 2.1).

/// The byte that the escape at the start of `bytes` stands for; `None` if that is no escape.
pub(super) fn escaped(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = bytes else { return None };
    Some((digit(*high)? << 4) | digit(*low)?)
}

fn digit(hex: u8) -> Option<u8> {
    match hex {
        b'0'..=b'9' => Some(hex - b'0'),
        b'a'..=b'f' => Some(hex - b'a' + 10),
        b'A'..=b'F' => Some(hex - b'A' + 10),
        _ => None,
    }
}

/// Means the same escaped or not (RFC 3986 2.3).
pub(super) const fn is_unreserved(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~')
}
