//! The text of a statement becomes an action.

use weir_postgres_codec::sqlstate;

use super::select::Select;
use super::tokens::{Token, Tokens};
use super::value::{TEXT, unquoted};

/// Parameters that a statement has at most: what a Bind can carry.
const PARAMETERS_MAX: usize = u16::MAX as usize;

/// Why a statement fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) sqlstate: &'static str,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(sqlstate: &'static str, text: impl Into<String>) -> Self {
        Self { sqlstate, text: text.into() }
    }

    fn unsupported(what: &str) -> Self {
        Self::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("the lab's origin has no {what}"))
    }
}

/// The effect of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing: there is no statement.
    Empty,
    /// Begins a block; with the tag of its completion.
    Begin(&'static str),
    Commit,
    Rollback,
    /// Back to a savepoint, so that a failed block goes on.
    RollbackTo,
    /// Confirmed in a block alone; with the tag and the name in PostgreSQL's error.
    InBlock(&'static str),
    Select(Select),
    /// Forgets this prepared statement; without a name all.
    Deallocate(Option<Vec<u8>>),
    /// As DEALLOCATE ALL and more; refused in a block.
    DiscardAll,
    /// Another value of a setting.
    Change(Change),
    /// Confirmed and forgotten; with its tag.
    Confirm(&'static str),
}

/// Another value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Without a value its default.
    Set(Vec<u8>, Option<Vec<u8>>),
    Reset(Vec<u8>),
    ResetAll,
}

/// A statement that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) action: Action,
    /// Types of its parameters.
    pub(super) types: Vec<u32>,
}

impl Statement {
    /// Reads one statement. `declared` are the types that the client gave to the first parameters; 0 is none.
    pub(super) fn read(text: &[u8], declared: &[u32]) -> Result<Self, Failure> {
        let action = action(text, declared)?;
        let numbers = Tokens::new(text).filter_map(|token| match token {
            Token::Parameter(number) => Some(usize::from(number)),
            _ => None,
        });
        let count = numbers.max().unwrap_or(0).max(declared.len()).min(PARAMETERS_MAX);
        let decided: &[(usize, u32)] = if let Action::Select(select) = &action { &select.decided } else { &[] };
        let decided = |number: usize| decided.iter().find(|(known, _)| *known == number).map(|(_, oid)| *oid);
        let own = |number: usize| declared.get(number).copied().filter(|oid| *oid != 0);
        let types = (0..count).map(|number| own(number).or_else(|| decided(number)).unwrap_or(TEXT)).collect();
        Ok(Self { action, types })
    }

    /// A failed block takes it.
    pub(super) const fn ends_failure(&self) -> bool {
        matches!(self.action, Action::Commit | Action::Rollback | Action::RollbackTo | Action::Empty)
    }
}

fn action(text: &[u8], declared: &[u32]) -> Result<Action, Failure> {
    let mut tokens = Tokens::new(text);
    let Some(first) = tokens.next() else { return Ok(Action::Empty) };
    let Token::Word(word) = first else { return Err(syntax_error(&first)) };
    let second = tokens.next();
    let is_second = |word: &str| second.is_some_and(|token| token.is(word));
    Ok(match word.to_ascii_lowercase().as_slice() {
        b"begin" => Action::Begin("BEGIN"),
        b"start" => Action::Begin("START TRANSACTION"),
        b"commit" | b"end" => Action::Commit,
        b"rollback" | b"abort" if tokens.chain(second).any(|token| token.is("to")) => Action::RollbackTo,
        b"rollback" | b"abort" => Action::Rollback,
        b"savepoint" => Action::InBlock("SAVEPOINT"),
        b"release" => Action::InBlock("RELEASE"),
        b"select" | b"with" | b"values" | b"table" => {
            no_catalog(text)?;
            Action::Select(Select::read(text, declared))
        }
        b"insert" | b"update" | b"delete" if Tokens::new(text).any(|token| token.is("returning")) => {
            return Err(Failure::unsupported("RETURNING"));
        }
        b"insert" => Action::Confirm("INSERT 0 1"),
        b"update" => Action::Confirm("UPDATE 1"),
        b"delete" => Action::Confirm("DELETE 1"),
        b"set" => set(Tokens::new(text)).map_or(Action::Confirm("SET"), Action::Change),
        b"reset" if is_second("all") => Action::Change(Change::ResetAll),
        b"reset" => match second {
            Some(Token::Word(name) | Token::Quoted(name)) => Action::Change(Change::Reset(name.to_vec())),
            _ => Action::Confirm("RESET"),
        },
        b"vacuum" => Action::Confirm("VACUUM"),
        b"analyze" => Action::Confirm("ANALYZE"),
        b"truncate" => Action::Confirm("TRUNCATE TABLE"),
        b"create" if is_second("table") => Action::Confirm("CREATE TABLE"),
        b"drop" if is_second("table") => Action::Confirm("DROP TABLE"),
        b"alter" if is_second("table") => Action::Confirm("ALTER TABLE"),
        b"discard" if is_second("all") => Action::DiscardAll,
        b"deallocate" => {
            let name = if is_second("prepare") { tokens.next() } else { second };
            Action::Deallocate(match name {
                Some(token) if token.is("all") => None,
                Some(Token::Word(name)) => Some(name.to_ascii_lowercase()),
                Some(Token::Quoted(name)) => Some(name.to_vec()),
                _ => return Err(Failure::new(sqlstate::SYNTAX_ERROR, "syntax error at end of input")),
            })
        }
        b"create" | b"drop" | b"alter" | b"copy" | b"prepare" | b"execute" | b"declare" | b"fetch" | b"move"
        | b"close" | b"listen" | b"unlisten" | b"notify" | b"lock" | b"show" | b"explain" | b"discard" | b"grant"
        | b"revoke" | b"call" | b"do" | b"merge" | b"cluster" | b"reindex" | b"checkpoint" | b"load" => {
            return Err(Failure::unsupported(&String::from_utf8_lossy(word).to_uppercase()));
        }
        _ => return Err(syntax_error(&first)),
    })
}

