//! A part of a body.

/// Bytes `start..end` of the raw body. A string has its quotes within. Four bytes each: a body has thousands, and is
/// below 4 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Behind the last byte.
    pub end: u32,
}

impl Span {
    /// The reader refuses bodies beyond 4 GiB before it makes one.
    pub(super) const fn new(start: u64, end: u64) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// The part of `body`, which must be the body that was read; empty for one that is too short.
    pub fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Bytes of the part.
    pub const fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the part has no byte.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}
