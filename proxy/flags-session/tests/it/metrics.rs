//! Sums of metrics and their way to the upstream.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_flags_codec::metrics::{BulkMetrics, ClientApplication, ClientMetrics, ConnectVia, SdkFields};
use weir_flags_session::limits::UPLOAD_BYTES_MAX;
use weir_flags_session::metrics::{Aggregates, Dropped, sdk_texts};
use weir_flags_session::{Projects, Token};

use crate::support::now;

fn token(text: &str) -> Token {
    Token::parse(text).expect(text)
}

fn via() -> ConnectVia {
    ConnectVia { app_name: "weir".to_owned(), instance_id: "i".to_owned() }
}

fn counts(application: &str, start: &str, toggles: Value) -> ClientMetrics {
    let text = json!({"appName": application, "environment": "ignored", "sdkVersion": "s",
        "bucket": {"start": start, "stop": start, "toggles": toggles}});
    ClientMetrics::read(text.to_string().as_bytes()).expect("metrics")
}

fn sent(aggregates: &mut Aggregates, environment: &str) -> Vec<Value> {
    let batches = aggregates.take(environment);
    batches.iter().map(|batch| serde_json::from_slice(&batch.to_json()).expect("JSON")).collect()
}

const START: &str = "2024-02-03T04:01:00Z";
const HOUR: &str = "2024-02-03T04:00:00Z";

#[test]
fn counts_of_an_hour_become_one_sum() {
    let mut aggregates = Aggregates::new(1 << 20);
    let dev = token("*:dev.s");
    aggregates.add(
        &dev,
        counts("a", START, json!({"f": {"yes": 1, "no": 2, "variants": {"v": 1}}, "none": {}})),
        now(),
    );
    let later = "2024-02-03T05:59:59.999+01:00";
    aggregates.add(&dev, counts("a", later, json!({"f": {"yes": 3, "variants": {"v": 2, "w": 1}}})), now());
    aggregates.add(&dev, counts("b", START, json!({"f": {"no": 1}})), now());
    aggregates.add(&dev, counts("a", "2024-02-03T03:59:59Z", json!({"f": {"no": 1}})), now());
    aggregates.add(&token("*:prod.s"), counts("a", START, json!({"f": {"no": 1}})), now());
    assert_eq!(aggregates.environments().collect::<Vec<_>>(), ["dev", "prod"]);
    let sum = |application: &str, hour: &str, counts: Value| {
        let mut sum = json!({"featureName": "f", "appName": application, "environment": "dev", "timestamp": hour, "sdkVersion": "s"});
        for name in ["yes", "no", "variants"] {
            sum[name] = counts[name].clone();
        }
        sum
    };
    let wanted = json!({"applications": [], "metrics": [
        sum("a", "2024-02-03T03:00:00Z", json!({"yes": 0, "no": 1, "variants": {}})),
        sum("a", HOUR, json!({"yes": 4, "no": 2, "variants": {"v": 3, "w": 1}})),
        sum("b", HOUR, json!({"yes": 0, "no": 1, "variants": {}})),
    ]});
    assert_eq!(sent(&mut aggregates, "dev"), [wanted]);
    assert!(sent(&mut aggregates, "dev").is_empty());
    assert_eq!(sent(&mut aggregates, "prod").len(), 1);
    assert_eq!((aggregates.bytes(), aggregates.dropped()), (0, Dropped::default()));
}

#[test]
fn clocks_that_are_wrong_make_no_hours_of_their_own() {
    let mut aggregates = Aggregates::new(1 << 20);
    let starts = ["1867-11-07T12:00:00Z", "1934-11-07T12:00:00Z", "2999-11-07T12:00:00Z", "yesterday"];
    for start in starts {
        aggregates.add(&token("*:dev.s"), counts("a", start, json!({"f": {"yes": 1}})), now());
    }
    let body = sent(&mut aggregates, "dev").remove(0);
    let sums: Vec<(&str, u64)> = body["metrics"]
        .as_array()
        .expect("sums")
        .iter()
        .map(|sum| (sum["timestamp"].as_str().expect("a time"), sum["yes"].as_u64().expect("a count")))
        .collect();
    assert_eq!(sums, [("2024-02-02T04:00:00Z", 2), (HOUR, 1), ("2024-02-04T04:00:00Z", 1)]);
}

