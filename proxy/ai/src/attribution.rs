//! The attribution of a request by fields of its head: user, agent, conversation and tags, in the words of the client.
//!
//! They go to the usage log and to the last requests. They are no labels of metrics, and no rule reads them: a client may write any
//! text. Providers do not get them, since they name people and are meant for the operator.

use weir_analysis::ai::Named;
use weir_http_codec::{Fields, Known, token::is_token};
use weir_spend::usage::{TEXT_BYTES_MAX, UsageRecord};

/// The field with the end user. Default `x-weir-user`.
pub const USER_FIELD: &str = "x-weir-user";

/// The field with the agent that has made the request. Default `x-weir-agent`.
pub const AGENT_FIELD: &str = "x-weir-agent";

/// The field with the conversation. Default `x-weir-conversation`.
pub const CONVERSATION_FIELD: &str = "x-weir-conversation";

/// The field with further words, separated by commas. Default `x-weir-tags`.
pub const TAGS_FIELD: &str = "x-weir-tags";

/// Fields besides those of [`Known`] that have a meaning of their own on the way to a provider.
const OTHER_MEANINGS: [&str; 11] = [
    "x-api-key",
    "api-key",
    "openai-organization",
    "openai-project",
    "openai-beta",
    "anthropic-version",
    "anthropic-beta",
    "last-event-id",
    "a2a-version",
    "a2a-extensions",
    "x-a2a-extensions",
];

/// The beginning of the names of MCP.
const MCP_BEGIN: &str = "mcp-";

/// The names of the fields of attribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributionFields {
    /// See [`USER_FIELD`].
    pub user: Box<str>,
    /// See [`AGENT_FIELD`].
    pub agent: Box<str>,
    /// See [`CONVERSATION_FIELD`].
    pub conversation: Box<str>,
    /// See [`TAGS_FIELD`].
    pub tags: Box<str>,
    /// Providers, servers and agents get them too. Default false.
    pub are_forwarded: bool,
}

impl Default for AttributionFields {
    fn default() -> Self {
        Self {
            user: USER_FIELD.into(),
            agent: AGENT_FIELD.into(),
            conversation: CONVERSATION_FIELD.into(),
            tags: TAGS_FIELD.into(),
            are_forwarded: false,
        }
    }
}

impl AttributionFields {
    /// Whether a field of this name may attribute requests: a field name without another meaning, since requests lose such fields.
    pub fn may_be(name: &str) -> bool {
        let lower = name.to_ascii_lowercase();
        let has_meaning = Known::of(name.as_bytes()) != Known::Other || OTHER_MEANINGS.contains(&&*lower);
        is_token(name.as_bytes()) && !has_meaning && !lower.starts_with(MCP_BEGIN)
    }

    /// Removes the fields from a head that goes on, unless they are forwarded.
    pub(crate) fn hide(&self, fields: &mut Fields) {
        if !self.are_forwarded {
            let names = [&self.user, &self.agent, &self.conversation, &self.tags].map(|name| name.as_bytes());
            fields.remove_all(&[], &names);
        }
    }
}

/// The attribution of one request. Each text has at most [`TEXT_BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attribution {
    pub(crate) user: Option<Box<str>>,
    pub(crate) agent: Option<Box<str>>,
    pub(crate) conversation: Option<Box<str>>,
    /// Separated by commas.
    pub(crate) tags: Option<Box<str>>,
}

impl Attribution {
    /// That of the fields of a request. The first field of a name counts; tags of several fields are one list.
    pub(crate) fn of(names: &AttributionFields, fields: &Fields) -> Self {
        let mut found = Self::default();
        if !fields.has(Known::Other) {
            return found;
        }
        for field in fields.iter().filter(|field| field.known == Known::Other) {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name.as_bytes());
            if is(&names.user) {
                found.user = found.user.or_else(|| text(field.value));
            } else if is(&names.agent) {
                found.agent = found.agent.or_else(|| text(field.value));
            } else if is(&names.conversation) {
                found.conversation = found.conversation.or_else(|| text(field.value));
            } else if is(&names.tags) {
                found.tags = with_tags(found.tags, field.value);
            }
        }
        found
    }

    /// Adds the members of a body, where no field has said the same.
    pub(crate) fn add(&mut self, user: Option<&Named>, conversation: Option<&Named>) {
        let text = |named: &Named| named.text.clone();
        self.user = self.user.take().or_else(|| user.map(text));
        self.conversation = self.conversation.take().or_else(|| conversation.map(text));
    }

    /// A usage record with the attribution alone.
    pub(crate) fn record(&self) -> UsageRecord<'_> {
        UsageRecord {
            user: self.user.as_deref(),
            agent: self.agent.as_deref(),
            conversation: self.conversation.as_deref(),
            tags: self.tags.as_deref(),
            ..UsageRecord::default()
        }
    }
}

