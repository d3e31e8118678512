//! Names of OpenTelemetry for requests to language models, as data: the convention is in development, and renames.
//!
//! Source: OpenTelemetry semantic conventions 1.41.1, `model/gen-ai/registry.yaml`. Version 1.40.0 is the first that has tokens of the cache,
//! 1.41.0 the first that has tokens of reasoning and `gen_ai.request.stream`. Later versions only say that the names have moved to the
//! repository `semantic-conventions-genai`, which has published no version. Members without a row keep the names of the usage log.

/// The version of [`ATTRIBUTES`]. It grows when a row changes.
pub const VERSION: u32 = 3;

/// The schema in which the names are: the last one that defines them.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.1";

/// A member of a request as the usage log names it, and the attribute that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The member.
    pub member: &'static str,
    /// The attribute.
    pub name: &'static str,
}

const fn row(member: &'static str, name: &'static str) -> Attribute {
    Attribute { member, name }
}

/// Every member that is an attribute. Input tokens include cached ones, and output tokens those of reasoning, in the log as in the convention.
pub const ATTRIBUTES: [Attribute; 14] = [
    row("operation", "gen_ai.operation.name"),
    row("dialect", "gen_ai.provider.name"),
    row("model", "gen_ai.request.model"),
    row("stream", "gen_ai.request.stream"),
    row("model_served", "gen_ai.response.model"),
    row("input_tokens", "gen_ai.usage.input_tokens"),
    row("cached_input_tokens", "gen_ai.usage.cache_read.input_tokens"),
    row("cache_write_tokens", "gen_ai.usage.cache_creation.input_tokens"),
    row("output_tokens", "gen_ai.usage.output_tokens"),
    row("reasoning_tokens", "gen_ai.usage.reasoning.output_tokens"),
    row("conversation", "gen_ai.conversation.id"),
    row("agent", "gen_ai.agent.name"),
    row("tool", "gen_ai.tool.name"),
    row("error", "error.type"),
];

/// The name of a member: its attribute, or its own.
pub fn name(member: &str) -> &str {
    ATTRIBUTES.iter().find(|row| row.member == member).map_or(member, |row| row.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_has_one_attribute_and_the_others_keep_their_names() {
        for (index, row) in ATTRIBUTES.iter().enumerate() {
            assert!(row.name.starts_with("gen_ai.") || row.name == "error.type", "{row:?}");
            let rest = &ATTRIBUTES[index + 1..];
            assert!(rest.iter().all(|other| other.member != row.member && other.name != row.name), "{row:?}");
            assert_eq!(name(row.member), row.name);
        }
        assert_eq!(name("cost_micro"), "cost_micro");
    }
}
