//! The gateway as an operator sees it, in front of a real nginx and with real clients.

use std::process::Command;
use std::time::Duration;

use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn origin() -> Faulty {
    Faulty::http(|_| Act::Reply(OK.as_bytes().to_vec()))
}

#[test]
fn a_drain_ends_idle_connections_and_tells_the_busy_ones() {
    let origin = Faulty::http(|_| {
        std::thread::sleep(Duration::from_millis(500));
        Act::Reply(OK.as_bytes().to_vec())
    });
    let mut gateway = Gateway::start(Config::http(&origin.address));
    let mut idle = HttpClient::connect(&gateway.address);
    assert_eq!(idle.get("/").status, 200);
    let mut busy = HttpClient::connect(&gateway.address);
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(100));
    gateway.process().signal("TERM");
    let response = busy.response();
    assert_eq!((response.status, response.field("connection").as_deref()), (200, Some("close")));
    assert!(busy.rest().is_empty() && idle.rest().is_empty());
    let status = gateway.process().wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    gateway.ended();
}

#[test]
fn connections_past_the_limit_get_a_response() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address).listener("connections_max = 1"));
    let mut first = HttpClient::connect(&gateway.address);
    assert_eq!(first.get("/").status, 200);
    let mut second = HttpClient::connect(&gateway.address);
    assert!(String::from_utf8_lossy(&second.rest()).starts_with("HTTP/1.1 503 "));
    drop((first, second));
    gateway.finish();
}

#[test]
fn a_reload_moves_requests_to_another_origin_between_two_requests() {
    let (one, two) = (origin(), origin());
    let gateway = Gateway::start(Config::http(&one.address));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(client.get("/").status, 200);
    let text = std::fs::read_to_string(&gateway.file).expect("its file");
    let text = text.replace(&one.address.text(), &two.address.text());
    std::fs::write(&gateway.file, text).expect("written");
    assert_eq!(gateway.admin.request("POST", "/api/v1/reload", &[], "").expect("a response").status, 200);
    assert_eq!(client.get("/").status, 200);
    assert_eq!((one.seen().len(), two.seen().len()), (1, 1));
    let text = std::fs::read_to_string(&gateway.file).expect("its file").replace("\"http\"", "\"redis\"");
    std::fs::write(&gateway.file, text).expect("written");
    let refused = gateway.admin.request("POST", "/api/v1/reload", &[], "").expect("a response");
    assert!(refused.body.contains("cannot change its protocol"), "{}", refused.body);
    assert_eq!(client.get("/").status, 200);
    drop(client);
    gateway.finish();
}

#[test]
fn curl_gets_posts_and_uploads() {
    let origin = Faulty::http(|request| {
        let body = match weir_tests::http::field(&request[0], "transfer-encoding") {
            Some(_) => weir_tests::http::unchunked(&request[1]),
            None => request[1].clone(),
        };
        let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        response.extend_from_slice(&body);
        Act::Reply(response)
    });
    let gateway = Gateway::start(Config::http(&origin.address));
    let url = format!("http://{}/path", gateway.address.text());
    let curl = |words: &[&str]| {
        let output = Command::new("curl").args(["-sS", "--max-time", "20"]).args(words).arg(&url).output();
        let output = output.expect("curl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let file = gateway.folder().join("upload");
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
    std::fs::write(&file, &content).expect("written");
    let at_file = format!("@{}", file.display());
    assert_eq!(curl(&["--data-binary", "hello"]), b"hello");
    // Above 1 MiB curl sends `Expect: 100-continue`, and waits a second for the response.
    assert!(curl(&["--data-binary", &at_file, "-H", "Expect: 100-continue"]) == content);
    assert!(curl(&["-T", &file.display().to_string(), "-H", "Transfer-Encoding: chunked"]) == content);
    assert_eq!(curl(&["-I"]).split(|&byte| byte == b'\r').next(), Some(&b"HTTP/1.1 200 OK"[..]));
    gateway.finish();
}
