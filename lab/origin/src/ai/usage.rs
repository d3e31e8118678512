//! Tokens: as they are billed, and as a reply reports them.

use super::{
    directive::one_of,
    json::{Part, parts},
};

/// Tokens of one request, as billed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Input, with cached and written tokens.
    pub prompt: u64,
    /// Input that a cache had.
    pub cached: u64,
    /// Input that went into a cache.
    pub written: u64,
    /// Output, with reasoning and audio.
    pub completion: u64,
    /// Output that no text shows.
    pub reasoning: u64,
    /// Output of sound.
    pub audio: u64,
}

impl Tokens {
    /// Input and output.
    pub fn total(&self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

/// How a reply reports its tokens. Only the first two are what providers document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageShape {
    /// `exact`: in a whole reply; in a stream of chat in one more chunk, if `include_usage` asks for it.
    #[default]
    Exact,
    /// `always`: the same, whether the request asks for it or not.
    Always,
    /// `last_content`: on the last chunk with content, in every stream.
    LastContent,
    /// `finish`: on the chunk with the reason of the end, in every stream.
    Finish,
    /// `choices`: one more chunk, whose choices are not empty.
    Choices,
    /// `growing`: on every chunk, with the tokens so far.
    Growing,
    /// `twice`: the last chunk comes two times.
    Twice,
    /// `missing`: never.
    Missing,
    /// `null`: in its place, but null.
    Null,
    /// `empty`: an object without a number.
    Empty,
    /// `renamed`: chat with the names of the responses API.
    Renamed,
    /// `strings`: numbers as strings.
    Strings,
    /// `negative`: output below zero.
    Negative,
    /// `huge`: output of 2^63.
    Huge,
    /// `below`: one token of output, whatever was said.
    Below,
    /// `inflating`: on every chunk, with the sum of all that was reported before.
    Inflating,
}

impl UsageShape {
    /// All, with their words.
    pub const ALL: [(&'static str, Self); 16] = [
        ("exact", Self::Exact),
        ("always", Self::Always),
        ("last_content", Self::LastContent),
        ("finish", Self::Finish),
        ("choices", Self::Choices),
        ("growing", Self::Growing),
        ("twice", Self::Twice),
        ("missing", Self::Missing),
        ("null", Self::Null),
        ("empty", Self::Empty),
        ("renamed", Self::Renamed),
        ("strings", Self::Strings),
        ("negative", Self::Negative),
        ("huge", Self::Huge),
        ("below", Self::Below),
        ("inflating", Self::Inflating),
    ];

    /// The shape of a word.
    pub fn of(word: &str) -> Option<Self> {
        one_of(word, &Self::ALL)
    }

    /// A chunk of its own reports usage, for a request that does or does not ask for it.
    pub fn has_own_chunk(self, is_requested: bool) -> bool {
        match self {
            Self::Always | Self::Choices | Self::Twice => true,
            Self::LastContent | Self::Finish | Self::Growing | Self::Missing | Self::Inflating => false,
            _ => is_requested,
        }
    }
}

/// The names of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `prompt_tokens`, `completion_tokens`.
    Chat,
    /// `input_tokens` with cached ones, `output_tokens`.
    Responses,
    /// `input_tokens` without cached ones, `output_tokens`.
    Messages,
}

/// Appends the value of `usage` for a whole reply or the last report of a stream.
pub fn write(shape: UsageShape, dialect: Dialect, tokens: &Tokens, out: &mut Vec<u8>) {
    let dialect = if shape == UsageShape::Renamed && dialect == Dialect::Chat { Dialect::Responses } else { dialect };
    let claimed = |output: &str| raw(dialect, tokens, output);
    let text = match shape {
        UsageShape::Null => "null".to_owned(),
        UsageShape::Empty => "{}".to_owned(),
        UsageShape::Negative => claimed("-7"),
        UsageShape::Huge => claimed("9223372036854775808"),
        UsageShape::Below => claimed("1"),
        UsageShape::Strings => {
            let (input, output, total) = (tokens.prompt, tokens.completion, tokens.total());
            let [first, second] = names(dialect);
            format!("{{\"{first}\":\"{input}\",\"{second}\":\"{output}\",\"total_tokens\":\"{total}\"}}")
        }
        _ => return exact(dialect, tokens, out),
    };
    out.extend_from_slice(text.as_bytes());
}

fn names(dialect: Dialect) -> [&'static str; 2] {
    if dialect == Dialect::Chat { ["prompt_tokens", "completion_tokens"] } else { ["input_tokens", "output_tokens"] }
}

/// With any text as the number of output tokens.
fn raw(dialect: Dialect, tokens: &Tokens, output: &str) -> String {
    let [first, second] = names(dialect);
    let (input, total) = (tokens.prompt, tokens.total());
    format!("{{\"{first}\":{input},\"{second}\":{output},\"total_tokens\":{total}}}")
}

fn exact(dialect: Dialect, tokens: &Tokens, out: &mut Vec<u8>) {
    use Part::{Number, Raw};
    let &Tokens { prompt, cached, written, completion, reasoning, audio } = tokens;
    match dialect {
        Dialect::Chat => parts(
            &[
                Raw("{\"prompt_tokens\":"),
                Number(prompt),
                Raw(",\"completion_tokens\":"),
                Number(completion),
                Raw(",\"total_tokens\":"),
                Number(tokens.total()),
                Raw(",\"prompt_tokens_details\":{\"cached_tokens\":"),
                Number(cached),
                Raw(",\"cache_write_tokens\":"),
                Number(written),
                Raw(",\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":"),
                Number(reasoning),
                Raw(",\"audio_tokens\":"),
                Number(audio),
                Raw(",\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}"),
            ],
            out,
        ),
        Dialect::Responses => parts(
            &[
                Raw("{\"input_tokens\":"),
                Number(prompt),
                Raw(",\"input_tokens_details\":{\"cached_tokens\":"),
                Number(cached),
                Raw(",\"cache_write_tokens\":"),
                Number(written),
                Raw("},\"output_tokens\":"),
                Number(completion),
                Raw(",\"output_tokens_details\":{\"reasoning_tokens\":"),
                Number(reasoning),
                Raw("},\"total_tokens\":"),
                Number(tokens.total()),
                Raw("}"),
            ],
            out,
        ),
        Dialect::Messages => parts(
            &[
                Raw("{\"input_tokens\":"),
                Number(prompt.saturating_sub(cached).saturating_sub(written)),
                Raw(",\"cache_creation_input_tokens\":"),
                Number(written),
                Raw(",\"cache_read_input_tokens\":"),
                Number(cached),
                Raw(",\"output_tokens\":"),
                Number(completion),
                Raw("}"),
            ],
            out,
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TOKENS: Tokens = Tokens { prompt: 90, cached: 60, written: 10, completion: 13, reasoning: 4, audio: 0 };

    fn value(shape: UsageShape, dialect: Dialect) -> Value {
        let mut out = Vec::new();
        write(shape, dialect, &TOKENS, &mut out);
        serde_json::from_slice(&out).expect("JSON")
    }

    #[test]
    fn each_dialect_has_its_names_and_its_way_to_count_cached_input() {
        let chat = value(UsageShape::Exact, Dialect::Chat);
        assert_eq!((&chat["prompt_tokens"], &chat["total_tokens"]), (&json!(90), &json!(103)));
        assert_eq!(chat["prompt_tokens_details"]["cached_tokens"], json!(60));
        assert_eq!(chat["completion_tokens_details"]["reasoning_tokens"], json!(4));
        let responses = value(UsageShape::Exact, Dialect::Responses);
        assert_eq!((&responses["input_tokens"], &responses["output_tokens"]), (&json!(90), &json!(13)));
        let messages = value(UsageShape::Exact, Dialect::Messages);
        assert_eq!((&messages["input_tokens"], &messages["cache_read_input_tokens"]), (&json!(20), &json!(60)));
    }

    #[test]
    fn wrong_shapes_are_json_and_wrong() {
        assert_eq!(value(UsageShape::Null, Dialect::Chat), Value::Null);
        assert_eq!(value(UsageShape::Negative, Dialect::Chat)["completion_tokens"], json!(-7));
        assert_eq!(value(UsageShape::Huge, Dialect::Chat)["completion_tokens"], json!(1u64 << 63));
        assert_eq!(value(UsageShape::Strings, Dialect::Messages)["output_tokens"], json!("13"));
        assert_eq!(value(UsageShape::Renamed, Dialect::Chat)["output_tokens"], json!(13));
        for (word, shape) in UsageShape::ALL {
            assert_eq!(UsageShape::of(word), Some(shape));
        }
        assert!(UsageShape::Exact.has_own_chunk(true) && !UsageShape::Exact.has_own_chunk(false));
    }
}
