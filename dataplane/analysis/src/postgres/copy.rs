//! COPY.

use super::build::Draft;
use super::lexer::Kind;
use super::statement::{Class, CopyMedium, CopyPlan, Verb};
use super::words::Word;

/// `COPY table (columns) FROM ...`, `COPY (query) TO ...`.
pub(super) fn read(draft: &mut Draft<'_>) {
    draft.is(Class::Copy, Verb::Copy);
    let mut reads_only = true;
    if draft.cursor.is_sign(b'(') {
        let mut inside = Draft { cursor: draft.cursor, statement: draft.statement.clone() };
        let all = inside.cursor.skip_parentheses();
        draft.cursor.at = inside.cursor.at;
        (inside.cursor.all, inside.cursor.at) = (all, 0);
        inside.query();
        reads_only = inside.statement.is_read_only;
        inside.statement.verbs.insert(inside.statement.verb);
        draft.statement = inside.statement;
    } else {
        // Oids and binary copies of long ago.
        draft.cursor.take(Word::Binary);
        draft.table();
        draft.cursor.skip_parentheses();
    }
    let is_from = draft.cursor.word() == Word::From;
    draft.cursor.at += 1;
    let is_program = draft.cursor.take(Word::Program);
    let medium = match draft.cursor.peek().map(|lexeme| lexeme.kind()) {
        _ if is_program => CopyMedium::Program,
        Some(Kind::Word) => CopyMedium::Client,
        _ => CopyMedium::File,
    };
    if is_from {
        // Only the condition has functions: options look like them.
        draft.cursor.at = draft.cursor.all.iter().rposition(|lexeme| lexeme.word == Word::Where).unwrap_or(usize::MAX);
        draft.scan();
    }
    let statement = &mut draft.statement;
    statement.copy = Some(CopyPlan { is_from, medium });
    statement.verb = Verb::Copy;
    let is_client = medium == CopyMedium::Client;
    statement.class = match statement.class {
        Class::Write if is_client => Class::Write,
        Class::Admin => Class::Admin,
        _ if is_client => Class::Copy,
        _ => Class::Admin,
    };
    statement.is_read_only = reads_only && is_client && !is_from;
}
