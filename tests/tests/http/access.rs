//! Records of a request: lines of the access log, its id, its trace, the metrics of its route.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use weir_tests::deadline::{WAIT, until_true};
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::{HttpClient, Response, field};

/// Responds with the head it got.
fn origin() -> Faulty {
    Faulty::http(|request| {
        let body = String::from_utf8_lossy(&request[0]).into_owned();
        Act::Reply(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
    })
}

pub(crate) fn logged_to(file: &Path, format: &str) -> String {
    let target = file.display();
    format!("[telemetry.access_log]\ntarget = \"file:{target}\"\nformat = \"{format}\"\nsample = 1.0\n")
}

/// The lines of a log, once there are so many.
pub(crate) fn lines(file: &Path, count: usize) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.lines().count() >= count {
            return text.lines().map(str::to_owned).collect();
        }
        assert!(begun.elapsed() < WAIT, "{count} lines are expected:\n{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask(gateway: &Gateway, request: &str) -> Response {
    let mut client = HttpClient::connect(&gateway.address);
    client.send(request);
    client.response()
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[test]
fn a_line_shows_request_upstream_and_outcome() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let origin = origin();
    let gateway = Gateway::start(
        Config::http(&origin.address)
            .listener("[listener.http]\nforwarded = \"append\"\nrequest_id = true\nrequest_body_bytes_max = 20")
            .tables(&logged_to(&file, "json"))
            .tables("[[route]]\nname = \"api\"\npath_prefix = \"/api\"\nrewrite = { path_prefix = \"/v2\" }\nupstream = \"server\""),
    );
    let fields = format!(
        "X-Request-Id: id-1\r\nUser-Agent: tests/1 \"x\"\u{e9}\r\nX-Forwarded-For: 192.0.2.1\r\ntraceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n"
    );
    let request =
        format!("POST /api/x?token=secret HTTP/1.1\r\nHost: a.example:81\r\n{fields}Content-Length: 5\r\n\r\nhello");
    let response = ask(&gateway, &request);
    let refused = ask(&gateway, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 21\r\n\r\n");
    assert_eq!((response.status, refused.status), (200, 413));
    let text = lines(&file, 2);
    assert!(!text.concat().contains("secret"), "the query is in no log: {text:?}");
    let [first, second]: [Json; 2] = [&text[0], &text[1]].map(|line| serde_json::from_str(line).expect("JSON"));
    for (key, expected) in [
        ("status", Json::from(200)),
        ("method", "POST".into()),
        ("path", "/api/x".into()),
        ("protocol", "HTTP/1.1".into()),
        ("authority", "a.example:81".into()),
        ("route", "api".into()),
        ("upstream", "server".into()),
        ("endpoint", origin.address.text().into()),
        ("outcome", "ok".into()),
        ("user_agent", "tests/1 \"x\"??".into()),
        ("forwarded_for", "192.0.2.1".into()),
        ("request_id", "id-1".into()),
        ("trace_id", TRACE.into()),
        ("request_bytes", 5.into()),
        ("tries", 1.into()),
        ("reply_bytes", (response.head.len() + response.body.len()).into()),
    ] {
        assert_eq!(first[key], expected, "{key}: {first}");
    }
    let (first_byte, all) = (first["first_byte_us"].as_u64(), first["duration_us"].as_u64());
    assert!(first_byte.is_some() && first_byte <= all, "{first}");
    assert_eq!((&second["tries"], &second["first_byte_us"]), (&0.into(), &Json::Null), "{second}");
    assert_eq!((&second["status"], &second["outcome"]), (&413.into(), &"body_too_long".into()), "{second}");
    assert_eq!((&second["route"], &second["upstream"]), (&"default".into(), &"-".into()), "{second}");
    gateway.finish();
}

#[test]
fn requests_that_cannot_be_read_and_those_that_nobody_waits_for_have_a_line_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let origin = Faulty::http(|request| match request[0].starts_with(b"GET /waits") {
        true => Act::Silence,
        false => Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
    });
    let gateway = Gateway::start(Config::http(&origin.address).tables(&logged_to(&file, "json")));
    assert_eq!(ask(&gateway, "GET / HTTP/1.1\r\nHost : a\r\n\r\n").status, 400);
    let refused: Json = serde_json::from_str(&lines(&file, 1)[0]).expect("JSON");
    for (key, expected) in
        [("status", Json::from(400)), ("outcome", "field_name".into()), ("method", "-".into()), ("path", "-".into())]
    {
        assert_eq!(refused[key], expected, "{key}: {refused}");
    }
    assert!(refused["reply_bytes"].as_u64() > Some(0), "{refused}");
    let mut client = std::net::TcpStream::connect(gateway.address.text()).expect("the gateway accepts");
    client.write_all(b"GET /unread HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    client.peek(&mut [0]).expect("a response, which stays unread");
    client.write_all(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    until_true("the second request is at the origin", || origin.seen().len() == 2);
    // Unread bytes make its end a reset.
    drop(client);
    let left: Json = serde_json::from_str(&lines(&file, 3)[2]).expect("JSON");
    assert_eq!((&left["status"], &left["outcome"]), (&0.into(), &"client_reset".into()), "{left}");
    assert_eq!((&left["path"], &left["upstream"]), (&"/waits".into(), &"server".into()), "{left}");
    gateway.finish();
}

/// An operator who switches the log on expects every request in it.
#[test]
fn every_request_has_a_line_unless_a_share_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let origin = origin();
    let table = format!("[telemetry.access_log]\ntarget = \"file:{}\"\n", file.display());
    let gateway = Gateway::start(Config::http(&origin.address).workers(2).tables(&table));
    for number in 0..40 {
        assert_eq!(ask(&gateway, &format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).status, 200);
    }
    let text = lines(&file, 40).concat();
    assert!((0..40).all(|number| text.contains(&format!("\"path\":\"/{number}\""))), "{text}");
    gateway.finish();
}

#[test]
fn lines_of_text_cannot_be_forged_by_a_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address).tables(&logged_to(&file, "text")));
    ask(&gateway, "GET /a?b HTTP/1.1\r\nHost: h\r\nUser-Agent: x\" 200 \"y\r\n\r\n");
    let line = lines(&file, 1).remove(0);
    assert!(line.contains(" 200 \"GET /a HTTP/1.1\" h default "), "{line}");
    assert!(line.contains(" \"-\" \"x' 200 'y\" \"-\" \"-\" - 1 ") && line.ends_with("us - - -"), "{line}");
    gateway.finish();
}

