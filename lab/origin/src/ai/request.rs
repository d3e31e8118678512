//! The fields of a request that its reply depends on. The rest of the body is skipped where it stands.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_http_codec::RequestHead;

use super::{
    directive::{Directives, WrongPair},
    error::Refusal,
    route::Endpoint,
    text::{Word, tokens_of},
};

/// Choices of one reply.
const CHOICES_MAX: u64 = 8;

/// Bytes of what the ledger keeps of a model or a user.
const NAME_BYTES_MAX: usize = 128;

/// Tokens of the frame around a prompt, as providers bill a few.
const FRAME_TOKENS: u64 = 3;

/// A body, as far as it matters. Raw values are looked at only if the reply needs them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fields<'a> {
    /// The model.
    #[serde(borrow)]
    pub model: Option<Cow<'a, str>>,
    /// A reply as events.
    pub stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    n: Option<u64>,
    #[serde(borrow)]
    user: Option<Cow<'a, str>>,
    /// The conversation.
    #[serde(borrow)]
    pub messages: Option<&'a RawValue>,
    /// The input of a response or of embeddings.
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow)]
    system: Option<&'a RawValue>,
    /// Tools that may be called.
    #[serde(borrow)]
    pub tools: Option<&'a RawValue>,
    /// Whether one must be called, and which.
    #[serde(borrow)]
    pub tool_choice: Option<&'a RawValue>,
    /// The form of a text of chat.
    #[serde(borrow)]
    pub response_format: Option<&'a RawValue>,
    /// The same of a response.
    #[serde(borrow)]
    pub text: Option<&'a RawValue>,
    /// The same of a message.
    #[serde(borrow)]
    pub output_config: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    /// `float` or `base64`.
    #[serde(borrow)]
    pub encoding_format: Option<Cow<'a, str>>,
    /// Numbers of one embedding.
    pub dimensions: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata<'a> {
    #[serde(borrow)]
    weir: Option<Cow<'a, str>>,
    #[serde(borrow)]
    weir_fault: Option<Cow<'a, str>>,
}

/// A request that is understood.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Its endpoint.
    pub endpoint: Endpoint<'a>,
    /// Its body.
    pub fields: Fields<'a>,
    /// Its choices.
    pub directives: Directives,
    /// The word of its text.
    pub word: Word,
    /// A number that follows from its body.
    pub hash: u64,
    /// Which try of a client it is, from 0, as OpenAI's SDKs say.
    pub attempt: u32,
    /// A fingerprint of the key that came with it.
    pub key: Option<u32>,
    /// Its `x-request-id`, as far as the ledger keeps it.
    pub request_id: Option<String>,
}

impl<'a> Ask<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// The refusal.
    pub fn read(endpoint: Endpoint<'a>, head: &RequestHead, body: &'a [u8], seed: u64) -> Result<Self, Refusal> {
        let mut fields: Fields<'a> = serde_json::from_slice(body).map_err(|error| Refusal::json(&error))?;
        // Azure names the model in the path.
        if fields.model.is_none() {
            fields.model = deployment(head.target()).map(|model| Cow::Owned(model.to_owned()));
        }
        if fields.model.is_none() {
            return Err(Refusal::missing("model"));
        }
        let directives = directives(&fields, head, body).map_err(Refusal::directive)?;
        let hash = hash(body, seed);
        let attempt = header(head, b"x-stainless-retry-count").and_then(|text| text.parse().ok()).unwrap_or(0);
        let word = directives.word.unwrap_or(Word::of(hash));
        let (key, request_id) = (key(head).map(fingerprint), header(head, b"x-request-id").map(short));
        Ok(Self { endpoint, fields, word, hash, attempt, key, request_id, directives })
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        self.fields.model.as_deref().unwrap_or_default()
    }

    /// The model's name, as far as the ledger keeps it.
    pub fn short_model(&self) -> String {
        short(self.model())
    }

    /// The user, in the same way.
    pub fn user(&self) -> Option<String> {
        self.fields.user.as_deref().map(short)
    }

    /// Events rather than a whole reply.
    pub fn is_stream(&self) -> bool {
        self.fields.stream == Some(true)
    }

    /// A stream ends with its usage.
    pub fn includes_usage(&self) -> bool {
        self.fields.stream_options.as_ref().and_then(|options| options.include_usage) == Some(true)
    }

    /// Tokens that a text may have; each name of the limit counts.
    pub fn tokens_max(&self) -> Option<u64> {
        let Fields { max_tokens, max_completion_tokens, max_output_tokens, .. } = &self.fields;
        [max_tokens, max_completion_tokens, max_output_tokens].into_iter().flatten().min().copied()
    }

    /// Choices of the reply.
    pub fn choices(&self) -> usize {
        self.fields.n.unwrap_or(1).clamp(1, CHOICES_MAX) as usize
    }

    /// Input tokens: those that the request names, else a quarter of the bytes of what it says.
    pub fn prompt_tokens(&self) -> u64 {
        let Fields { messages, input, prompt, instructions, system, tools, .. } = &self.fields;
        let said = [messages, input, prompt, instructions, system, tools];
        let bytes = said.into_iter().flatten().map(|raw| raw.get().len()).sum();
        self.directives.prompt.unwrap_or_else(|| tokens_of(bytes) + FRAME_TOKENS)
    }

    /// The raw value of a field that the endpoint cannot be without.
    ///
    /// # Errors
    /// It is not there.
    pub fn need(&self) -> Result<(), Refusal> {
        let Fields { messages, input, prompt, .. } = &self.fields;
        let (name, value) = match self.endpoint {
            Endpoint::Responses | Endpoint::Embeddings => ("input", input),
            Endpoint::Completions => ("prompt", prompt),
            _ => ("messages", messages),
        };
        if value.is_some() { Ok(()) } else { Err(Refusal::missing(name)) }
    }
}

