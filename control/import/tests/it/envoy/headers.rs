//! Headers that Envoy and Weir rewrite at different times: conditions on them, copies of them, changes of them.

use weir_import::{Format, Imported};

use super::{ALL, front, managed, own_notes, routed, routed_by, with_clients};
use crate::{check, notes, read, table};

const PROTO: &str = "{ name = \"x-forwarded-proto\", value = \"http\" }";
const CERT: &str = "{ change = \"remove\", name = \"x-forwarded-client-cert\" }";
const EDGE: &str = "use_remote_address: true";
const BEHIND: &str = "use_remote_address: false";
const OVERWRITTEN: &str = "use_remote_address: false; scheme_header_transformation: { scheme_to_overwrite: https }";
const HOPS: &str = "use_remote_address: true; xff_num_trusted_hops: 1";

/// The changes of requests by the route, or by its domain if it has none.
fn request_headers(imported: &Imported) -> String {
    let of = |list, name| table(&imported.toml, list, name);
    let route = of("route", "all");
    let own = if route.contains("request_header") { route } else { of("domain", "web") };
    own.split_once("request_header = ").expect("changes").1.to_owned()
}

#[test]
fn a_client_says_no_more_of_itself_than_it_could_through_envoy() {
    let edge = managed(EDGE, "");
    let of_edge = request_headers(&edge);
    assert!(of_edge.contains(PROTO) && of_edge.contains(CERT), "{of_edge}");
    assert_eq!(own_notes(&edge), "");
    let external = "{ name = \"x-envoy-external-address\", value = \"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%\" }";
    let removed = |name: &str| format!("{{ change = \"remove\", name = \"{name}\" }}");
    // The peer has no address at a Unix socket, and then the client's own header must not stay.
    let replaced = format!("{},\n    {external}", removed("x-envoy-external-address"));
    assert!(of_edge.contains(&replaced), "{of_edge}");
    for name in ["x-envoy-internal", "x-envoy-retry-on", "x-envoy-decorator-operation", "x-envoy-original-path"] {
        assert!(of_edge.contains(&removed(name)), "{name}: {of_edge}");
    }
    // A trusted proxy in front knows the protocol and the client.
    let behind = managed(HOPS, "");
    let of_behind = request_headers(&behind);
    assert!(!of_behind.contains(PROTO) && of_behind.contains(CERT), "{of_behind}");
    assert!(of_behind.contains(&removed("x-envoy-external-address")), "{of_behind}");
    assert!(own_notes(&behind).contains("`xff_num_trusted_hops`: x-envoy-external-address"), "{}", notes(&behind));
    let kept = managed("use_remote_address: false", "");
    let of_kept = request_headers(&kept);
    assert!(!of_kept.contains(PROTO) && of_kept.contains(CERT), "{of_kept}");
    assert!(of_kept.contains(&removed("x-envoy-internal")), "{of_kept}");
    for name in ["x-envoy-external-address", "x-envoy-decorator-operation"] {
        assert!(!of_kept.contains(name), "{of_kept}");
    }
    assert!(notes(&kept).contains("`use_remote_address`: Envoy adds X-Forwarded-Proto"), "{}", notes(&kept));
}

#[test]
fn without_use_remote_address_the_peer_is_a_trusted_proxy_more() {
    for (manager, line) in [
        (EDGE, ""),
        (HOPS, "trusted_hops = 1\n"),
        ("use_remote_address: false", "trusted_hops = 1\n"),
        ("use_remote_address: false; xff_num_trusted_hops: 2", "trusted_hops = 3\n"),
        ("use_remote_address: true; xff_num_trusted_hops: 20", "trusted_hops = 16\n"),
    ] {
        let found = managed(manager, "");
        assert!(found.toml.contains(line) && found.toml.contains("trusted_hops") != line.is_empty(), "{}", found.toml);
        let is_cut = own_notes(&found).contains("`xff_num_trusted_hops: 20`: is at most 16");
        assert_eq!(is_cut, manager.contains("20"), "{}", notes(&found));
    }
}

