//! The corpus of requests that could be read in two ways (`weir_tests::desync`), in front of nginx, Node's own server and Go's.
//! For each: the response to the client, the bytes on the wire and the request that the origin understood are one and the same; the wire can
//! be read in one way only; and the next client on the connection gets the response to its own request.

use std::collections::BTreeSet;

use weir_tests::deadline::until_true;
use weir_tests::desync::view::{self, Request};
use weir_tests::desync::{Case, ExpectedRequest, Stream, cases, streams};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::http_origin::{HttpOrigin, Kind, ReceivedRequest};
use weir_tests::http2::{Http2Peer, flag, kind};
use weir_tests::tap::Tap;

/// A request that is forwarded as it should be, and that this origin itself refuses.
struct Exception {
    origin: Kind,
    /// Names of the cases.
    cases: &'static [&'static str],
    /// Its status, for all of the request's bytes or for none.
    status: u16,
    #[expect(dead_code, reason = "for the reader")]
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        origin: Kind::Nginx,
        cases: &["method-lower-case", "method-odd-token"],
        status: 400,
        reason: "nginx takes methods of upper-case letters, `_` and `-` only",
    },
    Exception {
        origin: Kind::Nginx,
        cases: &["method-options-asterisk", "path-asterisk-of-options", "upgrade-tls"],
        status: 400,
        reason: "nginx knows no `*` as a target",
    },
    Exception {
        origin: Kind::Nginx,
        cases: &["host-none-on-http-10"],
        status: 400,
        reason: "the client named no host and HTTP/1.1 wants the field: it goes on empty (RFC 9112 section 3.2)",
    },
    Exception {
        origin: Kind::Node,
        cases: &["method-lower-case", "method-unknown", "method-odd-token"],
        status: 400,
        reason: "Node takes methods of its own list only",
    },
];

/// Beyond this an input comes in larger pieces.
const BYTE_BY_BYTE_MAX: usize = 2_000;

struct Scene {
    kind: Kind,
    origin: HttpOrigin,
    tap: Tap,
    gateway: Gateway,
    /// Targets of requests that an origin has begun to read, and may tell of although it has answered none of them with 200.
    begun: BTreeSet<String>,
    /// The requests on the wire for each case, without the fields that differ every time.
    views: Vec<(String, Vec<Request>)>,
}

/// How far everything was before a case.
struct Mark {
    sent: Vec<usize>,
    seen: usize,
    counted: f64,
}

/// The assertions of one case besides the response to its client.
struct Judged<'a> {
    name: &'a str,
    way: &'a str,
    seen: &'a [ExpectedRequest],
    is_cut: bool,
    /// Requests that the gateway counts; more than that if it is not certain.
    counted: Option<usize>,
    /// The origin refuses what it gets.
    is_exception: bool,
}

impl Scene {
    fn before(kind: Kind) -> Self {
        let origin = HttpOrigin::start(kind);
        let tap = Tap::before(&origin.address);
        // After HEAD a connection rests; at the limit it gives way, so that there is one all the same.
        let gateway = Gateway::start(
            Config::http(&tap.address)
                .listener("[listener.http]\nhalf_close = true\nrequest_body_bytes_max = 0")
                .upstream("[upstream.http]\nconnections_max = 1"),
        );
        Self { kind, origin, tap, gateway, begun: BTreeSet::new(), views: Vec::new() }
    }

    fn counted(&self) -> f64 {
        self.gateway.metric("weir_requests_total")
    }

    fn mark(&self) -> Mark {
        let sent = self.tap.connections().iter().map(|connection| connection.sent.len()).collect();
        Mark { sent, seen: self.whole().len(), counted: self.counted() }
    }

    /// Requests that the origin saw to their end.
    fn whole(&self) -> Vec<ReceivedRequest> {
        self.origin.seen().into_iter().filter(|seen| seen.is_whole).collect()
    }

    /// The requests on the wire since then, each with the number of its connection.
    fn sent_since(&self, mark: &Mark, name: &str) -> Vec<(usize, Request)> {
        let mut sent = Vec::new();
        for (number, connection) in self.tap.connections().iter().enumerate() {
            let bytes = &connection.sent[mark.sent.get(number).copied().unwrap_or(0)..];
            let requests = view::requests(bytes)
                .unwrap_or_else(|error| panic!("{name}: {error}\n{}", String::from_utf8_lossy(bytes)));
            let is_cut = requests.last().is_some_and(|last| !last.is_whole);
            assert!(!is_cut || connection.is_ended, "{name}: a connection with half a request on it goes on");
            sent.extend(requests.into_iter().map(|request| (number, request)));
        }
        sent
    }

