//! Strategies, constraints, segments, variants and dependencies, a rule at a time.

use serde_json::{Value, json};
use weir_base::Rng;
use weir_flags_session::{Listing, Projects};

use crate::support::{flag, frontend, is_on, result_of, snapshot, variant, with};

fn strategy(name: &str, parameters: Value) -> weir_flags_session::Snapshot {
    flag(json!({"strategies": [{"name": name, "parameters": parameters}]}))
}

fn constraint(constraint: Value) -> weir_flags_session::Snapshot {
    flag(json!({"strategies": [{"name": "default", "constraints": [constraint]}]}))
}

/// Whether a constraint for the property `p` holds for each of the values.
fn holds<const N: usize>(operator: &str, members: Value, values: [&str; N]) -> [bool; N] {
    let mut members = members;
    members["contextName"] = "p".into();
    members["operator"] = operator.into();
    let snapshot = constraint(members);
    assert_eq!(snapshot.warnings(), [], "{operator}");
    values.map(|value| is_on(&snapshot, json!({"properties": {"p": value}})))
}

#[test]
fn a_flag_without_strategies_is_on_if_it_is_enabled() {
    for strategies in [json!(null), json!([])] {
        assert!(is_on(&flag(json!({"strategies": strategies})), json!({})));
        assert!(!is_on(&flag(json!({"strategies": strategies, "enabled": false})), json!({})));
    }
    assert!(result_of(&flag(json!({})), "g", &json!({}), &mut Rng::new(1)).is_none());
}

#[test]
fn one_strategy_that_holds_is_enough() {
    let strategies = json!([
        {"name": "userWithId", "parameters": {"userIds": "1, 2 ,3"}},
        {"name": "remoteAddress", "parameters": {"IPs": "10.0.0.0/8, bad, 192.0.2.1"}},
        {"name": "ofTheApplication"}
    ]);
    let snapshot = flag(json!({"strategies": strategies}));
    for (context, wanted) in [
        (json!({"userId": "2"}), true),
        (json!({"userId": 3}), true),
        (json!({"userId": "4"}), false),
        (json!({"remoteAddress": "10.9.8.7"}), true),
        (json!({"remoteAddress": "192.0.2.1", "userId": "9"}), true),
        (json!({"remoteAddress": "192.0.2.2"}), false),
        (json!({}), false),
    ] {
        assert_eq!(is_on(&snapshot, context.clone()), wanted, "{context}");
    }
}

#[test]
fn strategies_without_their_settings_never_hold() {
    for name in [
        "userWithId",
        "remoteAddress",
        "applicationHostname",
        "gradualRolloutUserId",
        "gradualRolloutSessionId",
        "gradualRolloutRandom",
        "flexibleRollout",
        "unknown",
    ] {
        let snapshot = strategy(name, json!({}));
        assert!(!is_on(&snapshot, json!({"userId": "1", "sessionId": "1", "remoteAddress": "::1"})), "{name}");
        assert_eq!(snapshot.warnings(), []);
    }
}

#[test]
fn a_host_name_is_compared_without_case() {
    assert!(is_on(&strategy("applicationHostname", json!({"hostNames": "other, HOST-1"})), json!({})));
    assert!(!is_on(&strategy("applicationHostname", json!({"hostNames": "other"})), json!({})));
}

#[test]
fn rollouts_are_those_of_the_sdks() {
    // User 174 of the group AB12A is the 73rd of a hundred (client specification 03).
    let user =
        |percent: u32| strategy("gradualRolloutUserId", json!({"percentage": percent.to_string(), "groupId": "gr1"}));
    assert!(is_on(&user(73), json!({"userId": "123"})) && !is_on(&user(72), json!({"userId": "123"})));
    assert!(!is_on(&user(100), json!({"sessionId": "123"})), "without a user");
    let session = strategy("gradualRolloutSessionId", json!({"percentage": 73, "groupId": "gr1"}));
    assert!(is_on(&session, json!({"sessionId": "123"})) && !is_on(&session, json!({"userId": "123"})));
    let sticky = |stickiness: &str, percent: u32| {
        strategy("flexibleRollout", json!({"rollout": percent.to_string(), "groupId": "gr1", "stickiness": stickiness}))
    };
    for (stickiness, context) in [
        ("default", json!({"userId": "123", "sessionId": "x"})),
        ("default", json!({"sessionId": "123"})),
        ("userId", json!({"userId": "123"})),
        ("plan", json!({"properties": {"plan": "123"}})),
        ("appName", json!({"appName": "123"})),
    ] {
        assert!(is_on(&sticky(stickiness, 73), context.clone()), "{stickiness}");
        assert!(!is_on(&sticky(stickiness, 72), context), "{stickiness}");
    }
    assert!(!is_on(&sticky("plan", 100), json!({"userId": "1"})), "a value that is absent");
    let of_name = strategy("flexibleRollout", json!({"rollout": "100"}));
    assert!(is_on(&of_name, json!({"userId": "1"})));
    assert!(!is_on(&sticky("default", 0), json!({"userId": "1"})));
}

