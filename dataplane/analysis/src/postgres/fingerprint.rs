//! One number for all texts that differ only in what their author would call data.
//!
//! The form, which is the same in every process and version of the program until a note in CHANGELOG.md says
//! otherwise: the fingerprint is XXH64, seed 0, of the *normal form*. That is the tokens of the text with a space
//! between each two, where
//!
//! | token | becomes |
//! |---|---|
//! | a string, bit string, number or parameter; TRUE, FALSE and NULL not behind IS or NOT | `?` |
//! | a sign in front of a number, where no value is in front of the sign | part of the number |
//! | UESCAPE and its string | nothing |
//! | a keyword or a name without quotes | itself in lower case |
//! | `!=` | `<>` |
//! | any other | itself |
//! | an element of `IN (...)`, `ARRAY[...]` or `VALUES (...), (...)` that equals the one before it | nothing, with its comma |
//! | the semicolon between two statements | `;`; others and empty statements are nothing |
//!
//! So `IN (1, 2, 3)` and `IN ($1)` are one, and `IN (1, a)` and `IN (1, b)` are two.

use std::ops::Range;

use super::lexer::{Kind, Reading};
use super::limits::Limits;
use super::tokens::{Lexeme, statements, tokens};
use super::words::{Group, Word};

/// The normal form of a text, for people; `None` if the text is not whole.
pub fn normal_form(text: &[u8], limits: &Limits) -> Option<Vec<u8>> {
    let tokens = tokens(text, Reading::Unknown, limits).ok()?;
    let parts = statements(&tokens.all, limits).ok()?;
    Some(normal(text, &parts))
}

pub(super) fn fingerprint_of(text: &[u8], parts: &[&[Lexeme]]) -> u64 {
    if parts.is_empty() { 0 } else { xxhash_rust::xxh64::xxh64(&normal(text, parts), 0) }
}

fn normal(text: &[u8], parts: &[&[Lexeme]]) -> Vec<u8> {
    let mut form = Form { text, out: Vec::with_capacity(text.len() + 16), outer: Vec::new(), here: Level::default() };
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            form.write(b";");
        }
        form.outer.clear();
        form.here = Level::default();
        form.statement(part);
    }
    form.out
}

/// One pair of parentheses.
#[derive(Default)]
struct Level {
    /// Its elements are data: equal ones in a row become one.
    is_list: bool,
    /// The parentheses in it are rows of VALUES.
    has_rows: bool,
    /// The last element that was kept.
    kept: Option<Range<usize>>,
    /// Where the element here begins. A comma belongs to the element behind it.
    start: usize,
}

struct Form<'a> {
    text: &'a [u8],
    out: Vec<u8>,
    outer: Vec<Level>,
    here: Level,
}

impl Form<'_> {
    fn write(&mut self, token: &[u8]) {
        if !self.out.is_empty() {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(token);
    }

    fn statement(&mut self, all: &[Lexeme]) {
        let mut before = None;
        let mut at = 0;
        while let Some(&lexeme) = all.get(at) {
            at += 1;
            match lexeme.kind() {
                Kind::Operator if is_sign_of_number(self.text, before, lexeme, all.get(at)) => continue,
                Kind::Sign(b'(' | b'[') => {
                    self.write(lexeme.range().of(self.text));
                    self.open(before, all.get(at).copied());
                }
                Kind::Sign(b')' | b']') => self.close(lexeme),
                Kind::Sign(b',') => self.comma(),
                _ if lexeme.word == Word::Uescape && is_text(before) => {
                    at += usize::from(is_text(all.get(at).copied()))
                }
                _ => self.token(before, lexeme),
            }
            if !(self.here.has_rows && (lexeme.is_sign(b')') || lexeme.is_sign(b',') || lexeme.word == Word::Values)) {
                self.here.has_rows = false;
            }
            before = Some(lexeme);
        }
    }

    fn token(&mut self, before: Option<Lexeme>, lexeme: Lexeme) {
        let bytes = lexeme.range().of(self.text);
        match lexeme.kind() {
            Kind::Text | Kind::EscapedText | Kind::Bits | Kind::Number | Kind::Parameter => self.write(b"?"),
            Kind::Word => {
                let is_tested = before.is_some_and(|before| matches!(before.word, Word::Is | Word::Not));
                if matches!(lexeme.word, Word::True | Word::False | Word::Null) && !is_tested {
                    return self.write(b"?");
                }
                let start = self.out.len();
                self.write(bytes);
                self.out[start..].make_ascii_lowercase();
                // A column may be called values.
                let is_column = before.is_some_and(|before| before.is_sign(b'.'));
                self.here.has_rows |= lexeme.word == Word::Values && !is_column;
                if self.here.has_rows {
                    (self.here.kept, self.here.start) = (None, self.out.len());
                }
            }
            Kind::Operator if bytes == b"!=" => self.write(b"<>"),
            _ => self.write(bytes),
        }
    }

    fn open(&mut self, before: Option<Lexeme>, next: Option<Lexeme>) {
        let is_query =
            next.is_some_and(|next| matches!(next.word, Word::Select | Word::With | Word::Values | Word::Table));
        let is_list = before.is_some_and(|before| matches!(before.word, Word::In | Word::Array)) && !is_query;
        let inside = Level { is_list, start: self.out.len(), ..Level::default() };
        self.outer.push(std::mem::replace(&mut self.here, inside));
    }

    fn close(&mut self, lexeme: Lexeme) {
        if self.here.is_list {
            self.end_element();
        }
        if let Some(outer) = self.outer.pop() {
            self.here = outer;
        }
        self.write(lexeme.range().of(self.text));
        if self.here.has_rows {
            self.end_element();
        }
    }

    fn comma(&mut self) {
        if self.here.is_list {
            self.end_element();
        }
        self.write(b",");
    }

    /// Drops the element that ends here, with its comma, if the one before it is the same.
    fn end_element(&mut self) {
        let element = self.here.start..self.out.len();
        // The row in front of this comma has ended.
        if element.is_empty() {
            return;
        }
        let bare = |range: &Range<usize>| {
            let bytes = &self.out[range.clone()];
            bytes.strip_prefix(b" ,").unwrap_or(bytes)
        };
        match &self.here.kept {
            Some(kept) if bare(kept) == bare(&element) => self.out.truncate(element.start),
            _ => self.here.kept = Some(element),
        }
        // A kept element stays in front of those that can be dropped.
        self.here.start = self.out.len();
    }
}

fn is_text(lexeme: Option<Lexeme>) -> bool {
    lexeme.is_some_and(|lexeme| matches!(lexeme.kind(), Kind::Text | Kind::EscapedText))
}

/// Whether an operator is the sign of the number behind it: no value is in front of it.
fn is_sign_of_number(text: &[u8], before: Option<Lexeme>, here: Lexeme, next: Option<&Lexeme>) -> bool {
    let is_sign = matches!(here.range().of(text), b"-" | b"+");
    let has_value = before.is_some_and(|before| match before.kind() {
        Kind::Word => before.word.group() != Group::Reserved || matches!(before.word, Word::Null | Word::End),
        Kind::Sign(sign) => matches!(sign, b')' | b']'),
        Kind::Operator => false,
        _ => true,
    });
    is_sign && !has_value && next.is_some_and(|next| next.kind() == Kind::Number)
}
