//! Language models over OpenAI's chat completions: a prompt for each request, and its reply whole or as events. The lab's origin
//! says by its text which request a reply belongs to and where each piece stands, so every byte of it is checked, the calls of tools,
//! the usage and the end of a stream too.
//!
//! | workload | request and reply |
//! |---|---|
//! | `llm` | a prompt, and a whole reply with a text of `payload` |
//! | `stream` | the same as events, as fast as they come |
//! | `paced` | the same with a wait before the first event and between the others: many streams at a time |
//! | `agent` | a conversation with the schemas of tools, and a whole reply that calls one of them |
//!
//! | file | concept |
//! |---|---|
//! | `settings` | `[ai]` of a scenario |
//! | `plan` | the requests of a shard |
//! | `check` | the check of each reply |
//! | `text` | the text that a reply must have |
//! | `events` | events as they arrive |

use super::http1::wire::ResponseReader;
use super::{Common, Count, Family, OwnKey, Protocol, REMEDY, Seat, Work, http};
use crate::requests::Planner;
use crate::scenario::table::Table;
use crate::scenario::{AiWorkload, Scenario};
use crate::shard::Shard;
use crate::wire::Wire;

mod check;
mod events;
mod plan;
mod settings;
#[cfg(test)]
mod tests;
mod text;

/// Bytes of a reply besides its text: the frame of each event, some hundred bytes, and usage.
const FRAME_BYTES: usize = 1_024;

/// See the module.
pub(super) struct Ai;

impl Protocol for Ai {
    fn word(&self) -> &'static str {
        "ai"
    }

    fn title(&self) -> &'static str {
        "AI"
    }

    fn family(&self) -> &'static Family {
        &Family {
            own_keys: &[OwnKey { name: "ai", why: "is only for protocol = \"ai\"" }],
            remedy: REMEDY,
            origin: "ai",
            has_workers: true,
            usual_peers: &["envoy", "litellm", "portkey"],
        }
    }

    fn read(&self, root: &Table<'_>, common: &Common<'_>) -> Option<Work> {
        let ai = root.table("ai").and_then(settings::read)?;
        if ai.workload == AiWorkload::Agent {
            root.refuse("payload", "has no meaning for an agent, whose reply is a call of a tool", "remove it");
        } else if common.has_sizes() {
            root.refuse("payload", "has several sizes, and a model writes texts of one", "keep one of them");
        }
        Some(Work { ai, ..Work::default() })
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        Box::new(plan::Prompts::new(scenario, shard))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        let ai = &scenario.ai;
        let events = usize::try_from(ai.events).unwrap_or(usize::MAX);
        let bytes_max =
            scenario.payload.bytes_max().saturating_add(FRAME_BYTES.saturating_mul(events.saturating_add(8)));
        Box::new(ResponseReader::with_events(bytes_max, ai.workload.is_stream().then_some(events::scan)))
    }

    fn count(&self) -> Option<Count> {
        Some(http::COUNT)
    }

    fn mix(&self, scenario: &Scenario) -> String {
        let ai = &scenario.ai;
        match ai.workload {
            AiWorkload::Llm => "OpenAI chat".to_owned(),
            AiWorkload::Stream => format!("OpenAI chat as a stream of {} events", ai.events),
            AiWorkload::Paced => {
                format!("OpenAI chat as a stream of {} events, {} ms apart", ai.events, ai.gap.as_millis())
            }
            AiWorkload::Agent => format!("OpenAI chat of an agent with {} tools", ai.tools),
        }
    }

    fn details(&self, scenario: &Scenario) -> String {
        format!(", prompts of {} bytes", scenario.ai.prompt_bytes)
    }
}