#[test]
fn an_id_is_made_at_the_edge_and_kept_behind_proxies() {
    let origin = origin();
    let sent = |how: &str| {
        let lines = format!("[listener.http]\nrequest_id = true\nforwarded = \"{how}\"");
        let gateway = Gateway::start(Config::http(&origin.address).listener(&lines));
        let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: theirs\r\n\r\n";
        let ids = [(); 2].map(|()| field(&ask(&gateway, request).body, "x-request-id").expect("an id"));
        gateway.finish();
        ids
    };
    assert_eq!(sent("append"), ["theirs", "theirs"]);
    let [one, two] = sent("replace");
    assert!(one != two && one.len() == 36 && one.as_bytes()[14] == b'4', "{one} {two}");
}

#[test]
fn the_gateway_names_itself_in_via_if_it_has_a_name() {
    let origin = origin();
    for (line, expected) in [("", "1.1 cdn"), ("via = \"edge\"", "1.1 cdn, 1.1 edge")] {
        let gateway = Gateway::start(Config::http(&origin.address).listener(&format!("[listener.http]\n{line}")));
        let response = ask(&gateway, "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 cdn\r\n\r\n");
        assert_eq!(field(&response.body, "via").as_deref(), Some(expected));
        gateway.finish();
    }
}

#[test]
fn the_gateway_is_a_step_of_the_trace_if_configured() {
    let origin = origin();
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let sent = |how: &str, lines: &str| {
        let config = format!("[listener.http]\ntrace_context = \"{how}\"");
        let gateway = Gateway::start(Config::http(&origin.address).listener(&config));
        let response = ask(&gateway, &format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        gateway.finish();
        field(&response.body, "traceparent")
    };
    let line = format!("traceparent: {parent}\r\n");
    assert_eq!(sent("pass", &line), Some(parent.clone()));
    let child = sent("child", &line).expect("a child");
    assert!(child.starts_with(&parent[..36]) && child.ends_with("-01") && child != parent, "{child}");
    assert_eq!(sent("child", ""), None);
    assert_eq!(sent("start", "").map(|line| line.len()), Some(55));
}

#[test]
fn routes_have_metrics_of_their_own() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address).tables(
        "[[route]]\nname = \"api\"\nhosts = [\"a\", \"b\"]\npath_prefix = \"/api\"\nupstream = \"server\"\n[[route]]\nname = \"gone\"\npath = \"/gone\"\nresponse = { status = 410 }",
    ));
    for (host, path) in [("a", "/api"), ("b", "/api"), ("c", "/gone"), ("c", "/"), ("a", "/none")] {
        ask(&gateway, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    }
    let metrics = gateway.metrics();
    let count =
        |route, class| metrics.sum_where("weir_http_route_responses_total", &[("route", route), ("class", class)]);
    assert_eq!((count("api", "2xx"), count("gone", "4xx"), count("default", "2xx")), (2.0, 1.0, 1.0));
    assert_eq!(metrics.sum("weir_http_route_responses_total"), 4.0, "what has no route has no label");
    assert_eq!(metrics.sum("weir_http_route_request_duration_seconds_count"), 4.0);
    gateway.finish();
}

