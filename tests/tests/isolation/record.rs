//! S12: what metrics, the admin API and the access log say while clients do all this, and afterwards. Bytes of HTTP, WebSocket
//! and TCP are counted when an exchange ends; nothing is said here of them before.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use weir_tests::deadline::{WAIT, until};
use weir_tests::isolation::{Ask, Cell, Leaving, Protocol, Stand, every};

/// Small exchanges of the client that is well.
const SMALL: usize = 10;
/// How long the others are open together, at least.
const OPEN: Duration = Duration::from_millis(300);

#[test]
fn s12_the_record_is_true_while_connections_are_open_and_afterwards() {
    every("S12", |protocol, _| {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("access.log");
        let lines = format!("[telemetry.access_log]\ntarget = \"file:{}\"\nsample = 1.0\n", log.display());
        let stand = Stand::with(protocol, protocol.origin(), |config| config.tables(&lines));
        let large = Ask::Bytes(200 << 20);
        stand.origin.prepare(&large);
        let begun = Instant::now();
        let mut faults = Vec::new();
        let mut reader = stand.begin(&large);
        let mut taken = 0;
        until("the response to have begun", WAIT, || {
            taken += reader.read(100_000 - taken).expect("a response");
            (taken >= 100_000).then_some(())
        });
        let holder = stand.begin(&Ask::Hold);
        until("the request to be at the origin", WAIT, || (stand.origin.under_way(&Ask::Hold) == Ok(1)).then_some(()));
        let both = Instant::now();
        let mut caller = stand.victim()().expect("a connection");
        for _ in 0..SMALL {
            if let Err(error) = caller.small() {
                faults.push(format!("a small exchange: {error}"));
            }
        }
        while_open(&stand, &mut faults);
        // The record must hold the time that both were open.
        std::thread::sleep(OPEN.saturating_sub(both.elapsed()));
        let left = Instant::now();
        reader.leave(Leaving::Reset);
        holder.leave(Leaving::Reset);
        drop(caller);
        afterwards(protocol, &stand, &log, left - begun, &mut faults);
        let text = if faults.is_empty() { "true" } else { "not true" };
        vec![("metrics, API and log during and after".to_owned(), Cell::figure(text, faults))]
    });
}

/// Three clients are there: one reads nothing more, one waits, one is between its requests.
fn while_open(stand: &Stand, faults: &mut Vec<String>) {
    let gateway = &stand.gateway;
    let name = stand.protocol.name();
    // A connection of TCP or WebSocket is one request for as long as it stands; that of TCP is not in the metric.
    let in_flight = if matches!(name, "TCP" | "WebSocket") { 3.0 } else { 2.0 };
    let measured = if name == "TCP" { 0.0 } else { in_flight };
    let mut claim = |what: &str, is: f64, expected: f64| {
        if is != expected {
            faults.push(format!("{what}: {is}, {expected} would be true"));
        }
    };
    let metrics = gateway.metrics();
    claim("weir_connections_open", metrics.sum("weir_connections_open"), 3.0);
    claim("weir_requests_in_flight", metrics.sum("weir_requests_in_flight"), measured);
    // The display of `top`.
    let listeners = gateway.admin.get("/api/v1/listeners").json();
    let listener = &listeners["listeners"][0];
    claim("connections_open of the listener", number(&listener["connections_open"]), 3.0);
    claim("requests_in_flight of the listener", number(&listener["requests_in_flight"]), measured);
    let requests = metrics.sum("weir_requests_total");
    claim("requests_total of the listener", number(&listener["requests_total"]), requests);
    let page = gateway.admin.get("/api/v1/connections").json();
    let connections = page["connections"].as_array().cloned().unwrap_or_default();
    claim("connections of the API", connections.len() as f64, 3.0);
    let sum: f64 = connections.iter().map(|connection| number(&connection["in_flight"])).sum();
    claim("in_flight of the connections", sum, in_flight);
    let version = match name {
        "Redis" => "RESP2",
        "WebSocket" => "HTTP/1.1",
        name => name,
    };
    for connection in &connections {
        let (speaks, state) = (&connection["protocol_version"], &connection["state"]);
        if speaks != version || state == "unauthenticated" || connection["db"].is_null() == (name == "Redis") {
            faults.push(format!("a connection speaks {speaks}, {version} would be true: {connection}"));
        }
    }
    if matches!(name, "Redis" | "HTTP/1.1" | "HTTP/2") && requests < SMALL as f64 {
        faults.push(format!("weir_requests_total: {requests} after {SMALL} responses"));
    }
}

/// Everybody has left: two in the middle of an exchange, one between two.
fn afterwards(protocol: &dyn Protocol, stand: &Stand, log: &Path, open: Duration, faults: &mut Vec<String>) {
    stand.gateway.wait_at_rest();
    let name = protocol.name();
    let exchanges = if matches!(name, "TCP" | "WebSocket") { 3 } else { SMALL + 2 };
    // The access log of Redis has a line for each command with a whole reply.
    let logged = if name == "Redis" { SMALL } else { exchanges };
    let begun = Instant::now();
    let lines = loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<Json> = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        if lines.len() >= logged || begun.elapsed() > Duration::from_secs(3) {
            break lines;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if lines.len() != logged {
        faults.push(format!("{} lines, {logged} would be true: {lines:?}", lines.len()));
        return;
    }
    // A connection of TCP or WebSocket ends well unless a rule was broken; of the requests, two had no whole response.
    let broken: Vec<_> = lines.iter().filter(|line| line["outcome"] != "ok").collect();
    let cut = logged - if exchanges > 3 { SMALL } else { logged };
    if exchanges > 3 && broken.len() != cut {
        faults.push(format!("{} lines with another outcome than ok, {cut} would be true: {lines:?}", broken.len()));
    }
    let least = OPEN.as_micros() as f64 * 0.5;
    if exchanges > 3 && broken.iter().any(|line| number(&line["duration_us"]) < least) {
        faults.push(format!("a line without the time that it was open: {broken:?}"));
    }
    let most = (open + Duration::from_secs(1)).as_micros() as f64;
    if let Some(line) = lines.iter().find(|line| number(&line["duration_us"]) > most) {
        faults.push(format!("longer than it was open: {line}"));
    }
    let metrics = stand.gateway.metrics();
    let requests = metrics.sum("weir_requests_total");
    // Connections of TCP are counted as such.
    let counted = if name == "TCP" { 0.0 } else { exchanges as f64 };
    if requests != counted {
        faults.push(format!("weir_requests_total: {requests}, {counted} would be true"));
    }
}

fn number(value: &Json) -> f64 {
    value.as_f64().unwrap_or(-1.0)
}
