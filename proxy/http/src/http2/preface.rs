//! The preface, by which a connection of HTTP/2 begins.

use weir_http2_codec::PREFACE;

/// The part of HTTP/2's preface that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preface {
    /// It is something else.
    No,
    /// It may become one.
    ResponseStart,
    /// All of it.
    Whole,
}

impl Preface {
    /// At the front of what a client sends first.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes.len() {
            0 => Self::No,
            _ if bytes.starts_with(PREFACE) => Self::Whole,
            _ if PREFACE.starts_with(bytes) => Self::ResponseStart,
            _ => Self::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preface_is_known_however_it_is_cut_and_nothing_else_is_one() {
        assert_eq!(Preface::of(b""), Preface::No);
        for end in 1..PREFACE.len() {
            assert_eq!(Preface::of(&PREFACE[..end]), Preface::ResponseStart);
        }
        assert_eq!(Preface::of(&[&PREFACE[..], b"more"].concat()), Preface::Whole);
        assert_eq!(Preface::of(b"PRI / HTTP/1.1\r\n"), Preface::No);
        assert_eq!(Preface::of(b"GET"), Preface::No);
    }
}