#[test]
fn ids_are_made_where_envoy_makes_them_or_a_note_says_so() {
    let noted = |imported: &Imported| {
        notes(imported).lines().find(|line| line.contains("`generate_request_id`")).map(str::to_owned)
    };
    for (manager, is_made, text) in [
        (EDGE, true, Some("is kept, if it is valid; Envoy replaces it")),
        ("use_remote_address: true; preserve_external_request_id: true", true, None),
        ("use_remote_address: false", false, Some("Envoy adds X-Request-ID to requests without it")),
        ("use_remote_address: true; generate_request_id: false", false, None),
    ] {
        let found = managed(manager, "");
        assert_eq!(found.toml.contains("request_id = true"), is_made, "{manager}: {}", found.toml);
        let note = noted(&found);
        assert_eq!(note.is_some(), text.is_some(), "{manager}: {note:?}");
        assert!(text.is_none_or(|text| note.as_ref().is_some_and(|note| note.contains(text))), "{manager}: {note:?}");
    }
}

#[test]
fn the_certificate_of_a_client_is_written_only_where_a_client_cannot_write_it() {
    let authority = ", validation_context: { trusted_ca: { filename: /etc/tls/ca.crt } }";
    let found = |manager: &str, context: &str, is_required: bool| {
        let text = with_clients(context, is_required).replace(
            "\n          route_config",
            &format!("\n          {}\n          route_config", manager.replace("; ", "\n          ")),
        );
        let found = read(Format::Envoy, &text);
        check(&found.toml);
        found
    };
    let with = |manager: &str, details: &str| format!("{manager}; forward_client_cert_details: {details}");
    let (none, all, some) = (("", false), (authority, true), (authority, false));
    for (manager, details, (context, is_required), is_removed, forwarded, is_noted) in [
        (EDGE, "SANITIZE", all, true, "append", false),
        (EDGE, "ALWAYS_FORWARD_ONLY", none, false, "append", false),
        (EDGE, "FORWARD_ONLY", none, true, "append", false),
        (EDGE, "FORWARD_ONLY", all, false, "append", false),
        (EDGE, "FORWARD_ONLY", some, true, "append", true),
        (EDGE, "APPEND_FORWARD", all, false, "append", true),
        (EDGE, "APPEND_FORWARD", some, true, "append", true),
        ("use_remote_address: false", "APPEND_FORWARD", all, false, "keep", true),
        (EDGE, "SANITIZE_SET", none, true, "append", false),
        (EDGE, "SANITIZE_SET", all, false, "replace", true),
        (EDGE, "SANITIZE_SET", some, false, "replace", true),
        (HOPS, "SANITIZE_SET", all, true, "append", true),
    ] {
        let found = found(&with(manager, details), context, is_required);
        let case = format!("{manager} {details} {context} {is_required}: {}", found.toml);
        assert_eq!(found.toml.contains(CERT), is_removed, "{case}");
        assert!(found.toml.contains(&format!("forwarded = \"{forwarded}\"")), "{case}");
        let is_written = found.toml.contains("forwarded_client_cert = true");
        let writes = details == "SANITIZE_SET" || details == "APPEND_FORWARD" && forwarded == "append";
        assert_eq!(is_written, writes && !is_removed, "{case}");
        assert_eq!(notes(&found).contains("`forward_client_cert_details: "), is_noted, "{case}");
    }
    let https = found(EDGE, "", false);
    assert!(https.toml.contains("name = \"x-forwarded-proto\", value = \"https\""), "{}", https.toml);
}

/// A route to `app` with this condition on a header, in front of a response.
fn conditional(manager: &str, header: &str) -> Imported {
    routed_by(
        manager,
        &format!(
            "{{ match: {{ prefix: /, headers: [{{ {header} }}] }}, route: {{ cluster: app }} }}, {{ match: {{ prefix: / }}, direct_response: {{ status: 202 }} }}"
        ),
    )
}