#[test]
fn an_application_has_the_rights_of_its_token() {
    let mut aggregates = Aggregates::new(1 << 20);
    let text = json!({"appName": "a", "instanceId": "1", "environment": "ignored", "projects": ["x"], "sdkType": "frontend",
        "interval": 15000, "started": START, "strategies": ["default"], "later": [1], "connectVia": [{"appName": "e", "instanceId": "0"}]});
    let application = ClientApplication::read(text.to_string().as_bytes()).expect("an application");
    for _ in 0..3 {
        aggregates.register(&token("p:dev.s"), &via(), application.clone());
    }
    let mut wanted = text;
    wanted["environment"] = "dev".into();
    wanted["projects"] = json!(["p"]);
    wanted["sdkType"] = "backend".into();
    wanted["connectVia"] = json!([{"appName": "e", "instanceId": "0"}, {"appName": "weir", "instanceId": "i"}]);
    assert_eq!(sent(&mut aggregates, "dev"), [json!({"applications": [wanted], "metrics": []})]);
    assert_eq!(aggregates.bytes(), 0);
}

fn bulk(environment: &str, features: usize) -> BulkMetrics {
    let metrics: Vec<Value> = (0..features)
        .map(|at| json!({"featureName": format!("f{at}"), "appName": "a", "environment": environment, "timestamp": START, "yes": 1, "no": 0, "variants": {}}))
        .collect();
    let application = json!({"appName": "a", "interval": 1, "started": START, "strategies": []});
    let text = json!({"applications": [application], "metrics": metrics, "seenTokens": ["t"],
        "impactMetrics": [{"name": "m", "help": "h", "type": "counter", "samples": [{"value": 1.5}]}]});
    BulkMetrics::read(text.to_string().as_bytes()).expect("bulk metrics")
}

#[test]
fn an_edge_sends_sums_of_its_own_environment_alone() {
    let mut aggregates = Aggregates::new(1 << 20);
    for environment in ["dev", "prod"] {
        aggregates.add_bulk(&token("*:dev.s"), &via(), bulk(environment, 2), now());
    }
    assert_eq!(aggregates.dropped(), Dropped { foreign: 2, ..Dropped::default() });
    let body = sent(&mut aggregates, "dev").remove(0);
    assert_eq!(body["metrics"].as_array().map(Vec::len), Some(2));
    assert_eq!(body["applications"][0]["connectVia"], json!([{"appName": "weir", "instanceId": "i"}]));
    assert_eq!(body["applications"][0]["environment"], "dev");
    assert_eq!(body["impactMetrics"][0]["samples"], json!([{"labels": {"origin": "edge"}, "value": 3.0}]));
    assert_eq!(body["seenTokens"], json!(["t"]));
}

#[test]
fn bodies_are_cut_and_put_back() {
    let mut aggregates = Aggregates::new(8 << 20);
    aggregates.add_bulk(&token("*:dev.s"), &via(), bulk("dev", 3_000), now());
    let bytes = aggregates.bytes();
    let batches = aggregates.take("dev");
    assert!(batches.len() > 3, "{}", batches.len());
    assert!(batches.iter().all(|batch| batch.to_json().len() < UPLOAD_BYTES_MAX && batch.environment() == "dev"));
    assert_eq!(batches.iter().map(|batch| batch.items()).sum::<usize>(), 3_003);
    let first: Value = serde_json::from_slice(&batches[0].to_json()).expect("JSON");
    assert_eq!(first["applications"].as_array().map(Vec::len), Some(1), "the upstream must know it first");
    aggregates.add_bulk(&token("*:dev.s"), &via(), bulk("dev", 10), now());
    batches.into_iter().for_each(|batch| aggregates.put_back(batch));
    assert_eq!(aggregates.bytes(), bytes, "the keys are the same");
    let bodies = sent(&mut aggregates, "dev");
    let sums = bodies.iter().flat_map(|body| body["metrics"].as_array().expect("sums"));
    assert_eq!(sums.map(|sum| sum["yes"].as_u64().expect("a count")).sum::<u64>(), 3_010);
}

