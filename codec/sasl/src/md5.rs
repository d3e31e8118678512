//! MD5 passwords of PostgreSQL, for clients and servers without SCRAM. A stolen hash is as good as the password.

use subtle::ConstantTimeEq;
use weir_base::secret::Secret;

/// Bytes of a stored hash and of a response: `md5` and 32 hexadecimal digits.
pub const HASH_BYTES: usize = 35;

/// The stored form: `md5` and the digest of password and user.
#[must_use]
pub fn stored(user: &[u8], password: &Secret) -> Secret {
    Secret::new(hash(&[password.expose(), user]).to_vec())
}

/// Whether a stored password is an MD5 hash, as PostgreSQL decides it.
#[must_use]
pub fn is_stored(text: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == HASH_BYTES && text.starts_with(b"md5") && text[3..].iter().all(is_digit)
}

/// The response to a salt, without its zero byte. `stored` is of [`stored`]; for anything else the response is worthless.
#[must_use]
pub fn response(stored: &Secret, salt: [u8; 4]) -> [u8; HASH_BYTES] {
    hash(&[stored.expose().get(3..).unwrap_or_default(), &salt])
}

/// Whether `candidate` is the response of a client with this stored hash. Constant time in the contents.
#[must_use]
pub fn accepts(stored: &Secret, salt: [u8; 4], candidate: &[u8]) -> bool {
    response(stored, salt).ct_eq(candidate).into()
}

/// The response to a salt of a client with this password.
#[must_use]
pub fn password(user: &[u8], password: &Secret, salt: [u8; 4]) -> [u8; HASH_BYTES] {
    response(&stored(user, password), salt)
}

/// `md5` and the digest of `parts`, one after another.
pub(crate) fn hash(parts: &[&[u8]]) -> [u8; HASH_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut context = ::md5::Context::new();
    parts.iter().for_each(|part| context.consume(part));
    let mut text = *b"md500000000000000000000000000000000";
    for (pair, byte) in text[3..].chunks_exact_mut(2).zip(context.finalize().0) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `select 'md5' || md5('pencil' || 'user')` of PostgreSQL 15.
    #[test]
    fn a_stored_hash_is_that_of_postgresql() {
        let stored = stored(b"user", &Secret::from("pencil"));
        assert_eq!(stored.expose_str(), Some("md520c46e3762c864548e296b33c3406aa9"));
        assert!(is_stored(stored.expose()));
    }

    #[test]
    fn only_the_response_to_this_salt_is_accepted() {
        let stored = stored(b"user", &Secret::from("pencil"));
        let right = password(b"user", &Secret::from("pencil"), *b"salt");
        assert!(accepts(&stored, *b"salt", &right));
        assert!(!accepts(&stored, *b"tlas", &right));
        assert!(!accepts(&stored, *b"salt", &right[..34]));
        assert!(!accepts(&stored, *b"salt", &password(b"user", &Secret::from("pen"), *b"salt")));
        assert!(!accepts(&stored, *b"salt", b""));
    }

    #[test]
    fn a_password_that_only_looks_like_a_hash_is_none() {
        for text in ["md5", "md520C46E3762C864548E296B33C3406AA9", "md5g0c46e3762c864548e296b33c3406aa9", "pencil"] {
            assert!(!is_stored(text.as_bytes()), "{text}");
        }
    }
}
