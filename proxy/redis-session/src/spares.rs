//! Memory that sessions need now and then. An idle session has none of it.
//!
//! Between two uses it waits here, once for the sessions of a worker, so that a request finds it without the allocator.

use std::cell::{Cell, RefCell};

use weir_resp::RequestParser;

use crate::{ordering::OutOfTurn, pin::Watched, redirect::Attempts};

/// Values of a kind that are kept. Default 1,024, for the sessions that have an event in one turn of their worker.
const KEPT_MAX: usize = 1_024;
/// Bytes that kept values of a kind hold. Default 512 KiB, so 2 MiB of a listener and worker at worst.
const KEPT_BYTES_MAX: usize = 512 * 1024;
/// Bytes that a kept value holds. Default 96 KiB: a pipeline of 1,024 requests to a cluster. The state of more is seldom needed again.
const BYTES_MAX: usize = 96 * 1024;

/// The spare memory of the sessions of one listener on one worker.
#[derive(Debug, Default)]
pub struct Spares {
    pub(crate) parsers: SpareList<RequestParser>,
    pub(crate) out_of_turn: SpareList<OutOfTurn>,
    pub(crate) attempts: SpareList<Attempts>,
    pub(crate) watched: SpareList<Watched>,
}

/// A value that is kept for its memory.
pub(crate) trait Spare: Default {
    /// Bytes of memory that it holds without any content.
    fn room(&self) -> usize;

    /// Nothing of the session that had it is in it.
    fn is_bare(&self) -> bool;
}

impl Spare for RequestParser {
    fn room(&self) -> usize {
        self.heap_bytes()
    }

    fn is_bare(&self) -> bool {
        self.is_idle()
    }
}

/// Values of one kind, each in the box in which a session takes it.
#[derive(Debug)]
pub(crate) struct SpareList<T> {
    kept: RefCell<Vec<Box<T>>>,
    bytes: Cell<usize>,
}

impl<T> Default for SpareList<T> {
    fn default() -> Self {
        Self { kept: RefCell::default(), bytes: Cell::new(0) }
    }
}

impl<T: Spare> SpareList<T> {
    /// A value without content.
    #[inline]
    pub(crate) fn take(&self) -> Box<T> {
        let Some(value) = self.kept.borrow_mut().pop() else { return Box::default() };
        self.bytes.set(self.bytes.get() - bytes(&*value));
        value
    }

    /// Keeps a value without content that a session has no use for.
    #[inline]
    pub(crate) fn give(&self, value: Box<T>) {
        debug_assert!(value.is_bare(), "the state of one client would reach another");
        let (mut kept, own) = (self.kept.borrow_mut(), bytes(&*value));
        if kept.len() < KEPT_MAX && own <= BYTES_MAX && self.bytes.get() + own <= KEPT_BYTES_MAX {
            self.bytes.set(self.bytes.get() + own);
            kept.push(value);
        }
    }
}

fn bytes<T: Spare>(value: &T) -> usize {
    size_of::<T>() + value.room()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Room(Vec<u8>);

    impl Spare for Room {
        fn room(&self) -> usize {
            self.0.capacity()
        }

        fn is_bare(&self) -> bool {
            self.0.is_empty()
        }
    }

    #[test]
    fn a_value_serves_again_unless_it_holds_much() {
        let list = SpareList::default();
        list.give(Box::new(Room(Vec::with_capacity(1_000))));
        list.give(Box::new(Room(Vec::with_capacity(BYTES_MAX))));
        assert_eq!((list.take().0.capacity(), list.take().0.capacity()), (1_000, 0));
        assert_eq!(list.bytes.get(), 0);
    }

    #[test]
    fn all_values_of_a_kind_hold_no_more_than_they_may() {
        let list = SpareList::default();
        (0..2 * KEPT_MAX).for_each(|_| list.give(Box::new(Room::default())));
        assert_eq!(list.kept.borrow().len(), KEPT_MAX);
        (0..KEPT_MAX).for_each(|_| drop(list.take()));
        (0..KEPT_MAX).for_each(|_| list.give(Box::new(Room(Vec::with_capacity(BYTES_MAX / 2)))));
        assert!(list.bytes.get() <= KEPT_BYTES_MAX && list.kept.borrow().len() < KEPT_MAX);
    }
}
