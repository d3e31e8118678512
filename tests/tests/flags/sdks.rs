//! A real Unleash server behind the gateway, and every SDK in front of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_tests::deadline::{until, until_true};
use weir_tests::flags::{BACKEND, Events, FRONTEND, Sdk, SdkProcess, Unleash, before, get};
use weir_tests::gateway::Gateway;

/// Metrics pass the SDK, the gateway and the server, each of which gathers them for a while.
const METRICS: Duration = Duration::from_secs(60);

/// Between two looks at the server's counts, each of which costs it some queries.
const LOOK: Duration = Duration::from_millis(100);

#[test]
fn every_sdk_sees_a_flag_created_changed_and_archived() {
    let server = Unleash::start();
    let gateway = before(&server.address, "");
    server.create("first");
    until_true("the first flag", || get(&gateway.address, "/api/client/features", BACKEND).body.contains("\"first\""));
    let mut sdks = start_all(&gateway);
    // A flag that is not there is off.
    wait_all(&mut sdks, "off");
    let streams = gateway.admin.metrics().sum("weir_flags_streams");
    assert!(streams >= 1.0, "an SDK with streams has one: {streams}");
    server.create("checkout");
    server.turn("checkout", "on");
    wait_all(&mut sdks, "on");
    server.turn("checkout", "off");
    wait_all(&mut sdks, "off");
    server.turn("checkout", "on");
    wait_all(&mut sdks, "on");
    roll_out(&server, "checkout", 0);
    wait_all(&mut sdks, "off");
    roll_out(&server, "checkout", 100);
    wait_all(&mut sdks, "on");
    server.archive("checkout");
    wait_all(&mut sdks, "off");
    finish_all(sdks);
    gateway.finish();
}

#[test]
fn the_counts_of_every_sdk_arrive_in_the_server() {
    let server = Unleash::start();
    let gateway = before(&server.address, "");
    // The server counts no flag that it does not know, and keeps the names that it knows for ten seconds from the first metrics on: the
    // flag is there before any SDK.
    server.create("checkout");
    until_true("the flag", || get(&gateway.address, "/api/client/features", BACKEND).body.contains("\"checkout\""));
    let mut sdks = start_all(&gateway);
    wait_all(&mut sdks, "off");
    server.turn("checkout", "on");
    wait_all(&mut sdks, "on");
    for (sdk, (yes, no)) in finish_all(sdks).into_iter().filter(|(sdk, _)| sdk.counts()) {
        assert!(yes > 0 && no > 0, "{sdk:?} has seen both states");
        let what = format!("the counts of {sdk:?}: {yes} and {no}");
        let begun = Instant::now();
        loop {
            let arrived = server.counts("checkout", sdk.application());
            // More than there were never become fewer.
            assert!(arrived.0 <= yes && arrived.1 <= no, "{what}; the server has {arrived:?}");
            if arrived == (yes, no) {
                break;
            }
            assert!(begun.elapsed() < METRICS, "{what}; after {METRICS:?} the server has {arrived:?}");
            sleep(LOOK);
        }
    }
    gateway.finish();
}

/// Every SDK in front of a gateway, with the flag `checkout`.
fn start_all(gateway: &Gateway) -> Vec<SdkProcess> {
    let token = |sdk: Sdk| if sdk.is_frontend() { FRONTEND } else { BACKEND };
    Sdk::ALL.map(|sdk| sdk.start(&gateway.address, token(sdk), "checkout")).into()
}

fn wait_all(sdks: &mut [SdkProcess], state: &str) {
    sdks.iter_mut().for_each(|sdk| sdk.wait_state(state));
}

/// Ends all. Returns how often the flag was on, and off, for each.
fn finish_all(mut sdks: Vec<SdkProcess>) -> Vec<(Sdk, (u64, u64))> {
    sdks.iter_mut().map(|sdk| (sdk.sdk, sdk.finish())).collect()
}

/// Puts a gradual rollout in place of the strategy of a flag.
fn roll_out(server: &Unleash, flag: &str, percentage: u64) {
    let strategies = format!("/projects/default/features/{flag}/environments/development/strategies");
    let list = server.admin("GET", &strategies, &Value::Null).json();
    let id = list[0]["id"].as_str().unwrap_or_else(|| panic!("no strategy: {list}"));
    let parameters = json!({ "rollout": percentage.to_string(), "stickiness": "default", "groupId": flag });
    let strategy = json!({ "name": "flexibleRollout", "parameters": parameters, "constraints": [], "segments": [] });
    server.admin("PUT", &format!("{strategies}/{id}"), &strategy);
}

#[test]
fn f10_a_token_that_the_server_deletes_ends_and_its_stream_with_it() {
    let server = Unleash::start();
    let token = server.make_token("short-lived", "backend");
    // The token is one that the gateway polls with.
    let tables = "revalidation_interval = \"1s\"\n";
    let environment = [("FLAGS_TOKEN".to_owned(), token.clone())];
    let gateway = weir_tests::flags::before_with(&server.address, tables, "", &environment);
    until_true("flags for the token", || get(&gateway.address, "/api/client/features", &token).status == 200);
    let mut events = Events::open(&gateway.address, "/api/client/streaming", &token, None);
    assert_eq!((events.status, events.next().name.as_str()), (200, "unleash-connected"));
    server.delete_token(&token);
    // It reads its tokens once a minute.
    until("the server to refuse the token", Duration::from_secs(90), || {
        (get(&server.address, "/api/client/features", &token).status == 401).then_some(())
    });
    // It validates from a copy that has the token for long; its responses to polls decide.
    events.wait_end(Duration::from_secs(60));
    drop(events);
    until("a 403 for the token", Duration::from_secs(30), || {
        (get(&gateway.address, "/api/client/features", &token).status == 403).then_some(())
    });
    assert!(!gateway.log().contains(&token), "no secret is in the log");
    gateway.finish();
}
