//! Metrics and applications as they arrive and as they are sent.

use weir_flags_codec::Timestamp;
use weir_flags_codec::metrics::{BulkMetrics, ClientApplication, ClientMetrics, ConnectVia, ImpactKind};

#[test]
fn metrics_of_a_client_have_counts_by_flag_and_variant() {
    let text = r#"{"appName":"a","instanceId":"i","connectionId":"c","environment":"e","later":[1],"sdkVersion":"unleash-client:6",
        "bucket":{"start":"2024-02-03T04:05:06.789Z","stop":"2024-02-03T04:06:06Z","toggles":{"f":{"yes":2,"no":1,"variants":{"red":2}},"g":{"no":3}}}}"#;
    let metrics = ClientMetrics::read(text.as_bytes()).expect("metrics");
    let bucket = metrics.bucket.expect("a bucket");
    let start = bucket.start.as_str().and_then(Timestamp::parse).expect("a time");
    assert_eq!(start.unix_seconds(), 1_706_933_106);
    assert_eq!((bucket.toggles["f"].yes, bucket.toggles["f"].variants["red"]), (2, 2));
    assert_eq!((bucket.toggles["g"].yes, bucket.toggles["g"].no), (0, 3));
    assert_eq!(metrics.sdk.sdk_version.as_deref(), Some("unleash-client:6"));
    assert!(ClientMetrics::read(br#"{"appName":"a"}"#).expect("no bucket").bucket.is_none());
    assert!(ClientMetrics::read(br#"{"appName":"a","bucket":null}"#).is_ok());
    for wrong in ["{}", r#"{"appName":7}"#, r#"{"appName":"a","bucket":{"toggles":{"f":{"yes":-1}}}}"#] {
        assert!(ClientMetrics::read(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn fields_of_later_clients_pass_with_an_application() {
    let text = r#"{"appName":"a","interval":15000,"started":"2024-02-03T04:05:06.789Z","strategies":["default"],"later":{"x":[1]},"sdkVersion":"v"}"#;
    let mut application = ClientApplication::read(text.as_bytes()).expect("an application");
    application.connect_via = Some(vec![ConnectVia { app_name: "weir".into(), instance_id: "i".into() }]);
    let sent: serde_json::Value = serde_json::to_value(&application).expect("JSON");
    let mut wanted: serde_json::Value = serde_json::from_str(text).expect("JSON");
    wanted["connectVia"] = serde_json::json!([{"appName": "weir", "instanceId": "i"}]);
    assert_eq!(sent, wanted);
    assert!(ClientApplication::read(br#"{"appName":"a"}"#).is_err(), "fields are missing");
}

#[test]
fn bulk_metrics_are_written_as_they_were_read() {
    let text = r#"{"applications":[],"metrics":[{"featureName":"f","appName":"a","environment":"e","timestamp":"2024-02-03T04:00:00Z","yes":1,"no":2,"variants":{"v":1},"sdkVersion":"s"}],"impactMetrics":[{"name":"m","help":"h","type":"histogram","samples":[{"labels":{"a":"b"},"count":3,"sum":1.5,"buckets":[{"le":1.0,"count":1},{"le":"+Inf","count":3}]}]}],"seenTokens":["t"]}"#;
    let bulk = BulkMetrics::read(text.as_bytes()).expect("bulk metrics");
    assert_eq!(bulk.impact_metrics.as_ref().map(|metrics| metrics[0].kind), Some(ImpactKind::Histogram));
    assert_eq!(serde_json::to_string(&bulk).expect("JSON"), text);
}