    /// Two other clients, one after the other: each gets its own response, and the origin tells of both.
    fn canaries(&self, name: &str, way: &str) -> [String; 2] {
        let canaries = [1, 2].map(|number| {
            let target = format!("/canary/{name}/{way}/{number}");
            let response = HttpClient::connect(&self.gateway.address).get(&target);
            assert_eq!((response.status, response.content()), (200, format!("GET {target}")), "{name}, {way}");
            target
        });
        until_true(format!("{name}, {way}: {:?} to tell of the last", self.kind), || {
            self.whole().iter().any(|seen| seen.target == canaries[1])
        });
        canaries
    }

    /// The wire and the origin have seen these requests since then and no others, and then the canaries.
    fn judge(&mut self, mark: &Mark, judged: &Judged<'_>) {
        let Judged { name, way, .. } = *judged;
        let canaries = self.canaries(name, way);
        // A request that was cut short arrives here, to its end, before anything is judged.
        until_true(format!("{name}, {way}: one connection to be left"), || self.tap.open() <= 1);
        let is_canary = |target: &str| canaries.iter().any(|canary| canary == target);
        let sent = self.sent_since(mark, name);
        let (whole, cut): (Vec<_>, Vec<_>) = sent.into_iter().partition(|(_, request)| request.is_whole);
        assert!(cut.len() <= usize::from(judged.is_cut), "{name}, {way}: begun and not ended: {cut:?}");
        self.begun.extend(cut.iter().map(|(_, request)| request.target.clone()));

        // One connection serves one request after the other, and the wire has the order of the case.
        let own: Vec<&(usize, Request)> = whole.iter().filter(|(_, request)| !is_canary(&request.target)).collect();
        let on_wire: Vec<(&str, &str, &[u8])> =
            own.iter().map(|(_, one)| (&one.method[..], &one.target[..], &one.body[..])).collect();
        let expected: Vec<(&str, &str, &[u8])> =
            judged.seen.iter().map(|(method, target, body)| (*method, *target, body.as_bytes())).collect();
        assert_eq!(on_wire, expected, "{name}, {way}: on the wire");
        let counted = (self.counted() - mark.counted) as usize - canaries.len();
        assert!(counted >= own.len() + cut.len(), "{name}, {way}: {counted} requests were counted");
        assert!(judged.counted.is_none_or(|expected| counted == expected), "{name}, {way}: {counted} were counted");
        if judged.is_exception {
            self.begun.extend(own.iter().map(|(_, request)| request.target.clone()));
            // nginx names no target where it has not read that far.
            self.begun.insert(String::new());
        } else {
            let used = |(number, request): &(usize, Request)| is_canary(&request.target).then_some(*number);
            let used: BTreeSet<usize> = whole.iter().filter_map(used).collect();
            let expected = own.last().filter(|(_, request)| request.method != "HEAD").map(|(number, _)| *number);
            assert!(used.len() == 1 && expected.is_none_or(|it| used.contains(&it)), "{name}, {way}: not used again");
            self.compare_log(mark, judged, &whole);
        }
        let requests = own.into_iter().map(|(_, request)| without_chance(request)).collect();
        self.views.push((format!("{name}, {way}"), requests));
    }

    /// The origin has understood what went over the wire.
    fn compare_log(&self, mark: &Mark, judged: &Judged<'_>, whole: &[(usize, Request)]) {
        let (name, way) = (judged.name, judged.way);
        let seen = self.whole().split_off(mark.seen);
        let order: Vec<&str> = judged.seen.iter().map(|seen| seen.1).collect();
        assert!(seen.iter().map(|seen| &seen.target[..]).take(order.len()).eq(order), "{name}, {way}: {seen:?}");
        let mut on_wire: Vec<ReceivedRequest> = whole
            .iter()
            .map(|(_, request)| ReceivedRequest {
                method: request.method.clone(),
                target: request.target.clone(),
                host: request.field("host").to_owned(),
                length: request.field("content-length").to_owned(),
                encoding: request.field("transfer-encoding").to_owned(),
                body: String::from_utf8_lossy(&request.body).into_owned(),
                is_whole: true,
            })
            .collect();
        let mut logged = seen;
        on_wire.sort();
        logged.sort();
        assert_eq!(logged, on_wire, "{name}, {way}: {:?}", self.kind);
    }

