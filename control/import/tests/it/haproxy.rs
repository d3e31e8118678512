//! Differences between HAProxy and Weir are refused or noted, and the result is never weaker than the original.

use weir_import::Format;

use crate::{check, notes, read, table};

/// The note on a refusal with conditions that no route has.
const REFUSED_TO_ALL: &str = "requests that it refuses to some clients are refused to all";

/// A frontend with these lines in front of two backends, one of them with these lines.
fn site(front: &str, backend: &str) -> String {
    format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\nfrontend web\n bind 127.0.0.1:8080\n{front}\n default_backend app\nbackend app\n server a 127.0.0.1:1\nbackend other\n{backend}\n"
    )
}

#[test]
fn only_refusals_by_address_become_a_list_of_the_listener() {
    let found = read(
        Format::Haproxy,
        &site(
            " http-request deny if { src 10.0.0.5 }\n http-request deny if { src 10.0.0.6 } or { src 10.0.0.7 }",
            " server o 127.0.0.1:2",
        ),
    );
    assert!(found.toml.contains("deny = [\"10.0.0.5\", \"10.0.0.6\", \"10.0.0.7\"]"), "{}", found.toml);
    assert!(!notes(&found).contains("403"), "{}", notes(&found));
    for rule in [
        "http-request return status 200 string ok if { src 10.0.0.5 }",
        "use_backend other if !{ src 10.0.0.0/8 }",
        "http-request redirect scheme https if { src 10.0.0.5 }",
        "use_backend %[req.hdr(x)] if { src 10.0.0.5 }",
    ] {
        for backend in ["", " server o 127.0.0.1:2"] {
            let found = read(Format::Haproxy, &site(&format!(" {rule}"), backend));
            assert!(!found.toml.contains("[listener.http.ip_filter]"), "{rule}: {}", found.toml);
            assert!(notes(&found).contains(&format!("`{rule}`")), "{rule}: {}", notes(&found));
        }
    }
    // Before other rules, and with another status.
    for front in [
        " http-request return status 200 if { path /health }\n http-request deny if { src 10.0.0.5 }",
        " http-request deny deny_status 429 if { src 10.0.0.5 }",
    ] {
        let found = read(Format::Haproxy, &site(front, ""));
        assert!(found.toml.contains("deny = [\"10.0.0.5\"]"), "{}", found.toml);
        assert!(notes(&found).contains("are refused with 403, before all rules"), "{}", notes(&found));
    }
}

#[test]
fn what_is_refused_to_some_addresses_is_not_open_to_all() {
    let found = read(
        Format::Haproxy,
        &site(" acl office src 10.0.0.0/8\n http-request deny if { path_beg /admin } !office", ""),
    );
    let admin = table(&found.toml, "route", "web-response");
    assert!(admin.contains("path_string_prefix = \"/admin\"") && admin.contains("status = 403"), "{admin}");
    assert!(notes(&found).contains(REFUSED_TO_ALL), "{}", notes(&found));
    check(&found.toml);
}

#[test]
fn what_is_refused_on_a_condition_that_no_route_has_is_closed_without_it() {
    let cookie = "{ req.cook(sid) -m found }";
    for (rule, path, status) in [
        (format!("deny if {{ path_beg /admin }} !{cookie}"), "path_string_prefix = \"/admin\"", 403),
        (format!("deny deny_status 404 if {cookie} {{ path /admin }}"), "path = \"/admin\"", 404),
        (format!("deny unless {cookie} or !{{ path /admin }}"), "path = \"/admin\"", 403),
        (format!("return status 401 if {{ path /admin }} !{cookie}"), "path = \"/admin\"", 401),
        ("deny if { path_beg /admin } !{ path /admin/login }".to_owned(), "path_string_prefix = \"/admin\"", 403),
        ("deny if { path /admin } { path_end .php }".to_owned(), "path = \"/admin\"", 403),
    ] {
        let found = read(Format::Haproxy, &site(&format!(" http-request {rule}"), ""));
        let admin = table(&found.toml, "route", "web-response");
        assert!(admin.contains(path) && admin.contains(&format!("status = {status}")), "{rule}: {admin}");
        assert!(notes(&found).contains(REFUSED_TO_ALL), "{rule}: {}", notes(&found));
        check(&found.toml);
    }
    // Alternatives are each closed on their own, and addresses alone are a list of the listener.
    let front = format!(
        " acl bad path /x\n acl bad req.cook(sid) -m found\n http-request deny if bad or {{ src 10.0.0.5 }} or {{ path /y }} {cookie}"
    );
    let found = read(Format::Haproxy, &site(&front, ""));
    for part in ["path = \"/x\"", "path = \"/y\"", "deny = [\"10.0.0.5\"]"] {
        assert!(found.toml.contains(part), "{part}: {}", found.toml);
    }
    check(&found.toml);
    // Nothing is left of these, and what is no refusal is left out as a whole.
    for rule in [
        format!("http-request deny if {cookie}"),
        format!("http-request deny deny_status 429 if !{{ ssl_fc }} {cookie}"),
        format!("http-request deny if HTTP_1.1 {cookie}"),
        format!("http-request return status 200 if {{ path /x }} {cookie}"),
        format!("use_backend other if {{ path /x }} {cookie}"),
    ] {
        let found = read(Format::Haproxy, &site(&format!(" {rule}"), ""));
        assert_eq!(found.toml.matches("\n[[route]]\n").count(), 1, "{rule}: {}", found.toml);
        assert!(notes(&found).contains(&format!("`{rule}`: is left out: cookies")), "{rule}: {}", notes(&found));
    }
    let rule = format!("http-request deny if {{ ssl_fc }} {cookie}");
    let found = read(Format::Haproxy, &site(&format!(" bind 127.0.0.1:8443 ssl crt /etc/tls/a.pem\n {rule}"), ""));
    assert!(!found.toml.contains("status = 403"), "{}", found.toml);
    assert!(notes(&found).contains(&format!("`{rule}`: is left out: cookies")), "{}", notes(&found));
}

