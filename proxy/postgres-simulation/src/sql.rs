//! The SQL that the model server understands: real statements, so that the gateway's analysis reads them as it reads any.

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sql {
    /// `SELECT 'text'`, of one row; with `FROM generate_series(1, n)`, of n.
    Text(String, usize),
    /// `SELECT $1::text`.
    Parameter,
    /// `SELECT 1/0`.
    Fails,
    /// `BEGIN`.
    Begin,
    /// `COMMIT`.
    Commit,
    /// `ROLLBACK`.
    Rollback,
    /// `SAVEPOINT name`.
    Savepoint(String),
    /// `ROLLBACK TO SAVEPOINT name`.
    RollbackTo(String),
    /// `RELEASE SAVEPOINT name`.
    Release(String),
    /// `SET [LOCAL] name = value`; `None` is DEFAULT.
    Set {
        /// In lower case.
        name: String,
        /// The value.
        value: Option<String>,
        /// SET LOCAL.
        is_local: bool,
    },
    /// `RESET ALL`.
    ResetAll,
    /// `SELECT set_config(name, value, false)`.
    SetConfig(String, String),
    /// `SHOW name`.
    Show(String),
    /// `DISCARD ALL`.
    DiscardAll,
    /// `DISCARD TEMP`.
    DiscardTemp,
    /// `DISCARD PLANS`, `DISCARD SEQUENCES`.
    DiscardNothing(String),
    /// `PREPARE name AS text`.
    Prepare(String, String),
    /// `EXECUTE name`.
    Execute(String),
    /// `DEALLOCATE name`; `None` is ALL.
    Deallocate(Option<String>),
    /// `SELECT lib_call()`: a function, whose library is loaded with its first call.
    LibraryCall,
    /// `SELECT drop_statements()`: a function that runs DEALLOCATE ALL.
    DropCall,
    /// `SELECT pg_advisory_lock(n)`.
    Lock,
    /// `SELECT pg_advisory_unlock(n)`.
    Unlock,
    /// `SELECT pg_advisory_unlock(99)`, of a lock that is not held.
    UnlockOther,
    /// The gateway's own look at `pg_locks`: a row for each lock.
    CountLocks,
    /// `SELECT pg_advisory_unlock_all()`.
    UnlockAll,
    /// `CREATE TEMP TABLE name (a int)`.
    CreateTemp(String),
    /// `CREATE TABLE name (a int)`: only in the schema of temporary ones, if that is first in the path.
    Create(String),
    /// `SELECT a FROM name`: empty if it exists.
    Read(String),
    /// `DROP TABLE name`.
    Drop(String),
    /// `DECLARE name CURSOR WITH HOLD FOR ...`.
    Declare(String),
    /// `FETCH 1 FROM name`.
    Fetch(String),
    /// `CLOSE name`; `None` is ALL.
    Close(Option<String>),
    /// `LISTEN name`.
    Listen(String),
    /// `UNLISTEN name`; `None` is all.
    Unlisten(Option<String>),
    /// `COPY t FROM STDIN`.
    CopyIn,
    /// `COPY t TO STDOUT`.
    CopyOut,
    /// `ALTER TABLE name ADD b INT`: plans of statements that read the table and were prepared before are outdated.
    Alter(String),
}

impl Sql {
    /// A failed block accepts it.
    pub fn ends_block(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo(_))
    }

    /// It returns rows.
    pub fn has_rows(&self) -> bool {
        use Sql::*;
        matches!(
            self,
            Text(..)
                | Parameter
                | Fails
                | SetConfig(..)
                | Show(_)
                | Execute(_)
                | LibraryCall
                | DropCall
                | Lock
                | Unlock
                | UnlockOther
                | CountLocks
                | UnlockAll
                | Read(_)
                | Fetch(_)
        )
    }

    /// The table that it reads, if it returns rows. A statement that names none stands for any that reads `t`.
    pub fn table(&self) -> Option<&str> {
        match self {
            Self::Read(table) => Some(table),
            _ => self.has_rows().then_some("t"),
        }
    }

    /// It has a parameter.
    pub fn parameters(&self) -> usize {
        usize::from(*self == Self::Parameter)
    }
}

/// A text that is no SQL, as far as the model goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntaxError;

