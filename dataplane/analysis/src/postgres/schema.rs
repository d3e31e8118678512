//! Statements that change the schema, its rights or its storage: which relations they name, and whether they create
//! something temporary.

use super::build::Draft;
use super::effect::Effect;
use super::prepared::execute;
use super::statement::{Class, Verb};
use super::words::Word;

pub(super) fn read(draft: &mut Draft<'_>, word: Word) {
    match word {
        Word::Create => create(draft),
        Word::Alter => alter(draft),
        Word::Drop => drop_objects(draft),
        Word::Truncate => {
            draft.is(Class::Write, Verb::Truncate);
            draft.cursor.take(Word::Table);
            tables(draft);
        }
        Word::Lock => lock(draft),
        Word::Comment | Word::Security => {
            draft.is(Class::Ddl, if word == Word::Comment { Verb::Comment } else { Verb::Security });
            on_object(draft);
        }
        Word::Grant | Word::Revoke => {
            draft.is(Class::Ddl, if word == Word::Grant { Verb::Grant } else { Verb::Revoke });
            on_object(draft);
        }
        Word::Vacuum | Word::Analyze | Word::Analyse | Word::Cluster | Word::Reindex => maintain(draft, word),
        Word::Refresh => {
            draft.is(Class::Ddl, Verb::Refresh);
            draft.cursor.skip_all(&[Word::Materialized, Word::View, Word::Concurrently]);
            draft.table();
        }
        Word::Import => draft.is(Class::Ddl, Verb::Import),
        Word::Reassign => draft.is(Class::Ddl, Verb::Reassign),
        _ => draft.effect(Effect::Opaque),
    }
}

/// Goes on to the keyword, and over it; false and at the end if it does not come.
fn go_behind(draft: &mut Draft<'_>, word: Word) -> bool {
    while !draft.cursor.is_end() {
        if draft.cursor.take(word) {
            return true;
        }
        draft.cursor.at += 1;
    }
    false
}

/// `ONLY a *, b (columns), c`.
fn tables(draft: &mut Draft<'_>) {
    loop {
        draft.cursor.take(Word::Only);
        let in_parentheses = draft.cursor.take_sign(b'(');
        // TABLE begins the next list of a publication.
        if !draft.cursor.word().is_table_name() || draft.table().is_none() {
            return;
        }
        if in_parentheses {
            draft.cursor.take_sign(b')');
        }
        if draft.cursor.peek().is_some_and(|next| next.range().of(draft.cursor.text) == b"*") {
            draft.cursor.at += 1;
        }
        draft.cursor.skip_parentheses();
        if !draft.cursor.take_sign(b',') {
            return;
        }
    }
}

/// Kinds of relations: the name of one is a table for this analysis.
const RELATION: &[Word] = &[Word::Table, Word::View, Word::Sequence];
/// Kinds of objects that belong to a relation behind ON.
const OF_RELATION: &[Word] = &[Word::Trigger, Word::Policy, Word::Rule];

/// Whether a relation is next; goes over its kind.
fn takes_relation(draft: &mut Draft<'_>) -> bool {
    draft.cursor.skip_all(&[Word::Materialized, Word::Foreign]);
    let is_relation = RELATION.contains(&draft.cursor.word());
    draft.cursor.at += usize::from(is_relation);
    is_relation
}

fn create(draft: &mut Draft<'_>) {
    draft.is(Class::Ddl, Verb::Create);
    let mut is_temp = false;
    loop {
        match draft.cursor.word() {
            Word::Temp | Word::Temporary => is_temp = true,
            Word::Or | Word::Replace | Word::Global | Word::Local | Word::Unlogged | Word::Recursive | Word::Unique => {
            }
            Word::Constraint => {}
            _ => break,
        }
        draft.cursor.at += 1;
    }
    let kind = draft.cursor.word();
    if takes_relation(draft) {
        draft.cursor.skip_if_exists();
        draft.table();
    } else {
        match kind {
            Word::Index | Word::Trigger | Word::Policy => {
                go_behind(draft, Word::On);
                draft.cursor.take(Word::Only);
                draft.table();
            }
            Word::Rule => {
                go_behind(draft, Word::To);
                draft.table();
            }
            Word::Statistics => {
                go_behind(draft, Word::From);
                draft.table();
            }
            Word::Schema => elements(draft),
            Word::Publication => publication(draft),
            _ => draft.cursor.at += 1,
        }
    }
    let drops_on_commit = definition(draft);
    let names_temp = || draft.cursor.all.windows(2).any(|pair| pair[1].is_sign(b'.') && is_pg_temp(draft, pair[0]));
    if is_temp || names_temp() {
        draft.effect(Effect::CreateTemp { drops_on_commit: is_temp && drops_on_commit });
    } else {
        draft.effect(Effect::Create);
    }
}

/// Relations that CREATE SCHEMA creates with it.
fn elements(draft: &mut Draft<'_>) {
    let start = draft.cursor;
    while go_behind(draft, Word::Create) {
        if takes_relation(draft) {
            draft.table();
        }
    }
    draft.cursor = start;
}

/// `FOR TABLE a (columns), TABLE b, TABLES IN SCHEMA c` of a publication.
fn publication(draft: &mut Draft<'_>) {
    while go_behind(draft, Word::Table) {
        tables(draft);
    }
}

fn is_pg_temp(draft: &Draft<'_>, lexeme: super::tokens::Lexeme) -> bool {
    super::name::identifier(draft.cursor.text, lexeme.token).is_some_and(|name| *name == *b"pg_temp")
}

