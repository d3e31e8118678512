//! The first requests of a gateway.

use super::*;

#[test]
fn a_gateway_that_meets_a_store_in_its_grace_serves_its_first_request() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"].map(str::to_owned).to_vec();
    let mut stand = Stand::new(Kind::Valkey, Options { flags, ..Options::default() }, 1, 20_000);
    until_true("a claim", || key_use(&stand.gateways[0])["claimed"].as_u64() > Some(0));
    stand.gateways.remove(0).finish();
    // It has its data, so other gateways may be about to say what they hold: nothing is granted for 5 s.
    stand.store.restart();
    stand.add(20_000, "");
    let response = send(&stand.gateways[0].address, "u").expect("a response");
    assert_eq!(status(&response), "200", "{response}");
    stand.use_up();
    stand.finish_used_up(20_000);
}

#[test]
fn a_gateway_that_was_idle_through_the_grace_of_its_store_serves_its_first_request() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"].map(str::to_owned).to_vec();
    let mut stand = Stand::new(Kind::Redis, Options { flags, ..Options::default() }, 1, 20_000);
    until_true("a claim", || key_use(&stand.gateways[0])["claimed"].as_u64() > Some(0));
    stand.gateways.remove(0).finish();
    stand.store.restart();
    stand.add(20_000, "");
    // Without a request: it claims as soon as it may.
    until_true("a claim behind the grace", || key_use(&stand.gateways[0])["claimed"].as_u64() > Some(0));
    let response = send(&stand.gateways[0].address, "u").expect("a response");
    assert_eq!(status(&response), "200", "{response}");
    stand.gateways.into_iter().for_each(Gateway::finish);
}

#[test]
fn a_first_request_that_is_larger_than_the_first_claim_is_served() {
    // The first claim is an eighth, and the request reserves more than that.
    let stand = Stand::new(Kind::Valkey, Options::default(), 1, 400);
    let response = send(&stand.gateways[0].address, "u").expect("a response");
    assert_eq!(status(&response), "200", "{response}");
    stand.gateways.into_iter().for_each(Gateway::finish);
}
