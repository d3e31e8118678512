//! Heads of responses that a filter changes as they are sent.

use std::{sync::Arc, time::Duration};

use weir_http::{
    filter::{Caller, ExchangeTiming, FilterFactory, HttpFilter, Tap},
    routes::{Action, FieldChange, Target},
    settings::RetrySettings,
};
use weir_http_codec::{Fields, RequestHead};
use weir_route::variables::{Side, Template};

use crate::{
    http2::Http2Client,
    policies::with_a_key,
    support::{Gateway, Origin, Setup, route, upstream},
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nX-Limit: theirs\r\nContent-Length: 2\r\n\r\nok";

/// Its filters add fields to every head, and try to change the framing.
#[derive(Debug)]
struct Heads;

impl FilterFactory for Heads {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::new(Heads)
    }
}

impl HttpFilter for Heads {
    fn tap(&mut self, status: u16, _: &mut Fields) -> Tap {
        if status == 203 { Tap::Edit } else { Tap::No }
    }

    fn response_head(&mut self, status: u16, fields: &mut Fields, timing: &ExchangeTiming) {
        let ExchangeTiming { policy, request, queue, upstream, response, total } = *timing;
        assert_eq!(policy + request + queue + upstream + response, total);
        fields.set_named(b"x-limit", b"ours");
        fields.set_named(b"content-length", b"7");
        fields.push(b"connection", b"x-limit-gone");
        fields.push(b"transfer-encoding", b"gzip");
        let milliseconds = [queue, upstream].map(|part| part.as_millis());
        fields.push(b"server-timing", format!("{status} {milliseconds:?}").as_bytes());
    }
}

fn with(action: &mut Action) {
    action.filter = Some(Arc::new(Heads));
}

/// The queue and the upstream in milliseconds, of a response whose fields are checked.
fn times(response: &str, status: u16) -> (u64, u64) {
    let head = response.split("\r\n\r\n").next().expect("a head").to_lowercase();
    assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
    assert!(head.contains("x-limit: ours") && !head.contains("theirs"), "{head}");
    assert!(!head.contains("length: 7") && !head.contains("gzip") && !head.contains("x-limit-gone"), "{head}");
    let said = head.split(&format!("server-timing: {status} [")).nth(1).and_then(|rest| rest.split(']').next());
    let mut parts = said.expect("a timing").split(", ").map(|part| part.parse().expect("a number"));
    (parts.next().expect("a queue"), parts.next().expect("an upstream"))
}

#[test]
fn the_head_of_an_origin_has_the_fields_of_the_filter_and_its_own_framing() {
    let gateway = Gateway::start(Setup::plain(with));
    let response = gateway.exchange(GET, OK);
    times(&response, 200);
    assert!(
        response.to_lowercase().contains("content-length: 2\r\n") && response.ends_with("\r\n\r\nok"),
        "{response}"
    );
    let edited = gateway.exchange(GET, &OK.replace("200 OK", "203 Edited"));
    times(&edited, 203);
    assert!(edited.ends_with("\r\n\r\n2\r\nok\r\n0\r\n\r\n"), "{edited}");
}

#[test]
fn responses_of_the_gateway_have_them_too() {
    // A refusal of a policy, whose time is that of the policies; a failed origin; a response of the route.
    let gateway = Gateway::start(Setup::plain(|action| {
        with(action);
        action.policies = Some(Box::new(with_a_key()));
    }));
    let mut client = gateway.client();
    client.send(GET);
    assert_eq!(times(&client.response(), 401), (0, 0));
    drop((client, gateway));
    let gateway = Gateway::start(Setup::plain(|action| {
        with(action);
        action.response_timeout = Some(Duration::from_millis(50));
    }));
    let mut client = gateway.client();
    client.send(GET);
    let (_, upstream) = times(&client.response(), 504);
    assert!((50..5000).contains(&upstream), "{upstream}");
    drop((client, gateway));
    let gateway = Gateway::start(Setup::of(vec![route("/", Target::Invalid, with)]));
    let mut client = gateway.client();
    client.send(GET);
    times(&client.response(), 503);
}

#[test]
fn the_time_of_an_origin_is_that_of_all_attempts() {
    let other = Origin::new();
    let retry = RetrySettings { attempts: 1, statuses: vec![503], ..RetrySettings::default() };
    let mut setup = Setup::plain(|action| {
        with(action);
        action.retry = Some(Box::new(retry));
    });
    setup.upstreams = vec![vec![other.address]];
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(GET);
    // Both origins are slow, whichever comes first.
    let slow = |origin: &Origin, response: &'static str| {
        let mut end = loop {
            if let Some(end) = origin.waiting() {
                break end;
            }
            std::thread::yield_now();
        };
        end.request();
        std::thread::sleep(Duration::from_millis(40));
        end.send(response);
        end
    };
    let unavailable = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let _ends = std::thread::scope(|scope| {
        let second = scope.spawn(|| slow(&other, unavailable));
        (slow(&gateway.origin, unavailable), second.join().expect("no panic"))
    });
    let (_, upstream) = times(&client.response(), 503);
    assert!((80..5000).contains(&upstream), "{upstream}");
}

#[test]
fn changes_of_the_route_come_after_those_of_the_filter() {
    let gateway = Gateway::start(Setup::of(vec![route("/", upstream(0), |action| {
        with(action);
        let value = Template::parse("route", Side::Response).expect("a template");
        action.response_fields = vec![FieldChange::Set("x-limit".into(), value)];
    })]));
    let response = gateway.exchange(GET, OK);
    assert!(response.contains("x-limit: route\r\n") && !response.contains("ours"), "{response}");
}

#[test]
fn heads_on_streams_have_them() {
    let gateway = Gateway::start(Setup::plain(with));
    let mut client = Http2Client::new(gateway.client());
    client.request(1, &[(":method", "GET"), (":path", "/")]);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(OK);
    let response = client.response(1);
    assert_eq!((response.status, &*response.body), (200, &b"ok"[..]));
}
