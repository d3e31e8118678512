//! The end of each exchange, as its filter gets it.

use std::{net::IpAddr, sync::Arc};

use weir_http::{
    filter::{Caller, CompletionStatus, ExchangeSummary, FilterFactory, HttpFilter, Inspect, Tap, WholeResponse},
    policies::Policies,
    routes::{Action, DirectResponse, Target},
    settings::Upgrades,
};
use weir_http_codec::RequestHead;
use weir_policy::http::{AddressRules, Effect, Source};

use crate::{
    filters::{Call, ExchangeEnd, Recording, recording},
    http2::Http2Client,
    inspection::Words,
    policies::with_a_key,
    support::{Gateway, OriginEnd, Setup, route, upstream},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The inspection of the one, and the last call of the other.
#[derive(Debug)]
struct Both(Words, Recording);

struct BothOf(Box<dyn HttpFilter>, Box<dyn HttpFilter>);

impl FilterFactory for Both {
    fn create(&self, head: &RequestHead, caller: &Caller) -> Box<dyn HttpFilter> {
        Box::new(BothOf(self.0.create(head, caller), self.1.create(head, caller)))
    }
}

impl HttpFilter for BothOf {
    fn inspect(&mut self, head: &RequestHead, caller: &Caller) -> Inspect {
        self.0.inspect(head, caller)
    }

    fn request_data(&mut self, piece: &[u8]) -> Result<(), WholeResponse> {
        self.0.request_data(piece)
    }

    fn on_complete(&mut self, facts: &ExchangeSummary<'_>) {
        self.1.on_complete(facts);
    }
}

/// Runs `script`, whose one exchange must be reported once.
fn settled(change: impl FnOnce(&mut Action), script: impl FnOnce(&Gateway)) -> ExchangeEnd {
    let (filter, heard) = recording();
    let gateway = Gateway::start(Setup::plain(|action| {
        change(action);
        filter.install(action);
    }));
    script(&gateway);
    let fact = heard.settled();
    gateway.rests();
    drop(gateway);
    assert!(heard.is_silent(), "told twice");
    fact
}

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";

#[test]
fn a_completed_exchange_is_reported_with_its_bytes() {
    let fact = settled(
        |_| {},
        |gateway| {
            gateway.exchange(POST, OK);
        },
    );
    assert_eq!((fact.status, fact.request_bytes, &*fact.upstream), (200, 3, "a"));
    assert_eq!((fact.end, &*fact.reason), (CompletionStatus::Completed, "ok"));
    assert!(fact.response_bytes > 2, "{fact:?}");
}

#[test]
fn a_refusal_of_a_policy_is_reported() {
    let nets = ["192.0.2.0/24".parse().expect("a network")];
    let rules = AddressRules::new(Effect::Deny, Source::Client, &nets).expect("rules");
    let policies = Policies { address: Some(Arc::new(rules)), ..Policies::default() };
    let fact = settled(
        |action| action.policies = Some(Box::new(policies)),
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response();
        },
    );
    assert_eq!((fact.status, fact.end, &*fact.upstream), (403, CompletionStatus::Refused, ""));
}

#[test]
fn a_refusal_of_an_inspection_is_reported() {
    let (recording, heard) = recording();
    let filter = Both(Words(Inspect::Streaming), recording);
    let gateway = Gateway::start(Setup::plain(|action| action.filter = Some(Arc::new(filter))));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad");
    client.response();
    let fact = heard.settled();
    assert_eq!(
        (fact.status, fact.request_bytes, fact.end, &*fact.reason),
        (422, 3, CompletionStatus::Refused, "inspected")
    );
}

#[test]
fn an_origin_that_fails_is_reported_as_a_refusal() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send(POST);
            let mut origin = gateway.origin.accept();
            origin.request();
            drop(origin);
            client.response();
        },
    );
    assert_eq!((fact.status, fact.end, &*fact.reason), (502, CompletionStatus::Refused, "origin_closed"));
}

#[test]
fn a_response_that_breaks_off_is_reported_as_aborted() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut origin = gateway.origin.accept();
            origin.request();
            origin.send("HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n\r\nabc");
            client.0.until("abc");
            drop(origin);
            client.0.rest();
        },
    );
    assert_eq!((fact.status, fact.end, &*fact.reason), (206, CompletionStatus::Aborted, "origin_closed"));
}

