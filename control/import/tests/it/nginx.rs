//! Differences between nginx and Weir are refused or noted, and the result is never weaker than the original.

use weir_import::Format;

use crate::{check, mistake, notes, read, table};

const TLS: &str = "listen 443 ssl; ssl_certificate /etc/tls/shop.crt; ssl_certificate_key /etc/tls/shop.key;";
const PROXY: &str = "location / { proxy_pass http://127.0.0.1:1; }";

#[test]
fn a_server_that_demands_certificates_of_clients_is_never_open() {
    let strict = "ssl_verify_client on; ssl_client_certificate /etc/tls/ca.crt;";
    let servers = |first: &str, second: &str| {
        format!(
            "server {{ {TLS} server_name www; {first}\n {PROXY} }}\nserver {{ {TLS} server_name admin; {second}\n {PROXY} }}"
        )
    };
    let found = read(Format::Nginx, &servers("", strict));
    assert!(!found.toml.contains("client_auth = \"r"), "{}", found.toml);
    assert!(
        notes(&found).contains("f:3: `ssl_verify_client on`: a listener checks all clients as its default server does"),
        "{}",
        notes(&found)
    );
    let admin = table(&found.toml, "route", "admin");
    assert!(admin.contains("response = { status = 403 }") && !admin.contains("upstream"), "{admin}");
    assert!(table(&found.toml, "route", "www").contains("upstream"));
    // The other way round all of them demand one, which is noted too.
    let found = read(Format::Nginx, &servers(strict, ""));
    assert!(found.toml.contains("client_auth = \"required\"") && !found.toml.contains("403"), "{}", found.toml);
    assert!(notes(&found).contains("f:3: `server without ssl_verify_client`"), "{}", notes(&found));
    // Another authority, and one that may but need not be shown.
    for other in [
        "ssl_client_certificate /etc/tls/blog.crt; ssl_verify_client on;",
        "ssl_client_certificate /etc/tls/ca.crt; ssl_verify_client optional;",
    ] {
        let found = read(Format::Nginx, &servers(other, strict));
        assert!(table(&found.toml, "route", "admin").contains("status = 403"), "{other}: {}", found.toml);
        check(&found.toml);
    }
    let found = read(Format::Nginx, &servers(strict, strict));
    assert!(!found.toml.contains("403") && notes(&found).is_empty(), "{}", notes(&found));
    assert!(mistake(Format::Nginx, &servers("ssl_verify_client on;", "")).contains("needs ssl_client_certificate"));
}

#[test]
fn the_first_rule_for_all_addresses_ends_their_list() {
    let route = |rules: &str| {
        let found =
            read(Format::Nginx, &format!("server {{ location /admin {{ {rules} proxy_pass http://127.0.0.1:1; }} }}"));
        check(&found.toml);
        (table(&found.toml, "route", "default-admin"), notes(&found))
    };
    // No client may come.
    for rules in ["deny all; allow 10.0.0.0/8;", "deny all; allow 10.0.0.0/8; allow all;", "deny all; deny 10.0.0.5;"] {
        let (route, _) = route(rules);
        assert!(route.contains("ip_filter = { allow = [\"192.0.2.0/32\"] }"), "{rules}: {route}");
    }
    let (admin, _) = route("allow 10.0.0.0/8; deny all; allow 172.16.0.0/12;");
    assert!(admin.contains("ip_filter = { allow = [\"10.0.0.0/8\"] }"), "{admin}");
    let (admin, notes) = route("deny 10.0.0.5; allow all; deny 10.0.0.6;");
    assert!(admin.contains("ip_filter = { deny = [\"10.0.0.5\"] }"), "{admin}");
    assert!(notes.is_empty(), "{notes}");
    let (admin, notes) = route("allow all; deny all;");
    assert!(!admin.contains("ip_filter") && notes.is_empty(), "{admin}{notes}");
}

#[test]
fn servers_of_one_address_that_differ_in_what_a_listener_says_have_notes() {
    let own = "keepalive_timeout 5s; client_header_timeout 7s; access_log off;";
    let text = format!(
        "server {{ listen 80; server_name a; {own}\n {PROXY} }}\nserver {{ listen 80; server_name b;\n {PROXY} }}"
    );
    let found = read(Format::Nginx, &text);
    for name in ["keepalive_timeout", "client_header_timeout", "access_log"] {
        assert!(notes(&found).contains(&format!("f:3: `server without {name}`")), "{}", notes(&found));
    }
    let text = format!(
        "server {{ {TLS} server_name a;\n {PROXY} }}\nserver {{ {TLS} server_name b; ssl_protocols TLSv1.3;\n location / {{ access_log off; proxy_pass http://127.0.0.1:1; }} }}"
    );
    let found = read(Format::Nginx, &text);
    assert!(
        notes(&found).contains("f:3: `ssl_protocols TLSv1.3`") && notes(&found).contains("f:4: `access_log off`"),
        "{}",
        notes(&found)
    );
}

