//! Upgrades of the program while its budgets have a journal: streams are open in the old process, and both account for the same keys.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_base::Rng;
use weir_tests::ai::{AiOrigin, KEY, environment, gateway, usage};
use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;
use weir_tests::process::Process;
use weir_tests::seed::seeded;
use weir_tests::stream::{Address, Stream};

use crate::truth::{books::Books, clients};

/// Clients at a time.
const CLIENTS: usize = 6;

/// For the drain of a process, which is cut after three seconds.
const END_WAIT: Duration = Duration::from_secs(15);

/// A chat whose reply is as large as it says.
fn chat(user: &str, is_stream: bool, words: &str) -> String {
    let stream = if is_stream { ",\"stream\":true" } else { "" };
    format!(
        "{{\"model\":\"m\",\"user\":\"{user}\",\"max_tokens\":100{stream},\"messages\":[{{\"role\":\"user\",\"content\":\
         \"[weir prompt=10 {words}]\"}}]}}"
    )
}

/// Sends a request on a connection of its own. The text of the whole response.
fn send(address: &Address, body: &str) -> String {
    let mut client = HttpClient::over(Stream::connect(address).expect("a connection"));
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(format!("{head}{body}"));
    String::from_utf8_lossy(&client.to_end()).into_owned()
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or_default()
}

/// Gives the key a budget.
fn limit(gateway: &Gateway, day_tokens: u64) {
    gateway.rewrite(|text| text.replace("name = \"sdk\"\n", &format!("name = \"sdk\"\nday_tokens = {day_tokens}\n")));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "applied");
}

/// Upgrades, and waits until the old process has ended in order.
fn upgrade(gateway: &mut Gateway) {
    let mut old = gateway.upgrade();
    let status = old.wait(END_WAIT);
    assert!(status.success(), "{status}");
}

#[test]
fn upgrades_in_a_row_fail_no_request_and_each_has_one_line() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let mut gateway = gateway(&origin, "openai", state.path(), "");
    limit(&gateway, 1_000_000_000);
    let (address, next, stop) = (gateway.address.clone(), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (address, next, stop) = (&address, &next, &stop);
        let load = |client: usize| {
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    // Every third client has streams that last longer than the hand-over.
                    let words =
                        if client.is_multiple_of(3) { "bytes=200 events=10 gap=100ms" } else { "bytes=80 events=4" };
                    let is_stream = client.is_multiple_of(2);
                    let response = send(address, &chat(&format!("u{number}"), is_stream, words));
                    assert_eq!(status(&response), "200", "{response}");
                    assert!(!is_stream || response.contains("[DONE]"), "{response}");
                }
            }
        };
        let load: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(load(client))).collect();
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(500));
            upgrade(&mut gateway);
        }
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        for client in load {
            client.join().expect("each request has its response");
        }
    });
    assert_eq!(gateway.metric("weir_restart_epoch"), 2.0);
    gateway.finish();
    let lines = usage(state.path());
    let exact = Books::compare(&origin.entries(), &lines).exact;
    let sent = next.load(Ordering::Relaxed);
    assert_eq!((exact, lines.len()), (sent, sent), "each line is exact");
    assert!(sent > 100, "{sent}");
}

#[test]
fn a_budget_is_spent_to_its_end_over_upgrades_and_not_beyond() {
    // Each reserves 100 tokens of output and its prompt by estimate, and uses 10 and 20.
    const REQUESTS: u64 = 400;
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let mut gateway = gateway(&origin, "openai", state.path(), "");
    let words = "bytes=80 events=2 gap=20ms";
    let first = send(&gateway.address, &chat("first", false, words));
    assert_eq!(status(&first), "200", "{first}");
    let used = usage_of(&first);
    let budget = used * REQUESTS;
    limit(&gateway, budget);
    let (address, next) = (gateway.address.clone(), AtomicUsize::new(0));
    let (done, retried) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (address, next, done, retried) = (&address, &next, &done, &retried);
        let load = move || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let response = send(address, &chat(&format!("u{number}"), number % 2 == 0, words));
                match status(&response) {
                    "200" => drop(done.fetch_add(1, Ordering::Relaxed)),
                    // For a moment the rest belongs to the other process.
                    "503" => {
                        assert!(response.contains("\"overloaded\""), "{response}");
                        retried.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    _ => {
                        assert!(status(&response) == "429" && response.contains("insufficient_quota"), "{response}");
                        return;
                    }
                }
            }
        };
        let load: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(load)).collect();
        for part in [REQUESTS / 4, REQUESTS / 2] {
            until_true("a part of the budget to be spent", || done.load(Ordering::Relaxed) as u64 >= part);
            upgrade(&mut gateway);
        }
        for client in load {
            client.join().expect("it is refused in the end");
        }
    });
    // The rest fits no reservation, but may fit a request.
    let done = 1 + done.load(Ordering::Relaxed) as u64;
    println!("{done} requests, {} came again", retried.load(Ordering::Relaxed));
    gateway.finish();
    let lines = usage(state.path());
    let exact = Books::compare(&origin.entries(), &lines).exact;
    assert_eq!(exact as u64, done);
    let charged: u64 = lines.iter().filter_map(|line| line["charged_tokens"].as_u64()).sum();
    assert_eq!(charged, done * used);
    assert!(charged <= budget && charged + 400 > budget, "{charged} of {budget}");
}