#[test]
fn chance_decides_in_the_right_share() {
    for snapshot in [
        strategy("gradualRolloutRandom", json!({"percentage": "30"})),
        strategy("flexibleRollout", json!({"rollout": "30", "stickiness": "random"})),
        strategy("flexibleRollout", json!({"rollout": "30"})),
    ] {
        let mut rng = Rng::new(7);
        let on = (0..10_000)
            .filter(|_| result_of(&snapshot, "f", &json!({}), &mut rng).expect("the flag")["enabled"] == true);
        let on = on.count();
        assert!((2_800..3_200).contains(&on), "{on}");
    }
}

#[test]
fn texts_are_compared_with_and_without_case() {
    let values = json!({"values": ["ab", "C", "ß"]});
    let ignoring = json!({"values": ["ab", "C", "ß"], "caseInsensitive": true});
    assert_eq!(holds("IN", values.clone(), ["ab", "AB", "c", "abc"]), [true, false, false, false]);
    assert_eq!(holds("IN", ignoring.clone(), ["ab", "AB"]), [true, false], "no case for IN");
    assert_eq!(holds("NOT_IN", values.clone(), ["ab", "x"]), [false, true]);
    assert_eq!(holds("STR_STARTS_WITH", values.clone(), ["abx", "ABx", "Cx", "xab"]), [true, false, true, false]);
    assert_eq!(holds("STR_STARTS_WITH", ignoring.clone(), ["abx", "ABx", "cx", "xab"]), [true, true, true, false]);
    assert_eq!(holds("STR_ENDS_WITH", values.clone(), ["xab", "xAB", "xß", "abx"]), [true, false, true, false]);
    assert_eq!(holds("STR_ENDS_WITH", ignoring.clone(), ["xAB", "abx"]), [true, false]);
    assert_eq!(holds("STR_CONTAINS", values, ["xabx", "xABx", "x"]), [true, false, false]);
    assert_eq!(holds("STR_CONTAINS", ignoring, ["xABx", "xcx", "xßx", "x"]), [true, true, true, false]);
    for (operator, wanted) in [("IN", false), ("NOT_IN", true), ("STR_CONTAINS", false), ("IN_CIDR", false)] {
        assert_eq!(holds(operator, json!({"values": []}), ["a"]), [wanted], "{operator}");
        assert_eq!(holds(operator, json!({"values": [], "inverted": true}), ["a"]), [!wanted], "{operator}");
        assert_eq!(holds(operator, json!({}), ["a"]), [wanted], "{operator}");
    }
}

