//! The last requests to language models, servers of MCP and agents for the admin server, with the names of OpenTelemetry.

use serde_json::{Map, Value, json};
use weir_admin::{
    BoxFuture,
    status::{AiRequestList, AiRequestQuery},
};
use weir_ai::RecentRequest;
use weir_telemetry::gen_ai;

use super::Gateway;

/// Requests in one response with bodies: in JSON, each byte of them may take six.
const WITH_BODIES_MAX: usize = 100;

impl Gateway {
    /// Those of all workers that match the query, the newest first.
    pub(super) fn collect_ai_requests(&self, query: AiRequestQuery) -> BoxFuture<'_, AiRequestList> {
        Box::pin(async move {
            let (found, workers_silent) =
                self.visit(|protocols| protocols.ai().map(|ai| ai.recent.all()).unwrap_or_default()).await;
            AiRequestList {
                schema_url: gen_ai::SCHEMA_URL.to_owned(),
                attributes_version: gen_ai::VERSION,
                // The ring is laid out at the start of the process.
                recent_requests: self.first.protocols.ai.recent_requests as u64,
                requests: search(found.into_iter().flatten().collect(), &query),
                workers_silent,
            }
        })
    }
}

fn search(mut all: Vec<RecentRequest>, query: &AiRequestQuery) -> Vec<Map<String, Value>> {
    all.retain(|request| query.since.is_none_or(|since| request.ended >= since));
    all.sort_by_key(|request| std::cmp::Reverse(request.ended));
    let members = all.iter().filter_map(|request| members(request, query));
    let most = if query.has_bodies { WITH_BODIES_MAX } else { usize::MAX };
    members.take(query.limit.min(most)).collect()
}

/// The members of a request, if it matches.
fn members(request: &RecentRequest, query: &AiRequestQuery) -> Option<Map<String, Value>> {
    let Ok(Value::Object(mut all)) = serde_json::from_slice(&request.line) else { return None };
    // Servers and agents have none.
    if all.get("model").is_some_and(|model| model == "") {
        all.remove("model");
    }
    let message = request.message.as_ref();
    let own = [
        ("listener", Some(json!(*request.listener))),
        ("operation", Some(request.operation).filter(|text| !text.is_empty()).map(Value::from)),
        ("dialect", request.provider.map(Value::from)),
        ("stream", Some(Value::from(request.is_stream)).filter(|_| message.is_none())),
        ("protocol", message.map(|message| message.protocol.into())),
        ("method", message.filter(|message| !message.method.is_empty()).map(|message| json!(*message.method))),
        ("error", request.refusal.map(Value::from)),
    ];
    all.extend(own.into_iter().filter_map(|(member, value)| Some((member.to_owned(), value?))));
    if !is_match(&all, query) {
        return None;
    }
    if let Some(bodies) = request.bodies.as_ref().filter(|_| query.has_bodies) {
        for (name, body) in [("request_body", &bodies.request), ("response_body", &bodies.response)] {
            all.insert(name.to_owned(), String::from_utf8_lossy(&body.text).into());
            all.insert(format!("{name}_bytes"), body.length.into());
        }
    }
    Some(all.into_iter().map(|(member, value)| (gen_ai::name(&member).to_owned(), value)).collect())
}

