//! Hash tags: the part of a key that decides where it goes, so that keys can be kept together.

/// The two characters that enclose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashTag {
    /// Before it.
    pub open: u8,
    /// Behind it.
    pub close: u8,
}

impl HashTag {
    /// `{…}`, as Redis Cluster has it.
    pub const CLUSTER: HashTag = HashTag { open: b'{', close: b'}' };

    /// The part of `key` that is hashed: the text between the first opening and the next closing character, or the whole key
    /// if one is missing or nothing stands between them (Redis Cluster specification, "Hash tags"; twemproxy `server.c`).
    #[inline]
    pub fn of(self, key: &[u8]) -> &[u8] {
        let inner = memchr::memchr(self.open, key).and_then(|open| {
            let rest = &key[open + 1..];
            memchr::memchr(self.close, rest).map(|close| &rest[..close])
        });
        inner.filter(|inner| !inner.is_empty()).unwrap_or(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pair_counts() {
        let cases: [(&[u8], &[u8]); 7] = [
            (b"{user1000}.following", b"user1000"),
            (b"foo{}{bar}", b"foo{}{bar}"),
            (b"foo{{bar}}zap", b"{bar"),
            (b"foo{bar}{zap}", b"bar"),
            (b"foo", b"foo"),
            (b"foo{bar", b"foo{bar"),
            (b"}foo{bar}", b"bar"),
        ];
        for (key, tag) in cases {
            assert_eq!(HashTag::CLUSTER.of(key), tag, "{}", String::from_utf8_lossy(key));
        }
        assert_eq!(HashTag { open: b'$', close: b'$' }.of(b"a$b$c"), b"b");
    }
}
