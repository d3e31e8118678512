//! The open connections of one listener on one worker.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
};

use slab::Slab;

/// A list from which connections take themselves when they end.
pub struct Roster<T: ?Sized> {
    open: Rc<RefCell<Slab<Weak<T>>>>,
}

impl<T: ?Sized> Default for Roster<T> {
    fn default() -> Self {
        Self { open: Rc::default() }
    }
}

impl<T: ?Sized> Roster<T> {
    /// Lists a connection until the result is dropped.
    pub fn enter(&self, connection: &Rc<T>) -> RosterEntry<T> {
        let key = self.open.borrow_mut().insert(Rc::downgrade(connection));
        RosterEntry { open: self.open.clone(), key }
    }

    /// Those that are open now.
    pub fn all(&self) -> Vec<Rc<T>> {
        self.open.borrow().iter().filter_map(|(_, connection)| connection.upgrade()).collect()
    }
}

/// A place in a [`Roster`].
pub struct RosterEntry<T: ?Sized> {
    open: Rc<RefCell<Slab<Weak<T>>>>,
    key: usize,
}

impl<T: ?Sized> Drop for RosterEntry<T> {
    fn drop(&mut self) {
        self.open.borrow_mut().remove(self.key);
    }
}
