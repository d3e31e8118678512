//! The byte account of one worker: what is stored, received in part, or queued.

use std::cell::Cell;

/// Bytes in use against a limit. Owners charge what they hold and credit it when they let go.
#[derive(Debug)]
pub struct Memory {
    used: Cell<usize>,
    bytes_max: usize,
}

impl Memory {
    pub fn new(bytes_max: usize) -> Self {
        Self { used: Cell::new(0), bytes_max }
    }

    pub fn charge(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_add(bytes));
    }

    pub fn credit(&self, bytes: usize) {
        debug_assert!(bytes <= self.used.get(), "credited {bytes} of {}", self.used.get());
        self.used.set(self.used.get().saturating_sub(bytes));
    }

    /// The holder of `before` bytes now holds `after`.
    pub fn adjust(&self, before: usize, after: usize) {
        if after >= before {
            self.charge(after - before);
        } else {
            self.credit(before - after);
        }
    }

    /// Whether `bytes` more would stay within the limit.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used.get().saturating_add(bytes) <= self.bytes_max
    }

    pub fn used(&self) -> usize {
        self.used.get()
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}
