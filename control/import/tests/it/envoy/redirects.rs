//! Redirects: the scheme, the host, the port and the path of their Location.

use weir_import::{Format, Imported};

use super::{ALL, front, managed, own_notes, routed_by, with_clients};
use crate::{check, mistake, read, table};

/// A redirect of some requests.
fn redirect_by(manager: &str, matched: &str, to: &str) -> Imported {
    let rest = "{ match: { prefix: / }, route: { cluster: app } }";
    routed_by(manager, &format!("{{ match: {{ {matched} }}, redirect: {{ {to} }} }}, {rest}"))
}

fn redirect(matched: &str, to: &str) -> Imported {
    redirect_by("use_remote_address: true", matched, to)
}

#[test]
fn a_redirect_has_the_host_the_port_and_the_path_of_envoy() {
    for (matched, to, wanted) in [
        ("path: /x", "host_redirect: \"other.example:8443\"", "host = \"other.example\", port = 8443 }"),
        (
            "path: /x",
            "host_redirect: \"other.example:1\", port_redirect: 8443",
            "host = \"other.example\", port = 8443 }",
        ),
        // The port of the request would stand behind the new host.
        ("path: /x", "host_redirect: other.example", "status = 301, host = \"other.example\", port = 80 }"),
        (
            "path: /x",
            "host_redirect: other.example, https_redirect: true",
            "status = 301, scheme = \"https\", host = \"other.example\" }",
        ),
        ("path: /x", "scheme_redirect: https, port_redirect: 8443", "scheme = \"https\", port = 8443 }"),
        // With a scheme, Weir leaves out the port of the request.
        ("path: /x", "scheme_redirect: http, path_redirect: /y", "status = 301, path = \"/y\" }"),
        ("safe_regex: { regex: \"/v[0-9]/x\" }", "prefix_rewrite: /new", "status = 301, path = \"/new\" }"),
    ] {
        let found = redirect(matched, to);
        assert!(found.toml.contains(wanted), "{to}: {}", found.toml);
        assert_eq!(own_notes(&found), "", "{to}");
    }
    let found = redirect("path: /x", "path_redirect: \"/login?from=x\"");
    assert!(found.toml.contains("redirect = { status = 301, path = \"/login\" }"), "{}", found.toml);
    let noted = own_notes(&found);
    assert!(noted.contains("`path_redirect: /login?from=x`: a redirect keeps the query"), "{noted}");
    let regex = "regex_rewrite: { pattern: { regex: \"^/x\" }, substitution: /y }";
    let found = redirect("prefix: /x", regex);
    assert!(found.toml.contains("response = { status = 501 }"), "{}", found.toml);
    assert!(own_notes(&found).contains("`redirect.regex_rewrite`"), "{}", own_notes(&found));
}

#[test]
fn a_port_that_weir_leaves_out_and_a_scheme_that_it_does_not_know_are_noted() {
    for (to, directive) in [
        ("https_redirect: true", "`https_redirect`: the Location has no port"),
        ("scheme_redirect: https", "`scheme_redirect`: the Location has no port"),
        ("scheme_redirect: http", "`scheme_redirect`: the Location has no port"),
        ("https_redirect: false, scheme_redirect: https", "`scheme_redirect`: the Location has no port"),
    ] {
        let found = redirect("path: /x", to);
        assert!(own_notes(&found).contains(directive) && found.toml.contains("scheme = "), "{to}: {}", found.toml);
    }
    // A proxy in front says the scheme of the client.
    for manager in ["use_remote_address: true; xff_num_trusted_hops: 1", "use_remote_address: false"] {
        let scheme = "`redirect`: the Location has the scheme of the connection";
        for (to, is_noted) in
            [("path_redirect: /y", true), ("host_redirect: a.example", true), ("https_redirect: true", false)]
        {
            let found = redirect_by(manager, "path: /x", to);
            assert_eq!(own_notes(&found).contains(scheme), is_noted, "{manager} {to}: {}", own_notes(&found));
        }
        let kept = redirect_by(manager, "path: /x", "scheme_redirect: http, path_redirect: /y");
        assert!(kept.toml.contains("scheme = \"http\"") && own_notes(&kept).contains("has no port"), "{}", kept.toml);
    }
}

#[test]
fn a_scheme_that_envoy_overwrites_is_that_of_all_requests() {
    let overwritten =
        |manager: &str| format!("{manager}; scheme_header_transformation: {{ scheme_to_overwrite: https }}");
    for manager in ["use_remote_address: true", "use_remote_address: false", "xff_num_trusted_hops: 1"] {
        let found = managed(&overwritten(manager), "");
        let domain = table(&found.toml, "domain", "web");
        assert!(domain.contains("{ name = \"x-forwarded-proto\", value = \"https\" }"), "{manager}: {domain}");
        let is_added = "Envoy adds X-Forwarded-Proto to requests without it";
        assert!(!found.notes.iter().any(|note| note.to_string().contains(is_added)), "{manager}");
        for (to, wanted) in [
            ("path_redirect: /y", "status = 301, scheme = \"https\", path = \"/y\" }"),
            ("host_redirect: a.example", "status = 301, scheme = \"https\", host = \"a.example\" }"),
            ("scheme_redirect: http, port_redirect: 81", "status = 301, scheme = \"http\", port = 81 }"),
        ] {
            let found = redirect_by(&overwritten(manager), "path: /x", to);
            assert!(found.toml.contains(wanted), "{manager} {to}: {}", found.toml);
        }
    }
    let found = redirect_by(&overwritten("use_remote_address: true"), "path: /x", "path_redirect: /y");
    assert!(own_notes(&found).contains("`redirect`: the Location has no port"), "{}", own_notes(&found));
    let noted = own_notes(&found);
    assert!(noted.contains("`scheme_to_overwrite`: `:scheme` of HTTP/2 upstreams"), "{noted}");
    let found = managed("scheme_header_transformation: { match_upstream: true }", "");
    assert!(own_notes(&found).contains("`scheme_header_transformation.match_upstream`"), "{}", own_notes(&found));
}