#[test]
fn f6_a_flood_of_names_pushes_out_older_hours_and_then_itself() {
    let mut aggregates = Aggregates::new(100_000);
    let dev = token("*:dev.s");
    aggregates.add(&dev, counts("old", "2024-02-03T01:00:00Z", json!({"f": {"yes": 1}})), now());
    aggregates.add(&dev, counts("honest", START, json!({"f": {"yes": 1}})), now());
    for at in 0..10_000 {
        aggregates.add(&dev, counts(&format!("app-{at}"), START, json!({"f": {"yes": 1}})), now());
        assert!(aggregates.bytes() <= 100_000);
    }
    aggregates.add(&dev, counts("honest", START, json!({"f": {"yes": 5}})), now());
    aggregates.add(&dev, counts("late", "2024-02-03T01:00:00Z", json!({"f": {"yes": 1}})), now());
    let dropped = aggregates.dropped();
    assert_eq!(dropped.distant, 1);
    assert!(dropped.new > 9_000, "{dropped:?}");
    let bodies = sent(&mut aggregates, "dev");
    let sums: Vec<&Value> = bodies.iter().flat_map(|body| body["metrics"].as_array().expect("sums")).collect();
    assert!(sums.iter().any(|sum| sum["appName"] == "honest" && sum["yes"] == 6));
    assert_eq!(aggregates.bytes(), 0);
}

#[test]
fn f6_a_flood_of_applications_pushes_out_no_sum() {
    let mut aggregates = Aggregates::new(100_000);
    let dev = token("*:dev.s");
    aggregates.add(&dev, counts("old", "2024-02-03T01:00:00Z", json!({"f": {"yes": 1}})), now());
    for at in 0..10_000 {
        let application = json!({"appName": format!("app-{at}"), "interval": 1, "started": START, "strategies": []});
        let application = ClientApplication::read(application.to_string().as_bytes()).expect("an application");
        aggregates.register(&dev, &via(), application);
        assert!(aggregates.bytes() <= 100_000 / 4 + 1_000);
    }
    aggregates.add(&dev, counts("new", START, json!({"f": {"yes": 1}})), now());
    let dropped = aggregates.dropped();
    assert_eq!(dropped.distant, 0);
    assert!(dropped.new > 9_000, "{dropped:?}");
    let bodies = sent(&mut aggregates, "dev");
    let sums = bodies.iter().flat_map(|body| body["metrics"].as_array().into_iter().flatten());
    assert_eq!(sums.count(), 2, "the old and the new one");
    assert_eq!(aggregates.bytes(), 0);
}

#[test]
fn f6_a_metric_that_changes_its_kind_takes_no_room_that_is_not_there() {
    let mut aggregates = Aggregates::new(100_000);
    let dev = token("*:dev.s");
    let metric = |kind: &str, help: &str| {
        let metric = json!({"name": "m", "help": help, "type": kind, "samples": [{"value": 1.0}, {"value": 2.0}]});
        let text = json!({"applications": [], "metrics": [], "impactMetrics": [metric]});
        BulkMetrics::read(text.to_string().as_bytes()).expect("bulk metrics")
    };
    aggregates.add_bulk(&dev, &via(), metric("counter", "h"), now());
    let bytes = aggregates.bytes();
    aggregates.add_bulk(&dev, &via(), metric("gauge", &"h".repeat(50_000)), now());
    assert_eq!((aggregates.bytes(), aggregates.dropped().new), (bytes, 2), "a quarter is for metrics of their own");
    let body = sent(&mut aggregates, "dev").remove(0);
    let (kind, help) = (&body["impactMetrics"][0]["type"], &body["impactMetrics"][0]["help"]);
    assert_eq!((kind, help), (&json!("counter"), &json!("h")), "the former one stays");
    assert_eq!(aggregates.bytes(), 0);
    aggregates.add_bulk(&dev, &via(), metric("counter", "h"), now());
    aggregates.add_bulk(&dev, &via(), metric("gauge", &"h".repeat(5_000)), now());
    assert!(aggregates.bytes() > 5_000 && aggregates.bytes() < 100_000 / 4 && aggregates.dropped().new == 2);
}

#[test]
fn an_offline_gateway_counts_and_forgets() {
    let mut aggregates = Aggregates::new(1 << 20);
    aggregates.add_bulk(&token("*:dev.s"), &via(), bulk("dev", 2), now());
    assert_eq!(aggregates.waiting().metrics.len(), 2);
    aggregates.discard();
    assert_eq!((aggregates.bytes(), aggregates.dropped().new), (0, 5));
    assert_eq!(aggregates.environments().count(), 0);
}

