//! The items of a list of FROM, with their aliases.

use super::super::statement::Verb;
use super::super::tokens::Lexeme;
use super::super::words::{Group, Word};
use super::{BASE, Frame, Phase, Walk};

impl Walk<'_> {
    /// The next item of FROM; false if it is none.
    pub(super) fn item(&mut self, here: Lexeme) -> bool {
        match here.word {
            Word::Only | Word::Lateral => {
                self.cursor.at += 1;
                return true;
            }
            Word::Rows if self.cursor.word_ahead(1) == Word::From => {
                self.cursor.at += 2;
                self.syntax_item();
                return true;
            }
            Word::Values => {
                self.begin(Verb::Values, Phase::Rest);
                return true;
            }
            word => {
                let opens = self.cursor.all.get(self.cursor.at + 1).is_some_and(|next| next.is_sign(b'('));
                if opens && word.group() == Group::ColumnName {
                    // XMLTABLE and its kin.
                    self.cursor.at += 1;
                    self.syntax_item();
                    return true;
                }
                // LEFT and RIGHT are functions in front of a parenthesis, and joins elsewhere.
                if !(word.is_table_name() || opens && word.group() == Group::TypeOrFunction) {
                    self.frame.expects_table = false;
                    return false;
                }
            }
        }
        let first = self.cursor.at;
        let Some(range) = self.cursor.qualified() else { return false };
        self.frame.expects_table = false;
        if self.cursor.is_sign(b'(') {
            self.push_function(range);
            self.syntax_item();
        } else {
            self.frame.expects_alias = true;
            if self.cursor.at > first + 1 || !self.is_with_name(range) {
                self.found.tables.push(range);
            }
        }
        true
    }

    /// An item of FROM that is neither a name nor a query: its parentheses are here.
    pub(super) fn syntax_item(&mut self) {
        self.frame.expects_table = false;
        if self.cursor.take_sign(b'(') {
            self.push(Frame { is_from_item: true, ..BASE });
        }
    }

    /// An alias behind an item of FROM, with its columns; false if it is none.
    pub(super) fn alias(&mut self, here: Lexeme) -> bool {
        if here.word == Word::As {
            self.cursor.at += 1;
            // `AS (a int)`: columns without a name.
            self.columns();
            return true;
        }
        if here.word == Word::With && self.cursor.word_ahead(1) == Word::Ordinality {
            self.cursor.at += 2;
            return true;
        }
        self.frame.expects_alias = false;
        if !here.word.is_table_name() {
            return false;
        }
        self.cursor.at += 1;
        self.columns();
        true
    }

    /// Goes into the columns of a table or an alias, if they are here and no query.
    pub(super) fn columns(&mut self) {
        if self.cursor.is_sign(b'(') && !self.opens_query() {
            self.cursor.at += 1;
            self.push(Frame { phase: Phase::Columns, ..BASE });
        }
    }

    /// Whether the parenthesis here has a query in it.
    pub(super) fn opens_query(&self) -> bool {
        let ahead = self.cursor.all.get(self.cursor.at..).unwrap_or_default();
        let inside = ahead.iter().find(|lexeme| !lexeme.is_sign(b'('));
        inside.is_some_and(|lexeme| matches!(lexeme.word, Word::Select | Word::Values | Word::With | Word::Table))
    }
}
