//! One pass over a text that proves it plain, without memory and without a tree.

use memchr::{memchr, memchr2};

use super::build::SETTINGS_VIEW;
use super::function::side_effect;
use super::lexer::{
    block_comment_end, continuation, dollar_end, dollar_tag_end, is_name_start, line_end, name_end, number_end,
    quoted_end,
};
use super::limits::Limits;
use super::statement::{Class, Verb};

/// A text that is one SELECT, VALUES, INSERT, UPDATE or DELETE without an effect on the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quick {
    /// [`Class::Read`] or [`Class::Write`].
    pub class: Class,
    /// The command word.
    pub verb: Verb,
    /// As in an analysis: false for every write. SELECT with a lock is no quick text.
    pub is_read_only: bool,
}

/// Proves that `text` is one plain statement, with the facts that [`analyse`](super::analyse) would find. `None` means
/// that this pass cannot prove it: the text may be plain or not.
///
/// It gives up at a second statement, at WITH, INTO or FOR behind SELECT, at a backslash in a string, at names with
/// Unicode escapes, at a write that names `pg_settings`, and at every function that is known to do more than compute.
pub fn quick(text: &[u8], limits: &Limits) -> Option<Quick> {
    if text.len() > limits.bytes_max || memchr(0, text).is_some() {
        return None;
    }
    let mut scan = Scan { text, at: 0, depth: 0 };
    let read = |verb| Quick { class: Class::Read, verb, is_read_only: true };
    let write = |verb| Quick { class: Class::Write, verb, is_read_only: false };
    // All of them have six letters.
    let mut verb: [u8; 6] = scan.word()?.try_into().ok()?;
    verb.make_ascii_lowercase();
    let found = match &verb {
        b"select" => read(Verb::Select),
        b"values" => read(Verb::Values),
        b"insert" if scan.word()?.eq_ignore_ascii_case(b"into") => write(Verb::Insert),
        b"delete" if scan.word()?.eq_ignore_ascii_case(b"from") => write(Verb::Delete),
        b"update" => {
            scan.blank()?;
            let is_target = matches!(scan.byte(0), b'"' | b'(') || is_name_start(scan.byte(0));
            is_target.then(|| write(Verb::Update))?
        }
        _ => return None,
    };
    scan.rest(found.is_read_only, limits)?;
    Some(found)
}

/// Words behind which more than a plain statement may be. By length first: most names end there.
fn gives_up_at(name: &[u8], is_read: bool) -> bool {
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    match name.len() {
        3 => is_read && is("for"),
        4 => is("with") || is("into"),
        5 => is_read && is("merge"),
        6 => is_read && (is("insert") || is("update") || is("delete")),
        11 => !is_read && name.eq_ignore_ascii_case(SETTINGS_VIEW),
        _ => false,
    }
}

/// The function `name` does nothing but compute.
#[inline(never)]
fn computes(name: &[u8]) -> bool {
    let mut folded = [0; 64];
    let Some(folded) = folded.get_mut(..name.len()) else { return false };
    folded.copy_from_slice(name);
    folded.make_ascii_lowercase();
    side_effect(folded).is_none()
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Scan<'a> {
    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// White space and comments.
    fn blank(&mut self) -> Option<()> {
        loop {
            match self.byte(0) {
                b' ' | b'\t'..=b'\r' => self.at += 1,
                b'-' if self.byte(1) == b'-' => self.at = line_end(self.text, self.at),
                b'/' if self.byte(1) == b'*' => self.at = block_comment_end(self.text, self.at)?,
                _ => return Some(()),
            }
        }
    }

    fn word(&mut self) -> Option<&'a [u8]> {
        self.blank()?;
        let start = self.at;
        self.at = name_end(self.text, start);
        self.text.get(start..self.at)
    }

    /// Everything behind the command word. Each turn takes at most a token, so there are no more tokens than turns.
    fn rest(&mut self, is_read: bool, limits: &Limits) -> Option<()> {
        let mut turns = 2;
        loop {
            self.blank()?;
            turns += 1;
            if turns > limits.tokens_max {
                return None;
            }
            match self.byte(0) {
                b'\'' => self.string()?,
                b'"' => {
                    let start = self.at + 1;
                    self.at = quoted_end(self.text, start, b'"')?;
                    let name = &self.text[start..self.at - 1];
                    if !is_read && name == SETTINGS_VIEW {
                        return None;
                    }
                    self.function(name)?;
                }
                b'0'..=b'9' => self.at = number_end(self.text, self.at),
                b'$' => self.dollar()?,
                b'(' | b'[' => {
                    self.depth += 1;
                    self.at += 1;
                    if self.depth > limits.depth_max {
                        return None;
                    }
                }
                b')' | b']' => {
                    self.depth = self.depth.checked_sub(1)?;
                    self.at += 1;
                }
                b';' => return self.ends(),
                0 => return (self.at == self.text.len()).then_some(()),
                byte if is_name_start(byte) => self.name(is_read)?,
                // Operators and signs, byte by byte: their ends do not matter here.
                _ => self.at += 1,
            }
        }
    }

    /// Only white space, comments and semicolons may follow.
    fn ends(&mut self) -> Option<()> {
        while self.byte(0) == b';' && self.depth == 0 {
            self.at += 1;
            self.blank()?;
        }
        (self.at == self.text.len()).then_some(())
    }

    fn name(&mut self, is_read: bool) -> Option<()> {
        let start = self.at;
        self.at = name_end(self.text, self.at);
        let name = &self.text[start..self.at];
        // E'…', B'…', U&"…" and their kin: the prefix is a word of one letter.
        if name.len() == 1 && (self.byte(0) == b'\'' || self.byte(0) == b'&') {
            return None;
        }
        if gives_up_at(name, is_read) {
            return None;
        }
        self.function(name)
    }

    /// Refuses the function `name`, which was just read, if a parenthesis makes it one and it does more than compute.
    #[inline]
    fn function(&mut self, name: &[u8]) -> Option<()> {
        self.blank()?;
        (self.byte(0) != b'(' || computes(name)).then_some(())
    }

    /// A plain string. A backslash would end it elsewhere in a session that escapes.
    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            self.at += memchr2(b'\'', b'\\', rest)?;
            if self.byte(0) != b'\'' {
                return None;
            }
            self.at += 1;
            if self.byte(0) == b'\'' {
                self.at += 1;
            } else if let Some(next) = continuation(self.text, self.at) {
                self.at = next;
            } else {
                return Some(());
            }
        }
    }

    fn dollar(&mut self) -> Option<()> {
        if self.byte(1).is_ascii_digit() {
            self.at = number_end(self.text, self.at + 1);
        } else if let Some(inside) = dollar_tag_end(self.text, self.at) {
            self.at = dollar_end(self.text, self.at, inside)?;
        } else {
            self.at += 1;
        }
        Some(())
    }
}