#[test]
fn numbers_dates_and_versions_are_compared_by_value() {
    let values = ["11", "12.0", "1.3e1", "x", ""];
    for (operator, wanted) in [
        ("NUM_EQ", [false, true, false, false, false]),
        ("NUM_LT", [true, false, false, false, false]),
        ("NUM_LTE", [true, true, false, false, false]),
        ("NUM_GT", [false, false, true, false, false]),
        ("NUM_GTE", [false, true, true, false, false]),
    ] {
        assert_eq!(holds(operator, json!({"value": "12"}), values), wanted, "{operator}");
        let inverted = holds(operator, json!({"value": "12", "inverted": true}), values);
        assert_eq!(inverted, wanted.map(|it| !it), "{operator}");
    }
    let versions = ["1.2.2", "1.2.3", "1.2.3-beta.1", "1.2.10+build", "v1.2.3", "1.2"];
    for (operator, wanted) in [
        ("SEMVER_EQ", [false, true, false, false, false, false]),
        ("SEMVER_LT", [true, false, true, false, false, false]),
        ("SEMVER_LTE", [true, true, true, false, false, false]),
        ("SEMVER_GT", [false, false, false, true, false, false]),
        ("SEMVER_GTE", [false, true, false, true, false, false]),
    ] {
        assert_eq!(holds(operator, json!({"value": "1.2.3"}), versions), wanted, "{operator}");
    }
    let dates = ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.001+00:00", "2023-12-31T23:00:00-01:00", "2024"];
    assert_eq!(holds("DATE_AFTER", json!({"value": "2024-01-01T00:00:00Z"}), dates), [false, true, false, false]);
    assert_eq!(holds("DATE_BEFORE", json!({"value": "2024-01-01T00:00:00.0005Z"}), dates), [true, false, true, false]);
}

#[test]
fn the_present_time_stands_for_an_absent_one() {
    let after =
        |value: &str| constraint(json!({"contextName": "currentTime", "operator": "DATE_AFTER", "value": value}));
    assert!(is_on(&after("2024-02-03T04:05:05Z"), json!({})));
    assert!(!is_on(&after("2024-02-03T04:05:06Z"), json!({})));
    assert!(!is_on(&after("2024-02-03T04:05:05Z"), json!({"currentTime": "2024-02-03T04:05:04Z"})));
}

#[test]
fn f5_patterns_and_networks_match_in_linear_time() {
    assert_eq!(holds("REGEX", json!({"value": "^a\\d+$"}), ["a1", "A1", "a"]), [true, false, false]);
    assert_eq!(holds("REGEX", json!({"value": "^a", "caseInsensitive": true}), ["A1"]), [true]);
    assert_eq!(holds("REGEX", json!({"value": "(a"}), ["(a"]), [false], "no pattern");
    assert_eq!(holds("REGEX", json!({"value": "(((((a{100}){100}){100}){100}){100})"}), ["a"]), [false], "too large");
    assert_eq!(holds("REGEX", json!({"value": "^\\p{Greek}é.$"}), ["αéü"]), [true]);
    let hostile = "a".repeat(4_000);
    assert_eq!(holds("REGEX", json!({"value": "^(a+)+$"}), [&format!("{hostile}!")]), [false]);
    let networks = json!({"values": ["10.0.0.0/8", "bad", "2001:db8::/32"]});
    assert_eq!(holds("IN_CIDR", networks, ["10.1.1.1", "11.1.1.1", "2001:db8::9", "x"]), [true, false, true, false]);
}

#[test]
fn an_absent_value_holds_for_not_in_and_for_inverted_constraints() {
    for (operator, members, wanted) in [
        ("IN", json!({"values": ["a"]}), false),
        ("NOT_IN", json!({"values": ["a"]}), true),
        ("STR_CONTAINS", json!({"values": [""]}), false),
        ("NUM_EQ", json!({"value": "0"}), false),
        ("DATE_AFTER", json!({"value": "2000-01-01T00:00:00Z"}), false),
        ("SEMVER_EQ", json!({"value": "1.0.0"}), false),
        ("REGEX", json!({"value": ""}), false),
        ("IN_CIDR", json!({"values": ["0.0.0.0/0"]}), false),
    ] {
        for is_inverted in [false, true] {
            let mut members = members.clone();
            members["contextName"] = "p".into();
            members["operator"] = operator.into();
            members["inverted"] = is_inverted.into();
            assert_eq!(is_on(&constraint(members), json!({})), wanted != is_inverted, "{operator} {is_inverted}");
        }
    }
}

