//! `[ai]`: what is sent, and what the origin is to answer.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::scenario::read::or_default;
use crate::scenario::table::{Node, Table};
use crate::scenario::{Ai, AiWorkload};

/// Bytes of a prompt. Up to 1 MiB, which is far beyond what a model reads at once.
const PROMPT_BYTES: RangeInclusive<u32> = 1..=1 << 20;
/// Schemas of one request.
const TOOLS: RangeInclusive<u32> = 1..=128;
/// Events with text of one stream.
const EVENTS: RangeInclusive<u32> = 1..=100_000;
/// Waits of a stream, up to a minute: a histogram holds no more.
const WAITS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
/// Bytes of a name.
const MODEL_BYTES_MAX: usize = 128;

/// The section, or its defaults.
pub(super) fn read(table: Table<'_>) -> Option<Ai> {
    let default = Ai::default();
    let workloads = AiWorkload::ALL.map(|one| (one.word(), one));
    let workload = or_default(table.get("workload"), default.workload, |node| node.choice(&workloads));
    let known = workload.unwrap_or(default.workload);
    if !known.is_stream() {
        table.refuse("events", "is only for streams", "remove it, or write workload = \"stream\"");
    }
    if known != AiWorkload::Paced {
        table.refuse("first", "is only for workload = \"paced\"", "remove it, or change the workload");
        table.refuse("gap", "is only for workload = \"paced\"", "remove it, or change the workload");
    }
    if known != AiWorkload::Agent {
        table.refuse("tools", "is only for workload = \"agent\"", "remove it, or change the workload");
    }
    let prompt_bytes =
        or_default(table.get("prompt_bytes"), default.prompt_bytes, |node| node.size(*PROMPT_BYTES.end() as usize));
    let events = or_default(table.get("events"), default.events, |node| node.whole(EVENTS));
    let first = or_default(table.get("first"), default.first, |node| node.duration(WAITS));
    let gap = or_default(table.get("gap"), default.gap, |node| node.duration(WAITS));
    let tools = or_default(table.get("tools"), default.tools, |node| node.whole(TOOLS));
    let model = or_default(table.get("model"), default.model, model);
    let key = or_default(table.get("key"), None, |node| node.visible_secret("key").map(Some));
    table.finish();
    Some(Ai {
        workload: workload?,
        prompt_bytes: prompt_bytes?,
        events: events?,
        first: first?,
        gap: gap?,
        tools: tools?,
        model: model?,
        key: key?,
        fields: Vec::new(),
    })
}

/// Visible ASCII without what JSON escapes: it goes into the request as it stands.
fn model(node: &Node<'_>) -> Option<String> {
    let text = node.text()?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if text.is_empty() || text.len() > MODEL_BYTES_MAX || !text.bytes().all(is_plain) {
        let remedy = format!("write a name of 1 to {MODEL_BYTES_MAX} visible characters");
        node.wrong(format!("is \"{text}\""), remedy);
        return None;
    }
    Some(text.to_owned())
}
