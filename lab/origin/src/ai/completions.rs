//! Completions of a prompt, whole and in chunks.

use super::{
    json::{Part, parts},
    model_response::{Content, ModelResponse, write_head},
    reply::{Event, Events},
    text::{Templates, Text},
    usage::{self, Dialect, UsageShape},
};

/// The text; a completion calls nothing.
fn text(content: &Content) -> Option<&Text> {
    match content {
        Content::Text(text) | Content::Refusal(text) => Some(text),
        Content::Calls(_) => None,
    }
}

/// Appends the whole reply.
pub fn write(response: &ModelResponse, templates: &Templates, out: &mut Vec<u8>) {
    use Part::{Number, Raw};
    write_head("cmpl-", "text_completion", response, out);
    out.extend_from_slice(b",\"choices\":[");
    for choice in 0..response.choices {
        let comma = if choice == 0 { "" } else { "," };
        parts(&[Raw(comma), Raw("{\"index\":"), Number(choice as u64), Raw(",\"text\":\"")], out);
        if let Some(text) = text(&response.content) {
            text.write(templates, out);
        }
        parts(&[Raw("\",\"logprobs\":null,\"finish_reason\":\""), Raw(response.finish_reason()), Raw("\"}")], out);
    }
    out.push(b']');
    response.write_usage(Dialect::Chat, out);
    out.push(b'}');
}

/// The chunks of one reply with one choice.
pub struct Chunks {
    response: ModelResponse,
    next: usize,
}

impl Chunks {
    /// At the first one.
    pub fn new(response: ModelResponse) -> Self {
        Self { response, next: 0 }
    }
}

impl Events for Chunks {
    fn next(&mut self, templates: &Templates, data: &mut Vec<u8>) -> Option<Event> {
        let (at, events) = (self.next, self.response.events);
        let has_report = self.response.usage.has_own_chunk(self.response.includes_usage);
        let (is_end, is_report) = (at == events, at == events + 1);
        if at > events + usize::from(has_report) {
            return None;
        }
        self.next += 1;
        write_head("cmpl-", "text_completion", &self.response, data);
        if is_report {
            data.extend_from_slice(b",\"choices\":[],\"usage\":");
            usage::write(self.response.usage, Dialect::Chat, &self.response.tokens, data);
            data.push(b'}');
            return Some(Event::FRAME);
        }
        data.extend_from_slice(b",\"choices\":[{\"index\":0,\"text\":\"");
        let piece = text(&self.response.content).filter(|_| !is_end);
        let tokens = piece.map(|text| text.write_piece(at, events, templates, data));
        data.extend_from_slice(b"\",\"logprobs\":null,\"finish_reason\":");
        if is_end {
            parts(&[Part::Text(self.response.finish_reason())], data);
        } else {
            data.extend_from_slice(b"null");
        }
        data.extend_from_slice(b"}]");
        let is_here = match self.response.usage {
            UsageShape::LastContent => at + 1 == events,
            UsageShape::Finish => is_end,
            _ => false,
        };
        if is_here {
            data.extend_from_slice(b",\"usage\":");
            usage::write(self.response.usage, Dialect::Chat, &self.response.tokens, data);
        } else if has_report {
            data.extend_from_slice(b",\"usage\":null");
        }
        data.push(b'}');
        Some(Event { tokens, ..Event::FRAME })
    }
}
