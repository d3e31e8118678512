//! A mistake in a scenario file: where, what, and how to mend it.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

/// Mistakes reported for one file; the rest is only counted. Default 100: more would not be read.
pub const MISTAKES_MAX: usize = 100;

/// Byte range in the source.
pub(crate) type Span = Range<usize>;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The mistake; names the key.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// Three lines, as compilers print them.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.what)?;
        writeln!(f, " --> {}:{}:{}", self.file, self.line, self.column)?;
        writeln!(f, "  = help: {}", self.remedy)
    }
}

/// Every mistake of one file, in the order of their places; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    list: Vec<Mistake>,
    untold: usize,
}

impl Mistakes {
    /// Those that are reported, [`MISTAKES_MAX`] at most.
    #[must_use]
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }
}

/// All of them, an empty line after each, and their number.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.list {
            writeln!(f, "{mistake}")?;
        }
        match self.list.len() + self.untold {
            1 => f.write_str("1 error; nothing was sent"),
            count => write!(f, "{count} errors; nothing was sent"),
        }
    }
}

impl std::error::Error for Mistakes {}

/// Collects mistakes while reading goes on.
pub struct Problems<'a> {
    file: &'a str,
    source: &'a str,
    found: RefCell<Vec<(Span, String, String)>>,
}

impl<'a> Problems<'a> {
    pub(crate) fn new(file: &'a str, source: &'a str) -> Self {
        Self { file, source, found: RefCell::default() }
    }

    pub(crate) fn add(&self, span: &Span, what: impl Into<String>, remedy: impl Into<String>) {
        self.found.borrow_mut().push((span.clone(), what.into(), remedy.into()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// Sorts by place.
    pub(crate) fn finish(self) -> Mistakes {
        let mut found = self.found.into_inner();
        debug_assert!(!found.is_empty(), "a file without mistakes was refused");
        found.sort_by_key(|(span, ..)| span.start);
        let untold = found.len().saturating_sub(MISTAKES_MAX);
        found.truncate(MISTAKES_MAX);
        let list = found
            .into_iter()
            .map(|(span, what, remedy)| {
                let before = &self.source[..self.source.floor_char_boundary(span.start)];
                let line_start = before.rfind('\n').map_or(0, |at| at + 1);
                Mistake {
                    file: self.file.to_owned(),
                    line: before.matches('\n').count() + 1,
                    column: before[line_start..].chars().count() + 1,
                    what: printable(&what),
                    remedy: printable(&remedy),
                }
            })
            .collect();
        Mistakes { list, untold }
    }
}

/// Quoted keys may hold anything; a terminal gets letters, and not too many.
fn printable(text: &str) -> String {
    const CHARS_MAX: usize = 400;
    text.chars().take(CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}
