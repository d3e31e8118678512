//! Anthropic's messages, whole and as events.

use super::{
    chat::write_part,
    directive::Finish,
    json::{Part, parts},
    model_response::{Content, ModelResponse},
    reply::{Event, Events},
    text::Templates,
    tools::Call,
    usage::{self, Dialect, Tokens, UsageShape},
};

/// Appends the whole reply.
pub fn write(response: &ModelResponse, templates: &Templates, out: &mut Vec<u8>) {
    use Part::{Raw, Text};
    parts(
        &[Raw("{\"id\":\"msg_"), Raw(&response.id), Raw("\",\"type\":\"message\",\"role\":\"assistant\",\"model\":")],
        out,
    );
    parts(&[Text(&response.model), Raw(",\"content\":[")], out);
    match &response.content {
        Content::Text(text) | Content::Refusal(text) => {
            out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
            ModelResponse::write_text(text, templates, out);
            out.push(b'}');
        }
        Content::Calls(calls) => {
            for (at, Call { id, name, arguments }) in calls.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                parts(
                    &[Raw(comma), Raw("{\"type\":\"tool_use\",\"id\":"), Text(id), Raw(",\"name\":"), Text(name)],
                    out,
                );
                parts(&[Raw(",\"input\":"), Raw(arguments), Raw("}")], out);
            }
        }
    }
    parts(&[Raw("],\"stop_reason\":"), Text(stop_reason(response)), Raw(",\"stop_sequence\":null")], out);
    response.write_usage(Dialect::Messages, out);
    out.push(b'}');
}

fn stop_reason(response: &ModelResponse) -> &'static str {
    match (&response.content, response.finish) {
        (Content::Calls(_), Finish::Stop) => "tool_use",
        (Content::Refusal(_), Finish::Stop) | (_, Finish::ContentFilter) => "refusal",
        (_, Finish::Stop) => "end_turn",
        (_, Finish::Length) => "max_tokens",
    }
}

/// The events of one reply: its start, a ping, each block from start to stop, its reason and its end.
pub struct EventSequence {
    response: ModelResponse,
    next: usize,
}

impl EventSequence {
    /// At the first one.
    pub fn new(response: ModelResponse) -> Self {
        Self { response, next: 0 }
    }

    fn blocks(&self) -> usize {
        match &self.response.content {
            Content::Calls(calls) => calls.len(),
            _ => 1,
        }
    }

    /// The message as it is at its start, with the input tokens.
    fn start(&self, data: &mut Vec<u8>) {
        use Part::{Raw, Text};
        let begin = "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_";
        parts(
            &[Raw(begin), Raw(&self.response.id), Raw("\",\"type\":\"message\",\"role\":\"assistant\",\"model\":")],
            data,
        );
        parts(&[Text(&self.response.model), Raw(",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null")], data);
        if self.response.usage != UsageShape::Missing {
            data.extend_from_slice(b",\"usage\":");
            let tokens = Tokens { completion: 1, ..self.response.tokens };
            usage::write(UsageShape::Exact, Dialect::Messages, &tokens, data);
        }
        data.extend_from_slice(b"}}");
    }

    /// Event `at` of block `block`.
    fn block(&self, block: usize, at: usize, templates: &Templates, data: &mut Vec<u8>) -> Event {
        use Part::{Number, Raw, Text};
        let events = self.response.events;
        let (name, is_delta) = match at {
            0 => ("content_block_start", false),
            at if at <= events => ("content_block_delta", true),
            _ => ("content_block_stop", false),
        };
        parts(&[Raw("{\"type\":"), Text(name), Raw(",\"index\":"), Number(block as u64)], data);
        let mut tokens = None;
        match &self.response.content {
            Content::Calls(calls) if at == 0 => {
                let Call { id, name, .. } = &calls[block];
                parts(&[Raw(",\"content_block\":{\"type\":\"tool_use\",\"id\":"), Text(id)], data);
                parts(&[Raw(",\"name\":"), Text(name), Raw(",\"input\":{}}")], data);
            }
            Content::Calls(calls) if is_delta => {
                data.extend_from_slice(b",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"");
                tokens = Some(write_part(&calls[block].arguments, at - 1, events, data));
                data.extend_from_slice(b"\"}");
            }
            Content::Text(_) | Content::Refusal(_) if at == 0 => {
                data.extend_from_slice(b",\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
            }
            Content::Text(text) | Content::Refusal(text) if is_delta => {
                data.extend_from_slice(b",\"delta\":{\"type\":\"text_delta\",\"text\":\"");
                tokens = Some(text.write_piece(at - 1, events, templates, data));
                data.extend_from_slice(b"\"}");
            }
            _ => {}
        }
        data.push(b'}');
        Event { name: Some(name), tokens, is_last: false }
    }

    fn end(&self, data: &mut Vec<u8>) {
        use Part::{Raw, Text};
        let begin = "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":";
        parts(&[Raw(begin), Text(stop_reason(&self.response)), Raw(",\"stop_sequence\":null}")], data);
        self.response.write_usage(Dialect::Messages, data);
        data.push(b'}');
    }
}

impl Events for EventSequence {
    fn next(&mut self, templates: &Templates, data: &mut Vec<u8>) -> Option<Event> {
        let each = self.response.events + 2;
        let inside = self.blocks() * each;
        let frame = |name| Event { name: Some(name), ..Event::FRAME };
        let event = match self.next {
            0 => {
                self.start(data);
                frame("message_start")
            }
            1 => {
                data.extend_from_slice(b"{\"type\":\"ping\"}");
                frame("ping")
            }
            at if at < 2 + inside => self.block((at - 2) / each, (at - 2) % each, templates, data),
            at if at == 2 + inside => {
                self.end(data);
                frame("message_delta")
            }
            at if at == 3 + inside => {
                data.extend_from_slice(b"{\"type\":\"message_stop\"}");
                Event { is_last: true, ..frame("message_stop") }
            }
            _ => return None,
        };
        self.next += 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::ai::text::{Text, Word};

    #[test]
    fn events_have_names_and_build_up_the_whole() {
        let response = ModelResponse {
            id: "1".to_owned(),
            model: "m".to_owned(),
            content: Content::Text(Text::Plain { word: Word::of(1), bytes: 30 }),
            finish: Finish::Stop,
            events: 2,
            choices: 1,
            tokens: Tokens { prompt: 9, cached: 4, completion: 8, ..Tokens::default() },
            usage: UsageShape::Exact,
            includes_usage: false,
            has_interleaved_calls: false,
        };
        let (templates, mut out) = (Templates::default(), Vec::new());
        write(&response, &templates, &mut out);
        let whole: Value = serde_json::from_slice(&out).expect("JSON");
        let (mut sequence, mut names, mut said, mut last) =
            (EventSequence::new(response), Vec::new(), String::new(), false);
        loop {
            let mut data = Vec::new();
            let Some(event) = sequence.next(&templates, &mut data) else { break };
            let data: Value = serde_json::from_slice(&data).expect("JSON");
            assert_eq!(data["type"], event.name.expect("a name"));
            said.push_str(data["delta"]["text"].as_str().unwrap_or_default());
            names.push(event.name.expect("a name"));
            last = event.is_last;
        }
        assert_eq!(said, whole["content"][0]["text"]);
        assert_eq!(
            (&whole["usage"]["input_tokens"], &whole["usage"]["cache_read_input_tokens"]),
            (&5.into(), &4.into())
        );
        let wanted = ["message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta"];
        assert_eq!(names[..5], wanted);
        assert_eq!((&names[5..], last), (&["content_block_stop", "message_delta", "message_stop"][..], true));
    }
}
