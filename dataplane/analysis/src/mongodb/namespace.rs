//! Database and collection.

/// A collection that a command reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Namespace<'a> {
    /// Its database.
    pub db: &'a [u8],
    /// Its name.
    pub collection: &'a [u8],
    /// The command may change it.
    pub is_written: bool,
}

/// The two parts of a full name. The first dot parts them: no database has one.
pub(super) fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = memchr::memchr(b'.', name)?;
    let (db, collection) = (&name[..dot], &name[dot + 1..]);
    (!db.is_empty() && !collection.is_empty()).then_some((db, collection))
}
