//! The part of an environment that a query selects: some projects, and the beginning of names.

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
};

use weir_flags_session::Projects;

/// A part as the key of its document.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) projects: Projects,
    pub(crate) prefix: Box<str>,
}

impl Part {
    /// Bytes that it occupies as a key of [`Recent`](crate::recent::Recent), about: it is there twice.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.projects.names().map(|name| name.len() + size_of::<Box<str>>());
        2 * (size_of::<Self>() + self.prefix.len() + names.sum::<usize>())
    }
}

/// Finds the document of a part without a copy of its texts.
pub(crate) trait Selector {
    /// The projects, and the beginning of the names.
    fn selected(&self) -> (&Projects, &str);
}

impl Selector for Part {
    fn selected(&self) -> (&Projects, &str) {
        (&self.projects, &self.prefix)
    }
}

impl Selector for (&Projects, &str) {
    fn selected(&self) -> (&Projects, &str) {
        *self
    }
}

impl Hash for dyn Selector + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.selected().hash(state);
    }
}

impl PartialEq for dyn Selector + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.selected() == other.selected()
    }
}

impl Eq for dyn Selector + '_ {}

impl<'a> Borrow<dyn Selector + 'a> for Part {
    fn borrow(&self) -> &(dyn Selector + 'a) {
        self
    }
}

// As `Borrow` wants it: both forms of a key have one hash.
impl Hash for Part {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.selected().hash(state);
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.selected() == other.selected()
    }
}

impl Eq for Part {}
