//! A command with its arguments.

use weir_mongodb_codec::bson::{Document, Kind, Value};
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::message::{Flags, Message};

use super::failure::{Failure, code};

/// Bytes of a comment that replies repeat. A longer one is no mark of a request.
pub(super) const MARK_BYTES_MAX: usize = 256;

/// A command of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub command: Command<'a>,
    pub flags: Flags,
    /// `None`: it came as OP_QUERY, which has no document sequences.
    message: Option<Message<'a>>,
}

/// Options of a command, found in one pass over its body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options<'a> {
    /// `filter`, or `query` of commands from the time before.
    pub filter: Option<Document<'a>>,
    pub sort: Option<Document<'a>>,
    pub cursor: Option<Document<'a>>,
    pub skip: Option<i64>,
    pub limit: Option<i64>,
    pub batch_size: Option<i64>,
    pub is_single_batch: bool,
    pub is_tailable: bool,
    /// `comment`, if it is short enough for a mark.
    pub mark: Option<Value<'a>>,
}

impl<'a> Request<'a> {
    pub fn of_message(message: Message<'a>) -> Result<Self, Failure> {
        Ok(Self { command: Command::read(message.body)?, flags: message.flags, message: Some(message) })
    }

    pub fn of_query(body: Document<'a>, database: &'a [u8]) -> Result<Self, Failure> {
        Ok(Self { command: Command::read_in(body, Some(database))?, flags: Flags::empty(), message: None })
    }

    /// The name of the command, for texts.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(self.command.name).into_owned()
    }

    /// No reply is wanted.
    pub fn is_silent(&self) -> bool {
        self.flags.contains(Flags::MORE_TO_COME)
    }

    /// A part of a transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.command.is_in_transaction
    }

    /// The end of a transaction.
    pub fn is_end(&self) -> bool {
        matches!(self.command.name, b"commitTransaction" | b"abortTransaction")
    }

    /// An argument of any type.
    pub fn get(&self, name: &[u8]) -> Result<Option<Value<'a>>, Failure> {
        Ok(self.command.body.get(name)?)
    }

    /// Whether an argument is true.
    pub fn has(&self, name: &[u8]) -> Result<bool, Failure> {
        Ok(self.get(name)?.is_some_and(Value::is_true))
    }

    /// An argument that is a document or an array.
    pub fn document(&self, name: &[u8]) -> Result<Option<Document<'a>>, Failure> {
        match self.get(name)? {
            Some(value) => Ok(value.as_document()?),
            None => Ok(None),
        }
    }

    /// The options of reads.
    pub fn options(&self) -> Result<Options<'a>, Failure> {
        let mut options = Options::default();
        for element in self.command.body.elements() {
            let element = element?;
            let value = element.value;
            match element.name {
                b"filter" | b"query" | b"q" => options.filter = value.as_document()?,
                b"sort" => options.sort = value.as_document()?,
                b"cursor" => options.cursor = value.as_document()?,
                b"skip" => options.skip = value.as_integer(),
                b"limit" => options.limit = value.as_integer(),
                b"batchSize" => options.batch_size = value.as_integer(),
                b"singleBatch" => options.is_single_batch = value.is_true(),
                b"tailable" => options.is_tailable = value.is_true(),
                b"comment" => options.mark = mark(value),
                _ => {}
            }
        }
        if let Some(cursor) = options.cursor {
            options.batch_size = cursor.get(b"batchSize")?.and_then(Value::as_integer);
        }
        Ok(options)
    }

    /// `comment`, if it is short enough for a mark.
    pub fn mark(&self) -> Option<Value<'a>> {
        self.command.body.get(b"comment").ok().flatten().and_then(mark)
    }

    /// The database and the collection of the command, as one name.
    pub fn namespace(&self) -> Result<Vec<u8>, Failure> {
        let collection = self.command.collection().filter(|name| !name.is_empty());
        let collection = collection.ok_or_else(|| {
            let text = format!("Invalid namespace specified for {}: the collection is missing", self.name());
            Failure::new(code::INVALID_NAMESPACE, text)
        })?;
        Ok([self.command.db, b".", collection].concat())
    }

    /// The documents of an argument, wherever they are: in the body, or in a sequence beside it.
    pub fn documents(&self, name: &str) -> Result<Vec<Document<'a>>, Failure> {
        let sequence =
            self.message.and_then(|message| message.sequences().find(|one| one.identifier == name.as_bytes()));
        if let Some(sequence) = sequence {
            return Ok(sequence.documents().collect::<Result<_, _>>()?);
        }
        let array = self.get(name.as_bytes())?.filter(|value| value.kind == Kind::Array);
        let Some(array) = array.map(Value::as_document).transpose()?.flatten() else {
            let text = format!("BSON field '{}.{name}' is missing but a required field", self.name());
            return Err(Failure::new(40_414, text));
        };
        let document = |value: Value<'a>| value.as_document()?.ok_or_else(|| wrong_type(name));
        array.elements().map(|element| document(element?.value)).collect()
    }
}

/// The error about an argument of another type.
pub(super) fn wrong_type(name: &str) -> Failure {
    Failure::new(code::TYPE_MISMATCH, format!("BSON field '{name}' is the wrong type"))
}

fn mark(value: Value<'_>) -> Option<Value<'_>> {
    (value.bytes.len() <= MARK_BYTES_MAX).then_some(value)
}
