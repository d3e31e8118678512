//! The paths that a caller watches, as a constant tree.

use crate::limits::{KEY_BYTES_MAX, LEVELS_MAX, MEMBERS_MAX};

/// A place of a text and the watched places below it. `P` names places to the caller, usually an enumeration.
///
/// A place may have members and items both: the content of a message is a string, or an array of parts.
#[derive(Clone, Copy, Debug)]
pub struct Node<P: 'static> {
    pub(crate) id: Option<P>,
    pub(crate) members: &'static [(&'static str, Self)],
    pub(crate) items: Option<&'static Self>,
    /// Levels of watched places below this one.
    levels: usize,
}

impl<P: Copy> Node<P> {
    /// A place that is not reported itself.
    pub const NEW: Self = Self { id: None, members: &[], items: None, levels: 0 };

    /// A place whose value is reported under this name.
    pub const fn value(id: P) -> Self {
        Self { id: Some(id), ..Self::NEW }
    }

    /// Watches these members, if the value is an object. A constant with too many, or a key too long, does not compile.
    #[must_use]
    pub const fn members(self, members: &'static [(&'static str, Self)]) -> Self {
        assert!(members.len() <= MEMBERS_MAX, "too many members");
        let (mut at, mut levels) = (0, self.levels);
        while at < members.len() {
            assert!(members[at].0.len() <= KEY_BYTES_MAX, "a key is too long");
            if members[at].1.levels >= levels {
                levels = members[at].1.levels + 1;
            }
            at += 1;
        }
        assert!(levels < LEVELS_MAX, "too many levels");
        Self { members, levels, ..self }
    }

    /// Watches each item, if the value is an array.
    #[must_use]
    pub const fn items(self, items: &'static Self) -> Self {
        let levels = if items.levels >= self.levels { items.levels + 1 } else { self.levels };
        assert!(levels < LEVELS_MAX, "too many levels");
        Self { items: Some(items), levels, ..self }
    }

    /// The watched member with this key, which has no escapes.
    #[inline]
    pub(crate) fn position(&self, key: &[u8]) -> Option<usize> {
        self.members.iter().position(|(name, _)| name.as_bytes() == key)
    }

    /// Whether a reader that ignores case takes the key for a watched one. Go's also folds two letters that are not
    /// ASCII.
    pub(crate) fn has_key_like(&self, key: &[u8]) -> bool {
        if key.is_ascii() {
            return self.members.iter().any(|(name, _)| name.as_bytes().eq_ignore_ascii_case(key));
        }
        let fold = |letter: char| match letter {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            _ => letter.to_ascii_lowercase(),
        };
        let Ok(key) = std::str::from_utf8(key) else { return false };
        self.members.iter().any(|(name, _)| key.chars().map(fold).eq(name.chars().map(fold)))
    }
}
