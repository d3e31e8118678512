//! Options of a request: the model, what the response may cost, and whom it is for.

use weir_json_codec::{Kind, Value, decode, integer};

use super::error::BodyError;
use super::field::Field;
use super::limits::TOKENS_MAX;
use super::span::Span;

/// A short text with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The value, without escapes.
    pub text: Box<str>,
    /// Its bytes, with the quotes.
    pub span: Span,
}

/// A number that limits something, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The value, at most [`TOKENS_MAX`].
    pub value: u64,
    /// Its bytes.
    pub span: Span,
}

/// A truth value with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The value.
    pub value: bool,
    /// Its bytes.
    pub span: Span,
}

/// The object `stream_options`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Its bytes, or those of a `null` in its place.
    pub span: Span,
    /// Members of the object; `None` for a `null`.
    pub members: Option<u64>,
    /// The member `include_usage`, which may be `null`: then it is false, and has a place.
    pub include_usage: Option<Flag>,
}

/// Options of a request. An option that is absent or `null` is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `model`
    pub model: Option<Named>,
    /// `stream`
    pub stream: Option<Flag>,
    /// `stream_options`
    pub stream_options: Option<StreamOptions>,
    /// `max_tokens`
    pub max_tokens: Option<Number>,
    /// `max_completion_tokens`
    pub max_completion_tokens: Option<Number>,
    /// `max_output_tokens`
    pub max_output_tokens: Option<Number>,
    /// Where these three limits are `null`, in their order. A `null` limits nothing, and a second member beside it is another body for
    /// each reader.
    pub null_limits: [Option<Span>; 3],
    /// `n`
    pub count: Option<Number>,
    /// `best_of`
    pub best_of: Option<Number>,
    /// `temperature` is there and not zero: equal requests want different responses.
    pub is_sampled: bool,
    /// `user`, or Anthropic's `metadata.user_id`
    pub user: Option<Named>,
    /// `safety_identifier`
    pub safety_identifier: Option<Named>,
    /// `prompt_cache_key`
    pub prompt_cache_key: Option<Named>,
    /// `previous_response_id`
    pub previous_response: Option<Named>,
    /// `conversation`, or the `id` in it
    pub conversation: Option<Named>,
    /// `service_tier`
    pub service_tier: Option<Named>,
    /// `store`
    pub store: Option<Flag>,
    /// `background`
    pub background: Option<Flag>,
    /// `reasoning_effort`, `reasoning` or `thinking`: whether the model is to reason. `None`: the request does not say.
    pub reasoning: Option<bool>,
    /// `metadata`
    pub metadata: Option<Span>,
}

impl Options {
    /// Whether the response is a stream.
    pub fn is_stream(&self) -> bool {
        self.stream.is_some_and(|flag| flag.value)
    }

    /// Whether the request makes the model reason. Its tokens are output that no client sees. A model that reasons without a word of the request
    /// is not known here.
    pub fn reasons(&self) -> bool {
        self.reasoning == Some(true)
    }

    /// Whether the client requests the usage of a stream.
    pub fn includes_usage(&self) -> bool {
        self.stream_options.and_then(|options| options.include_usage).is_some_and(|flag| flag.value)
    }

    /// The most tokens of one choice, if the request limits them. With several limits the largest: servers differ in
    /// the one they take.
    pub fn output_tokens_max(&self) -> Option<u64> {
        let limits = [self.max_tokens, self.max_completion_tokens, self.max_output_tokens];
        limits.iter().flatten().map(|number| number.value).max()
    }

    /// Choices that the request makes a server generate, at least 1.
    pub fn choices(&self) -> u64 {
        [self.count, self.best_of].iter().flatten().map(|number| number.value).max().unwrap_or(1).max(1)
    }