#[test]
fn a_flag_without_a_meaning_is_off_and_listed() {
    let bad = |operator: &str, value: Value| {
        json!({"strategies": [{"name": "default"}, {"name": "default",
        "constraints": [{"contextName": "p", "operator": operator, "value": value}]}]})
    };
    for (members, text) in [
        (bad("LATER", json!("1")), "the operator of a constraint is not known"),
        (bad("NUM_EQ", json!("x")), "the operand of a constraint is no number"),
        (bad("NUM_EQ", json!("inf")), "the operand of a constraint is no number"),
        (bad("DATE_AFTER", json!(null)), "the operand of a constraint is no date"),
        (bad("SEMVER_EQ", json!("v1.0.0")), "the operand of a constraint is no semantic version"),
        (json!({"strategies": [{"name": "default", "segments": [7]}]}), "a segment is absent"),
        (
            json!({"strategies": [{"name": "flexibleRollout", "parameters": {"rollout": "101"}}]}),
            "a rollout has more than 100 %",
        ),
        (json!({"strategies": "none"}), "a field has another type"),
        (json!({"enabled": "yes"}), "a field has another type"),
    ] {
        let snapshot = flag(members.clone());
        assert!(!is_on(&snapshot, json!({})), "{members}");
        let warnings: Vec<(&str, &str)> = snapshot.warnings().iter().map(|it| (&*it.flag, it.text)).collect();
        assert_eq!(warnings, [("f", text)], "{members}");
        assert!(snapshot.feature("f", &snapshot.scope(&Projects::All)).is_some(), "its text passes");
    }
}

#[test]
fn segments_are_further_constraints() {
    let segment = |id: i64, value: &str| json!({"id": id, "constraints": [{"contextName": "p", "operator": "STR_CONTAINS", "values": [value]}]});
    let document = |second: Value| {
        snapshot(&json!({"version": 2, "segments": [segment(1, "a"), second],
            "features": [with(json!({"strategies": [{"name": "default", "segments": [1, 2]}]}), "f"), with(json!({}), "g")]}))
    };
    let both = document(segment(2, "b"));
    for (value, wanted) in [("ab", true), ("a", false), ("b", false)] {
        assert_eq!(is_on(&both, json!({"p": value})), wanted, "{value}");
    }
    let broken = document(json!({"id": 2, "constraints": [{"contextName": "p", "operator": "LATER"}]}));
    assert!(!is_on(&broken, json!({"p": "ab"})));
    assert_eq!(broken.warnings().len(), 1, "only of the flag that uses it");
}

#[test]
fn variants_follow_weights_stickiness_and_overrides() {
    let of = |members: Value| flag(json!({"variants": members}));
    let two = of(json!([{"name": "a", "weight": 1}, {"name": "b", "weight": 1}]));
    for name in ["a", "b"] {
        assert!((0..50).any(|user| variant(&two, json!({"userId": user})) == name), "{name}");
    }
    for user in 0..50 {
        assert_eq!(variant(&two, json!({"userId": user})), variant(&two, json!({"sessionId": user})), "{user}");
    }
    let zero = of(json!([{"name": "a", "weight": 0}, {"name": "b", "weight": 5}, {"name": "c", "weight": -3}]));
    for user in 0..50 {
        assert_eq!(variant(&zero, json!({"userId": user})), "b");
    }
    assert_eq!(variant(&of(json!([{"name": "a", "weight": 0}])), json!({"userId": "1"})), "disabled");
    assert_eq!(variant(&of(json!([{"name": "a"}])), json!({"userId": "1"})), "disabled");
    assert_eq!(variant(&of(json!([])), json!({"userId": "1"})), "disabled");
    let overrides =
        json!([{"contextName": "userId", "values": ["7"]}, {"contextName": "plan", "values": ["x", "pro"]}]);
    let forced = of(json!([{"name": "a", "weight": 100}, {"name": "b", "weight": 0, "overrides": overrides}]));
    for (context, wanted) in
        [(json!({"userId": "7"}), "b"), (json!({"plan": "pro"}), "b"), (json!({"userId": "8", "plan": "no"}), "a")]
    {
        assert_eq!(variant(&forced, context.clone()), wanted, "{context}");
    }
    let sticky = of(json!([
        {"name": "a", "weight": 50, "stickiness": "plan"}, {"name": "b", "weight": 50, "stickiness": "userId"}
    ]));
    let of_plan = |user: u32| variant(&sticky, json!({"plan": "pro", "userId": user}));
    assert!((0..50).all(|user| of_plan(user) == of_plan(0)), "the first variant decides about the stickiness");
}