#[test]
fn a_condition_on_a_header_that_envoy_rewrites_first_is_decided_or_left_out() {
    /// The route is for all requests, for none, has the condition, or is noted.
    #[derive(Debug, PartialEq)]
    enum Is {
        All,
        Never,
        Conditional,
        Noted,
    }
    let is = |manager: &str, header: &str| {
        let found = conditional(manager, header);
        let is_noted = own_notes(&found).contains("is left out: Envoy writes `");
        match (
            found.toml.contains("[[route]]\nname = \"all\"\nlisteners = [\"web\"]\nupstream"),
            found.toml.contains("header = [{"),
        ) {
            (true, _) => Is::All,
            (_, true) if found.toml.contains("kind = ") => Is::Conditional,
            _ if is_noted => Is::Noted,
            _ => Is::Never,
        }
    };
    for (manager, header, wanted) in [
        (EDGE, "name: x-forwarded-proto, string_match: { exact: http }", Is::All),
        (EDGE, "name: X-Forwarded-Proto, string_match: { exact: HTTP, ignore_case: true }", Is::All),
        (EDGE, "name: x-forwarded-proto, string_match: { exact: https }", Is::Never),
        (EDGE, "name: x-forwarded-proto, string_match: { exact: https }, invert_match: true", Is::All),
        (EDGE, "name: x-forwarded-proto, string_match: { safe_regex: { regex: \"htt.\" } }", Is::All),
        (EDGE, "name: x-forwarded-proto, string_match: { safe_regex: { regex: \"htt\" } }", Is::Never),
        (EDGE, "name: x-forwarded-proto, string_match: { prefix: htt }", Is::All),
        (EDGE, "name: x-forwarded-proto, present_match: true", Is::All),
        // Without it, Envoy compares the scheme of the connection.
        (HOPS, "name: x-forwarded-proto, string_match: { exact: http }", Is::Noted),
        (HOPS, "name: x-forwarded-proto, string_match: { exact: https }", Is::Conditional),
        (HOPS, "name: x-forwarded-proto, string_match: { exact: https }, invert_match: true", Is::Noted),
        ("use_remote_address: false", "name: x-forwarded-proto, string_match: { exact: http }", Is::Noted),
        (HOPS, "name: x-forwarded-proto, present_match: true", Is::All),
        (OVERWRITTEN, "name: x-forwarded-proto, string_match: { exact: https }", Is::All),
        (OVERWRITTEN, "name: x-forwarded-proto, string_match: { exact: http }", Is::Never),
        (EDGE, "name: x-forwarded-client-cert, present_match: true", Is::Never),
        (EDGE, "name: x-forwarded-client-cert, present_match: true, invert_match: true", Is::All),
        (EDGE, "name: x-forwarded-client-cert, string_match: { exact: a }, invert_match: true", Is::Never),
        (EDGE, "name: x-forwarded-for, present_match: true", Is::All),
        (EDGE, "name: x-forwarded-for, string_match: { prefix: \"10.\" }", Is::Noted),
        ("use_remote_address: false", "name: x-forwarded-for, string_match: { prefix: \"10.\" }", Is::Conditional),
        (EDGE, "name: x-request-id, string_match: { prefix: a }", Is::Noted),
        (
            "use_remote_address: true; generate_request_id: false",
            "name: x-request-id, string_match: { prefix: a }",
            Is::Conditional,
        ),
        (EDGE, "name: x-envoy-internal, string_match: { exact: \"true\" }", Is::Never),
        (EDGE, "name: x-envoy-external-address, string_match: { exact: 10.0.0.1 }", Is::Noted),
        (EDGE, "name: x-envoy-peer-metadata, present_match: true", Is::Conditional),
        (EDGE, "name: x-name, string_match: { exact: n }", Is::Conditional),
    ] {
        assert_eq!(is(manager, header), wanted, "{manager} {header}: {}", conditional(manager, header).toml);
    }
}

