//! The pages of hot keys, big keys, slow requests and clients.

use std::time::Instant;

use weir_admin::status::{
    BigKeyList, BigKeyStatus, ConnectionPage, ConnectionState, ConnectionStatus, HotKeyList, HotKeyStatus,
    KeyDirection, KeyNames, PoolWait, SlowLogList, SlowRequestStatus,
};

use super::{listener, sample, screen, state_of, words};
use crate::top::client::Sample;
use crate::top::insight::{self, InsightData, Page};
use crate::top::render;
use crate::top::state::State;

fn with(remembered: InsightData) -> Sample {
    Sample { remembered: Some(remembered), ..sample(Instant::now(), 0.0, vec![listener("cache", 1)]) }
}

fn hot_key(key: &str, per_second: f64) -> HotKeyStatus {
    HotKeyStatus {
        key: key.to_owned(),
        key_bytes: key.len() as u64,
        hash: "00000000000000aa".to_owned(),
        upstream: "redis-main".to_owned(),
        db: 2,
        command: "get".to_owned(),
        per_second,
        samples: 40,
    }
}

fn hot_keys(names: KeyNames, keys: Vec<HotKeyStatus>) -> InsightData {
    InsightData::HotKeys(HotKeyList { names, sample: 64, hot_keys: keys, workers_silent: Vec::new() })
}

fn slow_request(id: u64) -> SlowRequestStatus {
    SlowRequestStatus {
        id,
        ended_at: 1_000_000.5,
        duration_seconds: 0.0123,
        gateway_seconds: 0.0023,
        upstream_seconds: 0.01,
        command: vec!["KEYS".to_owned(), "*".to_owned()],
        requests: 1,
        outcome: "ok".to_owned(),
        connection: 7,
        peer: "10.0.0.9:5000".to_owned(),
        client_name: Some("batch-job".to_owned()),
        user: None,
        listener: "cache".to_owned(),
        worker: 0,
        upstream: "redis-main".to_owned(),
        endpoint: Some("10.0.0.1:6379".to_owned()),
    }
}

fn on(page: Page, sample: Sample) -> State {
    let mut state = state_of([sample]);
    state.page = page;
    state
}

#[test]
fn hot_keys_stand_in_the_order_of_the_response() {
    let keys = vec![hot_key("session:1", 12_345.6), hot_key("user name", 20.0)];
    let mut state = on(Page::HotKeys, with(hot_keys(KeyNames::Full, keys)));
    let lines = screen(&mut state, 80, 24, Instant::now());
    assert_eq!(words(&lines, "12.3k"), ["12.3k", "get", "2", "session:1"]);
    assert!(lines.iter().any(|line| line.contains("by one request of 64")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("user name")));
    let wide = screen(&mut state, 120, 24, Instant::now());
    assert_eq!(words(&wide, "12.3k"), ["12.3k", "40", "get", "redis-main", "2", "session:1"]);
    assert!(!wide.iter().any(|line| line.starts_with("LISTENER")), "one table fills the screen");
    let mut state = on(Page::HotKeys, with(hot_keys(KeyNames::Off, Vec::new())));
    let lines = screen(&mut state, 80, 24, Instant::now());
    assert!(lines.iter().any(|line| line.contains("not looked at")), "{lines:#?}");
}

#[test]
fn big_keys_show_their_size_and_unit() {
    let big = BigKeyStatus {
        key: "report".to_owned(),
        key_bytes: 6,
        hash: "00000000000000aa".to_owned(),
        upstream: "redis-main".to_owned(),
        db: 0,
        bytes: 11 << 20,
        direction: KeyDirection::Reply,
        command: "hgetall".to_owned(),
        age_seconds: 65.0,
    };
    let list = BigKeyList { names: KeyNames::Full, big_keys: vec![big], workers_silent: vec![1] };
    let mut state = on(Page::BigKeys, with(InsightData::BigKeys(list)));
    let lines = screen(&mut state, 80, 24, Instant::now());
    assert_eq!(words(&lines, "11.0"), ["11.0", "MiB", "reply", "hgetall", "1m05s", "0", "report"]);
    assert!(lines.iter().any(|line| line.contains("worker [1] silent")), "{lines:#?}");
}

