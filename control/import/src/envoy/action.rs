//! The handling of requests by a route of Envoy: timeouts, rewrites, retries, headers.

use super::{Importer, duration, millis};
use crate::field;
use crate::model::{PathMatch, Route};
use crate::note::Mistake;
use crate::paths;
use crate::toml::Value;
use crate::yaml::Node;

/// Milliseconds of a day, and Envoy's limit of a request that does not say.
const DAY: u64 = 86_400_000;
const TIMEOUT: u64 = 15_000;

/// Milliseconds of Weir's `response_timeout`.
const RESPONSE_TIMEOUT: u64 = 60_000;

/// Words of `retry_on` that Weir shares, apart from the hyphens.
const RETRIES: &[(&str, &str)] = &[
    ("connect-failure", "connect_failure"),
    ("refused-stream", "refused_stream"),
    ("reset", "reset"),
    ("gateway-error", "gateway_error"),
    ("5xx", "5xx"),
];

impl<'n> Importer<'n> {
    /// The handling of requests by a route.
    pub(super) fn action(&mut self, action: &'n Node, route: &mut Route) -> Result<(), Mistake> {
        let read = [
            "cluster",
            "weighted_clusters",
            "timeout",
            "idle_timeout",
            "prefix_rewrite",
            "regex_rewrite",
            "host_rewrite_literal",
            "auto_host_rewrite",
            "retry_policy",
        ];
        self.rest(action, &read, "route");
        match millis(action, "timeout")?.unwrap_or(TIMEOUT) {
            // No limit.
            0 => route.more.set("response_timeout", duration(DAY, DAY)),
            time => {
                route.more.set("request_timeout", duration(time, DAY));
                // Weir's own limit until the head of a response must not come before.
                if time > RESPONSE_TIMEOUT {
                    route.more.set("response_timeout", duration(time - 1_000, DAY));
                }
            }
        }
        if let Some(time) = millis(action, "idle_timeout")? {
            let time = duration(if time == 0 { DAY } else { time }, DAY);
            route.more.set("body_idle_timeout", time.clone());
            route.more.set("response_idle_timeout", time);
        }
        let rewrite = rewrite(action, &route.path);
        if !rewrite.is_empty() {
            route.more.set("rewrite", Value::Inline(rewrite));
        }
        if action.get("auto_host_rewrite").is_some_and(Node::is_true) {
            self.note(action, "auto_host_rewrite", "the host is a fixed text, or the client's", "[route.rewrite] host");
        }
        match action.get("retry_policy") {
            Some(policy) => self.retry(policy, route),
            None => Ok(()),
        }
    }

    fn retry(&mut self, policy: &'n Node, route: &mut Route) -> Result<(), Mistake> {
        self.rest(policy, &["retry_on", "num_retries", "per_try_timeout", "retriable_status_codes"], "retry_policy");
        let mut entries = Vec::new();
        let count = policy.get("num_retries").map_or(Ok(1), |node| node.number("num_retries"))?;
        entries.push(("attempts".to_owned(), Value::Number(count.min(10))));
        if count > 0 {
            let mut on = Vec::new();
            for word in policy.text_at("retry_on").unwrap_or_default().split(',').map(str::trim) {
                match RETRIES.iter().find(|(known, _)| *known == word) {
                    Some((_, own)) => on.push(*own),
                    None if word.is_empty() || word == "retriable-status-codes" => {}
                    None => self.note(policy, &format!("retry_on: {word}"), "has no counterpart", "statuses"),
                }
            }
            if !on.is_empty() {
                entries.push(("on".to_owned(), Value::texts(on)));
            }
            let codes: Result<Vec<Value>, Mistake> = policy
                .items_at("retriable_status_codes")
                .iter()
                .map(|node| node.number("a status").map(Value::Number))
                .collect();
            let codes = codes?;
            if !codes.is_empty() {
                entries.push(("statuses".to_owned(), Value::List(codes)));
            }
            if let Some(time) = millis(policy, "per_try_timeout")?.filter(|time| *time > 0) {
                entries.push(("try_timeout".to_owned(), duration(time, DAY)));
            }
        }
        route.more.set("retry", Value::Inline(entries));
        Ok(())
    }

    /// Headers of the route, and of its virtual host behind them. Each removes before it adds.
    pub(super) fn headers(&mut self, node: &'n Node, host: &'n Node, route: &mut Route) {
        for (kind, key) in [("request", "request_header"), ("response", "response_header")] {
            let mut changes = Vec::new();
            for of in [node, host] {
                for name in of.items_at(&format!("{kind}_headers_to_remove")) {
                    match field::change("remove", name.text(), None) {
                        Ok(one) => changes.push(one),
                        Err(why) => self.note(name, &format!("{kind}_headers_to_remove"), &why, key),
                    }
                }
                let added = of.items_at(&format!("{kind}_headers_to_add"));
                changes.extend(added.iter().filter_map(|one| self.added(one, key)));
            }
            if !changes.is_empty() {
                route.more.set(key, Value::List(changes));
            }
        }
    }

