//! Routes: the upstream of a request, and responses without an origin.

use std::sync::Arc;

use weir_http::routes::{DirectResponse, FieldChange, Target};
use weir_route::variables::{Side, Template};

use crate::support::{Gateway, Origin, Setup, route, upstream};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

#[test]
fn the_longest_prefix_chooses_the_upstream() {
    let other = Origin::new();
    let mut setup = Setup::of(vec![route("/", upstream(0), |_| {}), route("/other", upstream(1), |_| {})]);
    setup.upstreams = vec![Vec::new(), vec![other.address]];
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(&get("/other/path"));
    let mut origin = other.accept();
    assert!(origin.request().starts_with("GET /other/path "));
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother");
    assert!(client.response().ends_with("other"));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_request_without_a_route_is_not_found() {
    let gateway = Gateway::start(Setup::of(vec![route("/only", upstream(0), |_| {})]));
    let mut client = gateway.client();
    client.send(&get("/"));
    assert!(client.response().starts_with("HTTP/1.1 404 "));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_response_of_the_configuration_needs_no_origin_and_keeps_the_connection() {
    let response = DirectResponse { status: 203, content_type: "text/html".into(), body: b"<p>".to_vec() };
    let field = FieldChange::Set("X-Own".into(), Template::parse("1", Side::Response).expect("a text"));
    let target = Target::Response(Arc::new(response));
    let gateway = Gateway::start(Setup::of(vec![route("/", target, |action| action.response_fields = vec![field])]));
    let mut client = gateway.client();
    for _ in 0..2 {
        client.send(&get("/"));
        let response = client.response();
        assert!(response.starts_with("HTTP/1.1 203 ") && response.ends_with("\r\n\r\n<p>"), "{response}");
        assert!(response.contains("Content-Type: text/html\r\n") && response.contains("X-Own: 1\r\n"), "{response}");
    }
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.head().to_lowercase().contains("content-length: 3\r\n"));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn fields_are_changed_both_ways() {
    let response = Template::parse("b", Side::Response);
    let gateway = Gateway::start(Setup::plain(|action| {
        action.request_fields = vec![FieldChange::Remove("X-Gone".into())];
        action.response_fields = vec![FieldChange::Set("X-Set".into(), response.expect("a text"))];
    }));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Gone: 1\r\n\r\n");
    let mut origin = gateway.origin.accept();
    assert!(!origin.request().contains("X-Gone"));
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Set: a\r\n\r\n");
    let response = client.response();
    assert!(response.contains("X-Set: b\r\n") && !response.contains("X-Set: a"), "{response}");
}
