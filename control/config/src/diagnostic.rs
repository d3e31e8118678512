//! A mistake in the configuration: where, what, and how to mend it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value as Json, json};

/// Mistakes reported for one file; the rest is only counted. Default 100: longer reports are not read, and a hostile
/// file must not turn into a report larger than itself.
pub const DIAGNOSTICS_MAX: usize = 100;

/// Characters of a source line that are shown.
const EXCERPT_CHARS_MAX: usize = 120;

/// Words that mark a line whose value must not be printed.
const SECRET_WORDS: [&str; 6] = ["pass", "pwd", "secret", "token", "credential", "rules"];

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The file is not used.
    Error,
    /// The file is used; somebody should look.
    Warning,
    /// Something was not checked, and here is why.
    Note,
}

impl Severity {
    /// The word that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error, warning or note.
    pub severity: Severity,
    /// The file as it was named by the caller.
    pub file: Arc<str>,
    /// Line, from 1; 0 if the mistake is about the file as a whole.
    pub line: u32,
    /// Column in characters, from 1; 0 with line 0.
    pub column: u32,
    /// The key, for example `listener[0].tls.cert_file`; empty for syntax errors.
    pub path: String,
    /// Description of the mistake.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
    excerpt: Option<Excerpt>,
}

/// The source line to print, secrets already cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    /// Characters before the marked part.
    indent: usize,
    /// Characters marked, at least 1.
    width: usize,
}

/// Compiler-like form, several lines, with a final line end.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.severity.name(), self.message)?;
        let gutter = self.line.to_string().len();
        match self.line {
            0 => writeln!(f, "{:gutter$}--> {}", "", self.file)?,
            line => writeln!(f, "{:gutter$}--> {}:{line}:{}", "", self.file, self.column)?,
        }
        if let Some(excerpt) = &self.excerpt {
            let marks = "^".repeat(excerpt.width);
            writeln!(f, "{:gutter$} |", "")?;
            writeln!(f, "{} | {}", self.line, excerpt.text)?;
            writeln!(f, "{:gutter$} | {:2$}{marks}", "", "", excerpt.indent)?;
        }
        match &self.help {
            Some(help) => writeln!(f, "{:gutter$} = help: {help}", ""),
            None => Ok(()),
        }
    }
}

/// Every mistake of one file, in the order of their places.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Errors that were found after the list was full.
    untold: usize,
}

impl Diagnostics {
    /// The mistakes.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// Number of errors, those that did not fit the list included.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error) + self.untold
    }

    /// Number of warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    /// Number of notes.
    pub fn notes(&self) -> usize {
        self.count(Severity::Note)
    }

    /// True when there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The machine-readable list: `[{severity, file, line, column, path, message, help}]`. No source text.
    pub fn to_json(&self) -> Json {
        self.iter()
            .map(|one| {
                json!({
                    "severity": one.severity.name(), "file": &*one.file, "line": one.line,
                    "column": one.column, "path": one.path, "message": one.message, "help": one.help,
                })
            })
            .collect()
    }

    fn count(&self, severity: Severity) -> usize {
        self.iter().filter(|one| one.severity == severity).count()
    }

    /// A single mistake about the file as a whole.
    pub(crate) fn whole_file(file: &str, message: String, help: &str) -> Self {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            file: file.into(),
            line: 0,
            column: 0,
            path: String::new(),
            message,
            help: Some(help.to_owned()),
            excerpt: None,
        };
        Self { list: vec![diagnostic], untold: 0 }
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// All mistakes, an empty line after each, and a last line that counts them.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in self {
            writeln!(f, "{diagnostic}")?;
        }
        if self.untold > 0 {
            writeln!(f, "and {} more\n", self.untold)?;
        }
        let counts = [(self.errors(), "error"), (self.warnings(), "warning"), (self.notes(), "note")];
        let told = counts.iter().filter(|(count, _)| *count > 0);
        let words = told.map(|(count, word)| format!("{count} {word}{}", if *count == 1 { "" } else { "s" }));
        f.write_str(&words.collect::<Vec<_>>().join(", "))
    }
}

impl std::error::Error for Diagnostics {}

/// Byte range in the source text.
pub(crate) type Span = Range<usize>;

/// Collects mistakes by byte range and turns them into [`Diagnostics`] at the end.
pub(crate) struct Problems<'a> {
    file: Arc<str>,
    source: &'a str,
    /// Byte offsets at which lines start.
    lines: Vec<usize>,
    found: Vec<Problem>,
    untold: usize,
}

struct Problem {
    severity: Severity,
    span: Span,
    path: String,
    message: String,
    help: Option<String>,
    cut: Cut,
    /// It does not forbid the use of the file.
    is_borne: bool,
}

