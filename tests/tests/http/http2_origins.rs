//! Origins that speak HTTP/2: real ones, and scripted ones that misbehave.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::{HttpClient, unchunked};
use weir_tests::http2::{Http2Origin, Http2Peer, block, code, flag, frame, get, kind};
use weir_tests::nginx::Nginx;
use weir_tests::stream::Address;

mod goaway;

const HTTP2: &str = "[upstream.http]\nversion = \"2\"";

/// In front of an origin that speaks HTTP/2.
fn before(origin: &Address) -> Config {
    Config::http(origin).upstream(HTTP2)
}

/// Sends a whole response.
fn respond(peer: &mut Http2Peer, stream: u32, body: &str) {
    peer.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&[(":status", "200")])));
    peer.send(frame(kind::DATA, flag::END_STREAM, stream, body.as_bytes()));
}

fn reset(peer: &mut Http2Peer, stream: u32, code: u32) {
    peer.send(frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes()));
}

fn go_away(peer: &mut Http2Peer, last: u32, code: u32) {
    peer.send(frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()));
}

/// Responds to every request with the number of its connection.
fn serve(number: usize, peer: &mut Http2Peer) {
    while let Some(stream) = peer.next_request() {
        respond(peer, stream, &number.to_string());
    }
}

fn curl(words: &[&str], url: &str) -> String {
    let output = Command::new("curl").args(["-sSk", "--max-time", "20"]).args(words).arg(url).output();
    let output = output.expect("curl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_real_origin_is_spoken_to_in_http2_whatever_the_client_speaks() {
    let echo = "location = /echo { return 200 \"$server_protocol $scheme $host $http_x_forwarded_for $http_x_own\"; }";
    let nginx = Nginx::start("http2", echo);
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(nginx.folder().join("large"), &large).expect("written");
    let gateway = Gateway::start(before(&nginx.address));
    let url = |path: &str| format!("http://{}{path}", gateway.address.text());
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let own = ["-H", "Host: a.example", "-H", "X-Own: 1", version];
        assert_eq!(curl(&own, &url("/echo")), "HTTP/2.0 http a.example 127.0.0.1 1", "{version}");
        assert_eq!(curl(&[version, "-I", "-w", "%{http_code}", "-o", "/dev/null"], &url("/large")), "200");
        let file = gateway.folder().join("got");
        curl(&[version, "-o", &file.display().to_string()], &url("/large"));
        assert!(std::fs::read(&file).expect("written") == large, "{version}: the body changed on its way");
        let tag = curl(&[version, "-o", "/dev/null", "-w", "%header{etag}"], &url("/large"));
        let unchanged = format!("If-None-Match: {tag}");
        assert_eq!(curl(&[version, "-H", &unchanged, "-o", "/dev/null", "-w", "%{http_code}"], &url("/large")), "304");
        assert_eq!(curl(&[version, "-w", "%{http_code}", "-o", "/dev/null"], &url("/none")), "404");
    }
    gateway.finish();
}

#[test]
fn a_request_from_before_hosts_reaches_the_origin() {
    let nginx = Nginx::start("http2", "location / { return 200 \"$host\"; }");
    let gateway = Gateway::start(before(&nginx.address));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().content(), "localhost");
    drop(client);
    gateway.finish();
}

#[test]
fn an_origin_with_tls_must_agree_on_http2() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let (certificate, key) = (files.server.display(), files.server_key.display());
    let lines = format!(
        "ssl_certificate {certificate}; ssl_certificate_key {key}; location / {{ return 200 \"$server_protocol $scheme\"; }}"
    );
    for (options, status) in [("ssl http2", 200), ("ssl", 502)] {
        let nginx = Nginx::start(options, &lines);
        let tls = format!("[upstream.tls]\nca_file = \"{}\"", files.authority.display());
        let gateway = Gateway::start(before(&nginx.address).upstream(&tls));
        let response = HttpClient::connect(&gateway.address).get("/");
        assert_eq!(response.status, status, "listen {options}");
        if status == 200 {
            assert_eq!(response.content(), "HTTP/2.0 https");
        } else {
            gateway.wait_metric("weir_lane_connect_failures_total", &[], 1.0);
        }
        gateway.finish();
    }
}