/// `SET name = value`; `None`: another form, such as SET LOCAL or a list of values.
fn set(tokens: Tokens<'_>) -> Option<Change> {
    let tokens: Vec<Token<'_>> = tokens.skip(1).collect();
    let (name, equals, value) = match &tokens[..] {
        [name, equals, value] => (name, equals, value),
        [session, name, equals, value] if session.is("session") => (name, equals, value),
        _ => return None,
    };
    let (Token::Word(name) | Token::Quoted(name)) = name else { return None };
    let is_equals = *equals == Token::Sign(b'=') || equals.is("to");
    match value {
        _ if !is_equals => None,
        value if value.is("default") => Some(Change::Set(name.to_vec(), None)),
        Token::Word(value) | Token::Quoted(value) | Token::Number(value) => {
            Some(Change::Set(name.to_vec(), Some(value.to_vec())))
        }
        Token::Text(text) => Some(Change::Set(name.to_vec(), Some(unquoted(text)))),
        _ => None,
    }
}

fn syntax_error(token: &Token<'_>) -> Failure {
    let shown = match token {
        Token::Word(word) | Token::Number(word) => String::from_utf8_lossy(word).into_owned(),
        Token::Quoted(name) => format!("\"{}\"", String::from_utf8_lossy(name)),
        Token::Text(text) => format!("'{}'", String::from_utf8_lossy(text)),
        Token::Parameter(number) => format!("${number}"),
        Token::Sign(sign) => char::from(*sign).to_string(),
    };
    Failure::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{shown}\""))
}

/// A made-up row of a catalog would mislead programs that read it: there is none.
fn no_catalog(text: &[u8]) -> Result<(), Failure> {
    let is_of_catalog = |token: &Token<'_>| match token {
        Token::Word(name) | Token::Quoted(name) => {
            let name = name.to_ascii_lowercase();
            matches!(
                &*name,
                b"pg_catalog" | b"information_schema" | b"pg_class" | b"pg_type" | b"pg_database" | b"pg_settings"
            )
        }
        _ => false,
    };
    match Tokens::new(text).find(is_of_catalog) {
        Some(Token::Word(name) | Token::Quoted(name)) => {
            let name = String::from_utf8_lossy(name);
            Err(Failure::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::value::INT4;

    #[test]
    fn statements_are_known_by_their_first_words() {
        let action = |text: &str| Statement::read(text.as_bytes(), &[]).map(|statement| statement.action);
        assert_eq!(action("  -- nothing"), Ok(Action::Empty));
        assert_eq!(action("START TRANSACTION READ ONLY"), Ok(Action::Begin("START TRANSACTION")));
        assert_eq!(action("END"), Ok(Action::Commit));
        assert_eq!(action("ROLLBACK TO SAVEPOINT a"), Ok(Action::RollbackTo));
        assert_eq!(action("rollback work"), Ok(Action::Rollback));
        assert_eq!(action("DEALLOCATE PREPARE \"A\""), Ok(Action::Deallocate(Some(b"A".to_vec()))));
        assert_eq!(action("deallocate ALL"), Ok(Action::Deallocate(None)));
        assert_eq!(action("insert into t values (1)"), Ok(Action::Confirm("INSERT 0 1")));
        let sqlstate = |text: &str| action(text).expect_err(text).sqlstate;
        assert_eq!(sqlstate("selct 1"), "42601");
        assert_eq!(sqlstate("copy t from stdin"), "0A000");
        assert_eq!(sqlstate("insert into t values (1) returning id"), "0A000");
        assert_eq!(sqlstate("select 1 from pg_catalog.pg_class"), "42P01");
    }

    #[test]
    fn types_come_from_the_client_from_the_text_or_are_text() {
        let types = |text: &str, declared: &[u32]| Statement::read(text.as_bytes(), declared).expect("right").types;
        assert_eq!(types("select abalance from pgbench_accounts where aid = $1", &[]), [INT4]);
        assert_eq!(types("select abalance from pgbench_accounts where aid = $1", &[20]), [20]);
        assert_eq!(types("select $2::int4, $1", &[]), [TEXT, INT4]);
        assert_eq!(types("update t set a = $3", &[0, 23]), [TEXT, INT4, TEXT]);
    }
}
