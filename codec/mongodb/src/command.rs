//! The fields of a command that decide on its server, and on the state that it binds.
//!
//! One pass over the headers of the body's elements. A field of this list that is there twice makes the command unusable: a policy
//! and a server might read different ones.

use crate::bson::{Document, Element, Kind, Value};
use crate::error::CommandError;
use crate::limits::{COLLECTION_BYTES_MAX, DATABASE_BYTES_MAX};

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The whole body.
    pub body: Document<'a>,
    /// The name of the first element. Case counts.
    pub name: &'a [u8],
    /// Its value: mostly the collection, or a number.
    pub value: Value<'a>,
    /// `$db`: a possible name of a database.
    pub db: &'a [u8],
    /// `lsid.id`: the logical session.
    pub session: Option<&'a [u8; 16]>,
    /// `txnNumber`: of a transaction, or of a write that may be retried.
    pub txn_number: Option<i64>,
    /// `startTransaction: true`.
    pub is_transaction_start: bool,
    /// `autocommit: false`: a part of a transaction.
    pub is_in_transaction: bool,
    /// `$readPreference`.
    pub read_preference: Option<Document<'a>>,
    /// `readConcern`.
    pub read_concern: Option<Document<'a>>,
    /// `writeConcern`.
    pub write_concern: Option<Document<'a>>,
    /// `maxTimeMS`, in milliseconds.
    pub max_time_ms: Option<i64>,
    /// `pipeline`: the stages of an aggregation.
    pub pipeline: Option<Document<'a>>,
    /// `cursors` of killCursors.
    pub cursors: Option<Document<'a>>,
    /// `collection` of getMore.
    named: Option<Value<'a>>,
}

/// A bit for each field that may be there once.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Field {
    Db,
    Lsid,
    TxnNumber,
    StartTransaction,
    Autocommit,
    ReadPreference,
    ReadConcern,
    WriteConcern,
    MaxTime,
    Pipeline,
    Cursors,
    Collection,
}

impl Field {
    #[inline]
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"$db" => Self::Db,
            b"lsid" => Self::Lsid,
            b"txnNumber" => Self::TxnNumber,
            b"startTransaction" => Self::StartTransaction,
            b"autocommit" => Self::Autocommit,
            b"$readPreference" => Self::ReadPreference,
            b"readConcern" => Self::ReadConcern,
            b"writeConcern" => Self::WriteConcern,
            b"maxTimeMS" => Self::MaxTime,
            b"pipeline" => Self::Pipeline,
            b"cursors" => Self::Cursors,
            b"collection" => Self::Collection,
            _ => return None,
        })
    }
}

impl<'a> Command<'a> {
    /// Reads the body of an OP_MSG.
    ///
    /// # Errors
    /// The body is empty or broken, a field is there twice or has a wrong type, or a name cannot be one.
    #[inline]
    pub fn read(body: Document<'a>) -> Result<Self, CommandError> {
        let command = Self::read_in(body, None)?;
        if command.db.is_empty() { Err(CommandError::NoDatabase) } else { Ok(command) }
    }

    /// Reads the body of an OP_QUERY, whose database is a part of its namespace.
    ///
    /// # Errors
    /// As [`Command::read`].
    pub fn read_in(body: Document<'a>, database: Option<&'a [u8]>) -> Result<Self, CommandError> {
        let mut elements = body.elements();
        let first = elements.next().ok_or(CommandError::Empty)??;
        let mut command = Self::new(body, first, database.unwrap_or_default());
        let mut known = 0_u32;
        if let Some(field) = Field::of(first.name) {
            known |= 1 << field as u32;
            command.set(field, first.value)?;
        }
        for element in elements {
            let Element { name, value } = element?;
            if name == first.name {
                return Err(CommandError::Duplicate);
            }
            let Some(field) = Field::of(name) else { continue };
            let bit = 1 << field as u32;
            if known & bit != 0 {
                return Err(CommandError::Duplicate);
            }
            known |= bit;
            command.set(field, value)?;
        }
        if !is_database(command.db) && !command.db.is_empty() {
            return Err(CommandError::Namespace);
        }
        match command.collection() {
            Some(collection) if names_collection(first.name) && !is_collection(collection) => {
                Err(CommandError::Namespace)
            }
            _ => Ok(command),
        }
    }

    const fn new(body: Document<'a>, first: Element<'a>, db: &'a [u8]) -> Self {
        Self {
            body,
            name: first.name,
            value: first.value,
            db,
            session: None,
            txn_number: None,
            is_transaction_start: false,
            is_in_transaction: false,
            read_preference: None,
            read_concern: None,
            write_concern: None,
            max_time_ms: None,
            pipeline: None,
            cursors: None,
            named: None,
        }
    }

