//! Requests on connections that their origin drains: those it has not begun with, and those it may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;
use weir_tests::http2::{Http2Origin, Http2Peer, code, frame, kind};

use super::{HTTP2, before, go_away, respond, serve};

#[test]
fn streams_above_the_last_of_a_goaway_are_retried_past_the_budget() {
    const STREAMS: usize = 12;
    let origin = Http2Origin::start(|number, peer| {
        let count = if number == 0 { STREAMS } else { STREAMS - 1 };
        let streams: Vec<_> = std::iter::from_fn(|| peer.next_request()).take(count).collect();
        if number == 0 {
            // All but the first are on their way when the connection drains.
            go_away(peer, streams[0], code::NO_ERROR);
            respond(peer, streams[0], "0");
        } else {
            // All retries are under way at once.
            streams.iter().for_each(|stream| respond(peer, *stream, &number.to_string()));
        }
        peer.rest();
    });
    let gateway = Gateway::start(before(&origin.address).upstream("retry_budget_percent = 0"));
    let mut clients: Vec<_> = (0..STREAMS).map(|_| HttpClient::connect(&gateway.address)).collect();
    clients.iter_mut().for_each(|client| client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
    let mut contents: Vec<_> = clients.iter_mut().map(|client| client.response().content()).collect();
    contents.sort();
    assert_eq!(contents, [vec!["0"], vec!["1"; STREAMS - 1]].concat());
    let retries = gateway.metrics().sum_where("weir_retries_total", &[("outcome", "refused_stream")]);
    assert_eq!(retries, (STREAMS - 1) as f64);
    drop(clients);
    gateway.finish();
}

#[test]
fn a_stream_above_the_last_of_a_goaway_is_retried_however_the_connection_ends() {
    const ROUNDS: usize = 300;
    let origin = Http2Origin::start(|number, peer| {
        let Some(first) = peer.next_request() else { return };
        respond(peer, first, &number.to_string());
        let Some(_) = peer.next_request() else { return };
        let ping = frame(kind::PING, 0, 0, &[0; 8]);
        let last = [first.to_be_bytes(), code::NO_ERROR.to_be_bytes()].concat();
        let goaway = frame(kind::GOAWAY, 0, 0, &last);
        match number % 4 {
            0 => {
                peer.send(goaway);
                peer.rest();
            }
            1 => drop(peer.send(goaway)),
            // The gateway writes to a socket that is closed.
            2 => drop(peer.send([ping, goaway].concat())),
            // A reset comes right behind it, as the origin has not read the acknowledgement.
            _ => {
                peer.send(ping);
                std::thread::sleep(Duration::from_millis(10));
                peer.send(goaway);
            }
        }
    });
    let gateway = Gateway::start(before(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    for round in 0..ROUNDS {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let response = client.response();
        assert_eq!((response.status, response.content()), (200, round.to_string()));
    }
    drop(client);
    gateway.finish();
}

#[test]
fn an_origin_that_drains_every_connection_is_not_tried_for_ever() {
    let seen = Arc::<AtomicUsize>::default();
    let count = seen.clone();
    let origin = Http2Origin::start(move |_, peer| {
        let Some(_) = peer.next_request() else { return };
        count.fetch_add(1, Ordering::SeqCst);
        go_away(peer, 0, code::NO_ERROR);
        peer.rest();
    });
    // One more than `attempts` allows, unless that is 0.
    for (attempts, tries) in [(0, 1), (1, 3), (2, 4)] {
        let lines = format!("[listener.http.retry]\nattempts = {attempts}");
        let gateway = Gateway::start(before(&origin.address).listener(&lines));
        assert_eq!(HttpClient::connect(&gateway.address).get("/").status, 502);
        assert_eq!(seen.swap(0, Ordering::SeqCst), tries, "attempts = {attempts}");
        gateway.finish();
    }
}

#[test]
fn a_stream_that_a_goaway_acknowledges_is_not_sent_again() {
    let seen = Arc::<AtomicUsize>::default();
    let count = seen.clone();
    let origin = Http2Origin::start(move |_, peer| {
        let Some(stream) = peer.next_request() else { return };
        count.fetch_add(1, Ordering::SeqCst);
        go_away(peer, stream, code::NO_ERROR);
    });
    let quiet = "[upstream.breaker]\nfailures = 1000\n[upstream.http.ejection]\nfailures = 0";
    let gateway = Gateway::start(before(&origin.address).upstream(quiet));
    let mut client = HttpClient::connect(&gateway.address);
    for round in 1..=20 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.response().status, 502, "the origin may have acted on it");
        assert_eq!(seen.load(Ordering::SeqCst), round);
    }
    drop(client);
    gateway.finish();
}

/// Sends POSTs at once, each of which has a copy for one of so many origins with this script. Returns the gateway once all copies are
/// over.
fn mirrored(
    posts: usize,
    origins: usize,
    script: impl Fn(usize, &mut Http2Peer) + Clone + Send + Sync + 'static,
) -> Gateway {
    let origin = Http2Origin::start(serve);
    let copies: Vec<_> = (0..origins).map(|_| Http2Origin::start(script.clone()).address.text()).collect();
    let tables = format!(
        "[[route]]\nname = \"all\"\nupstream = \"server\"\nmirror = {{ upstream = \"copies\" }}\n\
         [[upstream]]\nname = \"copies\"\nendpoints = {copies:?}\n{HTTP2}\n"
    );
    let gateway = Gateway::start(before(&origin.address).tables(&tables));
    let mut clients: Vec<_> = (0..posts).map(|_| HttpClient::connect(&gateway.address)).collect();
    clients.iter_mut().for_each(|client| client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    until_true("the copies to be over", || gateway.metric("weir_http_mirrored_total") == posts as f64);
    gateway
}

#[test]
fn a_copy_above_the_last_stream_of_a_goaway_is_sent_again_whatever_its_method() {
    const COPIES: usize = 8;
    let gateway = mirrored(COPIES, 1, |number, peer| {
        let count = if number == 0 { COPIES } else { COPIES - 1 };
        let streams: Vec<_> = std::iter::from_fn(|| peer.next_request()).take(count).collect();
        if number == 0 {
            go_away(peer, streams[0], code::NO_ERROR);
        }
        let served = if number == 0 { &streams[..1] } else { &streams[..] };
        served.iter().for_each(|stream| respond(peer, *stream, "ok"));
        peer.rest();
    });
    assert_eq!(gateway.metrics().sum_where("weir_http_mirrored_total", &[("outcome", "ok")]), COPIES as f64);
    gateway.finish();
}

#[test]
fn copies_that_their_origins_drain_again_and_again_eject_none_of_them() {
    // More than five for each.
    const COPIES: usize = 16;
    let gateway = mirrored(COPIES, 2, |_, peer| {
        let Some(_) = peer.next_request() else { return };
        go_away(peer, 0, code::NO_ERROR);
        peer.rest();
    });
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum_where("weir_http_mirrored_total", &[("outcome", "failed")]), COPIES as f64);
    assert_eq!(metrics.sum("weir_endpoint_ejections_total"), 0.0);
    gateway.finish();
}
