//! The facts of a text and of each statement in it.

use super::effect::Effect;
use super::range::Range;

/// The kind of a statement. The first row that fits counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Runs programs, reads files of the server, or acts on the server as a whole: COPY with PROGRAM or a file, VACUUM,
    /// ANALYZE, CLUSTER, REINDEX, CHECKPOINT, LOAD, ALTER SYSTEM, and functions such as `pg_terminate_backend`.
    Admin,
    /// Changes the schema or rights, SELECT INTO and CREATE TABLE AS included.
    Ddl,
    /// INSERT, UPDATE, DELETE, MERGE, TRUNCATE, LOCK, also inside WITH, EXPLAIN ANALYZE, PREPARE or DECLARE.
    Write,
    /// COPY between the server and the client.
    Copy,
    /// Begins, ends or shapes a transaction.
    Transaction,
    /// Concerns the session: SET, RESET, EXECUTE, DEALLOCATE, DISCARD, LISTEN, UNLISTEN, NOTIFY, CLOSE.
    Session,
    /// SELECT, VALUES, TABLE, SHOW, FETCH, MOVE, EXPLAIN. A lock (`FOR UPDATE`) or a function may still write:
    /// `is_read_only` says so.
    Read,
    /// DO, CALL, and what this lexer does not know.
    Unknown,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 8] =
        [Self::Admin, Self::Ddl, Self::Write, Self::Copy, Self::Transaction, Self::Session, Self::Read, Self::Unknown];

    /// The word of rules, metrics and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Ddl => "ddl",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Transaction => "transaction",
            Self::Session => "session",
            Self::Read => "read",
            Self::Unknown => "unknown",
        }
    }
}

macro_rules! verbs {
    ($($verb:ident $word:literal,)*) => {
        /// The command word of a statement, behind WITH and parentheses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Verb {
            $(#[doc = $word] $verb,)*
        }

        impl Verb {
            /// Every verb.
            pub const ALL: &[Self] = &[$(Self::$verb,)*];

            /// The word of rules, metrics and logs, in lower case.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$verb => $word,)*
                }
            }
        }
    };
}

verbs! {
    Abort "abort", Alter "alter", Analyze "analyze", Begin "begin", Call "call", Checkpoint "checkpoint", Close "close",
    Cluster "cluster", Comment "comment", Commit "commit", Copy "copy", Create "create", Deallocate "deallocate",
    Declare "declare", Delete "delete", Discard "discard", Do "do", Drop "drop", End "end", Execute "execute",
    Explain "explain", Fetch "fetch", Grant "grant", Import "import", Insert "insert", Listen "listen", Load "load",
    Lock "lock", Merge "merge", Move "move", Notify "notify", Prepare "prepare", Reassign "reassign",
    Refresh "refresh", Reindex "reindex", Release "release", Reset "reset", Revoke "revoke", Rollback "rollback",
    Savepoint "savepoint", Security "security", Select "select", Set "set", Show "show", Start "start", Table "table",
    Truncate "truncate", Unlisten "unlisten", Update "update", Vacuum "vacuum", Values "values", Unknown "unknown",
}

const _: () = assert!(Verb::ALL.len() <= u64::BITS as usize);

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verbs(u64);

impl Verbs {
    /// Adds one.
    pub fn insert(&mut self, verb: Verb) {
        self.0 |= 1 << verb as u32;
    }

    /// Adds all of those.
    pub fn add(&mut self, those: Self) {
        self.0 |= those.0;
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether one of these is one of those.
    pub const fn overlaps(self, those: Self) -> bool {
        self.0 & those.0 != 0
    }

    /// Whether each of these is one of those.
    pub const fn is_within(self, those: Self) -> bool {
        self.0 & !those.0 == 0
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        let mut set = Self::default();
        verbs.into_iter().for_each(|verb| set.insert(verb));
        set
    }
}

/// Where the rows of a COPY come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyPlan {
    /// COPY FROM; otherwise COPY TO.
    pub is_from: bool,
    /// The other end.
    pub medium: CopyMedium,
}

