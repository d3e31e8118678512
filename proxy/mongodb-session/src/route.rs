//! Which server a command may have.

use weir_analysis::mongodb::{Class, classify};
use weir_mongodb_codec::CommandError;
use weir_mongodb_codec::bson::Value;
use weir_mongodb_codec::command::Command;

use crate::exchange::{Exchange, Part, Transaction};
use crate::pins::{CursorKey, Pins, ServerId, SessionKey, TransactionRoute};
use crate::refusal::Refusal;
use crate::users::Owner;

/// Cursors that one killCursors may name. Drivers name one.
pub const KILLED_CURSORS_MAX: usize = 1_000;

/// Sessions that one endSessions may name. Drivers name at most 10,000.
pub const ENDED_SESSIONS_MAX: usize = 10_000;

/// The server that the next command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// One that the read preference fits: tags and staleness are in the command.
    Any(ReadMode),
    /// This one: a cursor or a transaction lives there. Without a connection to it, call
    /// [`Session::on_no_server`](crate::Session::on_no_server).
    Server(ServerId),
}

/// The mode of a read preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// The primary.
    #[default]
    Primary,
    /// The primary, or a secondary if there is none.
    PrimaryPreferred,
    /// A secondary.
    Secondary,
    /// A secondary, or the primary if there is none.
    SecondaryPreferred,
    /// The fastest member.
    Nearest,
}

impl ReadMode {
    /// From its text in `$readPreference`. Another text is the server's to refuse.
    #[must_use]
    pub fn from_text(text: &[u8]) -> ReadMode {
        match text {
            b"primaryPreferred" => ReadMode::PrimaryPreferred,
            b"secondary" => ReadMode::Secondary,
            b"secondaryPreferred" => ReadMode::SecondaryPreferred,
            b"nearest" => ReadMode::Nearest,
            _ => ReadMode::Primary,
        }
    }

    /// The mode of a command: only plain reads may leave the primary, and none that a linearizable read concern binds to it.
    #[must_use]
    pub fn of(command: &Command<'_>) -> ReadMode {
        if command.read_preference.is_none() || command.is_in_transaction || classify(command).1 != Class::Read {
            return ReadMode::Primary;
        }
        let level = command.read_concern.and_then(|concern| concern.get(b"level").ok().flatten());
        match level.and_then(Value::as_string) {
            Some(b"linearizable") => ReadMode::Primary,
            _ => ReadMode::from_text(command.read_mode()),
        }
    }
}

/// Whether pins decide about a command. All others need no look at them, and so no lock.
pub(crate) fn concerns_pins(command: &Command<'_>) -> bool {
    command.is_in_transaction || matches!(command.name, b"getMore" | b"killCursors")
}

/// Whether the reply may open a cursor, and the command may be refused for it. A bulkWrite opens one for a long reply, and is no reason to
/// refuse a write.
pub(crate) fn may_open_cursor(command: &Command<'_>, class: Class) -> bool {
    class != Class::Write && matches!(command.name, b"find" | b"aggregate" | b"listCollections" | b"listIndexes")
}

/// Whether a find closes its cursor itself, as `findOne` of a driver does.
#[cold]
pub(crate) fn is_single_batch(command: &Command<'_>) -> bool {
    let value = |name: &[u8]| command.body.get(name).ok().flatten();
    command.name == b"find"
        && (value(b"singleBatch").is_some_and(Value::is_true)
            || value(b"limit").and_then(Value::as_integer).is_some_and(|limit| limit < 0))
}

/// Whether a command may end a transaction of its session without being a part of it: a write with a number does so.
pub(crate) fn concerns_transaction(command: &Command<'_>) -> bool {
    command.txn_number.is_some() || matches!(command.name, b"commitTransaction" | b"abortTransaction")
}

/// The way of a command that pins decide about.
pub(crate) enum Way {
    /// To a server.
    Take(Want),
    /// The gateway kills these cursors itself, and answers: some of the ids are unknown, or they live at several servers.
    Kill { found: Vec<(CursorKey, ServerId)>, unknown: Vec<i64> },
}

/// Finds the way of a command, and notes in the exchange the pins that its reply may change, and those that it uses until then. `is_shared`:
/// at the server, this owner and others are one user.
pub(crate) fn way(
    command: &Command<'_>,
    (owner, is_shared): (&Owner, bool),
    pins: &mut Pins,
    exchange: &mut Exchange,
) -> Result<Way, Refusal> {
    let cursor_key = |id: i64| CursorKey { owner: owner.clone(), session: command.session.copied(), id };
    // A cursor of another owner stays out of reach within a transaction as well.
    let mut server = None;
    match command.name {
        b"getMore" => {
            // Some servers take other types, and would take a cursor of another owner.
            let Some(id) = command.cursor() else { return Err(CommandError::Type.into()) };
            exchange.cursor = Some(id);
            server = Some(pins.cursor(&cursor_key(id)).ok_or_else(|| Refusal::cursor_not_found(id))?);
        }
        b"killCursors" => {
            let (found, unknown) = find(killed(command)?.into_iter().map(cursor_key), pins);
            server = found.first().map(|(_, server)| *server);
            if !unknown.is_empty() || server.is_none() || found.iter().any(|(_, place)| Some(*place) != server) {
                return Ok(Way::Kill { found, unknown });
            }
            exchange.killed = found.into_iter().map(|(key, _)| key).collect();
        }
        _ => {}
    }
    let mut want = server.map_or_else(|| Want::Any(ReadMode::of(command)), Want::Server);
    if let Some((session, number)) = transaction_of(command) {
        let key = SessionKey { owner: owner.clone(), session: *session };
        exchange.transaction = Some(Transaction { session: *session, number, part: Part::of(command) });
        match (in_transaction((&key, is_shared), number, exchange, pins)?, server) {
            (Want::Server(its), Some(server)) if its != server => return elsewhere(exchange, server),
            (its, None) => want = its,
            _ => {}
        }
        begin_use(&key, number, exchange, pins)?;
    }
    // A request without a reply has no end that could be seen.
    if let Some(id) = exchange.cursor.filter(|_| !exchange.is_unacknowledged) {
        exchange.uses_cursor = pins.use_cursor(&cursor_key(id));
    }
    Ok(Way::Take(want))
}

