//! All tokens of a text with their keywords, and its statements as parts of them.

use super::lexer::{Kind, Lexer, Reading, Token};
use super::limits::{Limits, TEXT_BYTES_MAX};
use super::name::is_readable_unicode;
use super::range::Range;
use super::statement::Flaw;
use super::words::{Word, word};

/// A token with its keyword. The keyword of everything but an unquoted word is [`Word::Name`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexeme {
    pub token: Token,
    pub word: Word,
}

impl Lexeme {
    pub const fn kind(self) -> Kind {
        self.token.kind
    }

    pub const fn range(self) -> Range {
        self.token.range
    }

    pub const fn is_sign(self, sign: u8) -> bool {
        matches!(self.token.kind, Kind::Sign(other) if other == sign)
    }

    /// A word or a quoted name.
    pub const fn is_name(self) -> bool {
        matches!(self.token.kind, Kind::Word | Kind::QuotedName | Kind::UnicodeName)
    }
}

/// Tokens of a whole text.
pub(super) struct Tokens {
    pub all: Vec<Lexeme>,
    pub leading_comment: Option<Range>,
    pub trailing_comment: Option<Range>,
}

/// Cuts a text into tokens, within the budget.
pub(super) fn tokens(text: &[u8], reading: Reading, limits: &Limits) -> Result<Tokens, Flaw> {
    if text.len() > limits.bytes_max.min(TEXT_BYTES_MAX) {
        return Err(Flaw::Bytes);
    }
    if memchr::memchr(0, text).is_some() {
        return Err(Flaw::Nul);
    }
    let mut lexer = Lexer::new(text, reading);
    // Tokens are about six bytes long. The guess is bounded by what was received.
    let mut found =
        Tokens { all: Vec::with_capacity(text.len() / 6 + 1), leading_comment: None, trailing_comment: None };
    while let Some(token) = lexer.next()? {
        if found.all.len() == limits.tokens_max {
            return Err(Flaw::Tokens);
        }
        if found.all.is_empty() {
            found.leading_comment = lexer.comment;
        }
        if !matches!(token.kind, Kind::Sign(b';')) {
            lexer.comment = None;
        }
        let word = if token.kind == Kind::Word { word(token.range.of(text)) } else { Word::Name };
        let escape = word == Word::Uescape && found.all.last().is_some_and(|last| last.kind() == Kind::UnicodeName);
        if escape || token.kind == Kind::UnicodeName && !is_readable_unicode(text, token) {
            return Err(Flaw::Ambiguous);
        }
        found.all.push(Lexeme { token, word });
    }
    found.trailing_comment = if found.all.is_empty() { None } else { lexer.comment };
    Ok(found)
}

/// The tokens of each statement, without semicolons. A semicolon in parentheses (CREATE RULE) ends nothing, and one in
/// the body of a function (BEGIN ATOMIC) neither; a lexer cannot see where such a body ends, so a text that goes on
/// behind it is ambiguous.
pub(super) fn statements<'a>(all: &'a [Lexeme], limits: &Limits) -> Result<Vec<&'a [Lexeme]>, Flaw> {
    let mut found = Vec::new();
    let (mut depth, mut start, mut at) = (0_usize, 0, 0);
    while at <= all.len() {
        let here = all.get(at);
        match here.map(|lexeme| lexeme.kind()) {
            Some(Kind::Sign(b'(' | b'[')) => {
                depth += 1;
                if depth > limits.depth_max {
                    return Err(Flaw::Depth);
                }
            }
            Some(Kind::Sign(b')' | b']')) => depth = depth.saturating_sub(1),
            Some(Kind::Word) if depth == 0 && begins_atomic(all, start, at) => {
                at = atomic_end(all, at)?;
                continue;
            }
            Some(Kind::Sign(b';')) if depth > 0 => {}
            Some(Kind::Sign(b';')) | None => {
                if at > start {
                    if found.len() == limits.statements_max {
                        return Err(Flaw::Statements);
                    }
                    found.push(&all[start..at]);
                }
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(found)
}

/// Whether BEGIN ATOMIC of a CREATE FUNCTION or PROCEDURE that began at `start` is at `at`.
fn begins_atomic(all: &[Lexeme], start: usize, at: usize) -> bool {
    all[at].word == Word::Begin
        && all.get(at + 1).is_some_and(|next| next.word == Word::Atomic)
        && all[start].word == Word::Create
        && all[start..at].iter().take(4).any(|lexeme| matches!(lexeme.word, Word::Function | Word::Procedure))
}

/// The end of a body that reaches to the last token of the text that is no semicolon.
fn atomic_end(all: &[Lexeme], at: usize) -> Result<usize, Flaw> {
    let end = all.iter().rposition(|lexeme| !lexeme.is_sign(b';')).map_or(all.len(), |last| last + 1);
    let ends_inside = all[at..end].windows(2).any(|pair| pair[0].word == Word::End && pair[1].is_sign(b';'));
    let is_closed = all[..end].last().is_some_and(|last| last.word == Word::End);
    if ends_inside || !is_closed { Err(Flaw::Ambiguous) } else { Ok(end) }
}