#[test]
fn a_response_that_the_end_of_a_drain_cuts_is_not_blamed_on_its_client() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut origin = gateway.origin.accept();
            origin.request();
            origin.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
            client.0.until("abc");
            gateway.cut();
            client.0.rest();
            expect_one(gateway, "broken");
        },
    );
    assert_eq!((fact.status, fact.end, &*fact.reason), (200, CompletionStatus::Aborted, "drain_cut"));
}

/// A client that gives up waits as long as it likes: that is no duration of the gateway's.
#[test]
fn a_request_that_gets_no_response_has_no_duration() {
    let gateway = Gateway::start(Setup::of(vec![route("/", upstream(0), |_| {}), route("/x", upstream(0), |_| {})]));
    gateway.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n", OK);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // An origin that closed would be a reason of its own.
    let mut origin = gateway.origin.accept();
    origin.request();
    drop(client);
    gateway.rests();
    let of_route = [("route", "of /")];
    for class in ["2xx", "aborted"] {
        let classed = [of_route[0], ("class", class)];
        assert_eq!(gateway.counter("weir_http_route_responses_total", &classed), 1, "{class}");
    }
    assert_eq!(gateway.count("weir_http_route_request_duration_seconds", &of_route), 1);
    for part in ["", "upstream_", "overhead_"] {
        assert_eq!(gateway.count(&format!("weir_request_{part}duration_seconds"), &[]), 1, "{part}");
    }
}

/// Runs a gRPC call up to its request at the origin, and `script`, which ends it; the call must have this status.
fn call_ends(status: &str, script: impl FnOnce(&Gateway, Http2Client, OriginEnd)) {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = Http2Client::new(gateway.client());
    client.request(
        1,
        &[(":method", "POST"), (":path", "/a.B/C"), ("content-type", "application/grpc"), ("te", "trailers")],
    );
    let mut origin = gateway.origin.accept();
    origin.request();
    script(&gateway, client, origin);
    gateway.rests();
    assert_eq!(gateway.counter("weir_grpc_responses_total", &[("status", status)]), 1, "{status}");
    assert_eq!(gateway.counter("weir_grpc_responses_total", &[]), 1, "{status}");
}

/// A part of the response, up to the client.
fn begin(client: &mut Http2Client, origin: &mut OriginEnd) {
    origin.send("HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nContent-Length: 10\r\n\r\nabc");
    client.0.0.until("abc");
}

#[test]
fn a_grpc_call_that_its_client_leaves_is_cancelled() {
    call_ends("1", |_, client, _origin| drop(client));
    call_ends("1", |_, mut client, mut origin| {
        begin(&mut client, &mut origin);
        client.reset(1);
        drop(client);
        origin.0.rest();
    });
}

#[test]
fn a_grpc_call_that_the_end_of_a_drain_cuts_is_unavailable() {
    call_ends("14", |gateway, mut client, _origin| {
        gateway.cut();
        client.0.0.rest();
    });
    call_ends("14", |gateway, mut client, mut origin| {
        begin(&mut client, &mut origin);
        gateway.cut();
        client.0.0.rest();
    });
}

#[test]
fn a_grpc_call_that_its_origin_breaks_off_is_internal() {
    call_ends("13", |_, mut client, mut origin| {
        begin(&mut client, &mut origin);
        drop(origin);
        assert!(client.response(1).is_reset);
    });
}

/// Responses of listener and upstream in this class, with a code of 0.
fn expect_one(gateway: &Gateway, class: &str) {
    gateway.rests();
    for family in ["weir_http_listener_responses_total", "weir_http_upstream_responses_total"] {
        let count = |class| gateway.counter(family, &[("class", class)]);
        let others = ["broken", "aborted"].map(count).iter().sum::<u64>() - count(class);
        assert_eq!((count(class), others), (1, 0), "{family}");
    }
    assert_eq!(gateway.counter("weir_http_responses_total", &[("code", "0")]), 1);
}

#[test]
fn a_request_that_the_end_of_a_drain_cuts_before_its_response_is_not_blamed_on_its_client() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut origin = gateway.origin.accept();
            origin.request();
            gateway.cut();
            client.0.rest();
            expect_one(gateway, "broken");
        },
    );
    assert_eq!((fact.status, fact.end, &*fact.reason), (0, CompletionStatus::Aborted, "drain_cut"));
}