/// Whether a request with these members matches.
fn is_match(members: &Map<String, Value>, query: &AiRequestQuery) -> bool {
    let text = |member: &str| members.get(member).and_then(Value::as_str);
    let status = members.get("status").and_then(Value::as_u64);
    query.members.iter().all(|(member, wanted)| text(member) == Some(wanted))
        && query.tag.as_deref().is_none_or(|tag| text("tags").is_some_and(|tags| tags.split(',').any(|one| one == tag)))
        && query.model.as_deref().is_none_or(|model| [text("model"), text("model_served")].contains(&Some(model)))
        && query.status.is_none_or(|wanted| status.is_some_and(|status| wanted.matches(status)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_admin::status::StatusFilter;
    use weir_ai::{RecentBodies, RecentBody, RecentMessage};

    use super::*;

    fn request(at: u64, line: &str) -> RecentRequest {
        RecentRequest {
            ended: Duration::from_secs(at),
            listener: "ai".into(),
            operation: "chat",
            provider: Some("openai"),
            is_stream: true,
            refusal: None,
            message: None,
            line: line.as_bytes().into(),
            bodies: None,
        }
    }

    #[test]
    fn messages_have_their_server_tool_and_method() {
        let line = r#"{"request":"1","key":"a","model":"","server":"git","tool":"add","status":200,"total_us":5}"#;
        let message = RecentMessage { protocol: "mcp", method: "tools/call".into() };
        let one = RecentRequest { operation: "execute_tool", message: Some(message), ..request(1, line) };
        let search = |members: &[(&'static str, &str)]| {
            let members = members.iter().map(|(member, text)| (*member, (*text).to_owned())).collect();
            super::search(vec![one.clone()], &AiRequestQuery { limit: 1, members, ..AiRequestQuery::default() })
        };
        assert_eq!(search(&[("tool", "sub")]).len() + search(&[("method", "tools/list")]).len(), 0);
        let found = search(&[("server", "git"), ("tool", "add"), ("method", "tools/call")]).remove(0);
        for (member, value) in [
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "add"),
            ("protocol", "mcp"),
            ("method", "tools/call"),
            ("server", "git"),
            ("key", "a"),
        ] {
            assert_eq!(found[member], value, "{member}");
        }
        assert!(
            !found.contains_key("gen_ai.request.model") && !found.contains_key("gen_ai.request.stream"),
            "{found:?}"
        );
    }

    #[test]
    fn bodies_are_shown_to_those_who_request_them() {
        let body = |text: &[u8]| RecentBody { text: text.into(), length: 99 };
        let bodies = Some(RecentBodies { request: body(b"{\"a\""), response: body(b"\xffb") }.into());
        let search = |has_bodies| {
            let all = vec![RecentRequest { bodies: bodies.clone(), ..request(1, "{}") }];
            super::search(all, &AiRequestQuery { limit: 1, has_bodies, ..AiRequestQuery::default() }).remove(0)
        };
        assert!(!search(false).keys().any(|member| member.contains("body")));
        let found = search(true);
        assert_eq!((&found["request_body"], &found["response_body"]), (&json!("{\"a\""), &json!("\u{fffd}b")));
        assert_eq!(found["request_body_bytes"], 99);
    }

    #[test]
    fn requests_are_searched_and_have_the_names_of_the_table() {
        let all = || {
            vec![
                request(
                    1,
                    r#"{"request":"1","key":"a","model":"fast","model_served":"gpt","status":200,"input_tokens":7}"#,
                ),
                request(3, r#"{"request":"3","key":"b","model":"fast","status":429}"#),
                request(
                    2,
                    r#"{"request":"2","key":"a","model":"other","status":0,"conversation":"c","tags":"eu,prod"}"#,
                ),
            ]
        };
        let search = |change: fn(&mut AiRequestQuery)| {
            let mut query = AiRequestQuery { limit: 10, ..AiRequestQuery::default() };
            change(&mut query);
            let found = super::search(all(), &query);
            found.iter().map(|one| one["request"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(search(|_| ()), "3 2 1", "the newest first");
        assert_eq!(search(|query| query.limit = 2), "3 2");
        assert_eq!(search(|query| query.members = vec![("key", "a".into())]), "2 1");
        assert_eq!(search(|query| query.members = vec![("key", "a".into()), ("conversation", "c".into())]), "2");
        assert_eq!(search(|query| query.members = vec![("user", "a".into())]), "");
        assert_eq!(search(|query| query.tag = Some("prod".into())), "2");
        assert_eq!(search(|query| query.tag = Some("eu,prod".into())), "");
        assert_eq!(search(|query| query.model = Some("fast".into())), "3 1");
        assert_eq!(search(|query| query.model = Some("gpt".into())), "1");
        assert_eq!(search(|query| query.status = Some(StatusFilter::Class(4))), "3");
        assert_eq!(search(|query| query.status = Some(StatusFilter::One(0))), "2");
        assert_eq!(search(|query| query.since = Some(Duration::from_secs(2))), "3 2");
        let members = vec![("key", "a".to_owned())];
        let found = super::search(all(), &AiRequestQuery { limit: 10, members, ..AiRequestQuery::default() });
        let [second, first] = &found[..] else { panic!("{found:?}") };
        for (member, value) in [
            ("gen_ai.operation.name", json!("chat")),
            ("gen_ai.provider.name", json!("openai")),
            ("gen_ai.request.model", json!("fast")),
            ("gen_ai.response.model", json!("gpt")),
            ("gen_ai.usage.input_tokens", json!(7)),
            ("key", json!("a")),
            ("gen_ai.request.stream", json!(true)),
            ("listener", json!("ai")),
        ] {
            assert_eq!(first[member], value, "{member}");
        }
        assert_eq!(second["gen_ai.conversation.id"], "c");
        assert!(!first.contains_key("model") && !first.contains_key("error.type"), "{first:?}");
    }
}
