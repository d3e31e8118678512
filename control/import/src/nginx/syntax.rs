//! The grammar of nginx: words, quotes, comments, blocks and includes.

use std::rc::Rc;

use crate::Files;
use crate::note::{Mistake, SourceLine};

/// Depth of nested blocks. Real files are not deeper, and a file without this bound could exhaust the stack.
const DEPTH_MAX: usize = 16;

/// Files that include each other.
const INCLUDES_MAX: usize = 8;

/// Files of nginx itself that only serve files or speak to CGI servers.
const IGNORED_INCLUDES: [&str; 6] =
    ["mime.types", "fastcgi_params", "fastcgi.conf", "uwsgi_params", "scgi_params", "koi-win"];

/// A directive with its arguments, and its block if it has one.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    pub(super) place: SourceLine,
}

impl Directive {
    /// The first argument; empty if there is none.
    pub(super) fn first(&self) -> &str {
        self.args.first().map_or("", String::as_str)
    }

    /// The directives of its block.
    pub(super) fn body(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// As it was written, without its block.
    pub(super) fn text(&self) -> String {
        let mut text = self.name.clone();
        for arg in &self.args {
            text.push(' ');
            match arg.is_empty() || arg.contains(char::is_whitespace) {
                true => text.push_str(&format!("\"{arg}\"")),
                false => text.push_str(arg),
            }
        }
        text
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// Reads a file and all that it includes.
///
/// # Errors
/// The first mistake.
pub(super) fn parse(name: &str, text: &str, files: &dyn Files) -> Result<Vec<Directive>, Mistake> {
    parse_file(name, text, files, 0)
}

fn parse_file(name: &str, text: &str, files: &dyn Files, depth: usize) -> Result<Vec<Directive>, Mistake> {
    let mut lexer = Lexer { file: name.into(), rest: text.chars().peekable(), line: 1 };
    // The blocks that are open: the directive that opened each, and what stands in it so far.
    let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut current: Vec<Directive> = Vec::new();
    let mut words: Vec<(String, SourceLine)> = Vec::new();
    while let Some((token, place)) = lexer.next()? {
        match token {
            Token::Word(word) => words.push((word, place)),
            Token::End => match directive(&mut words) {
                Some(found) if found.name == "include" => current.extend(include(&found, files, depth)?),
                Some(found) => current.push(found),
                None => return Err(Mistake::new(&place, "unexpected `;`")),
            },
            Token::Open => {
                let Some(mut found) = directive(&mut words) else {
                    return Err(Mistake::new(&place, "unexpected `{`: a block needs a name"));
                };
                if open.len() >= DEPTH_MAX {
                    return Err(Mistake::new(&place, format!("blocks are nested deeper than {DEPTH_MAX}")));
                }
                found.block = Some(Vec::new());
                open.push((found, std::mem::take(&mut current)));
            }
            Token::Close => {
                if let Some((_, at)) = words.first() {
                    return Err(Mistake::new(at, "the directive does not end with `;` before `}`"));
                }
                let Some((mut found, outer)) = open.pop() else {
                    return Err(Mistake::new(&place, "unexpected `}`: no block is open"));
                };
                found.block = Some(std::mem::replace(&mut current, outer));
                current.push(found);
            }
        }
    }
    if let Some((_, place)) = words.first() {
        return Err(Mistake::new(place, "the directive does not end: `;` or a block is missing"));
    }
    match open.pop() {
        Some((found, _)) => Err(Mistake::new(&found.place, format!("the block of `{}` is not closed", found.name))),
        None => Ok(current),
    }
}

fn directive(words: &mut Vec<(String, SourceLine)>) -> Option<Directive> {
    let mut words = std::mem::take(words).into_iter();
    let (name, place) = words.next()?;
    Some(Directive { name, args: words.map(|(word, _)| word).collect(), block: None, place })
}

fn include(of: &Directive, files: &dyn Files, depth: usize) -> Result<Vec<Directive>, Mistake> {
    let pattern = of.first();
    if pattern.is_empty() {
        return Err(Mistake::new(&of.place, "include needs a file"));
    }
    let file = pattern.rsplit('/').next().unwrap_or(pattern);
    if IGNORED_INCLUDES.contains(&file) {
        return Ok(Vec::new());
    }
    if depth >= INCLUDES_MAX {
        return Err(Mistake::new(&of.place, format!("files include each other deeper than {INCLUDES_MAX}")));
    }
    let found = files.matching(pattern).map_err(|why| Mistake::new(&of.place, format!("include {pattern}: {why}")))?;
    let mut all = Vec::new();
    for (name, text) in found {
        all.extend(parse_file(&name, &text, files, depth + 1)?);
    }
    Ok(all)
}

struct Lexer<'t> {
    file: Rc<str>,
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    line: usize,
}

impl Lexer<'_> {
    fn place(&self) -> SourceLine {
        SourceLine { file: self.file.clone(), line: self.line }
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn next(&mut self) -> Result<Option<(Token, SourceLine)>, Mistake> {
        loop {
            match self.rest.peek() {
                None => return Ok(None),
                Some(c) if c.is_whitespace() => {
                    self.bump();
                }
                Some('#') => while !matches!(self.bump(), None | Some('\n')) {},
                Some(_) => break,
            }
        }
        let place = self.place();
        let token = match self.rest.peek() {
            Some(';') => Token::End,
            Some('{') => Token::Open,
            Some('}') => Token::Close,
            Some(quote @ ('"' | '\'')) => {
                let quote = *quote;
                self.bump();
                return Ok(Some((Token::Word(self.quoted(quote, &place)?), place)));
            }
            _ => return Ok(Some((Token::Word(self.bare()), place))),
        };
        self.bump();
        Ok(Some((token, place)))
    }

    fn quoted(&mut self, quote: char, place: &SourceLine) -> Result<String, Mistake> {
        let mut word = String::new();
        loop {
            match self.bump() {
                None => return Err(Mistake::new(place, "the quoted text does not end")),
                Some(c) if c == quote => break,
                Some('\\') => self.escape(&mut word),
                Some(c) => word.push(c),
            }
        }
        match self.rest.peek().copied() {
            Some(c) if !c.is_whitespace() && !matches!(c, ';' | '{' | ')') => {
                Err(Mistake::new(&self.place(), format!("unexpected `{c}` behind a quoted text")))
            }
            _ => Ok(word),
        }
    }

    /// Reads an escape, after its backslash: quotes, backslashes and the usual letters lose it, all else keeps it.
    fn escape(&mut self, word: &mut String) {
        match self.bump() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        while let Some(&c) = self.rest.peek() {
            match c {
                ';' | '{' => break,
                c if c.is_whitespace() => break,
                '\\' => {
                    self.bump();
                    self.escape(&mut word);
                }
                '$' => {
                    self.bump();
                    word.push('$');
                    // The braces of `${name}` belong to the word.
                    if self.rest.peek() == Some(&'{') {
                        while let Some(c) = self.bump() {
                            word.push(c);
                            if c == '}' {
                                break;
                            }
                        }
                    }
                }
                c => {
                    self.bump();
                    word.push(c);
                }
            }
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder;

    impl Files for Folder {
        fn matching(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
            match pattern {
                "sites/*.conf" => Ok(vec![("sites/a.conf".into(), "server {\n listen 1;\n}\n".into())]),
                "itself.conf" => Ok(vec![("itself.conf".into(), "include itself.conf;".into())]),
                _ => Err("no such file".into()),
            }
        }
    }

    fn mistake(text: &str) -> String {
        parse("n.conf", text, &Folder).expect_err("a mistake").to_string()
    }

    #[test]
    fn words_quotes_comments_and_blocks_are_read() {
        let text = "# all\nlocation ~ \\.php$ { # here\n  add_header X \"a b\\\"c\" always; set $x ${y}z;\n}\nreturn 200 '{ok; }';";
        let found = parse("n.conf", text, &Folder).expect("good");
        assert_eq!((found[0].args.as_slice(), found[0].place.line), (&["~".to_owned(), "\\.php$".to_owned()][..], 2));
        assert_eq!(found[0].body()[0].args, ["X", "a b\"c", "always"]);
        assert_eq!(found[0].body()[1].args, ["$x", "${y}z"]);
        assert_eq!(found[1].args, ["200", "{ok; }"]);
        assert_eq!(found[0].body()[0].text(), "add_header X \"a b\"c\" always");
    }

    #[test]
    fn included_files_stand_in_place_of_the_directive_with_their_own_lines() {
        let found = parse("n.conf", "http {\n include mime.types;\n include sites/*.conf;\n}", &Folder).expect("good");
        let listen = &found[0].body()[0].body()[0];
        assert_eq!((listen.place.to_string(), listen.first()), ("sites/a.conf:2".to_owned(), "1"));
        assert_eq!(mistake("a;\ninclude none.conf;"), "n.conf:2: include none.conf: no such file");
        assert!(mistake("include itself.conf;").contains("include each other"));
    }

    #[test]
    fn mistakes_have_their_line() {
        assert_eq!(mistake("a;\nb {\nc;\n"), "n.conf:2: the block of `b` is not closed");
        assert_eq!(mistake("a;\n}\n"), "n.conf:2: unexpected `}`: no block is open");
        assert_eq!(mistake("a {\n b\n}\n"), "n.conf:2: the directive does not end with `;` before `}`");
        assert_eq!(mistake("a \"b\nc"), "n.conf:1: the quoted text does not end");
        assert_eq!(mistake("\na b"), "n.conf:2: the directive does not end: `;` or a block is missing");
        assert!(mistake(&"a {".repeat(40)).contains("nested deeper"));
        assert_eq!(mistake(";"), "n.conf:1: unexpected `;`");
    }
}