/// How much of the source line may be shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The line, unless it looks like one with a secret in it.
    Line,
    /// Nothing after the marked part: what follows an unknown key may be a secret under a mistyped name.
    AfterMark,
}

impl<'a> Problems<'a> {
    pub(crate) fn new(file: &str, source: &'a str) -> Self {
        let starts = source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(starts.map(|(at, _)| at + 1)).collect();
        Self { file: file.into(), source, lines, found: Vec::new(), untold: 0 }
    }

    /// Adds an error.
    pub(crate) fn error(&mut self, span: &Span, path: &str, message: String, help: impl Into<String>) {
        self.push(Severity::Error, span, path, message, help.into(), Cut::Line);
    }

    /// Adds an error of which only the marked part of the line is shown.
    pub(crate) fn error_cut(&mut self, span: &Span, path: &str, message: String, help: String) {
        self.push(Severity::Error, span, path, message, help, Cut::AfterMark);
    }

    /// Adds a warning.
    pub(crate) fn warning(&mut self, span: &Span, path: &str, message: String, help: impl Into<String>) {
        self.push(Severity::Warning, span, path, message, help.into(), Cut::Line);
    }

    /// Adds a note: the value was not checked.
    pub(crate) fn note(&mut self, span: &Span, path: &str, message: String, help: impl Into<String>) {
        self.push(Severity::Note, span, path, message, help.into(), Cut::Line);
    }

    fn push(&mut self, severity: Severity, span: &Span, path: &str, message: String, help: String, cut: Cut) {
        if self.found.len() >= DIAGNOSTICS_MAX {
            self.untold += usize::from(severity == Severity::Error);
            return;
        }
        self.found.push(Problem {
            severity,
            span: span.clone(),
            path: path.to_owned(),
            message,
            help: Some(help).filter(|help| !help.is_empty()),
            cut,
            is_borne: false,
        });
    }

    /// True if anything forbids the use of the file.
    pub(crate) fn has_errors(&self) -> bool {
        self.untold > 0 || self.found.iter().any(|one| one.severity == Severity::Error && !one.is_borne)
    }

