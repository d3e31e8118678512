//! Values that Envoy and Weir lack in different requests, and headers that Envoy reads after changes.

use weir_import::Format;

use super::{front, own_notes, routed, routed_by, with_clients};
use crate::read;

const EDGE: &str = "use_remote_address: true";
const BEHIND: &str = "use_remote_address: false";
const HOPS: &str = "use_remote_address: true; xff_num_trusted_hops: 1";
const REPLACED: &str = "append_action: OVERWRITE_IF_EXISTS_OR_ADD";

/// A route with this action and a change of its requests or responses.
fn changed(action: &str, kind: &str, header: &str, more: &str) -> String {
    format!("{{ match: {{ prefix: / }}, {action}, {kind}_headers_to_add: [{{ header: {{ {header} }}, {more} }}] }}")
}

#[test]
fn a_copy_of_a_header_that_only_envoy_always_has_never_leaves_that_of_the_client() {
    let removed = "{ change = \"remove\", name = \"x-a\" }";
    for (manager, name, is_removed) in [
        (BEHIND, "x-request-id", true),
        (BEHIND, "x-forwarded-proto", true),
        (HOPS, "X-Forwarded-Proto", true),
        (EDGE, "x-request-id", true),
        (BEHIND, "x-name", false),
        ("use_remote_address: false; generate_request_id: false", "x-request-id", false),
    ] {
        let header = format!("key: x-a, value: \"%REQ({name})%\"");
        let found = routed_by(manager, &changed("route: { cluster: app }", "request", &header, REPLACED));
        assert_eq!(found.toml.contains(removed), is_removed, "{manager} {name}: {}", found.toml);
        assert!(found.toml.contains(&format!("{{ name = \"x-a\", value = \"%REQ({name})%\" }}")), "{}", found.toml);
    }
}

#[test]
fn a_header_of_a_response_that_envoy_replaces_is_never_lost() {
    let more = "append_action: OVERWRITE_IF_EXISTS";
    for action in ["route: { cluster: app }", "direct_response: { status: 403 }"] {
        let found = routed(&changed(action, "response", "key: x-frame-options, value: DENY", more));
        let set = "response_header = [{ name = \"x-frame-options\", value = \"DENY\" }]";
        assert!(found.toml.contains(set), "{action}: {}", found.toml);
        let noted = own_notes(&found);
        assert!(noted.contains("`x-frame-options: DENY`: is also sent if the response lacks it"), "{noted}");
    }
}

#[test]
fn a_variable_of_tls_is_empty_without_tls() {
    let route = |value: &str| {
        let header = format!("key: x-a, value: \"{value}\"");
        changed("route: { cluster: app }", "request", &header, REPLACED)
    };
    for value in ["%DOWNSTREAM_TLS_VERSION%", "%DOWNSTREAM_TLS_CIPHER%"] {
        let found = routed(&route(value));
        assert!(!found.toml.contains("\"x-a\"") && own_notes(&found).is_empty(), "{value}: {}", found.toml);
        let found = routed(&route(&format!("of {value}")));
        assert!(found.toml.contains("name = \"x-a\", value = \"of \""), "{value}: {}", found.toml);
        let host = format!("{{ name: all, domains: [\"*\"], routes: [{}] }}", route(value));
        let text = with_clients("", false).replace(super::ALL, &host);
        let found = read(Format::Envoy, &text);
        assert!(found.toml.contains(&format!("name = \"x-a\", value = \"{value}\"")), "{value}: {}", found.toml);
    }
}

#[test]
fn a_client_selects_no_host_of_an_upstream_by_a_header_that_envoy_changes_first() {
    let change = "request_headers_to_add: [{ header: { key: X-Host, value: a.example }, append: false }]";
    for (manager, header, more, is_written, is_noted) in [
        (EDGE, "x-host", "", true, false),
        (EDGE, "host", "", true, false),
        (EDGE, "x-envoy-original-host", "", false, false),
        (BEHIND, "x-envoy-original-host", "", true, false),
        (EDGE, "x-envoy-retry-on", "", false, false),
        (EDGE, "x-forwarded-proto", "", false, true),
        (HOPS, "x-forwarded-proto", "", false, true),
        (EDGE, "x-envoy-external-address", "", false, true),
        (HOPS, "X-Envoy-External-Address", "", false, true),
        (EDGE, "x-forwarded-for", "", false, true),
        (EDGE, "x-host", change, false, true),
        (EDGE, "x-host", "request_headers_to_remove: [X-HOST]", false, true),
    ] {
        let comma = if more.is_empty() { "" } else { ", " };
        let action = format!("route: {{ cluster: app, host_rewrite_header: {header} }}{comma}{more}");
        let found = routed_by(manager, &format!("{{ match: {{ prefix: / }}, {action} }}"));
        let case = format!("{manager} {header} {more}: {}", found.toml);
        assert_eq!(found.toml.contains(&format!("host_from_header = \"{header}\"")), is_written, "{case}");
        let noted = own_notes(&found);
        assert_eq!(noted.contains(&format!("`host_rewrite_header: {header}`: the host is kept")), is_noted, "{noted}");
    }
    let all = super::ALL.replace("cluster: app }", "cluster: app, host_rewrite_header: x-own }");
    let text =
        front("", EDGE, &all, "").replace("{ virtual_hosts:", "{ internal_only_headers: [X-Own], virtual_hosts:");
    assert!(!read(Format::Envoy, &text).toml.contains("host_from_header"));
}

#[test]
fn the_type_of_a_body_is_that_of_the_last_level_that_replaces_it() {
    let header = |kind: &str, more: &str| {
        format!("response_headers_to_add: [{{ header: {{ key: content-type, value: {kind} }}{more} }}]")
    };
    let replaced = format!(", {REPLACED}");
    let found = |wins: &str, more: &str| {
        let host = format!(
            "{{ name: all, domains: [\"*\"], routes: [{{ match: {{ prefix: / }}, direct_response: {{ status: 200, body: {{ inline_string: a }} }}, {} }}] }}",
            header("a/route", more)
        );
        let keys = format!("{{ {wins}{}, virtual_hosts:", header("a/all", more));
        read(Format::Envoy, &front("", EDGE, &host, "").replace("{ virtual_hosts:", &keys)).toml
    };
    let wins = "most_specific_header_mutations_wins: true, ";
    for (wins, more, wanted) in
        [("", &*replaced, "a/all"), (wins, &replaced, "a/route"), ("", "", "a/route"), (wins, "", "a/all")]
    {
        let toml = found(wins, more);
        assert!(toml.contains(&format!("content_type = \"{wanted}\"")), "{wins}{more}: {toml}");
    }
}
