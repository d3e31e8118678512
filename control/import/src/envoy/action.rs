//! The handling of requests by a route of Envoy: timeouts, rewrites, retries.

use std::collections::HashSet;

use super::arrival::Seen;
use super::route::Levels;
use super::{Importer, duration, millis};
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

/// Failures without a response. Envoy counts them among those of `reset`, `gateway-error` and `5xx`.
const WITHOUT_RESPONSE: [&str; 3] = ["connect_failure", "refused_stream", "reset"];

/// The statuses that Weir may retry.
const RETRIABLE: std::ops::RangeInclusive<u64> = 400..=599;

/// Retries of a request that Weir may make.
const RETRIES_MAX: u64 = 10;

/// The status of `retriable-4xx`.
const CONFLICT: u64 = 409;

impl<'n> Importer<'n> {
    /// The handling of requests by a route.
    pub(super) fn action(&mut self, action: &'n Node, levels: Levels<'n>, route: &mut Route) -> Result<(), Mistake> {
        let read = [
            "cluster",
            "weighted_clusters",
            "timeout",
            "idle_timeout",
            "prefix_rewrite",
            "regex_rewrite",
            "host_rewrite_literal",
            "host_rewrite_header",
            "auto_host_rewrite",
            "retry_policy",
        ];
        self.rest(action, &read, "route");
        let all = millis(action, "timeout")?.unwrap_or(TIMEOUT);
        match all {
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
        let mut rewrite = rewrite(action, &route.path);
        rewrite.extend(self.host_from_header(action, levels));
        if !rewrite.is_empty() {
            route.more.set("rewrite", Value::Inline(rewrite));
        }
        if action.get("auto_host_rewrite").is_some_and(Node::is_true) {
            self.note(action, "auto_host_rewrite", "the host is a fixed text, or the client's", "[route.rewrite] host");
        }
        match action.get("retry_policy") {
            Some(policy) => self.retry(policy, all, route),
            None => Ok(()),
        }
    }

    /// The header with the host of the request. Weir reads it as the client sent it.
    fn host_from_header(&mut self, action: &'n Node, levels: Levels<'n>) -> Option<(String, Value)> {
        let node = action.get("host_rewrite_header")?;
        let is_named = |name: &str| name.eq_ignore_ascii_case(node.text());
        // Envoy changes headers before it reads the host.
        let is_changed = levels.iter().any(|level| {
            let mut added = level.items_at("request_headers_to_add").iter();
            let mut removed = level.items_at("request_headers_to_remove").iter();
            added.any(|one| one.text_at("header.key").is_some_and(is_named)) || removed.any(|one| is_named(one.text()))
        });
        match self.arrival.seen(&node.text().to_ascii_lowercase()) {
            Seen::Sent | Seen::Framing if !is_changed => {
                Some(("host_from_header".to_owned(), Value::text(node.text())))
            }
            // Envoy keeps the host too.
            Seen::Absent if !is_changed => None,
            _ => {
                let why = "the host is kept: Envoy changes this header first, and Weir would read that of the client";
                self.note(node, &format!("host_rewrite_header: {}", node.text()), why, "[route.rewrite] host");
                None
            }
        }
    }

    /// `all`: milliseconds of all attempts together; 0: no limit.
    fn retry(&mut self, policy: &'n Node, all: u64, route: &mut Route) -> Result<(), Mistake> {
        self.rest(policy, &["retry_on", "num_retries", "per_try_timeout", "retriable_status_codes"], "retry_policy");
        // Envoy ignores a limit of an attempt that is not shorter than that of all attempts.
        let limit = millis(policy, "per_try_timeout")?.filter(|time| *time > 0 && (all == 0 || *time < all));
        if let Some(time) = limit {
            route.more.set("response_timeout", duration(time, DAY));
        }
        let count = policy.get("num_retries").map_or(Ok(1), |node| node.number("num_retries"))?;
        let (on, statuses) = self.retried(policy, limit.is_some())?;
        if count == 0 || on.is_empty() && statuses.is_empty() {
            route.more.set("retry", Value::inline([("attempts", Value::Number(0))]));
            return Ok(());
        }
        if let Some(node) = policy.get("num_retries").filter(|_| count > RETRIES_MAX) {
            self.note(node, &format!("num_retries: {count}"), "is at most 10 here", "attempts");
        }
        if !statuses.is_empty() || on.iter().any(|failure| !WITHOUT_RESPONSE[..2].contains(failure)) {
            let why = "requests that a server may have processed are sent again only if their method is idempotent";
            self.note(policy, "retry_policy", why, "non_idempotent = true");
        }
        let mut entries = vec![("attempts".to_owned(), Value::Number(count.min(RETRIES_MAX)))];
        // Without the key, Weir retries some failures of its own choice.
        entries.push(("on".to_owned(), Value::texts(on)));
        if !statuses.is_empty() {
            entries.push(("statuses".to_owned(), Value::List(statuses.into_iter().map(Value::Number).collect())));
        }
        route.more.set("retry", Value::Inline(entries));
        Ok(())
    }

    /// The failures and the statuses after which a policy retries. `has_limit`: each attempt has a timeout.
    fn retried(&mut self, policy: &'n Node, has_limit: bool) -> Result<(Vec<&'static str>, Vec<u64>), Mistake> {
        let (mut on, mut statuses) = (Vec::new(), Vec::new());
        for word in policy.text_at("retry_on").unwrap_or_default().split(',').map(str::trim) {
            match word {
                "" => {}
                "retriable-4xx" => statuses.push(CONFLICT),
                "retriable-status-codes" => {
                    for node in policy.items_at("retriable_status_codes") {
                        match node.number("a status")? {
                            status if RETRIABLE.contains(&status) => statuses.push(status),
                            status => {
                                let directive = format!("retriable_status_codes: {status}");
                                self.note(node, &directive, "retried statuses are 400 to 599", "statuses");
                            }
                        }
                    }
                }
                _ => match failures(word, has_limit) {
                    Some(failures) => on.extend(failures),
                    None => self.note(policy, &format!("retry_on: {word}"), "has no counterpart", "statuses"),
                },
            }
        }
        let mut known = HashSet::new();
        on.retain(|failure| known.insert(*failure));
        let mut known = HashSet::new();
        statuses.retain(|status| known.insert(*status));
        Ok((on, statuses))
    }
}

/// The failures that a word of `retry_on` stands for; `None`: it has no counterpart.
fn failures(word: &str, has_limit: bool) -> Option<Vec<&'static str>> {
    let own = match word {
        "connect-failure" => return Some(vec!["connect_failure"]),
        "refused-stream" => return Some(vec!["refused_stream"]),
        "reset" => None,
        "gateway-error" => Some("gateway_error"),
        "5xx" => Some("5xx"),
        _ => return None,
    };
    Some(WITHOUT_RESPONSE.into_iter().chain(has_limit.then_some("timeout")).chain(own).collect())
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