#[test]
fn many_requests_share_one_connection_and_a_further_one_is_made_when_it_is_full() {
    let (waits, arrived) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (limit, seen) = (waits.clone(), arrived.clone());
    waits.store(8, Ordering::SeqCst);
    let origin = Http2Origin::start(move |number, peer| {
        let mut open = Vec::new();
        while let Some(stream) = peer.next_request() {
            open.push(stream);
            seen.fetch_add(1, Ordering::SeqCst);
            // Nothing is answered before so many are there.
            if open.len() >= limit.load(Ordering::SeqCst) {
                open.drain(..).for_each(|stream| respond(peer, stream, &number.to_string()));
            }
        }
    });
    let gateway = Gateway::start(before(&origin.address).upstream("streams_max = 8"));
    let ask = |count: usize| {
        let mut clients: Vec<_> = (0..count).map(|_| HttpClient::connect(&gateway.address)).collect();
        clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        clients.iter_mut().map(|client| client.response().content()).collect::<Vec<_>>()
    };
    assert_eq!(ask(8), vec!["0"; 8]);
    assert_eq!(origin.connections(), 1, "requests that come together wait for one connection");
    let mut places = ask(16);
    places.sort();
    assert_eq!(places, [vec!["0"; 8], vec!["1"; 8]].concat());
    assert_eq!(origin.connections(), 2);
    gateway.finish();
}

#[test]
fn a_stream_that_the_origin_has_not_begun_is_retried_elsewhere() {
    let origin = Http2Origin::start(|number, peer| {
        if number > 0 {
            return serve(number, peer);
        }
        let Some(stream) = peer.next_request() else { return };
        respond(peer, stream, "first");
        let Some(stream) = peer.next_request() else { return };
        // It goes down, and has not begun with the last one.
        go_away(peer, stream - 2, code::NO_ERROR);
        while peer.next_frame().is_some() {}
    });
    let gateway = Gateway::start(before(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(client.get("/").content(), "first");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let response = client.response();
    assert_eq!(
        (response.status, response.content().as_str()),
        (200, "1"),
        "nobody has seen it, so it may be any method"
    );
    drop(client);
    gateway.finish();
}

#[test]
fn a_refused_stream_is_retried_and_not_for_ever() {
    let refused = Arc::<AtomicUsize>::default();
    let (count, patience) = (refused.clone(), Arc::new(AtomicUsize::new(1)));
    let left = patience.clone();
    let origin = Http2Origin::start(move |number, peer| {
        while let Some(stream) = peer.next_request() {
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
                reset(peer, stream, code::REFUSED_STREAM);
            } else {
                respond(peer, stream, &number.to_string());
            }
        }
    });
    let gateway = Gateway::start(before(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(refused.load(Ordering::SeqCst), 1);
    patience.store(1_000, Ordering::SeqCst);
    assert_eq!(client.get("/").status, 502);
    assert_eq!(refused.load(Ordering::SeqCst), 4, "three attempts");
    // The origin has not begun with the request, so any method may be retried; a body is sent again if it was kept.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.response().status, 502);
    assert_eq!(refused.load(Ordering::SeqCst), 7);
    patience.store(1, Ordering::SeqCst);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.response().status, 200);
    patience.store(0, Ordering::SeqCst);
    assert_eq!(client.get("/").status, 200);
    drop(client);
    gateway.finish();
}

#[test]
fn an_idle_connection_that_the_origin_closed_costs_no_request() {
    let origin = Http2Origin::start(|number, peer| {
        let Some(stream) = peer.next_request() else { return };
        respond(peer, stream, &number.to_string());
        // And it goes, without a word.
        peer.finish();
        peer.rest();
    });
    let gateway = Gateway::start(before(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    for number in 0..5 {
        assert_eq!(client.get("/").content(), number.to_string());
    }
    drop(client);
    gateway.finish();
}

#[test]
fn malformed_responses_become_502_and_the_rest_of_the_connection_goes_on() {
    type Reply = fn(&mut Http2Peer, u32);
    let cases: [(&str, Reply); 5] = [
        ("reset", |peer, stream| reset(peer, stream, code::INTERNAL_ERROR)),
        ("no status", |peer, stream| {
            peer.send(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block(&[("a", "b")])));
        }),
        ("a field in capitals", |peer, stream| {
            let head = block(&[(":status", "200"), ("Upper", "b")]);
            peer.send(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &head));
        }),
        ("a field of the connection", |peer, stream| {
            let head = block(&[(":status", "200"), ("transfer-encoding", "chunked")]);
            peer.send(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &head));
        }),
        ("two lengths", |peer, stream| {
            let head = block(&[(":status", "200"), ("content-length", "0"), ("content-length", "0")]);
            peer.send(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &head));
        }),
    ];
    for (name, reply) in cases {
        let asked = Arc::<AtomicUsize>::default();
        let origin = Http2Origin::start(move |number, peer| {
            while let Some(stream) = peer.next_request() {
                match asked.fetch_add(1, Ordering::SeqCst) % 2 {
                    0 => respond(peer, stream, &number.to_string()),
                    _ => reply(peer, stream),
                }
            }
        });
        let gateway = Gateway::start(before(&origin.address));
        let mut client = HttpClient::connect(&gateway.address);
        assert_eq!(client.get("/").content(), "0", "{name}");
        assert_eq!(client.get("/").status, 502, "{name}");
        assert_eq!(client.get("/").status, 200, "{name}");
        drop(client);
        gateway.finish();
    }
}

