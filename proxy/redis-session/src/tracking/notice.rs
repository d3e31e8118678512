//! Invalidations for another client than the one that tracks (REDIRECT). It may live on another worker, so a notice goes by
//! the mailbox of its worker: invalidations are rare beside requests, and no request waits for one.

use weir_resp::{Version, encode};

/// The channel of invalidations for clients of RESP2.
pub(crate) const CHANNEL: &[u8] = b"__redis__:invalidate";

/// An invalidation for a client in place of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Number of the client to tell.
    pub client: u64,
    /// The keys that have changed; `None`: all.
    pub keys: Option<Vec<Box<[u8]>>>,
}

/// Appends the message that `keys` have changed, `None` if all, as a client of `version` has it: a push, or a message on the
/// channel.
pub(crate) fn write(out: &mut Vec<u8>, keys: Option<&[&[u8]]>, version: Version) {
    match version {
        Version::Resp3 => {
            encode::push(out, 2, version);
            encode::bulk(out, b"invalidate");
        }
        Version::Resp2 => {
            encode::array(out, 3);
            encode::bulk(out, b"message");
            encode::bulk(out, CHANNEL);
        }
    }
    match keys {
        Some(keys) => {
            encode::array(out, keys.len());
            keys.iter().for_each(|key| encode::bulk(out, key));
        }
        None => encode::null_bulk(out, version),
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn both_versions_use_the_words_of_redis() {
        let wire = |keys: Option<&[&[u8]]>, version| {
            let mut out = Vec::new();
            write(&mut out, keys, version);
            String::from_utf8(out).expect("text")
        };
        let push = ">2\r\n$10\r\ninvalidate\r\n";
        let message = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";
        assert_eq!(wire(Some(&[b"k"]), Version::Resp3), format!("{push}*1\r\n$1\r\nk\r\n"));
        assert_eq!(wire(None, Version::Resp3), format!("{push}_\r\n"));
        assert_eq!(wire(Some(&[b"k"]), Version::Resp2), format!("{message}*1\r\n$1\r\nk\r\n"));
        assert_eq!(wire(None, Version::Resp2), format!("{message}$-1\r\n"));
    }
}
