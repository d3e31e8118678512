//! The form of refusals, by the listener and by a filter.

use std::{net::TcpListener, sync::Arc, time::Duration};

use weir_http::{
    filter::{BodyChange, Caller, FilterFactory, HttpFilter},
    refusal_format::{FormattedRefusal, RefusalFacts, RefusalFormat},
    routes::Action,
};
use weir_http_codec::{Fields, RequestHead};

use crate::{
    choosing::{Choice, Choosing},
    http2::Http2Client,
    policies::limited,
    support::{Gateway, Setup, route, upstream},
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// The facts as JSON.
#[derive(Debug)]
struct Json;

impl RefusalFormat for Json {
    fn format(&self, facts: &RefusalFacts) -> FormattedRefusal {
        let RefusalFacts { status, reason, text, retry_after } = *facts;
        let retry_after = retry_after.map_or("null".to_owned(), |seconds| seconds.to_string());
        let body = format!(r#"{{"status":{status},"code":"{reason}","retry_after":{retry_after},"text":"{text}"}}"#);
        let mut fields = Fields::new();
        for (name, value) in [("x-form", "json"), ("connection", "close"), ("content-length", "1")] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        if status == 429 {
            fields.push(b"retry-after", b"9");
        }
        FormattedRefusal { content_type: "application/json", body: body.into(), fields }
    }
}

fn json(mut setup: Setup) -> Setup {
    setup.change = Box::new(|settings| settings.refusal_format = Some(Arc::new(Json)));
    setup
}

/// The refusal of one request, whose form is checked.
fn refused(gateway: &Gateway, request: &str, status: u16, reason: &str) -> String {
    let mut client = gateway.client();
    client.send(request);
    let response = client.response();
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let lower = head.to_lowercase();
    assert!(lower.contains("content-type: application/json\r\n") && lower.contains("x-form: json"), "{head}");
    assert_eq!(lower.matches("content-length: ").count(), 1, "{head}");
    assert!(lower.contains("\r\ndate: ") && !lower.contains("text/plain"), "{head}");
    assert!(body.starts_with(&format!(r#"{{"status":{status},"code":"{reason}","#)), "{body}");
    response
}

#[test]
fn refusals_of_every_stage_have_the_form_of_the_listener() {
    let setup = || json(Setup::of(vec![route("/known", upstream(0), |_| {})]));
    refused(&Gateway::start(setup()), GET, 404, "no_route");
    let malformed = "GET / HTTP/1.1\r\nHost: a\r\nBad Name: 1\r\n\r\n";
    let response = refused(&Gateway::start(setup()), malformed, 400, "field_name");
    assert!(response.contains("Connection: close\r\n"), "{response}");
    let tunnel = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
    assert!(refused(&Gateway::start(setup()), tunnel, 405, "method_refused").contains("Allow: GET, "));
    let long = |action: &mut Action| action.request_body_bytes_max = Some(1);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
    refused(&Gateway::start(json(Setup::plain(long))), post, 413, "body_too_long");
}

#[test]
fn limits_say_when_to_come_back() {
    let full = refused(&Gateway::start(json(Setup { in_flight: 0, ..Setup::plain(|_| {}) })), GET, 503, "in_flight");
    let seconds = full.split("Retry-After: ").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("a field");
    assert!(full.contains(&format!(r#""retry_after":{seconds},"#)), "{full}");
    // A rate of one request: its own Retry-After is that of the policy, and the form has another one.
    let gateway = Gateway::start(json(limited()));
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    client.response();
    let second = refused(&gateway, GET, 429, "rate_limited").to_lowercase();
    assert!(second.contains("retry-after: 9\r\n") && second.matches("retry-after: ").count() == 1, "{second}");
    assert!(!second.contains(r#""retry_after":null"#), "{second}");
}

#[test]
fn failures_of_origins_have_the_form_of_the_listener() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let mut setup = Setup::of(vec![route("/", upstream(1), |_| {})]);
    setup.upstreams = vec![Vec::new(), vec![gone]];
    refused(&Gateway::start(json(setup)), GET, 502, "connect");
    let slow = |action: &mut Action| action.response_timeout = Some(Duration::from_millis(50));
    refused(&Gateway::start(json(Setup::plain(slow))), GET, 504, "response_timeout");
}

#[test]
fn the_form_holds_on_streams_and_grpc_keeps_its_own() {
    let gateway = Gateway::start(json(Setup::of(vec![route("/known", upstream(0), |_| {})])));
    let mut client = Http2Client::new(gateway.client());
    client.request(1, &[(":method", "GET"), (":path", "/")]);
    let response = client.response(1);
    let body = String::from_utf8_lossy(&response.body);
    assert!(response.status == 404 && body.starts_with(r#"{"status":404,"code":"no_route","#), "{body}");
    client.request(3, &[(":method", "POST"), (":path", "/"), ("content-type", "application/grpc")]);
    let response = client.response(3);
    assert_eq!((response.status, response.body.len()), (200, 0), "a head with the status of the call");
}

/// Its filters have a form of their own for one reason.
#[derive(Debug)]
struct OwnForm;

impl FilterFactory for OwnForm {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::new(OwnForm)
    }
}

impl HttpFilter for OwnForm {
    fn format_refusal(&mut self, facts: &RefusalFacts) -> Option<FormattedRefusal> {
        (facts.reason == "body_too_long").then(|| FormattedRefusal {
            content_type: "text/csv",
            body: "too,long".into(),
            fields: Fields::new(),
        })
    }
}

#[test]
fn the_form_of_a_filter_comes_before_that_of_the_listener() {
    let setup = || {
        json(Setup::plain(|action| {
            action.filter = Some(Arc::new(OwnForm));
            action.request_body_bytes_max = Some(1);
            action.response_timeout = Some(Duration::from_millis(50));
        }))
    };
    let gateway = Gateway::start(setup());
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    let response = client.response();
    assert!(response.contains("text/csv") && response.ends_with("\r\n\r\ntoo,long"), "{response}");
    refused(&gateway, GET, 504, "response_timeout");
}

#[test]
fn a_response_that_a_filter_gives_has_no_other_form() {
    let filter = Choosing::new(vec![Choice::body(BodyChange::Keep)]);
    let filter = Choosing { choices: Vec::new(), ..filter };
    let gateway = Gateway::start(json(Setup::plain(|action| filter.install(action))));
    let mut client = gateway.client();
    client.send(GET);
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 500 ") && response.ends_with("\r\n\r\nno choice left"), "{response}");
}
