//! OpenAI's responses, whole and as events in the order in which its SDKs build them up again.

use super::{
    chat::write_part,
    directive::Finish,
    json::{Part, parts},
    model_response::{CREATED, Content, ModelResponse},
    reply::{Event, Events},
    text::{Templates, Text},
    tools::Call,
    usage::{Dialect, UsageShape},
};

/// Appends the whole reply.
pub fn write(response: &ModelResponse, templates: &Templates, out: &mut Vec<u8>) {
    write_response(response, Some(templates), out);
}

/// Appends the object; without templates: as it is at its beginning, with no output and no usage.
fn write_response(response: &ModelResponse, templates: Option<&Templates>, out: &mut Vec<u8>) {
    use Part::{Number, Raw, Text};
    let status = match (templates, response.finish) {
        (None, _) => "in_progress",
        (_, Finish::Stop) => "completed",
        _ => "incomplete",
    };
    let incomplete = match response.finish {
        Finish::Length if templates.is_some() => "{\"reason\":\"max_output_tokens\"}",
        Finish::ContentFilter if templates.is_some() => "{\"reason\":\"content_filter\"}",
        _ => "null",
    };
    parts(&[Raw("{\"id\":\"resp_"), Raw(&response.id), Raw("\",\"object\":\"response\",\"created_at\":")], out);
    parts(&[Number(CREATED), Raw(",\"status\":"), Text(status), Raw(",\"error\":null,\"incomplete_details\":")], out);
    parts(&[Raw(incomplete), Raw(",\"instructions\":null,\"metadata\":{},\"model\":"), Text(&response.model)], out);
    out.extend_from_slice(b",\"output\":[");
    if let Some(templates) = templates {
        for item in 0..items(&response.content) {
            out.extend_from_slice(if item == 0 { b"" } else { b"," });
            write_item(response, item, Some(templates), out);
        }
    }
    out.extend_from_slice(
        b"],\"parallel_tool_calls\":true,\"temperature\":1.0,\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":1.0",
    );
    match templates {
        Some(_) => response.write_usage(Dialect::Responses, out),
        None => out.extend_from_slice(b",\"usage\":null"),
    }
    out.push(b'}');
}

/// Output items: one message, or a call each.
fn items(content: &Content) -> usize {
    match content {
        Content::Calls(calls) => calls.len(),
        _ => 1,
    }
}

/// Appends an output item; without templates: as it is when it is added.
fn write_item(response: &ModelResponse, item: usize, templates: Option<&Templates>, out: &mut Vec<u8>) {
    use Part::{Number, Raw, Text};
    let status = if templates.is_some() { "completed" } else { "in_progress" };
    match &response.content {
        Content::Calls(calls) => {
            let Call { id, name, arguments } = &calls[item];
            let arguments = if templates.is_some() { arguments.as_str() } else { "" };
            parts(
                &[Raw("{\"id\":\"fc_"), Raw(&response.id), Number(item as u64), Raw("\",\"type\":\"function_call\"")],
                out,
            );
            parts(&[Raw(",\"status\":"), Text(status), Raw(",\"call_id\":"), Text(id), Raw(",\"name\":")], out);
            parts(&[Text(name), Raw(",\"arguments\":"), Text(arguments), Raw("}")], out);
        }
        content => {
            parts(&[Raw("{\"id\":\"msg_"), Raw(&response.id), Raw("\",\"type\":\"message\",\"status\":")], out);
            parts(&[Text(status), Raw(",\"role\":\"assistant\",\"content\":[")], out);
            if templates.is_some() {
                write_content_part(content, templates, out);
            }
            out.extend_from_slice(b"]}");
        }
    }
}

