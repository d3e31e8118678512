//! Many clients at once: tokens that many of them have in common, a server that is silent, streams that follow changes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::flags::{BACKEND, Event, Events, FRONTEND, FlagOrigin, before_with, environment, get, is_retry_after};
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;

const FEATURES: &str = "/api/client/features";
const STREAMING: &str = "/api/client/streaming";

/// Room for all clients of a test, which have one address.
const LIMITS: &str = "[limits]\nconnections = 2000\nconnections_per_source = 2000\n";

fn ready(origin: &FlagOrigin) -> Gateway {
    let gateway = before_with(&origin.address, "", LIMITS, &environment());
    until_true("flags", || get(&gateway.address, FEATURES, BACKEND).status == 200);
    gateway
}

#[test]
fn a_crowd_with_one_new_token_costs_the_server_one_validation() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin);
    origin.faults(r#"{"endpoint":"validate","delay_ms":700}"#);
    let (batches, tokens) =
        (origin.ledger()["validate"]["batches"].clone(), origin.ledger()["validate"]["tokens"].clone());
    let mut clients: Vec<HttpClient> = (0..400).map(|_| HttpClient::connect(&gateway.address)).collect();
    let request = format!("GET /api/frontend HTTP/1.1\r\nHost: a\r\nAuthorization: {FRONTEND}\r\n\r\n");
    clients.iter_mut().for_each(|client| client.send(&request));
    for client in &mut clients {
        assert_eq!(client.response().status, 200, "each waits for the one verdict");
    }
    let ledger = origin.ledger();
    let more = |name: &str, before: &serde_json::Value| {
        ledger["validate"][name].as_u64().zip(before.as_u64()).map(|(now, then)| now - then)
    };
    assert_eq!((more("batches", &batches), more("tokens", &tokens)), (Some(1), Some(1)));
    drop(clients);
    gateway.finish();
}

#[test]
fn a_crowd_that_waits_for_a_server_which_is_silent_is_sent_away_and_the_gateway_serves_on() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin);
    origin.faults(r#"{"endpoint":"validate","delay_ms":60000}"#);
    // More requests than may wait at once.
    let mut clients: Vec<HttpClient> = (0..1_200).map(|_| HttpClient::connect(&gateway.address)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!(
            "GET /api/frontend HTTP/1.1\r\nHost: a\r\nAuthorization: *:development.new-{number}\r\n\r\n"
        ));
    }
    let begun = Instant::now();
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 200, "a known token is served meanwhile");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let mut waits = BTreeSet::new();
    for client in &mut clients {
        let response = client.response();
        let wait = response.field("retry-after");
        assert!(response.status == 503 && is_retry_after(wait.as_deref()), "{} {wait:?}", response.status);
        waits.extend(wait);
    }
    assert!(waits.len() > 1, "a crowd that is sent away does not come back at once: {waits:?}");
    drop(clients);
    gateway.wait_at_rest();
    origin.heal();
    gateway.finish();
}

#[test]
fn streams_follow_changes_however_many_there_are() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin);
    let mut streams: Vec<Events> = (0..300).map(|_| Events::open(&gateway.address, STREAMING, BACKEND, None)).collect();
    let connected: Vec<Event> = streams.iter_mut().map(Events::next).collect();
    assert!(connected.iter().all(|event| event.id == connected[0].id && event.name == "unleash-connected"));
    gateway.wait_metric("weir_flags_streams", &[], 300.0);
    for _ in 0..3 {
        origin.control("POST", "/lab/edit", "");
        let updates: Vec<Event> = streams.iter_mut().map(Events::next).collect();
        for update in &updates {
            assert_eq!(
                (&update.name[..], &update.id, &update.data),
                ("unleash-updated", &updates[0].id, &updates[0].data)
            );
        }
    }
    drop(streams);
    until_true("the streams to end", || gateway.metric("weir_flags_streams") == 0.0);
    gateway.finish();
}
