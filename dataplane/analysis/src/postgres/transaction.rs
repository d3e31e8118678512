//! BEGIN to ROLLBACK, savepoints, and two-phase commit.

use super::build::Draft;
use super::cursor::Cursor;
use super::effect::Effect;
use super::statement::{Class, Verb};
use super::words::Word;

/// Modes of a transaction, as far as a statement says them; the last one counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Modes {
    /// In lower case, one space between two words.
    pub isolation: Option<Vec<u8>>,
    pub read_only: Option<bool>,
    pub deferrable: Option<bool>,
}

/// `ISOLATION LEVEL ..., READ ONLY, NOT DEFERRABLE` and so on, with or without commas.
pub(super) fn modes(cursor: &mut Cursor<'_>) -> Modes {
    let mut found = Modes::default();
    while !cursor.is_end() {
        match (cursor.word(), cursor.word_ahead(1)) {
            (Word::Isolation, _) => {
                cursor.skip_all(&[Word::Isolation, Word::Level]);
                found.isolation = isolation(cursor);
            }
            (Word::Read, Word::Only) => {
                cursor.at += 2;
                found.read_only = Some(true);
            }
            (Word::Read, Word::Write) => {
                cursor.at += 2;
                found.read_only = Some(false);
            }
            (Word::Not, Word::Deferrable) => {
                cursor.at += 2;
                found.deferrable = Some(false);
            }
            (Word::Deferrable, _) => {
                cursor.at += 1;
                found.deferrable = Some(true);
            }
            _ => cursor.at += 1,
        }
    }
    found
}

/// `SERIALIZABLE`, or two words.
fn isolation(cursor: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let first = cursor.name()?;
    if *first == *b"serializable" {
        return Some(first.into());
    }
    let second = cursor.name()?;
    Some([&*first, b" ", &*second].concat())
}

pub(super) fn read(draft: &mut Draft<'_>, word: Word) {
    let verb = match word {
        Word::Begin => Verb::Begin,
        Word::Start => Verb::Start,
        Word::Commit => Verb::Commit,
        Word::End => Verb::End,
        Word::Rollback => Verb::Rollback,
        Word::Abort => Verb::Abort,
        Word::Savepoint => Verb::Savepoint,
        Word::Prepare => Verb::Prepare,
        _ => Verb::Release,
    };
    draft.is(Class::Transaction, verb);
    draft.statement.is_read_only = true;
    match (word, draft.cursor.word()) {
        (Word::Begin | Word::Start, _) => {
            let read_only = modes(&mut draft.cursor).read_only;
            draft.statement.is_read_only = read_only != Some(false);
            draft.effect(Effect::Begin { read_only });
        }
        (Word::Commit | Word::Rollback, Word::Prepared) => finish(draft, Effect::FinishPrepared),
        (Word::Prepare, _) => finish(draft, Effect::PrepareTransaction),
        (Word::Savepoint, _) => draft.named(Effect::Savepoint),
        (Word::Release, _) => {
            skip_savepoint(&mut draft.cursor);
            draft.named(Effect::Release);
        }
        _ => end(draft, word),
    }
}

/// Two-phase commit writes to disk.
fn finish(draft: &mut Draft<'_>, effect: Effect) {
    draft.statement.is_read_only = false;
    draft.effect(effect);
}

/// COMMIT, END, ROLLBACK, ABORT, ROLLBACK TO.
fn end(draft: &mut Draft<'_>, word: Word) {
    draft.cursor.skip_all(&[Word::Work, Word::Transaction]);
    if draft.cursor.take(Word::To) {
        skip_savepoint(&mut draft.cursor);
        return draft.named(Effect::RollbackTo);
    }
    let chain = draft.cursor.take(Word::And) && draft.cursor.take(Word::Chain);
    let is_commit = matches!(word, Word::Commit | Word::End);
    draft.effect(if is_commit { Effect::Commit { chain } } else { Effect::Rollback { chain } });
}

/// The word SAVEPOINT in front of a name, which may be this word itself.
fn skip_savepoint(cursor: &mut Cursor<'_>) {
    if cursor.word() == Word::Savepoint && cursor.at + 1 < cursor.all.len() {
        cursor.at += 1;
    }
}
