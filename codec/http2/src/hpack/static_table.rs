//! The static table (RFC 7541 appendix A), and the encoder's policy for fields of its names.

/// Number of fields. The dynamic table's indices begin behind them.
pub(super) const COUNT: usize = 61;

/// Name and value of each field; index 1 is the first.
pub(super) static FIELDS: [(&[u8], &[u8]); COUNT] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

/// By index: the lowest index that has the same name.
pub(super) static LOWEST: [u8; COUNT + 1] = lowest();

const fn lowest() -> [u8; COUNT + 1] {
    let mut lowest = [0; COUNT + 1];
    let mut at = 1;
    while at <= COUNT {
        // Fields of one name are neighbours.
        lowest[at] = if at > 1 && is_same(FIELDS[at - 1].0, FIELDS[at - 2].0) { lowest[at - 1] } else { at as u8 };
        at += 1;
    }
    lowest
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// How the encoder treats the fields of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Indexing {
    /// Into the table at once: the values of a name are few, and most messages have them.
    Once,
    /// Into the table when the same field comes again soon. So values that differ in each message (identifiers, times) evict nothing, and
    /// others cost one literal more.
    Repeated,
    /// Never into the table: values that differ in each message, or that are too many, by their nature.
    Literal,
    /// Never into a table on the whole way (RFC 7541 section 7.1.3): the length of a block would tell whether a guess at a short secret is
    /// right.
    Never,
    /// As [`Indexing::Repeated`], but [`Indexing::Never`] if it is short.
    Cookie,
}

macro_rules! names {
    ($($bytes:literal => { $($index:literal $name:literal $indexing:ident),+ })+) => {
        /// The lowest index of a name, and the policy for its fields; index 0 if the table does not have it.
        #[inline]
        pub(super) fn find(name: &[u8]) -> (u8, Indexing) {
            match name.len() {
                $($bytes => {
                    $(if name == $name.as_bytes() {
                        return ($index, Indexing::$indexing);
                    })+
                    (0, Indexing::Repeated)
                })+
                _ => (0, Indexing::Repeated),
            }
        }
    };
}

names! {
    3 => { 21 "age" Literal, 60 "via" Once }
    4 => {
        33 "date" Repeated, 34 "etag" Literal, 37 "from" Repeated, 38 "host" Once, 45 "link" Repeated,
        59 "vary" Once
    }
    5 => { 4 ":path" Literal, 22 "allow" Once, 50 "range" Literal }
    6 => { 19 "accept" Once, 32 "cookie" Cookie, 35 "expect" Repeated, 54 "server" Once }
    7 => {
        2 ":method" Once, 6 ":scheme" Once, 8 ":status" Repeated, 36 "expires" Literal, 51 "referer" Repeated,
        52 "refresh" Literal
    }
    8 => { 39 "if-match" Literal, 42 "if-range" Literal, 46 "location" Literal }
    10 => { 1 ":authority" Once, 55 "set-cookie" Literal, 58 "user-agent" Once }
    11 => { 53 "retry-after" Literal }
    12 => { 31 "content-type" Once, 47 "max-forwards" Repeated }
    13 => {
        18 "accept-ranges" Once, 23 "authorization" Never, 24 "cache-control" Once,
        30 "content-range" Literal, 41 "if-none-match" Literal, 44 "last-modified" Literal
    }
    14 => { 15 "accept-charset" Once, 28 "content-length" Literal }
    15 => { 16 "accept-encoding" Once, 17 "accept-language" Once }
    16 => {
        26 "content-encoding" Once, 27 "content-language" Once, 29 "content-location" Literal,
        61 "www-authenticate" Repeated
    }
    17 => { 40 "if-modified-since" Literal, 57 "transfer-encoding" Repeated }
    18 => { 48 "proxy-authenticate" Repeated }
    19 => { 25 "content-disposition" Literal, 43 "if-unmodified-since" Literal, 49 "proxy-authorization" Never }
    25 => { 56 "strict-transport-security" Once }
    27 => { 20 "access-control-allow-origin" Once }
}

/// The index of a field, by the lowest index of its name. Fields without a value are rare, and not looked for.
#[inline]
pub(super) fn find_value(name: u8, value: &[u8]) -> Option<u8> {
    Some(match (name, value) {
        (2, b"GET") => 2,
        (2, b"POST") => 3,
        (4, b"/") => 4,
        (4, b"/index.html") => 5,
        (6, b"http") => 6,
        (6, b"https") => 7,
        (8, _) => return find_status(value),
        (16, b"gzip, deflate") => 16,
        _ => return None,
    })
}

fn find_status(value: &[u8]) -> Option<u8> {
    Some(match value {
        b"200" => 8,
        b"204" => 9,
        b"206" => 10,
        b"304" => 11,
        b"400" => 12,
        b"404" => 13,
        b"500" => 14,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_by_its_name_and_value() {
        for (at, (name, value)) in FIELDS.iter().enumerate() {
            let (index, _) = find(name);
            assert_eq!(index, LOWEST[at + 1], "{}", name.escape_ascii());
            assert_eq!(FIELDS[usize::from(index) - 1].0, *name);
            if !value.is_empty() {
                assert_eq!(find_value(index, value), Some(at as u8 + 1));
            }
            assert_eq!(find_value(index, b"other"), None);
        }
        assert_eq!(find(b"x-request-id"), (0, Indexing::Repeated));
        assert_eq!(find(b"hosT").0, 0);
    }

    #[test]
    fn secrets_never_enter_a_table_and_values_of_one_message_not_this_one() {
        assert_eq!(find(b"authorization").1, Indexing::Never);
        assert_eq!(find(b"proxy-authorization").1, Indexing::Never);
        assert_eq!(find(b"cookie").1, Indexing::Cookie);
        for name in [":path", "content-length", "etag", "set-cookie"] {
            assert_eq!(find(name.as_bytes()).1, Indexing::Literal, "{name}");
        }
        for name in ["server", "content-type", "user-agent", ":authority"] {
            assert_eq!(find(name.as_bytes()).1, Indexing::Once, "{name}");
        }
        assert_eq!(find(b"date").1, Indexing::Repeated);
    }
}
