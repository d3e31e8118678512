//! LISTEN, UNLISTEN, NOTIFY, DISCARD, LOAD, DO, CALL.

use super::build::Draft;
use super::effect::Effect;
use super::statement::{Class, Verb};
use super::words::Word;

pub(super) fn read(draft: &mut Draft<'_>, word: Word) {
    match word {
        Word::Listen => {
            draft.is(Class::Session, Verb::Listen);
            draft.named(Effect::Listen);
        }
        Word::Unlisten => {
            draft.is(Class::Session, Verb::Unlisten);
            draft.statement.is_read_only = true;
            let is_all = draft.cursor.peek().is_some_and(|next| next.range().of(draft.cursor.text) == b"*");
            if is_all { draft.effect(Effect::UnlistenAll) } else { draft.named(Effect::Unlisten) }
        }
        Word::Notify => {
            draft.is(Class::Session, Verb::Notify);
            draft.effect(Effect::Notify);
        }
        Word::Discard => {
            draft.is(Class::Session, Verb::Discard);
            draft.statement.is_read_only = true;
            draft.effect(match draft.cursor.word() {
                Word::All => Effect::DiscardAll,
                Word::Plans => Effect::DiscardPlans,
                Word::Sequences => Effect::DiscardSequences,
                Word::Temp | Word::Temporary => Effect::DiscardTemp,
                _ => Effect::Opaque,
            });
        }
        Word::Load => {
            draft.is(Class::Admin, Verb::Load);
            draft.effect(Effect::Load);
        }
        _ => {
            draft.is(Class::Unknown, if word == Word::Do { Verb::Do } else { Verb::Call });
            // Arguments of CALL are expressions with functions of their own.
            draft.scan();
            draft.statement.class = Class::Unknown;
            draft.statement.is_read_only = false;
            draft.effect(Effect::Opaque);
        }
    }
}
