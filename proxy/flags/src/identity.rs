//! The names of this process towards a server.

use crate::edge::seed;

/// A name of this process: random, in Crockford's base 32 as the identifiers of Unleash Edge.
pub(crate) fn instance_id() -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let (high, low) = (seed(), seed());
    let number = u128::from(high) << 64 | u128::from(low);
    (0..26).rev().map(|at| char::from(DIGITS[(number >> (5 * at) & 31) as usize])).collect()
}

/// A random UUID (RFC 9562 section 5.4), as SDKs name their connection.
pub(crate) fn connection_id() -> String {
    let (high, low) = (seed(), seed());
    let (high, low) = (high & !0xf000 | 0x4000, low & !(3 << 62) | 1 << 63);
    let text = format!("{high:016x}{low:016x}");
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

/// The name of this machine, for the strategy `applicationHostname`.
pub(crate) fn hostname() -> Option<String> {
    let name = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    name.or_else(|| rustix::system::uname().nodename().to_str().ok().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_forms_and_differ() {
        let (one, other) = (instance_id(), instance_id());
        assert!(one.len() == 26 && one != other, "{one} {other}");
        let id = connection_id();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        assert!(id.as_bytes()[14] == b'4' && matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{id}");
    }
}