/// A header of requests and the keys beside it, of a route that removes `x-gone`.
fn with_header(manager: &str, value: &str, more: &str) -> Imported {
    let header = format!("{{ header: {{ key: x-a, value: \"{value}\" }}{more} }}");
    routed_by(
        manager,
        &format!(
            "{{ match: {{ prefix: / }}, route: {{ cluster: app }}, request_headers_to_remove: [X-Gone], request_headers_to_add: [{header}] }}"
        ),
    )
}

#[test]
fn a_copy_of_a_header_is_that_of_envoy() {
    for (value, wanted) in [
        ("%REQ(x-forwarded-proto)%", Some("http")),
        ("a-%REQ(x-gone)%-b", Some("a--b")),
        ("%REQ(x-forwarded-client-cert)%", None),
        ("%REQ(x-envoy-retry-on)%", None),
        ("%REQ(X-Envoy-External-Address)%", Some("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%")),
        ("%REQ(x-name)% of 100%%", Some("%REQ(x-name)% of 100%%")),
        ("%REQ(x-forwarded-for)%", Some("%REQ(x-forwarded-for)%")),
    ] {
        let found = with_header(EDGE, value, "");
        let line = wanted.map(|value| format!("name = \"x-a\", value = \"{value}\""));
        assert!(line.as_ref().is_none_or(|line| found.toml.contains(line)), "{value}: {}", found.toml);
        assert_eq!(found.toml.contains("\"x-a\""), wanted.is_some(), "{value}: {}", found.toml);
        assert_eq!(own_notes(&found), "", "{value}");
    }
    for (manager, value) in [
        (EDGE, "%REQ(host)%"),
        (HOPS, "%REQ(x-envoy-external-address)%"),
        (HOPS, "%DOWNSTREAM_REMOTE_ADDRESS%"),
        ("use_remote_address: false", "%DOWNSTREAM_REMOTE_PORT%"),
        (EDGE, "%RESPONSE_FLAGS%"),
    ] {
        let found = with_header(manager, value, "");
        assert!(!found.toml.contains("\"x-a\""), "{value}: {}", found.toml);
        let noted = own_notes(&found);
        assert!(noted.contains(&format!("`x-a: {value}`")) && noted.contains("; the change is left out"), "{noted}");
        // A client must not send the header in place of the proxy.
        let replaced = with_header(manager, value, ", append_action: OVERWRITE_IF_EXISTS_OR_ADD");
        assert!(replaced.toml.contains("{ change = \"remove\", name = \"x-a\" }"), "{value}: {}", replaced.toml);
        assert!(own_notes(&replaced).contains("; the header is removed"), "{value}: {}", notes(&replaced));
    }
    // The virtual host sees the headers of its route, and Weir those of the client.
    let header = |name: &str, value: &str| {
        format!("request_headers_to_add: [{{ header: {{ key: {name}, value: \"{value}\" }} }}]")
    };
    let host = format!(
        r#"{{ name: all, domains: ["*"], {}, routes: [{{ match: {{ prefix: / }}, route: {{ cluster: app }}, {} }}] }}"#,
        header("x-b", "%REQ(x-a)%"),
        header("x-a", "one")
    );
    let found = read(Format::Envoy, &front("", EDGE, &host, ""));
    assert!(found.toml.contains("\"x-a\", value = \"one\"") && !found.toml.contains("\"x-b\""), "{}", found.toml);
    assert!(
        own_notes(&found).contains("`x-b: %REQ(x-a)%`: Envoy reads x-a as another change writes it"),
        "{}",
        notes(&found)
    );
}

