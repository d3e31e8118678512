//! Delegated decisions, end to end: an authorization service, and an issuer of keys. Also fault injection.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use weir_tests::deadline;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::http::{HttpClient, field};
use weir_tests::http2::{self, Http2Peer};

use crate::policies::{Issuer, Scene};

/// An upstream of this name.
fn upstream(name: &str, server: &Faulty) -> String {
    format!("[[upstream]]\nname = \"{name}\"\nendpoints = [\"{}\"]\n", server.address.tcp())
}

fn response(status: u16, fields: &str, body: &str) -> Act {
    Act::Reply(format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

/// Decides by the path that it receives.
fn judge() -> Faulty {
    Faulty::http(|request| {
        let uri = field(&request[0], "x-forwarded-uri").unwrap_or_default();
        match uri.split('?').next().unwrap_or_default() {
            "/login" => response(
                302,
                "Location: https://id.example/\r\nSet-Cookie: a=b\r\nConnection: x-hop\r\nX-Hop: 1\r\n",
                "go there",
            ),
            "/broken" => response(500, "", "stack trace"),
            "/slow" => Act::Silence,
            "/cut" => Act::Reset,
            "/open/stalls" => Act::Reply(b"HTTP/1.1 403 X\r\nContent-Length: 500\r\n\r\nhalf".to_vec()),
            "/open/torn" => Act::ReplyThenClose(b"HTTP/1.1 403 X\r\nContent-Length: 500\r\n\r\nhalf".to_vec()),
            "/long" => response(403, "", &"x".repeat(100_000)),
            "/secret/x" => response(403, "", "no"),
            _ => response(204, "X-Auth-User: alice\r\nAuthorization: Internal 7\r\nX-Other: no\r\n", ""),
        }
    })
}

const EXT_AUTH: &str = r#"[listener.http]
ext_auth = { upstream = "judge", path = "/verify", response_headers = ["X-Auth-User", "Authorization"], timeout = "500ms" }"#;

#[test]
fn another_service_gets_the_request_and_decides_and_no_client_can_forge_its_fields() {
    let judge = judge();
    let open =
        "[[route]]\nname = \"open\"\npath_prefix = \"/open\"\next_auth = { enabled = false }\nupstream = \"server\"\n";
    let scene = Scene::new(&[], EXT_AUTH, &format!("{open}{}", upstream("judge", &judge)));
    let mut client = scene.client();
    client.send("POST /a?b=c HTTP/1.1\r\nHost: test.example\r\nX-Auth-User: root\r\nX_Auth_User: root\r\nAuthorization: Mine\r\nX-Forwarded-Uri: /other\r\nIf-None-Match: x\r\nContent-Length: 4\r\n\r\nbody");
    let seen = client.response().text();
    assert!(seen.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("X-Auth-User: alice\r\n") && seen.contains("Authorization: Internal 7\r\n"), "{seen}");
    assert!(!seen.contains("root") && !seen.contains("Mine") && !seen.contains("X-Other"), "{seen}");
    drop(client);
    let check = &judge.seen()[0];
    let told = |name: &str| field(&check[0], name);
    assert!(check[0].starts_with(b"GET /verify HTTP/1.1\r\n"));
    assert_eq!(told("x-forwarded-method").as_deref(), Some("POST"));
    assert_eq!(told("x-forwarded-uri").as_deref(), Some("/a?b=c"));
    assert_eq!(told("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!((told("host").as_deref(), told("authorization").as_deref()), (Some("test.example"), Some("Mine")));
    assert_eq!((told("x-auth-user"), told("if-none-match"), told("content-length")), (None, None, None));
    // The client gets the response of the service, except the fields for the gateway's connection.
    let login = scene.ask("GET /login", "");
    assert_eq!((login.status, login.text().as_str()), (302, "go there"));
    assert_eq!(login.field("location").as_deref(), Some("https://id.example/"));
    assert_eq!((login.field("set-cookie").as_deref(), login.field("x-hop")), (Some("a=b"), None));
    assert_eq!(scene.denied("ext_auth_denied"), 1.0);
    // Its troubles are not.
    // A no is a no, however long its page.
    let long = scene.ask("GET /long", "");
    assert_eq!((long.status, long.text().as_str()), (403, ""));
    // It judges the path as forwarded, however it was written, and no field of the client describes another one to it.
    for path in ["/secret/x", "/open-not/../secret/x", "//secret/x", "/%73ecret/x", "/secret/./x?y"] {
        assert_eq!(scene.status(&format!("GET {path}"), "X_Forwarded_Uri: /fine\r\n"), 403, "{path}");
    }
    assert!(judge.seen().iter().all(|check| !String::from_utf8_lossy(&check[0]).contains("X_Forwarded_Uri")));
    assert_eq!(scene.status("OPTIONS *", ""), 200);
    let before = scene.origin.seen().len();
    for path in ["/broken", "/slow", "/cut"] {
        let begun = Instant::now();
        let refused = scene.ask(&format!("GET {path}"), "");
        assert_eq!(refused.status, 503, "{path}");
        assert!(!refused.text().contains("stack") && refused.field("retry-after").is_some());
        assert!(begun.elapsed() < Duration::from_secs(5), "{path}");
    }
    assert_eq!(scene.denied("ext_auth_failed"), 3.0);
    assert_eq!(scene.origin.seen().len(), before, "nothing of a refused request reached the origin");
    let asked = judge.seen().len();
    assert_eq!(scene.status("GET /open", ""), 200);
    assert_eq!(judge.seen().len(), asked, "a route without it asks nobody");
    scene.gateway.finish();
}

#[test]
fn a_service_that_is_down_lets_nobody_through_unless_it_was_said() {
    let judge = judge();
    let open = "[[route]]\nname = \"open\"\npath_prefix = \"/open\"\next_auth = { upstream = \"judge\", response_headers = [\"X-Auth-User\"], timeout = \"500ms\", fail_open = true }\nupstream = \"server\"\n";
    let scene = Scene::new(&[], EXT_AUTH, &format!("{open}{}", upstream("judge", &judge)));
    for path in ["/open/stalls", "/open/torn"] {
        let denied = scene.ask(&format!("GET {path}"), "");
        assert_eq!(
            (denied.status, denied.text().as_str()),
            (403, ""),
            "{path}: a no is a no, whatever becomes of its page"
        );
    }
    drop(judge);
    assert_eq!(scene.status("GET /", ""), 503);
    let seen = scene.ask("GET /open", "X-Auth-User: root\r\n");
    assert_eq!((seen.status, seen.text().contains("root")), (200, false));
    assert_eq!(scene.denied("ext_auth_open"), 1.0);
    scene.gateway.finish();
}

/// An issuer whose document can be changed.
fn issuer_server(document: &Arc<Mutex<Option<String>>>) -> Faulty {
    let document = Arc::clone(document);
    Faulty::http(move |request| {
        assert!(request[0].starts_with(b"GET /keys HTTP/1.1\r\n"), "asked for something else");
        match &*document.lock().expect("not poisoned") {
            Some(keys) => response(200, "Content-Type: application/jwk-set+json\r\n", keys),
            None => response(404, "", "no"),
        }
    })
}

const FETCHED: &str = r#"[listener.http.jwt]
provider = [{ algorithms = ["EdDSA"], jwks_upstream = "issuer", jwks_path = "/keys", jwks_refresh = "1s" }]"#;

#[test]
fn keys_are_fetched_once_for_all_that_wait_and_again_when_they_are_old_or_others_are_used() {
    let (first, second) = (Issuer::new(), Issuer::new());
    let document = Arc::new(Mutex::new(Some(first.jwks())));
    let server = issuer_server(&document);
    let scene = Scene::new(&[], FETCHED, &upstream("issuer", &server));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let claims = json!({"sub": "alice", "exp": now + 600});
    let (good, next) = (first.token(&claims), second.token(&claims));
    assert_eq!(scene.status("GET /", ""), 401, "without a token");
    let mut clients: Vec<HttpClient> = (0..10).map(|_| scene.client()).collect();
    let request = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{good}\r\n");
    clients.iter_mut().for_each(|client| client.send(&request));
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    drop(clients);
    assert_eq!(server.seen().len(), 1, "one fetch for all");
    // The keys change: within the refresh time the old ones go and the new ones come.
    *document.lock().expect("not poisoned") = Some(second.jwks());
    let begun = Instant::now();
    while scene.status("GET /", &next) != 200 || scene.status("GET /", &good) != 401 {
        assert!(begun.elapsed() < Duration::from_secs(20), "new keys are never used");
        std::thread::sleep(Duration::from_millis(100));
    }
    // The issuer is down: the keys that are there go on, also over a reload.
    drop(server);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(scene.status("GET /", &next), 200);
    let text = std::fs::read_to_string(&scene.gateway.file).expect("its file");
    let more = "[[route]]\nname = \"more\"\npath_prefix = \"/more\"\nupstream = \"server\"\n";
    std::fs::write(&scene.gateway.file, format!("{text}{more}")).expect("written");
    scene.reload();
    assert_eq!(scene.status("GET /more", &next), 200);
    scene.gateway.wait_metric("weir_http_jwks_fetches_total", &[("outcome", "failed")], 1.0);
    scene.gateway.wait_log("jwks_failed");
    scene.gateway.finish();
}

#[test]
fn without_keys_nobody_is_let_through_and_unknown_ones_are_fetched_within_limits() {
    let document = Arc::new(Mutex::new(None));
    let server = issuer_server(&document);
    let lines = FETCHED.replace("\"1s\"", "\"1h\"");
    let scene = Scene::new(&[], &lines, &upstream("issuer", &server));
    let issuer = Issuer::new();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let good = issuer.token(&json!({"sub": "alice", "exp": now + 600}));
    let refused = scene.ask("GET /", &good);
    assert_eq!((refused.status, refused.field("retry-after").is_some()), (503, true));
    *document.lock().expect("not poisoned") = Some(issuer.jwks());
    let begun = Instant::now();
    while scene.status("GET /", &good) != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the keys are never fetched again");
        std::thread::sleep(Duration::from_millis(100));
    }
    let fetches = server.seen().len();
    let forged = good.replace("Bearer ", "Bearer x");
    assert_eq!(scene.status("GET /", &forged), 401);
    let stranger = Issuer::new();
    for number in 0..50 {
        let token = stranger.token_of("two", &json!({"sub": number, "exp": now + 600}));
        assert_eq!(scene.status("GET /", &token), 401);
    }
    assert!(server.seen().len() <= fetches + 1, "each forged token made a fetch");
    scene.gateway.finish();
}

#[test]
fn injected_faults_hit_the_requests_that_opt_in_and_are_counted() {
    let route = r#"
[[route]]
name = "fault"
path_prefix = "/fault"
upstream = "server"
fault = { delay = "150ms", abort_status = 599, header = "x-fault" }
[[route]]
name = "never"
path_prefix = "/never"
upstream = "server"
fault = { delay = "30s", delay_share = 0.0, abort_status = 500, abort_share = 0.0 }
[[route]]
name = "half"
path_prefix = "/half"
upstream = "server"
fault = { abort_status = 418, abort_share = 0.5 }
[[route]]
name = "long"
path_prefix = "/long"
upstream = "server"
fault = { delay = "50s" }
"#;
    let scene = Scene::new(&[], "", route);
    assert_eq!(scene.status("GET /fault", ""), 200);
    let begun = Instant::now();
    assert_eq!(scene.status("GET /fault", "X-Fault: yes\r\n"), 599);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert_eq!(scene.status("GET /never", ""), 200);
    let mut client = scene.client();
    let aborted = (0..200).filter(|_| client.get("/half").status == 418).count();
    drop(client);
    // Eight standard deviations on each side.
    assert!((40..160).contains(&aborted), "{aborted} of 200");
    let faults = |kind| scene.gateway.metrics().sum_where("weir_http_faults_total", &[("kind", kind)]);
    assert_eq!((faults("delay"), faults("abort")), (1.0, aborted as f64 + 1.0));
    // A client that does not wait any more is not waited for.
    let in_flight = || scene.gateway.metrics().sum("weir_requests_in_flight");
    let mut client = Http2Peer::connect(&scene.gateway.address);
    assert!(client.request(1, &http2::get("/long")));
    deadline::until_true("the request to be there", || in_flight() == 1.0);
    assert!(client.send(http2::frame(http2::kind::RST_STREAM, 0, 1, &http2::code::CANCEL.to_be_bytes())));
    deadline::until_true("the request to end with its stream", || in_flight() == 0.0);
    assert!(client.request(3, &http2::get("/never")));
    client.next_of(http2::kind::HEADERS);
    drop(client);
    scene.gateway.finish();
}
