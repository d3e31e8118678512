//! The facts of a request.

use std::borrow::Cow;

/// The facts that routes are chosen by. The holder of a request implements it; only the facts that a condition needs are read.
pub trait RequestFacts {
    /// The canonical host without port, as [`weir_analysis::http::host::canonical`] gives it; empty if there is none.
    fn host(&self) -> &[u8];

    /// The normalised path without query, as [`weir_analysis::http::path::normalise`] gives it.
    fn path(&self) -> &[u8];

    /// The query without its `?`, as it was sent.
    fn query(&self) -> Option<&[u8]>;

    /// The method; case matters.
    fn method(&self) -> &[u8];

    /// The value of a header; `name` is lower case. `None` if there is no such field.
    ///
    /// A field that is there more than once is one value, its lines joined with `", "` in the order they came (RFC 9110
    /// 5.2), as Envoy and the Gateway API see it: a condition must not be passed by a second line that it never sees.
    /// [`joined`] does that; it allocates only for such fields. Lines of `cookie` are joined with `"; "` instead (RFC 9113
    /// 8.2.3), see [`joined_with`].
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>>;
}

/// The lines of one field as one value. Allocates only if there are several.
pub fn joined<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Cow<'a, [u8]>> {
    joined_with(lines, b", ")
}

/// The same with another separator.
pub fn joined_with<'a>(lines: impl IntoIterator<Item = &'a [u8]>, separator: &[u8]) -> Option<Cow<'a, [u8]>> {
    let mut lines = lines.into_iter();
    let mut value = Cow::Borrowed(lines.next()?);
    for line in lines {
        let value = value.to_mut();
        value.extend_from_slice(separator);
        value.extend_from_slice(line);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_lines_are_one_value_and_one_is_borrowed() {
        assert_eq!(joined([]), None);
        assert!(matches!(joined([&b"a"[..]]), Some(Cow::Borrowed(b"a"))));
        assert_eq!(joined([&b"a"[..], b"", b"b"]).as_deref(), Some(&b"a, , b"[..]));
        assert_eq!(joined_with([&b"a=1"[..], b"b=2"], b"; ").as_deref(), Some(&b"a=1; b=2"[..]));
    }
}
