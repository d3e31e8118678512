//! From the tokens of a statement to what is known of it: the command word leads to the grammar of its kind.

use super::cursor::Cursor;
use super::effect::{Effect, Value};
use super::function::{SideEffect, side_effect};
use super::name::{name, plain_text};
use super::query::{FunctionAt, Query, query};
use super::range::Range;
use super::statement::{Class, Statement, Verb, Verbs};
use super::tokens::Lexeme;
use super::words::Word;
use super::{copy, prepared, schema, session, setting, transaction};

/// A statement that is being read.
pub(super) struct Draft<'a> {
    pub cursor: Cursor<'a>,
    pub statement: Statement,
}

/// Reads one statement. `all` has a token at least.
pub(super) fn statement(text: &[u8], all: &[Lexeme]) -> Statement {
    let cursor = Cursor::new(text, all);
    let mut draft = Draft {
        cursor,
        statement: Statement {
            range: cursor.rest(),
            class: Class::Unknown,
            verb: Verb::Unknown,
            verbs: Verbs::default(),
            is_read_only: false,
            effects: Vec::new(),
            tables: Vec::new(),
            functions: Vec::new(),
            copy: None,
        },
    };
    if draft.cursor.take(Word::Explain) {
        explain(&mut draft)
    } else {
        command(&mut draft)
    }
    draft.statement.verbs.insert(draft.statement.verb);
    draft.statement
}

/// `EXPLAIN [ANALYZE] [VERBOSE]` or `EXPLAIN (options)`: with ANALYZE the statement runs, otherwise it is only planned.
fn explain(draft: &mut Draft<'_>) {
    let mut runs = false;
    if draft.cursor.is_sign(b'(') && !draft.opens_query() {
        let options = draft.cursor.skip_parentheses();
        for (at, option) in options.iter().enumerate() {
            let value = options.get(at + 1).map_or(&b""[..], |value| value.range().of(draft.cursor.text));
            let is_off = value.eq_ignore_ascii_case(b"false") || value.eq_ignore_ascii_case(b"off") || value == b"0";
            runs |= matches!(option.word, Word::Analyze | Word::Analyse) && !is_off;
        }
    } else {
        while matches!(draft.cursor.word(), Word::Analyze | Word::Analyse | Word::Verbose) {
            runs |= draft.cursor.word() != Word::Verbose;
            draft.cursor.at += 1;
        }
    }
    command(draft);
    let statement = &mut draft.statement;
    statement.verbs.insert(statement.verb);
    statement.verb = Verb::Explain;
    if !runs {
        statement.verbs = Verbs::default();
        statement.class = Class::Read;
        statement.is_read_only = true;
        // The server still needs the prepared statement that it explains.
        statement.effects.retain(|effect| matches!(effect, Effect::Execute { .. } | Effect::Opaque));
    }
}

fn command(draft: &mut Draft<'_>) {
    let word = draft.cursor.word();
    match word {
        Word::Select | Word::With | Word::Values | Word::Table => draft.query(),
        Word::Insert | Word::Update | Word::Delete | Word::Merge => draft.query(),
        _ if draft.cursor.is_sign(b'(') => draft.query(),
        Word::Begin | Word::Start | Word::Commit | Word::End | Word::Rollback | Word::Abort => {
            transaction::read(draft, word);
        }
        Word::Savepoint | Word::Release => transaction::read(draft, word),
        Word::Prepare if draft.cursor.word_ahead(1) == Word::Transaction => transaction::read(draft, word),
        Word::Prepare | Word::Execute | Word::Deallocate => prepared::read(draft, word),
        Word::Declare | Word::Fetch | Word::Move | Word::Close => prepared::read(draft, word),
        Word::Set | Word::Reset | Word::Show => setting::read(draft, word),
        Word::Listen | Word::Unlisten | Word::Notify | Word::Discard | Word::Load => session::read(draft, word),
        Word::Do | Word::Call => session::read(draft, word),
        Word::Copy => copy::read(draft),
        Word::Checkpoint => draft.is(Class::Admin, Verb::Checkpoint),
        _ => schema::read(draft, word),
    }
}

impl<'a> Draft<'a> {
    /// Sets class and verb, and goes over the command word.
    pub fn is(&mut self, class: Class, verb: Verb) {
        self.cursor.at += 1;
        self.statement.class = class;
        self.statement.verb = verb;
    }

    pub fn effect(&mut self, effect: Effect) {
        self.statement.effects.push(effect);
    }

    /// The effect that a name at the cursor completes; without a name the server refuses the statement.
    pub fn named(&mut self, effect: impl FnOnce(Box<[u8]>) -> Effect) {
        match self.cursor.name() {
            Some(name) => self.effect(effect(name)),
            None => self.effect(Effect::Opaque),
        }
    }

    pub fn table(&mut self) -> Option<Range> {
        let table = self.cursor.qualified();
        self.statement.tables.extend(table);
        table
    }

    fn opens_query(&self) -> bool {
        let ahead = self.cursor.all.get(self.cursor.at..).unwrap_or_default();
        let inside = ahead.iter().find(|lexeme| !lexeme.is_sign(b'('));
        inside.is_some_and(|lexeme| matches!(lexeme.word, Word::Select | Word::Values | Word::With | Word::Table))
    }