#[test]
fn a_connection_that_breaks_the_protocol_is_one_failure_however_many_streams_it_has() {
    let asked = Arc::<AtomicUsize>::default();
    let count = asked.clone();
    let bad = Http2Origin::start(move |_, peer| {
        for _ in 0..10 {
            if peer.next_request().is_none() {
                return;
            }
            count.fetch_add(1, Ordering::SeqCst);
        }
        peer.send(frame(kind::DATA, 0, 0, b"of no stream"));
        while peer.next_frame().is_some() {}
    });
    let good = Http2Origin::start(|number, peer| {
        while let Some(stream) = peer.next_request() {
            respond(peer, stream, &number.to_string());
        }
    });
    let lines = "[upstream.http]\nversion = \"2\"\n[upstream.health]\nenabled = false\n";
    let config = Config { protocol: "http", ..Config::to_all([&bad.address, &good.address]) }.upstream(lines);
    let gateway = Gateway::start(config);
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let address = gateway.address.clone();
            std::thread::spawn(move || HttpClient::connect(&address).get("/").status)
        })
        .collect();
    let failed = clients.into_iter().map(|client| client.join().expect("a response"));
    assert_eq!(failed.filter(|status| *status == 502).count(), 10);
    assert_eq!(asked.load(Ordering::SeqCst), 10);
    assert_eq!(gateway.metrics().sum("weir_endpoint_ejections_total"), 0.0);
    gateway.finish();
}

#[test]
fn interim_responses_and_trailers_go_on() {
    let origin = Http2Origin::start(|_, peer| {
        while let Some(stream) = peer.next_request() {
            let early = block(&[(":status", "103"), ("link", "</style.css>")]);
            peer.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &early));
            peer.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&[(":status", "200")])));
            peer.send(frame(kind::DATA, 0, stream, b"hello"));
            let trailers = block(&[("x-digest", "7"), ("content-length", "9")]);
            peer.send(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &trailers));
        }
    });
    let gateway = Gateway::start(before(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    let early = client.response();
    assert_eq!((early.status, early.field("link").as_deref()), (103, Some("</style.css>")));
    let response = client.response();
    assert_eq!(unchunked(&response.body), b"hello");
    let body = response.text();
    assert!(body.ends_with("0\r\nx-digest: 7\r\n\r\n"), "a trailer that says a length is none: {body:?}");
    drop(client);
    let mut client = Http2Peer::connect(&gateway.address);
    client.request(1, &get("/"));
    client.next_of(kind::DATA);
    let trailers = client.next_of(kind::HEADERS);
    assert!(trailers.flags & flag::END_STREAM != 0, "{trailers:?}");
    drop(client);
    gateway.finish();
}

#[test]
fn a_response_that_breaks_off_does_not_look_complete() {
    let origin = Http2Origin::start(|number, peer| {
        while let Some(stream) = peer.next_request() {
            match number {
                0 => {
                    peer.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&[(":status", "200")])));
                    peer.send(frame(kind::DATA, 0, stream, b"half"));
                    std::thread::sleep(Duration::from_millis(50));
                    return;
                }
                _ => respond(peer, stream, "whole"),
            }
        }
    });
    let gateway = Gateway::start(before(&origin.address));
    let output = Command::new("curl").args(["-sS", &format!("http://{}/", gateway.address.text())]).output();
    let output = output.expect("curl runs");
    assert_eq!(output.status.code(), Some(18), "transfer closed with outstanding read data remaining");
    assert_eq!(HttpClient::connect(&gateway.address).get("/").content(), "whole");
    gateway.finish();
}