    /// The bytes of one client, all at once or in pieces, and its end.
    fn play(&mut self, case: &Case, way: &str) {
        let (name, mark) = (case.name, self.mark());
        let mut client = HttpClient::connect(&self.gateway.address);
        let piece = match way {
            "whole" => case.input.len(),
            _ if case.input.len() <= BYTE_BY_BYTE_MAX => 1,
            _ => 1_000,
        };
        // A gateway that has closed reads no more.
        case.input.chunks(piece).all(|piece| client.try_send(piece));
        let _ = client.stream().half_close();
        let bytes = client.rest();
        let methods = case.seen.iter().map(|seen| seen.0);
        let responses = view::responses(&bytes, methods)
            .unwrap_or_else(|error| panic!("{name}, {way}: {error}\n{}", String::from_utf8_lossy(&bytes)));
        let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
        let exception = self.exception(name);
        match exception {
            Some(exception) => assert_eq!(statuses, [exception.status], "{name}, {way}: no exception any more"),
            None => assert_eq!(statuses, case.responses, "{name}, {way}, {:?}", self.kind),
        }
        assert!(!case.closes || responses.last().is_some_and(|last| last.closes), "{name}, {way}: it must close");
        let own = case.seen.iter().filter(|_| exception.is_none()).map(|seen| (seen.0 != "HEAD").then_some(seen));
        let told = responses.iter().filter(|response| response.status == 200);
        for (seen, response) in own.zip(told) {
            let body = seen.map_or(String::new(), |(method, target, _)| format!("{method} {target}"));
            assert_eq!(response.body, body, "{name}, {way}: a response to something else");
        }
        // A request that the gateway's own parser refuses is not counted.
        let refused = usize::from(case.closes && !case.is_cut);
        let counted = Some(case.responses.len() - refused);
        let (seen, is_cut, is_exception) = (&case.seen[..], case.is_cut, exception.is_some());
        self.judge(&mark, &Judged { name, way, seen, is_cut, counted, is_exception });
    }

    /// One stream of HTTP/2.
    fn play_stream(&mut self, stream: &Stream) {
        let (name, mark) = (stream.name, self.mark());
        let mut client = Http2Peer::connect(&self.gateway.address);
        client.send(&stream.frames);
        let mut has_response = false;
        while let Some(frame) = client.next_frame() {
            has_response |= frame.kind == kind::HEADERS && frame.status() == Some(200);
            let is_end = frame.stream == 1 && frame.flags & flag::END_STREAM != 0;
            if matches!(frame.kind, kind::RST_STREAM | kind::GOAWAY) || is_end {
                break;
            }
        }
        let exception = self.exception(name);
        assert_eq!(has_response, stream.seen.is_some() && exception.is_none(), "HTTP/2 {name}, {:?}", self.kind);
        drop(client);
        let (seen, is_cut): (Vec<ExpectedRequest>, bool) = (stream.seen.into_iter().collect(), stream.is_cut);
        let is_exception = exception.is_some();
        self.judge(&mark, &Judged { name, way: "http2", seen: &seen, is_cut, counted: None, is_exception });
    }

    fn exception(&self, name: &str) -> Option<&'static Exception> {
        EXCEPTIONS.iter().find(|one| one.origin == self.kind && one.cases.contains(&name))
    }

    /// Checks that the origin saw no smuggled request, and that each unfinished one is known.
    fn finish(self) -> Vec<(String, Vec<Request>)> {
        let seen = self.origin.seen();
        let smuggled: Vec<_> = seen.iter().filter(|seen| seen.target.contains("smuggled")).collect();
        assert!(smuggled.is_empty(), "{:?}: {smuggled:?}", self.kind);
        let unknown: Vec<_> = seen.iter().filter(|seen| !seen.is_whole && !self.begun.contains(&seen.target)).collect();
        assert!(unknown.is_empty(), "{:?}: {unknown:?}", self.kind);
        self.gateway.finish();
        self.views
    }
}

/// Without the fields that are new for every request.
fn without_chance(request: &Request) -> Request {
    let mut request = request.clone();
    request.fields.retain(|(name, _)| !matches!(&name[..], "x-request-id" | "traceparent"));
    request
}

/// The requests on the wire in front of an origin of this kind.
fn views(kind: Kind) -> Vec<(String, Vec<Request>)> {
    let mut scene = Scene::before(kind);
    scene.canaries("none", "first");
    for case in cases() {
        scene.play(&case, "whole");
        scene.play(&case, "pieces");
    }
    for stream in streams() {
        scene.play_stream(&stream);
    }
    scene.finish()
}

#[test]
fn nginx_node_and_go_see_the_sent_requests_and_nothing_else() {
    let [nginx, node, go] = Kind::ALL.map(views);
    assert_eq!(go.len(), 2 * cases().len() + streams().len());
    for (other, name) in [(&nginx, "nginx"), (&node, "Node")] {
        for ((case, one), (_, two)) in other.iter().zip(&go) {
            assert_eq!(one, two, "{case}: {name} was sent something else than Go");
        }
    }
    let known: BTreeSet<&str> =
        cases().iter().map(|case| case.name).chain(streams().iter().map(|one| one.name)).collect();
    let named = EXCEPTIONS.iter().flat_map(|one| one.cases).filter(|name| !known.contains(*name)).collect::<Vec<_>>();
    assert!(named.is_empty(), "exceptions of cases that there are none of: {named:?}");
}
