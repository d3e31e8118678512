//! Columns and rows of a SELECT. Every row follows from the text and the parameters.

use weir_base::rng::mix;
use weir_postgres_codec::backend::Column;

use super::statement::Failure;
use super::tokens::{Token, Tokens};
use super::value::{INT2, INT4, INT8, TEXT, Value, unquoted};

/// The OID that the table of accounts seems to have: the first one that PostgreSQL gives to a user's table.
const ACCOUNTS_OID: u32 = 16_384;
/// The version of the server.
pub(super) const VERSION: &str = "15.0 (weir lab origin)";
/// Accounts of a branch, as `pgbench -i` makes them.
const ACCOUNTS_PER_BRANCH: i32 = 100_000;
/// SQLSTATE of a division by zero.
const DIVISION_BY_ZERO: &str = "22012";

/// The balance of an account: a number that no other of a million accounts has. In SQL: `(aid::int8 * 7919 % 1000003)::int4`.
#[must_use]
pub fn abalance(aid: i32) -> i32 {
    // Below the prime number by which it is divided.
    (i64::from(aid) * 7_919 % 1_000_003) as i32
}

/// A column of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: Vec<u8>,
    pub(super) type_oid: u32,
    /// Number in the table of accounts; 0: of no table.
    attribute: i16,
}

impl Field {
    fn new(name: impl Into<Vec<u8>>, type_oid: u32) -> Self {
        Self { name: name.into(), type_oid, attribute: 0 }
    }

    pub(super) fn column(&self, format: i16) -> Column<'_> {
        let size = match self.type_oid {
            INT2 => 2,
            INT4 => 4,
            INT8 => 8,
            _ => -1,
        };
        let table_oid = if self.attribute == 0 { 0 } else { ACCOUNTS_OID };
        Column { table_oid, attribute: self.attribute, format, ..Column::text(&self.name, self.type_oid, size) }
    }
}

/// A value that is in the text, or a parameter by its number from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Value(Value),
    Parameter(usize),
}

/// Where the row comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The account with this number.
    Account(Term),
    /// The terms as they are.
    Terms(Vec<Term>),
    /// A hash of the text and the parameters.
    Hash(Box<[u8]>),
    /// How many requests this worker has answered.
    Requests,
    /// None: the division fails.
    DivisionByZero,
}

/// Facts besides the request that a row may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowTerms {
    /// Bytes of a hash.
    pub(super) payload: usize,
    /// Requests that this worker has answered.
    pub(super) requests: u64,
}

/// A SELECT that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Select {
    pub(super) fields: Vec<Field>,
    source: Source,
    /// Types of parameters that the text itself decides, by their numbers from 0.
    pub(super) decided: Vec<(usize, u32)>,
}

impl Select {
    /// `text` begins with SELECT or the like. `declared` are the types that the client gave to parameters.
    pub(super) fn read(text: &[u8], declared: &[u32]) -> Self {
        let mut tokens = Tokens::new(text);
        let is_select = tokens.next().is_some_and(|token| token.is("select"));
        let tokens: Vec<Token<'_>> = if is_select { tokens.collect() } else { Vec::new() };
        account(&tokens)
            .or_else(|| count(&tokens))
            .or_else(|| version(&tokens))
            .or_else(|| requests(&tokens))
            .or_else(|| sums(&tokens))
            .or_else(|| division(&tokens))
            .or_else(|| terms(&tokens, declared))
            .unwrap_or_else(|| Self {
                fields: vec![Field::new("row", TEXT)],
                source: Source::Hash(text.into()),
                decided: Vec::new(),
            })
    }

    /// PostgreSQL finds an error in constants when it plans a statement, and not when it runs.
    pub(super) fn plan(&self) -> Result<(), Failure> {
        match self.source {
            Source::DivisionByZero => Err(Failure::new(DIVISION_BY_ZERO, "division by zero")),
            _ => Ok(()),
        }
    }