/// The text of a value, cut between characters. `None`: it is empty or not UTF-8.
fn text(value: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    (!text.is_empty()).then(|| text.into())
}

/// Adds the tags of a value, as far as whole ones have room.
fn with_tags(before: Option<Box<str>>, value: &[u8]) -> Option<Box<str>> {
    let Ok(list) = std::str::from_utf8(value) else { return before };
    let mut all = before.map_or_else(String::new, String::from);
    for tag in list.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
        let is_first = all.is_empty();
        if all.len() + usize::from(!is_first) + tag.len() > TEXT_BYTES_MAX {
            break;
        }
        if !is_first {
            all.push(',');
        }
        all.push_str(tag);
    }
    (!all.is_empty()).then(|| all.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &[u8])]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value));
        fields
    }

    fn of(lines: &[(&str, &[u8])]) -> Attribution {
        Attribution::of(&AttributionFields::default(), &fields(lines))
    }

    #[test]
    fn each_field_has_its_member_and_the_first_one_counts() {
        let found = of(&[
            ("X-Weir-User", b"u-1"),
            ("x-weir-user", b"u-2"),
            ("X-Weir-Agent", b" planner "),
            ("x-weir-conversation", b"c-1"),
            ("x-weir-tags", b"search, prod ,,"),
            ("x-weir-tags", b"eu"),
            ("x-other", b"x"),
        ]);
        let wanted = Attribution {
            user: Some("u-1".into()),
            agent: Some("planner".into()),
            conversation: Some("c-1".into()),
            tags: Some("search,prod,eu".into()),
        };
        assert_eq!(found, wanted);
        assert_eq!(of(&[("user-agent", b"x")]), Attribution::default());
    }

    #[test]
    fn texts_are_bounded_and_those_that_are_no_text_are_left_out() {
        let long = "\u{4f60}".repeat(99);
        let found = of(&[("x-weir-user", long.as_bytes()), ("x-weir-agent", b"\xff"), ("x-weir-tags", b" , ")]);
        let user = found.user.expect("a user");
        assert!(user.len() <= TEXT_BYTES_MAX && long.starts_with(&*user), "{user}");
        assert_eq!((found.agent, found.tags), (None, None));
        let many = (0..99).map(|number| format!("tag-{number}")).collect::<Vec<_>>().join(",");
        let tags = of(&[("x-weir-tags", many.as_bytes())]).tags.expect("tags");
        assert!(tags.len() <= TEXT_BYTES_MAX && many.starts_with(&*tags) && !tags.ends_with(','), "{tags}");
        assert!(many[tags.len()..].starts_with(','), "no tag is cut: {tags}");
    }

    #[test]
    fn fields_with_another_meaning_attribute_nothing() {
        for name in ["x-litellm-end-user-id", "Helicone-User-Id", "x-openwebui-user-id", USER_FIELD, TAGS_FIELD] {
            assert!(AttributionFields::may_be(name), "{name}");
        }
        for name in ["Authorization", "X-Api-Key", "cookie", "host", "anthropic-beta", "Mcp-Session-Id", "a b", ""] {
            assert!(!AttributionFields::may_be(name), "{name}");
        }
    }

    #[test]
    fn the_fields_do_not_go_on_unless_they_are_forwarded() {
        let names = AttributionFields { user: "x-person".into(), ..AttributionFields::default() };
        let sent = fields(&[("X-Person", b"u"), ("x-weir-tags", b"t"), ("accept", b"a"), ("x-weir-user", b"v")]);
        let written = |names: &AttributionFields| {
            let (mut fields, mut out) = (sent.clone(), Vec::new());
            names.hide(&mut fields);
            fields.write(&mut out);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(written(&names), "accept: a\r\nx-weir-user: v\r\n");
        let all = "X-Person: u\r\nx-weir-tags: t\r\naccept: a\r\nx-weir-user: v\r\n";
        assert_eq!(written(&AttributionFields { are_forwarded: true, ..names }), all);
    }
}