#[test]
fn sums_of_an_environment_without_a_token_leave_room_for_others() {
    let mut aggregates = Aggregates::new(1 << 20);
    aggregates.add_bulk(&token("*:gone.s"), &via(), bulk("gone", 2), now());
    aggregates.add_bulk(&token("*:dev.s"), &via(), bulk("dev", 3), now());
    let bytes = aggregates.bytes();
    assert_eq!((aggregates.discard_environment("gone"), aggregates.discard_environment("none")), (5, 0));
    assert!(aggregates.bytes() < bytes);
    assert_eq!(aggregates.dropped(), Dropped { new: 5, ..Dropped::default() });
    assert_eq!(aggregates.environments().collect::<Vec<_>>(), ["dev"]);
    let bodies = sent(&mut aggregates, "dev");
    assert_eq!((bodies.len(), aggregates.bytes()), (1, 0), "those of the other are whole");
}

#[test]
fn f6_an_sdk_that_is_long_has_room_once_and_is_not_copied_for_the_others() {
    let mut aggregates = Aggregates::new(1 << 20);
    let toggles: serde_json::Map<String, Value> = (0..32_000).map(|at| (format!("f{at}"), json!({"yes": 1}))).collect();
    let mut metrics = counts("a", START, Value::Object(toggles));
    metrics.sdk.sdk_version = Some("s".repeat(500_000));
    // 16 GB of copies would take several seconds.
    aggregates.add(&token("*:dev.s"), metrics, now());
    assert_eq!((aggregates.waiting().metrics.len(), aggregates.dropped().new), (1, 31_999));
    assert!(aggregates.bytes() > 500_000 && aggregates.bytes() <= 1 << 20);
}

#[test]
fn each_text_of_an_sdk_counts() {
    let names = [
        "sdkVersion",
        "sdkType",
        "yggdrasilVersion",
        "platformName",
        "platformVersion",
        "sdkFlavor",
        "sdkFlavorVersion",
    ];
    let text: serde_json::Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), (*name).into())).collect();
    let sdk: SdkFields = serde_json::from_value(text.into()).expect("an SDK");
    assert_eq!(sdk_texts(&sdk).collect::<Vec<_>>(), names);
}

#[test]
fn an_item_that_fits_no_body_is_dropped() {
    let mut aggregates = Aggregates::new(8 << 20);
    let variants: serde_json::Map<String, Value> = (0..20_000).map(|at| (format!("variant {at}"), 1.into())).collect();
    aggregates.add(
        &token("*:dev.s"),
        counts("a", START, json!({"f": {"yes": 1, "variants": variants}, "g": {"no": 1}})),
        now(),
    );
    let bodies = sent(&mut aggregates, "dev");
    assert_eq!(bodies.iter().map(|body| body["metrics"].as_array().expect("sums").len()).sum::<usize>(), 1);
    assert_eq!(aggregates.dropped(), Dropped { too_large: 1, ..Dropped::default() });
}

#[test]
fn a_token_without_an_environment_counts_for_development() {
    let mut aggregates = Aggregates::new(1 << 20);
    let offline = Token::parse_offline("secret", None).expect("a token");
    assert_eq!(offline.projects(), &Projects::All);
    aggregates.add(&offline, counts("a", START, json!({"f": {"yes": 1}})), now());
    assert_eq!(aggregates.environments().collect::<Vec<_>>(), ["development"]);
}

proptest! {
    #[test]
    fn the_bytes_add_up_whatever_comes(
        steps in proptest::collection::vec((0..3u8, 0..4u32, 0..6u32, 0..3u32), 0..60),
        bytes_max in 500..20_000usize,
    ) {
        let mut aggregates = Aggregates::new(bytes_max);
        let dev = token("*:dev.s");
        for (kind, application, feature, hour) in steps {
            let start = format!("2024-02-03T0{hour}:00:00Z");
            match kind {
                0 => {
                    let variants = json!({format!("v{feature}"): 1});
                    let toggles = json!({format!("f{feature}"): {"yes": 1, "variants": variants}});
                    aggregates.add(&dev, counts(&format!("a{application}"), &start, toggles), now());
                }
                1 => aggregates.add_bulk(&dev, &via(), bulk("dev", feature as usize), now()),
                _ => aggregates.take("dev").into_iter().for_each(|batch| aggregates.put_back(batch)),
            }
            prop_assert!(aggregates.bytes() <= bytes_max);
        }
        aggregates.take("dev");
        prop_assert_eq!(aggregates.bytes(), 0);
    }
}