/// The tokens that a response reports.
fn usage_of(response: &str) -> u64 {
    let body = &response[response.find('{').expect("a body")..=response.rfind('}').expect("a body")];
    let body: Value = serde_json::from_str(body).expect("JSON");
    body["usage"]["total_tokens"].as_u64().expect("a report")
}

#[test]
fn a14_after_kills_in_the_middle_of_upgrades_each_request_has_one_line_that_is_true_or_flagged() {
    const ROUNDS: usize = 8;
    let mut rng = Rng::new(seeded().next_u64());
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let mut gateway = gateway(&origin, "openai", state.path(), "");
    limit(&gateway, 1_000_000_000);
    let (address, next, stop) = (gateway.address.clone(), AtomicUsize::new(0), AtomicBool::new(false));
    let seed = rng.next_u64() >> 16;
    let mut departed = Vec::new();
    let mut ends = [0; 3];
    std::thread::scope(|scope| {
        scope.spawn(|| clients(&address, &next, usize::MAX, &stop, seed));
        for round in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(200));
            let end = kill_in_an_upgrade(&mut gateway, &mut departed, &mut rng, round);
            ends[end as usize] += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    for mut process in departed {
        process.wait(END_WAIT);
    }
    // The next process charges the requests that the last kill has left open.
    gateway.process().signal("TERM");
    gateway.process().wait(END_WAIT);
    gateway.start_again(&environment());
    gateway.finish();
    let lines = usage(state.path());
    let exact = Books::compare(&origin.entries(), &lines).exact;
    let crashed = lines.iter().filter(|line| line["flags"].to_string().contains("crash")).count();
    println!("{} lines, {exact} exact, {crashed} of kills; served then: {ends:?}", lines.len());
    assert!(exact > 100 && crashed > 0, "{} lines, {exact} exact, {crashed} crashed", lines.len());
}

/// The process that serves behind a kill.
#[derive(Clone, Copy, Debug)]
enum Survivor {
    Old,
    New,
    Neither,
}

/// Begins an upgrade, and kills the old process or the new one at some moment. Then a process serves again.
fn kill_in_an_upgrade(gateway: &mut Gateway, departed: &mut Vec<Process>, rng: &mut Rng, round: usize) -> Survivor {
    let old = gateway.process().id();
    gateway.process().signal("USR2");
    let new = until("the new process", END_WAIT, || child_of(old));
    std::thread::sleep(Duration::from_millis(rng.below(if round.is_multiple_of(2) { 150 } else { 600 })));
    let kills_old = rng.below(2) == 0;
    if kills_old {
        gateway.process().kill();
    } else {
        let _ = std::process::Command::new("kill").args(["-9", &new.to_string()]).status();
    }
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < END_WAIT, "no process serves, and none ends: {}", gateway.log());
        let serving = gateway.admin.request("GET", "/api/v1/version", &[], "").ok().map(|it| it.json()["pid"].clone());
        if serving == Some(old.into()) && !kills_old && !lives(new) && !is_upgrading(gateway) {
            return Survivor::Old;
        }
        if serving == Some(new.into()) && kills_old {
            gateway.follow();
            return Survivor::New;
        }
        let is_gone = if kills_old { !lives(new) } else { !lives(new) && begun.elapsed() > Duration::from_secs(1) };
        if serving.is_none() && is_gone {
            // One that has handed over ends in its time.
            departed.push(gateway.start_again(&environment()));
            return Survivor::Neither;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An upgrade is not over: a reload is refused then.
fn is_upgrading(gateway: &Gateway) -> bool {
    gateway.admin.post("/api/v1/reload", "").status != 200
}

/// The process that a process has started.
fn child_of(parent: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?;
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(|pid| stat(*pid).is_some_and(|it| it.1 == parent))
}

fn lives(process: u32) -> bool {
    stat(process).is_some_and(|(state, _)| state != "Z")
}

/// State and parent of a process: proc_pid_stat(5).
fn stat(process: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}
