//! A part of a text.

/// Bytes `start..end` of the text that was analysed. Four bytes each instead of the standard library's eight, and
/// `Copy`: an analysis may hold thousands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    /// First byte.
    pub start: u32,
    /// Behind the last byte.
    pub end: u32,
}

impl Range {
    pub(super) const fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// From the first byte of `self` to the last of `last`.
    pub(super) const fn to(self, last: Self) -> Self {
        Self { start: self.start, end: last.end }
    }

    /// The part of `text`, which must be the text that was analysed; empty for any other that is too short.
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Bytes of the part.
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether the part has no byte.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}