    /// Errors about these keys, or in them, do not forbid the use of the file any more.
    pub(crate) fn bear(&mut self, keys: &[String]) {
        let is_within = |path: &str, key: &str| {
            path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        for problem in &mut self.found {
            problem.is_borne |= keys.iter().any(|key| is_within(&problem.path, key));
        }
    }

    /// The messages of errors about `key`, or in it.
    pub(crate) fn errors_in(&self, key: &str) -> impl Iterator<Item = &str> {
        let is_here = move |one: &&Problem| one.severity == Severity::Error && one.path.starts_with(key);
        self.found.iter().filter(is_here).map(|one| &*one.message)
    }

    /// True if something about `key`, or in it, was reported. A note counts: what was not read must not be missed either.
    pub(crate) fn is_known_wrong(&self, key: &str) -> bool {
        self.found.iter().any(|one| one.path.starts_with(key))
    }

    /// True if there is an error about `key` itself.
    pub(crate) fn has_errors_at(&self, key: &str) -> bool {
        self.found.iter().any(|one| one.severity == Severity::Error && one.path == key)
    }

    /// True if something about `key` itself was reported.
    pub(crate) fn is_refused(&self, key: &str) -> bool {
        self.found.iter().any(|one| one.path == key)
    }

    /// The line of a place, from 1: for remedies that point at another place.
    pub(crate) fn line(&self, span: &Span) -> u32 {
        self.lines.partition_point(|start| *start <= span.start) as u32
    }

    /// Sorts by place and renders.
    pub(crate) fn finish(mut self) -> Diagnostics {
        self.found.sort_by_key(|one| (one.span.start, one.severity));
        let found = std::mem::take(&mut self.found);
        let list = found.into_iter().map(|problem| self.render(problem)).collect();
        Diagnostics { list, untold: self.untold }
    }

    fn render(&self, problem: Problem) -> Diagnostic {
        let start = floor_boundary(self.source, problem.span.start);
        let line = self.line(&(start..start));
        let line_start = self.lines[line as usize - 1];
        let column = self.source[line_start..start].chars().count() as u32 + 1;
        let excerpt = self.excerpt(line_start, start, &problem);
        Diagnostic {
            severity: problem.severity,
            file: Arc::clone(&self.file),
            line,
            column,
            path: problem.path,
            message: problem.message,
            help: problem.help,
            excerpt,
        }
    }

    fn excerpt(&self, line_start: usize, start: usize, problem: &Problem) -> Option<Excerpt> {
        // A line inside a multi-line string shows its middle, whose meaning is unknown: it could be a password.
        let before = &self.source[..line_start];
        let inside_string = ["\"\"\"", "'''"].iter().any(|quotes| before.matches(quotes).count() % 2 == 1);
        let whole = self.source[line_start..].lines().next()?;
        if whole.trim().is_empty() || inside_string {
            return None;
        }
        let end = floor_boundary(self.source, problem.span.end).max(start);
        let marked_end = end.min(line_start + whole.len()).max(start.min(line_start + whole.len()));
        let shown = visible_part(whole, marked_end - line_start, problem.cut);
        let indent_bytes = (start - line_start).min(shown.len());
        let indent = shown[..indent_bytes].chars().count();
        let marked = whole.get(start - line_start..marked_end - line_start).unwrap_or_default();
        let room = EXCERPT_CHARS_MAX.saturating_sub(indent).max(1);
        let hidden = shown.len() < whole.len();
        let mut text: String = shown.chars().take(EXCERPT_CHARS_MAX).map(printable).collect();
        if hidden {
            text.push_str(" ...");
        }
        let width = marked.chars().count().clamp(1, room);
        let visible = shown[indent_bytes..].chars().count();
        // Where the marked part itself is hidden, the dots that stand for it are marked.
        let (indent, width) = match visible {
            0 if hidden => (indent + 1, 3),
            _ => (indent, width.min(visible.max(1))),
        };
        Some(Excerpt { text, indent: indent.min(EXCERPT_CHARS_MAX + 1), width })
    }
}

/// The part of a source line that may be printed.
fn visible_part(line: &str, marked_end: usize, cut: Cut) -> &str {
    let lower = line.to_ascii_lowercase();
    let secret = SECRET_WORDS.iter().filter_map(|word| lower.find(word)).min();
    // A URL may carry a password before its `@`.
    let url = lower.find("://").filter(|at| lower[*at..].contains('@'));
    let mut end = match secret {
        // The key stays, the value goes.
        Some(at) => lower[at..].find('=').map_or(at, |equals| at + equals + 1),
        None => line.len(),
    };
    if let Some(at) = url {
        end = end.min(at);
    }
    if cut == Cut::AfterMark {
        end = end.min(marked_end);
    }
    line[..floor_boundary(line, end)].trim_end()
}

/// Control characters and tabs would move the marks or the terminal's cursor.
fn printable(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, span: Span) -> String {
        let mut problems = Problems::new("weir.toml", source);
        problems.error(&span, "", "wrong".to_owned(), "mend it");
        problems.finish().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_mistake_shows_its_line_and_marks_its_part() {
        let text = render("a = 1\nbind = \"x\"\n", 13..16);
        let expected = "error: wrong\n --> weir.toml:2:8\n  |\n2 | bind = \"x\"\n  |        ^^^\n  = help: mend it\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn secrets_do_not_reach_the_excerpt() {
        let lines = [
            "password = \"canary\"",
            "redis = { Password = \"canary\", x = 1 }",
            "admin_token=canary",
            "endpoints = [\"redis://user:canary@host:1\"]",
            "key = \"\"\"\n canary",
        ];
        for line in lines {
            for start in 0..line.len() {
                let text = render(line, start..line.len());
                assert!(!text.contains("canary"), "{start}: {text}");
            }
        }
    }

    #[test]
    fn the_text_behind_an_unknown_key_is_not_shown() {
        let mut problems = Problems::new("f", "passwrd = \"canary\"");
        problems.error_cut(&(0..7), "", "unknown".to_owned(), String::new());
        let mistyped = problems.finish().to_string();
        assert!(mistyped.contains("passwrd") && !mistyped.contains("canary"), "{mistyped}");
    }

    #[test]
    fn a_span_anywhere_is_survived() {
        let source = "ä = \"ö\"\r\n\tb\u{1}=\n";
        for start in 0..source.len() + 3 {
            for end in 0..source.len() + 3 {
                assert!(render(source, start..end).starts_with("error: wrong"));
            }
        }
    }

    #[test]
    fn a_flood_of_mistakes_is_counted_not_kept() {
        let mut problems = Problems::new("f", "x");
        for _ in 0..DIAGNOSTICS_MAX + 7 {
            problems.error(&(0..1), "", "wrong".to_owned(), "");
        }
        let diagnostics = problems.finish();
        assert_eq!(diagnostics.iter().count(), DIAGNOSTICS_MAX);
        assert_eq!(diagnostics.errors(), DIAGNOSTICS_MAX + 7);
        assert!(diagnostics.to_string().contains("and 7 more"));
    }
}