/// The statements of a text.
///
/// # Errors
/// One of them is none.
pub fn parse(text: &str) -> Result<Vec<Sql>, SyntaxError> {
    split(text)
        .into_iter()
        .map(|statement| one(statement.trim()))
        .filter(|sql| *sql != Ok(None))
        .map(|sql| sql.map(|sql| sql.expect("filtered")))
        .collect()
}

/// At semicolons outside of quotes.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b';') => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unquote(text: &str) -> String {
    let text = text.trim();
    match text.as_bytes().first() {
        Some(b'\'') => text.trim_matches('\'').replace("''", "'"),
        Some(b'"') => text.trim_matches('"').replace("\"\"", "\""),
        _ => text.to_ascii_lowercase(),
    }
}

/// `"app"."x"` and `app.x`, in lower case.
fn setting(text: &str) -> String {
    text.trim().split('.').map(unquote).collect::<Vec<_>>().join(".").to_ascii_lowercase()
}

fn one(text: &str) -> Result<Option<Sql>, SyntaxError> {
    if text.is_empty() {
        return Ok(None);
    }
    let text = text.strip_prefix("pg_catalog.").unwrap_or(text).replace("pg_catalog.", "");
    let text = text.as_str();
    let upper = text.to_ascii_uppercase();
    let after = |prefix: &str| upper.starts_with(prefix).then(|| text[prefix.len()..].trim());
    Ok(Some(match &*upper {
        "BEGIN" | "BEGIN READ ONLY" => Sql::Begin,
        "COMMIT" => Sql::Commit,
        "ROLLBACK" => Sql::Rollback,
        "RESET ALL" => Sql::ResetAll,
        "DISCARD ALL" => Sql::DiscardAll,
        "DISCARD TEMP" => Sql::DiscardTemp,
        "DISCARD PLANS" | "DISCARD SEQUENCES" => Sql::DiscardNothing(upper.clone()),
        "DEALLOCATE ALL" => Sql::Deallocate(None),
        "CLOSE ALL" => Sql::Close(None),
        "UNLISTEN *" => Sql::Unlisten(None),
        "SELECT $1::TEXT" => Sql::Parameter,
        "SELECT 1/0" => Sql::Fails,
        "SELECT LIB_CALL()" => Sql::LibraryCall,
        "SELECT DROP_STATEMENTS()" => Sql::DropCall,
        "SELECT PG_ADVISORY_LOCK(1)" => Sql::Lock,
        "SELECT PG_ADVISORY_UNLOCK(1)" => Sql::Unlock,
        "SELECT PG_ADVISORY_UNLOCK(99)" => Sql::UnlockOther,
        "SELECT FROM PG_LOCKS WHERE LOCKTYPE OPERATOR(=) 'ADVISORY' AND PID OPERATOR(=) PG_BACKEND_PID()" => {
            Sql::CountLocks
        }
        "SELECT PG_ADVISORY_UNLOCK_ALL()" => Sql::UnlockAll,
        "COPY T FROM STDIN" => Sql::CopyIn,
        "COPY T TO STDOUT" => Sql::CopyOut,
        _ => return named(&after, &upper).map(Some),
    }))
}

