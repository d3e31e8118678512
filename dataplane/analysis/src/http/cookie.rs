//! The Cookie field (RFC 6265 4.2).
//!
//! Servers differ in what they make of odd ones; this is what browsers send and the RFC says: pairs split at `;`, spaces
//! around them do not count, names are case-sensitive, and quotes belong to the value (5.2 strips none).

/// The pairs of a Cookie field, in order. A piece without `=` is no pair.
pub fn pairs(field: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    field.split(|&byte| byte == b';').filter_map(|piece| {
        let at = piece.iter().position(|&byte| byte == b'=')?;
        Some((trim(&piece[..at]), trim(&piece[at + 1..])))
    })
}

/// The value of the first cookie with this name. Browsers send the one with the longest path first.
pub fn value<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pairs(field).find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
}

/// The same over several fields: HTTP/2 clients may send a field per cookie (RFC 9113 8.2.3).
pub fn value_in<'a>(fields: impl IntoIterator<Item = &'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    fields.into_iter().find_map(|field| value(field, name))
}

fn trim(bytes: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = bytes.iter().position(is_text).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(is_text).map_or(start, |last| last + 1);
    &bytes[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_name() {
        let field = b"a=1; session=\"x=y\";b = 2 ;SESSION=no; session=later; flag; =empty";
        for (name, expected) in [
            (&b"a"[..], Some(&b"1"[..])),
            (b"session", Some(b"\"x=y\"")),
            (b"b", Some(b"2")),
            (b"SESSION", Some(b"no")),
            (b"flag", None),
            (b"", Some(b"empty")),
            (b"essio", None),
        ] {
            assert_eq!(value(field, name), expected, "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn crumbs_are_one_field() {
        let fields: [&[u8]; 3] = [b"a=1", b"b=2", b"a=3"];
        assert_eq!(value_in(fields, b"b"), Some(&b"2"[..]));
        assert_eq!(value_in(fields, b"a"), Some(&b"1"[..]));
        assert_eq!(value_in(fields, b"c"), None);
    }
}
