//! Access control.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use weir_admin::{AdminServer, AdminSettings, Gateway, StartError};
use weir_base::secret::Secret;

use crate::support::{FakeGateway, ask, exchange, fetch, loopback, send, start, start_with};

const TOKEN: &str = "canary-token-0123456789abcdef";

fn with_token(token: &str) -> AdminSettings {
    AdminSettings { token: Some(Secret::from(token)), ..loopback() }
}

fn refusal(settings: AdminSettings) -> StartError {
    AdminServer::start(settings, FakeGateway::new() as std::sync::Arc<dyn Gateway>).expect_err("it must not start")
}

#[test]
fn beyond_loopback_it_does_not_start_without_a_token() {
    for bind in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:10.0.0.1]:0"] {
        let bind: SocketAddr = bind.parse().expect("an address");
        let error = refusal(AdminSettings::loopback(bind));
        assert!(matches!(error, StartError::Exposed { .. }), "{bind}: {error}");
        assert!(error.to_string().contains("token"), "{error}");
    }
}

#[test]
fn a_weak_or_unusable_token_is_refused_without_being_shown() {
    for token in ["", "canary-short"] {
        assert!(matches!(refusal(with_token(token)), StartError::TokenLength { .. }));
    }
    for token in [format!("{TOKEN}\n"), format!("{TOKEN} x"), format!("{TOKEN}\u{e9}")] {
        let error = refusal(with_token(&token));
        assert!(matches!(error, StartError::TokenBytes));
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
    assert!(matches!(refusal(with_token(&"x".repeat(5000))), StartError::TokenLength { .. }));
}

#[test]
fn a_taken_port_is_said_so() {
    let gateway = FakeGateway::new();
    let first = start(&gateway);
    let error = refusal(AdminSettings::loopback(first.local_addr()));
    assert!(matches!(error, StartError::Bind { .. }), "{error}");
    assert!(error.to_string().contains(&first.local_addr().to_string()));
}

#[test]
fn with_a_token_all_but_index_and_probes_asks_for_it() {
    let gateway = FakeGateway::new();
    let server = start_with(with_token(TOKEN), &gateway);
    let right = format!("Authorization: Bearer {TOKEN}");
    for path in ["/", "/livez", "/readyz", "/startupz"] {
        assert_eq!(fetch(&server, path).status, 200, "{path}");
    }
    let document = weir_admin::openapi_document("0");
    let mut guarded = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (verb, operation) in item.as_object().expect("operations") {
            if operation["security"].as_array().is_some_and(Vec::is_empty) {
                continue;
            }
            guarded += 1;
            let method = verb.to_ascii_uppercase();
            let refused = ask(&server, &method, path, &[]);
            assert_eq!(refused.problem(401), "token", "{path}");
            assert!(refused.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
            let response = ask(&server, &method, path, &[&right]);
            // Orders about keys want a body, or a key that is there.
            let is_of_keys = path.starts_with("/api/v1/ai/keys");
            let is_taken = (200..300).contains(&response.status) || is_of_keys && matches!(response.status, 400 | 404);
            assert!(is_taken, "{path}: {response:?}");
        }
    }
    assert_eq!(guarded, 23);
    // Without the token the response shows neither the paths nor their methods.
    assert_eq!(fetch(&server, "/api/v1/nothing").problem(401), "token");
    assert_eq!(ask(&server, "DELETE", "/api/v1/config", &[]).problem(401), "token");
    assert_eq!(ask(&server, "GET", "/api/v1/nothing", &[&right]).problem(404), "path");
}

#[test]
fn only_the_very_token_opens() {
    let gateway = FakeGateway::new();
    let server = start_with(with_token(TOKEN), &gateway);
    let wrong = [
        "Authorization: Bearer".to_owned(),
        "Authorization: Bearer ".to_owned(),
        format!("Authorization: Bearer {}", &TOKEN[..TOKEN.len() - 1]),
        format!("Authorization: Bearer {TOKEN}0"),
        format!("Authorization: Bearer {}", TOKEN.to_uppercase()),
        format!("Authorization: Basic {TOKEN}"),
        format!("Authorization: {TOKEN}"),
        format!("Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}"),
        format!("Authorization: Bearer {TOKEN}, Bearer {TOKEN}"),
        format!("X-Token: {TOKEN}"),
    ];
    for header in &wrong {
        let response = ask(&server, "POST", "/api/v1/drain", &[header]);
        assert_eq!(response.problem(401), "token", "{header}");
        assert!(!response.body.contains("canary"));
    }
    assert_eq!(gateway.drains.load(Ordering::SeqCst), 0);
    // The scheme's case does not matter (RFC 9110 section 11.1).
    let response = ask(&server, "GET", "/metrics", &[&format!("authorization: BEARER {TOKEN}")]);
    assert_eq!(response.status, 200);
}

#[test]
fn details_of_probes_follow_the_token() {
    let gateway = FakeGateway::new();
    let server = start_with(with_token(TOKEN), &gateway);
    let stranger = fetch(&server, "/readyz?verbose");
    assert_eq!(stranger.status, 200);
    assert!(stranger.json()["checks"][0].get("detail").is_none());
    let header = format!("Authorization: Bearer {TOKEN}");
    let operator = ask(&server, "GET", "/readyz?verbose", &[&header]);
    assert_eq!(operator.json()["checks"][0]["detail"], "1 of 1 at 127.0.0.1:6380");
}

#[test]
fn a_rebound_name_is_refused_on_loopback() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let port = server.local_addr().port();
    let with_host = |host: &str| {
        exchange(&server, &format!("GET /api/v1/config HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "localhost.evil.example".to_owned(),
        "127.0.0.1.evil.example".to_owned(),
        "192.0.2.1".to_owned(),
        "[2001:db8::1]".to_owned(),
        "user@localhost".to_owned(),
    ] {
        assert_eq!(with_host(&host).problem(403), "host", "{host}");
    }
    for host in ["", "a b", "localhost\r\nHost: localhost"] {
        assert_eq!(with_host(host).problem(400), "host", "{host:?}");
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.1.2.3:80", "[::1]:9", "[::ffff:127.0.0.1]"] {
        assert_eq!(with_host(host).status, 200, "{host}");
    }
}

#[test]
fn an_absolute_target_counts_as_the_host() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let response = exchange(
        &server,
        "GET http://evil.example/api/v1/config HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(response.problem(403), "host");
}

#[test]
fn without_host_only_http_1_0_is_served() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    assert_eq!(exchange(&server, "GET /livez HTTP/1.0\r\n\r\n").status, 200);
    let response = exchange(&server, "GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(response.problem(400), "host");
}

#[test]
fn a_listed_name_is_served_on_loopback() {
    let gateway = FakeGateway::new();
    let settings = AdminSettings { hosts: vec!["weir.internal".to_owned()], ..loopback() };
    let server = start_with(settings, &gateway);
    let response = exchange(&server, "GET /livez HTTP/1.1\r\nHost: Weir.Internal:443\r\nConnection: close\r\n\r\n");
    assert_eq!(response.status, 200);
}

#[test]
fn off_loopback_the_token_protects_and_any_name_is_served() {
    let gateway = FakeGateway::new();
    let settings = AdminSettings { bind: SocketAddr::from(([0, 0, 0, 0], 0)), ..with_token(TOKEN) };
    let server = start_with(settings, &gateway);
    let port = server.local_addr().port();
    let get = |headers: &str| {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connect");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n{headers}\r\n")
            .expect("send");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        text
    };
    assert!(get("").starts_with("HTTP/1.1 401 "));
    assert!(get(&format!("Authorization: Bearer {TOKEN}\r\n")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_page_of_another_site_cannot_drain_through_the_browser() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let own = format!("Origin: http://{}", server.local_addr());
    for header in [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://localhost:3000",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        let response = ask(&server, "POST", "/api/v1/drain", &[header]);
        assert_eq!(response.problem(403), "site", "{header}");
    }
    assert_eq!(gateway.drains.load(Ordering::SeqCst), 0);
    let response = ask(&server, "POST", "/api/v1/drain", &[&own, "Sec-Fetch-Site: same-origin"]);
    assert_eq!(response.status, 202);
    // Following a link to a page that only reads does no harm.
    let response = ask(&server, "GET", "/metrics", &["Sec-Fetch-Site: cross-site"]);
    assert_eq!(response.status, 200);
}

#[test]
fn responses_are_not_stored_and_not_sniffed() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    for response in [fetch(&server, "/metrics"), send(&server, "/nothing")] {
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert!(response.header("access-control-allow-origin").is_none());
    }
}

#[test]
fn a_reload_changes_token_and_names_of_a_running_server() {
    let gateway = FakeGateway::new();
    let server = start_with(with_token(TOKEN), &gateway);
    let access = server.access();
    let old = format!("Authorization: Bearer {TOKEN}");
    let new = "Authorization: Bearer another-token-0123456789";
    let metrics = |header: &str| ask(&server, "GET", "/metrics", &[header]).status;
    assert_eq!((metrics(&old), metrics(new)), (200, 401));
    access.set(Some(Secret::from("another-token-0123456789")), vec!["weir.internal".to_owned()]).expect("fine");
    assert_eq!((metrics(&old), metrics(new)), (401, 200));
    let request = "GET /livez HTTP/1.1\r\nHost: weir.internal\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(&server, request).status, 200);
    // A bad one is refused and changes nothing.
    assert!(matches!(access.set(Some(Secret::from("short")), Vec::new()), Err(StartError::TokenLength { .. })));
    assert_eq!((metrics(&old), metrics(new)), (401, 200));
    assert_eq!(exchange(&server, request).status, 200);
    access.set(None, Vec::new()).expect("loopback needs none");
    assert_eq!(fetch(&server, "/metrics").status, 200);
}

#[test]
fn the_token_cannot_be_taken_away_from_a_server_beyond_loopback() {
    let settings = AdminSettings { bind: SocketAddr::from(([0, 0, 0, 0], 0)), ..with_token(TOKEN) };
    let server = start_with(settings, &FakeGateway::new());
    assert!(matches!(server.access().set(None, Vec::new()), Err(StartError::Exposed { .. })));
    assert!(matches!(server.access().set(Some(Secret::from(TOKEN)), Vec::new()), Ok(())));
}
