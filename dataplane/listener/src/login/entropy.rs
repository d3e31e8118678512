//! Random bytes of the system, drawn for many logins at once: each draw costs some microseconds, whatever its length.

use std::{cell::RefCell, sync::OnceLock};

use weir_base::Secret;

/// Bytes of one draw. Default 1 KiB: a login takes some 54.
const DRAWN_BYTES: usize = 1_024;

/// Bytes that were drawn, and how many of them have not been used.
struct Drawn {
    bytes: [u8; DRAWN_BYTES],
    left: usize,
}

thread_local! {
    static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn { bytes: [0; DRAWN_BYTES], left: 0 }) };
}

/// Random bytes of the process: users that do not exist have the same salt at all its workers.
pub fn process_secret() -> Secret {
    Secret::from(&process_bytes()[..])
}

/// The same as they are.
pub fn process_bytes() -> &'static [u8; 32] {
    static SECRET: OnceLock<[u8; 32]> = OnceLock::new();
    SECRET.get_or_init(|| {
        let mut bytes = [0; 32];
        // Without randomness no login gets as far as to show a salt.
        let _ = aws_lc_rs::rand::fill(&mut bytes);
        bytes
    })
}

/// Fills `out` with bytes that nothing else gets; false: the system has no randomness.
pub fn fill(out: &mut [u8]) -> bool {
    if out.len() > DRAWN_BYTES {
        return aws_lc_rs::rand::fill(out).is_ok();
    }
    DRAWN.with_borrow_mut(|drawn| {
        if drawn.left < out.len() {
            if aws_lc_rs::rand::fill(&mut drawn.bytes).is_err() {
                return false;
            }
            drawn.left = DRAWN_BYTES;
        }
        let used = drawn.left - out.len()..drawn.left;
        drawn.left = used.start;
        out.copy_from_slice(&drawn.bytes[used.clone()]);
        drawn.bytes[used].fill(0);
        true
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_byte_is_given_twice_or_kept() {
        let mut seen = HashSet::new();
        for _ in 0..200 {
            let mut secret = [0; 24];
            assert!(fill(&mut secret) && seen.insert(secret));
        }
        let (left, rest) = DRAWN.with_borrow(|drawn| (drawn.left, drawn.bytes[drawn.left..].to_vec()));
        assert!(left + rest.len() == DRAWN_BYTES && rest.iter().all(|byte| *byte == 0), "used bytes are wiped");
        let mut long = [0; 2 * DRAWN_BYTES];
        assert!(fill(&mut long) && long.iter().any(|byte| *byte != 0));
    }
}
