//! The texts of a body per role, and the calls of tools that it repeats.

use weir_json_codec::{Kind, Value};

use super::endpoint::Endpoint;
use super::error::BodyError;
use super::field::Field;
use super::limits::{CALLS_MAX, SPANS_MAX};
use super::options::{named, span};
use super::span::Span;

/// The author of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The operator: `system`, `developer`, `instructions`.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool: its result.
    Tool,
    /// Another word.
    Other,
}

/// The kind of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanKind {
    /// A message, or a part of one.
    Message,
    /// A result of a tool: text that neither the user nor the operator has written.
    Result,
}

/// A text of a prompt: a string of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextSpan {
    /// Its author.
    pub role: Role,
    /// Its kind.
    pub kind: SpanKind,
    /// The message that it belongs to, from 0; 0 for texts beside the messages.
    pub message: u32,
    /// Its bytes, with the quotes. [`weir_json_codec::Decoded`] leads from the text to the bytes and back.
    pub span: Span,
}

/// A call of a tool, as the client repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The author of the message: the model, if the client is honest.
    pub role: Role,
    /// The name of the tool. `None`: one that a provider runs itself.
    pub name: Option<Box<str>>,
    /// Its arguments: a string, usually with JSON in it, or an object or array.
    pub arguments: Option<Span>,
    /// The message that it belongs to, from 0.
    pub message: u32,
}

/// Texts and calls of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    /// Every text, in order.
    pub texts: Vec<TextSpan>,
    /// Every call, in order.
    pub calls: Vec<ToolCall>,
    message: Message,
}

/// The message under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Message {
    number: u32,
    /// The first of its texts and of its calls: its role may come behind them.
    first: (usize, usize),
    role: Option<Box<str>>,
    kind: Option<Box<str>>,
    name: Option<Box<str>>,
    arguments: Option<Span>,
    source: Source,
}

/// The source of a document under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Source {
    kind: Option<Box<str>>,
    data: Option<Span>,
}

impl Prompts {
    /// An object or array begins.
    pub(super) fn begin(&mut self, path: Field) {
        if matches!(path, Field::Source | Field::ResultSource) {
            self.message.source = Source::default();
        }
        if path == Field::Message {
            let number = self.message.number;
            self.message = Message { number, first: (self.texts.len(), self.calls.len()), ..Message::default() };
        }
    }

    /// Takes a member. One that is no part of a prompt changes nothing.
    pub(super) fn take(&mut self, value: &Value<'_, Field>, endpoint: Endpoint) -> Result<(), BodyError> {
        match value.path {
            Field::Role => self.message.role = named(value)?.map(|named| named.text),
            Field::ItemType => self.message.kind = named(value)?.map(|named| named.text),
            // An input or a prompt may be one text.
            Field::Text | Field::Messages | Field::Beside => self.text(value, Role::User, SpanKind::Message)?,
            Field::ResultText => self.text(value, Role::Tool, SpanKind::Result)?,
            Field::Instructions | Field::InstructionsText => self.text(value, Role::System, SpanKind::Message)?,
            Field::SourceType => self.message.source.kind = named(value)?.map(|named| named.text),
            Field::SourceData => {
                self.message.source.data = Some(span(value)).filter(|_| matches!(value.kind, Kind::String { .. }));
            }
            Field::Source => self.source(Role::User, SpanKind::Message)?,
            Field::ResultSource => self.source(Role::Tool, SpanKind::Result)?,
            Field::CallName => self.message.name = named(value)?.map(|named| named.text),
            Field::CallArguments => self.message.arguments = Some(span(value)),
            // In Anthropic's messages every part of a content is looked at: those with an input are calls.
            Field::Call => self.call(endpoint != Endpoint::Messages || self.message.arguments.is_some())?,
            Field::Message => self.end_message(value, endpoint)?,
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, value: &Value<'_, Field>, role: Role, kind: SpanKind) -> Result<(), BodyError> {
        if !matches!(value.kind, Kind::String { .. }) {
            return Ok(());
        }
        let is_apart = matches!(value.path, Field::Beside | Field::Instructions | Field::InstructionsText);
        let message = if is_apart { 0 } else { self.message.number };
        self.push(TextSpan { role, kind, message, span: span(value) })
    }

    /// The source of a document ends. Other data than text is no text: images, files in base64.
    fn source(&mut self, role: Role, kind: SpanKind) -> Result<(), BodyError> {
        let source = std::mem::take(&mut self.message.source);
        match source.data.filter(|_| source.kind.as_deref() == Some("text")) {
            Some(span) => self.push(TextSpan { role, kind, message: self.message.number, span }),
            None => Ok(()),
        }
    }

    fn push(&mut self, text: TextSpan) -> Result<(), BodyError> {
        if self.texts.len() == SPANS_MAX {
            return Err(BodyError::TooMany(Field::Messages));
        }
        self.texts.push(text);
        Ok(())
    }

    fn call(&mut self, is_call: bool) -> Result<(), BodyError> {
        let (name, arguments) = (self.message.name.take(), self.message.arguments.take());
        if !is_call {
            return Ok(());
        }
        if self.calls.len() == CALLS_MAX {
            return Err(BodyError::TooMany(Field::Messages));
        }
        self.calls.push(ToolCall { role: Role::Assistant, name, arguments, message: self.message.number });
        Ok(())
    }

    /// The role is known now, and the texts get it.
    fn end_message(&mut self, value: &Value<'_, Field>, endpoint: Endpoint) -> Result<(), BodyError> {
        if value.kind != Kind::Object {
            return Err(BodyError::Type(value.path));
        }
        if endpoint == Endpoint::Responses && self.message.kind.as_deref().is_some_and(|kind| kind.ends_with("_call")) {
            self.call(true)?;
        }
        let role = match (self.message.role.as_deref(), self.message.kind.as_deref()) {
            (Some("system" | "developer"), _) => Role::System,
            (Some("user"), _) => Role::User,
            (Some("assistant"), _) => Role::Assistant,
            (Some("tool" | "function"), _) => Role::Tool,
            (Some(_), _) => Role::Other,
            // An item of responses without a role: a result, or what the model has thought and called.
            (None, Some(kind)) if kind.ends_with("_output") => Role::Tool,
            (None, Some(_)) => Role::Assistant,
            (None, None) => Role::Other,
        };
        let (texts, calls) = self.message.first;
        self.calls[calls..].iter_mut().for_each(|call| call.role = role);
        for text in &mut self.texts[texts..] {
            if text.kind == SpanKind::Message {
                text.role = role;
                text.kind = if role == Role::Tool { SpanKind::Result } else { SpanKind::Message };
            }
        }
        // Texts beside the messages belong to none.
        let first = (self.texts.len(), self.calls.len());
        self.message = Message { number: self.message.number + 1, first, ..Message::default() };
        Ok(())
    }
}
