//! Refusals by the head alone, and heads on their way.

use std::time::Duration;

use weir_ai::settings::{AiListenerSettings, Provider, ProviderDialect};
use weir_spend::policy::Policy;

use crate::gateway::{CHAT, ok, plain, post, provider, read, refused, respond, settings, start, with_key};

#[test]
fn a_stranger_learns_so_before_it_has_sent_a_body() {
    let gateway = plain(with_key(Policy::default()));
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut client = gateway.client();
        client.send(&format!("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n{expect}Content-Length: 100\r\n\r\n"));
        // The first line of all is the refusal, and no 100.
        assert_eq!(refused(&mut client, 401).1["code"], "invalid_api_key", "{expect}");
    }
    let gateway = plain(settings());
    for (line, status) in [("Content-Length: 99999999", 413), ("Content-Encoding: gzip\r\nContent-Length: 9", 415)] {
        let mut client = gateway.client();
        client
            .send(&format!("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{line}\r\n\r\n"));
        refused(&mut client, status);
    }
    let mut client = gateway.client();
    client.send("POST /v1/secrets HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n");
    assert_eq!(refused(&mut client, 404).1["code"], "unknown_url");
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_body_that_stops_is_given_up_at_the_end_of_its_time() {
    let gateway = plain(AiListenerSettings { request_timeout: Duration::from_millis(300), ..settings() });
    let mut client = gateway.client();
    client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{\"model\":");
    assert_eq!(refused(&mut client, 408).1["code"], "request_timeout");
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_web_page_of_another_site_cannot_use_a_listener_without_keys() {
    let gateway = plain(AiListenerSettings { refuses_web_pages: true, ..settings() });
    let send = |host: &str, lines: &str| {
        let mut client = gateway.client();
        let head = format!("Host: {host}\r\n{lines}Content-Type");
        client.send(&post("/v1/chat/completions", CHAT).replace("Host: weir\r\n", "").replacen(
            "Content-Type",
            &head,
            1,
        ));
        client
    };
    for (host, lines) in [
        ("localhost:8000", "Origin: https://evil.example\r\n"),
        ("127.0.0.1:8000", "Origin: null\r\n"),
        ("127.0.0.1:8000", "Origin: http://203.0.113.1\r\n"),
        ("127.0.0.1:8000", "Sec-Fetch-Site: cross-site\r\n"),
        ("evil.example:8000", ""),
        ("evil.example", "Origin: http://evil.example\r\nSec-Fetch-Site: same-origin\r\n"),
        ("localhost.evil.example", ""),
    ] {
        let (_, error) = refused(&mut send(host, lines), 403);
        assert_eq!(error["code"], "origin_not_allowed", "{host} {lines}");
    }
    assert!(gateway.origin.is_untouched());
    for (host, lines) in [
        ("localhost:8000", ""),
        ("LOCALHOST", "Sec-Fetch-Site: same-origin\r\n"),
        ("127.0.0.1:8000", "Origin: http://localhost:3000\r\nSec-Fetch-Site: cross-site\r\n"),
        ("[::1]:8000", "Origin: http://[::1]:3000\r\n"),
        ("192.0.2.7:8000", ""),
    ] {
        let mut client = send(host, lines);
        respond(&mut gateway.origin.accept(), &ok("{}"));
        assert!(read(&mut client).0.starts_with("http/1.1 200 "), "{host} {lines}");
    }
    // A listener that is open to all has no such rule.
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT).replacen("Host: weir", "Host: weir\r\nOrigin: null", 1));
    respond(&mut gateway.origin.accept(), &ok("{}"));
    assert!(read(&mut client).0.starts_with("http/1.1 200 "));
}

#[test]
fn the_names_of_the_account_at_a_provider_stay_here() {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nOpenAI-Organization: acme\r\nSet-Cookie: __cf_bm=1\r\n\
                openai-processing-ms: 7\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let exchanged = |api_key: bool| {
        let mut own = provider(ProviderDialect::OpenAi);
        own.api_key = own.api_key.filter(|_| api_key);
        let gateway = start(settings(), vec![Provider { ..own }], |_| {});
        let mut client = gateway.client();
        client.send(&post("/v1/chat/completions", CHAT).replacen("Host: weir", "Host: weir\r\nCookie: a=b", 1));
        let request = respond(&mut gateway.origin.accept(), head).to_ascii_lowercase();
        (request, read(&mut client).0)
    };
    let (request, response) = exchanged(true);
    assert!(!request.contains("cookie"), "{request}");
    assert!(!response.contains("acme") && !response.contains("set-cookie"), "{response}");
    assert!(response.contains("openai-processing-ms: 7\r\n"), "{response}");
    let (request, response) = exchanged(false);
    assert!(request.contains("cookie: a=b") && response.contains("acme") && response.contains("set-cookie"));
}

#[test]
fn an_early_refusal_has_the_form_of_the_path_with_slashes_that_are_merged() {
    let gateway = plain(with_key(Policy::default()));
    for path in ["/v1/messages", "//v1/messages", "/v1//messages/count_tokens"] {
        let mut client = gateway.client();
        client.send(&format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        let (head, body) = read(&mut client);
        assert!(head.starts_with("http/1.1 401 ") && body["type"] == "error", "{path}: {head}\n{body}");
    }
    // Without room for another exchange there is no filter yet.
    let gateway = start(settings(), vec![provider(ProviderDialect::OpenAi)], |setup| setup.in_flight = 1);
    let mut first = gateway.client();
    first.send(&post("/v1/chat/completions", CHAT));
    let mut end = gateway.origin.accept();
    end.request();
    for (path, is_anthropic) in [("/v1/messages", true), ("/v1/chat/completions", false)] {
        let mut client = gateway.client();
        client.send(&post(path, CHAT));
        let (head, body) = read(&mut client);
        assert!(head.starts_with("http/1.1 503 "), "{head}");
        assert_eq!(body["type"] == "error", is_anthropic, "{path}: {body}");
    }
    end.send(&ok("{}"));
    first.response();
}
