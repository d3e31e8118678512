//! The health of a provider by a real request.

use weir_tests::deadline::until_true;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::Gateway;
use weir_tests::port;
use weir_tests::stream::Address;

/// A provider that knows one key, and its models for it.
fn provider() -> Faulty {
    Faulty::http(|request| {
        let head = String::from_utf8_lossy(&request[0]).to_ascii_lowercase();
        let is_known = head.starts_with("get /v1/models http/1.1\r\n")
            && head.contains("\r\nauthorization: bearer sk-4711-good\r\n");
        let status = if is_known { "200 OK" } else { "401 No" };
        let body = "{\"object\":\"list\",\"data\":[]}";
        Act::Reply(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
    })
}

/// A gateway with this key of the provider.
fn gateway(provider: &Faulty, key: &str) -> Gateway {
    let address = Address::port(port::free());
    let text = format!(
        "[[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"{}\"\nupstream = \"provider\"\n\
         [[upstream]]\nname = \"provider\"\nendpoints = [\"{}\"]\n\
         [upstream.ai]\napi_key = \"env:PROVIDER_KEY\"\nhealth_models = true\n\
         [upstream.health]\ninterval = \"100ms\"\ntimeout = \"100ms\"\nunhealthy_after = 2\n",
        address.text(),
        provider.address.text(),
    );
    Gateway::with_environment(&text, address, &[("PROVIDER_KEY".to_owned(), key.to_owned())])
}

#[test]
fn a_provider_is_healthy_while_its_models_can_be_listed_with_its_key() {
    let provider = provider();
    for (key, outcome, up) in [("sk-4711-good", "ok", 1.0), ("sk-4711-old", "failed", 0.0)] {
        let gateway = gateway(&provider, key);
        let checks = |outcome| gateway.metrics().sum_where("weir_health_checks_total", &[("outcome", outcome)]);
        until_true("three health checks", || checks(outcome) >= 3.0);
        until_true("the verdict", || gateway.metrics().sum("weir_endpoint_up") == up);
        let log = gateway.log();
        gateway.finish();
        assert!(!log.contains(key), "the key is in no log: {log}");
    }
    assert!(provider.seen().iter().all(|request| request[0].starts_with(b"GET /v1/models ")), "nothing else was sent");
}
