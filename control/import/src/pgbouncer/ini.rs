//! The file format: sections with entries, comments, and included files.

use crate::Files;
use crate::note::{Mistake, SourceLine};

/// How deep files may include others. PgBouncer's own limit.
const DEPTH_MAX: usize = 10;

/// `key = value`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) place: SourceLine,
}

impl Entry {
    /// The entry as it was written. Not for connection strings, which have passwords.
    pub(super) fn text(&self) -> String {
        format!("{} = {}", self.key, self.value).trim_end().to_owned()
    }

    /// A mistake in the value.
    pub(super) fn wrong(&self, what: &str) -> Mistake {
        Mistake::new(&self.place, format!("`{}` {what}", self.text()))
    }
}

/// The entries of each section, in their order.
#[derive(Debug, Default)]
pub(super) struct Ini {
    pub(super) databases: Vec<Entry>,
    pub(super) users: Vec<Entry>,
    pub(super) pgbouncer: Vec<Entry>,
    pub(super) peers: Vec<Entry>,
}

impl Ini {
    /// The last entry of `[pgbouncer]` with this key: it wins.
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.pgbouncer.iter().rev().find(|entry| entry.key == key)
    }

    /// Its value, empty if there is none.
    pub(super) fn text(&self, key: &str) -> &str {
        self.get(key).map_or("", |entry| &entry.value)
    }
}

#[derive(Clone, Copy)]
enum Section {
    Databases,
    Users,
    Pgbouncer,
    Peers,
}

/// Reads a file and those that it includes.
pub(super) fn read(name: &str, text: &str, files: &dyn Files) -> Result<Ini, Mistake> {
    let mut reader = Reader { files, ini: Ini::default(), section: None };
    reader.file(name, text, 0)?;
    Ok(reader.ini)
}

struct Reader<'f> {
    files: &'f dyn Files,
    ini: Ini,
    /// An included file continues the section of the line that includes it, and the other way round.
    section: Option<Section>,
}

impl Reader<'_> {
    fn file(&mut self, name: &str, text: &str, depth: usize) -> Result<(), Mistake> {
        let file: std::rc::Rc<str> = name.into();
        for (index, line) in text.lines().enumerate() {
            let place = SourceLine { file: file.clone(), line: index + 1 };
            self.line(line.trim(), &place, depth)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str, place: &SourceLine, depth: usize) -> Result<(), Mistake> {
        if line.is_empty() || line.starts_with([';', '#']) {
            return Ok(());
        }
        if let Some(file) = line.strip_prefix("%include").filter(|rest| rest.starts_with([' ', '\t'])) {
            return self.include(file.trim(), place, depth);
        }
        if let Some(rest) = line.strip_prefix('[') {
            let (name, rest) = rest.split_once(']').ok_or_else(|| Mistake::new(place, "the section has no `]`"))?;
            self.section = Some(match name {
                "databases" => Section::Databases,
                "users" => Section::Users,
                "pgbouncer" => Section::Pgbouncer,
                "peers" => Section::Peers,
                _ => {
                    let why = format!("`[{name}]` is no section: databases, users, pgbouncer or peers");
                    return Err(Mistake::new(place, why));
                }
            });
            return self.line(rest.trim(), place, depth);
        }
        let section = self.section.ok_or_else(|| Mistake::new(place, "the line stands before the first section"))?;
        let entry = entry(line, place)?;
        let list = match section {
            Section::Databases => &mut self.ini.databases,
            Section::Users => &mut self.ini.users,
            Section::Pgbouncer => &mut self.ini.pgbouncer,
            Section::Peers => &mut self.ini.peers,
        };
        list.push(entry);
        Ok(())
    }

    fn include(&mut self, file: &str, place: &SourceLine, depth: usize) -> Result<(), Mistake> {
        if depth == DEPTH_MAX {
            return Err(Mistake::new(place, format!("files are included more than {DEPTH_MAX} deep")));
        }
        let found = self.files.matching(file);
        let found = found.map_err(|why| Mistake::new(place, format!("%include {file}: {why}")))?;
        found.iter().try_for_each(|(name, text)| self.file(name, text, depth + 1))
    }
}

/// `key = value`, the key perhaps in double quotes. Mistakes repeat nothing of the line: it may have a password.
fn entry(line: &str, place: &SourceLine) -> Result<Entry, Mistake> {
    let (key, rest) = match line.strip_prefix('"') {
        Some(rest) => unquoted(rest, '"').ok_or_else(|| Mistake::new(place, "the name has no second double quote"))?,
        None => {
            let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '*');
            let end = line.find(|c| !is_key(c)).unwrap_or(line.len());
            (line[..end].to_owned(), &line[end..])
        }
    };
    match rest.trim_start().strip_prefix('=') {
        Some(value) if !key.is_empty() => Ok(Entry { key, value: value.trim().to_owned(), place: place.clone() }),
        _ => Err(Mistake::new(place, "the line is neither a comment nor a section, and has no `name = value`")),
    }
}

/// The text up to the closing quote, in which two quotes stand for one, and the rest behind it.
pub(super) fn unquoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c == quote {
            false => out.push(c),
            true if chars.next_if(|(_, next)| *next == quote).is_some() => out.push(quote),
            true => return Some((out, &text[at + quote.len_utf8()..])),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Itself;

    impl Files for Itself {
        fn matching(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
            Ok(vec![(pattern.to_owned(), format!("%include {pattern}"))])
        }
    }

    #[test]
    fn comments_start_lines_only_and_the_last_entry_wins() {
        let text = "; one\n# two\n[databases]\n\"my \"\"db\" = host=a ; b\n[pgbouncer] a=1\na = 2 # 3\n";
        let ini = read("f", text, &Itself).expect("read");
        let database = &ini.databases[0];
        assert_eq!((&*database.key, &*database.value, database.place.line), ("my \"db", "host=a ; b", 4));
        assert_eq!(ini.text("a"), "2 # 3");
    }

    #[test]
    fn a_file_that_includes_itself_ends() {
        let mistake = read("f", "%include g", &Itself).expect_err("refused");
        assert_eq!(mistake.to_string(), "g:1: files are included more than 10 deep");
    }
}
