//! Several servers under one name: what each of them gets, and how much of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_ai::settings::{AiListenerSettings, ProviderDialect};
use weir_spend::{policy::Policy, rate::Pace};

use crate::{
    federation::{
        INITIALIZE, LIST, call, counted, gateway, got, id_of, left_out, message, names, offer, request, result,
        session, settings, tools,
    },
    gateway::{EVENTS, chunk, ok, provider, respond, start},
    support::{Gateway, Origin, PATIENCE, Setup},
};

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A gateway with other limits.
fn limited(
    files: &Origin,
    limits: impl FnOnce(AiListenerSettings) -> AiListenerSettings,
    change: impl FnOnce(&mut Setup),
) -> Gateway {
    let providers = vec![provider(ProviderDialect::OpenAi); 2];
    start(limits(settings(Policy::default())), providers, |setup| {
        setup.upstreams = vec![Vec::new(), vec![files.address]];
        change(setup);
    })
}

fn notification(bytes: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"x":"{}"}}}}"#, "x".repeat(bytes))
}

fn pages(gateway: &Gateway, files: &Origin, git: &Value, of_files: &Value) -> (u16, Value) {
    let id = session(gateway, files);
    let mut client = gateway.client();
    client.send(&request("POST", &id, LIST));
    result(&mut gateway.origin.accept(), git, "");
    result(&mut files.accept(), of_files, "");
    got(&mut client)
}

/// A list with one tool of about this length.
fn long(name: &str, bytes: usize) -> Value {
    json!({"tools": [{"name": name, "description": "d".repeat(bytes)}]})
}

