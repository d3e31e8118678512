//! Policies: allowed requests, and their rate.

use std::{sync::Arc, time::Duration};

use weir_http::policies::{Policies, WithUserHeader};
use weir_policy::http::{
    AddressRules, ApiKey, ApiKeys, Effect, KeyHash, KeyPlace, RateFields, RateKey, RateLimit, RateSettings, Source,
};

use crate::support::{Gateway, Setup};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn with(policies: Policies) -> Setup {
    Setup::plain(|action| action.policies = Some(Box::new(policies)))
}

#[test]
fn an_address_that_is_denied_is_forbidden() {
    let nets = ["192.0.2.0/24".parse().expect("a network")];
    let rules = AddressRules::new(Effect::Deny, Source::Client, &nets).expect("rules");
    let gateway = Gateway::start(with(Policies { address: Some(Arc::new(rules)), ..Policies::default() }));
    let mut client = gateway.client();
    client.send(GET);
    assert!(client.response().starts_with("HTTP/1.1 403 "));
    assert!(gateway.origin.is_untouched());
}

/// The key of `owner`, `secret`, in X-Key.
pub fn with_a_key() -> Policies {
    let key = ApiKey { name: "owner".into(), hash: KeyHash::of(b"secret") };
    let place = KeyPlace::Header { name: "x-key".into(), scheme: String::new() };
    let policy = ApiKeys::new(&[key], vec![place], true).expect("a policy");
    let keys = WithUserHeader { policy, user_field: Some("X-User".into()) };
    Policies { api_keys: Some(Arc::new(keys)), ..Policies::default() }
}

#[test]
fn an_api_key_is_required_and_removed_and_the_origin_gets_its_owner() {
    let gateway = Gateway::start(with(with_a_key()));
    let mut client = gateway.client();
    client.send(GET);
    assert!(client.response().starts_with("HTTP/1.1 401 "));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Key: wrong\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 401 "));
    assert!(gateway.origin.is_untouched());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Key: secret\r\n\r\n");
    let mut origin = gateway.origin.accept();
    let request = origin.request();
    assert!(request.contains("X-User: owner\r\n") && !request.contains("secret"), "{request}");
    origin.send(OK);
    assert!(client.response().starts_with("HTTP/1.1 200 "));
}

/// One request an hour.
pub fn limited() -> Setup {
    let settings = RateSettings {
        name: "test".into(),
        requests: 1,
        unit: Duration::from_secs(3600),
        burst: None,
        key: RateKey::All,
        status: 429,
        fields: RateFields::None,
    };
    let rate = RateLimit::new(settings, None).expect("a limit");
    with(Policies { rates: vec![Arc::new(rate)], ..Policies::default() })
}

#[test]
fn the_request_beyond_a_rate_is_refused_with_retry_after() {
    let gateway = Gateway::start(limited());
    assert!(gateway.exchange(GET, OK).starts_with("HTTP/1.1 200 "));
    let mut client = gateway.client();
    client.send(GET);
    let response = client.response().to_lowercase();
    assert!(response.starts_with("http/1.1 429 ") && response.contains("retry-after: "), "{response}");
    assert!(gateway.origin.is_untouched());
}
