//! Chat completions, whole and in chunks.

use super::{
    json::{self, Part, parts},
    model_response::{Content, ModelResponse, write_head},
    reply::{Event, Events},
    text::{Templates, Text, tokens_of},
    tools::Call,
    usage::{self, Dialect, Tokens, UsageShape},
};

/// Appends the whole reply.
pub fn write(response: &ModelResponse, templates: &Templates, out: &mut Vec<u8>) {
    use Part::{Number, Raw};
    write_head("chatcmpl-", "chat.completion", response, out);
    out.extend_from_slice(b",\"choices\":[");
    for choice in 0..response.choices {
        let comma = if choice == 0 { "" } else { "," };
        parts(&[Raw(comma), Raw("{\"index\":"), Number(choice as u64), Raw(",\"message\":")], out);
        write_message(&response.content, templates, out);
        parts(&[Raw(",\"logprobs\":null,\"finish_reason\":\""), Raw(response.finish_reason()), Raw("\"}")], out);
    }
    out.push(b']');
    response.write_usage(Dialect::Chat, out);
    out.extend_from_slice(b",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_weir\"}");
}

fn write_message(content: &Content, templates: &Templates, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":");
    match content {
        Content::Text(text) => {
            ModelResponse::write_text(text, templates, out);
            out.extend_from_slice(b",\"refusal\":null,\"annotations\":[]}");
        }
        Content::Refusal(text) => {
            out.extend_from_slice(b"null,\"refusal\":");
            ModelResponse::write_text(text, templates, out);
            out.push(b'}');
        }
        Content::Calls(calls) => {
            out.extend_from_slice(b"null,\"refusal\":null,\"tool_calls\":[");
            for (at, Call { id, name, arguments }) in calls.iter().enumerate() {
                use Part::{Raw, Text};
                let comma = if at == 0 { "" } else { "," };
                parts(&[Raw(comma), Raw("{\"id\":"), Text(id), Raw(",\"type\":\"function\",\"function\":{")], out);
                parts(&[Raw("\"name\":"), Text(name), Raw(",\"arguments\":"), Text(arguments), Raw("}}")], out);
            }
            out.extend_from_slice(b"]}");
        }
    }
}

/// The chunks of one reply, by their number: first one with the role for each choice, then the pieces of all choices in turn, then the
/// ends, then usage.
pub struct Chunks {
    response: ModelResponse,
    /// Everything up to `"choices":`, the same for all chunks.
    head: Vec<u8>,
    next: usize,
    /// Output tokens so far.
    said: u64,
    /// Output tokens that were reported so far, one report after the other.
    reported: u64,
}

/// Which chunk.
enum Step {
    Role(usize),
    Opening(usize),
    Piece { at: usize, lane: usize },
    End(usize),
    Usage,
}

impl Chunks {
    /// At the first one.
    pub fn new(response: ModelResponse) -> Self {
        let mut head = Vec::new();
        write_head("chatcmpl-", "chat.completion.chunk", &response, &mut head);
        head.extend_from_slice(b",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_weir\",\"choices\":");
        Self { response, head, next: 0, said: 0, reported: 0 }
    }

    /// Choices with a text, or calls: what the pieces go round.
    fn lanes(&self) -> usize {
        match &self.response.content {
            Content::Calls(calls) => calls.len(),
            _ => self.response.choices,
        }
    }

    /// Choices that end. Calls are those of one choice.
    fn choices(&self) -> usize {
        if self.is_call() { 1 } else { self.response.choices }
    }

    fn step(&self) -> Option<Step> {
        let (choices, events) = (self.choices(), self.response.events);
        let reports = match self.response.usage.has_own_chunk(self.response.includes_usage) {
            true if self.response.usage == UsageShape::Twice => 2,
            has_chunk => usize::from(has_chunk),
        };
        let said = self.lanes() * if self.is_call() { events + 1 } else { events };
        let at = self.next;
        if at < choices {
            Some(Step::Role(at))
        } else if at < choices + said {
            Some(self.said_step(at - choices))
        } else if at < choices + said + choices {
            Some(Step::End(at - choices - said))
        } else {
            (at < choices + said + choices + reports).then_some(Step::Usage)
        }
    }

    /// Step `at` among those that say something. Calls come one after the other, as the accumulators of SDKs need it, or in turn.
    fn said_step(&self, at: usize) -> Step {
        let (lanes, events) = (self.lanes(), self.response.events);
        match (self.is_call(), self.response.has_interleaved_calls) {
            (false, _) => Step::Piece { at: at / lanes, lane: at % lanes },
            (true, false) => match at % (events + 1) {
                0 => Step::Opening(at / (events + 1)),
                piece => Step::Piece { at: piece - 1, lane: at / (events + 1) },
            },
            (true, true) if at < lanes => Step::Opening(at),
            (true, true) => Step::Piece { at: (at - lanes) / lanes, lane: (at - lanes) % lanes },
        }
    }

    fn is_call(&self) -> bool {
        matches!(self.response.content, Content::Calls(_))
    }