/// Appends the part of a message with its text; without templates: as it is when it is added.
fn write_content_part(content: &Content, templates: Option<&Templates>, out: &mut Vec<u8>) {
    let (start, text) = match content {
        Content::Text(text) => ("{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":", text),
        Content::Refusal(text) => ("{\"type\":\"refusal\",\"refusal\":", text),
        Content::Calls(_) => return,
    };
    out.extend_from_slice(start.as_bytes());
    write_text(text, templates, out);
    out.push(b'}');
}

fn write_text(text: &Text, templates: Option<&Templates>, out: &mut Vec<u8>) {
    match templates {
        Some(templates) => ModelResponse::write_text(text, templates, out),
        None => out.extend_from_slice(b"\"\""),
    }
}

/// The events of one reply.
pub struct EventSequence {
    response: ModelResponse,
    next: usize,
}

/// Which event of an output item.
enum Step {
    Added,
    PartAdded,
    Delta(usize),
    TextDone,
    PartDone,
    Done,
}

impl EventSequence {
    /// At the first one.
    pub fn new(response: ModelResponse) -> Self {
        Self { response, next: 0 }
    }

    /// Events of one output item.
    fn item_events(&self) -> usize {
        let frame = if matches!(self.response.content, Content::Calls(_)) { 3 } else { 5 };
        self.response.events + frame
    }

    /// Event `at` of an item.
    fn step(&self, at: usize) -> Step {
        let is_call = matches!(self.response.content, Content::Calls(_));
        let (before, deltas) = (if is_call { 1 } else { 2 }, self.response.events);
        match at {
            0 => Step::Added,
            1 if !is_call => Step::PartAdded,
            at if at < before + deltas => Step::Delta(at - before),
            at if at == before + deltas => Step::TextDone,
            at if at == before + deltas + 1 && !is_call => Step::PartDone,
            _ => Step::Done,
        }
    }

    /// Appends `{"type":"<name>","sequence_number":N`.
    fn head(&self, name: &'static str, data: &mut Vec<u8>) {
        use Part::{Number, Raw, Text};
        parts(&[Raw("{\"type\":"), Text(name), Raw(",\"sequence_number\":"), Number(self.next as u64)], data);
    }

    /// An event with the whole response in it.
    fn response(&self, name: &'static str, templates: Option<&Templates>, data: &mut Vec<u8>) -> Event {
        self.head(name, data);
        data.extend_from_slice(b",\"response\":");
        write_response(&self.response, templates, data);
        data.push(b'}');
        Event { name: Some(name), tokens: None, is_last: templates.is_some() }
    }

    fn item(&self, item: usize, step: &Step, templates: &Templates, data: &mut Vec<u8>) -> Event {
        let is_call = matches!(self.response.content, Content::Calls(_));
        let is_refusal = matches!(self.response.content, Content::Refusal(_));
        let name = match step {
            Step::Added => "response.output_item.added",
            Step::PartAdded => "response.content_part.added",
            Step::Delta(_) if is_call => "response.function_call_arguments.delta",
            Step::Delta(_) if is_refusal => "response.refusal.delta",
            Step::Delta(_) => "response.output_text.delta",
            Step::TextDone if is_call => "response.function_call_arguments.done",
            Step::TextDone if is_refusal => "response.refusal.done",
            Step::TextDone => "response.output_text.done",
            Step::PartDone => "response.content_part.done",
            Step::Done => "response.output_item.done",
        };
        self.head(name, data);
        parts(&[Part::Raw(",\"output_index\":"), Part::Number(item as u64)], data);
        let tokens = match step {
            Step::Added | Step::Done => {
                data.extend_from_slice(b",\"item\":");
                write_item(&self.response, item, matches!(step, Step::Done).then_some(templates), data);
                None
            }
            _ => self.inside(item, step, templates, data),
        };
        data.push(b'}');
        Event { name: Some(name), tokens, is_last: false }
    }

    /// An event about a part of an item.
    fn inside(&self, item: usize, step: &Step, templates: &Templates, data: &mut Vec<u8>) -> Option<u64> {
        use Part::{Number, Raw};
        let events = self.response.events;
        let (Content::Text(text) | Content::Refusal(text)) = &self.response.content else {
            let Content::Calls(calls) = &self.response.content else { return None };
            let arguments = &calls[item].arguments;
            parts(&[Raw(",\"item_id\":\"fc_"), Raw(&self.response.id), Number(item as u64), Raw("\"")], data);
            let Step::Delta(at) = step else {
                parts(&[Raw(",\"name\":"), Part::Text(&calls[item].name)], data);
                parts(&[Raw(",\"arguments\":"), Part::Text(arguments)], data);
                return None;
            };
            data.extend_from_slice(b",\"delta\":\"");
            let tokens = write_part(arguments, *at, events, data);
            data.push(b'"');
            return Some(tokens);
        };
        parts(&[Raw(",\"item_id\":\"msg_"), Raw(&self.response.id), Raw("\",\"content_index\":0")], data);
        let is_refusal = matches!(self.response.content, Content::Refusal(_));
        match step {
            Step::Delta(at) => {
                data.extend_from_slice(b",\"delta\":\"");
                let tokens = text.write_piece(*at, events, templates, data);
                data.extend_from_slice(if is_refusal { b"\"" } else { b"\",\"logprobs\":[]" });
                return Some(tokens);
            }
            Step::TextDone => {
                let name: &[u8] = if is_refusal { b",\"refusal\":" } else { b",\"logprobs\":[],\"text\":" };
                data.extend_from_slice(name);
                ModelResponse::write_text(text, templates, data);
            }
            _ => {
                data.extend_from_slice(b",\"part\":");
                let is_done = matches!(step, Step::PartDone);
                write_content_part(&self.response.content, is_done.then_some(templates), data);
            }
        }
        None
    }
}

impl Events for EventSequence {
    fn next(&mut self, templates: &Templates, data: &mut Vec<u8>) -> Option<Event> {
        let each = self.item_events();
        let inside = items(&self.response.content) * each;
        let event = match self.next {
            0 => self.response("response.created", None, data),
            1 => self.response("response.in_progress", None, data),
            at if at < 2 + inside => {
                let (item, at) = ((at - 2) / each, (at - 2) % each);
                self.item(item, &self.step(at), templates, data)
            }
            at if at == 2 + inside => {
                let name = match self.response.finish {
                    Finish::Stop => "response.completed",
                    _ => "response.incomplete",
                };
                self.response(name, Some(templates), data)
            }
            _ => return None,
        };
        self.next += 1;
        Some(event)
    }
}

/// Shapes that only chunks of chat can have are reported as they are billed.
pub fn shape(shape: UsageShape) -> UsageShape {
    match shape {
        UsageShape::LastContent | UsageShape::Finish | UsageShape::Choices | UsageShape::Growing => UsageShape::Exact,
        UsageShape::Twice | UsageShape::Inflating | UsageShape::Renamed | UsageShape::Always => UsageShape::Exact,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::ai::{text::Word, usage::Tokens};

    fn events(content: Content) -> Vec<(Event, Value)> {
        let response = ModelResponse {
            id: "1".to_owned(),
            model: "m".to_owned(),
            content,
            finish: Finish::Stop,
            events: 2,
            choices: 1,
            tokens: Tokens { prompt: 5, completion: 8, ..Tokens::default() },
            usage: UsageShape::Exact,
            includes_usage: false,
            has_interleaved_calls: false,
        };
        let (mut sequence, templates, mut found) = (EventSequence::new(response), Templates::default(), Vec::new());
        loop {
            let mut data = Vec::new();
            let Some(event) = sequence.next(&templates, &mut data) else { return found };
            found.push((event, serde_json::from_slice(&data).expect("JSON")));
        }
    }

    #[test]
    fn a_text_has_the_minimal_order_of_events() {
        let text = Text::Plain { word: Word::of(1), bytes: 32 };
        let found = events(Content::Text(text));
        let names: Vec<&str> = found.iter().filter_map(|(event, _)| event.name).collect();
        let wanted = [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ];
        assert_eq!(names, wanted.map(|name| format!("response.{name}")));
        for (number, (event, data)) in found.iter().enumerate() {
            assert_eq!((&data["type"], &data["sequence_number"]), (&event.name.into(), &number.into()));
        }
        let deltas: String = found.iter().filter_map(|(_, data)| data["delta"].as_str()).collect();
        let response = &found[9].1["response"];
        assert_eq!(deltas, response["output"][0]["content"][0]["text"]);
        assert_eq!((&response["usage"]["output_tokens"], found[9].0.is_last), (&8.into(), true));
        assert_eq!(found[0].1["response"]["output"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn calls_are_items_of_their_own() {
        let call = |name: &str| Call { id: name.to_owned(), name: name.to_owned(), arguments: "{\"a\":1}".to_owned() };
        let found = events(Content::Calls(vec![call("f"), call("g")]));
        let names: Vec<&str> = found.iter().filter_map(|(event, _)| event.name).collect();
        assert_eq!(names.len(), 2 + 2 * 5 + 1);
        assert_eq!(
            names[3..6],
            ["delta", "delta", "done"].map(|end| format!("response.function_call_arguments.{end}"))
        );
        let response = &found.last().expect("an end").1["response"];
        assert_eq!(response["output"][1]["arguments"], "{\"a\":1}");
        assert_eq!(response["output"][0]["call_id"], "f");
    }
}