    /// The rest is a query, and the statement is what the query is.
    pub fn query(&mut self) {
        let found = self.scan();
        self.statement.verb = found.verb.unwrap_or(Verb::Unknown);
        let has_admin = self.statement.class == Class::Admin;
        self.statement.class = match found {
            _ if has_admin => Class::Admin,
            Query { into: Some(_), .. } => Class::Ddl,
            Query { writes: true, .. } => Class::Write,
            Query { verb: Some(_), .. } => Class::Read,
            _ => Class::Unknown,
        };
        self.statement.is_read_only &= self.statement.class == Class::Read && !found.locks;
        if found.verb.is_none() {
            self.effect(Effect::Opaque);
        }
        if let Some(is_temp) = found.into {
            self.statement.verbs.insert(Verb::Create);
            let is_temp = is_temp || self.statement.tables.iter().any(|&table| self.is_in_temp(table));
            self.effect(if is_temp { Effect::CreateTemp { drops_on_commit: false } } else { Effect::Create });
        }
    }

    /// Walks over the rest as far as it is a query, for tables, functions and their effects. `is_read_only` becomes
    /// whether the functions allow it, and the class that of an admin if one of them is.
    pub fn scan(&mut self) -> Query {
        let rest = &self.cursor.all[self.cursor.at.min(self.cursor.all.len())..];
        // A query inside another statement may run later, never, or more than once.
        let is_whole = self.cursor.at == 0;
        let found = query(self.cursor.text, rest);
        self.statement.tables.extend_from_slice(&found.tables);
        self.statement.verbs.add(found.changes);
        self.statement.is_read_only = true;
        // An UPDATE of this view calls set_config.
        let is_view = |table: &Range| *name(self.cursor.text, *table).object == *SETTINGS_VIEW;
        if found.writes && found.tables.iter().any(is_view) {
            self.effect(Effect::SetConfig { name: None, is_local: None });
        }
        for function in &found.functions {
            self.statement.functions.push(function.range);
            let object = name(self.cursor.text, function.range).object;
            let Some(effect) = side_effect(&object) else { continue };
            self.statement.is_read_only &= effect.is_read_only();
            if effect.is_admin() {
                self.statement.class = Class::Admin;
            }
            let is_sure = is_whole && function.is_outermost && !found.has_clauses && found.verb == Some(Verb::Select);
            if effect == SideEffect::SetConfig && sets_temp_path(self.cursor.text, rest, *function) {
                self.effect(Effect::CreateTemp { drops_on_commit: false });
            }
            let effect = match effect {
                SideEffect::SetConfig => Some(set_config(self.cursor.text, rest, *function, is_sure)),
                SideEffect::AdvisoryLock => Some(Effect::AdvisoryLock),
                SideEffect::AdvisoryUnlock => Some(Effect::AdvisoryUnlock),
                SideEffect::AdvisoryUnlockAll => Some(Effect::AdvisoryUnlockAll),
                SideEffect::AdvanceSequence => Some(Effect::AdvanceSequence),
                SideEffect::ReadSequence => Some(Effect::ReadSequence),
                SideEffect::Notify => Some(Effect::Notify),
                SideEffect::Opaque | SideEffect::OpaqueAdmin => Some(Effect::Opaque),
                SideEffect::Write | SideEffect::Admin => None,
            };
            self.statement.effects.extend(effect);
        }
        found
    }

    /// Whether a relation is in the schema of temporary ones by its name.
    pub fn is_in_temp(&self, relation: Range) -> bool {
        name(self.cursor.text, relation).schema.is_some_and(|schema| *schema == *b"pg_temp")
    }
}

/// The view of the settings of a session.
pub(super) const SETTINGS_VIEW: &[u8] = b"pg_settings";

/// `set_config('search_path', 'pg_temp', …)`: the next object is temporary although its CREATE does not say so.
fn sets_temp_path(text: &[u8], all: &[Lexeme], function: FunctionAt) -> bool {
    let arguments = all.get(function.arguments..).unwrap_or_default();
    let setting = arguments.first().and_then(|lexeme| plain_text(text, lexeme.token));
    let may_be_path = setting.is_none_or(|name| name.eq_ignore_ascii_case(b"search_path"));
    may_be_path && arguments.get(2).is_some_and(|value| setting::may_name_temp(value.range().of(text)))
}

/// `set_config(name, value, is_local)`. With texts, and sure to run once, it is a SET.
fn set_config(text: &[u8], all: &[Lexeme], function: FunctionAt, is_sure: bool) -> Effect {
    let arguments = all.get(function.arguments..).unwrap_or_default();
    let is = |at: usize, sign: u8| arguments.get(at).is_some_and(|lexeme| lexeme.is_sign(sign));
    let setting = arguments.first().and_then(|lexeme| plain_text(text, lexeme.token)).filter(|_| is(1, b','));
    let setting = setting.map(|name| name.to_ascii_lowercase().into_boxed_slice());
    let is_local = match arguments.get(4).map(|lexeme| lexeme.word) {
        Some(Word::True) if is(3, b',') && is(5, b')') => Some(true),
        Some(Word::False) if is(3, b',') && is(5, b')') => Some(false),
        _ => None,
    };
    let value = arguments.get(2).filter(|_| is(3, b',')).and_then(|lexeme| match lexeme.word {
        Word::Null => Some(Value::Default),
        _ => plain_text(text, lexeme.token).map(|_| Value::Config(lexeme.range().of(text).into())),
    });
    match (setting, value, is_local) {
        (Some(name), Some(value), Some(is_local)) if is_sure => setting::effect_of(is_local, name, value),
        (name, _, is_local) => Effect::SetConfig { name, is_local },
    }
}