#[test]
fn a_message_for_all_servers_is_short_and_held_once() {
    let files = Origin::new();
    let gateway = limited(&files, |settings| AiListenerSettings { body_bytes_max: 4 << 20, ..settings }, |_| {});
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    client.send(&request("POST", &id, &notification(1 << 20)));
    let (status, body) = got(&mut client);
    assert_eq!((status, &body["error"]["data"]["reason"]), (413, &json!("request_too_large")));
    assert!(gateway.origin.is_untouched() && files.is_untouched());
    // A call has one server, and the limit of the listener.
    let mut client = gateway.client();
    let long_call = call(r#""files__read""#).replacen(r#""a":1"#, &format!(r#""a":"{}""#, "x".repeat(1 << 20)), 1);
    client.send(&request("POST", &id, &long_call));
    assert!(message(&respond(&mut files.accept(), &ok("{}")))["params"]["name"] == "read");
    assert_eq!(got(&mut client).0, 200);
    client.send(&request("POST", &id, &notification(900_000)));
    let (mut first, mut second) = (gateway.origin.accept(), files.accept());
    let sent = first.request();
    assert!(message(&sent)["params"]["x"].as_str().is_some_and(|text| text.len() == 900_000));
    assert_eq!(message(&second.request()), message(&sent));
    // As the client has sent it, and as servers get it.
    let held = gateway.held().1;
    assert!((1_800_000..3_000_000).contains(&held), "{held}");
    first.send(ACCEPTED);
    second.send(ACCEPTED);
    assert!(client.response().starts_with("HTTP/1.1 202 "));
}

#[test]
fn no_server_gets_the_fields_and_the_query_that_a_client_has_for_another() {
    const SECRETS: &str = "PRIVATE-TOKEN: s3cret\r\nCookie: a=s3cret\r\nX-Api-Key: s3cret\r\nReferer: s3cret\r\n\
        X-Git-Token: s3cret\r\nBaggage: s3cret\r\nOrigin: http://s3cret.example\r\nMcp-Name: files__read\r\n\
        User-Agent: sdk/1\r\nTracestate: t=1\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\
        Content-Type: application/json\r\nMcp-Param-X: of-the-call\r\n";
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let sent = |method: &str, session: &str, body: &str| {
        let fields = if body.contains("files__read") { SECRETS.into() } else { SECRETS.replace("Mcp-Name", "X-Name") };
        // The key of the client stands in one field only.
        let fields = fields.replace("X-Api-Key: s3cret\r\n", "");
        request(method, session, body).replacen("/mcp/all ", "/mcp/all?token=s3cret ", 1).replacen(
            "\r\n",
            &format!("\r\n{fields}"),
            1,
        )
    };
    let checked = |seen: &str, is_call: bool| {
        let head = seen.split_once("\r\n\r\n").expect("a head").0.to_ascii_lowercase();
        assert!(!seen.contains("s3cret") && !head.contains("x-name") && !head.contains('?'), "{seen}");
        assert!(head.contains("user-agent: sdk/1") && head.contains("tracestate: t=1"), "{seen}");
        assert!(head.contains("\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-"), "{seen}");
        assert!(head.contains("authorization: bearer provider-key"), "{seen}");
        assert_eq!(head.contains("mcp-param-x: of-the-call"), is_call, "{seen}");
        assert_eq!(head.contains("content-type: application/json"), !head.starts_with("delete "), "{seen}");
    };
    let mut client = gateway.client();
    client.send(&sent("POST", "", INITIALIZE));
    checked(&result(&mut gateway.origin.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-git\r\n"), false);
    checked(&result(&mut files.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-files\r\n"), false);
    let id = id_of(&client.response());
    client.send(&sent("POST", &id, INITIALIZED));
    checked(&respond(&mut gateway.origin.accept(), ACCEPTED), false);
    checked(&respond(&mut files.accept(), ACCEPTED), false);
    assert!(client.response().starts_with("HTTP/1.1 202 "));
    client.send(&sent("POST", &id, LIST));
    checked(&result(&mut gateway.origin.accept(), &tools(&["add"]), ""), false);
    checked(&result(&mut files.accept(), &tools(&["read"]), ""), false);
    assert_eq!(names(&got(&mut client).1), ["git__add", "files__read"]);
    client.send(&sent("POST", &id, &call(r#""files__read""#)));
    checked(&respond(&mut files.accept(), &ok("{}")), true);
    assert_eq!(got(&mut client).0, 200);
    client.send(&sent("DELETE", &id, ""));
    checked(&respond(&mut gateway.origin.accept(), &ok("")), false);
    checked(&respond(&mut files.accept(), &ok("")), false);
    assert!(client.response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_response_of_a_client_tells_no_server_anything() {
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    for response in [
        r#"{"jsonrpc":"2.0","id":"e-1","result":{"action":"accept","content":{"password":"p"}}}"#,
        r#"{"jsonrpc":"2.0","id":"e-1","error":{"code":-1,"message":"p"}}"#,
        r#"{"jsonrpc":"2.0","id":"e-1","result":["p"]}"#,
    ] {
        client.send(&request("POST", &id, response));
        assert!(client.response().starts_with("HTTP/1.1 202 "), "{response}");
    }
    assert!(gateway.origin.is_untouched() && files.is_untouched());
    client.send(&request("POST", &id, r#"{"jsonrpc":"2.0","id":"p-1","x":"p","result":{}}"#));
    // A server that has sent no ping may say so.
    let seen = respond(&mut gateway.origin.accept(), &ok("{}").replace("200 OK", "400 Bad Request"));
    assert!(seen.ends_with("\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":\"p-1\",\"result\":{}}"), "{seen}");
    respond(&mut files.accept(), ACCEPTED);
    assert!(client.response().starts_with("HTTP/1.1 202 "));
    assert_eq!((counted(&gateway, "all", "response"), counted(&gateway, "git", "response")), (4, 1));
    assert_eq!(left_out(&gateway, "git", "status"), 0);
}

#[test]
fn a_message_that_goes_to_all_servers_counts_as_a_request() {
    let files = Origin::new();
    let policy = Policy { requests: Some(Pace::per_minute(60).with_burst(2)), ..Policy::default() };
    let gateway = gateway(policy, &files, None);
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    client.send(&request("POST", &id, INITIALIZED));
    respond(&mut gateway.origin.accept(), ACCEPTED);
    respond(&mut files.accept(), ACCEPTED);
    assert!(client.response().starts_with("HTTP/1.1 202 "));
    let pong = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for (method, body) in [("DELETE", ""), ("POST", INITIALIZED), ("POST", pong)] {
        client.send(&request(method, &id, body));
        let response = client.response().to_ascii_lowercase();
        assert!(response.starts_with("http/1.1 429 ") && response.contains("retry-after: "), "{method} {response}");
    }
    assert!(gateway.origin.is_untouched() && files.is_untouched());
}

#[test]
fn a_server_with_slow_pages_has_ten_seconds_for_all_of_them() {
    const PAUSE: Duration = Duration::from_millis(2_600);
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    client.0.stream.set_read_timeout(Some(2 * PATIENCE)).expect("a timeout");
    let begun = Instant::now();
    client.send(&request("POST", &id, LIST));
    result(&mut files.accept(), &tools(&["read"]), "");
    let mut page = tools(&["add"]);
    page["nextCursor"] = json!("again");
    for _ in 0..3 {
        let mut end = gateway.origin.accept();
        std::thread::sleep(PAUSE);
        result(&mut end, &page, "");
    }
    let mut last = gateway.origin.accept();
    last.request();
    let (status, body) = got(&mut client);
    let took = begun.elapsed();
    assert_eq!((status, names(&body)), (200, vec!["files__read"]));
    assert!((Duration::from_secs(9)..Duration::from_secs(15)).contains(&took), "{took:?}");
    assert_eq!(left_out(&gateway, "git", "failed"), 1);
}

#[test]
fn a_long_list_is_the_fault_of_its_server_alone() {
    let files = Origin::new();
    let gateway = limited(&files, |settings| settings, |_| {});
    // Each as long as it may be.
    let (status, body) = pages(&gateway, &files, &long("add", 2_090_000), &long("read", 2_090_000));
    assert_eq!((status, names(&body)), (200, vec!["git__add", "files__read"]));
    // One page is too long, or two are.
    let (_, body) = pages(&gateway, &files, &long("add", 2 << 20), &long("read", 2_090_000));
    assert_eq!((names(&body), left_out(&gateway, "git", "too_long")), (vec!["files__read"], 1));
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    client.send(&request("POST", &id, LIST));
    let mut page = long("add", 1_200_000);
    page["nextCursor"] = json!("c");
    result(&mut gateway.origin.accept(), &page, "");
    result(&mut files.accept(), &tools(&["read"]), "");
    result(&mut gateway.origin.accept(), &page, "");
    assert_eq!(names(&got(&mut client).1), ["files__read"]);
    assert_eq!((left_out(&gateway, "git", "too_long"), left_out(&gateway, "files", "too_long")), (2, 0));
    // As one event.
    client.send(&request("POST", &id, LIST));
    let mut end = gateway.origin.accept();
    let own_id = &message(&end.request())["id"];
    let list = json!({"jsonrpc": "2.0", "id": own_id, "result": long("add", 2_090_000)});
    end.send(EVENTS);
    end.send(&chunk(&format!("data: {list}\n\n")));
    end.send("0\r\n\r\n");
    result(&mut files.accept(), &tools(&["read"]), "");
    assert_eq!(names(&got(&mut client).1), ["git__add", "files__read"]);
}

#[test]
fn a_list_without_room_is_no_shorter_list() {
    let files = Origin::new();
    let gateway = limited(&files, |settings| settings, |setup| setup.buffered_bytes = 200 << 10);
    let (status, body) = pages(&gateway, &files, &long("add", 150_000), &long("read", 150_000));
    assert_eq!((status, &body["error"]["data"]["reason"]), (503, &json!("overloaded")));
    assert_eq!((left_out(&gateway, "git", "no_room"), left_out(&gateway, "files", "no_room")), (0, 0));
    // So is a handshake, whose sessions end.
    let mut client = gateway.client();
    client.send(&request("POST", "", INITIALIZE));
    let mut long = offer("2025-11-25");
    long["instructions"] = json!("i".repeat(210_000));
    result(&mut gateway.origin.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-git\r\n");
    result(&mut files.accept(), &long, "");
    assert!(respond(&mut gateway.origin.accept(), &ok("")).starts_with("DELETE /git "));
    assert_eq!(got(&mut client).0, 503);
}

#[test]
fn a_notification_that_no_server_takes_fails() {
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    for (status, wanted) in [("500 Bad", 502), ("400 Bad", 502), ("202 Accepted", 202)] {
        client.send(&request("POST", &id, INITIALIZED));
        respond(&mut gateway.origin.accept(), &ok("{}").replace("200 OK", "400 Bad"));
        respond(&mut files.accept(), &ok("").replace("200 OK", status));
        assert_eq!(got(&mut client).0, wanted, "{status}");
    }
    assert_eq!((left_out(&gateway, "git", "status"), left_out(&gateway, "files", "status")), (3, 2));
    // A server may keep its sessions to itself, or have ended one.
    for (status, wanted) in [("500 Bad", 502), ("405 No", 200), ("404 No", 200)] {
        client.send(&request("DELETE", &id, ""));
        respond(&mut gateway.origin.accept(), &ok("").replace("200 OK", "503 Bad"));
        respond(&mut files.accept(), &ok("").replace("200 OK", status));
        assert_eq!(got(&mut client).0, wanted, "{status}");
    }
}

#[test]
fn a_session_that_no_client_will_use_ends() {
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    // A server of another revision.
    let mut client = gateway.client();
    client.send(&request("POST", "", INITIALIZE));
    result(&mut gateway.origin.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-git\r\n");
    result(&mut files.accept(), &offer("2026-07-28"), "Mcp-Session-Id: own-files\r\n");
    let ended = respond(&mut files.accept(), &ok("").replace("200 OK", "405 No"));
    assert!(
        ended.starts_with("DELETE /files HTTP/1.1\r\n") && ended.contains("mcp-session-id: own-files\r\n"),
        "{ended}"
    );
    let id = id_of(&client.response());
    assert_eq!(left_out(&gateway, "files", "revision"), 1);
    client.send(&request("POST", &id, LIST));
    result(&mut gateway.origin.accept(), &tools(&["add"]), "");
    assert_eq!(names(&got(&mut client).1), ["git__add"]);
    // All are left out.
    client.send(&request("POST", "", INITIALIZE));
    result(&mut gateway.origin.accept(), &offer("1999-01-01"), "Mcp-Session-Id: own-git\r\n");
    respond(&mut files.accept(), &ok("no JSON").replacen("\r\n", "\r\nMcp-Session-Id: own-files\r\n", 1));
    assert!(respond(&mut gateway.origin.accept(), &ok("")).contains("mcp-session-id: own-git\r\n"));
    assert!(respond(&mut files.accept(), &ok("")).contains("mcp-session-id: own-files\r\n"));
    assert_eq!(got(&mut client).0, 502);
    // One has forgotten its session when it gets a notification.
    let id = session(&gateway, &files);
    client.send(&request("POST", &id, INITIALIZED));
    respond(&mut gateway.origin.accept(), &ok("{}").replace("200 OK", "404 Not Found"));
    respond(&mut files.accept(), ACCEPTED);
    assert!(respond(&mut files.accept(), &ok("")).starts_with("DELETE /files "));
    assert_eq!(got(&mut client).0, 404);
    drop(client);
    gateway.rests();
    assert!(gateway.origin.is_untouched() && files.is_untouched());
}