#[test]
fn a_response_has_no_header_of_its_request_except_those_of_the_gateway_itself() {
    let header = |value: &str| format!("response_headers_to_add: [{{ header: {{ key: x-a, value: \"{value}\" }} }}]");
    let found =
        |target: &str, value: &str| routed(&format!("{{ match: {{ prefix: / }}, {target}, {} }}", header(value)));
    let (upstream, own) = ("route: { cluster: app }", "direct_response: { status: 403 }");
    let copy = found(upstream, "%REQ(x-name)%");
    assert!(!copy.toml.contains("\"x-a\"") && own_notes(&copy).contains("`x-a: %REQ(x-name)%`"), "{}", copy.toml);
    let known = found(upstream, "%REQ(x-forwarded-proto)%");
    assert!(
        known.toml.contains("response_header = [{ change = \"add\", name = \"x-a\", value = \"http\" }]"),
        "{}",
        known.toml
    );
    let copy = found(own, "%REQ(x-name)%");
    assert!(copy.toml.contains("value = \"%REQ(x-name)%\"") && own_notes(&copy).is_empty(), "{}", copy.toml);
    let made = found(own, "%REQ(x-request-id)%");
    assert!(!made.toml.contains("\"x-a\"") && own_notes(&made).contains("`x-a: %REQ(x-request-id)%`"), "{}", made.toml);
}

#[test]
fn responses_of_the_gateway_itself_have_the_headers_of_envoy() {
    let add = |key: &str| format!("response_headers_to_add: [{{ header: {{ key: {key}, value: a }} }}]");
    for end in ["redirect: { https_redirect: true, port_redirect: 443 }", "direct_response: { status: 403 }"] {
        let host = format!(
            r#"{{ name: all, domains: ["*"], {}, response_headers_to_remove: [server], routes: [{{ match: {{ prefix: / }}, {end}, {} }}] }}"#,
            add("strict-transport-security"),
            add("x-own"),
        );
        let found = read(Format::Envoy, &front("", EDGE, &host, ""));
        let changes =
            ["add\", name = \"x-own\"", "remove\", name = \"server\"", "add\", name = \"strict-transport-security\""];
        let at = |text: &str| found.toml.find(text).unwrap_or_else(|| panic!("{text}: {}", found.toml));
        assert!(changes.map(at).is_sorted(), "{}", found.toml);
        assert_eq!(own_notes(&found), "");
        check(&found.toml);
    }
}

#[test]
fn headers_are_removed_before_they_are_added_and_replaced_where_envoy_replaces() {
    let more = r#", request_headers_to_add: [{ header: { key: x-a, value: one } }, { header: { key: x-b, value: two }, append: false }, { header: { key: x-c, value: three }, append_action: ADD_IF_ABSENT }, { header: { key: x-d, value: "" }, append_action: OVERWRITE_IF_EXISTS_OR_ADD, keep_empty_value: true }, { header: { key: x-e, value: "%REQ(x-name)%" }, keep_empty_value: true }], request_headers_to_remove: [x-a] }"#;
    let all = ALL.replace("route: { cluster: app } }", &format!("route: {{ cluster: app }}{more}"));
    let found = read(Format::Envoy, &front("", "", &all, ""));
    check(&found.toml);
    let at = |text: &str| found.toml.find(text).unwrap_or_else(|| panic!("{text}: {}", found.toml));
    assert!(at("{ change = \"remove\", name = \"x-a\" }") < at("{ change = \"add\", name = \"x-a\""));
    at("{ name = \"x-b\"");
    at("{ name = \"x-d\", value = \"\" }");
    assert!(!found.toml.contains("x-c\", value"), "{}", found.toml);
    let left_out = "`x-c: three`: ADD_IF_ABSENT depends on the value that is there already; the change is left out";
    assert!(notes(&found).contains(left_out), "{}", notes(&found));
    assert!(notes(&found).contains("`x-e: %REQ(x-name)%`: is not sent if the request lacks"), "{}", notes(&found));
    assert!(!notes(&found).contains("keep_empty_value"), "{}", notes(&found));
    let split = ALL.replace(
        "cluster: app }",
        "weighted_clusters: { clusters: [{ name: app, weight: 1, request_headers_to_remove: [x-a] }] } }",
    );
    let found = read(Format::Envoy, &front("", "", &split, ""));
    assert!(notes(&found).contains("`weighted_clusters.clusters.request_headers_to_remove`"), "{}", notes(&found));
}

