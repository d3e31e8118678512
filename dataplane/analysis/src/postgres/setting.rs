//! SET in all its forms, RESET, SHOW.

use super::build::Draft;
use super::cursor::Cursor;
use super::effect::{Effect, Name, Scope, Value};
use super::name::name;
use super::range::Range;
use super::statement::{Class, Verb};
use super::transaction::modes;
use super::words::Word;

pub(super) fn read(draft: &mut Draft<'_>, word: Word) {
    match word {
        Word::Set => {
            draft.is(Class::Session, Verb::Set);
            draft.statement.is_read_only = true;
            set(draft);
        }
        Word::Reset => {
            draft.is(Class::Session, Verb::Reset);
            draft.statement.is_read_only = true;
            reset(draft);
        }
        _ => {
            draft.is(Class::Read, Verb::Show);
            draft.statement.is_read_only = true;
        }
    }
}

/// The effect of a setting with a value: some settings are commands of their own in another spelling.
pub(super) fn effect_of(is_local: bool, name: Name, value: Value) -> Effect {
    let scope = if is_local { Scope::Local } else { Scope::Session };
    match &*name {
        b"role" => Effect::SetRole { scope, value },
        b"session_authorization" => Effect::SetSessionAuthorization { scope, value },
        b"transaction_isolation" | b"transaction_deferrable" => Effect::SetTransaction { read_only: None },
        b"transaction_read_only" => Effect::SetTransaction { read_only: boolean(&value) },
        // Two old names that the server still knows.
        b"sort_mem" => Effect::Set { scope, name: b"work_mem"[..].into(), value },
        b"vacuum_mem" => Effect::Set { scope, name: b"maintenance_work_mem"[..].into(), value },
        _ => Effect::Set { scope, name, value },
    }
}

fn boolean(value: &Value) -> Option<bool> {
    let (Value::Sql(text) | Value::Config(text)) = value else { return None };
    let text = text.strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'")).unwrap_or(text);
    match &*text.to_ascii_lowercase() {
        b"on" | b"true" | b"yes" | b"1" => Some(true),
        b"off" | b"false" | b"no" | b"0" => Some(false),
        _ => None,
    }
}

fn set(draft: &mut Draft<'_>) {
    let mut is_local = false;
    if !is_setting(&draft.cursor) {
        match draft.cursor.word() {
            Word::Local => {
                is_local = true;
                draft.cursor.at += 1;
            }
            // In `SET SESSION AUTHORIZATION` the word belongs to the name.
            Word::Session if !is_part_of_name(draft.cursor.word_ahead(1)) => draft.cursor.at += 1,
            _ => {}
        }
    }
    if is_setting(&draft.cursor) {
        generic(draft, is_local);
        return;
    }
    let word = draft.cursor.word();
    let next = draft.cursor.word_ahead(1);
    draft.cursor.at += 1;
    match (word, next) {
        (Word::Transaction, _) => {
            draft.statement.class = Class::Transaction;
            let read_only = modes(&mut draft.cursor).read_only;
            draft.effect(Effect::SetTransaction { read_only });
        }
        (Word::Session, Word::Characteristics) => characteristics(draft),
        (Word::Session, Word::Authorization) => {
            draft.cursor.at += 1;
            let value = value(draft, draft.cursor.rest());
            draft.effect(effect_of(is_local, b"session_authorization"[..].into(), value));
        }
        (Word::Role, _) => {
            let is_none = draft.cursor.word() == Word::None;
            let value = if is_none { Value::Default } else { value(draft, draft.cursor.rest()) };
            draft.effect(effect_of(is_local, b"role"[..].into(), value));
        }
        (Word::Time, Word::Zone) => {
            draft.cursor.at += 1;
            set_named(draft, is_local, b"timezone");
        }
        (Word::Names, _) => set_named(draft, is_local, b"client_encoding"),
        (Word::Schema, _) => set_named(draft, is_local, b"search_path"),
        (Word::Xml, Word::Option) => {
            draft.cursor.at += 1;
            set_named(draft, is_local, b"xmloption");
        }
        (Word::Constraints, _) => {
            draft.statement.class = Class::Transaction;
            draft.effect(Effect::SetConstraints);
        }
        // `SET name FROM CURRENT`, and what the server refuses.
        _ => {
            draft.cursor.at -= 1;
            match setting_name(&mut draft.cursor) {
                Some(name) if draft.cursor.take(Word::From) => draft.effect(effect_of(is_local, name, Value::Unknown)),
                _ => draft.effect(Effect::Opaque),
            }
        }
    }
}

const fn is_part_of_name(word: Word) -> bool {
    matches!(word, Word::Authorization | Word::Characteristics)
}

/// Whether a name with `=` or TO is here: then words such as SESSION or ROLE are the name.
fn is_setting(cursor: &Cursor<'_>) -> bool {
    let mut ahead = *cursor;
    ahead.qualified().is_some() && (ahead.word() == Word::To || is_equals(&ahead))
}

fn is_equals(cursor: &Cursor<'_>) -> bool {
    cursor.peek().is_some_and(|lexeme| lexeme.range().of(cursor.text) == b"=")
}