    /// Notes on the headers of responses that no upstream sends.
    pub(super) fn own_response_headers(&mut self, node: &'n Node, host: &'n Node) {
        for of in [node, host] {
            for key in ["response_headers_to_add", "response_headers_to_remove"] {
                for one in of.items_at(key) {
                    let name = one.text_at("header.key").unwrap_or_else(|| one.text());
                    let why = "responses of the gateway's own have no further headers";
                    let nearest = "[[route.response_header]] of a route with an upstream";
                    self.note(one, &format!("{key}: {name}"), why, nearest);
                }
            }
        }
    }

    /// A header that is added or replaced; `None`: it cannot be said, which is noted.
    fn added(&mut self, one: &'n Node, key: &str) -> Option<Value> {
        self.rest(one, &["header", "append", "append_action"], "headers_to_add");
        let (name, value) = (one.text_at("header.key")?, one.text_at("header.value").unwrap_or_default());
        let directive = format!("{name}: {value}");
        if !known_variables(value) {
            self.note(one, &directive, "its value has a variable that Weir does not know", key);
            return None;
        }
        let action = match (one.text_at("append_action"), one.get("append")) {
            (Some(action), _) => action,
            // The older spelling.
            (None, Some(append)) if !append.is_true() => "OVERWRITE_IF_EXISTS_OR_ADD",
            (None, _) => "APPEND_IF_EXISTS_OR_ADD",
        };
        let change = match action {
            "APPEND_IF_EXISTS_OR_ADD" => "add",
            "OVERWRITE_IF_EXISTS_OR_ADD" => "set",
            _ => {
                let why = format!("{action} depends on what is there already; the change is left out");
                self.note(one, &directive, &why, "change = \"set\"");
                return None;
            }
        };
        let made = field::change(change, name, Some(value.to_owned()));
        made.map_err(|why| self.note(one, &directive, &why, "[route.rewrite] host")).ok()
    }
}

/// The rewriting of the path and the host.
fn rewrite(action: &Node, path: &PathMatch) -> Vec<(String, Value)> {
    let mut rewrite = Vec::new();
    let mut set = |key: &str, text: &str| rewrite.push((key.to_owned(), Value::text(text)));
    if let Some(text) = action.text_at("prefix_rewrite") {
        match path {
            // Envoy replaces the whole path of a regex too.
            PathMatch::Exact(_) | PathMatch::Regex(_) => set("path", text),
            PathMatch::Any | PathMatch::Prefix(_) | PathMatch::Segments(_) => {
                let old = match path {
                    PathMatch::Prefix(path) | PathMatch::Segments(path) => path.as_str(),
                    _ => "/",
                };
                set("path_regex", &format!("^{}", paths::escaped(old)));
                set("path_replacement", &text.replace('$', "$$"));
            }
        }
    }
    if let Some(regex) = action.at("regex_rewrite.pattern.regex") {
        set("path_regex", regex.text());
        // `\1` is `${1}` here.
        let text = action.text_at("regex_rewrite.substitution").unwrap_or_default().replace('$', "$$");
        let parts: Vec<String> = text
            .split('\\')
            .enumerate()
            .map(|(at, part)| match (at, part.chars().next()) {
                (1.., Some(digit)) if digit.is_ascii_digit() => format!("${{{digit}}}{}", &part[1..]),
                _ => part.to_owned(),
            })
            .collect();
        set("path_replacement", &parts.concat());
    }
    if let Some(host) = action.text_at("host_rewrite_literal") {
        set("host", host);
    }
    rewrite
}

/// Variables that both programs have, as docs/guide/migration.md lists them.
fn known_variables(value: &str) -> bool {
    const KNOWN: [&str; 14] = [
        "",
        "DOWNSTREAM_REMOTE_ADDRESS",
        "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
        "DOWNSTREAM_REMOTE_PORT",
        "DOWNSTREAM_LOCAL_ADDRESS",
        "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
        "DOWNSTREAM_LOCAL_PORT",
        "PROTOCOL",
        "DOWNSTREAM_TLS_VERSION",
        "DOWNSTREAM_TLS_CIPHER",
        "START_TIME",
        "HOSTNAME",
        "ROUTE_NAME",
        "UPSTREAM_CLUSTER",
    ];
    let is_header = |name: &str| {
        name.strip_prefix("REQ(").and_then(|rest| rest.strip_suffix(')')).is_some_and(|name| !name.contains(['?', ':']))
    };
    value.split('%').skip(1).step_by(2).all(|name| KNOWN.contains(&name) || is_header(name))
}