fn short(text: &str) -> String {
    text[..text.floor_char_boundary(NAME_BYTES_MAX.min(text.len()))].to_owned()
}

/// Directives of the three places.
fn directives(fields: &Fields<'_>, head: &RequestHead, body: &[u8]) -> Result<Directives, WrongPair> {
    let mut directives = Directives::default();
    directives.read_body(body)?;
    // Metadata of others may have any form.
    let metadata = fields.metadata.and_then(|raw| serde_json::from_str::<Metadata<'_>>(raw.get()).ok());
    if let Some(Metadata { weir, weir_fault }) = metadata {
        directives.read(weir.as_deref().unwrap_or_default())?;
        if let Some(fault) = weir_fault {
            directives.read(&format!("fault={fault}"))?;
        }
    }
    directives.read(header(head, b"x-weir-lab").unwrap_or_default())?;
    Ok(directives)
}

/// The first value of a header.
pub fn header<'a>(head: &'a RequestHead, name: &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(head.fields.all_named(name).next()?).ok()
}

/// The key of a request, in whichever of the three headers.
pub fn key(head: &RequestHead) -> Option<&str> {
    let bearer = header(head, b"authorization").and_then(|value| value.strip_prefix("Bearer "));
    bearer.or_else(|| header(head, b"x-api-key")).or_else(|| header(head, b"api-key"))
}

/// Digits that tell keys apart and lead back to none.
pub fn fingerprint(key: &str) -> u32 {
    (hash(key.as_bytes(), 0x6b65_7973) >> 32) as u32
}

/// The model of `/openai/deployments/MODEL/...`.
fn deployment(target: &[u8]) -> Option<&str> {
    std::str::from_utf8(target).ok()?.strip_prefix("/openai/deployments/")?.split('/').next()
}

/// A number that follows from bytes and a seed; eight bytes a step, for large bodies.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |hash: u64, part: u64| (hash ^ part).wrapping_mul(FACTOR).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(seed ^ FACTOR, |hash, word| step(hash, u64::from_le_bytes(*word)));
    let hash = rest.iter().fold(hash, |hash, byte| step(hash, u64::from(*byte)));
    let mixed = step(hash, bytes.len() as u64);
    (mixed ^ (mixed >> 32)).wrapping_mul(FACTOR)
}

#[cfg(test)]
mod tests {
    use weir_http_codec::{HeadLimits, RequestParser};

    use super::*;

    fn head(text: &str) -> RequestHead {
        let mut parser = RequestParser::new();
        let text = format!("{text}Host: a\r\nContent-Length: 0\r\n\r\n");
        parser.parse(text.as_bytes(), &HeadLimits::default()).expect("a head").expect("whole");
        parser.take()
    }

    fn read(fields: &str, body: &str) -> Result<(Directives, u64, bool, u32), Refusal> {
        let head = head(&format!("POST /v1/chat/completions HTTP/1.1\r\n{fields}"));
        let ask = Ask::read(Endpoint::Chat, &head, body.as_bytes(), 1)?;
        Ok((ask.directives.clone(), ask.prompt_tokens(), ask.includes_usage(), ask.attempt))
    }

    #[test]
    fn directives_come_from_the_prompt_metadata_and_a_header() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"[weir bytes=1 events=2 prompt=9] hi"}],
            "metadata":{"weir":"bytes=5","weir_fault":"cut"},"stream_options":{"include_usage":true}}"#;
        let (found, prompt, includes_usage, attempt) =
            read("x-weir-lab: events=7\r\nx-stainless-retry-count: 2\r\n", body).expect("right");
        assert_eq!((found.bytes, found.events), (Some(5), Some(7)));
        assert_eq!(found.fault, Some(super::super::fault::Fault::Cut));
        assert_eq!((prompt, includes_usage, attempt), (9, true, 2));
        assert!(read("", r#"{"model":"m","messages":[],"metadata":{"user_id":7,"weir":7}}"#).is_ok());
    }

    #[test]
    fn a_body_that_is_none_is_refused() {
        for (body, word) in [
            ("{", "JSON"),
            ("[]", "model"),
            (r#"{"messages":[]}"#, "model"),
            (r#"{"model":"m","x":"[weir byte=1]"}"#, "byte=1"),
        ] {
            let refusal = read("", body).expect_err(body);
            assert!(refusal.message.contains(word) && refusal.status == 400, "{body}: {refusal:?}");
        }
    }

    #[test]
    fn a_prompt_is_billed_by_its_bytes_and_a_deployment_is_a_model() {
        let (_, tokens, ..) = read("", r#"{"model":"m","messages":["12345678"]}"#).expect("right");
        assert_eq!(tokens, 3 + 3);
        let azure = head("POST /openai/deployments/gpt-x/chat/completions?api-version=1 HTTP/1.1\r\napi-key: k\r\n");
        let ask = Ask::read(Endpoint::Chat, &azure, b"{\"messages\":[]}", 1).expect("right");
        assert_eq!((ask.model(), ask.key), ("gpt-x", Some(fingerprint("k"))));
        assert_ne!(hash(b"abcdefgh1", 1), hash(b"abcdefgh2", 1));
        assert_ne!(hash(b"abcdefgh", 1), hash(b"abcdefgh", 2), "the seed counts");
    }
}
