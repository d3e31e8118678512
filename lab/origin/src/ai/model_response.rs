//! Parts of a reply that all dialects share: what is said, in how many events, and what it costs.

use serde_json::Value;

use super::{
    directive::Finish,
    json::{Part, parts},
    request::Ask,
    schema,
    text::{TOKEN_BYTES, Templates, Text, tokens_of},
    tools::{self, Call},
    usage::{self, Dialect, Tokens, UsageShape},
};

/// The time of every reply, in seconds since 1970: replies are the same in every run.
pub const CREATED: u64 = 1_700_000_000;

/// The substance of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A text.
    Text(Text),
    /// A refusal.
    Refusal(Text),
    /// Calls of tools.
    Calls(Vec<Call>),
}

impl Content {
    fn tokens(&self) -> u64 {
        match self {
            Self::Text(text) | Self::Refusal(text) => text.tokens(),
            Self::Calls(calls) => calls.iter().map(|call| tokens_of(call.arguments.len())).sum(),
        }
    }
}

/// Lengths that a request does not name.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Bytes of a text.
    pub payload: usize,
    /// Events with text.
    pub events: usize,
}

/// A reply in no dialect yet.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelResponse {
    /// 16 digits that follow from the request.
    pub id: String,
    /// The model.
    pub model: String,
    /// Its substance.
    pub content: Content,
    /// Why it ends; calls have a reason of their own.
    pub finish: Finish,
    /// Events with text, or pieces of the arguments of each call.
    pub events: usize,
    /// Choices, each with the same content.
    pub choices: usize,
    /// As billed.
    pub tokens: Tokens,
    /// As reported.
    pub usage: UsageShape,
    /// A stream ends with its usage.
    pub includes_usage: bool,
    /// Pieces of several calls come in turn.
    pub has_interleaved_calls: bool,
}

impl ModelResponse {
    /// The reply to a request.
    pub fn of(ask: &Ask<'_>, defaults: Defaults) -> Self {
        let directives = &ask.directives;
        let (content, is_cut) = content(ask, defaults);
        let choices = ask.choices();
        let said = content.tokens() * choices as u64;
        let tokens = Tokens {
            prompt: ask.prompt_tokens(),
            cached: directives.cached,
            written: directives.written,
            completion: said + directives.reasoning + directives.audio,
            reasoning: directives.reasoning,
            audio: directives.audio,
        };
        let usual = if is_cut { Finish::Length } else { Finish::Stop };
        Self {
            id: format!("{:016x}", ask.hash),
            model: ask.model().to_owned(),
            content,
            finish: directives.finish.unwrap_or(usual),
            events: directives.events.unwrap_or(defaults.events),
            choices,
            tokens,
            usage: directives.usage,
            includes_usage: ask.includes_usage(),
            has_interleaved_calls: directives.has_interleaved_calls,
        }
    }

    /// Tokens of all choices but the first.
    pub fn repeated_tokens(&self) -> u64 {
        self.content.tokens() * (self.choices as u64 - 1)
    }

    /// `finish_reason` of chat.
    pub fn finish_reason(&self) -> &'static str {
        match (&self.content, self.finish) {
            (Content::Calls(_), Finish::Stop) => "tool_calls",
            (_, Finish::Stop) => "stop",
            (_, Finish::Length) => "length",
            (_, Finish::ContentFilter) => "content_filter",
        }
    }

    /// Appends `,"usage":...`, unless it is never reported.
    pub fn write_usage(&self, dialect: Dialect, out: &mut Vec<u8>) {
        if self.usage != UsageShape::Missing {
            out.extend_from_slice(b",\"usage\":");
            usage::write(self.usage, dialect, &self.tokens, out);
        }
    }

    /// Appends a string with the whole text.
    pub fn write_text(text: &Text, templates: &Templates, out: &mut Vec<u8>) {
        out.push(b'"');
        text.write(templates, out);
        out.push(b'"');
    }
}

/// Appends `{"id":"<prefix><id>","object":"<object>","created":N,"model":"<model>"`.
pub fn write_head(prefix: &str, object: &str, response: &ModelResponse, out: &mut Vec<u8>) {
    use Part::{Number, Raw, Text};
    parts(&[Raw("{\"id\":\""), Raw(prefix), Raw(&response.id), Raw("\",\"object\":\""), Raw(object)], out);
    parts(&[Raw("\",\"created\":"), Number(CREATED), Raw(",\"model\":"), Text(&response.model)], out);
}

/// The substance of a reply, and whether the limit of tokens has cut it.
fn content(ask: &Ask<'_>, defaults: Defaults) -> (Content, bool) {
    let directives = &ask.directives;
    let calls = tools::count(ask);
    if calls > 0 {
        return (Content::Calls(tools::calls(ask, calls)), false);
    }
    let bytes = directives.bytes.unwrap_or(defaults.payload);
    let text = match structured(ask) {
        Some(json) if !directives.is_refusal => Text::Own(json),
        _ if directives.is_mixed => Text::mixed(ask.word, bytes),
        _ => Text::Plain { word: ask.word, bytes },
    };
    let most = ask.tokens_max().and_then(|tokens| usize::try_from(tokens).ok()?.checked_mul(TOKEN_BYTES));
    let (text, is_cut) = match most {
        Some(most) if most < text.len() => (text.cut(most), true),
        _ => (text, false),
    };
    (if directives.is_refusal { Content::Refusal(text) } else { Content::Text(text) }, is_cut)
}

/// JSON for the schema that the request wants its text to have.
fn structured(ask: &Ask<'_>) -> Option<String> {
    let parse = |raw: &serde_json::value::RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    let chat = ask.fields.response_format.and_then(parse);
    let format = match chat {
        Some(format) => format,
        None => ask.fields.text.or(ask.fields.output_config).and_then(parse)?.get_mut("format")?.take(),
    };
    match format.get("type")?.as_str()? {
        "json_object" => Some(format!("{{\"word\":\"{}\"}}", ask.word.as_str())),
        "json_schema" => {
            let schema = format.get("json_schema").unwrap_or(&format).get("schema")?;
            Some(schema::value(schema, ask.word).to_string())
        }
        _ => None,
    }
}
