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
    /// The message that it belongs to, from 0; 0 for instructions that stand apart.
    pub message: u32,
    /// Its bytes, with the quotes. [`weir_json_codec::Decoded`] leads from the text to the bytes and back.
    pub span: Span,
}

/// A call of a tool, as the client repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The name of the tool.
    pub name: Option<Box<str>>,
    /// Its arguments: a string with JSON in it, or an object.
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
    /// The first of its texts: its role may come behind them.
    first: usize,
    role: Option<Box<str>>,
    kind: Option<Box<str>>,
    name: Option<Box<str>>,
    arguments: Option<Span>,
}

impl Prompts {
    /// An object or array begins.
    pub(super) fn begin(&mut self, path: Field) {
        if path == Field::Message {
            let number = self.message.number;
            self.message = Message { number, first: self.texts.len(), ..Message::default() };
        }
    }

    /// Takes a member. One that is no part of a prompt changes nothing.
    pub(super) fn take(&mut self, value: &Value<'_, Field>, endpoint: Endpoint) -> Result<(), BodyError> {
        match value.path {
            Field::Role => self.message.role = named(value)?.map(|named| named.text),
            Field::ItemType => self.message.kind = named(value)?.map(|named| named.text),
            Field::Text => self.text(value, Role::User, SpanKind::Message)?,
            Field::ResultText => self.text(value, Role::Tool, SpanKind::Result)?,
            Field::Instructions | Field::InstructionsText => self.text(value, Role::System, SpanKind::Message)?,
            // An input or a prompt that is one text.
            Field::Messages => self.text(value, Role::User, SpanKind::Message)?,
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
        if self.texts.len() == SPANS_MAX {
            return Err(BodyError::TooMany(Field::Messages));
        }
        let message = if role == Role::System { 0 } else { self.message.number };
        self.texts.push(TextSpan { role, kind, message, span: span(value) });
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
        self.calls.push(ToolCall { name, arguments, message: self.message.number });
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
        for text in &mut self.texts[self.message.first..] {
            if text.kind == SpanKind::Message {
                text.role = role;
                text.kind = if role == Role::Tool { SpanKind::Result } else { SpanKind::Message };
            }
        }
        self.message = Message { number: self.message.number + 1, ..Message::default() };
        Ok(())
    }
}
