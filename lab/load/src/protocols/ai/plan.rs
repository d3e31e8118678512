//! The requests of a shard.

use std::fmt::Write as _;

use super::check::{Expected, Replies};
use super::text::{Texts, word};
use crate::protocols::messages::name_of;
use crate::requests::{Expectation, Planner};
use crate::scenario::{Ai, AiWorkload, Scenario};
use crate::shard::Shard;
use crate::values::Values;

/// The words that prompts are filled up with.
const FILLING: &str = "The weir stands across the river, governs its flow and measures it. ";

/// Bytes of a prompt for each of its tokens, as the request states them to the origin.
const PROMPT_TOKEN_BYTES: usize = 4;

/// A reserved name that no one can register (RFC 2606).
const HOST: &str = "lab.example";

/// Plans a request for each prompt.
pub(super) struct Prompts<'a> {
    ai: &'a Ai,
    payload: usize,
    shard: Shard,
    values: Values,
    /// Everything of a body in front of what differs, and behind it.
    around: [String; 2],
    planned: usize,
}

impl<'a> Prompts<'a> {
    pub(super) fn new(scenario: &'a Scenario, shard: Shard) -> Self {
        let (ai, payload) = (&scenario.ai, scenario.payload.bytes_max());
        let values = Values::new(scenario.seed, &scenario.payload);
        Self { ai, payload, shard, values, around: around(ai, payload), planned: 0 }
    }
}

impl Planner for Prompts<'_> {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        let word = word(self.values.word(name_of(self.shard, self.planned)));
        let [before, behind] = &self.around;
        let length = before.len() + word.len() + behind.len();
        let mut head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
        );
        if let Some(key) = &self.ai.key {
            let _ = write!(head, "Authorization: Bearer {}\r\n", String::from_utf8_lossy(key.expose()));
        }
        self.ai.fields.iter().for_each(|field| {
            let _ = write!(head, "{field}\r\n");
        });
        arena.extend_from_slice(head.as_bytes());
        arena.extend_from_slice(b"\r\n");
        arena.extend_from_slice(before.as_bytes());
        arena.extend_from_slice(&word);
        arena.extend_from_slice(behind.as_bytes());
        self.planned += 1;
    }

    fn finish(self: Box<Self>) -> Box<dyn Expectation> {
        let expected = Expected {
            is_stream: self.ai.workload.is_stream(),
            is_call: self.ai.workload == AiWorkload::Agent,
            bytes: self.payload,
            prompt_tokens: prompt_tokens(self.ai),
        };
        Box::new(Replies { shard: self.shard, values: self.values, texts: Texts::new(self.payload), expected })
    }
}

/// As the request has them billed.
fn prompt_tokens(ai: &Ai) -> u64 {
    ai.prompt_bytes.div_ceil(PROMPT_TOKEN_BYTES) as u64
}

/// The body of every request of a scenario: only the word differs.
fn around(ai: &Ai, payload: usize) -> [String; 2] {
    let prompt: String = FILLING.chars().cycle().take(ai.prompt_bytes).collect();
    let mut before = format!("{{\"model\":\"{}\",\"messages\":[{SYSTEM},", ai.model);
    if ai.workload == AiWorkload::Agent {
        before.push_str(TURNS);
        before.push(',');
    }
    let _ = write!(before, "{{\"role\":\"user\",\"content\":\"{prompt} [weir prompt={}", prompt_tokens(ai));
    match ai.workload {
        AiWorkload::Agent => before.push_str(" calls=1"),
        _ => {
            let _ = write!(before, " bytes={payload}");
        }
    }
    if ai.workload.is_stream() {
        let _ = write!(before, " events={}", ai.events);
    }
    if ai.workload == AiWorkload::Paced {
        let _ = write!(before, " first={}us gap={}us", ai.first.as_micros(), ai.gap.as_micros());
    }
    before.push_str(" word=");
    let mut behind = "]\"}]".to_owned();
    if ai.workload.is_stream() {
        behind.push_str(",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    }
    if ai.workload == AiWorkload::Agent {
        let tools: Vec<String> = (0..ai.tools).map(tool).collect();
        let _ = write!(behind, ",\"tools\":[{}],\"tool_choice\":\"auto\"", tools.join(","));
    }
    behind.push('}');
    [before, behind]
}

const SYSTEM: &str = "{\"role\":\"system\",\"content\":\"You answer in one paragraph.\"}";

/// The turns of an agent before: one call of a tool, and its result.
const TURNS: &str = "{\"role\":\"user\",\"content\":\"How high is the water?\"},{\"role\":\"assistant\",\"content\":null,\
    \"tool_calls\":[{\"id\":\"call_before\",\"type\":\"function\",\"function\":{\"name\":\"tool_0\",\"arguments\":\
    \"{\\\"query\\\":\\\"level\\\",\\\"limit\\\":1,\\\"unit\\\":\\\"metric\\\",\\\"tags\\\":[]}\"}}]},{\"role\":\"tool\",\
    \"tool_call_id\":\"call_before\",\"content\":\"{\\\"level_cm\\\":214,\\\"trend\\\":\\\"falling\\\"}\"}";

/// The schema of tool `number`: some 600 bytes, as those of applications have.
fn tool(number: u32) -> String {
    format!(
        "{{\"type\":\"function\",\"function\":{{\"name\":\"tool_{number}\",\"description\":\"Searches the records of gauge \
         {number} along the river and returns the readings that fit the query, newest first.\",\"strict\":true,\
         \"parameters\":{{\"type\":\"object\",\"properties\":{{\"query\":{{\"type\":\"string\",\"description\":\"Words to \
         search for in the names of stations.\"}},\"limit\":{{\"type\":\"integer\",\"minimum\":1,\"maximum\":50,\"description\":\
         \"The most readings to return.\"}},\"unit\":{{\"type\":\"string\",\"enum\":[\"metric\"]}},\"tags\":{{\"type\":\"array\",\
         \"items\":{{\"type\":\"string\"}},\"description\":\"Tags that every reading must have.\"}}}},\"required\":[\"query\",\
         \"limit\",\"unit\",\"tags\"],\"additionalProperties\":false}}}}}}"
    )
}