#[test]
fn a_client_that_disconnects_before_its_response_is_reported_and_counted() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut origin = gateway.origin.accept();
            origin.request();
            // First the client: an origin that leaves is another end.
            drop(client);
            expect_one(gateway, "aborted");
        },
    );
    assert_eq!((fact.status, fact.end, &*fact.reason), (0, CompletionStatus::ClientGone, "client_reset"));
}

#[test]
fn a_client_that_disconnects_in_its_upload_is_reported() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
            drop(client);
        },
    );
    assert_eq!(fact.status, 400, "{fact:?}");
    assert_eq!((fact.request_bytes, fact.end, &*fact.reason), (3, CompletionStatus::Refused, "body_cut"));
}

#[test]
fn a_response_of_the_route_is_reported() {
    let response = DirectResponse { status: 204, content_type: String::new(), body: Vec::new() };
    let fact = settled(
        |action| action.target = Target::Response(Arc::new(response)),
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response();
        },
    );
    assert_eq!((fact.status, fact.end, &*fact.upstream), (204, CompletionStatus::Completed, ""));
}

#[test]
fn a_websocket_is_reported_with_its_handshake() {
    let fact = settled(
        |action| action.upgrades = Some(Upgrades { websocket: true }),
        |gateway| {
            let mut client = gateway.client();
            let wish = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
            let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
            client.send(&format!("GET / HTTP/1.1\r\nHost: a\r\n{wish}{key}\r\n"));
            let mut origin = gateway.origin.accept();
            origin.request();
            let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
            origin.send(&format!("HTTP/1.1 101 Switching Protocols\r\n{wish}{accept}\r\n"));
            assert!(client.head().starts_with("HTTP/1.1 101 "));
        },
    );
    assert_eq!((fact.status, fact.end, &*fact.reason, &*fact.upstream), (101, CompletionStatus::Completed, "ok", "a"));
}

#[test]
fn the_end_names_the_caller() {
    let (filter, heard) = recording();
    let mut setup = Setup::plain(|action| {
        action.policies = Some(Box::new(with_a_key()));
        filter.install(action);
    });
    setup.change = Box::new(|settings| settings.request_id = true);
    let gateway = Gateway::start(setup);
    gateway.exchange("GET / HTTP/1.1\r\nHost: a\r\nX-Key: secret\r\n\r\n", OK);
    let Caller { route, client, identity, request_id } = heard.settled().caller;
    assert_eq!((&*route, client), ("of /", IpAddr::from([192, 0, 2, 1])));
    assert_eq!((identity.as_deref(), request_id.map(|id| id.len())), (Some("owner"), Some(36)));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response();
    let fact = heard.settled();
    assert_eq!((fact.status, fact.caller.identity, fact.caller.request_id), (401, None, None));
}

fn gone(status: u16) -> Call {
    let (reason, upstream) = (String::new(), String::new());
    let caller = Caller { route: "".into(), client: IpAddr::from([0; 4]), identity: None, request_id: None };
    Call::ExchangeSummary(ExchangeEnd {
        status,
        request_bytes: 0,
        response_bytes: 0,
        end: CompletionStatus::Completed,
        reason,
        upstream,
        caller,
    })
}

/// One exchange whose filter panics in these calls; returns the reported end.
fn panicked(panics: Vec<Call>, is_stream: bool) -> ExchangeEnd {
    let (mut filter, heard) = recording();
    (filter.inspect, filter.tap, filter.panics) = (Inspect::Buffered(100), Tap::Follow, panics);
    let setup = Setup { panics: 1, ..Setup::plain(|action| filter.install(action)) };
    let gateway = Gateway::start(setup);
    let (mut client, mut stream);
    if is_stream {
        stream = Http2Client::new(gateway.client());
        stream.request(1, &[(":method", "GET"), (":path", "/")]);
    } else {
        client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(OK);
    heard.settled()
}

#[test]
fn a_panic_is_reported_as_one_and_ends_no_process() {
    let follow = Call::Follow(Vec::new());
    for is_stream in [false, true] {
        let fact = panicked(vec![follow.clone()], is_stream);
        assert_eq!((fact.end, &*fact.reason), (CompletionStatus::Aborted, "internal_invariant"));
        // A second one, while the first unwinds.
        let fact = panicked(vec![follow.clone(), gone(0)], is_stream);
        assert_eq!((fact.end, &*fact.reason), (CompletionStatus::Aborted, "internal_invariant"));
    }
}