    /// Takes a member. One that is none of the options changes nothing.
    pub(super) fn take(&mut self, value: &Value<'_, Field>) -> Result<(), BodyError> {
        match value.path {
            Field::Model => self.model = named(value)?,
            Field::User => self.user = named(value)?.or(self.user.take()),
            Field::SafetyIdentifier => self.safety_identifier = named(value)?,
            Field::PromptCacheKey => self.prompt_cache_key = named(value)?,
            Field::PreviousResponse => self.previous_response = named(value)?,
            // The object ends behind its `id`.
            Field::Conversation if value.kind == Kind::Object => {}
            Field::Conversation => self.conversation = named(value)?,
            Field::ServiceTier => self.service_tier = named(value)?,
            Field::Stream => self.stream = flag(value)?,
            Field::Store => self.store = flag(value)?,
            Field::Background => self.background = flag(value)?,
            Field::Reasoning | Field::ReasoningMode => self.reasoning(value),
            Field::MaxTokens => (self.max_tokens, self.null_limits[0]) = limit(value)?,
            Field::MaxCompletionTokens => (self.max_completion_tokens, self.null_limits[1]) = limit(value)?,
            Field::MaxOutputTokens => (self.max_output_tokens, self.null_limits[2]) = limit(value)?,
            Field::Count => self.count = number(value)?,
            Field::BestOf => self.best_of = number(value)?,
            Field::Temperature => self.is_sampled = is_sampled(value),
            Field::Metadata => self.metadata = Some(span(value)).filter(|_| value.kind != Kind::Null),
            Field::IncludeUsage => self.include_usage(value)?,
            Field::StreamOptions => self.stream_options(value)?,
            _ => {}
        }
        Ok(())
    }

    /// Members of an object come before its end. Values of another type are the provider's to refuse.
    fn reasoning(&mut self, value: &Value<'_, Field>) {
        let is_on = match (value.path, value.kind) {
            (_, Kind::Null) => return,
            (_, Kind::False) => false,
            (Field::Reasoning, Kind::Object) => self.reasoning.unwrap_or(true),
            _ => !matches!(value.string(), Some(b"none" | b"disabled")),
        };
        self.reasoning = Some(is_on || self.reasoning == Some(true));
    }

    /// A member comes before the end of its object.
    fn include_usage(&mut self, value: &Value<'_, Field>) -> Result<(), BodyError> {
        let flag = flag(value)?.unwrap_or(Flag { value: false, span: span(value) });
        self.stream_options = Some(StreamOptions { span: flag.span, members: Some(1), include_usage: Some(flag) });
        Ok(())
    }

    fn stream_options(&mut self, value: &Value<'_, Field>) -> Result<(), BodyError> {
        let members = match value.kind {
            Kind::Object => Some(value.count),
            Kind::Null => None,
            _ => return Err(BodyError::Type(value.path)),
        };
        let include_usage = self.stream_options.and_then(|options| options.include_usage);
        self.stream_options = Some(StreamOptions { span: span(value), members, include_usage });
        Ok(())
    }
}

/// The place of a value.
pub(super) fn span(value: &Value<'_, Field>) -> Span {
    Span::new(value.start, value.end)
}

/// A short text; `None` for `null`.
pub(super) fn named(value: &Value<'_, Field>) -> Result<Option<Named>, BodyError> {
    match value.kind {
        Kind::Null => Ok(None),
        Kind::String { .. } => {
            let raw = value.string().ok_or(BodyError::TooLong(value.path))?;
            let text = decode::text(raw, raw.len()).map_err(|_| BodyError::Type(value.path))?;
            Ok(Some(Named { text: text.into(), span: span(value) }))
        }
        _ => Err(BodyError::Type(value.path)),
    }
}

fn flag(value: &Value<'_, Field>) -> Result<Option<Flag>, BodyError> {
    let flag = |is_true| Ok(Some(Flag { value: is_true, span: span(value) }));
    match value.kind {
        Kind::Null => Ok(None),
        Kind::True => flag(true),
        Kind::False => flag(false),
        _ => Err(BodyError::Type(value.path)),
    }
}

/// A number, or the place of a `null`.
fn limit(value: &Value<'_, Field>) -> Result<(Option<Number>, Option<Span>), BodyError> {
    Ok((number(value)?, Some(span(value)).filter(|_| value.kind == Kind::Null)))
}

/// Whether a temperature is not zero. It decides on no limit, so a value of another type is the provider's to refuse.
fn is_sampled(value: &Value<'_, Field>) -> bool {
    let is_zero = |text: &[u8]| {
        let mut mantissa = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
        !mantissa.any(|byte| matches!(byte, b'1'..=b'9'))
    };
    value.kind != Kind::Null && !value.number().is_some_and(is_zero)
}

fn number(value: &Value<'_, Field>) -> Result<Option<Number>, BodyError> {
    match value.kind {
        Kind::Null => Ok(None),
        Kind::Number => {
            let text = value.number().ok_or(BodyError::TooLong(value.path))?;
            let number = integer(text, TOKENS_MAX).map_err(|error| BodyError::Number(value.path, error))?;
            Ok(Some(Number { value: number, span: span(value) }))
        }
        _ => Err(BodyError::Type(value.path)),
    }
}