/// Without the key a listener of TCP ends connections that are silent for 10 minutes.
#[test]
fn a_frontend_of_tcp_without_a_limit_has_the_longest_one() {
    for (timeout, written) in [("", "720h"), (" timeout client 0\n", "720h"), (" timeout client 2h\n", "2h")] {
        let front = format!("frontend db\n mode tcp\n bind 127.0.0.1:5432\n{timeout} default_backend db\n");
        let found = read(Format::Haproxy, &format!("{front}backend db\n mode tcp\n server a 127.0.0.1:1\n"));
        assert!(found.toml.contains(&format!("\nidle_timeout = \"{written}\"\n")), "{timeout}: {}", found.toml);
        check(&found.toml);
    }
}

#[test]
fn conditions_of_the_url_do_not_become_conditions_of_its_path() {
    for test in ["url_sub cmd=", "url_reg x=[0-9]", "url_end .php", "url_beg /a?x=1", "url /a", "url_beg http://a/"] {
        let found = read(Format::Haproxy, &site(&format!(" http-request deny if {{ {test} }}"), ""));
        assert!(notes(&found).contains("a URL ends in its query"), "{test}: {}", notes(&found));
        assert_eq!(found.toml.matches("\n[[route]]\n").count(), 1, "{test}: {}", found.toml);
    }
    let found = read(Format::Haproxy, &site(" http-request deny if { url_beg /a /b }", ""));
    for path in ["/a", "/b"] {
        assert!(found.toml.contains(&format!("path_string_prefix = \"{path}\"")), "{}", found.toml);
    }
    assert!(!notes(&found).contains("url_beg"), "{}", notes(&found));
}

#[test]
fn a_backend_without_servers_does_what_its_rules_say() {
    let front = " use_backend other if { path_beg /o }";
    for (backend, wanted) in [
        (" http-request redirect scheme https code 301", "redirect = { status = 301, scheme = \"https\" }"),
        (" redirect scheme https if !{ ssl_fc }", "scheme = \"https\""),
        (" http-request return status 200 content-type text/plain string good", "body = \"good\""),
        (" http-request deny deny_status 410", "status = 410"),
        (" http-request deny\n server o 127.0.0.1:2", "status = 403"),
    ] {
        let found = read(Format::Haproxy, &site(front, backend));
        assert!(found.toml.contains(wanted), "{backend}: {}", found.toml);
        assert!(!found.toml.contains("127.0.0.1:2"), "{backend}: {}", found.toml);
        check(&found.toml);
    }
    for backend in [
        " http-request return status 200 if { path /ok }",
        " server-template app 3 _http._tcp.app:80",
        " stick-table type ip size 1m",
        " server o 127.0.0.1:2 backup",
        " server o 127.0.0.1:2 disabled",
    ] {
        let found = read(Format::Haproxy, &site(front, backend));
        assert!(found.toml.contains("status = 503"), "{backend}: {}", found.toml);
        assert!(notes(&found).contains(&format!("`{}`", backend.trim())), "{backend}: {}", notes(&found));
    }
}

#[test]
fn the_field_with_the_address_of_the_client_is_sent_if_a_backend_has_the_option() {
    let front = " use_backend other if { path_beg /o }";
    let found = read(Format::Haproxy, &site(front, " option forwardfor\n server o 127.0.0.1:2"));
    assert!(found.toml.contains("forwarded = \"append\""), "{}", found.toml);
    assert!(notes(&found).contains("`backend app`: another backend of web"), "{}", notes(&found));
    let found = read(Format::Haproxy, &site(front, " server o 127.0.0.1:2"));
    assert!(found.toml.contains("forwarded = \"keep\""), "{}", found.toml);
    for words in ["except 127.0.0.0/8", "header X-Client-IP", "if-none"] {
        let line = format!(" option forwardfor {words}");
        let found = read(Format::Haproxy, &site(&line, ""));
        assert!(notes(&found).contains(&format!("`{}`", line.trim())), "{}", notes(&found));
        let found = read(Format::Haproxy, &site(front, &format!("{line}\n server o 127.0.0.1:2")));
        assert!(notes(&found).contains(&format!("`{}`", line.trim())), "{}", notes(&found));
    }
}

