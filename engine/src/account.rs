//! The account that an output charges for its memory.

use std::cell::RefCell;

use weir_base::permit::BytesPermit;

/// An account for the memory of outputs. See [`Output::charge_to`](crate::Output::charge_to).
pub trait Account {
    /// An output has charged `before` bytes, and holds `now` bytes. False: the budget has no room for them, and nothing changes.
    fn charge(&self, before: usize, now: usize) -> bool;
}

impl Account for RefCell<BytesPermit> {
    fn charge(&self, before: usize, now: usize) -> bool {
        let mut permit = self.borrow_mut();
        let bytes = permit.bytes() - before as u64 + now as u64;
        permit.resize(bytes)
    }
}
