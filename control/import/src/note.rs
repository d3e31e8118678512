//! Places in the input, and what is said of them.

use std::fmt;
use std::rc::Rc;

/// A line of an input file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// The file, as it was named.
    pub file: Rc<str>,
    /// From 1.
    pub line: usize,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A directive that has no counterpart, or not a whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where it stands.
    pub place: SourceLine,
    /// The directive, as it was written.
    pub directive: String,
    /// Why it is not in the output, or what differs there.
    pub why: String,
    /// The nearest thing; empty: there is none.
    pub nearest: String,
}

impl Note {
    /// A note on `directive`. An empty `nearest` means that there is nothing near.
    pub(crate) fn new(place: &SourceLine, directive: impl Into<String>, why: impl Into<String>, nearest: &str) -> Self {
        Self { place: place.clone(), directive: directive.into(), why: why.into(), nearest: nearest.to_owned() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.place, self.directive, self.why)?;
        match self.nearest.is_empty() {
            true => Ok(()),
            false => write!(f, "; nearest: {}", self.nearest),
        }
    }
}

/// A mistake in the input: the program that the file is for would not take it either, or nothing could be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands.
    pub place: SourceLine,
    /// Description of the mistake.
    pub message: String,
}

impl Mistake {
    /// A mistake at a place.
    pub(crate) fn new(place: &SourceLine, message: impl Into<String>) -> Self {
        Self { place: place.clone(), message: message.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for Mistake {}
