//! The tools that the model may call, and the client's choice among them.

use weir_json_codec::{Kind, Value};

use super::error::BodyError;
use super::field::Field;
use super::limits::TOOLS_MAX;
use super::options::{named, span};
use super::span::Span;

/// The kind of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolKind {
    /// A function of the client: `function`, `custom`, or no type at all.
    Function,
    /// A tool that the provider runs itself, by its `type`: `web_search`, `mcp`, `bash_20250124`. Members beside the tools that lead to
    /// such ones have the same words: each of `mcp_servers`, and `web_search_options`.
    BuiltIn(Box<str>),
}

/// A tool of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The kind.
    pub kind: ToolKind,
    /// The name. `None`: it has none, which is usual for built-in tools and a mistake for others.
    pub name: Option<Box<str>>,
    /// Its definition.
    pub span: Span,
    /// The description in it, a string with its quotes, if prompts are looked into.
    pub description: Option<Span>,
}

/// The client's choice among its tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Not given.
    #[default]
    Absent,
    /// A word, such as `auto`, `none`, `required` or `any`.
    Mode(Box<str>),
    /// One tool by name.
    Tool(Box<str>),
    /// A built-in tool, or a list of allowed tools, by the type of the choice.
    Type(Box<str>),
}

/// Tools of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// Every tool, in order; those of `functions`, and servers and searches of the provider, too.
    pub list: Vec<Tool>,
    /// The client's choice.
    pub choice: Choice,
    /// The array with the definitions; empty if there is none.
    pub span: Span,
    /// The second one, of a chat with `tools` and `functions`.
    pub more_span: Span,
    /// The tool under way.
    present: Present,
}

/// Members of an object under way: a tool or a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Present {
    kind: Option<Box<str>>,
    function: Option<Box<str>>,
    custom: Option<Box<str>>,
    description: Option<Span>,
}

impl Tools {
    /// An object or array begins.
    pub(super) fn begin(&mut self, path: Field) {
        if matches!(path, Field::Tool | Field::Server | Field::Choice) {
            self.present = Present::default();
        }
    }

    /// Takes a member. One that concerns no tool changes nothing.
    pub(super) fn take(&mut self, value: &Value<'_, Field>) -> Result<(), BodyError> {
        let text = |value| Ok::<_, BodyError>(named(value)?.map(|named| named.text));
        match value.path {
            Field::ToolType | Field::ChoiceType => self.present.kind = text(value)?,
            Field::FunctionName | Field::ChoiceName => self.present.function = text(value)?,
            Field::CustomName => self.present.custom = text(value)?,
            Field::ToolDescription => {
                self.present.description = Some(span(value)).filter(|_| matches!(value.kind, Kind::String { .. }));
            }
            Field::Tool => self.tool(value)?,
            Field::Server => self.built_in("mcp", value)?,
            Field::WebSearch if value.kind != Kind::Null => self.built_in("web_search", value)?,
            Field::Tools | Field::Servers => match value.kind {
                Kind::Array if value.path == Field::Servers => {}
                Kind::Array if self.span.is_empty() => self.span = span(value),
                Kind::Array => self.more_span = span(value),
                Kind::Null => {}
                _ => return Err(BodyError::Type(value.path)),
            },
            Field::Choice => self.choice(value)?,
            _ => {}
        }
        Ok(())
    }

    fn tool(&mut self, value: &Value<'_, Field>) -> Result<(), BodyError> {
        let Present { kind, function, custom, description } = std::mem::take(&mut self.present);
        let (kind, name) = match kind.as_deref() {
            None | Some("function") => (ToolKind::Function, function),
            // Chats have the name in an object of its own, responses beside the type.
            Some("custom") => (ToolKind::Function, custom.or(function)),
            Some(other) => (ToolKind::BuiltIn(other.into()), function),
        };
        self.push(Tool { kind, name, span: span(value), description }, value)
    }

    /// An object beside the tools by which the provider uses some of its own.
    fn built_in(&mut self, kind: &str, value: &Value<'_, Field>) -> Result<(), BodyError> {
        let name = std::mem::take(&mut self.present).function;
        self.push(Tool { kind: ToolKind::BuiltIn(kind.into()), name, span: span(value), description: None }, value)
    }

    fn push(&mut self, tool: Tool, value: &Value<'_, Field>) -> Result<(), BodyError> {
        if value.kind != Kind::Object {
            return Err(BodyError::Type(value.path));
        }
        if self.list.len() == TOOLS_MAX {
            return Err(BodyError::TooMany(value.path));
        }
        self.list.push(tool);
        Ok(())
    }

    fn choice(&mut self, value: &Value<'_, Field>) -> Result<(), BodyError> {
        self.choice = match value.kind {
            Kind::Object => match std::mem::take(&mut self.present) {
                Present { function: Some(name), .. } => Choice::Tool(name),
                // Anthropic writes the word as a type.
                Present { kind: Some(kind), .. } if matches!(&*kind, "auto" | "any" | "none") => Choice::Mode(kind),
                Present { kind: Some(kind), .. } => Choice::Type(kind),
                _ => return Err(BodyError::Type(value.path)),
            },
            _ => named(value)?.map_or(Choice::Absent, |named| Choice::Mode(named.text)),
        };
        Ok(())
    }
}
