//! The arguments of a command, wherever the session keeps them.

/// Arguments with the command name at 0, as Redis' `argv`. A session that streams a long value need not hold it.
pub trait Args {
    /// Number of arguments, name included (`argc`).
    fn argc(&self) -> usize;

    /// Argument `index`; `None` beyond the end and for one that is not held in memory.
    fn arg(&self, index: usize) -> Option<&[u8]>;
}

impl<T: AsRef<[u8]>> Args for [T] {
    fn argc(&self) -> usize {
        self.len()
    }

    fn arg(&self, index: usize) -> Option<&[u8]> {
        self.get(index).map(AsRef::as_ref)
    }
}

impl<T: AsRef<[u8]>> Args for Vec<T> {
    fn argc(&self) -> usize {
        self.len()
    }

    fn arg(&self, index: usize) -> Option<&[u8]> {
        self.get(index).map(AsRef::as_ref)
    }
}

impl<T: AsRef<[u8]>, const N: usize> Args for [T; N] {
    fn argc(&self) -> usize {
        N
    }

    fn arg(&self, index: usize) -> Option<&[u8]> {
        self.get(index).map(AsRef::as_ref)
    }
}

/// Whether an argument is this keyword to a server: in any case, and up to the first NUL, because the servers compare
/// keywords as C strings. `STORE\0x` is STORE to them; a rule that saw another word there would be passed by.
#[inline]
pub(super) fn is_word(arg: &[u8], word: &[u8]) -> bool {
    let Some((head, tail)) = arg.split_at_checked(word.len()) else { return false };
    head.eq_ignore_ascii_case(word) && tail.first().is_none_or(|byte| *byte == 0)
}