fn generic(draft: &mut Draft<'_>, is_local: bool) {
    let Some(name) = setting_name(&mut draft.cursor) else { return draft.effect(Effect::Opaque) };
    draft.cursor.at += 1;
    set_named(draft, is_local, &name);
}

/// The rest is the value of the setting `name`.
fn set_named(draft: &mut Draft<'_>, is_local: bool, name: &[u8]) {
    let rest = draft.cursor.rest();
    let value = value(draft, rest);
    if name == b"search_path" && may_name_temp(rest.of(draft.cursor.text)) {
        // The next object is temporary although its CREATE does not say so.
        draft.effect(Effect::CreateTemp { drops_on_commit: false });
    }
    draft.effect(effect_of(is_local, name.into(), value));
}

/// The path as it is written may begin with the schema of temporary objects. Escapes and strings over several lines are not read.
pub(super) fn may_name_temp(path: &[u8]) -> bool {
    let path = path.to_ascii_lowercase();
    let has = |part: &[u8]| memchr::memmem::find(&path, part).is_some();
    has(b"pg_temp") || has(b"\\") || has(b"uescape") || (has(b"\n") && has(b"'"))
}

/// The value at `range`, which reaches to the end. `SET TIME ZONE LOCAL` and `SET NAMES` alone mean the default.
fn value(draft: &Draft<'_>, range: Range) -> Value {
    let is_last = draft.cursor.at + 1 == draft.cursor.all.len();
    let is_default = matches!(draft.cursor.word(), Word::Default | Word::Local) && is_last;
    if range.is_empty() || is_default { Value::Default } else { Value::Sql(range.of(draft.cursor.text).into()) }
}

/// `SET SESSION CHARACTERISTICS AS TRANSACTION`: the defaults of later transactions.
fn characteristics(draft: &mut Draft<'_>) {
    draft.cursor.skip_all(&[Word::Characteristics, Word::As, Word::Transaction]);
    let modes = modes(&mut draft.cursor);
    let mut add = |name: &[u8], value: Option<Vec<u8>>| {
        if let Some(value) = value {
            draft.effect(effect_of(false, name.into(), Value::Sql(value.into())));
        }
    };
    let switch = |is_on: bool| if is_on { b"on".to_vec() } else { b"off".to_vec() };
    add(b"default_transaction_isolation", modes.isolation.map(|level| [b"'", &*level, b"'"].concat()));
    add(b"default_transaction_read_only", modes.read_only.map(switch));
    add(b"default_transaction_deferrable", modes.deferrable.map(switch));
}

fn reset(draft: &mut Draft<'_>) {
    match (draft.cursor.word(), draft.cursor.word_ahead(1)) {
        (Word::All, _) => draft.effect(Effect::ResetAll),
        (Word::Time, Word::Zone) => draft.effect(Effect::Reset(b"timezone"[..].into())),
        (Word::Transaction, Word::Isolation) => draft.effect(Effect::SetTransaction { read_only: None }),
        (Word::Session, Word::Authorization) => {
            draft.effect(Effect::SetSessionAuthorization { scope: Scope::Session, value: Value::Default })
        }
        _ => match setting_name(&mut draft.cursor).map(|name| effect_of(false, name, Value::Default)) {
            Some(Effect::Set { name, .. }) => draft.effect(Effect::Reset(name)),
            Some(effect) => draft.effect(effect),
            None => draft.effect(Effect::Opaque),
        },
    }
}

/// The name of a setting at the cursor, dots included, in lower case.
fn setting_name(cursor: &mut Cursor<'_>) -> Option<Name> {
    let text = cursor.text;
    let range = cursor.qualified()?;
    let qualified = name(text, range);
    let schema = qualified.schema.map(|schema| [&*schema, b"."].concat()).unwrap_or_default();
    let whole = [&*schema, &*qualified.object].concat();
    Some(whole.to_ascii_lowercase().into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{Limits, analyse};

    fn effects(text: &str) -> Vec<Effect> {
        let analysis = analyse(text.as_bytes(), &Limits::default());
        assert!(analysis.is_whole, "{text}");
        analysis.statements.into_iter().flat_map(|statement| statement.effects).collect()
    }

    fn set(name: &str, value: &str) -> Effect {
        Effect::Set { scope: Scope::Session, name: name.as_bytes().into(), value: Value::Sql(value.as_bytes().into()) }
    }

    #[test]
    fn words_of_set_are_names_of_settings_in_front_of_an_equals_sign() {
        assert_eq!(effects("SET session.x = 1"), [set("session.x", "1")]);
        assert_eq!(effects("SET local TO 1"), [set("local", "1")]);
        assert_eq!(effects("SET SESSION Time.\"Zone\" = 1"), [set("time.zone", "1")]);
        assert_eq!(effects("SET names = 1"), [set("names", "1")]);
    }

    #[test]
    fn characteristics_are_the_defaults_of_later_transactions() {
        let text =
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY NOT DEFERRABLE";
        let expected = [
            set("default_transaction_isolation", "'repeatable read'"),
            set("default_transaction_read_only", "on"),
            set("default_transaction_deferrable", "off"),
        ];
        assert_eq!(effects(text), expected);
    }
}
