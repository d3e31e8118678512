//! WITH: where its names are visible.

use super::super::name::{identifier, name};
use super::super::range::Range;
use super::super::words::Word;
use super::{BASE, Frame, Phase, Walk};

impl Walk<'_> {
    pub(super) fn is_with_name(&self, range: Range) -> bool {
        let wanted = name(self.cursor.text, range).object;
        self.names.iter().any(|&known| name(self.cursor.text, known).object == wanted)
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
            self.names.extend(defines.take());
        }
        self.push(Frame { is_in_with: true, defines, ..BASE });
    }
}
