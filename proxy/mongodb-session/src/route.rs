//! Which server a command may have.

use weir_analysis::mongodb::{Class, classify};
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

/// The way of a command that pins decide about.
pub(crate) enum Way {
    /// To a server.
    Take(Want),
    /// The gateway kills these cursors itself, and answers: some of the ids are unknown, or they live at several servers.
    Kill { found: Vec<(CursorKey, ServerId)>, unknown: Vec<i64> },
}

/// Finds the way of a command, and notes in the exchange what its reply may change.
pub(crate) fn way(command: &Command<'_>, owner: &Owner, pins: &Pins, exchange: &mut Exchange) -> Result<Way, Refusal> {
    let cursor_key = |id: i64| CursorKey { owner: owner.clone(), session: command.session.copied(), id };
    if let Some((session, number)) = transaction_of(command) {
        let key = SessionKey { owner: owner.clone(), session: *session };
        exchange.transaction = Some(Transaction { session: *session, number, part: Part::of(command) });
        exchange.cursor = command.cursor();
        let want = in_transaction(&key, number, exchange, pins)?;
        // A cursor of another owner stays out of reach within a transaction as well.
        return match exchange.cursor.filter(|id| pins.cursor(&cursor_key(*id)).is_none()) {
            Some(id) => Err(Refusal::cursor_not_found(id)),
            None => Ok(Way::Take(want)),
        };
    }
    match command.name {
        b"getMore" => {
            // Some servers take other types, and would take a cursor of another owner.
            let Some(id) = command.cursor() else { return Err(weir_mongodb_codec::CommandError::Type.into()) };
            exchange.cursor = Some(id);
            let server = pins.cursor(&cursor_key(id)).ok_or_else(|| Refusal::cursor_not_found(id))?;
            Ok(Way::Take(Want::Server(server)))
        }
        b"killCursors" => {
            let ids = killed(command)?;
            let (mut found, mut unknown, mut server, mut is_one) = (Vec::new(), Vec::new(), None, true);
            for id in ids {
                match pins.cursor(&cursor_key(id)) {
                    Some(place) => {
                        is_one &= *server.get_or_insert(place) == place;
                        found.push((cursor_key(id), place));
                    }
                    None => unknown.push(id),
                }
            }
            match server.filter(|_| is_one && unknown.is_empty()) {
                Some(server) => {
                    exchange.killed = found.into_iter().map(|(key, _)| key).collect();
                    Ok(Way::Take(Want::Server(server)))
                }
                None => Ok(Way::Kill { found, unknown }),
            }
        }
        _ => Ok(Way::Take(Want::Any(ReadMode::of(command)))),
    }
}

/// Session and number of a part of a transaction. A server refuses one that lacks either.
fn transaction_of<'a>(command: &Command<'a>) -> Option<(&'a [u8; 16], i64)> {
    command.session.zip(command.txn_number).filter(|_| command.is_in_transaction)
}

fn in_transaction(key: &SessionKey, number: i64, exchange: &Exchange, pins: &Pins) -> Result<Want, Refusal> {
    let part = exchange.transaction.map(|transaction| transaction.part);
    match (part, pins.transaction(key, number)) {
        (_, TransactionRoute::Foreign) => Err(Refusal::no_such_transaction(number)),
        // One that is repeated with its number is where it was.
        (Some(Part::Start), TransactionRoute::Unknown) if pins.has_room_for_transaction(key) => {
            Ok(Want::Any(ReadMode::Primary))
        }
        (Some(Part::Start), TransactionRoute::Unknown) => Err(Refusal::overloaded("mongodb_transactions")),
        (_, TransactionRoute::Server(server)) => Ok(Want::Server(server)),
        // Whatever primary there is now knows whether it was committed.
        (Some(Part::Commit | Part::Abort), _) | (_, TransactionRoute::Unknown) => Ok(Want::Any(ReadMode::Primary)),
        (_, TransactionRoute::Lost) => Err(Refusal::no_such_transaction(number)),
    }
}

/// The ids of a killCursors.
fn killed(command: &Command<'_>) -> Result<Vec<i64>, Refusal> {
    let too_many = || Refusal::too_many("mongodb_killed_cursors", "killCursors may name 1000 cursors");
    let mut ids = Vec::new();
    for element in command.cursors.map(|cursors| cursors.elements()).into_iter().flatten() {
        let id = element.map_err(weir_mongodb_codec::CommandError::from)?.value.as_integer();
        ids.push(id.ok_or(weir_mongodb_codec::CommandError::Type)?);
        if ids.len() > KILLED_CURSORS_MAX {
            return Err(too_many());
        }
    }
    Ok(ids)
}

/// The sessions of an endSessions. Others are the server's to refuse.
pub(crate) fn ended(command: &Command<'_>) -> Vec<[u8; 16]> {
    let list = command.value.as_document().ok().flatten();
    let sessions = list.map(|list| list.elements()).into_iter().flatten().take(ENDED_SESSIONS_MAX);
    let id = |value: Value<'_>| value.as_document().ok()??.get(b"id").ok()??.as_binary()?.1.try_into().ok();
    sessions.filter_map(|session| id(session.ok()?.value)).collect()
}