    /// The row; `None`: there is no such account.
    pub(super) fn row(&self, parameters: &[Value], terms: RowTerms) -> Result<Option<Vec<Value>>, Failure> {
        let value = |term: &Term| match term {
            Term::Value(value) => value.clone(),
            Term::Parameter(number) => parameters.get(*number).cloned().unwrap_or(Value::Null),
        };
        Ok(match &self.source {
            Source::Terms(terms) => Some(terms.iter().map(value).collect()),
            Source::Hash(text) => Some(vec![Value::Bytes(hash(text, parameters, terms.payload))]),
            Source::Requests => Some(vec![Value::Whole(terms.requests as i64, INT8)]),
            Source::DivisionByZero => return self.plan().map(|()| None),
            Source::Account(term) => {
                let Value::Whole(aid, _) = value(term) else { return Ok(None) };
                i32::try_from(aid).ok().filter(|aid| *aid > 0).map(|aid| self.account(aid))
            }
        })
    }

    fn account(&self, aid: i32) -> Vec<Value> {
        let value = |field: &Field| match field.attribute {
            1 => aid,
            2 => (aid - 1) / ACCOUNTS_PER_BRANCH + 1,
            _ => abalance(aid),
        };
        self.fields.iter().map(|field| Value::Whole(i64::from(value(field)), INT4)).collect()
    }
}