#[test]
fn chance_chooses_a_variant_by_weight() {
    for stickiness in ["random", "default", "absent"] {
        let snapshot = flag(json!({"variants": [
            {"name": "a", "weight": 300, "stickiness": stickiness}, {"name": "b", "weight": 700, "stickiness": stickiness}
        ]}));
        let mut rng = Rng::new(3);
        let found = (0..10_000)
            .filter(|_| result_of(&snapshot, "f", &json!({}), &mut rng).expect("the flag")["variant"]["name"] == "a");
        let found = found.count();
        assert!((2_800..3_200).contains(&found), "{stickiness}: {found}");
    }
}

#[test]
fn a_strategy_has_its_own_variants() {
    let snapshot = flag(json!({
        "variants": [{"name": "of the flag", "weight": 1}],
        "strategies": [
            {"name": "userWithId", "parameters": {"userIds": "1"}, "variants": [{"name": "first", "weight": 1}]},
            {"name": "userWithId", "parameters": {"userIds": "2,1"}, "variants": [{"name": "second", "weight": 1}]},
            {"name": "userWithId", "parameters": {"userIds": "3"}, "variants": []}
        ]
    }));
    for (user, wanted) in [("1", "first"), ("2", "second"), ("3", "of the flag"), ("4", "disabled")] {
        assert_eq!(variant(&snapshot, json!({"userId": user})), wanted, "{user}");
    }
}

/// The flag `f` with these dependencies, beside flags to depend on.
fn child(dependencies: Value) -> weir_flags_session::Snapshot {
    let red = json!([{"name": "red", "weight": 1}]);
    snapshot(&json!({"version": 2, "features": [
        with(json!({"dependencies": dependencies}), "f"),
        with(json!({"variants": red}), "with red"),
        with(json!({}), "plain"),
        with(json!({"enabled": false, "variants": red}), "off"),
        with(json!({"strategies": [{"name": "userWithId", "parameters": {"userIds": "1"}}]}), "of user 1"),
        with(json!({"dependencies": [{"feature": "plain"}]}), "child"),
    ]}))
}

#[test]
fn a_flag_depends_on_the_results_of_others() {
    for (dependencies, wanted) in [
        (json!([{"feature": "plain"}]), true),
        (json!([{"feature": "plain", "enabled": false}]), false),
        (json!([{"feature": "off"}]), false),
        (json!([{"feature": "off", "enabled": false}]), true),
        (json!([{"feature": "off", "enabled": false, "variants": ["blue"]}]), true),
        (json!([{"feature": "absent"}]), false),
        (json!([{"feature": "absent", "enabled": false}]), false),
        (json!([{"feature": "f"}]), false),
        (json!([{"feature": "child"}]), false),
        (json!([{"feature": "with red", "variants": ["blue", "red"]}]), true),
        (json!([{"feature": "with red", "variants": ["blue"]}]), false),
        (json!([{"feature": "with red", "variants": []}]), true),
        (json!([{"feature": "plain", "variants": ["disabled"]}]), true),
        (json!([{"feature": "plain", "variants": ["red"]}]), false),
        (json!([{"feature": "plain"}, {"feature": "with red"}]), true),
        (json!([{"feature": "plain"}, {"feature": "off"}]), false),
    ] {
        assert_eq!(is_on(&child(dependencies.clone()), json!({})), wanted, "{dependencies}");
    }
    let of_user = child(json!([{"feature": "of user 1"}]));
    assert!(is_on(&of_user, json!({"userId": "1"})) && !is_on(&of_user, json!({"userId": "2"})));
}

#[test]
fn a_document_agrees_with_itself_about_chance() {
    let snapshot = snapshot(&json!({"version": 2, "features": [
        with(json!({"dependencies": [{"feature": "z"}]}), "a"),
        with(json!({"dependencies": [{"feature": "z", "enabled": false}]}), "b"),
        with(json!({"strategies": [{"name": "gradualRolloutRandom", "parameters": {"percentage": "50"}}]}), "z"),
    ]}));
    for _ in 0..20 {
        let (text, _) = frontend(&snapshot, &Projects::All, Listing::All, "");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let on: Vec<bool> = (0..3).map(|at| document["toggles"][at]["enabled"] == true).collect();
        assert!(on[0] == on[2] && on[1] != on[2], "{on:?}");
    }
}
