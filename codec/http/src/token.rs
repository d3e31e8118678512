//! Classes of bytes (RFC 9110 section 5.6.2, RFC 3986).

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const TARGET: u8 = 4;
const HOST: u8 = 8;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let it = byte as u8;
        if it.is_ascii_alphanumeric() || is_one_of(it, b"!#$%&'*+-.^_`|~") {
            classes[byte] |= TOKEN;
        }
        // Bytes above ASCII are opaque but allowed. The only allowed control character is the tabulator.
        if it == b'\t' || (it >= b' ' && it != 0x7f) {
            classes[byte] |= VALUE;
        }
        // A fragment is for the client alone, and must not be sent.
        if it.is_ascii_graphic() && it != b'#' {
            classes[byte] |= TARGET;
        }
        // A name or an IPv4 address, without its port (RFC 3986 section 3.2.2).
        if it.is_ascii_alphanumeric() || is_one_of(it, b"-._~%!$&'()*+;=") {
            classes[byte] |= HOST;
        }
        byte += 1;
    }
    classes
}

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

/// A name of a method or a field: `1*tchar`.
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// Bytes of the token at the front.
#[inline]
pub(crate) fn token_bytes(bytes: &[u8]) -> usize {
    front(bytes, TOKEN)
}

/// Bytes of the host at the front, which is none in brackets.
#[inline]
pub(crate) fn host_bytes(bytes: &[u8]) -> usize {
    front(bytes, HOST)
}

/// A value of a field: no control characters but the tabulator.
#[inline]
pub fn is_field_value(bytes: &[u8]) -> bool {
    all(bytes, VALUE)
}

/// A request target: graphic ASCII without `#`.
#[inline]
pub fn is_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TARGET)
}

#[inline]
fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().fold(class, |seen, &byte| seen & CLASSES[usize::from(byte)]) == class
}

#[inline]
fn front(bytes: &[u8], class: u8) -> usize {
    bytes.iter().position(|&byte| CLASSES[usize::from(byte)] & class == 0).unwrap_or(bytes.len())
}

/// Without the blanks and tabulators at both ends.
#[inline]
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list, without blanks and without empty ones (RFC 9110 section 5.6.1).
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_standards() {
        assert!(
            is_token(b"X-a.b_c~1!") && !is_token(b"") && !is_token(b"a b") && !is_token(b"a\xe4") && !is_token(b"a:")
        );
        assert!(is_field_value(b"a \t\xe4~") && is_field_value(b""));
        for byte in (0..=8).chain(10..=31).chain([127]) {
            assert!(!is_field_value(&[b'a', byte]), "{byte:#x}");
        }
        assert!(is_target(b"/a?b=[1]|%zz\\") && !is_target(b"/a#b") && !is_target(b"/a b") && !is_target(b"/\xe4"));
    }

    #[test]
    fn lists_have_no_empty_elements() {
        assert_eq!(list(b" a ,,\t b,").collect::<Vec<_>>(), [&b"a"[..], b"b"]);
        assert_eq!(list(b"").count(), 0);
    }
}
