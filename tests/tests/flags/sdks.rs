//! A real Unleash server behind the gateway, and every SDK in front of it.

use std::time::Duration;

use weir_tests::deadline::{until, until_true};
use weir_tests::flags::{BACKEND, Events, FRONTEND, Sdk, SdkProcess, Unleash, before, get};

/// Metrics pass the SDK, the gateway and the server, each of which gathers them for a while.
const METRICS: Duration = Duration::from_secs(60);

#[test]
fn every_sdk_sees_a_flag_created_changed_and_archived_and_its_counts_arrive() {
    let server = Unleash::start();
    let gateway = before(&server.address, "");
    server.create("first");
    until_true("the first flag", || get(&gateway.address, "/api/client/features", BACKEND).body.contains("\"first\""));
    let token = |sdk: Sdk| if sdk.is_frontend() { FRONTEND } else { BACKEND };
    let start = |sdk: Sdk| sdk.start(&gateway.address, token(sdk), "checkout");
    let mut sdks: Vec<SdkProcess> = Sdk::ALL.map(start).into();
    // A flag that is not there is off.
    sdks.iter_mut().for_each(|sdk| sdk.wait_state("off"));
    server.create("checkout");
    server.turn("checkout", "on");
    sdks.iter_mut().for_each(|sdk| sdk.wait_state("on"));
    server.turn("checkout", "off");
    sdks.iter_mut().for_each(|sdk| sdk.wait_state("off"));
    server.turn("checkout", "on");
    sdks.iter_mut().for_each(|sdk| sdk.wait_state("on"));
    server.archive("checkout");
    sdks.iter_mut().for_each(|sdk| sdk.wait_state("off"));
    let counted: Vec<(Sdk, (u64, u64))> = sdks.iter_mut().map(|sdk| (sdk.sdk, sdk.finish())).collect();
    drop(sdks);
    for (sdk, (yes, no)) in counted.into_iter().filter(|(sdk, _)| sdk.counts()) {
        assert!(yes > 0 && no > 0, "{sdk:?} has seen both states");
        let what = format!("the counts of {sdk:?}: {yes} and {no}");
        let mut last = (0, 0);
        until(format!("{what}, in the server"), METRICS, || {
            last = server.counts("checkout", sdk.application());
            // More than there were never become fewer.
            assert!(last.0 <= yes && last.1 <= no, "{what}; the server has {last:?}");
            (last == (yes, no)).then_some(())
        });
    }
    gateway.finish();
}

#[test]
fn f10_a_token_that_the_server_deletes_ends_and_its_stream_with_it() {
    let server = Unleash::start();
    let token = server.make_token("short-lived", "backend");
    // The token is one that the gateway polls with: the server refuses its polls at once.
    let tables = "revalidation_interval = \"1s\"\n";
    let environment = [("FLAGS_TOKEN".to_owned(), token.clone())];
    let gateway = weir_tests::flags::before_with(&server.address, tables, "", &environment);
    until_true("flags for the token", || get(&gateway.address, "/api/client/features", &token).status == 200);
    let mut events = Events::open(&gateway.address, "/api/client/streaming", &token, None);
    assert_eq!((events.status, events.next().name.as_str()), (200, "unleash-connected"));
    server.delete_token(&token);
    until("the server to refuse the token", Duration::from_secs(90), || {
        (get(&server.address, "/api/client/features", &token).status == 401).then_some(())
    });
    events.wait_end(Duration::from_secs(30));
    drop(events);
    until("a 403 for the token", Duration::from_secs(30), || {
        (get(&gateway.address, "/api/client/features", &token).status == 403).then_some(())
    });
    assert!(!gateway.log().contains(&token), "no secret is in the log");
    gateway.finish();
}
