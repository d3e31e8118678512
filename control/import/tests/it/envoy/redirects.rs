//! Redirects: the scheme, the host, the port and the path of their Location.

use weir_import::Imported;

use super::{own_notes, routed_by};

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