#[test]
fn a_virtual_host_that_requires_tls_redirects_all_requests_of_a_listener_without_it() {
    let host = |mode: &str| ALL.replace("routes:", &format!("require_tls: {mode}, routes:"));
    let found = |manager: &str, mode: &str| {
        let found = read(Format::Envoy, &front("", manager, &host(mode), ""));
        check(&found.toml);
        found
    };
    for mode in ["ALL", "EXTERNAL_ONLY"] {
        let edge = found("use_remote_address: true", mode);
        let route = table(&edge.toml, "route", "all");
        assert!(route.contains("redirect = { status = 301, scheme = \"https\" }"), "{route}");
        assert!(!edge.toml.contains("upstream = \"app\""), "{}", edge.toml);
        let noted = own_notes(&edge);
        assert!(noted.contains(&format!("`require_tls: {mode}`: the Location has no port")), "{noted}");
        // Requests of https go to the upstream, and so do all others.
        let behind = found("use_remote_address: false", mode);
        assert!(behind.toml.contains("upstream = \"app\"") && !behind.toml.contains("redirect = "), "{}", behind.toml);
        let noted = own_notes(&behind);
        assert!(noted.contains("X-Forwarded-Proto is not https, also by default, are forwarded"), "{noted}");
    }
    let internal = "use_remote_address: true\n          internal_address_config: { unix_sockets: true }";
    for (mode, is_noted) in [("ALL", false), ("EXTERNAL_ONLY", true)] {
        let noted = own_notes(&found(internal, mode));
        assert_eq!(noted.contains("also internal clients get the redirect"), is_noted, "{mode}: {noted}");
    }
    let none = found("use_remote_address: true", "NONE");
    assert!(none.toml.contains("upstream = \"app\"") && own_notes(&none).is_empty(), "{}", own_notes(&none));
    // All requests of a listener with TLS have it.
    let text = with_clients("", false)
        .replace("\n          route_config", "\n          use_remote_address: true\n          route_config")
        .replace(ALL, &host("ALL"));
    assert!(text.contains("require_tls: ALL"), "{text}");
    let tls = read(Format::Envoy, &text);
    assert!(tls.toml.contains("upstream = \"app\"") && own_notes(&tls).is_empty(), "{}", own_notes(&tls));
    // A certificate in another place is a mistake, never a listener that says http.
    let files =
        "{ certificate_chain: { filename: /etc/tls/front.crt }, private_key: { filename: /etc/tls/front.key } }";
    for text in [
        text.replace("filename: /etc/tls/front.crt", "inline_string: pem"),
        text.replace(&format!("tls_certificates: [{files}]"), "tls_certificate_sds_secret_configs: [{ name: front }]"),
    ] {
        let why = mistake(Format::Envoy, &text);
        assert!(why.contains("the TLS context has no certificate in files"), "{why}");
    }
}

#[test]
fn a_scheme_that_a_port_decides_redirects_nothing_and_is_no_text() {
    let ports = "forward_proto_config: { https_destination_ports: [443], http_destination_ports: [80] }";
    let removed = "{ change = \"remove\", name = \"x-forwarded-proto\" }";
    for (manager, is_removed) in [("use_remote_address: true", true), ("use_remote_address: false", false)] {
        let found = managed(&format!("{manager}; {ports}"), "require_tls: ALL, ");
        assert!(found.toml.contains("upstream = \"app\"") && !found.toml.contains("redirect = "), "{}", found.toml);
        let noted = own_notes(&found);
        assert!(noted.contains("`require_tls: ALL`: requests whose X-Forwarded-Proto is not https"), "{noted}");
        assert!(noted.contains("`http_connection_manager.forward_proto_config`"), "{noted}");
        // At the edge, the header of a client proves nothing.
        let domain = table(&found.toml, "domain", "web");
        assert_eq!(domain.contains(removed), is_removed, "{manager}: {domain}");
        assert!(!domain.contains("{ name = \"x-forwarded-proto\""), "{manager}: {domain}");
        for value in ["http", "https"] {
            let condition = format!(
                "{{ match: {{ prefix: /, headers: [{{ name: x-forwarded-proto, string_match: {{ exact: {value} }} }}] }}, route: {{ cluster: app }} }}"
            );
            let found = routed_by(&format!("{manager}; {ports}"), &condition);
            assert!(!found.toml.contains("upstream = \"app\""), "{manager}: {}", found.toml);
            assert!(own_notes(&found).contains("is left out: Envoy writes `x-forwarded-proto`"), "{manager}");
        }
    }
    let fixed =
        format!("use_remote_address: true; {ports}; scheme_header_transformation: {{ scheme_to_overwrite: https }}");
    let domain = table(&managed(&fixed, "").toml, "domain", "web");
    assert!(domain.contains("{ name = \"x-forwarded-proto\", value = \"https\" }"), "{domain}");
}
