//! Edits of a request body at recorded places.

use std::ops::Range;

use weir_analysis::ai::{Endpoint, Facts, Span};
use weir_json_codec::{Decoded, write::string};

/// Bytes that take the place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    span: Span,
    text: Vec<u8>,
}

/// Edits of one body, by the facts of that body. All bytes that no edit names stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Splice {
    /// In the order of their places. None overlaps another.
    edits: Vec<Edit>,
}

impl Splice {
    /// Whether the body stays as it is.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Names another model. `false`: the body names none, and stays as it is.
    pub fn set_model(&mut self, facts: &Facts, model: &str) -> bool {
        let Some(named) = &facts.options.model else { return false };
        if &*named.text != model {
            let mut text = Vec::with_capacity(model.len() + 2);
            string(&mut text, model);
            self.replace(named.span, text);
        }
        true
    }

    /// Requests the usage of a stream. `false`: the client requests it itself, the response is no stream, or its
    /// dialect always reports usage.
    ///
    /// `true` means that the stream will have a chunk of usage that the client does not expect:
    /// [`UsageChunk::Drop`](crate::UsageChunk::Drop).
    pub fn include_usage(&mut self, facts: &Facts) -> bool {
        let has_option = matches!(facts.endpoint, Endpoint::Chat | Endpoint::Completions);
        if !has_option || !facts.options.is_stream() || facts.options.includes_usage() {
            return false;
        }
        match facts.options.stream_options {
            None => self.insert(facts.body, facts.members, b"\"stream_options\":{\"include_usage\":true}"),
            Some(options) => match (options.include_usage, options.members) {
                (Some(flag), _) => self.replace(flag.span, b"true".to_vec()),
                (None, Some(members)) => self.insert(options.span, members, b"\"include_usage\":true"),
                (None, None) => self.replace(options.span, b"{\"include_usage\":true}".to_vec()),
            },
        }
        true
    }

    /// Limits the output to `tokens`: larger limits of the request become this one, and one without a limit gets it. An
    /// endpoint without output stays as it is. `has_completion_limit`: chats take `max_completion_tokens`; older servers
    /// know only `max_tokens`, so that the other one limits nothing there.
    pub fn limit_output(&mut self, facts: &Facts, tokens: u64, has_completion_limit: bool) {
        let options = &facts.options;
        let [tokens_null, completion_null, output_null] = options.null_limits;
        let (own, null) = match facts.endpoint {
            Endpoint::Chat if has_completion_limit => ("\"max_completion_tokens\":", completion_null),
            Endpoint::Responses => ("\"max_output_tokens\":", output_null),
            Endpoint::Chat | Endpoint::Completions | Endpoint::Messages => ("\"max_tokens\":", tokens_null),
            Endpoint::Embeddings => return,
        };
        let limits = [options.max_tokens, options.max_completion_tokens, options.max_output_tokens];
        let is_limited = match facts.endpoint {
            Endpoint::Chat if !has_completion_limit => options.max_tokens.is_some(),
            _ => limits.iter().any(Option::is_some),
        };
        for limit in limits.iter().flatten() {
            if limit.value > tokens {
                self.replace(limit.span, itoa::Buffer::new().format(tokens).as_bytes().to_vec());
            }
        }
        let text = itoa::Buffer::new().format(tokens).as_bytes().to_vec();
        match null {
            _ if is_limited => {}
            Some(null) => self.replace(null, text),
            None => self.insert(facts.body, facts.members, &[own.as_bytes(), &text].concat()),
        }
    }

    /// The edits: a place, and the bytes in it. Places are in order.
    pub fn edits(self) -> impl Iterator<Item = (Span, Vec<u8>)> {
        self.edits.into_iter().map(|edit| (edit.span, edit.text))
    }

    /// Puts `text` in the place of the bytes at `span`, which overlap no other edit.
    pub fn replace(&mut self, span: Span, text: Vec<u8>) {
        let at = self.edits.partition_point(|edit| edit.span.start < span.start);
        debug_assert!(at == 0 || self.edits[at - 1].span.end <= span.start, "edits do not overlap");
        debug_assert!(self.edits.get(at).is_none_or(|next| span.end <= next.span.start), "edits do not overlap");
        self.edits.insert(at, Edit { span, text });
    }

    /// Puts `marker` in the place of a part of a text in the body: a [text of a prompt](weir_analysis::ai::TextSpan), a description, or
    /// arguments that are a string. `text`: that text without its escapes, decoded from the bytes between the quotes of `span`. `part`: a range
    /// of it, whose ends are those of characters; parts of one text do not overlap. The body stays valid JSON.
    pub fn redact(&mut self, span: Span, text: &Decoded, part: Range<usize>, marker: &str) {
        let raw = text.raw(part);
        // Behind the quote.
        let at = |offset: usize| span.start.saturating_add(1).saturating_add(u32::try_from(offset).unwrap_or(u32::MAX));
        let mut quoted = Vec::with_capacity(marker.len() + 2);
        string(&mut quoted, marker);
        quoted.pop();
        quoted.drain(..1);
        self.replace(Span { start: at(raw.start), end: at(raw.end) }, quoted);
    }

    /// Bytes of an edited body that had so many.
    pub fn length(&self, body: u64) -> u64 {
        self.edits.iter().fold(body, |length, edit| length - u64::from(edit.span.len()) + edit.text.len() as u64)
    }

    /// The edited body as parts of `body` and of the edits, which are not copied.
    pub fn parts<'a>(&'a self, body: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let begins = [0].into_iter().chain(self.edits.iter().map(|edit| edit.span.end as usize));
        let ends = self.edits.iter().map(|edit| (edit.span.start as usize, &*edit.text));
        let parts = begins.zip(ends.chain([(body.len(), &[][..])]));
        let parts = parts.flat_map(|(begin, (end, text))| [body.get(begin..end).unwrap_or_default(), text]);
        parts.filter(|part| !part.is_empty())
    }

    /// The edited body in one piece.
    pub fn apply(&self, body: &[u8]) -> Vec<u8> {
        let mut edited = Vec::with_capacity(self.length(body.len() as u64) as usize);
        self.parts(body).for_each(|part| edited.extend_from_slice(part));
        edited
    }

    /// Adds a member in front of the closing brace of an object.
    fn insert(&mut self, object: Span, members: u64, member: &[u8]) {
        let at = object.end - 1;
        let comma: &[u8] = if members > 0 { b"," } else { b"" };
        self.replace(Span { start: at, end: at }, [comma, member].concat());
    }
}