#[test]
fn the_defaults_of_nginx_are_written_where_they_are_longer() {
    let found = read(Format::Nginx, &format!("server {{ listen 80; {PROXY} }}"));
    for line in ["head_timeout = \"1m\"", "body_idle_timeout = \"60s\"", "connect_timeout = \"1m\""] {
        assert!(found.toml.contains(line), "{line}: {}", found.toml);
    }
    let found = read(
        Format::Nginx,
        "upstream u { server 127.0.0.1:1; server 127.0.0.1:2; }\nserver { location / { proxy_pass http://u; } }",
    );
    assert!(found.toml.contains("duration = \"10s\""), "{}", found.toml);
}

#[test]
fn a_named_location_brings_all_that_stands_in_it() {
    let named = "location @app { proxy_pass http://127.0.0.1:1; proxy_set_header Host $host; proxy_set_header X-Tag tag; proxy_read_timeout 7s;\n proxy_cache one; }";
    let policies = "client_max_body_size 3m; deny all;";
    let found = read(Format::Nginx, &format!("server {{ location / {{ {policies} try_files $uri @app; }} {named} }}"));
    for part in ["name = \"X-Tag\"", "response_timeout = \"7s\"", "request_body_bytes_max = \"3MiB\"", "192.0.2.0/32"] {
        assert!(found.toml.contains(part), "{part}: {}", found.toml);
    }
    assert!(!found.toml.contains("rewrite"), "{}", found.toml);
    assert!(notes(&found).contains("`proxy_cache one`"), "{}", notes(&found));
    // In the server itself: for requests that no location takes, and not inside a location.
    let text = format!("server {{ try_files $uri @app; {named} location /rpc {{ grpc_pass grpc://127.0.0.1:2; }} }}");
    let found = read(Format::Nginx, &text);
    assert!(table(&found.toml, "route", "default-rpc").contains("127.0.0.1-2"), "{}", found.toml);
    let all = table(&found.toml, "route", "default");
    assert!(all.contains("upstream = \"127.0.0.1-1\""), "{all}");
    assert!(!found.toml.contains("404"), "{}", found.toml);
    let redirect = "location /old { rewrite ^ https://b.example/ permanent; try_files $uri @app; }";
    let found = read(Format::Nginx, &format!("server {{ {redirect} {named} }}"));
    assert!(table(&found.toml, "route", "default-old").contains("redirect"), "{}", found.toml);
}

#[test]
fn what_a_server_does_itself_comes_before_its_locations() {
    let all = "rewrite ^ https://$host$request_uri? permanent;";
    let found = read(Format::Nginx, &format!("server {{ {all} location /api/ {{ proxy_pass http://127.0.0.1:1; }} }}"));
    assert_eq!(found.toml.matches("[[route]]").count(), 1, "{}", found.toml);
    let styles = r"rewrite ^/old$ /new permanent; location ~ \.css$ { proxy_pass http://127.0.0.1:1; } location = /old { return 204; }";
    let found = read(Format::Nginx, &format!("server {{ {styles} }}"));
    assert!(!found.toml.contains("204"), "{}", found.toml);
    // A prefix in place of another cannot be said beside a regex that is tried first.
    let found = read(Format::Nginx, &format!("server {{ {} }}", styles.replace("^/old$ /new", "^/old/(.*)$ /new/$1")));
    assert!(
        notes(&found).contains("requests that also match `rewrite ^/old/(.*)$ /new/$1 permanent`"),
        "{}",
        notes(&found)
    );
    let by_scheme = "if ($scheme = http) { rewrite ^/login https://$host/login permanent; }";
    let found = read(Format::Nginx, &format!("server {{ {by_scheme} {PROXY} }}"));
    assert!(
        found.toml.contains("path_regex = \"/login.*\"") && found.toml.contains("upstream = \"127.0.0.1-1\""),
        "{}",
        found.toml
    );
    let found = read(Format::Nginx, "server { rewrite ^/a$ /b permanent; return 404; location / { return 204; } }");
    assert!(
        found.toml.contains("path = \"/a\"") && found.toml.contains("404") && !found.toml.contains("204"),
        "{}",
        found.toml
    );
    // The first of several counts, however long.
    let found = read(Format::Nginx, "server { rewrite ^/a/.*$ /one permanent; rewrite ^/a/.*longer$ /two permanent; }");
    assert!(!found.toml.contains("/two") || found.toml.contains("(?:)"), "{}", found.toml);
}

#[test]
fn what_nginx_takes_is_no_mistake() {
    let rejects = format!(
        "server {{ listen 443 ssl default_server; ssl_reject_handshake on; }}\nserver {{ {TLS} server_name a; {PROXY} }}"
    );
    let found = read(Format::Nginx, &rejects);
    assert!(found.toml.contains("shop.crt") && notes(&found).contains("`ssl_reject_handshake on`"), "{}", found.toml);
    check(&found.toml);
    let found = read(Format::Nginx, &format!("server {{ gzip on; gzip_min_length 1k; gzip_types *; {PROXY} }}"));
    assert!(found.toml.contains("bytes_min = \"1KiB\"") && notes(&found).contains("here all text"), "{}", found.toml);
}

