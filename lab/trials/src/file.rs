//! Result files: JSON that names its schema first, so that a file of another version is refused by its name.

use std::fs;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Ending of a file that is being written.
const PARTIAL: &str = "partial";

/// Why a text is no result.
#[derive(Debug)]
pub enum FileError {
    /// Not JSON, or not with the fields of its schema.
    Json(serde_json::Error),
    /// Another schema, which stands here beside the one that is read.
    Schema {
        /// Schema of the file.
        found: String,
        /// Expected schema.
        wanted: &'static str,
    },
    /// One line of a file of lines.
    Line {
        /// From 1.
        line: usize,
        /// The error.
        why: String,
    },
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(error) => write!(f, "no result of the lab: {error}"),
            Self::Schema { found, wanted } => write!(f, "schema is {found:?}, this version reads {wanted:?}"),
            Self::Line { line, why } => write!(f, "line {line}: {why}"),
        }
    }
}

impl std::error::Error for FileError {}

/// Value of the field `schema` of a text.
///
/// # Errors
/// No JSON object with that field.
pub fn schema_of(text: &str) -> Result<String, FileError> {
    /// Read first: a file of another schema has other fields.
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    serde_json::from_str(text).map(|head: Head| head.schema).map_err(FileError::Json)
}

/// Reads a text of the schema `wanted`.
pub(crate) fn read<T: DeserializeOwned>(text: &str, wanted: &'static str) -> Result<T, FileError> {
    let found = schema_of(text)?;
    if found != wanted {
        return Err(FileError::Schema { found, wanted });
    }
    serde_json::from_str(text).map_err(FileError::Json)
}

/// Whether a result can be written to `path`, checked before any load so that no result is lost.
///
/// # Errors
/// It cannot.
pub fn try_write(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let partial = path.with_extension(PARTIAL);
    fs::write(&partial, "")?;
    fs::remove_file(&partial)
}

/// Writes a result, whole or not at all.
///
/// # Errors
/// The file, or its neighbour that it is first written to, cannot be written.
pub fn write(path: &Path, result: &impl Serialize) -> io::Result<()> {
    let partial = path.with_extension(PARTIAL);
    fs::write(&partial, serde_json::to_string(result)? + "\n")?;
    fs::rename(&partial, path)
}
