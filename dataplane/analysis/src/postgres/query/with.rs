//! WITH: where its names are visible.

use std::{borrow::Cow, collections::BTreeMap};

use super::super::name::{identifier, name};
use super::super::range::Range;
use super::super::words::Word;
use super::{BASE, Frame, Phase, Walk};

/// Names of WITH, in their one form: those of the innermost frame last. A text may have thousands of them, and as many items of FROM: both
/// cost the logarithm of their number.
#[derive(Debug, Default)]
pub(super) struct WithNames<'a> {
    all: Vec<Cow<'a, [u8]>>,
    /// How often each is visible.
    counts: BTreeMap<Cow<'a, [u8]>, u32>,
}

impl<'a> WithNames<'a> {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    fn push(&mut self, name: Cow<'a, [u8]>) {
        *self.counts.entry(name.clone()).or_default() += 1;
        self.all.push(name);
    }

    /// The first `len` of them stay.
    pub(super) fn truncate(&mut self, len: usize) {
        for name in self.all.drain(len.min(self.all.len())..) {
            if let Some(count) = self.counts.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&name);
                }
            }
        }
    }
}

impl Walk<'_> {
    pub(super) fn is_with_name(&self, range: Range) -> bool {
        // Most texts have none.
        let counts = &self.names.counts;
        !counts.is_empty() && counts.contains_key(&name(self.cursor.text, range).object)
    }

    /// The name at `range` is visible from here on, to the end of the frame.
    pub(super) fn define(&mut self, range: Option<Range>) {
        if let Some(range) = range {
            self.names.push(name(self.cursor.text, range).object);
        }
    }

    /// WITH of queries; false if it is another WITH.
    pub(super) fn with(&mut self) -> bool {
        let mut ahead = self.cursor;
        ahead.at += 1;
        let is_recursive = ahead.take(Word::Recursive);
        let is_name = ahead.peek().is_some_and(|lexeme| lexeme.is_name() && lexeme.word.is_table_name());
        ahead.at += 1;
        ahead.skip_parentheses();
        let is_with = is_name && ahead.take(Word::As) && {
            ahead.skip_all(&[Word::Not, Word::Materialized]);
            ahead.is_sign(b'(')
        };
        if is_with {
            self.cursor.at += 1 + usize::from(is_recursive);
            self.found.has_clauses = true;
            self.frame.is_recursive = is_recursive;
            self.frame.phase = Phase::With;
            (self.frame.expects_table, self.frame.expects_alias) = (false, false);
            self.with_query();
        }
        is_with
    }

    /// `name (columns) AS MATERIALIZED (`, up to behind the parenthesis.
    pub(super) fn with_query(&mut self) {
        let Some(name) = self.cursor.peek().filter(|lexeme| identifier(self.cursor.text, lexeme.token).is_some())
        else {
            return;
        };
        let mut ahead = self.cursor;
        ahead.at += 1;
        ahead.skip_parentheses();
        if !ahead.take(Word::As) {
            return;
        }
        ahead.skip_all(&[Word::Not, Word::Materialized]);
        if !ahead.take_sign(b'(') {
            return;
        }
        self.cursor.at = ahead.at;
        let mut defines = Some(name.range());
        if self.frame.is_recursive {
            self.define(defines.take());
        }
        self.push(Frame { is_in_with: true, defines, ..BASE });
    }
}