    fn delta(&self, step: &Step, templates: &Templates, data: &mut Vec<u8>) -> Option<u64> {
        use Part::{Number, Raw, Text};
        match (step, &self.response.content) {
            (Step::Role(_), Content::Text(_)) => {
                data.extend_from_slice(b"{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}");
            }
            (Step::Role(_), _) => data.extend_from_slice(b"{\"role\":\"assistant\",\"content\":null}"),
            (Step::Opening(at), Content::Calls(calls)) => {
                let Call { id, name, .. } = &calls[*at];
                parts(&[Raw("{\"tool_calls\":[{\"index\":"), Number(*at as u64), Raw(",\"id\":"), Text(id)], data);
                parts(&[Raw(",\"type\":\"function\",\"function\":{\"name\":"), Text(name)], data);
                data.extend_from_slice(b",\"arguments\":\"\"}}]}");
            }
            (Step::Piece { at, lane }, Content::Calls(calls)) => {
                let start =
                    [Raw("{\"tool_calls\":[{\"index\":"), Number(*lane as u64), Raw(",\"function\":{\"arguments\":\"")];
                parts(&start, data);
                let tokens = write_part(&calls[*lane].arguments, *at, self.response.events, data);
                data.extend_from_slice(b"\"}}]}");
                return Some(tokens);
            }
            (Step::Piece { at, .. }, Content::Text(text)) => {
                return Some(self.said("content", text, *at, templates, data));
            }
            (Step::Piece { at, .. }, Content::Refusal(text)) => {
                return Some(self.said("refusal", text, *at, templates, data));
            }
            _ => data.extend_from_slice(b"{}"),
        }
        None
    }

    fn said(&self, name: &str, text: &Text, at: usize, templates: &Templates, data: &mut Vec<u8>) -> u64 {
        parts(&[Part::Raw("{\""), Part::Raw(name), Part::Raw("\":\"")], data);
        let tokens = text.write_piece(at, self.response.events, templates, data);
        data.extend_from_slice(b"\"}");
        tokens
    }

    /// Appends `,"usage":...` where the shape has it.
    fn usage(&mut self, step: &Step, data: &mut Vec<u8>) {
        let shape = self.response.usage;
        let is_last_piece = matches!(step, Step::Piece { at, .. } if at + 1 == self.response.events);
        let is_here = match shape {
            UsageShape::Growing | UsageShape::Inflating => true,
            UsageShape::LastContent => is_last_piece,
            UsageShape::Finish => matches!(step, Step::End(_)),
            _ => matches!(step, Step::Usage),
        };
        if !is_here {
            if self.response.includes_usage || shape.has_own_chunk(false) {
                data.extend_from_slice(b",\"usage\":null");
            }
            return;
        }
        data.extend_from_slice(b",\"usage\":");
        let mut tokens = self.response.tokens;
        if matches!(shape, UsageShape::Growing | UsageShape::Inflating) {
            let unseen = tokens.reasoning + tokens.audio;
            tokens.completion = self.said + unseen;
            self.reported += tokens.completion;
            if shape == UsageShape::Inflating {
                tokens = Tokens { completion: self.reported, ..tokens };
            }
        }
        usage::write(shape, Dialect::Chat, &tokens, data);
    }
}

impl Events for Chunks {
    fn next(&mut self, templates: &Templates, data: &mut Vec<u8>) -> Option<Event> {
        let step = self.step()?;
        self.next += 1;
        data.extend_from_slice(&self.head);
        let choice = match &step {
            Step::Role(choice) | Step::End(choice) => *choice,
            Step::Piece { lane, .. } if !self.is_call() => *lane,
            _ => 0,
        };
        let mut tokens = None;
        if matches!(step, Step::Usage) && self.response.usage != UsageShape::Choices {
            data.extend_from_slice(b"[]");
        } else {
            parts(&[Part::Raw("[{\"index\":"), Part::Number(choice as u64), Part::Raw(",\"delta\":")], data);
            tokens = self.delta(&step, templates, data);
            data.extend_from_slice(b",\"logprobs\":null,\"finish_reason\":");
            match step {
                Step::End(_) | Step::Usage => json::string(self.response.finish_reason(), data),
                _ => data.extend_from_slice(b"null"),
            }
            data.extend_from_slice(b"}]");
        }
        self.said += tokens.unwrap_or(0);
        self.usage(&step, data);
        data.push(b'}');
        Some(Event { tokens, ..Event::FRAME })
    }
}