/// The other end of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyMedium {
    /// STDIN or STDOUT: the client.
    Client,
    /// A file of the server.
    File,
    /// A program that the server runs.
    Program,
}

/// One statement of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// From its first token to its last, without the semicolon.
    pub range: Range,
    /// Its kind.
    pub class: Class,
    /// Its command word.
    pub verb: Verb,
    /// All verbs of what it does: its own; that of the statement which it prepares, declares, copies, or explains with ANALYZE; INSERT,
    /// UPDATE, DELETE and MERGE anywhere in it, also in WITH; `create` for SELECT INTO. Queries in parentheses add no `select`.
    pub verbs: Verbs,
    /// Whether it changes nothing that another session could see, takes no lock beyond that of a plain SELECT, and runs
    /// on a standby, as far as its text shows. Functions and views of the database's own can do more.
    pub is_read_only: bool,
    /// Its changes to the session, in the order of the text. Mostly empty, which allocates nothing.
    pub effects: Vec<Effect>,
    /// Tables, views and sequences that it names as relations, with their schema, in the order of the text. Names of
    /// its own WITH are none. Compare with [`name`](super::name).
    pub tables: Vec<Range>,
    /// Functions that it names, with their schema. Syntax in the form of a function (COALESCE, EXTRACT) is none.
    pub functions: Vec<Range>,
    /// The ends of a COPY.
    pub copy: Option<CopyPlan>,
}

/// The facts of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// Its statements, in order; empty ones are none, as for the server.
    pub statements: Vec<Statement>,
    /// Whether the rest is to be believed. False if the text is over a budget, or is no text that a server would take
    /// apart in one way only; then nothing is known, and all other fields are empty.
    pub is_whole: bool,
    /// Why `is_whole` is false.
    pub flaw: Option<Flaw>,
    /// The content of the last block comment in front of the first token, without `/*` and `*/`: where routers put
    /// hints.
    pub leading_comment: Option<Range>,
    /// The content of the last block comment behind the last token: where sqlcommenter puts its pairs.
    pub trailing_comment: Option<Range>,
    /// The same for texts that differ only in literals, parameters, white space, comments and case (`fingerprint.rs`).
    /// 0 if the text is not whole or has no statement.
    pub fingerprint: u64,
}

/// Why nothing is known of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// More bytes than [`Limits::bytes_max`](super::Limits::bytes_max).
    Bytes,
    /// More tokens.
    Tokens,
    /// More statements.
    Statements,
    /// Deeper.
    Depth,
    /// A string, quoted name or comment without its end. The server refuses the text.
    Unterminated,
    /// A byte 0, where a server's text ends.
    Nul,
    /// Two statements or one, depending on a setting or on grammar that a lexer cannot decide.
    Ambiguous,
}

impl Analysis {
    pub(super) fn flawed(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), is_whole: false, ..Self::empty() }
    }

    pub(super) const fn empty() -> Self {
        Self {
            statements: Vec::new(),
            is_whole: true,
            flaw: None,
            leading_comment: None,
            trailing_comment: None,
            fingerprint: 0,
        }
    }

    /// Whether the text is known to leave the session as it is: whole, and without an effect.
    pub fn is_plain(&self) -> bool {
        self.is_whole && self.statements.iter().all(|statement| statement.effects.is_empty())
    }

    /// Whether the text is known to write nothing: whole, and each statement read-only.
    pub fn is_read_only(&self) -> bool {
        self.is_whole && self.statements.iter().all(|statement| statement.is_read_only)
    }

    /// Bytes on the heap, for a bound of memory.
    pub fn heap_bytes(&self) -> usize {
        let of = |statement: &Statement| {
            let ranges = statement.tables.capacity() + statement.functions.capacity();
            let effects = statement.effects.capacity() * size_of::<Effect>();
            // A name is at most 63 bytes, or a value that the text has.
            ranges * size_of::<Range>() + effects + statement.effects.len() * 64 + statement.range.len()
        };
        self.statements.capacity() * size_of::<Statement>() + self.statements.iter().map(of).sum::<usize>()
    }
}