/// A prefix, and the statement that a name behind it makes.
type ByName = (&'static str, fn(String) -> Sql);

/// Statements with a name or a value.
fn named<'t>(after: &dyn Fn(&str) -> Option<&'t str>, upper: &str) -> Result<Sql, SyntaxError> {
    if let Some(name) = after("SAVEPOINT ") {
        return Ok(Sql::Savepoint(unquote(name)));
    }
    if let Some(name) = after("ROLLBACK TO SAVEPOINT ") {
        return Ok(Sql::RollbackTo(unquote(name)));
    }
    if let Some(name) = after("RELEASE SAVEPOINT ") {
        return Ok(Sql::Release(unquote(name)));
    }
    if let Some(rest) = after("PREPARE ") {
        let (name, body) = rest.split_once(" AS ").ok_or(SyntaxError)?;
        return Ok(Sql::Prepare(unquote(name), body.to_owned()));
    }
    let by_name: [ByName; 12] = [
        ("ALTER TABLE ", |rest| Sql::Alter(rest.split(' ').next().unwrap_or_default().to_ascii_lowercase())),
        ("EXECUTE ", Sql::Execute),
        ("DEALLOCATE ", |name| Sql::Deallocate(Some(name))),
        ("SELECT A FROM ", Sql::Read),
        ("DROP TABLE ", Sql::Drop),
        ("FETCH 1 FROM ", Sql::Fetch),
        ("CLOSE ", |name| Sql::Close(Some(name))),
        ("LISTEN ", Sql::Listen),
        ("UNLISTEN ", |name| Sql::Unlisten(Some(name))),
        ("SHOW ", |name| Sql::Show(setting(&name))),
        ("CREATE TABLE ", |rest| Sql::Create(rest.split(' ').next().unwrap_or_default().to_ascii_lowercase())),
        ("CREATE TEMP TABLE ", |rest| Sql::CreateTemp(rest.split(' ').next().unwrap_or_default().to_ascii_lowercase())),
    ];
    for (prefix, make) in by_name {
        if let Some(name) = after(prefix) {
            return Ok(make(unquote(name)));
        }
    }
    if let Some(rest) = after("DECLARE ") {
        let (name, query) = rest.split_once(' ').ok_or(SyntaxError)?;
        let is_held = query.to_ascii_uppercase().starts_with("CURSOR WITH HOLD FOR ");
        return if is_held { Ok(Sql::Declare(unquote(name))) } else { Err(SyntaxError) };
    }
    if let Some(rest) = after("SELECT SET_CONFIG(") {
        let mut parts = rest.trim_end_matches(')').split(',');
        let mut next = || parts.next().map(unquote).ok_or(SyntaxError);
        return Ok(Sql::SetConfig(next()?.to_ascii_lowercase(), next()?));
    }
    if let Some(rest) = after("SELECT '") {
        let (text, rest) = rest.split_once('\'').ok_or(SyntaxError)?;
        let rows = rest
            .trim()
            .strip_prefix("FROM generate_series(1,")
            .map_or(Ok(1), |count| count.trim_end_matches(')').trim().parse().map_err(|_| SyntaxError))?;
        return Ok(Sql::Text(text.to_owned(), rows));
    }
    session(after, upper)
}

/// SET and its kin.
fn session<'t>(after: &dyn Fn(&str) -> Option<&'t str>, upper: &str) -> Result<Sql, SyntaxError> {
    let set = |name: &str, value: Option<String>| Ok(Sql::Set { name: name.to_owned(), value, is_local: false });
    if upper == "RESET ROLE" || upper == "SET ROLE NONE" {
        return set("role", None);
    }
    if upper == "SET SESSION AUTHORIZATION DEFAULT" {
        return set("session_authorization", None);
    }
    if let Some(role) = after("SET LOCAL ROLE ") {
        return Ok(Sql::Set { name: "role".to_owned(), value: Some(unquote(role)), is_local: true });
    }
    if let Some(role) = after("SET ROLE ") {
        return set("role", Some(unquote(role)));
    }
    if let Some(user) = after("SET SESSION AUTHORIZATION ") {
        return set("session_authorization", Some(unquote(user)));
    }
    if let Some(name) = after("RESET ") {
        return set(&setting(name), None);
    }
    let (rest, is_local) = match after("SET LOCAL ") {
        Some(rest) => (rest, true),
        None => (after("SET ").ok_or(SyntaxError)?, false),
    };
    let (name, value) = rest.split_once('=').ok_or(SyntaxError)?;
    let value = if value.trim() == "DEFAULT" { None } else { Some(unquote(value)) };
    Ok(Sql::Set { name: setting(name), value, is_local })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_own_statements_are_understood() {
        let reset = "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;\
                     SELECT pg_catalog.pg_advisory_unlock_all();DISCARD PLANS;DISCARD SEQUENCES;DISCARD TEMP";
        assert_eq!(parse(reset).unwrap().len(), 8);
        assert_eq!(
            parse("SET \"app\".\"x\" = 'it''s; me';RESET \"timezone\";").unwrap(),
            [
                Sql::Set { name: "app.x".into(), value: Some("it's; me".into()), is_local: false },
                Sql::Set { name: "timezone".into(), value: None, is_local: false },
            ]
        );
        assert_eq!(
            parse("SELECT pg_catalog.set_config('app.x','v',false);").unwrap(),
            [Sql::SetConfig("app.x".into(), "v".into())]
        );
        assert_eq!(parse("SELECT 'm' FROM generate_series(1, 3)").unwrap(), [Sql::Text("m".into(), 3)]);
        assert_eq!(parse("nonsense"), Err(SyntaxError));
    }
}
