//! A place in the tokens of a statement, for grammar that goes straight on.

use super::effect::Name;
use super::lexer::Kind;
use super::name::identifier;
use super::range::Range;
use super::tokens::Lexeme;
use super::words::Word;

#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub text: &'a [u8],
    pub all: &'a [Lexeme],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub const fn new(text: &'a [u8], all: &'a [Lexeme]) -> Self {
        Self { text, all, at: 0 }
    }

    pub fn peek(&self) -> Option<Lexeme> {
        self.all.get(self.at).copied()
    }

    /// The keyword here; [`Word::Name`] for everything else and at the end.
    pub fn word(&self) -> Word {
        self.word_ahead(0)
    }

    pub fn word_ahead(&self, ahead: usize) -> Word {
        self.all.get(self.at + ahead).map_or(Word::Name, |lexeme| lexeme.word)
    }

    pub fn is_end(&self) -> bool {
        self.at >= self.all.len()
    }

    /// Goes over the keyword if it is here.
    pub fn take(&mut self, word: Word) -> bool {
        let is_here = self.word() == word && !self.is_end();
        self.at += usize::from(is_here);
        is_here
    }

    /// Goes over any of the keywords, as often as they come.
    pub fn skip_all(&mut self, words: &[Word]) {
        while !self.is_end() && words.contains(&self.word()) && self.word() != Word::Name {
            self.at += 1;
        }
    }

    pub fn is_sign(&self, sign: u8) -> bool {
        self.peek().is_some_and(|lexeme| lexeme.is_sign(sign))
    }

    pub fn take_sign(&mut self, sign: u8) -> bool {
        let is_here = self.is_sign(sign);
        self.at += usize::from(is_here);
        is_here
    }

    /// Goes over `IF EXISTS` or `IF NOT EXISTS`.
    pub fn skip_if_exists(&mut self) {
        if self.word() == Word::If {
            self.skip_all(&[Word::If, Word::Not, Word::Exists]);
        }
    }

    /// A name of one part, as the server keeps it.
    pub fn name(&mut self) -> Option<Name> {
        let lexeme = self.peek()?;
        let name = identifier(self.text, lexeme.token)?;
        self.at += 1;
        Some(name.into_owned().into_boxed_slice())
    }

    /// A name with its dots. `None` and unmoved if there is none.
    pub fn qualified(&mut self) -> Option<Range> {
        let first = self.peek().filter(|lexeme| lexeme.is_name())?;
        self.at += 1;
        let mut range = first.range();
        while self.is_sign(b'.') && self.all.get(self.at + 1).is_some_and(|lexeme| lexeme.is_name()) {
            range = range.to(self.all[self.at + 1].range());
            self.at += 2;
        }
        Some(range)
    }

    /// From the opening parenthesis here, if there is one, to behind its closing one, or to the end. Gives what is
    /// inside.
    pub fn skip_parentheses(&mut self) -> &'a [Lexeme] {
        if !self.is_sign(b'(') {
            return &[];
        }
        let start = self.at;
        let mut depth = 0_usize;
        while let Some(lexeme) = self.peek() {
            self.at += 1;
            match lexeme.kind() {
                Kind::Sign(b'(' | b'[') => depth += 1,
                Kind::Sign(b')' | b']') => {
                    depth -= 1;
                    if depth == 0 {
                        return &self.all[start + 1..self.at - 1];
                    }
                }
                _ => {}
            }
        }
        self.all.get(start + 1..).unwrap_or_default()
    }

    /// The rest as a range; empty at the end.
    pub fn rest(&self) -> Range {
        match (self.peek(), self.all.last()) {
            (Some(first), Some(last)) => first.range().to(last.range()),
            _ => Range::default(),
        }
    }
}
