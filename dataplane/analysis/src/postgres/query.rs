//! Tables and functions of a query, data-modifying ones included: a walk over its tokens with a frame per parenthesis.
//!
//! | place | meaning of a name there |
//! |---|---|
//! | behind FROM of a SELECT, UPDATE or DELETE, behind JOIN, and behind a comma of such a list | a table, a function, or a query in parentheses |
//! | behind INSERT INTO, UPDATE, DELETE FROM, MERGE INTO, TABLE | a table |
//! | a name in front of a parenthesis elsewhere | a function |
//! | `WITH name AS (` | not a table, where it is visible: behind its own query, or in it if RECURSIVE, to the end of the frame |
//!
//! FROM in the parentheses of EXTRACT, SUBSTRING, TRIM or OVERLAY begins no list: a frame has one only behind its
//! SELECT. A text that is wrong for the server may be read in any way here, because the server refuses it.

mod items;
mod with;

use super::lexer::Kind;
use super::range::Range;
use super::tokens::Lexeme;
use super::words::Word;
use super::{
    cursor::Cursor,
    statement::{Verb, Verbs},
};
use with::WithNames;

/// The findings of a walk.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub tables: Vec<Range>,
    pub functions: Vec<FunctionAt>,
    /// The command word that is in no WITH.
    pub verb: Option<Verb>,
    /// An INSERT, UPDATE, DELETE or MERGE anywhere.
    pub writes: bool,
    /// The verbs of these.
    pub changes: Verbs,
    /// `FOR UPDATE` and its kin.
    pub locks: bool,
    /// SELECT INTO, with its table: whether that is temporary.
    pub into: Option<bool>,
    /// A clause that may keep a function of the target list from running exactly once.
    pub has_clauses: bool,
}

/// A function that is named.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionAt {
    pub range: Range,
    /// The token behind the opening parenthesis.
    pub arguments: usize,
    /// Whether it is in no parentheses.
    pub is_outermost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No query yet: the inside of parentheses, or a statement that may contain one.
    Start,
    /// Behind a query of WITH: more of them, or the command word.
    With,
    /// Behind SELECT.
    Targets,
    /// In the list of FROM or USING.
    From,
    /// Behind `UPDATE name`: FROM may come.
    Update,
    /// Behind `DELETE FROM name`, `MERGE INTO name`: USING may come.
    Delete,
    /// Behind the list.
    Rest,
    /// The columns of an alias: no functions here.
    Columns,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    phase: Phase,
    /// A table, function or query comes next.
    expects_table: bool,
    /// An alias may come next.
    expects_alias: bool,
    /// It is in a list of FROM itself.
    is_from_item: bool,
    is_in_with: bool,
    /// The WITH of this frame is RECURSIVE.
    is_recursive: bool,
    /// The name in WITH whose query this is: pushed when it ends.
    defines: Option<Range>,
    /// Names of WITH that were visible before.
    names: usize,
}

const BASE: Frame = Frame {
    phase: Phase::Start,
    expects_table: false,
    expects_alias: false,
    is_from_item: false,
    is_in_with: false,
    is_recursive: false,
    defines: None,
    names: 0,
};

struct Walk<'a> {
    cursor: Cursor<'a>,
    /// The innermost frame; those around it.
    frame: Frame,
    outer: Vec<Frame>,
    /// Names of WITH that are visible.
    names: WithNames<'a>,
    found: Query,
}

/// Walks over `all`. Frames are as many as the depth budget allows.
pub(super) fn query(text: &[u8], all: &[Lexeme]) -> Query {
    let mut walk = Walk {
        cursor: Cursor::new(text, all),
        frame: BASE,
        outer: Vec::new(),
        names: WithNames::default(),
        found: Query::default(),
    };
    while let Some(here) = walk.cursor.peek() {
        walk.step(here);
    }
    walk.found
}

