//! One message of JSON-RPC (sections 4 and 5 of its specification), read in pieces.

use std::{borrow::Cow, ops::Range};

use weir_json_codec::{Duplicates, JsonError, Kind, Node, Scanner, Sink, Value, decode};

use crate::{
    error::{INVALID_REQUEST, PARSE_ERROR},
    limits::{ID_BYTES_MAX, NAME_BYTES_MAX},
};

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A method and an id: a response is due.
    Request,
    /// A method alone.
    Notification,
    /// The response of a client to a request of its server.
    Response,
}

/// The facts of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The kind.
    pub kind: MessageKind,
    /// The id as it stands in the message: a string with its quotes, or a number.
    pub id: Option<Box<[u8]>>,
    /// The method. Empty for a response.
    pub method: Box<str>,
    /// `params.name`: the tool or the prompt. `None`: it is absent, no string, or too long.
    pub name: Option<Box<str>>,
    /// Where the name stands in the message, with its quotes.
    pub name_range: Option<Range<usize>>,
    /// `params.uri`: the resource. `None` as above.
    pub uri: Option<Box<str>>,
    /// A response with the result `{}`, as that to a `ping`: it tells nothing.
    pub has_empty_result: bool,
}

/// Why a message has no facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// It is no JSON, or readers could read it differently.
    Json(JsonError),
    /// It is an array. Batches left MCP with revision 2025-06-18, and A2A has none.
    Batch,
    /// It is no request, notification or response.
    Form,
    /// Its id is neither a string nor a number, or too long.
    Id,
    /// Its method is no string, or too long.
    Method,
}

impl MessageError {
    /// The code of JSON-RPC.
    pub const fn code(&self) -> i32 {
        match self {
            Self::Json(_) => PARSE_ERROR,
            _ => INVALID_REQUEST,
        }
    }

    /// The reason, never the bytes of the message.
    pub fn text(&self) -> Cow<'static, str> {
        match self {
            Self::Json(error) => error.to_string().into(),
            Self::Batch => "a batch of messages is not supported: send each by itself".into(),
            Self::Form => "the message is no request, notification or response of JSON-RPC 2.0".into(),
            Self::Id => "the id is no string or number of at most 256 bytes".into(),
            Self::Method => "the method is no string of at most 1,024 bytes".into(),
        }
    }

    /// The word of metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Json(error) => error.rule.reason(),
            Self::Batch => "rpc_batch",
            Self::Form => "rpc_form",
            Self::Id => "rpc_id",
            Self::Method => "rpc_method",
        }
    }
}

impl From<JsonError> for MessageError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

/// A watched place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Message,
    Id,
    Method,
    Name,
    Uri,
    Result,
    Error,
}

static MESSAGE: Node<Place> = Node::value(Place::Message).members(&[
    ("id", Node::value(Place::Id)),
    ("method", Node::value(Place::Method)),
    ("params", Node::NEW.members(&[("name", Node::value(Place::Name)), ("uri", Node::value(Place::Uri))])),
    ("result", Node::value(Place::Result)),
    ("error", Node::value(Place::Error)),
]);

/// Reads one message. It holds the beginning of a watched value that a piece cuts, at most 4 KiB.
#[derive(Clone, Debug)]
pub struct MessageReader {
    scanner: Scanner<Place>,
    collector: Collector,
}

impl Default for MessageReader {
    fn default() -> Self {
        Self { scanner: Scanner::new(&MESSAGE, Duplicates::Refuse), collector: Collector::default() }
    }
}

impl MessageReader {
    /// The facts of a message that is in one piece.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn read(message: &[u8]) -> Result<Message, MessageError> {
        let mut reader = Self::default();
        reader.push(message)?;
        reader.finish()
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// See [`MessageError`]. The reader is of no more use.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), MessageError> {
        Ok(self.scanner.push(piece, &mut self.collector)?)
    }

    /// The message has ended.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn finish(mut self) -> Result<Message, MessageError> {
        self.scanner.finish(&mut self.collector)?;
        self.collector.message()
    }
}

/// A member: whether it is there, and its value if that can be used.
#[derive(Clone, Debug, Default)]
struct Member<T> {
    is_present: bool,
    value: Option<T>,
}

/// The watched values of a message.
#[derive(Clone, Debug, Default)]
struct Collector {
    is_object: bool,
    is_batch: bool,
    id: Member<Box<[u8]>>,
    method: Member<Box<str>>,
    name: Option<Box<str>>,
    name_range: Option<Range<usize>>,
    uri: Option<Box<str>>,
    outcomes: u32,
    has_empty_result: bool,
}

impl Sink<Place> for Collector {
    fn value(&mut self, value: Value<'_, Place>) {
        match value.path {
            Place::Message => (self.is_object, self.is_batch) = (value.kind == Kind::Object, value.kind == Kind::Array),
            Place::Id => self.id = Member { is_present: true, value: id(&value) },
            Place::Method => self.method = Member { is_present: true, value: string(&value) },
            Place::Name => {
                self.name = string(&value);
                self.name_range = self.name.as_ref().map(|_| value.start as usize..value.end as usize);
            }
            Place::Uri => self.uri = string(&value),
            Place::Result => {
                self.outcomes += 1;
                self.has_empty_result = value.kind == Kind::Object && value.count == 0;
            }
            Place::Error => self.outcomes += 1,
        }
    }
}

impl Collector {
    fn message(self) -> Result<Message, MessageError> {
        if self.is_batch {
            return Err(MessageError::Batch);
        }
        let (has_id, has_method) = (self.id.is_present, self.method.is_present);
        let kind = match (self.is_object, has_method, has_id, self.outcomes) {
            (true, true, true, 0) => MessageKind::Request,
            (true, true, false, 0) => MessageKind::Notification,
            (true, false, true, 1) => MessageKind::Response,
            _ => return Err(MessageError::Form),
        };
        if has_id && self.id.value.is_none() {
            return Err(MessageError::Id);
        }
        if has_method && self.method.value.is_none() {
            return Err(MessageError::Method);
        }
        let method = self.method.value.unwrap_or_default();
        let (name, name_range, uri, has_empty_result) = (self.name, self.name_range, self.uri, self.has_empty_result);
        Ok(Message { kind, id: self.id.value, method, name, name_range, uri, has_empty_result })
    }
}

/// The text of an id that may be repeated.
fn id(value: &Value<'_, Place>) -> Option<Box<[u8]>> {
    let is_possible = matches!(value.kind, Kind::String { .. } | Kind::Number);
    value.text.filter(|text| is_possible && text.len() <= ID_BYTES_MAX).map(Into::into)
}

fn string(value: &Value<'_, Place>) -> Option<Box<str>> {
    let text = decode::text(value.string()?, NAME_BYTES_MAX).ok()?;
    Some(text.into_owned().into())
}
