//! Lines: bytes up to and without `\n`. No other byte has a meaning.

/// A line is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Chunks come in, lines go out. It holds at most one unfinished line of `bytes_max`, and the last chunk.
#[derive(Debug)]
pub struct Lines {
    bytes_max: usize,
    held: Vec<u8>,
    /// Bytes at the front that were taken.
    taken: usize,
}

impl Lines {
    /// Lines of up to `bytes_max` bytes, their ends not counted.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, held: Vec::new(), taken: 0 }
    }

    /// Adds what was received.
    pub fn push(&mut self, chunk: &[u8]) {
        self.held.drain(..self.taken);
        self.taken = 0;
        self.held.extend_from_slice(chunk);
    }

    /// Takes the next whole line, if there is one.
    ///
    /// # Errors
    /// The line is too long, whether its end is there or not.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let left = &self.held[self.taken..];
        // The end of a line that may be as long as it is stands behind its last byte.
        let end = left.iter().take(self.bytes_max + 1).position(|byte| *byte == b'\n');
        let Some(end) = end else {
            return if left.len() > self.bytes_max { Err(TooLong) } else { Ok(None) };
        };
        let line = left[..end].to_vec();
        self.taken += end + 1;
        if self.is_empty() {
            *self = Self::new(self.bytes_max);
        }
        Ok(Some(line))
    }

    /// Bytes that were not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len() - self.taken
    }

    /// Nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
        let mut lines = Lines::new(3);
        lines.push(b"abc");
        assert_eq!(lines.take(), Ok(None), "its end may follow");
        lines.push(b"\n\nabcd");
        assert_eq!(lines.take(), Ok(Some(b"abc".to_vec())));
        assert_eq!((lines.take(), lines.len()), (Ok(Some(Vec::new())), 4));
        assert_eq!(lines.take(), Err(TooLong));
        lines.push(b"\n");
        assert_eq!(lines.take(), Err(TooLong), "with its end too");
    }
}