#[test]
fn a_header_has_the_name_of_the_route_and_none_is_sent_without_a_value() {
    let header = |value: &str| format!("{{ header: {{ key: x-a, value: \"{value}\" }} }}");
    let found = |name: &str, value: &str| {
        routed(&format!(
            "{{ {name}match: {{ prefix: / }}, route: {{ cluster: app, host_rewrite_header: x-host }}, request_headers_to_add: [{}] }}",
            header(value)
        ))
    };
    let named = found("name: 50%, ", "of %ROUTE_NAME%");
    assert!(named.toml.contains("name = \"x-a\", value = \"of 50%%\""), "{}", named.toml);
    assert!(named.toml.contains("host_from_header = \"x-host\""), "{}", named.toml);
    for value in ["%ROUTE_NAME%", ""] {
        let found = found("", value);
        assert!(!found.toml.contains("\"x-a\"") && own_notes(&found).is_empty(), "{}{}", found.toml, notes(&found));
    }
}

#[test]
fn a_client_never_forges_a_header_that_envoy_replaces() {
    let replaced = ", append_action: OVERWRITE_IF_EXISTS_OR_ADD";
    let removed = "{ change = \"remove\", name = \"x-a\" }";
    for (value, more, is_removed) in [
        ("id-%REQ(x-name)%", "", true),
        ("%REQ(x-name)%%REQ(x-other)%", "", true),
        ("%REQ(x-name)%", ", keep_empty_value: true", true),
        // The peer has no address at a Unix socket.
        ("%DOWNSTREAM_REMOTE_ADDRESS%", "", true),
        // Envoy keeps the client's header too if the request lacks the other one.
        ("%REQ(x-name)%", "", false),
        ("100%%", "", false),
        ("%REQ(x-envoy-retry-on)%", "", false),
    ] {
        let found = with_header(EDGE, value, &format!("{replaced}{more}"));
        let list = request_headers(&found);
        assert_eq!(list.contains(removed), is_removed, "{value}: {list}");
        let set = format!("{removed},\n    {{ name = \"x-a\", value = \"{value}\" }}");
        assert!(!is_removed || list.contains(&set), "{value}: {list}");
        // An addition leaves the client's own.
        assert!(!request_headers(&with_header(EDGE, value, more)).contains(removed), "{value}");
    }
    let found = with_header(EDGE, "own", ", append_action: OVERWRITE_IF_EXISTS");
    assert!(request_headers(&found).contains(removed) && !found.toml.contains("\"own\""), "{}", found.toml);
    let noted = own_notes(&found);
    assert!(noted.contains("`x-a: own`: OVERWRITE_IF_EXISTS depends on") && noted.contains("; the header is removed"));
    // Envoy changes nothing without a value.
    let found = with_header(EDGE, "", ", append_action: OVERWRITE_IF_EXISTS");
    assert!(!found.toml.contains("\"x-a\"") && own_notes(&found).is_empty(), "{}", found.toml);
}

#[test]
fn a_level_replaces_before_it_adds() {
    let header = |value: &str, more: &str| format!("{{ header: {{ key: x-a, value: {value} }}{more} }}");
    let replaced = header("new", ", append_action: OVERWRITE_IF_EXISTS_OR_ADD");
    let list = format!("request_headers_to_add: [{}, {replaced}]", header("more", ""));
    let found = routed(&format!("{{ match: {{ prefix: / }}, route: {{ cluster: app }}, {list} }}"));
    let at = |text: &str| found.toml.find(text).unwrap_or_else(|| panic!("{text}: {}", found.toml));
    assert!(at("{ name = \"x-a\", value = \"new\" }") < at("{ change = \"add\", name = \"x-a\", value = \"more\" }"));
}

/// A file whose `route_config` has these keys, and its virtual host and its only route have others.
fn of_levels(keys: &str, of_host: &str, of_route: &str) -> Imported {
    let host = format!(
        r#"{{ name: all, domains: ["*"], {of_host}routes: [{{ match: {{ prefix: / }}, {of_route}route: {{ cluster: app }} }}] }}"#
    );
    let text = front("", EDGE, &host, "").replace("{ virtual_hosts:", &format!("{{ {keys}virtual_hosts:"));
    let found = read(Format::Envoy, &text);
    check(&found.toml);
    found
}

