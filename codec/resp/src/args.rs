//! Where the arguments of the current command stand: offsets, not objects.

use std::ops::Range;

/// Arguments whose offsets live inside the parser; more spill to the heap.
const ARGS_INLINE: usize = 8;

/// Spilled bytes kept for the next command. Larger spills are freed as soon as the next command starts.
const SPILL_BYTES_KEPT: usize = 16 * 1024;

/// Offset and length of one argument, in the input or in the scratch buffer of an unquoted line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ArgRange {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// Heap part, only there while a command needs it.
#[derive(Debug, Default)]
struct Spill {
    ranges: Vec<ArgRange>,
    scratch: Vec<u8>,
}

impl Spill {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.ranges.capacity() * size_of::<ArgRange>() + self.scratch.capacity()
    }
}

/// The complete arguments of one command.
#[derive(Debug)]
pub(crate) struct ArgTable {
    /// Arguments are in the spill's scratch buffer instead of the input.
    unquoted: bool,
    count: u32,
    ranges: [ArgRange; ARGS_INLINE],
    spill: Option<Box<Spill>>,
}

impl ArgTable {
    pub(crate) const fn new() -> Self {
        Self { unquoted: false, count: 0, ranges: [ArgRange { start: 0, len: 0 }; ARGS_INLINE], spill: None }
    }

    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    pub(crate) fn push(&mut self, range: ArgRange) {
        match self.ranges.get_mut(self.count as usize) {
            Some(slot) => *slot = range,
            None => self.spill.get_or_insert_default().ranges.push(range),
        }
        self.count += 1;
    }

    #[inline]
    pub(crate) fn arg<'a>(&'a self, i: usize, input: &'a [u8]) -> &'a [u8] {
        let range = self.range(i);
        if self.unquoted { &self.spill().scratch[range] } else { &input[range] }
    }

    /// Where argument `i` stands in the input, if it does.
    #[inline]
    pub(crate) fn input_range(&self, i: usize) -> Option<Range<usize>> {
        let range = self.range(i);
        (!self.unquoted).then_some(range)
    }

    /// Puts arguments into a buffer of the table itself: `write` appends bytes and reports ranges of them.
    pub(crate) fn unquote<T>(&mut self, write: impl FnOnce(&mut Vec<u8>, &mut dyn FnMut(ArgRange)) -> T) -> T {
        self.unquoted = true;
        let mut scratch = std::mem::take(&mut self.spill.get_or_insert_default().scratch);
        let result = write(&mut scratch, &mut |range| self.push(range));
        self.spill.get_or_insert_default().scratch = scratch;
        result
    }

    /// Forgets the arguments; a small spill is kept for the next command.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.unquoted = false;
        self.count = 0;
        if self.spill.is_some() {
            self.trim_spill();
        }
    }

    /// Forgets the arguments and frees all memory.
    pub(crate) fn release(&mut self) {
        self.unquoted = false;
        self.count = 0;
        self.spill = None;
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.spill.as_deref().map_or(0, Spill::bytes)
    }

    #[cold]
    fn trim_spill(&mut self) {
        match &mut self.spill {
            Some(spill) if spill.bytes() <= SPILL_BYTES_KEPT => {
                spill.ranges.clear();
                spill.scratch.clear();
            }
            spill => *spill = None,
        }
    }

    #[inline]
    fn range(&self, i: usize) -> Range<usize> {
        assert!(i < self.count as usize, "argument {i} of {}", self.count);
        let ArgRange { start, len } = match self.ranges.get(i) {
            Some(range) => *range,
            None => self.spill().ranges[i - ARGS_INLINE],
        };
        start as usize..start as usize + len as usize
    }

    fn spill(&self) -> &Spill {
        self.spill.as_deref().expect("offsets or bytes were spilled for this command")
    }
}
