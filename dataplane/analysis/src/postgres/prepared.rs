//! Prepared statements and cursors of SQL.

use super::build::Draft;
use super::effect::Effect;
use super::range::Range;
use super::statement::{Class, Verb};
use super::words::Word;

pub(super) fn read(draft: &mut Draft<'_>, word: Word) {
    match word {
        Word::Prepare => prepare(draft),
        Word::Execute => {
            draft.is(Class::Session, Verb::Execute);
            execute(draft);
        }
        Word::Deallocate => {
            draft.is(Class::Session, Verb::Deallocate);
            draft.statement.is_read_only = true;
            // `DEALLOCATE prepare` is a name.
            if draft.cursor.word() == Word::Prepare && draft.cursor.at + 1 < draft.cursor.all.len() {
                draft.cursor.at += 1;
            }
            all_or_named(draft, Effect::DeallocateAll, Effect::Deallocate);
        }
        Word::Declare => declare(draft),
        Word::Close => {
            draft.is(Class::Session, Verb::Close);
            draft.statement.is_read_only = true;
            all_or_named(draft, Effect::CloseAllCursors, Effect::CloseCursor);
        }
        _ => {
            draft.is(Class::Read, if word == Word::Move { Verb::Move } else { Verb::Fetch });
            draft.statement.is_read_only = true;
        }
    }
}

fn all_or_named(draft: &mut Draft<'_>, all: Effect, named: impl FnOnce(Box<[u8]>) -> Effect) {
    if draft.cursor.word() == Word::All { draft.effect(all) } else { draft.named(named) }
}

/// `PREPARE name (types) AS statement`. Class and tables are those of the statement, so that who may not run it may not
/// prepare it; its functions do not run yet.
fn prepare(draft: &mut Draft<'_>) {
    draft.cursor.at += 1;
    let name = draft.cursor.name();
    let types = inside(draft.cursor.skip_parentheses());
    draft.cursor.take(Word::As);
    let body = draft.cursor.rest();
    draft.query();
    draft.statement.verbs.insert(draft.statement.verb);
    draft.statement.verb = Verb::Prepare;
    draft.statement.effects.clear();
    draft.effect(name.map_or(Effect::Opaque, |name| Effect::Prepare { name, types, body }));
}

fn inside(lexemes: &[super::tokens::Lexeme]) -> Range {
    match (lexemes.first(), lexemes.last()) {
        (Some(first), Some(last)) => first.range().to(last.range()),
        _ => Range::default(),
    }
}

/// The name behind EXECUTE, and its arguments.
pub(super) fn execute(draft: &mut Draft<'_>) {
    let at = draft.cursor.peek().map(|lexeme| lexeme.range()).unwrap_or_default();
    match draft.cursor.name() {
        Some(name) => draft.effect(Effect::Execute { name, at }),
        None => draft.effect(Effect::Opaque),
    }
    draft.scan();
    draft.statement.is_read_only = false;
}

/// `DECLARE name BINARY INSENSITIVE NO SCROLL CURSOR WITH HOLD FOR query`.
fn declare(draft: &mut Draft<'_>) {
    draft.cursor.at += 1;
    let name = draft.cursor.name();
    let mut hold = false;
    while !draft.cursor.is_end() && !draft.cursor.take(Word::For) {
        hold |= draft.cursor.word() == Word::With && draft.cursor.word_ahead(1) == Word::Hold;
        draft.cursor.at += 1;
    }
    draft.query();
    draft.statement.verbs.insert(draft.statement.verb);
    draft.statement.verb = Verb::Declare;
    draft.effect(name.map_or(Effect::Opaque, |name| Effect::DeclareCursor { name, hold }));
}