/// A cursor at another server than the transaction: that server may have one of this id that is another owner's.
fn elsewhere(exchange: &mut Exchange, server: ServerId) -> Result<Way, Refusal> {
    match exchange.cursor {
        Some(id) => Err(Refusal::cursor_not_found(id)),
        None => {
            let found = exchange.killed.drain(..).map(|key| (key, server)).collect();
            Ok(Way::Kill { found, unknown: Vec::new() })
        }
    }
}

/// Cursors with their servers, and ids of those that this owner does not have.
fn find(keys: impl Iterator<Item = CursorKey>, pins: &Pins) -> (Vec<(CursorKey, ServerId)>, Vec<i64>) {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for key in keys {
        match pins.cursor(&key) {
            Some(place) => found.push((key, place)),
            None => unknown.push(key.id),
        }
    }
    (found, unknown)
}

/// Session and number of a part of a transaction. A server refuses one that lacks either.
fn transaction_of<'a>(command: &Command<'a>) -> Option<(&'a [u8; 16], i64)> {
    command.session.zip(command.txn_number).filter(|_| command.is_in_transaction)
}

fn in_transaction(
    (key, is_shared): (&SessionKey, bool),
    number: i64,
    exchange: &Exchange,
    pins: &Pins,
) -> Result<Want, Refusal> {
    let part = exchange.transaction.map(|transaction| transaction.part);
    match (part, pins.transaction(key, number)) {
        (_, TransactionRoute::Foreign) => Err(Refusal::no_such_transaction(number)),
        // One that is repeated with its number is where it was.
        (Some(Part::Start), TransactionRoute::Unknown) if pins.has_room_for_transaction(key) => {
            Ok(Want::Any(ReadMode::Primary))
        }
        (Some(Part::Start), TransactionRoute::Unknown) => Err(Refusal::overloaded("mongodb_transactions")),
        (_, TransactionRoute::Server(server)) => Ok(Want::Server(server)),
        // It may be another owner's, and its own server ends it in a minute.
        (Some(Part::Abort), TransactionRoute::Unknown) if is_shared => Err(Refusal::no_such_transaction(number)),
        // The primary of now knows whether it was committed, which a second attempt has to learn.
        (Some(Part::Commit | Part::Abort), _) => Ok(Want::Any(ReadMode::Primary)),
        // One that is not known here is nobody's, and may be anybody's at the server.
        (_, TransactionRoute::Lost | TransactionRoute::Unknown) => Err(Refusal::no_such_transaction(number)),
    }
}

/// The transaction is in use until the reply, or claimed until its first command has a server.
fn begin_use(key: &SessionKey, number: i64, exchange: &mut Exchange, pins: &mut Pins) -> Result<(), Refusal> {
    if exchange.transaction.is_some_and(|transaction| transaction.part == Part::Start) {
        exchange.has_claim = pins.claim(key);
        // Another owner was faster.
        if !exchange.has_claim {
            return Err(Refusal::no_such_transaction(number));
        }
    }
    exchange.uses_transaction = !exchange.is_unacknowledged && pins.use_transaction(key, number);
    Ok(())
}

/// The ids of a killCursors.
fn killed(command: &Command<'_>) -> Result<Vec<i64>, Refusal> {
    let too_many = || Refusal::too_many("mongodb_killed_cursors", "killCursors may name 1000 cursors");
    let mut ids = Vec::new();
    for element in command.cursors.map(|cursors| cursors.elements()).into_iter().flatten() {
        let id = element.map_err(CommandError::from)?.value.as_integer();
        ids.push(id.ok_or(CommandError::Type)?);
        if ids.len() > KILLED_CURSORS_MAX {
            return Err(too_many());
        }
    }
    Ok(ids)
}

/// The sessions of an endSessions or a killSessions: each is named once, in the one form that drivers use. A server may read
/// another one from any other form.
pub(crate) fn ended(command: &Command<'_>) -> Result<Vec<[u8; 16]>, Refusal> {
    let list = command.value.as_document().map_err(CommandError::from)?.ok_or(CommandError::Type)?;
    let mut sessions = Vec::new();
    for element in list.elements() {
        let value = element.map_err(CommandError::from)?.value;
        let lsid = value.as_document().map_err(CommandError::from)?.ok_or(CommandError::Type)?;
        let mut id = None;
        for field in lsid.elements() {
            let field = field.map_err(CommandError::from)?;
            if field.name != b"id" {
                continue;
            }
            let bytes = field.value.as_binary().and_then(|(_, bytes)| <[u8; 16]>::try_from(bytes).ok());
            if id.replace(bytes.ok_or(CommandError::Type)?).is_some() {
                return Err(CommandError::Duplicate.into());
            }
        }
        sessions.push(id.ok_or(CommandError::Type)?);
        if sessions.len() > ENDED_SESSIONS_MAX {
            return Err(Refusal::too_many("mongodb_ended_sessions", "a command may end 10000 sessions"));
        }
    }
    Ok(sessions)
}