/// `SELECT abalance FROM pgbench_accounts WHERE aid = 1`
fn account(tokens: &[Token<'_>]) -> Option<Select> {
    let from = tokens.iter().position(|token| token.is("from"))?;
    let [table, is_where, key, Token::Sign(b'='), term] = &tokens[from + 1..] else { return None };
    if !(table.is("pgbench_accounts") && is_where.is("where") && key.is("aid")) {
        return None;
    }
    let (term, decided) = match term {
        Token::Number(digits) => (Term::Value(whole(digits)?), Vec::new()),
        Token::Parameter(number) => {
            let number = usize::from(*number).checked_sub(1)?;
            (Term::Parameter(number), vec![(number, INT4)])
        }
        _ => return None,
    };
    let field = |names: &[Token<'_>]| match names {
        [Token::Word(name)] => {
            let known = ["aid", "bid", "abalance"];
            let at = known.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
            Some(Field { attribute: at as i16 + 1, ..Field::new(known[at], INT4) })
        }
        _ => None,
    };
    let fields = tokens[..from].split(|token| *token == Token::Sign(b',')).map(field).collect::<Option<_>>()?;
    Some(Select { fields, source: Source::Account(term), decided })
}

/// `SELECT count(*) FROM pgbench_branches`, by which `pgbench` finds the scale.
fn count(tokens: &[Token<'_>]) -> Option<Select> {
    let [function, Token::Sign(b'('), Token::Sign(b'*'), Token::Sign(b')'), from, table] = tokens else { return None };
    if !(function.is("count") && from.is("from")) {
        return None;
    }
    let tables =
        [("pgbench_branches", 1), ("pgbench_tellers", 10), ("pgbench_accounts", i64::from(ACCOUNTS_PER_BRANCH))];
    let (_, count) = tables.into_iter().find(|(name, _)| table.is(name))?;
    let source = Source::Terms(vec![Term::Value(Value::Whole(count, INT8))]);
    Some(Select { fields: vec![Field::new("count", INT8)], source, decided: Vec::new() })
}

/// `SELECT requests FROM weir_origin`
fn requests(tokens: &[Token<'_>]) -> Option<Select> {
    let [column, from, table] = tokens else { return None };
    let is_meant = column.is("requests") && from.is("from") && table.is("weir_origin");
    let fields = vec![Field::new("requests", INT8)];
    is_meant.then(|| Select { fields, source: Source::Requests, decided: Vec::new() })
}

/// `SELECT (SELECT sum(abalance) FROM pgbench_accounts), ...`, the four sums by which a load of TPC-B is checked: the origin forgets
/// what is written, so all are 0.
fn sums(tokens: &[Token<'_>]) -> Option<Select> {
    let [Token::Sign(b'('), select, sum, Token::Sign(b'('), column, ..] = tokens else { return None };
    if !(select.is("select") && sum.is("sum") && column.is("abalance")) {
        return None;
    }
    let names = ["sum", "sum", "sum", "coalesce"];
    let fields = names.map(|name| Field::new(name, INT8)).to_vec();
    let zeros = names.map(|_| Term::Value(Value::Whole(0, INT8))).to_vec();
    Some(Select { fields, source: Source::Terms(zeros), decided: Vec::new() })
}

/// `SELECT version()`: gateways decide by it what they may ask for.
fn version(tokens: &[Token<'_>]) -> Option<Select> {
    let [function, Token::Sign(b'('), Token::Sign(b')')] = tokens else { return None };
    let value = Value::Bytes(format!("PostgreSQL {VERSION} on this machine").into_bytes());
    let source = Source::Terms(vec![Term::Value(value)]);
    function.is("version").then(|| Select { fields: vec![Field::new("version", TEXT)], source, decided: Vec::new() })
}

/// `SELECT 1/0`
fn division(tokens: &[Token<'_>]) -> Option<Select> {
    let [Token::Number(_), Token::Sign(b'/'), Token::Number(b"0")] = tokens else { return None };
    let fields = vec![Field::new("?column?", INT4)];
    Some(Select { fields, source: Source::DivisionByZero, decided: Vec::new() })
}

/// `SELECT 1, 'a', $1::int4 AS b`
fn terms(tokens: &[Token<'_>], declared: &[u32]) -> Option<Select> {
    let mut select = Select { fields: Vec::new(), source: Source::Terms(Vec::new()), decided: Vec::new() };
    let mut terms = Vec::new();
    for part in tokens.split(|token| *token == Token::Sign(b',')) {
        let (term, part) = part.split_first()?;
        let (cast, part) = match part {
            [Token::Sign(b':'), Token::Sign(b':'), Token::Word(name), rest @ ..] => (Some(named_type(name)?), rest),
            _ => (None, part),
        };
        let name = match part {
            [] => None,
            [word, Token::Word(name)] if word.is("as") => Some(name.to_ascii_lowercase()),
            [word, Token::Quoted(name)] if word.is("as") => Some(name.to_vec()),
            _ => return None,
        };
        let (term, type_oid) = match term {
            Token::Number(digits) => match (whole(digits)?, cast) {
                (Value::Whole(number, type_oid), None) => (Term::Value(Value::Whole(number, type_oid)), type_oid),
                (Value::Whole(number, _), Some((TEXT, _))) => {
                    (Term::Value(Value::Bytes(number.to_string().into())), TEXT)
                }
                (Value::Whole(number, _), Some((oid, _))) => (Term::Value(Value::Whole(number, oid)), oid),
                _ => return None,
            },
            Token::Text(text) => {
                let oid = cast.map_or(TEXT, |(oid, _)| oid);
                (Term::Value(Value::read(Some(&unquoted(text)), oid, 0).ok()?), oid)
            }
            Token::Parameter(number) => {
                let number = usize::from(*number).checked_sub(1)?;
                let own = declared.get(number).copied().filter(|oid| *oid != 0);
                let oid = cast.map(|(oid, _)| oid).or(own).unwrap_or(TEXT);
                if own.is_none() {
                    select.decided.push((number, oid));
                } else if own != Some(oid) {
                    return None;
                }
                (Term::Parameter(number), oid)
            }
            _ => return None,
        };
        let name = name.unwrap_or_else(|| cast.map_or("?column?", |(_, name)| name).into());
        select.fields.push(Field::new(name, type_oid));
        terms.push(term);
    }
    select.source = Source::Terms(terms);
    Some(select)
}

/// The OID and the name of a type that casts know here.
fn named_type(name: &[u8]) -> Option<(u32, &'static str)> {
    Some(match name.to_ascii_lowercase().as_slice() {
        b"int" | b"int4" | b"integer" => (INT4, "int4"),
        b"int8" | b"bigint" => (INT8, "int8"),
        b"text" => (TEXT, "text"),
        _ => return None,
    })
}

/// A number of the text with the type that PostgreSQL gives it; `None`: it is numeric.
fn whole(digits: &[u8]) -> Option<Value> {
    let number: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(Value::Whole(number, if i32::try_from(number).is_ok() { INT4 } else { INT8 }))
}

/// Hexadecimal digits that follow from the text and the parameters.
fn hash(text: &[u8], parameters: &[Value], payload: usize) -> Vec<u8> {
    // FNV-1a; each parameter with an end, so that none runs into the next.
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let seed = text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| add(hash, *byte));
    let seed = parameters.iter().fold(seed, |hash, value| {
        let bytes = value.write(0).unwrap_or_default();
        bytes.iter().fold(add(hash, u8::from(*value == Value::Null) + 1), |hash, byte| add(hash, *byte))
    });
    let words = (0..).flat_map(|at: u64| mix(seed.wrapping_add(at)).to_be_bytes());
    words
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| b"0123456789abcdef"[usize::from(digit)])
        .take(payload)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str, parameters: &[Value]) -> Option<Vec<Option<String>>> {
        let row =
            Select::read(text.as_bytes(), &[]).row(parameters, RowTerms { payload: 16, requests: 0 }).expect("a row");
        let text = |value: &Value| value.write(0).map(|bytes| String::from_utf8(bytes).expect("text"));
        row.map(|row| row.iter().map(text).collect())
    }

    #[test]
    fn accounts_follow_from_their_number() {
        let one = |text: &str| vec![Some(text.to_owned())];
        assert_eq!(row("SELECT abalance FROM pgbench_accounts WHERE aid = 7", &[]), Some(one("55433")));
        let prepared = "select aid, bid, abalance from pgbench_accounts where aid = $1";
        let wanted = ["200001", "3", "803170"].map(|text| Some(text.to_owned())).to_vec();
        assert_eq!(row(prepared, &[Value::Whole(200_001, INT4)]), Some(wanted));
        assert_eq!(row(prepared, &[Value::Whole(0, INT4)]), None);
        assert_eq!(row(prepared, &[Value::Null]), None);
        assert_eq!(row("select abalance from pgbench_accounts where aid = 99999999999", &[]), None);
    }

    #[test]
    fn no_two_of_a_million_accounts_have_one_balance() {
        let mut seen = vec![false; 1_000_003];
        for aid in 1..=1_000_000 {
            let balance = usize::try_from(abalance(aid)).expect("positive");
            assert!(!std::mem::replace(&mut seen[balance], true), "{aid}");
        }
    }

    #[test]
    fn any_other_row_follows_from_text_and_parameters() {
        let text = "select name from users where id = $1 and city = $2";
        let first = row(text, &[Value::Whole(1, INT4), Value::Bytes(b"a".to_vec())]).expect("a row");
        assert_eq!(first[0].as_ref().expect("no NULL").len(), 16);
        let others = [
            row(text, &[Value::Whole(2, INT4), Value::Bytes(b"a".to_vec())]),
            row(text, &[Value::Whole(1, INT4), Value::Bytes(b"b".to_vec())]),
            row(text, &[Value::Whole(1, INT4), Value::Null]),
            row(
                "select name from users where id = $1 or city = $2",
                &[Value::Whole(1, INT4), Value::Bytes(b"a".to_vec())],
            ),
        ];
        for other in others {
            assert_ne!(other.expect("a row"), first);
        }
        assert_eq!(row(text, &[Value::Whole(1, INT4), Value::Bytes(b"a".to_vec())]), Some(first));
        let long = Select::read(b"select x from y", &[])
            .row(&[], RowTerms { payload: 1_000, requests: 0 })
            .expect("a row")
            .expect("a row");
        assert_eq!(long[0].write(0).expect("no NULL").len(), 1_000);
    }
}
