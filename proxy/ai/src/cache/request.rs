//! The requests that may be served from the cache, and the control of their client.

use std::time::Duration;

use weir_analysis::ai::{Endpoint, Facts, ToolKind};
use weir_http_codec::{Fields, Known};
use weir_spend::policy::CacheRule;

/// Whether equal requests may have the same response.
///
/// Not if the provider keeps the response or goes on from another one, not with tools that it runs itself, and, unless the rule takes
/// them, not if the client wants different responses.
pub(crate) fn is_cacheable(facts: &Facts, rule: CacheRule) -> bool {
    let options = &facts.options;
    let is_set = |flag: Option<weir_analysis::ai::Flag>| flag.is_some_and(|flag| flag.value);
    // A response is kept unless the client forbids it.
    let is_kept = match facts.endpoint {
        Endpoint::Responses => options.store.is_none_or(|flag| flag.value),
        _ => is_set(options.store),
    };
    let is_bound = options.previous_response.is_some() || options.conversation.is_some();
    let has_effects = facts.tools.list.iter().any(|tool| matches!(tool.kind, ToolKind::BuiltIn(_)));
    let is_sampled = options.is_sampled || options.choices() > 1;
    !is_kept && !is_bound && !is_set(options.background) && !has_effects && (rule.takes_sampled || !is_sampled)
}

/// The directives of a request's `Cache-Control` (RFC 9111 section 5.2.1) that the cache obeys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheControl {
    /// `no-store`: neither serve nor store.
    pub(crate) no_store: bool,
    /// `no-cache`: a provider has to respond. The response is stored.
    pub(crate) no_cache: bool,
    /// `max-age`: no response that is older.
    pub(crate) age_max: Option<Duration>,
}

impl CacheControl {
    /// That of a request with these fields. An age that is no number wants a new response.
    pub(crate) fn of(fields: &Fields) -> Self {
        let mut control = Self::default();
        let directives = fields.all(Known::CacheControl).flat_map(|value| value.split(|byte| *byte == b','));
        for directive in directives.map(<[u8]>::trim_ascii) {
            let (name, value) = match directive.iter().position(|byte| *byte == b'=') {
                Some(at) => (directive[..at].trim_ascii(), directive[at + 1..].trim_ascii()),
                None => (directive, &b""[..]),
            };
            if name.eq_ignore_ascii_case(b"no-store") {
                control.no_store = true;
            } else if name.eq_ignore_ascii_case(b"no-cache") {
                control.no_cache = true;
            } else if name.eq_ignore_ascii_case(b"max-age") {
                let seconds = std::str::from_utf8(value).ok().and_then(|text| text.trim_matches('"').parse().ok());
                let age = Duration::from_secs(seconds.unwrap_or(0));
                control.age_max = Some(control.age_max.map_or(age, |other| other.min(age)));
            }
        }
        control
    }
}

#[cfg(test)]
mod tests {
    use weir_analysis::ai::{Wanted, read};

    use super::*;

    fn cacheable(endpoint: Endpoint, more: &str, takes_sampled: bool) -> bool {
        let body = format!("{{\"model\":\"m\"{more}}}");
        let facts = read(endpoint, body.as_bytes(), Wanted::default()).expect("valid");
        is_cacheable(&facts, CacheRule { ttl: Duration::from_secs(1), takes_sampled })
    }

    #[test]
    fn what_a_provider_keeps_or_goes_on_from_is_not_cached() {
        assert!(cacheable(Endpoint::Chat, r#","store":false"#, false));
        assert!(!cacheable(Endpoint::Chat, r#","store":true"#, true));
        assert!(!cacheable(Endpoint::Responses, "", true), "it is kept by default");
        assert!(cacheable(Endpoint::Responses, r#","store":false"#, false));
        for more in [r#","previous_response_id":"r""#, r#","conversation":"c""#, r#","background":true"#] {
            assert!(!cacheable(Endpoint::Responses, &format!("{more},\"store\":false"), true), "{more}");
        }
    }

    #[test]
    fn requests_that_want_different_responses_need_a_rule_that_takes_them() {
        for more in [r#","temperature":0.7"#, r#","n":2"#, r#","temperature":1e-3"#, r#","temperature":"warm""#] {
            assert!(!cacheable(Endpoint::Chat, more, false) && cacheable(Endpoint::Chat, more, true), "{more}");
        }
        for more in ["", r#","temperature":0"#, r#","temperature":0.0e5"#, r#","temperature":null"#, r#","n":1"#] {
            assert!(cacheable(Endpoint::Chat, more, false), "{more}");
        }
    }

    #[test]
    fn tools_that_the_provider_runs_are_not_cached() {
        let function = r#","tools":[{"type":"function","function":{"name":"f"}}]"#;
        assert!(cacheable(Endpoint::Chat, function, false));
        assert!(!cacheable(Endpoint::Responses, r#","store":false,"tools":[{"type":"web_search"}]"#, true));
        assert!(!cacheable(Endpoint::Chat, r#","web_search_options":{}"#, true));
        assert!(!cacheable(Endpoint::Messages, r#","mcp_servers":[{"type":"url","url":"u","name":"n"}]"#, true));
    }

    #[test]
    fn the_directives_of_a_request_are_obeyed() {
        let control = |lines: &[&str]| {
            let mut fields = Fields::new();
            lines.iter().for_each(|line| fields.push(b"Cache-Control", line.as_bytes()));
            CacheControl::of(&fields)
        };
        let age = |seconds| CacheControl { age_max: Some(Duration::from_secs(seconds)), ..CacheControl::default() };
        assert_eq!(control(&[]), CacheControl::default());
        assert_eq!(control(&["no-transform, No-Store"]), CacheControl { no_store: true, ..CacheControl::default() });
        assert_eq!(
            control(&["foo=\"no-store\"", "no-cache"]),
            CacheControl { no_cache: true, ..CacheControl::default() }
        );
        assert_eq!(control(&["max-age=60", "max-age = 9"]), age(9));
        assert_eq!((control(&["max-age=x"]), control(&["max-age"])), (age(0), age(0)));
    }
}
