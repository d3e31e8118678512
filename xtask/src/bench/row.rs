//! What every table has: rows with a word for the command line.

/// One row of a table.
pub(crate) trait Row: Copy + PartialEq {
    /// A word for people who wait, such as `get-64-c50-p1`.
    fn id(&self) -> String;
}