#[test]
fn headers_of_the_framing_are_weirs_own() {
    let headers = "proxy_set_header Content-Length \"\"; proxy_set_header Transfer-Encoding x; proxy_set_header X-A b;";
    let found = read(Format::Nginx, &format!("server {{ location / {{ proxy_pass http://127.0.0.1:1; {headers} }} }}"));
    assert!(found.toml.contains("X-A") && !found.toml.contains("name = \"Content-Length\""), "{}", found.toml);
    assert!(notes(&found).contains("`proxy_set_header Content-Length \"\"`"), "{}", notes(&found));
    check(&found.toml);
}

#[test]
fn an_upstream_has_the_settings_of_each_place_that_names_it() {
    let found = read(
        Format::Nginx,
        "upstream u { server 127.0.0.1:1; }\nserver { location /a { proxy_pass http://u; proxy_connect_timeout 2s; } location /b { proxy_pass http://u; proxy_connect_timeout 3s; } }",
    );
    for (name, time) in [("u", "2s"), ("u-2", "3s")] {
        assert!(
            table(&found.toml, "upstream", name).contains(&format!("connect_timeout = \"{time}\"")),
            "{}",
            found.toml
        );
    }
    let found = read(
        Format::Nginx,
        "stream { upstream db { server 127.0.0.1:1; } server { listen 1; proxy_protocol on; proxy_pass db; } server { listen 2; proxy_pass db; } }",
    );
    assert!(found.toml.contains("proxy_header = \"v1\""), "{}", found.toml);
    assert!(!table(&found.toml, "upstream", "db-2").contains("proxy_header"), "{}", found.toml);
    let text = "stream { map $ssl_preread_server_name $to { hostnames; .mail.example.com 127.0.0.1:1; default 127.0.0.1:2; } server { listen 8443; ssl_preread on; proxy_pass $to; } }";
    let found = read(Format::Nginx, text);
    let found_without = read(Format::Nginx, &text.replace(" default 127.0.0.1:2;", ""));
    assert!(found_without.toml.contains("upstream = \"nowhere\""), "{}", found_without.toml);
    check(&found_without.toml);
    assert!(
        found.toml.contains("\"mail.example.com\"") && found.toml.contains("\"*.mail.example.com\""),
        "{}",
        found.toml
    );
    check(&found.toml);
}

#[test]
fn smaller_differences_have_their_line() {
    let found = read(
        Format::Nginx,
        "server { default_type text/plain; location /health { default_type application/json; return 200 x; } }",
    );
    assert!(found.toml.contains("content_type = \"application/json\""), "{}", found.toml);
    let found = read(
        Format::Nginx,
        "server { listen 80; server_name a.example; return 301 https://$server_name$request_uri; }",
    );
    assert!(found.toml.contains("host = \"a.example\"") && !found.toml.contains("501"), "{}", found.toml);
    let found = read(Format::Nginx, &format!("server {{ proxy_next_upstream_tries 1; {PROXY} }}"));
    assert!(found.toml.contains("attempts = 0"), "{}", found.toml);
    let rewrites = "rewrite ^/a/(.*)$ /b/$1; rewrite ^/b/(.*)$ /c/$1;";
    let found =
        read(Format::Nginx, &format!("server {{ location / {{ {rewrites} proxy_pass http://127.0.0.1:1; }} }}"));
    assert!(notes(&found).contains("the first of the location is used"), "{}", notes(&found));
    let found = read(
        Format::Nginx,
        "server { location / { proxy_pass http://127.0.0.1:1; add_header X-A b; add_header X-B c always; } }",
    );
    assert!(notes(&found).contains("`add_header X-A b`: is added to responses of every status"), "{}", notes(&found));
    assert!(!notes(&found).contains("X-B"), "{}", notes(&found));
}

#[test]
fn certificates_of_upstreams_are_checked_if_nginx_checks_them() {
    let checks = |module: &str| {
        format!(
            "{module}_ssl_verify on; {module}_ssl_trusted_certificate /etc/tls/ca.crt; {module}_ssl_name app.example;"
        )
    };
    for (module, pass) in [("proxy", "proxy_pass https://127.0.0.1:1"), ("grpc", "grpc_pass grpcs://127.0.0.1:1")] {
        let text = |more: &str| format!("server {{ location / {{ {pass}; {more} }} }}");
        let found = read(Format::Nginx, &text(&checks(module)));
        assert!(found.toml.contains("ca_file = \"/etc/tls/ca.crt\""), "{}", found.toml);
        assert!(!found.toml.contains("insecure") && notes(&found).is_empty(), "{}", found.toml);
        check(&found.toml);
        assert!(read(Format::Nginx, &text("")).toml.contains("insecure_skip_verify = true"));
    }
    let text = format!(
        "stream {{ server {{ listen 8443; proxy_ssl on; proxy_protocol on; {} proxy_pass 127.0.0.1:1; }} }}",
        checks("proxy")
    );
    let found = read(Format::Nginx, &text);
    assert!(found.toml.contains("[upstream.tls]") && !found.toml.contains("insecure"), "{}", found.toml);
    assert!(notes(&found).contains("`proxy_protocol on`"), "{}", notes(&found));
    check(&found.toml);
}