#[test]
fn slow_requests_show_client_command_and_times() {
    let mut run = slow_request(8);
    (run.requests, run.client_name, run.command) = (3, None, Vec::new());
    let slow_requests = vec![slow_request(9), run];
    let list = SlowLogList { slower_than_seconds: Some(0.01), slow_requests, workers_silent: Vec::new() };
    let mut state = on(Page::SlowLog, with(InsightData::SlowLog(list)));
    let lines = screen(&mut state, 80, 24, Instant::now());
    assert_eq!(words(&lines, "9"), ["9", "13:46:40", "12.3ms", "2.30ms", "KEYS", "*"]);
    assert!(words(&lines, "8").join(" ").ends_with("(not kept so long) (+2 with it)"));
    let wide = screen(&mut state, 140, 24, Instant::now());
    assert_eq!(words(&wide, "9")[4..], ["ok", "batch-job", "10.0.0.1:6379", "KEYS", "*"]);
    assert_eq!(words(&wide, "8")[5], "10.0.0.9:5000");
    let plain = render::plain(&mut state, 100);
    assert!(plain.contains("KEYS *") && plain.lines().count() < 12, "{plain}");
}

#[test]
fn a_page_of_another_response_waits() {
    let mut state = on(Page::BigKeys, with(hot_keys(KeyNames::Full, vec![hot_key("session:1", 5.0)])));
    let lines = screen(&mut state, 80, 24, Instant::now());
    assert!(lines.iter().any(|line| line.contains("waiting")) && !lines.join("").contains("session:1"), "{lines:#?}");
}

fn client(id: u64, change: fn(&mut ConnectionStatus)) -> ConnectionStatus {
    let mut client = ConnectionStatus {
        id,
        listener: "pg".to_owned(),
        protocol: "postgres".to_owned(),
        worker: 0,
        peer: "192.0.2.7:4000".to_owned(),
        age_seconds: 60.0,
        idle_seconds: 1.0,
        name: None,
        user: Some("app".to_owned()),
        db: None,
        database: Some("shop".to_owned()),
        protocol_version: "PostgreSQL 3.0".to_owned(),
        state: ConnectionState::Active,
        pinned_by: Vec::new(),
        pinned_seconds: None,
        transaction_seconds: None,
        waits_for: None,
        in_flight: 1,
        buffered_bytes: 0,
        last_command: None,
        key: None,
        model: None,
        stream: None,
    };
    change(&mut client);
    client
}

#[test]
fn clients_of_language_models_show_key_model_and_stream() {
    let of_ai = |row: &mut ConnectionStatus| {
        (row.protocol, row.key, row.model) = ("ai".to_owned(), Some("team".to_owned()), Some("gpt-4o".to_owned()));
        row.stream = Some(true);
    };
    let idle = client(1, |row| (row.in_flight, row.protocol) = (0, "ai".to_owned()));
    let mut busy = client(2, |_| ());
    of_ai(&mut busy);
    let other = client(3, |_| ());
    let connections = vec![idle, busy, other];
    let page = ConnectionPage { connections, next_after: None, workers_silent: Vec::new() };
    let mut state = on(Page::Ai, with(insight::ai(page)));
    let lines = screen(&mut state, 80, 24, Instant::now());
    assert_eq!(words(&lines, "2"), ["2", "team", "yes", "1", "1m00s", "gpt-4o"]);
    assert_eq!(words(&lines, "1"), ["1", "-", "-", "0", "1m00s", "-"]);
    assert!(!lines.iter().any(|line| line.trim_start().starts_with("3 ")), "{lines:#?}");
}

#[test]
fn clients_that_wait_come_first_and_idle_ones_are_left_out() {
    let pinned = client(1, |row| {
        (row.pinned_by, row.pinned_seconds) = (vec!["listen".to_owned()], Some(30.0));
    });
    let waiting = client(2, |row| {
        let pool = "app@shop".to_owned();
        row.waits_for = Some(PoolWait { pool, upstream: String::new(), seconds: 2.0, position: 3, waiting: 9 });
    });
    let idle = client(4, |_| {});
    let page =
        ConnectionPage { connections: vec![pinned, waiting, idle], next_after: None, workers_silent: Vec::new() };
    let mut state = on(Page::Clients, with(insight::clients(page)));
    let lines = screen(&mut state, 100, 24, Instant::now());
    let place = |id: &str| lines.iter().position(|line| line.split_whitespace().next() == Some(id));
    assert!(place("2").is_some() && place("2") < place("1") && place("4").is_none(), "{lines:#?}");
    assert!(words(&lines, "2").join(" ").ends_with("3/9 for app@shop"), "{lines:#?}");
    assert!(words(&lines, "1").join(" ").ends_with("listen"), "{lines:#?}");
}
