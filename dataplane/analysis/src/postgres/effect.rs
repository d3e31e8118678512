//! Changes that a statement makes to the session in which it runs.

use super::range::Range;

/// A name as the server keeps it: unquoted parts in lower case, quoted ones as they are, cut at 63 bytes.
pub type Name = Box<[u8]>;

/// How long a setting lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Until the session ends; undone when the transaction fails.
    Session,
    /// Until the transaction ends (`SET LOCAL`).
    Local,
}

/// The new value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// That of a session which has set nothing.
    Default,
    /// As it was written, such that `SET name TO value` repeats it (`SET TIME ZONE value` when it begins with
    /// INTERVAL). A string in it has the reading of the session that sent it.
    Sql(Box<[u8]>),
    /// A string as it was written, such that `set_config(name, value, false)` repeats it: SET would quote a list of
    /// names.
    Config(Box<[u8]>),
    /// Not in the text: a parameter, an expression, the current value.
    Unknown,
}

/// One effect on the session. An effect is what happens *if* the statement succeeds and reaches the place; an effect
/// inside a transaction block is undone by a rollback unless the text says otherwise.
///
/// Names are copies and not ranges: sessions keep them until the server has answered, when the text is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// `BEGIN`, `START TRANSACTION`.
    Begin {
        /// `READ ONLY` or `READ WRITE`, if the statement says it.
        read_only: Option<bool>,
    },
    /// `COMMIT`, `END`.
    Commit {
        /// `AND CHAIN`: a new transaction with the same modes begins at once.
        chain: bool,
    },
    /// `ROLLBACK`, `ABORT`.
    Rollback {
        /// As for COMMIT.
        chain: bool,
    },
    /// `SAVEPOINT name`.
    Savepoint(Name),
    /// `RELEASE [SAVEPOINT] name`.
    Release(Name),
    /// `ROLLBACK TO [SAVEPOINT] name`.
    RollbackTo(Name),
    /// `PREPARE TRANSACTION`: the transaction leaves the session and waits at the server.
    PrepareTransaction,
    /// `COMMIT PREPARED`, `ROLLBACK PREPARED`: ends a transaction of no session.
    FinishPrepared,
    /// `SET TRANSACTION`, and SET of one of the settings `transaction_*`: of the current transaction only.
    SetTransaction {
        /// `READ ONLY` or `READ WRITE`, if the statement says it.
        read_only: Option<bool>,
    },
    /// `SET CONSTRAINTS`: of the current transaction only.
    SetConstraints,
    /// A setting gets a value. All spellings of SET arrive here, and `set_config` with texts that are sure to be set.
    Set {
        /// Session or transaction.
        scope: Scope,
        /// In lower case: settings have no case. `SET TIME ZONE` is `timezone`, `SET NAMES` is `client_encoding`,
        /// `SET SCHEMA` is `search_path`, and so on.
        name: Name,
        /// Its new value.
        value: Value,
    },
    /// `set_config(...)` of which the name, the value or the run is not sure: a parameter, an expression, a WHERE.
    SetConfig {
        /// The setting, in lower case, if it is a plain text.
        name: Option<Name>,
        /// Whether it ends with the transaction, if that is plain.
        is_local: Option<bool>,
    },
    /// `RESET name`.
    Reset(Name),
    /// `RESET ALL`. Role and session authorization stay.
    ResetAll,
    /// `SET ROLE`, and every other spelling of it; [`Value::Default`] for `NONE` and `RESET ROLE`.
    SetRole {
        /// Session or transaction.
        scope: Scope,
        /// The role.
        value: Value,
    },
    /// `SET SESSION AUTHORIZATION`, and every other spelling of it.
    SetSessionAuthorization {
        /// Session or transaction.
        scope: Scope,
        /// The role.
        value: Value,
    },
    /// `PREPARE name (types) AS body`. Not undone by a rollback.
    Prepare {
        /// Name of the statement.
        name: Name,
        /// The types without their parentheses; empty without types.
        types: Range,
        /// The statement that is prepared.
        body: Range,
    },
    /// `EXECUTE name (arguments)`, also inside EXPLAIN and CREATE TABLE AS.
    Execute {
        /// Name of the statement.
        name: Name,
        /// The name in the text, so that a session can replace it.
        at: Range,
    },
    /// `DEALLOCATE name`. Not undone by a rollback.
    Deallocate(Name),
    /// `DEALLOCATE ALL`.
    DeallocateAll,
    /// `DECLARE name CURSOR`.
    DeclareCursor {
        /// Name of the cursor.
        name: Name,
        /// `WITH HOLD`: it outlives the transaction.
        hold: bool,
    },
    /// `CLOSE name`.
    CloseCursor(Name),
    /// `CLOSE ALL`.
    CloseAllCursors,
    /// `LISTEN channel`; from the commit on.
    Listen(Name),
    /// `UNLISTEN channel`.
    Unlisten(Name),
    /// `UNLISTEN *`.
    UnlistenAll,
    /// `NOTIFY`, `pg_notify`: nothing stays in the session, but the server reports the session's process.
    Notify,
    /// An object in the first schema of `search_path`, unless its name has a schema: a temporary one if that schema is `pg_temp`.
    Create,
    /// A temporary object of any kind, or an object in `pg_temp`.
    CreateTemp {
        /// `ON COMMIT DROP`: gone with the transaction.
        drops_on_commit: bool,
    },
    /// `DISCARD ALL`.
    DiscardAll,
    /// `DISCARD PLANS`.
    DiscardPlans,
    /// `DISCARD SEQUENCES`.
    DiscardSequences,
    /// `DISCARD TEMP`.
    DiscardTemp,
    /// `pg_advisory_lock` and its kin: until an unlock, `pg_advisory_unlock_all`, or the session's end. Not undone by a
    /// rollback.
    AdvisoryLock,
    /// `pg_advisory_unlock`, one of perhaps several.
    AdvisoryUnlock,
    /// `pg_advisory_unlock_all`.
    AdvisoryUnlockAll,
    /// `nextval`, `setval`: the session's `currval` and `lastval` change. Harmless to a client that never reads these.
    AdvanceSequence,
    /// `currval`, `lastval`: the statement reads what an earlier one left in the session.
    ReadSequence,
    /// `LOAD`: a library stays in the server process.
    Load,
    /// Something runs of which the text does not say what it does: DO, CALL, an unknown statement, a function that runs
    /// text or keeps state in its session.
    Opaque,
}