/// Appends part `at` of `of` of a text as the inside of a JSON string. The tokens that are billed for it.
pub fn write_part(text: &str, at: usize, of: usize, out: &mut Vec<u8>) -> u64 {
    let place = |at: usize| text.floor_char_boundary((text.len() as u64 * at as u64 / of.max(1) as u64) as usize);
    let (begin, end) = (place(at), place(at + 1));
    json::escape(&text[begin..end], out);
    tokens_of(end) - tokens_of(begin)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::ai::{directive::Finish, text::Word};

    fn response(content: Content) -> ModelResponse {
        ModelResponse {
            id: "1".to_owned(),
            model: "m".to_owned(),
            content,
            finish: Finish::Stop,
            events: 3,
            choices: 1,
            tokens: Tokens { prompt: 5, completion: 10, ..Tokens::default() },
            usage: UsageShape::Exact,
            includes_usage: false,
            has_interleaved_calls: false,
        }
    }

    fn text() -> Content {
        Content::Text(Text::Plain { word: Word::of(1), bytes: 40 })
    }

    fn call(name: &str) -> Call {
        Call { id: format!("call_{name}"), name: name.to_owned(), arguments: "{\"a\":\"b\"}".to_owned() }
    }

    fn chunks(response: ModelResponse) -> Vec<(Value, Option<u64>)> {
        let (mut chunks, templates, mut found) = (Chunks::new(response), Templates::default(), Vec::new());
        loop {
            let mut data = Vec::new();
            let Some(event) = chunks.next(&templates, &mut data) else { return found };
            found.push((serde_json::from_slice(&data).expect("JSON"), event.tokens));
        }
    }

    fn whole(response: &ModelResponse) -> Value {
        let mut out = Vec::new();
        write(response, &Templates::default(), &mut out);
        serde_json::from_slice(&out).expect("JSON")
    }

    #[test]
    fn chunks_say_what_the_whole_says() {
        let response = response(text());
        let whole = whole(&response);
        let found = chunks(response);
        let said: String =
            found.iter().filter_map(|(chunk, _)| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(said, whole["choices"][0]["message"]["content"]);
        assert_eq!(found.iter().filter_map(|(_, tokens)| *tokens).sum::<u64>(), 10);
        assert_eq!(found.len(), 1 + 3 + 1);
        assert_eq!(found[4].0["choices"][0]["finish_reason"], "stop");
        assert!(found[4].0.get("usage").is_none());
    }

    /// The index of the call of each chunk that belongs to one.
    fn order(found: &[(Value, Option<u64>)]) -> Vec<u64> {
        let index =
            |(chunk, _): &(Value, _)| chunk.pointer("/choices/0/delta/tool_calls/0/index").and_then(Value::as_u64);
        found.iter().filter_map(index).collect()
    }

    #[test]
    fn several_calls_come_in_pieces_one_after_the_other_or_in_turn() {
        let calls = || Content::Calls(vec![call("f"), call("g")]);
        for has_interleaved_calls in [false, true] {
            let found = chunks(ModelResponse { has_interleaved_calls, ..response(calls()) });
            let mut arguments = [String::new(), String::new()];
            for (chunk, _) in &found {
                for part in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
                    let at = part["index"].as_u64().expect("an index") as usize;
                    arguments[at].push_str(part["function"]["arguments"].as_str().expect("a piece"));
                }
            }
            assert_eq!(arguments, ["{\"a\":\"b\"}", "{\"a\":\"b\"}"]);
            assert_eq!(found.last().expect("an end").0["choices"][0]["finish_reason"], "tool_calls");
            let wanted = if has_interleaved_calls { [0, 1, 0, 1, 0, 1, 0, 1] } else { [0, 0, 0, 0, 1, 1, 1, 1] };
            assert_eq!(order(&found), wanted);
            assert_eq!(found.len(), 1 + 8 + 1);
        }
    }

    #[test]
    fn usage_comes_where_its_shape_says() {
        let places = |usage, includes_usage| -> Vec<usize> {
            let found = chunks(ModelResponse { usage, includes_usage, ..response(text()) });
            let has = |(_, (chunk, _)): &(usize, &(Value, _))| chunk.get("usage").is_some_and(Value::is_object);
            found.iter().enumerate().filter(has).map(|(at, _)| at).collect()
        };
        assert_eq!(places(UsageShape::Exact, false), [0; 0]);
        assert_eq!(places(UsageShape::Exact, true), [5]);
        assert_eq!(places(UsageShape::Always, false), [5]);
        assert_eq!(places(UsageShape::Twice, false), [5, 6]);
        assert_eq!(places(UsageShape::LastContent, true), [3]);
        assert_eq!(places(UsageShape::Finish, false), [4]);
        assert_eq!(places(UsageShape::Growing, false), [0, 1, 2, 3, 4]);
        assert_eq!(places(UsageShape::Missing, true), [0; 0]);
        let growing = chunks(ModelResponse { usage: UsageShape::Growing, ..response(text()) });
        let last = &growing.last().expect("an end").0["usage"]["completion_tokens"];
        assert_eq!(last, 10, "the last report is the whole");
        let inflating = chunks(ModelResponse { usage: UsageShape::Inflating, ..response(text()) });
        assert!(inflating.last().expect("an end").0["usage"]["completion_tokens"].as_u64() > Some(10));
        let choices = chunks(ModelResponse { usage: UsageShape::Choices, ..response(text()) });
        assert_eq!(choices.last().expect("a report").0["choices"].as_array().map(Vec::len), Some(1));
    }
}