#[test]
fn a_line_has_the_chosen_fields_and_a_full_or_moved_file_is_reopened() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let origin = origin();
    let chosen =
        "fields = [\"status\", \"path\", \"user_agent\", \"route\"]\nrotate_size = \"1KiB\"\nrotate_keep = 2\n";
    let gateway =
        Gateway::start(Config::http(&origin.address).tables(&format!("{}{chosen}", logged_to(&file, "text"))));
    ask(&gateway, "GET /one HTTP/1.1\r\nHost: a\r\nUser-Agent: some \"one\"\r\n\r\n");
    assert_eq!(lines(&file, 1), ["200 /one \"some 'one'\" default"]);
    // As logrotate does it.
    let moved = folder.path().join("moved.log");
    std::fs::rename(&file, &moved).expect("moved");
    let begun = Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < WAIT, "the file is never opened again");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut client = HttpClient::connect(&gateway.address);
    let long = "x".repeat(90);
    (0..40).for_each(|number| assert_eq!(client.get(&format!("/{number}/{long}")).status, 200));
    drop(client);
    let begun = Instant::now();
    let path = |number: u32| folder.path().join(format!("access.log.{number}"));
    let all = || {
        let files = [path(2), path(1), file.clone()].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        files.concat().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    while !all().last().is_some_and(|line| line.contains("/39/")) {
        assert!(begun.elapsed() < WAIT, "{:?}", all());
        std::thread::sleep(Duration::from_millis(20));
    }
    let kept = all();
    let first = 40 - kept.len();
    for (line, number) in kept.iter().zip(first..40) {
        assert_eq!(*line, format!("200 /{number}/{long} - default"), "none is lost, none is cut");
    }
    assert!(!path(3).exists(), "two are kept besides");
    for path in [path(1), path(2), file] {
        let length = std::fs::metadata(&path).expect("it is there").len();
        assert!(length > 0 && length <= 1_024, "{length} bytes of {}", path.display());
    }
    gateway.finish();
}

#[test]
fn the_line_of_a_504_names_the_upstream_the_endpoint_and_the_time_spent_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let silent = Faulty::http(|_| Act::Silence);
    let route =
        "[[route]]\nname = \"whole\"\npath_prefix = \"/whole\"\nupstream = \"server\"\nrequest_timeout = \"100ms\"";
    let gateway = Gateway::start(
        Config::http(&silent.address)
            .listener("[listener.http]\nresponse_timeout = \"200ms\"")
            .tables(&logged_to(&file, "json"))
            .tables(route),
    );
    for path in ["/", "/whole"] {
        assert_eq!(ask(&gateway, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).status, 504);
    }
    // The outcome is the key that set the deadline.
    for (line, (outcome, least)) in
        lines(&file, 2).iter().zip([("response_timeout", 200_000), ("request_timeout", 100_000)])
    {
        let line: Json = serde_json::from_str(line).expect("JSON");
        let shown = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        assert_eq!((shown("upstream"), shown("outcome")), ("server".to_owned(), outcome.to_owned()), "{line}");
        assert_eq!(shown("endpoint"), silent.address.text(), "{line}");
        let spent = line["upstream_us"].as_u64().unwrap_or_default();
        assert!(spent >= least / 2 && spent <= line["duration_us"].as_u64().unwrap_or_default(), "{line}");
    }
    gateway.finish();
}