/// The part behind the name: columns with references, or a query. Gives whether it says ON COMMIT DROP.
fn definition(draft: &mut Draft<'_>) -> bool {
    let rest = draft.cursor;
    let mut drops_on_commit = false;
    while !draft.cursor.is_end() {
        let before = draft.cursor.at.checked_sub(1).map(|at| draft.cursor.all[at]);
        match draft.cursor.word() {
            Word::References => {
                draft.cursor.at += 1;
                draft.table();
            }
            Word::Inherits => {
                draft.cursor.at += 1;
                draft.cursor.take_sign(b'(');
                tables(draft);
            }
            Word::Partition if matches!(draft.cursor.word_ahead(1), Word::Of) => {
                draft.cursor.at += 2;
                draft.table();
            }
            Word::Attach | Word::Detach if draft.cursor.word_ahead(1) == Word::Partition => {
                draft.cursor.at += 2;
                draft.table();
            }
            // A column list, and no condition.
            Word::Like if before.is_some_and(|before| before.is_sign(b'(') || before.is_sign(b',')) => {
                draft.cursor.at += 1;
                draft.table();
            }
            Word::On if draft.cursor.word_ahead(1) == Word::Commit => {
                drops_on_commit |= draft.cursor.word_ahead(2) == Word::Drop;
                draft.cursor.at += 2;
            }
            Word::As if draft.cursor.word_ahead(1) == Word::Execute => {
                draft.cursor.at += 2;
                execute(draft);
                draft.statement.class = Class::Ddl;
                return drops_on_commit;
            }
            _ => draft.cursor.at += 1,
        }
    }
    draft.cursor = rest;
    draft.scan();
    draft.statement.is_read_only = false;
    drops_on_commit
}

fn alter(draft: &mut Draft<'_>) {
    draft.is(Class::Ddl, Verb::Alter);
    match draft.cursor.word() {
        Word::System => draft.statement.class = Class::Admin,
        Word::Publication => publication(draft),
        word if OF_RELATION.contains(&word) => {
            go_behind(draft, Word::On);
            draft.table();
        }
        _ => {
            if takes_relation(draft) && draft.cursor.word() != Word::All {
                draft.cursor.skip_if_exists();
                draft.cursor.take(Word::Only);
                draft.table();
                definition(draft);
            }
        }
    }
}

fn drop_objects(draft: &mut Draft<'_>) {
    draft.is(Class::Ddl, Verb::Drop);
    if OF_RELATION.contains(&draft.cursor.word()) {
        go_behind(draft, Word::On);
        draft.table();
    } else if takes_relation(draft) {
        draft.cursor.skip_if_exists();
        tables(draft);
    }
}

/// `ON TABLE a, b` of GRANT, REVOKE, COMMENT and SECURITY LABEL.
fn on_object(draft: &mut Draft<'_>) {
    let is_right = matches!(draft.statement.verb, Verb::Grant | Verb::Revoke);
    if !go_behind(draft, Word::On) {
        return;
    }
    match draft.cursor.word() {
        Word::All => {}
        Word::Column => {
            draft.cursor.at += 1;
            if let Some(column) = draft.cursor.qualified() {
                // Without the column.
                let text = draft.cursor.text;
                let last = column.of(text).iter().rposition(|&byte| byte == b'.').unwrap_or(0);
                let table = super::range::Range { start: column.start, end: column.start + last as u32 };
                draft.statement.tables.extend((!table.is_empty()).then_some(table));
            }
        }
        word if OF_RELATION.contains(&word) || word == Word::Constraint => {
            draft.cursor.at += 1;
            go_behind(draft, Word::On);
            draft.cursor.take(Word::Domain);
            draft.table();
        }
        _ => {
            let names_relation = takes_relation(draft);
            // Without a word it is a table, but only for rights.
            let is_bare = is_right && draft.cursor.peek().is_some_and(|next| next.is_name());
            let next = draft.cursor.all.get(draft.cursor.at + 1);
            let ends = next.is_none_or(|next| {
                next.is_sign(b',') || next.is_sign(b'.') || matches!(next.word, Word::To | Word::From)
            });
            if names_relation || is_bare && ends {
                tables(draft);
            }
        }
    }
}

/// LOCK: the weakest mode is what a SELECT takes.
fn lock(draft: &mut Draft<'_>) {
    draft.is(Class::Write, Verb::Lock);
    draft.cursor.take(Word::Table);
    tables(draft);
    let is_share = draft.cursor.word_ahead(1) == Word::Access && draft.cursor.word_ahead(2) == Word::Share;
    if is_share {
        draft.statement.class = Class::Read;
        draft.statement.is_read_only = true;
    }
}

/// VACUUM, ANALYZE, CLUSTER, REINDEX.
fn maintain(draft: &mut Draft<'_>, word: Word) {
    let verb = match word {
        Word::Vacuum => Verb::Vacuum,
        Word::Cluster => Verb::Cluster,
        Word::Reindex => Verb::Reindex,
        _ => Verb::Analyze,
    };
    draft.is(Class::Admin, verb);
    draft.cursor.skip_parentheses();
    if verb == Verb::Reindex {
        if !draft.cursor.take(Word::Table) {
            return;
        }
        draft.cursor.take(Word::Concurrently);
    }
    draft.cursor.skip_all(&[Word::Full, Word::Freeze, Word::Verbose, Word::Analyze, Word::Analyse]);
    tables(draft);
}
