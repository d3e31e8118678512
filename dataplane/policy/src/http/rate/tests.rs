//! Limits over time, by key, and with more keys than there is room for.

use std::sync::atomic::AtomicU32;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings(requests: u32, unit: Duration, burst: Option<u32>) -> RateSettings {
    RateSettings {
        name: "default".into(),
        requests,
        unit,
        burst,
        key: RateKey::Client { ipv6_prefix: IPV6_PREFIX },
        status: 429,
        fields: RateFields::Both,
    }
}

fn limit(requests: u32, unit: Duration, burst: Option<u32>) -> RateLimit {
    RateLimit::new(settings(requests, unit, burst), None).expect("a limit")
}

fn at(millis: u64) -> Time {
    Time::from_nanos(1_000_000_000_000 + millis * 1_000_000)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

/// A request of 192.0.2.1.
fn ask(limit: &RateLimit, millis: u64) -> RateOutcome {
    limit.take(ip("192.0.2.1"), &Fields::new(), None, at(millis)).expect("limited")
}

fn text(fields: &Fields) -> String {
    let mut bytes = Vec::new();
    fields.write(&mut bytes);
    String::from_utf8(bytes).expect("ASCII").replace("\r\n", "|")
}

#[test]
fn a_bucket_is_emptied_at_once_and_fills_evenly() {
    let limit = limit(60, 60 * SECOND, Some(3));
    let response = |millis| {
        let response = ask(&limit, millis);
        (response.is_allowed, response.remaining, response.full_in.as_millis(), response.next_in.as_millis())
    };
    assert_eq!(response(0), (true, 2, 1_000, 0));
    assert_eq!(response(0), (true, 1, 2_000, 0));
    assert_eq!(response(0), (true, 0, 3_000, 1_000));
    assert_eq!(response(400), (false, 0, 2_600, 600));
    assert_eq!(response(999), (false, 0, 2_001, 1), "a refusal costs nothing");
    assert_eq!(response(1_000), (true, 0, 3_000, 1_000));
    assert_eq!(response(60_000), (true, 2, 1_000, 0), "a pause is worth a burst and no more");
}

#[test]
fn a_client_sees_limit_and_refusal_in_both_header_styles() {
    let limit = limit(2, 60 * SECOND, None);
    let mut fields = Fields::new();
    fields.push(b"X-RateLimit-Limit", b"of the origin");
    limit.append_to(&ask(&limit, 0), &mut fields);
    assert_eq!(
        text(&fields),
        "ratelimit-policy: \"default\";q=2;w=60|ratelimit: \"default\";r=1;t=30|x-ratelimit-limit: 2|\
         x-ratelimit-remaining: 1|x-ratelimit-reset: 30|"
    );
    ask(&limit, 0);
    let refusal = limit.refusal(&ask(&limit, 500), Duration::ZERO);
    assert_eq!((refusal.status, refusal.reason), (429, "rate_limited"));
    assert!(text(&refusal.fields).starts_with("retry-after: 30|ratelimit-policy:"), "{}", text(&refusal.fields));
    let later = limit.refusal(&ask(&limit, 500), Duration::from_secs(3));
    assert_eq!(later.fields.get(Known::RetryAfter), Some(&b"33"[..]));
    let plain = RateSettings { fields: RateFields::None, status: 503, ..settings(1, SECOND, None) };
    let plain = RateLimit::new(plain, None).expect("a limit");
    ask(&plain, 0);
    let refusal = plain.refusal(&ask(&plain, 999), Duration::ZERO);
    assert_eq!((refusal.status, text(&refusal.fields).as_str()), (503, "retry-after: 1|"));
}

#[test]
fn each_key_has_a_bucket() {
    let take = |limit: &RateLimit, client: &str, header: Option<&str>, identity: Option<&str>| {
        let mut fields = Fields::new();
        header.into_iter().for_each(|value| fields.push(b"x-tenant", value.as_bytes()));
        limit.take(ip(client), &fields, identity, at(0)).map(|response| response.is_allowed)
    };
    let by = |key| RateLimit::new(RateSettings { key, ..settings(1, SECOND, None) }, None).expect("a limit");

    let client = by(RateKey::Client { ipv6_prefix: 64 });
    for (address, is_allowed) in [
        ("192.0.2.1", true),
        ("192.0.2.2", true),
        ("::ffff:192.0.2.1", false),
        ("2001:db8::1", true),
        ("2001:db8::ffff:0:0:1", false),
        ("2001:db8:0:1::1", true),
    ] {
        assert_eq!(take(&client, address, None, None), Some(is_allowed), "{address}");
    }

    let header = |missing| by(RateKey::Header { name: "X-Tenant".into(), missing });
    let (counted, passing) = (header(MissingKey::Client), header(MissingKey::Pass));
    for (value, is_allowed) in [(Some("a"), true), (Some("a"), false), (Some("b"), true), (Some(""), true)] {
        assert_eq!(take(&counted, "192.0.2.1", value, None), Some(is_allowed), "{value:?}");
    }
    assert_eq!(take(&counted, "192.0.2.1", None, None), Some(true));
    assert_eq!(take(&counted, "192.0.2.1", None, None), Some(false), "leaving the header out gains nothing");
    assert_eq!(take(&passing, "192.0.2.1", None, None), None);

    let identity = by(RateKey::Identity { missing: MissingKey::Client });
    assert_eq!(take(&identity, "192.0.2.1", None, Some("shop")), Some(true));
    assert_eq!(take(&identity, "192.0.2.2", None, Some("shop")), Some(false));
    assert_eq!(take(&identity, "192.0.2.1", None, None), Some(true));

    let all = by(RateKey::All);
    assert_eq!((take(&all, "192.0.2.1", None, None), take(&all, "::1", None, None)), (Some(true), Some(false)));
}

#[test]
fn a_limited_client_stays_known_however_many_others_come() {
    let limit = RateLimit::new(settings(10, 60 * SECOND, None), Some(64)).expect("a limit");
    while ask(&limit, 0).is_allowed {}
    for other in 0..100_000u32 {
        let other = IpAddr::V4(other.into());
        assert!(limit.take(other, &Fields::new(), None, at(1)).expect("limited").is_allowed, "nobody else is refused");
    }
    assert!(!ask(&limit, 2).is_allowed);
    assert_eq!(limit.table.buckets.len(), 64);
}

#[test]
fn a_table_full_of_debts_still_serves_newcomers() {
    let limit = RateLimit::new(settings(5, 60 * SECOND, None), Some(8)).expect("a limit");
    for other in 0..8u32 {
        for _ in 0..5 {
            let _ = limit.take(IpAddr::V4(other.into()), &Fields::new(), None, at(0));
        }
    }
    let newcomer = ask(&limit, 0);
    assert_eq!((newcomer.is_allowed, newcomer.remaining), (true, 4));
}

#[test]
fn workers_share_a_bucket_exactly() {
    let limit = limit(1_000, 60 * SECOND, None);
    // The first one gives the key its bucket; see the head of the file about the race there.
    let passed = AtomicU32::new(u32::from(ask(&limit, 0).is_allowed));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let count = (0..1_000).filter(|_| ask(&limit, 0).is_allowed).count() as u32;
                passed.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(passed.into_inner(), 1_000);
}

#[test]
fn limits_that_cannot_work_are_build_errors() {
    let error = |settings, entries| RateLimit::new(settings, entries).err();
    let good = || settings(1, SECOND, None);
    assert_eq!(error(settings(0, SECOND, None), None), Some(RateError::Never));
    assert_eq!(error(settings(1, Duration::ZERO, None), None), Some(RateError::Never));
    assert_eq!(error(settings(1, SECOND, Some(0)), None), Some(RateError::Never));
    assert_eq!(error(settings(1, Duration::MAX, None), None), Some(RateError::TooLong));
    assert_eq!(error(settings(1, 86_400 * SECOND, Some(u32::MAX)), None), Some(RateError::TooLong));
    for status in [0, 399, 600] {
        assert_eq!(error(RateSettings { status, ..good() }, None), Some(RateError::Status(status)));
    }
    let header = RateKey::Header { name: "a b".into(), missing: MissingKey::Pass };
    assert_eq!(error(RateSettings { key: header, ..good() }, None), Some(RateError::Header("a b".into())));
    let prefix = RateKey::Client { ipv6_prefix: 0 };
    assert_eq!(error(RateSettings { key: prefix, ..good() }, None), Some(RateError::Prefix(0)));
    for name in ["", "a\"", "\u{e9}", "a\r"] {
        assert_eq!(error(RateSettings { name: name.into(), ..good() }, None), Some(RateError::Name), "{name}");
    }
    assert_eq!(error(good(), Some(u32::MAX)), Some(RateError::Entries(u32::MAX)));
    for good in [settings(u32::MAX, SECOND, None), settings(1, PERIOD_MAX, None), settings(1, SECOND / 1_000, None)] {
        assert!(error(good, None).is_none());
    }
}

proptest! {
    #[test]
    fn the_rate_is_kept_whenever_they_come(
        requests in 1u32..50, seconds in 1u32..100, burst in 1u32..20, gaps in prop::collection::vec(0u64..3_000, 1..300),
    ) {
        let limit = limit(requests, seconds * SECOND, Some(burst));
        let (mut now, mut passed) = (0, 0u64);
        for gap in gaps {
            now += gap;
            let response = ask(&limit, now);
            passed += u64::from(response.is_allowed);
            prop_assert!(response.remaining < burst, "one was just taken, or none was there");
            prop_assert_eq!(response.next_in.is_zero(), response.remaining > 0);
            let most = u64::from(burst) + now * u64::from(requests) / (u64::from(seconds) * 1_000) + 1;
            prop_assert!(passed <= most, "{} of {}", passed, most);
            if !response.is_allowed {
                let wait = response.next_in.as_millis() as u64 + 1;
                prop_assert!(ask(&limit, now + wait).is_allowed, "the wait that is told suffices");
                (now, passed) = (now + wait, passed + 1);
            }
        }
    }
}
