//! Handshake keys, and the accept values that confirm them (RFC 6455 section 4).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The one version there is.
pub const VERSION: &[u8] = b"13";

/// The constant that a server appends to a key (section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// True for the value of a Sec-WebSocket-Key: sixteen bytes in base64.
pub fn is_key(key: &[u8]) -> bool {
    key.len() == 24 && STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// A Sec-WebSocket-Key of these bytes, which should be random.
pub fn key(halves: [[u8; 8]; 2]) -> String {
    STANDARD.encode(halves.concat())
}

/// The Sec-WebSocket-Accept for `key`. SHA-1 protects nothing here: it shows that the server speaks WebSocket.
pub fn accept(key: &[u8]) -> String {
    let mut text = key.to_vec();
    text.extend_from_slice(GUID);
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_6455_section_1_3() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_key_is_sixteen_bytes_in_base64() {
        assert!(is_key(b"dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(is_key(key([*b"the samp", *b"le nonce"]).as_bytes()));
        for other in [&b""[..], b"dGhlIHNhbXBsZSBub25jZQ", b"dGhlIHNhbXBsZSBub25jZTE=", b"????????????????????????"] {
            assert!(!is_key(other), "{}", String::from_utf8_lossy(other));
        }
    }
}
