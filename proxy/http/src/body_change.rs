//! The change of a buffered request body: checked splices, and the walk over the changed bytes without a copy of the rest.

use weir_base::{ByteLease, BytesPermit};

use crate::filter::choice::{ADDED_BYTES_MAX, BodyChange, Splice};

/// The reason why a body cannot be changed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeError {
    /// The filter broke this rule.
    Rule(&'static str),
    /// There is no memory for the new bytes.
    NoRoom,
}

/// Checked splices of a body, with the memory of their new bytes.
pub(crate) struct CheckedChange {
    splices: Vec<Splice>,
    removed: u64,
    added: u64,
    _permit: BytesPermit,
}

impl CheckedChange {
    /// Checks a change of a body of which `buffered` bytes are here. `None`: it goes on as it came.
    ///
    /// # Errors
    /// The filter broke a rule, or there is no memory.
    pub(crate) fn new(
        change: BodyChange,
        buffered: usize,
        is_whole: bool,
        lease: &ByteLease,
    ) -> Result<Option<Self>, ChangeError> {
        let splices = match change {
            BodyChange::Keep => return Ok(None),
            BodyChange::Replace(_) if !is_whole => {
                return Err(ChangeError::Rule("a filter replaced a body that it has not seen whole"));
            }
            BodyChange::Replace(replacement) => vec![Splice { range: 0..buffered, replacement }],
            BodyChange::Splice(splices) => splices,
        };
        let (mut end, mut removed, mut added) = (0, 0, 0_usize);
        for Splice { range, replacement } in &splices {
            if range.start < end || range.end < range.start {
                return Err(ChangeError::Rule("edits of a filter are out of order or overlap"));
            }
            if range.end > buffered {
                return Err(ChangeError::Rule("an edit of a filter is beyond the buffered part of the body"));
            }
            (end, removed, added) = (range.end, removed + range.len(), added.saturating_add(replacement.len()));
        }
        if added > ADDED_BYTES_MAX {
            return Err(ChangeError::Rule("a filter added more bytes to a body than it may"));
        }
        let mut permit = lease.empty();
        if !lease.is_half_free() || !permit.resize(added as u64) {
            return Err(ChangeError::NoRoom);
        }
        Ok(Some(Self { splices, removed: removed as u64, added: added as u64, _permit: permit }))
    }

    /// The length of a body that came with this one.
    pub(crate) fn length(&self, came: u64) -> u64 {
        came.saturating_sub(self.removed) + self.added
    }
}

/// A position in a changed body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// In the body as it came.
    at: usize,
    /// The next splice.
    splice: usize,
    /// In the replacement of that.
    inside: usize,
}

impl Position {
    /// The next piece, of at most `most` bytes: of `came`, or of a replacement. Empty at the end.
    pub(crate) fn next<'a>(&mut self, came: &'a [u8], change: Option<&'a CheckedChange>, most: usize) -> &'a [u8] {
        let splices = change.map_or(&[][..], |change| &change.splices);
        self.skip(splices);
        let piece = match splices.get(self.splice) {
            Some(splice) if self.at == splice.range.start => {
                let rest = &splice.replacement[self.inside..];
                let piece = &rest[..rest.len().min(most)];
                self.inside += piece.len();
                piece
            }
            next => {
                let end = next.map_or(came.len(), |splice| splice.range.start);
                let piece = &came[self.at..end.min(self.at.saturating_add(most))];
                self.at += piece.len();
                piece
            }
        };
        self.skip(splices);
        piece
    }

    /// Leaves splices whose replacement is over.
    fn skip(&mut self, splices: &[Splice]) {
        while let Some(splice) = splices.get(self.splice)
            && self.at == splice.range.start
            && self.inside == splice.replacement.len()
        {
            *self = Self { at: splice.range.end, splice: self.splice + 1, inside: 0 };
        }
    }

    /// Nothing follows.
    pub(crate) fn is_end(&self, came: &[u8], change: Option<&CheckedChange>) -> bool {
        self.at == came.len() && change.is_none_or(|change| self.splice == change.splices.len())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_base::Budget;

    use super::*;

    fn splices(all: &[(std::ops::Range<usize>, &'static str)]) -> BodyChange {
        let splice = |(range, text): &(std::ops::Range<usize>, &'static str)| Splice {
            range: range.clone(),
            replacement: Bytes::from_static(text.as_bytes()),
        };
        BodyChange::Splice(all.iter().map(splice).collect())
    }

    fn checked(change: BodyChange, buffered: usize, is_whole: bool) -> Result<Option<CheckedChange>, ChangeError> {
        CheckedChange::new(change, buffered, is_whole, &ByteLease::new(Budget::new(1 << 20)))
    }

    fn walked(came: &[u8], change: Option<&CheckedChange>, most: usize) -> Vec<u8> {
        let (mut position, mut all) = (Position::default(), Vec::new());
        while !position.is_end(came, change) {
            let piece = position.next(came, change, most);
            assert!(piece.len() <= most && (!piece.is_empty() || position.is_end(came, change)));
            all.extend_from_slice(piece);
        }
        all
    }

    #[test]
    fn splices_replace_insert_and_remove_in_pieces_of_any_size() {
        let came = b"0123456789";
        type Case = (&'static [(std::ops::Range<usize>, &'static str)], &'static str);
        let cases: [Case; 7] = [
            (&[], "0123456789"),
            (&[(0..0, "<")], "<0123456789"),
            (&[(10..10, ">")], "0123456789>"),
            (&[(0..10, "")], ""),
            (&[(2..4, "abc"), (4..4, "d"), (4..5, "")], "01abcd56789"),
            (&[(3..3, "x"), (3..3, "y")], "012xy3456789"),
            (&[(0..1, ""), (9..10, "end")], "12345678end"),
        ];
        for (edits, expected) in cases {
            let change = checked(splices(edits), came.len(), false).expect("fit");
            for most in 1..12 {
                assert_eq!(String::from_utf8_lossy(&walked(came, change.as_ref(), most)), expected, "{edits:?} {most}");
            }
            assert_eq!(change.expect("one").length(10), expected.len() as u64);
        }
        assert_eq!(walked(came, None, 3), came);
    }

    #[test]
    fn a_change_that_breaks_a_rule_is_refused() {
        let broken = [
            splices(&[(4..5, ""), (3..4, "")]),
            splices(&[(2..4, ""), (3..5, "")]),
            splices(&[(9..11, "")]),
            splices(&[(11..11, "x")]),
            BodyChange::Splice(vec![Splice { range: std::ops::Range { start: 3, end: 2 }, replacement: Bytes::new() }]),
            BodyChange::Replace(Bytes::from_static(b"x")),
        ];
        for change in broken {
            let refused = checked(change.clone(), 10, false).err();
            assert!(matches!(refused, Some(ChangeError::Rule(_))), "{change:?} {refused:?}");
        }
        let whole = checked(BodyChange::Replace(Bytes::from_static(b"new")), 10, true).expect("fit");
        assert_eq!(walked(b"0123456789", whole.as_ref(), 2), b"new");
    }

    #[test]
    fn new_bytes_are_charged_and_refused_beyond_the_budget() {
        let lease = ByteLease::with_step(Budget::new(1000), 1);
        let replace = |count| BodyChange::Replace(Bytes::from(vec![0; count]));
        let change = CheckedChange::new(replace(600), 0, true, &lease).expect("fit");
        assert_eq!(lease.in_use(), 600);
        assert_eq!(CheckedChange::new(replace(1), 0, true, &lease).err(), Some(ChangeError::NoRoom));
        drop(change);
        assert_eq!(lease.in_use(), 0);
    }
}
