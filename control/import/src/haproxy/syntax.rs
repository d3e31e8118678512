//! The grammar of HAProxy: lines of words, and sections.

use std::rc::Rc;

use crate::note::{Mistake, Note, SourceLine};

/// Words that begin a section.
const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "peers",
    "resolvers",
    "userlist",
    "mailers",
    "program",
    "cache",
    "http-errors",
    "ring",
    "log-forward",
    "fcgi-app",
    "crt-list",
    "traces",
];

/// A line in a section.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) words: Vec<String>,
    pub(super) place: SourceLine,
}

impl Line {
    pub(super) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    pub(super) fn text(&self) -> String {
        self.words.join(" ")
    }

    /// Whether it begins with these words.
    pub(super) fn is(&self, words: &str) -> bool {
        let mut own = self.words.iter();
        words.split(' ').all(|word| own.next().is_some_and(|own| own == word))
    }

    pub(super) fn note(&self, why: &str, nearest: &str) -> Note {
        Note::new(&self.place, self.text(), why, nearest)
    }

    pub(super) fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake::new(&self.place, message)
    }
}

/// A section with its lines.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) lines: Vec<Line>,
    /// Those of the `defaults` that hold for it.
    pub(super) defaults: Vec<Line>,
    pub(super) place: SourceLine,
}

impl Section {
    /// The last line that begins with these words, of the section or else of its defaults. `no option x` ends the option of the
    /// defaults.
    pub(super) fn find(&self, words: &str) -> Option<&Line> {
        let negated = format!("no {words}");
        for lines in [&self.lines, &self.defaults] {
            match lines.iter().rev().find(|line| line.is(words) || line.is(&negated)) {
                Some(line) if line.word(0) == "no" => return None,
                Some(line) => return Some(line),
                None => {}
            }
        }
        None
    }

    /// All lines of the section itself that begin with this word. HAProxy inherits no rules from an anonymous `defaults`.
    pub(super) fn all<'s>(&'s self, word: &'s str) -> impl Iterator<Item = &'s Line> {
        self.lines.iter().filter(move |line| line.word(0) == word)
    }

    pub(super) fn is_http(&self) -> bool {
        self.find("mode").is_some_and(|line| line.word(1) == "http")
    }
}

/// Reads a file.
///
/// # Errors
/// The first mistake.
pub(super) fn parse(name: &str, text: &str) -> Result<Vec<Section>, Mistake> {
    let file: Rc<str> = name.into();
    let mut sections: Vec<Section> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let place = SourceLine { file: file.clone(), line: number };
        let words = split(line, &place)?;
        let Some(first) = words.first() else { continue };
        if !SECTIONS.contains(&first.as_str()) {
            match sections.last_mut() {
                Some(section) => section.lines.push(Line { words, place }),
                None => return Err(Mistake::new(&place, format!("`{first}` stands before any section"))),
            }
            continue;
        }
        let section_name = words.get(1).filter(|word| *word != "from").cloned().unwrap_or_default();
        if matches!(first.as_str(), "frontend" | "backend" | "listen") {
            if section_name.is_empty() {
                return Err(Mistake::new(&place, format!("{first} needs a name")));
            }
            let is_same = |other: &&Section| other.name == section_name && clashes(&other.kind, first);
            if let Some(other) = sections.iter().find(is_same) {
                let message = format!("{first} {section_name} is defined twice; first in line {}", other.place.line);
                return Err(Mistake::new(&place, message));
            }
        }
        let from = words.iter().position(|word| word == "from").and_then(|at| words.get(at + 1));
        let defaults = defaults(&sections, first, from, &place)?;
        sections.push(Section { kind: first.clone(), name: section_name, lines: Vec::new(), defaults, place });
    }
    Ok(sections)
}

/// Whether two sections cannot have one name: a `listen` is a frontend and a backend.
fn clashes(one: &str, other: &str) -> bool {
    let is_proxy = |kind: &str| matches!(kind, "frontend" | "backend" | "listen");
    is_proxy(one) && (one == other || one == "listen" && is_proxy(other) || other == "listen")
}

/// The lines of the `defaults` that hold for a section: the named one, or the last one before.
fn defaults(sections: &[Section], kind: &str, from: Option<&String>, place: &SourceLine) -> Result<Vec<Line>, Mistake> {
    if !matches!(kind, "frontend" | "backend" | "listen" | "defaults") || kind == "defaults" && from.is_none() {
        return Ok(Vec::new());
    }
    let mut known = sections.iter().rev().filter(|section| section.kind == "defaults");
    let found = match from {
        Some(name) => Some(
            known
                .find(|section| section.name == *name)
                .ok_or_else(|| Mistake::new(place, format!("there is no `defaults {name}` before")))?,
        ),
        None => known.next(),
    };
    let lines = found.map(|section| section.defaults.iter().chain(&section.lines).cloned().collect());
    Ok(lines.unwrap_or_default())
}

/// The words of a line. Quotes and backslashes are taken away; a `#` begins a comment.
fn split(line: &str, place: &SourceLine) -> Result<Vec<String>, Mistake> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => {
                let word = word.get_or_insert_default();
                match chars.next() {
                    Some(c @ (' ' | '\\' | '#' | '"' | '\'')) => word.push(c),
                    Some('r') => word.push('\r'),
                    Some('n') => word.push('\n'),
                    Some('t') => word.push('\t'),
                    // It belongs to a regex.
                    Some(c) => word.extend(['\\', c]),
                    None => word.push('\\'),
                }
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Mistake::new(place, "the quoted text does not end on its line"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_inherit_the_defaults_before_them_or_the_named_ones() {
        let text = "defaults one\n mode http\n option httplog\ndefaults\n mode tcp\nfrontend a\n bind :80 # here\nbackend b from one\n no option httplog\n";
        let sections = parse("h.cfg", text).expect("good");
        assert_eq!((sections[2].is_http(), sections[3].is_http()), (false, true));
        assert!(sections[3].find("option httplog").is_none());
        assert_eq!(sections[2].lines[0].words, ["bind", ":80"]);
    }

    #[test]
    fn words_are_split_as_haproxy_does() {
        let place = SourceLine { file: "h.cfg".into(), line: 1 };
        let words = split(r#"http-check send hdr Host "a b" x\ y 'c\d' \.css$ /\1 # end"#, &place).expect("good");
        assert_eq!(words, ["http-check", "send", "hdr", "Host", "a b", "x y", r"c\d", r"\.css$", r"/\1"]);
    }

    #[test]
    fn mistakes_have_their_line() {
        let mistake = |text: &str| parse("h.cfg", text).expect_err("a mistake").to_string();
        assert_eq!(mistake("bind :80\n"), "h.cfg:1: `bind` stands before any section");
        assert_eq!(mistake("global\nfrontend\n"), "h.cfg:2: frontend needs a name");
        assert_eq!(mistake("backend a\nlisten a\n"), "h.cfg:2: listen a is defined twice; first in line 1");
        assert_eq!(mistake("backend a from b\n"), "h.cfg:1: there is no `defaults b` before");
        assert_eq!(mistake("global\n x \"y\n"), "h.cfg:2: the quoted text does not end on its line");
    }
}