impl Walk<'_> {
    fn step(&mut self, here: Lexeme) {
        match here.kind() {
            Kind::Sign(b'(' | b'[') => self.open(),
            Kind::Sign(b')' | b']') => self.close(),
            Kind::Sign(b',') => {
                self.cursor.at += 1;
                match self.frame.phase {
                    Phase::From => (self.frame.expects_table, self.frame.expects_alias) = (true, false),
                    Phase::With => self.with_query(),
                    _ => {}
                }
            }
            Kind::Sign(b';') => {
                self.cursor.at += 1;
                self.frame.phase = Phase::Start;
            }
            Kind::Word | Kind::QuotedName | Kind::UnicodeName => self.name_or_word(here),
            _ => {
                self.cursor.at += 1;
                self.frame.expects_table = false;
                // `table *` of long ago still has an alias.
                self.frame.expects_alias &= here.range().of(self.cursor.text) == b"*";
            }
        }
    }

    fn open(&mut self) {
        self.cursor.at += 1;
        let is_from_item = self.frame.expects_table;
        self.frame.expects_table = false;
        // In FROM it is a query, or a list of joined tables: SELECT decides.
        let phase = if is_from_item { Phase::From } else { Phase::Start };
        self.push(Frame { phase, is_from_item, expects_table: is_from_item, ..BASE });
    }

    fn push(&mut self, inside: Frame) {
        let is_in_with = inside.is_in_with || self.frame.is_in_with;
        let inside = Frame { is_in_with, names: self.names.len(), ..inside };
        self.outer.push(std::mem::replace(&mut self.frame, inside));
    }

    fn close(&mut self) {
        self.cursor.at += 1;
        let Some(outer) = self.outer.pop() else { return };
        let inside = std::mem::replace(&mut self.frame, outer);
        self.names.truncate(inside.names);
        self.frame.expects_alias = inside.is_from_item;
        self.define(inside.defines);
    }

    fn name_or_word(&mut self, here: Lexeme) {
        let at = self.cursor.at;
        let before = at.checked_sub(1).map(|at| self.cursor.all[at]);
        if self.frame.phase == Phase::Columns {
            self.cursor.at += 1;
            return;
        }
        if self.frame.expects_table && self.item(here) {
            return;
        }
        if self.frame.expects_alias && self.alias(here) {
            return;
        }
        // Behind a dot is a label, and behind AS of a query; behind AS of CREATE VIEW or PREPARE is the query itself.
        let is_label = before
            .is_some_and(|before| before.is_sign(b'.') || before.word == Word::As && self.frame.phase != Phase::Start);
        if is_label || !self.keyword(here.word) {
            self.function(before);
        }
    }

    /// A name, followed by a parenthesis or not.
    fn function(&mut self, before: Option<Lexeme>) {
        let first = self.cursor.at;
        let Some(range) = self.cursor.qualified() else { return };
        let is_qualified = self.cursor.at > first + 1;
        let is_type = before.is_some_and(|before| {
            // A type, a method of sampling, a table with columns, an index method.
            matches!(before.word, Word::As | Word::Tablesample | Word::References | Word::Using)
                || before.range().of(self.cursor.text) == b"::"
        });
        let is_function = is_qualified || self.cursor.all[first].word.is_function_name();
        if self.cursor.is_sign(b'(') && is_function && !is_type {
            self.push_function(range);
        }
    }

    fn push_function(&mut self, range: Range) {
        let is_outermost = self.outer.is_empty();
        self.found.functions.push(FunctionAt { range, arguments: self.cursor.at + 1, is_outermost });
    }

    /// A keyword of a query; false if it means nothing here.
    fn keyword(&mut self, word: Word) -> bool {
        let is_start = matches!(self.frame.phase, Phase::Start | Phase::With);
        match word {
            Word::Select => self.begin(Verb::Select, Phase::Targets),
            Word::Values if is_start => self.begin(Verb::Values, Phase::Rest),
            Word::Table if is_start && self.is_table_command() => self.table_command(),
            Word::With => return self.with(),
            Word::Insert if is_start && self.cursor.word_ahead(1) == Word::Into => self.target(Verb::Insert, 2),
            Word::Merge if is_start && self.cursor.word_ahead(1) == Word::Into => self.target(Verb::Merge, 2),
            Word::Delete if is_start && self.cursor.word_ahead(1) == Word::From => self.target(Verb::Delete, 2),
            Word::Update if is_start && self.is_update() => self.target(Verb::Update, 1),
            Word::Into if self.frame.phase == Phase::Targets => self.select_into(),
            Word::From => return self.begins_list(),
            Word::Using if self.frame.phase == Phase::Delete => self.list(),
            Word::Using => {
                self.cursor.at += 1;
                self.columns();
            }
            Word::Join if self.frame.phase == Phase::From => self.list(),
            Word::For => {
                self.found.locks |=
                    matches!(self.cursor.word_ahead(1), Word::Update | Word::Share | Word::No | Word::Key);
                self.end_list();
            }
            Word::Union | Word::Intersect | Word::Except => self.set_operation(),
            Word::Where | Word::Group | Word::Having | Word::Window | Word::Order | Word::Limit | Word::Offset => {
                self.end_list();
            }
            Word::Fetch | Word::Returning => self.end_list(),
            Word::On if self.cursor.word_ahead(1) == Word::Conflict => self.end_list(),
            Word::When if self.is_merge_clause() => self.end_list(),
            Word::Case | Word::Filter | Word::And | Word::Or => {
                self.found.has_clauses = true;
                return false;
            }
            _ => return false,
        }
        true
    }

    fn begin(&mut self, verb: Verb, phase: Phase) {
        self.cursor.at += 1;
        self.frame.phase = phase;
        (self.frame.expects_table, self.frame.expects_alias) = (false, false);
        if !self.frame.is_in_with {
            self.found.verb.get_or_insert(verb);
        }
    }

    /// `TABLE name`, which is `SELECT * FROM name`.
    fn table_command(&mut self) {
        self.begin(Verb::Table, Phase::From);
        self.frame.expects_table = true;
    }

    /// Whether TABLE here is the command, and no part of CREATE TABLE or RETURNS TABLE: a name without columns follows.
    fn is_table_command(&self) -> bool {
        let mut ahead = self.cursor;
        ahead.at += 1;
        ahead.take(Word::Only);
        ahead.qualified().is_some() && !ahead.is_sign(b'(')
    }

    /// INSERT INTO, UPDATE, DELETE FROM or MERGE INTO, of `words` words, with the table. A name of WITH is no target.
    fn target(&mut self, verb: Verb, words: usize) {
        let phase = match verb {
            Verb::Update => Phase::Update,
            Verb::Insert => Phase::Rest,
            _ => Phase::Delete,
        };
        self.begin(verb, phase);
        self.cursor.at += words - 1;
        self.found.writes = true;
        self.found.changes.insert(verb);
        self.cursor.take(Word::Only);
        let in_parentheses = self.cursor.take_sign(b'(');
        let table = self.cursor.qualified();
        self.found.tables.extend(table);
        if in_parentheses {
            self.cursor.take_sign(b')');
        }
        if verb == Verb::Insert {
            if self.cursor.take(Word::As) {
                self.cursor.name();
            }
            self.columns();
            // The query or VALUES of an INSERT comes next, perhaps with a WITH of its own.
            self.frame.phase = Phase::Start;
        }
    }

    /// Whether UPDATE here is the command and no column: a table follows.
    fn is_update(&self) -> bool {
        let next = self.cursor.all.get(self.cursor.at + 1);
        // FOR UPDATE, FOR NO KEY UPDATE, ON UPDATE CASCADE.
        let is_command = !matches!(self.before(1), Word::For | Word::Key | Word::On);
        is_command && next.is_some_and(|next| next.is_name() || next.is_sign(b'('))
    }

    /// The keyword `back` tokens before this one.
    fn before(&self, back: usize) -> Word {
        self.cursor.at.checked_sub(back).map_or(Word::Name, |at| self.cursor.all[at].word)
    }

    fn select_into(&mut self) {
        self.cursor.at += 1;
        let mut is_temp = false;
        while matches!(
            self.cursor.word(),
            Word::Temp | Word::Temporary | Word::Local | Word::Global | Word::Unlogged | Word::Table
        ) {
            is_temp |= matches!(self.cursor.word(), Word::Temp | Word::Temporary);
            self.cursor.at += 1;
        }
        let table = self.cursor.qualified();
        self.found.tables.extend(table);
        self.found.into = Some(is_temp);
    }

    fn begins_list(&mut self) -> bool {
        let is_comparison = self.before(1) == Word::Distinct && matches!(self.before(2), Word::Is | Word::Not);
        let begins = matches!(self.frame.phase, Phase::Targets | Phase::Update) && !is_comparison;
        if begins {
            self.list();
        }
        begins
    }

    /// A list of tables begins or goes on.
    fn list(&mut self) {
        self.cursor.at += 1;
        self.found.has_clauses = true;
        self.frame.phase = Phase::From;
        (self.frame.expects_table, self.frame.expects_alias) = (true, false);
    }

    /// A clause behind the list.
    fn end_list(&mut self) {
        self.cursor.at += 1;
        self.found.has_clauses = true;
        (self.frame.expects_table, self.frame.expects_alias) = (false, false);
        if matches!(self.frame.phase, Phase::From | Phase::Targets | Phase::Update | Phase::Delete) {
            self.frame.phase = Phase::Rest;
        }
    }

    /// UNION and its kin: another query follows.
    fn set_operation(&mut self) {
        self.cursor.at += 1;
        self.cursor.skip_all(&[Word::All, Word::Distinct]);
        self.found.has_clauses = true;
        self.frame.expects_alias = false;
        // In parentheses of FROM the next query may be in parentheses, too.
        self.frame.expects_table = self.frame.is_from_item && self.cursor.is_sign(b'(');
        self.frame.phase = if self.frame.expects_table { Phase::From } else { Phase::Start };
    }

    /// WHEN of MERGE, and not of CASE.
    fn is_merge_clause(&self) -> bool {
        let ahead = [self.cursor.word_ahead(1), self.cursor.word_ahead(2)];
        self.frame.phase == Phase::From && matches!(ahead, [Word::Matched, _] | [Word::Not, Word::Matched])
    }
}
