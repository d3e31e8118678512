//! Lists that connections need from an event to the end of its turn. The memory of one serves the next connection.

use std::cell::{Cell, RefCell};

/// Lists that are kept. Default 1,024, for the connections that get their replies in one turn.
const KEPT_MAX: usize = 1_024;
/// Elements that kept lists have room for. Default 8,192: 576 KiB of a listener and worker, with elements of 72 bytes.
const ROOM_MAX: usize = 8 * 1024;
/// Elements that a kept list has room for. Default 64, as long a list as most turns make.
const LIST_ROOM_MAX: usize = 64;

/// Empty lists with their memory.
pub(crate) struct SpareLists<T> {
    kept: RefCell<Vec<Vec<T>>>,
    room: Cell<usize>,
}

impl<T> Default for SpareLists<T> {
    fn default() -> Self {
        Self { kept: RefCell::default(), room: Cell::new(0) }
    }
}

impl<T> SpareLists<T> {
    /// An empty list.
    #[inline]
    pub(crate) fn take(&self) -> Vec<T> {
        let list = self.kept.borrow_mut().pop().unwrap_or_default();
        self.room.set(self.room.get() - list.capacity());
        list
    }

    /// Keeps the memory of a list.
    #[inline]
    pub(crate) fn give(&self, mut list: Vec<T>) {
        list.clear();
        let (mut kept, room) = (self.kept.borrow_mut(), self.room.get() + list.capacity());
        if kept.len() < KEPT_MAX && list.capacity() <= LIST_ROOM_MAX && room <= ROOM_MAX {
            self.room.set(room);
            kept.push(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_empty_and_a_long_one_does_not() {
        let lists = SpareLists::default();
        let mut list = lists.take();
        list.push(1);
        let memory = list.as_ptr();
        lists.give(list);
        lists.give(Vec::with_capacity(LIST_ROOM_MAX + 1));
        let again = lists.take();
        assert!(again.is_empty() && again.as_ptr() == memory);
        assert_eq!((lists.take().capacity(), lists.room.get()), (0, 0));
    }

    #[test]
    fn all_lists_have_no_more_room_than_they_may() {
        let lists = SpareLists::<u64>::default();
        (0..KEPT_MAX).for_each(|_| lists.give(Vec::with_capacity(LIST_ROOM_MAX)));
        assert!(lists.room.get() <= ROOM_MAX && lists.kept.borrow().len() < KEPT_MAX);
    }
}