#[test]
fn an_origin_that_does_not_answer_is_504_and_one_that_speaks_something_else_502() {
    let silent = Http2Origin::start(|_, peer| while peer.next_frame().is_some() {});
    let gateway = Gateway::start(before(&silent.address).listener("[listener.http]\nresponse_timeout = \"300ms\""));
    assert_eq!(HttpClient::connect(&gateway.address).get("/").status, 504);
    gateway.finish();
    let plain = weir_tests::faulty::Faulty::http(|_| unreachable!("a preface is no request"));
    let gateway = Gateway::start(before(&plain.address).listener("[listener.http]\nresponse_timeout = \"500ms\""));
    let status = HttpClient::connect(&gateway.address).get("/").status;
    assert!(matches!(status, 502 | 504), "{status}");
    gateway.finish();
}

#[test]
fn bytes_where_no_body_may_be_are_no_response_to_the_next_request() {
    let origin = Http2Origin::start(|_, peer| {
        let forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
        while let Some(stream) = peer.next_request() {
            match stream {
                1 => {
                    peer.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&[(":status", "204")])));
                    peer.send(frame(kind::DATA, flag::END_STREAM, stream, forged));
                }
                _ => respond(peer, stream, "true"),
            }
        }
    });
    let gateway = Gateway::start(before(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(client.get("/").status, 204);
    assert_eq!(client.get("/").content(), "true");
    drop(client);
    gateway.finish();
}

#[test]
fn a_connection_that_answers_nothing_any_more_is_given_up() {
    let origin = Http2Origin::start(|number, peer| match number {
        0 => while peer.next_frame().is_some() {},
        _ => serve(number, peer),
    });
    let quiet = "[upstream.breaker]\nfailures = 1000\n[upstream.http.ejection]\nfailures = 0";
    let gateway = Gateway::start(
        before(&origin.address).upstream(quiet).listener("[listener.http]\nresponse_timeout = \"200ms\""),
    );
    let mut client = HttpClient::connect(&gateway.address);
    let statuses: Vec<u16> = (0..4).map(|_| client.get("/").status).collect();
    assert_eq!(statuses, [504, 504, 200, 200]);
    drop(client);
    gateway.finish();
}

#[test]
fn a_body_in_tiny_pieces_goes_on_in_few_frames() {
    let frames = Arc::<AtomicUsize>::default();
    let count = frames.clone();
    let origin = Http2Origin::start(move |_, peer| {
        while let Some(frame) = peer.next_frame() {
            if frame.kind == kind::DATA {
                count.fetch_add(1, Ordering::SeqCst);
                if frame.flags & flag::END_STREAM != 0 {
                    respond(peer, frame.stream, "done");
                }
            }
        }
    });
    let gateway = Gateway::start(before(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    let body = "1\r\nx\r\n".repeat(2_000) + "0\r\n\r\n";
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
    assert_eq!(client.response().content(), "done");
    assert!(frames.load(Ordering::SeqCst) < 100, "{frames:?}");
    drop(client);
    gateway.finish();
}

#[test]
fn a_client_that_goes_takes_its_stream_back() {
    let cancelled = Arc::<AtomicUsize>::default();
    let count = cancelled.clone();
    let origin = Http2Origin::start(move |_, peer| {
        while let Some(frame) = peer.next_frame() {
            if frame.kind == kind::RST_STREAM {
                count.fetch_add(1, Ordering::SeqCst);
                assert_eq!(frame.code(), code::CANCEL);
            }
        }
    });
    let gateway = Gateway::start(before(&origin.address));
    let mut client = Http2Peer::connect(&gateway.address);
    client.request(1, &get("/"));
    gateway.wait_metric("weir_lane_requests_in_flight", &[], 1.0);
    drop(client);
    weir_tests::deadline::until_true("the stream to be cancelled", || cancelled.load(Ordering::SeqCst) == 1);
    gateway.finish();
}

/// Waits until the test has come so far.
fn await_step(step: &AtomicUsize, at: usize) {
    let limit = 4 * weir_tests::deadline::WAIT;
    weir_tests::deadline::until(format!("step {at}"), limit, || (step.load(Ordering::SeqCst) >= at).then_some(()));
}

/// Says that `last` is the last stream, and waits until the gateway knows it.
fn drain(peer: &mut Http2Peer, last: u32) {
    go_away(peer, last, code::NO_ERROR);
    peer.send(frame(kind::PING, 0, 0, &[0; 8]));
    while peer.next_of(kind::PING).flags & flag::ACK == 0 {}
}

#[test]
fn connections_that_the_origin_drains_do_not_keep_a_worker_from_having_one() {
    let (step, drained) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (seen, count) = (step.clone(), drained.clone());
    let origin = Http2Origin::start(move |number, peer| {
        let Some(stream) = peer.next_request() else { return };
        if number < 4 {
            drain(peer, stream);
            count.fetch_add(1, Ordering::SeqCst);
            await_step(&seen, 1);
        }
        respond(peer, stream, &number.to_string());
        serve(number, peer);
    });
    let gateway = Gateway::start(before(&origin.address).upstream("connections_max = 1"));
    let mut held = Vec::new();
    for number in 0..4 {
        let mut client = HttpClient::connect(&gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        held.push(client);
        await_step(&drained, number + 1);
    }
    assert_eq!(HttpClient::connect(&gateway.address).get("/").content(), "4");
    step.store(1, Ordering::SeqCst);
    for (number, client) in held.iter_mut().enumerate() {
        assert_eq!(client.response().content(), number.to_string(), "what drains goes on");
    }
    drop(held);
    gateway.finish();
}

#[test]
fn a_request_that_waits_has_a_connection_as_soon_as_the_full_one_drains() {
    const ROUNDS: usize = 5;
    let step = Arc::<AtomicUsize>::default();
    let seen = step.clone();
    let origin = Http2Origin::start(move |number, peer| {
        let Some(stream) = peer.next_request() else { return };
        let round = number / 2;
        if number % 2 == 0 {
            // Full, and held until another request waits.
            await_step(&seen, 2 * round + 1);
            go_away(peer, stream, code::NO_ERROR);
            await_step(&seen, 2 * round + 2);
            respond(peer, stream, &number.to_string());
        } else {
            // In this order the connection is over when the client has its response.
            go_away(peer, stream, code::NO_ERROR);
            respond(peer, stream, &number.to_string());
        }
        peer.rest();
    });
    let lines = format!("lane_wait_timeout = \"30s\"\n{HTTP2}\nstreams_max = 1\nconnections_max = 1");
    let gateway = Gateway::start(Config::http(&origin.address).upstream(&lines));
    for round in 0..ROUNDS {
        let [mut first, mut second] = [(); 2].map(|()| HttpClient::connect(&gateway.address));
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        gateway.wait_metric("weir_requests_in_flight", &[], 1.0);
        second.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        gateway.wait_metric("gateway_lane_pool_waiters", &[], 1.0);
        step.store(2 * round + 1, Ordering::SeqCst);
        assert_eq!(second.response().content(), (2 * round + 1).to_string());
        step.store(2 * round + 2, Ordering::SeqCst);
        assert_eq!(first.response().content(), (2 * round).to_string());
    }
    // The look at idle connections, once a second, would help too, but late.
    let waited = gateway.metrics().sum("gateway_lane_pool_acquire_wait_seconds_sum");
    assert!(waited < ROUNDS as f64 / 2.0, "{ROUNDS} requests waited for {waited} s");
    gateway.finish();
}

#[test]
fn past_eight_connections_that_drain_the_oldest_is_cut_for_a_request_that_waits() {
    const DRAINING: usize = 9;
    let (step, drained) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (seen, count) = (step.clone(), drained.clone());
    let origin = Http2Origin::start(move |number, peer| {
        let Some(stream) = peer.next_request() else { return };
        if number < DRAINING {
            drain(peer, stream);
            count.fetch_add(1, Ordering::SeqCst);
            await_step(&seen, 1);
        }
        respond(peer, stream, &number.to_string());
        peer.rest();
    });
    let lines = format!("lane_wait_timeout = \"30s\"\n{HTTP2}\nconnections_max = 1");
    let gateway = Gateway::start(Config::http(&origin.address).upstream(&lines));
    let mut held = Vec::new();
    for number in 0..DRAINING {
        let mut client = HttpClient::connect(&gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        held.push(client);
        await_step(&drained, number + 1);
    }
    assert_eq!(HttpClient::connect(&gateway.address).get("/").content(), DRAINING.to_string());
    // Before any of them has its response.
    assert_eq!(held[0].response().status, 502);
    step.store(1, Ordering::SeqCst);
    for (number, client) in held.iter_mut().enumerate().skip(1) {
        assert_eq!(client.response().content(), number.to_string(), "the others go on");
    }
    drop(held);
    gateway.finish();
}