#[test]
fn the_changes_of_the_route_config_come_last_unless_the_most_specific_ones_win() {
    let keys = |value: &str| {
        format!(
            "request_headers_to_remove: [x-{value}-gone], request_headers_to_add: [{{ header: {{ key: x-a, value: {value} }}, append: false }}], \
             response_headers_to_add: [{{ header: {{ key: x-b, value: {value} }} }}], "
        )
    };
    for (wins, order) in
        [("", ["route", "host", "all"]), ("most_specific_header_mutations_wins: true, ", ["all", "host", "route"])]
    {
        let found = of_levels(&format!("{wins}{}", keys("all")), &keys("host"), &keys("route"));
        assert_eq!(own_notes(&found), "");
        let at = |text: String| found.toml.find(&text).unwrap_or_else(|| panic!("{text}: {}", found.toml));
        for name in ["x-a", "x-b"] {
            let line = |value: &str| at(format!("name = \"{name}\", value = \"{value}\""));
            assert!(order.map(line).is_sorted(), "{name}: {}", found.toml);
        }
        assert!(order.map(|value| at(format!("\"x-{value}-gone\""))).is_sorted(), "{}", found.toml);
    }
}

#[test]
fn a_header_for_internal_clients_selects_no_route_and_goes_nowhere() {
    let matched = |of_route: &str| of_levels("internal_only_headers: [X-Internal, x-envoy-internal], ", "", of_route);
    let found = matched("");
    let removed = "{ change = \"remove\", name = \"x-internal\" }";
    assert!(request_headers(&found).contains(removed) && own_notes(&found).is_empty(), "{}", notes(&found));
    let found = matched("request_headers_to_add: [{ header: { key: x-a, value: \"of-%REQ(x-internal)%\" } }], ");
    assert!(request_headers(&found).contains("name = \"x-a\", value = \"of-\""), "{}", found.toml);
    let text = front(
        "",
        EDGE,
        &ALL.replace("prefix: / }", "prefix: /, headers: [{ name: x-internal, present_match: true }] }"),
        "",
    );
    let conditional =
        |keys: &str| read(Format::Envoy, &text.replace("{ virtual_hosts:", &format!("{{ {keys}virtual_hosts:")));
    assert!(conditional("").toml.contains("upstream = \"app\""));
    let found = conditional("internal_only_headers: [x-internal], ");
    assert!(!found.toml.contains("upstream = \"app\"") && found.toml.contains("status = 404"), "{}", found.toml);
    let found = of_levels("internal_only_headers: [x-forwarded-for], ", "", "");
    assert!(own_notes(&found).contains("`internal_only_headers: x-forwarded-for`: Weir does not"), "{}", notes(&found));
    // Envoy makes an id of its own instead, and Weir none.
    let own = of_levels("internal_only_headers: [x-request-id], ", "", "");
    let removed = "{ change = \"remove\", name = \"x-request-id\" }";
    assert!(!own.toml.contains(removed), "{}", own.toml);
    assert!(own_notes(&own).contains("`internal_only_headers: x-request-id`: Weir does not"), "{}", own_notes(&own));
    let copy = "routes: [{ match: { prefix: / }, route: { cluster: app }, request_headers_to_add: [{ header: { key: x-a, value: \"%REQ(x-request-id)%\" } }] }]";
    let text = front("", BEHIND, &format!("{{ name: all, domains: [\"*\"], {copy} }}"), "")
        .replace("{ virtual_hosts:", "{ internal_only_headers: [x-request-id], virtual_hosts:");
    let behind = read(Format::Envoy, &text);
    assert!(behind.toml.contains(removed) && !behind.toml.contains("\"x-a\""), "{}", behind.toml);
    assert!(!own_notes(&behind).contains("internal_only_headers"), "{}", own_notes(&behind));
}