    #[inline]
    fn set(&mut self, field: Field, value: Value<'a>) -> Result<(), CommandError> {
        let kind = |kind: Kind| if value.kind == kind { Ok(()) } else { Err(CommandError::Type) };
        match field {
            Field::Db => self.db = value.as_string().filter(|db| !db.is_empty()).ok_or(CommandError::Namespace)?,
            Field::Lsid => self.session = Some(session(value)?),
            Field::TxnNumber => self.txn_number = Some(value.as_integer().ok_or(CommandError::Type)?),
            Field::StartTransaction => self.is_transaction_start = value.as_bool().ok_or(CommandError::Type)?,
            Field::Autocommit => self.is_in_transaction = !value.as_bool().ok_or(CommandError::Type)?,
            Field::ReadPreference => self.read_preference = document(value)?,
            Field::ReadConcern => self.read_concern = document(value)?,
            Field::WriteConcern => self.write_concern = document(value)?,
            Field::MaxTime => self.max_time_ms = value.as_integer(),
            Field::Pipeline if value.kind == Kind::Array => self.pipeline = value.as_document()?,
            Field::Cursors => {
                kind(Kind::Array)?;
                self.cursors = value.as_document()?;
            }
            Field::Pipeline => {}
            Field::Collection => self.named = Some(value),
        }
        Ok(())
    }

    /// The collection: the value of the command's name if that is a text, and of `collection` for getMore.
    #[inline]
    pub fn collection(&self) -> Option<&'a [u8]> {
        match self.name {
            b"getMore" => self.named.and_then(Value::as_string),
            _ => self.value.as_string(),
        }
    }

    /// The cursor of a getMore.
    #[inline]
    pub fn cursor(&self) -> Option<i64> {
        if self.name == b"getMore" && self.value.kind == Kind::Int64 { self.value.as_integer() } else { None }
    }

    /// The mode of the read preference; `primary` if there is none.
    pub fn read_mode(&self) -> &'a [u8] {
        let mode = self.read_preference.and_then(|preference| preference.get(b"mode").ok().flatten());
        mode.and_then(Value::as_string).unwrap_or(b"primary")
    }
}

/// `lsid: {id: UUID, ..}`. The digest of its user, if there is one, is for servers.
fn session(value: Value<'_>) -> Result<&[u8; 16], CommandError> {
    if value.kind != Kind::Document {
        return Err(CommandError::Type);
    }
    let mut found = None;
    for element in Document::read(value.bytes)?.elements() {
        let element = element?;
        if element.name == b"id" {
            if found.is_some() {
                return Err(CommandError::Duplicate);
            }
            let uuid = element.value.as_binary().filter(|(subtype, _)| *subtype == 4);
            found = uuid.and_then(|(_, bytes)| <&[u8; 16]>::try_from(bytes).ok());
            found.ok_or(CommandError::Type)?;
        }
    }
    found.ok_or(CommandError::Type)
}

fn document(value: Value<'_>) -> Result<Option<Document<'_>>, CommandError> {
    if value.kind == Kind::Document { Ok(value.as_document()?) } else { Err(CommandError::Type) }
}

/// Whether a database can have this name. `$external` is where users of other systems are.
fn is_database(name: &[u8]) -> bool {
    let is_forbidden = |byte: &u8| matches!(byte, 0 | b'/' | b'\\' | b'.' | b' ' | b'"' | b'$');
    let is_plain = !name.is_empty() && name.len() <= DATABASE_BYTES_MAX && !name.iter().any(is_forbidden);
    is_plain || name == b"$external"
}

/// Whether the text behind this command is surely a collection. For others, such as `createUser`, it may be anything.
fn names_collection(command: &[u8]) -> bool {
    matches!(
        command,
        b"find"
            | b"aggregate"
            | b"count"
            | b"distinct"
            | b"getMore"
            | b"killCursors"
            | b"insert"
            | b"update"
            | b"delete"
            | b"findAndModify"
            | b"findandmodify"
            | b"mapReduce"
            | b"create"
            | b"createIndexes"
    )
}

/// Whether a collection can have this name. Cursors of commands have names such as `$cmd.listCollections`.
fn is_collection(name: &[u8]) -> bool {
    let plain = name.strip_prefix(b"$cmd.").unwrap_or(name);
    name.len() <= COLLECTION_BYTES_MAX && !plain.iter().any(|byte| matches!(byte, 0 | b'$'))
}

#[cfg(test)]
mod tests;