#[test]
fn zero_and_nothing_are_no_limit() {
    let zero = site("", "").replace("5s", "0").replace("60s", "0");
    let zero = zero.replace("frontend", " timeout http-request 0\n timeout tunnel 0\n timeout check 0\nfrontend");
    let unwritten: String =
        site("", "").lines().filter(|line| !line.contains("timeout")).map(|line| format!("{line}\n")).collect();
    for text in [&zero, &unwritten] {
        let found = read(Format::Haproxy, text);
        for line in [
            "response_timeout = \"24h\"",
            "response_idle_timeout = \"24h\"",
            "body_idle_timeout = \"24h\"",
            "keep_alive_timeout = \"24h\"",
            "idle_timeout = \"24h\"",
            "connect_timeout = \"1h\"",
        ] {
            assert!(found.toml.contains(line), "{line}: {}", found.toml);
        }
        check(&found.toml);
    }
    assert!(read(Format::Haproxy, &zero).toml.contains("head_timeout = \"1h\""));
    let tcp = "listen a\n mode tcp\n bind 127.0.0.1:8080\n maxconn 0\n server x 127.0.0.1:1\n";
    assert!(!read(Format::Haproxy, tcp).toml.contains("connections_max"));
}

#[test]
fn the_result_is_one_that_weir_takes() {
    let front = " http-request set-header Host b.example\n http-request set-header Content-Length 1\n http-request set-path /x\n redirect location /login?next=/ if { path /in }\n use_backend other if { req.hdr(host),lower,field(1,:) two.example }\n use_backend other if { hdr(x-a),lower -m str a }";
    let found = read(Format::Haproxy, &site(front, " http-request set-path /y\n server o 127.0.0.1:2"));
    assert!(found.toml.contains("rewrite = { path = \"/y\", host = \"b.example\" }"), "{}", found.toml);
    assert!(found.toml.contains("hosts = [\"two.example\"]") && found.toml.contains("status = 501"), "{}", found.toml);
    for text in [
        "Content-Length 1`: ",
        "`redirect location /login?next=/ if { path /in }`: the address",
        "`hdr(x-a),lower` is converted first",
    ] {
        assert!(notes(&found).contains(text), "{text}: {}", notes(&found));
    }
    check(&found.toml);
    let tcp = |test: &str| {
        format!(
            "frontend a\n mode tcp\n bind 127.0.0.1:8443\n use_backend b if {{ req.ssl_sni {test} }}\nbackend b\n server x 127.0.0.1:1\n"
        )
    };
    let found = read(Format::Haproxy, &tcp("-m end .example.com"));
    assert!(
        found.toml.contains("names = [\"*.example.com\"]") && found.toml.contains("upstream = \"nowhere\""),
        "{}",
        found.toml
    );
    check(&found.toml);
    let gone = tcp("mail.example.com")
        .replace("127.0.0.1:1", "127.0.0.1:1 disabled")
        .replace(" use_backend", " default_backend c\n use_backend")
        + "backend c\n server y 127.0.0.1:2\n";
    let found = read(Format::Haproxy, &gone);
    assert!(found.toml.contains("names = [\"mail.example.com\"]\nupstream = \"nowhere\""), "{}", found.toml);
    check(&found.toml);
    for test in ["-m end example.com", "-m reg ^a", "-m beg a."] {
        let text = tcp(test)
            .replace("backend b\n", "backend c\n server y 127.0.0.1:2\nbackend b\n")
            .replace(" use_backend", " default_backend c\n use_backend");
        let found = read(Format::Haproxy, &text);
        assert!(!found.toml.contains("names = "), "{test}: {}", found.toml);
        assert!(notes(&found).contains("only by the server name of TLS"), "{}", notes(&found));
    }
}

#[test]
fn a_list_of_certificates_is_no_mistake() {
    let text = site("", "").replace("127.0.0.1:8080", "127.0.0.1:8080 ssl crt-list /etc/tls/list");
    let found = read(Format::Haproxy, &text);
    assert!(found.toml.contains("cert_file = \"/etc/tls/list\""), "{}", found.toml);
    assert!(notes(&found).contains("replace the name of the list"), "{}", notes(&found));
}

#[test]
fn a_redirect_puts_its_prefix_in_front_and_what_it_loses_is_noted() {
    let redirect =
        |condition: &str| read(Format::Haproxy, &site(&format!(" http-request redirect prefix /new{condition}"), ""));
    assert!(redirect(" if { path_beg /old }").toml.contains("path_prefix = \"/new/old\""));
    assert!(redirect(" if { path /old }").toml.contains("path = \"/new/old\""));
    let found = redirect(" if { path_end .css }");
    assert!(notes(&found).contains("the prefix that a regex matches is not known"), "{}", notes(&found));
    let found = read(Format::Haproxy, &site(" redirect location /new if { path /old }", ""));
    assert!(notes(&found).contains("a redirect keeps the query of the request"), "{}", notes(&found));
    let found =
        read(Format::Haproxy, &site(" http-request return status 200 file /etc/x hdr X-A b if { path /x }", ""));
    assert!(notes(&found).contains("`file` has no counterpart"), "{}", notes(&found));
}
