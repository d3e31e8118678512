//! Differences between Envoy and Weir are refused or noted, and the result is never weaker than the original.

mod copies;
mod headers;
mod redirects;
mod retries;

use weir_import::{Format, Imported};

use crate::{check, mistake, notes, read, table};

/// A listener for TLS or not, with one virtual host, and a cluster with these further keys.
fn front(socket: &str, manager: &str, hosts: &str, cluster: &str) -> String {
    format!(
        r#"static_resources:
  listeners:
  - name: web
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 8443 }} }}
    filter_chains:
    - {socket}filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          {manager}
          route_config: {{ virtual_hosts: [{hosts}] }}
  clusters:
  - name: app
    {cluster}
    load_assignment:
      endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 1 }} }} }} }}] }}]
"#
    )
}

const ALL: &str = r#"{ name: all, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: app } }] }"#;

/// Routes to a cluster, with further keys of the manager and of the virtual host.
fn managed(manager: &str, more: &str) -> Imported {
    let manager = manager.replace("; ", "\n          ");
    let found = read(Format::Envoy, &front("", &manager, &ALL.replace("routes:", &format!("{more}routes:")), ""));
    check(&found.toml);
    found
}

/// The routes of one virtual host for all hosts, behind these keys of the manager.
fn routed_by(manager: &str, routes: &str) -> Imported {
    let host = format!(r#"{{ name: all, domains: ["*"], routes: [{routes}] }}"#);
    let found = read(Format::Envoy, &front("", &manager.replace("; ", "\n          "), &host, ""));
    check(&found.toml);
    found
}

/// The routes of one virtual host for all hosts, at the edge.
fn routed(routes: &str) -> Imported {
    routed_by("use_remote_address: true", routes)
}

/// The notes of a file without those that most of these files get.
fn own_notes(imported: &Imported) -> String {
    let of_all = ["`use_remote_address`: ", "`generate_request_id`: ", "`cluster app`: nothing"];
    let notes = notes(imported);
    notes
        .lines()
        .filter(|note| !of_all.iter().any(|known| note.contains(known)))
        .map(|note| format!("{note}\n"))
        .collect()
}

fn with_cluster(context: &str) -> String {
    let socket = format!(
        r#"transport_socket: {{ name: tls, typed_config: {{ "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, sni: a.example, common_tls_context: {context} }} }}"#
    );
    front("", "", ALL, &socket)
}

fn with_clients(context: &str, is_required: bool) -> String {
    let certificates = "tls_certificates: [{ certificate_chain: { filename: /etc/tls/front.crt }, private_key: { filename: /etc/tls/front.key } }]";
    let socket = format!(
        r#"transport_socket: {{ name: tls, typed_config: {{ "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, require_client_certificate: {is_required}, common_tls_context: {{ {certificates}{context} }} }} }}
      "#
    );
    front(&socket, "", ALL, "")
}

/// Ways to name an authority that are not a file of the configuration.
const ELSEWHERE: [&str; 4] = [
    "validation_context_sds_secret_config: { name: ca }",
    "validation_context: { trusted_ca: { inline_string: pem } }",
    "validation_context: { trusted_ca: { environment_variable: CA } }",
    "combined_validation_context: { default_validation_context: {}, validation_context_sds_secret_config: { name: ca } }",
];

#[test]
fn certificates_of_upstreams_are_checked_if_envoy_checks_them() {
    let combined = "{ combined_validation_context: { default_validation_context: { trusted_ca: { filename: /etc/tls/ca.crt }, match_typed_subject_alt_names: [] } } }";
    let found = read(Format::Envoy, &with_cluster(combined));
    assert!(found.toml.contains("ca_file = \"/etc/tls/ca.crt\"") && !found.toml.contains("insecure"), "{}", found.toml);
    assert!(notes(&found).contains("`validation_context.match_typed_subject_alt_names`"), "{}", notes(&found));
    let found = read(Format::Envoy, &with_cluster("{ validation_context: { system_root_certs: {} } }"));
    assert!(found.toml.contains("[upstream.tls]") && !found.toml.contains("insecure"), "{}", found.toml);
    for context in ELSEWHERE {
        let why = mistake(Format::Envoy, &with_cluster(&format!("{{ {context} }}")));
        assert!(why.contains("has no authority in a file"), "{context}: {why}");
    }
    // Envoy checks nothing here either.
    for context in ["{}", "{ validation_context: {} }", "{ tls_params: {} }"] {
        let found = read(Format::Envoy, &with_cluster(context));
        assert!(found.toml.contains("insecure_skip_verify = true"), "{context}: {}", found.toml);
    }
    let quic = with_cluster("{}").replace("tls.v3.UpstreamTlsContext", "quic.v3.QuicUpstreamTransport");
    assert!(mistake(Format::Envoy, &quic).contains("a transport_socket is TLS"));
}

#[test]
fn a_listener_that_demands_certificates_of_clients_demands_them_or_is_refused() {
    let combined =
        ", combined_validation_context: { default_validation_context: { trusted_ca: { filename: /etc/tls/ca.crt } } }";
    for (is_required, word) in [(true, "required"), (false, "optional")] {
        let found = read(Format::Envoy, &with_clients(combined, is_required));
        assert!(found.toml.contains(&format!("client_auth = \"{word}\"")), "{}", found.toml);
        check(&found.toml);
    }
    for context in ELSEWHERE.iter().copied().chain(["validation_context: { system_root_certs: {} }"]) {
        for is_required in [true, false] {
            mistake(Format::Envoy, &with_clients(&format!(", {context}"), is_required));
        }
    }
    let why = mistake(Format::Envoy, &with_clients("", true));
    assert!(why.contains("certificates of clients need an authority"), "{why}");
    assert!(!read(Format::Envoy, &with_clients("", false)).toml.contains("client_auth"));
}

#[test]
fn what_a_chain_demands_of_connections_is_noted() {
    let matched = "filter_chain_match: { source_prefix_ranges: [{ address_prefix: 10.0.0.0, prefix_len: 8 }], server_names: [a.example] }\n      ";
    let found = read(Format::Envoy, &front(matched, "", ALL, ""));
    for key in ["source_prefix_ranges", "server_names"] {
        assert!(notes(&found).contains(&format!("`filter_chain_match.{key}`")), "{}", notes(&found));
    }
    assert!(!notes(&read(Format::Envoy, &front("", "", ALL, ""))).contains("filter_chain"));
}

#[test]
fn the_strictest_of_several_chains_decides_about_client_certificates() {
    let chain = |context: &str, name: &str| {
        with_clients(context, true)
            .lines()
            .skip_while(|line| !line.contains("- transport_socket"))
            .take_while(|line| !line.starts_with("  clusters"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            .replacen("filters:", &format!("filter_chain_match: {{ server_names: [{name}] }}\n      filters:"), 1)
    };
    let authority = ", validation_context: { trusted_ca: { filename: /etc/tls/ca.crt } }";
    let (strict, open) = (
        chain(authority, "a.example"),
        chain(authority, "b.example").replace("require_client_certificate: true", "require_client_certificate: false"),
    );
    for (first, second) in [(&strict, &open), (&open, &strict)] {
        let text = with_clients(authority, true).replace(
            &chain(authority, "x").replace("filter_chain_match: { server_names: [x] }\n      ", ""),
            &format!("{first}{second}"),
        );
        assert_eq!(text.matches("- transport_socket").count(), 2);
        let found = read(Format::Envoy, &text);
        assert!(found.toml.contains("client_auth = \"required\""), "{}", found.toml);
        assert!(notes(&found).contains("of the strictest chain"), "{}", notes(&found));
    }
}

#[test]
fn zero_is_no_limit_and_the_defaults_of_envoy_are_written_where_they_are_longer() {
    let found = read(Format::Envoy, &front("", "", ALL, ""));
    for line in ["body_idle_timeout = \"5m\"", "response_idle_timeout = \"5m\"", "keep_alive_timeout = \"1h\""] {
        assert!(found.toml.contains(line), "{line}: {}", found.toml);
    }
    assert!(!found.toml.contains("head_timeout"), "Weir's own limit of a head stays: {}", found.toml);
    let manager = "stream_idle_timeout: 0s\n          request_headers_timeout: 0s\n          common_http_protocol_options: { idle_timeout: 0s }";
    let found =
        read(Format::Envoy, &front("", manager, &ALL.replace("cluster: app", "cluster: app, idle_timeout: 0s"), ""));
    for line in ["head_timeout = \"1h\"", "grpc_idle_timeout = \"24h\"", "keep_alive_timeout = \"24h\""] {
        assert!(found.toml.contains(line), "{line}: {}", found.toml);
    }
    assert_eq!(
        found.toml.matches("response_idle_timeout = \"24h\"").count(),
        2,
        "of the listener and the route: {}",
        found.toml
    );
    check(&found.toml);
}

#[test]
fn what_cannot_be_said_never_widens_a_match() {
    let host = |domain: &str| {
        format!(
            r#"{{ name: shop, domains: ["{domain}"], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: app }} }}] }}"#
        )
    };
    for domain in ["shop.*", "*-eu.example.com"] {
        let found = read(Format::Envoy, &front("", "", &host(domain), ""));
        assert!(!found.toml.contains("upstream = \"app\"") && found.toml.contains("status = 404"), "{}", found.toml);
        assert!(notes(&found).contains("Weir supports no domain of it"), "{}", notes(&found));
    }
    let matched = |more: &str| {
        let all = ALL.replace("prefix: / }", &format!("prefix: /, {more} }}"));
        read(Format::Envoy, &front("", "", &all, ""))
    };
    for more in [
        "headers: [{ name: x, range_match: { start: 1, end: 2 } }]",
        "headers: [{ name: x, present_match: false }]",
        "headers: [{ name: x, string_match: { custom: {} } }]",
        "headers: [{ name: x, exact_match: a, treat_missing_header_as_empty: true }]",
        "query_parameters: [{ name: x, string_match: { custom: {} } }]",
        "case_sensitive: false",
        "runtime_fraction: { default_value: { numerator: 5 } }",
        "grpc: {}",
    ] {
        let found = matched(more);
        assert!(!found.toml.contains("upstream = \"app\""), "{more}: {}", found.toml);
        assert!(notes(&found).contains("is left out"), "{more}: {}", notes(&found));
    }
    let found = matched("query_parameters: [{ name: x, string_match: { exact: a, ignore_case: true } }]");
    assert!(found.toml.contains("ignore_case = true"), "{}", found.toml);
    for (matcher, kind) in [
        ("prefix_match: gold", "prefix"),
        ("suffix_match: gold", "suffix"),
        ("contains_match: gold", "contains"),
        ("safe_regex_match: { regex: gold }", "regex"),
        ("present_match: true", "present"),
        ("invert_match: false", "present"),
    ] {
        let found = matched(&format!("headers: [{{ name: x-tier, {matcher} }}], case_sensitive: true"));
        assert!(found.toml.contains(&format!("kind = \"{kind}\"")), "{matcher}: {}", found.toml);
        check(&found.toml);
    }
}

#[test]
fn connections_for_names_that_no_chain_has_go_nowhere() {
    let chain = |name: &str| {
        format!(
            r#"    - filter_chain_match: {{ server_names: [{name}], transport_protocol: tls }}
      filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, cluster: app }}
"#
        )
    };
    let front = front("", "", ALL, "");
    let (before, after) = (front.find("    - filters").expect("a chain"), front.find("  clusters").expect("clusters"));
    let text = format!("{}{}{}{}", &front[..before], chain("a.example"), chain("b.example"), &front[after..]);
    let found = read(Format::Envoy, &text);
    assert!(
        found.toml.contains("upstream = \"nowhere\"") && found.toml.contains("protocol = \"tls\""),
        "{}",
        found.toml
    );
    assert!(!notes(&found).contains("filter_chain") && found.toml.contains("idle_timeout = \"1h\""), "{}", found.toml);
    check(&found.toml);
    // Their filters are noted as those of a single chain are, and so is what stands in them.
    let filter = "filters:\n      - name: envoy.filters.network.rbac\n        typed_config: { rules: {} }\n";
    let changed = text.replacen("filters:\n", filter, 1).replacen(
        "cluster: app }",
        "cluster: app, access_log: [], idle_timeout: 7200s }",
        1,
    );
    let found = read(Format::Envoy, &changed);
    for directive in ["envoy.filters.network.rbac", "tcp_proxy.access_log"] {
        assert!(notes(&found).contains(&format!("`{directive}`")), "{}", notes(&found));
    }
    assert!(found.toml.contains("idle_timeout = \"2h\""), "{}", found.toml);
    assert!(notes(&found).contains("`tcp_proxy.idle_timeout`: a listener has one"), "{}", notes(&found));
    check(&found.toml);
    // No limit is the longest one. Without the key these connections would have 10 minutes.
    let found = read(Format::Envoy, &text.replacen("cluster: app }", "cluster: app, idle_timeout: 0s }", 1));
    assert!(found.toml.contains("idle_timeout = \"720h\""), "{}", found.toml);
    check(&found.toml);
    let alone = format!("{}{}{}", &front[..before], chain("a.example"), &front[after..]);
    let found = read(Format::Envoy, &alone.replacen("cluster: app }", "cluster: app, idle_timeout: 0s }", 1));
    assert!(found.toml.contains("idle_timeout = \"720h\""), "{}", found.toml);
    check(&found.toml);
}

#[test]
fn the_path_behind_a_regex_is_replaced_whole_and_other_rewrites_are_noted() {
    let matched = |action: &str| {
        let all = ALL.replace("prefix: / }", "safe_regex: { regex: \"/v[0-9]+/x\" } }");
        read(Format::Envoy, &front("", "", &all.replace("cluster: app }", &format!("cluster: app, {action} }}")), ""))
    };
    let found = matched("prefix_rewrite: /x");
    let route = table(&found.toml, "route", "all-v-0-9-x");
    assert!(route.contains("path_regex = \"/v[0-9]+/x\"") && route.contains("rewrite = { path = \"/x\" }"), "{route}");
    check(&found.toml);
    let found = matched("path_rewrite: \"/x%REQ(x)%\"");
    assert!(notes(&found).contains("`route.path_rewrite`"), "{}", notes(&found));
}

#[test]
fn the_body_of_a_response_has_the_type_of_envoy() {
    let header = "response_headers_to_add: [{ header: { key: Content-Type, value: text/html } }]";
    for (more, kind) in [("", "text/plain"), (header, "text/html")] {
        let end = "direct_response: { status: 200, body: { inline_string: hello } }";
        let comma = if more.is_empty() { "" } else { ", " };
        let found = routed(&format!("{{ match: {{ prefix: / }}, {end}{comma}{more} }}"));
        let line = format!("response = {{ status = 200, body = \"hello\", content_type = \"{kind}\" }}");
        assert!(found.toml.contains(&line) && !notes(&found).contains("ontent-"), "{}{}", found.toml, notes(&found));
    }
    let found = routed("{ match: { prefix: / }, direct_response: { status: 200, body_format: { json_format: {} } } }");
    assert!(notes(&found).contains("`direct_response.body_format`"), "{}", notes(&found));
}

#[test]
fn the_keys_of_path_normalisation_have_counterparts() {
    let found = |manager: &str| {
        let text = format!("use_remote_address: true\n          {manager}");
        let found = read(Format::Envoy, &front("", &text, ALL, ""));
        check(&found.toml);
        found
    };
    for manager in ["merge_slashes: true", "normalize_path: true", "path_with_escaped_slashes_action: REJECT_REQUEST"] {
        let found = found(manager);
        assert!(own_notes(&found).is_empty() && !found.toml.contains("\npath_"), "{}{}", notes(&found), found.toml);
    }
    assert!(found("merge_slashes: false").toml.contains("path_merge_slashes = false"));
    let kept = found("path_with_escaped_slashes_action: KEEP_UNCHANGED").toml;
    assert!(kept.contains("path_escaped_slash = \"keep\"") && kept.contains("path_backslash = \"keep\""), "{kept}");
    for manager in ["normalize_path: false", "path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD"] {
        assert!(!own_notes(&found(manager)).is_empty(), "{manager}");
    }
    // A backslash is a slash for Envoy then, and could be one for a server.
    let both = found("normalize_path: true\n          path_with_escaped_slashes_action: KEEP_UNCHANGED");
    assert!(
        both.toml.contains("path_escaped_slash = \"keep\"") && !both.toml.contains("path_backslash = "),
        "{}",
        both.toml
    );
    assert!(own_notes(&both).contains("a backslash or %5C get 400"), "{}", own_notes(&both));
    for key in ["strip_any_host_port", "strip_matching_host_port"] {
        let noted = own_notes(&found(&format!("{key}: true")));
        assert!(noted.contains(&format!("`{key}`: hosts are compared without their port, but")), "{noted}");
        assert_eq!(own_notes(&found(&format!("{key}: false"))), "");
    }
}

#[test]
fn hosts_have_no_ports_and_belong_to_the_first_virtual_host_that_names_them() {
    let host = |name: &str, domains: &str, path: &str| {
        format!(
            "{{ name: {name}, domains: [{domains}], routes: [{{ match: {{ path: {path} }}, route: {{ cluster: app }} }}] }}"
        )
    };
    let hosts = [
        host("one", "\"a.example:80\", \"b.example\", \"b.example:*\"", "/one"),
        host("two", "\"a.example:443\"", "/two"),
        host("three", "\"A.example\", \"c.example:8080\", \"d.example:*\"", "/three"),
    ];
    let found = read(Format::Envoy, &front("", "use_remote_address: true", &hosts.join(", "), ""));
    check(&found.toml);
    assert!(found.toml.contains("hosts = [\"a.example\", \"b.example\"]"), "{}", found.toml);
    assert!(
        found.toml.contains("hosts = [\"c.example\", \"d.example\"]") && !found.toml.contains("/two"),
        "{}",
        found.toml
    );
    let notes = own_notes(&found);
    let left_out = "is left out: hosts have no port here";
    let wider = "hosts have no port here: requests with other ports";
    for text in [
        &format!("`domains: a.example:443`: {left_out}"),
        &format!("`domains: A.example`: {left_out}"),
        "`virtual_host two`",
        &format!("`domains: a.example:80`: {wider}"),
        &format!("`domains: c.example:8080`: {wider}"),
        "`domains: d.example:*`: hosts have no port here: requests without a port match too",
    ] {
        assert!(notes.contains(text), "{text}: {notes}");
    }
    assert_eq!(notes.lines().count(), 6, "{notes}");
    // All hosts at any port are all hosts.
    let all = routed("{ match: { prefix: / }, route: { cluster: app } }").toml;
    let found = read(Format::Envoy, &front("", "use_remote_address: true", &ALL.replace("\"*\"", "\"*:8080\""), ""));
    let tables = |toml: &str| toml.split_once("\n[[listener]]\n").expect("a listener").1.to_owned();
    assert_eq!(tables(&found.toml), tables(&all));
    assert!(!found.toml.contains("status = 404"), "{}", found.toml);
    assert!(own_notes(&found).contains("`domains: *:8080`: hosts have no port here"), "{}", own_notes(&found));
}
