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
