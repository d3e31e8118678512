//! Keys in all places, and what is left of a request behind them.

use proptest::prelude::*;

use super::*;
use crate::http::request;

fn header(name: &str, scheme: &str) -> KeyPlace {
    KeyPlace::Header { name: name.into(), scheme: scheme.into() }
}

fn key(name: &str, clear: &str) -> ApiKey {
    ApiKey { name: name.into(), hash: KeyHash::of(clear.as_bytes()) }
}

fn policy(places: Vec<KeyPlace>) -> ApiKeys {
    let keys: Vec<ApiKey> = (0..200).map(|index| key(&format!("n{index}"), &format!("k{index}"))).collect();
    ApiKeys::new(&keys, places, true).expect("a policy")
}

fn head(target: &str, fields: &[(&str, &str)]) -> RequestHead {
    request(if target == "*" { "OPTIONS" } else { "GET" }, target, fields)
}

fn told<'a>(keys: &'a ApiKeys, head: &RequestHead) -> Result<&'a str, &'static str> {
    keys.check(head).map(|name| &**name).map_err(|refusal| refusal.reason)
}

#[test]
fn a_hash_is_that_of_sha256sum() {
    // printf foo | sha256sum
    let whole = "2C26B46B68FFC68FF99B453C1D30413413422D706483BFA0F98A5E886266E7AE";
    assert_eq!(KeyHash::from_hex(whole), Some(KeyHash::of(b"foo")), "any case");
    for wrong in [
        whole[2..].to_owned(),
        whole.replace('2', "g"),
        format!("{whole}0"),
        format!("{whole}00"),
        whole.replace('2', "\u{e9}"),
    ] {
        assert_eq!(KeyHash::from_hex(&wrong), None, "{wrong}");
    }
    assert_eq!(format!("{:?}", key("n", "canary")), "ApiKey { name: \"n\", hash: [redacted] }");
}

#[test]
fn keys_are_found_where_they_may_be() {
    let keys = policy(vec![
        header("X-Api-Key", ""),
        header("Authorization", "ApiKey"),
        KeyPlace::Query("api key".into()),
        KeyPlace::Cookie("key".into()),
    ]);
    for (target, fields, expected) in [
        ("/", &[("x-api-key", "k7")][..], Ok("n7")),
        ("/", &[("Authorization", "apikey  k199")], Ok("n199")),
        ("/?a=1&api+key=k0&api%20key=k1", &[], Ok("n0")),
        ("/", &[("Cookie", "a=1"), ("Cookie", "key=k5; b=2")], Ok("n5")),
        ("/?api+key=k1", &[("X-Api-Key", "k2")], Ok("n2")),
        ("/?api+key=k1", &[("X-Api-Key", "wrong")], Err("api_key_unknown")),
        ("/?api+key=k1", &[("X-Api-Key", "")], Ok("n1")),
        ("/", &[("Authorization", "Bearer k1")], Err("api_key_missing")),
        ("/", &[("Authorization", "ApiKeyk1")], Err("api_key_missing")),
        ("/", &[("X-Api-Key", "k1"), ("x-api-key", "k1")], Err("api_key_missing")),
        ("/", &[("X-Api-Key", "K7")], Err("api_key_unknown")),
        ("/", &[("X-Api-Key", "k200")], Err("api_key_unknown")),
        ("/", &[], Err("api_key_missing")),
        ("/?", &[], Err("api_key_missing")),
        ("*", &[], Err("api_key_missing")),
    ] {
        assert_eq!(told(&keys, &head(target, fields)), expected, "{target} {fields:?}");
    }
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let refusal = keys.check(&head("/", &[("X-Api-Key", &long)])).expect_err("too long");
    assert_eq!((refusal.status, refusal.reason), (401, "api_key_unknown"));
    assert_eq!(refusal.fields.get(Known::WwwAuthenticate), Some(&b"ApiKey"[..]));
}

#[test]
fn keys_do_not_go_further() {
    let keys = policy(vec![header("X-Api-Key", ""), KeyPlace::Query("key".into()), KeyPlace::Cookie("key".into())]);
    for (target, expected) in [
        ("/a?key=k1", "/a"),
        ("/a?x=%20+&key=k1&y=2&k%65y=k2", "/a?x=%20+&y=2"),
        ("/a?key", "/a"),
        ("/a?x=1&&keys=2", "/a?x=1&&keys=2"),
        ("/a?", "/a?"),
        ("/a", "/a"),
    ] {
        let mut head = head(target, &[("x-api-key", "k1"), ("A", "1"), ("X-API-KEY", "k2")]);
        keys.strip(&mut head);
        assert_eq!((head.target(), head.fields.len()), (expected.as_bytes(), 1), "{target}");
    }
    let mut with_cookies = head("/", &[("Cookie", "a=1;key=k1 ; b=2"), ("cookie", "key=k2"), ("Cookie", "c; key=")]);
    keys.strip(&mut with_cookies);
    assert_eq!(with_cookies.fields.all(Known::Cookie).collect::<Vec<_>>(), [&b"a=1; b=2"[..], b"c"]);
    let scheme = policy(vec![header("X-Api-Key", "ApiKey")]);
    for line in ["apikey k1", "ApiKey\tk1", "ApiKeyk1", "Bearer k1", ""] {
        for name in ["x-api-key", "X_API_KEY", "X-Api_Key"] {
            let mut head = head("/", &[(name, line)]);
            scheme.strip(&mut head);
            assert_eq!(head.fields.len(), 0, "{name}: {line:?} was not looked at");
        }
    }
    let kept = ApiKeys::new(&[key("n", "k")], vec![header("x", "")], false).expect("a policy");
    let mut head = head("/", &[("x", "k")]);
    kept.strip(&mut head);
    assert_eq!(head.fields.len(), 1);
}

#[test]
fn several_keys_may_be_of_one_owner_but_no_key_of_two() {
    let (old, new) = (key("shop", "old"), key("shop", "new"));
    let keys = ApiKeys::new(&[old.clone(), new], vec![header("x", "")], true).expect("a policy");
    for clear in ["old", "new"] {
        assert_eq!(told(&keys, &head("/", &[("x", clear)])), Ok("shop"));
    }
    let error = |keys: &[ApiKey], places| ApiKeys::new(keys, places, true).err();
    let place = || vec![header("x", "")];
    assert!(matches!(error(&[old.clone(), key("b", "old")], place()), Some(ApiKeyError::Twice(_))));
    assert_eq!(error(&[], place()), Some(ApiKeyError::NoKeys));
    assert_eq!(error(std::slice::from_ref(&old), vec![]), Some(ApiKeyError::Places(0)));
    assert_eq!(error(&[key("a\n", "k")], place()), Some(ApiKeyError::Name("a\n".into())));
    for place in [header("a b", ""), header("a", "b c"), KeyPlace::Query(String::new()), KeyPlace::Cookie("a;b".into())]
    {
        assert_eq!(error(std::slice::from_ref(&old), vec![place.clone()]), Some(ApiKeyError::Place(place)));
    }
}

proptest! {
    #[test]
    fn behind_stripping_there_is_no_key(query in "[key=&;%65 1+]{0,40}", cookies in "[key=; 1\"]{0,40}") {
        let keys = policy(vec![KeyPlace::Query("key".into()), KeyPlace::Cookie("key".into())]);
        let target = format!("/?{}", query.replace(' ', "+"));
        let mut head = head(&target, &[("Cookie", &cookies)]);
        keys.strip(&mut head);
        prop_assert_eq!(told(&keys, &head), Err("api_key_missing"));
    }
}
