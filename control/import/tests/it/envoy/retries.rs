//! Retries and the limits of attempts.

use weir_import::{Format, Imported};

use super::{ALL, front, own_notes};
use crate::{check, read, table};

/// A route with these keys of its action.
fn acting(action: &str) -> Imported {
    let all = ALL.replace("cluster: app }", &format!("cluster: app{action} }}"));
    let found = read(Format::Envoy, &front("", "use_remote_address: true", &all, ""));
    check(&found.toml);
    found
}

fn found(policy: &str) -> Imported {
    acting(&format!(", retry_policy: {{ {policy} }}"))
}

#[test]
fn a_retry_follows_the_failures_that_envoy_retries() {
    for (policy, line) in [
        ("retry_on: connect-failure", "retry = { attempts = 1, on = [\"connect_failure\"] }"),
        (
            "retry_on: 5xx, num_retries: 3",
            "attempts = 3, on = [\"connect_failure\", \"refused_stream\", \"reset\", \"5xx\"] }",
        ),
        (
            "retry_on: \"reset,connect-failure\", per_try_timeout: 1s",
            "on = [\"connect_failure\", \"refused_stream\", \"reset\", \"timeout\"] }",
        ),
        (
            "retry_on: \"retriable-4xx,retriable-status-codes\", retriable_status_codes: [503, 409]",
            "on = [], statuses = [409, 503] }",
        ),
        ("retry_on: connect-failure, retriable_status_codes: [503]", "on = [\"connect_failure\"] }"),
    ] {
        let found = found(policy);
        assert!(found.toml.contains(line), "{policy}: {}", found.toml);
        let is_noted = own_notes(&found).contains("only if their method is idempotent");
        assert_eq!(is_noted, !policy.contains("connect-failure") || policy.contains("reset"), "{}", own_notes(&found));
    }
    let strange = own_notes(&found("retry_on: retriable-status-codes, retriable_status_codes: [304]"));
    assert!(strange.contains("`retriable_status_codes: 304`"), "{strange}");
    let many = found("retry_on: connect-failure, num_retries: 12");
    assert!(many.toml.contains("attempts = 10,"), "{}", many.toml);
    assert!(own_notes(&many).contains("`num_retries: 12`: is at most 10"), "{}", own_notes(&many));
}

#[test]
fn nothing_is_retried_that_envoy_does_not_retry() {
    let none = acting("");
    assert!(table(&none.toml, "domain", "web").contains("retry = { attempts = 0 }"), "{}", none.toml);
    assert!(!table(&none.toml, "route", "all").contains("retry"), "{}", none.toml);
    for policy in ["num_retries: 3", "retry_on: \"\"", "retry_on: envoy-ratelimited", "retry_on: 5xx, num_retries: 0"] {
        let route = table(&found(policy).toml, "route", "all");
        assert!(route.contains("retry = { attempts = 0 }"), "{policy}: {route}");
    }
}

#[test]
fn the_limit_of_an_attempt_holds_for_the_last_one_too() {
    for (action, wanted) in [
        (", timeout: 0s, retry_policy: { retry_on: 5xx, per_try_timeout: 1s }", Some("1s")),
        (", retry_policy: { retry_on: connect-failure, per_try_timeout: 2s }", Some("2s")),
        (", retry_policy: { retry_on: 5xx, num_retries: 0, per_try_timeout: 2s }", Some("2s")),
        // It is not shorter than the limit of all attempts, and Envoy ignores it.
        (", timeout: 2s, retry_policy: { retry_on: 5xx, per_try_timeout: 2s }", None),
        (", retry_policy: { retry_on: 5xx, per_try_timeout: 0s }", None),
    ] {
        let found = acting(action);
        let route = table(&found.toml, "route", "all");
        let line = wanted.map(|time| format!("response_timeout = \"{time}\"\n"));
        assert!(line.as_ref().is_none_or(|line| route.contains(line)), "{action}: {route}");
        assert_eq!(route.contains("response_timeout"), wanted.is_some(), "{action}: {route}");
        assert!(!route.contains("try_timeout"), "{action}: {route}");
        assert_eq!(route.contains("\"timeout\""), wanted == Some("1s"), "{action}: {route}");
    }
}
