//! What every table has: rows with a word for the command line and a title for people.

use anyhow::{Result, bail};

/// One row of a table.
pub(crate) trait Row: Copy + PartialEq {
    /// A word for the command line, such as `get-64-c50-p1`.
    fn id(&self) -> String;

    /// A title for people.
    fn title(&self) -> String;
}

/// Of `all`, rows whose id is, or else holds, one of the words, which are divided by commas; an error names a word that fits
/// none.
pub(crate) fn named<R: Row>(words: &str, all: &[R]) -> Result<Vec<R>> {
    let words: Vec<&str> = words.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let ids: Vec<String> = all.iter().map(Row::id).collect();
    if let Some(word) = words.iter().find(|word| !ids.iter().any(|id| id.contains(**word))) {
        bail!("no row holds `{word}`; rows: {}", ids.join(" "));
    }
    let fits =
        |id: &str, word: &str| if ids.iter().any(|known| known == word) { id == word } else { id.contains(word) };
    Ok(all.iter().filter(|row| words.iter().any(|word| fits(&row.id(), word))).copied().collect())
}

/// Bytes as a table writes them: `64`, or `1k`.
pub(crate) fn short_size(bytes: usize) -> String {
    if bytes >= 1 << 10 { format!("{}k", bytes >> 10) } else { bytes.to_string() }
}

/// Bytes for people: `64 B`, or `1 KiB`.
pub(crate) fn long_size(bytes: usize) -> String {
    if bytes >= 1 << 10 { format!("{} KiB", bytes >> 10) } else { format!("{bytes} B") }
}
