use proptest::prelude::*;

use super::*;

const FACTS: Facts<'static> = Facts {
    source: IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3)),
    model: "gpt-4o-mini",
    is_priced: true,
    tools: Some(&["search", "web_search"]),
    prompt_bytes: 1_000,
    output_tokens: Some(500),
};

fn globs(patterns: &[&str]) -> Vec<Glob> {
    patterns.iter().map(|pattern| Glob::new(pattern).unwrap()).collect()
}

fn refusal(policy: &Policy) -> Option<Denial> {
    match judge([policy], &FACTS) {
        Verdict::Refuse(denial) => Some(denial),
        Verdict::Allow { .. } => None,
    }
}

#[test]
fn an_empty_policy_allows_everything_as_it_came() {
    assert_eq!(judge([&Policy::default()], &FACTS), Verdict::Allow { output_tokens: Some(500), observed: None });
    assert_eq!(judge([], &FACTS), Verdict::Allow { output_tokens: Some(500), observed: None });
}

#[test]
fn each_rule_refuses_with_its_own_reason() {
    let rows: Vec<(Policy, Option<Denial>)> = vec![
        (Policy { models_allowed: globs(&["gpt-4o*"]), ..Policy::default() }, None),
        (Policy { models_allowed: globs(&["gpt-5*"]), ..Policy::default() }, Some(Denial::Model)),
        (
            Policy { models_allowed: globs(&["*"]), models_denied: globs(&["*-mini"]), ..Policy::default() },
            Some(Denial::Model),
        ),
        (Policy { tools_allowed: Some(globs(&["search", "web_*"])), ..Policy::default() }, None),
        (Policy { tools_allowed: Some(globs(&["search"])), ..Policy::default() }, Some(Denial::Tool)),
        (Policy { tools_allowed: Some(Vec::new()), ..Policy::default() }, Some(Denial::Tool)),
        (Policy { tools_max: Some(1), ..Policy::default() }, Some(Denial::Tools { limit: 1 })),
        (Policy { prompt_bytes_max: Some(999), ..Policy::default() }, Some(Denial::Prompt { limit: 999 })),
        (Policy { prompt_bytes_max: Some(1_000), ..Policy::default() }, None),
        (Policy { sources: vec!["10.0.0.0/8".parse().unwrap()], ..Policy::default() }, None),
        (Policy { sources: vec!["192.0.2.0/24".parse().unwrap()], ..Policy::default() }, Some(Denial::Source)),
    ];
    for (policy, expected) in rows {
        assert_eq!(refusal(&policy), expected, "{policy:?}");
    }
}

#[test]
fn unreadable_tools_break_every_rule_about_tools_and_no_other() {
    let unread = Facts { tools: None, ..FACTS };
    let rule = Policy { tools_max: Some(100), ..Policy::default() };
    assert_eq!(judge([&rule], &unread), Verdict::Refuse(Denial::Tool));
    assert!(matches!(judge([&Policy::default()], &unread), Verdict::Allow { .. }));
}

#[test]
fn a_model_without_a_price_is_refused_where_money_is_limited() {
    let unpriced = Facts { is_priced: false, ..FACTS };
    let money = Policy { budgets: Budgets { month_money: Some(1), ..Budgets::default() }, ..Policy::default() };
    let tokens = Policy { budgets: Budgets { month_tokens: Some(1), ..Budgets::default() }, ..Policy::default() };
    assert_eq!(judge([&money], &unpriced), Verdict::Refuse(Denial::UnpricedModel));
    assert!(matches!(judge([&tokens], &unpriced), Verdict::Allow { .. }));
}

#[test]
fn the_smallest_output_limit_of_all_levels_is_forwarded() {
    let cap = |tokens, action| Policy { output: Some(OutputCap { tokens, action }), ..Policy::default() };
    let (key, team) = (cap(300, OutputAction::Clamp), cap(200, OutputAction::Clamp));
    let output =
        |policies: &[&Policy], wanted| match judge(policies.iter().copied(), &Facts { output_tokens: wanted, ..FACTS })
        {
            Verdict::Allow { output_tokens, .. } => Ok(output_tokens),
            Verdict::Refuse(denial) => Err(denial),
        };
    assert_eq!(output(&[&key, &team], Some(500)), Ok(Some(200)));
    assert_eq!(output(&[&key, &team], Some(50)), Ok(Some(50)));
    assert_eq!(output(&[&key], None), Ok(Some(300)), "a request without a limit gets the cap");
    let strict = cap(300, OutputAction::Refuse);
    assert_eq!(output(&[&strict], Some(301)), Err(Denial::Output { limit: 300 }));
    assert_eq!(output(&[&strict], None), Ok(Some(300)));
}

#[test]
fn an_observing_level_reports_and_changes_nothing() {
    let observing = Policy {
        models_denied: globs(&["*"]),
        output: Some(OutputCap { tokens: 1, action: OutputAction::Clamp }),
        mode: Mode::Observe,
        ..Policy::default()
    };
    let expected = Verdict::Allow { output_tokens: Some(500), observed: Some(Denial::Model) };
    assert_eq!(judge([&observing, &Policy::default()], &FACTS), expected);
    let enforcing = Policy { models_denied: globs(&["*"]), ..Policy::default() };
    assert_eq!(judge([&observing, &enforcing], &FACTS), Verdict::Refuse(Denial::Model));
}

proptest! {
    /// One more level never allows what fewer refuse, and never raises the output.
    #[test]
    fn a_further_level_is_never_looser(
        caps in proptest::collection::vec((any::<bool>(), 0u64..1_000, any::<bool>(), 0u64..2_000), 1..4),
        wanted in proptest::option::of(0u64..1_000),
    ) {
        let policies: Vec<Policy> = caps.iter().map(|&(refuses, tokens, observes, prompt)| Policy {
            output: Some(OutputCap { tokens, action: if refuses { OutputAction::Refuse } else { OutputAction::Clamp } }),
            mode: if observes { Mode::Observe } else { Mode::Enforce },
            prompt_bytes_max: Some(prompt),
            ..Policy::default()
        }).collect();
        let facts = Facts { output_tokens: wanted, ..FACTS };
        for count in 1..policies.len() {
            let (fewer, more) = (judge(&policies[..count], &facts), judge(&policies[..=count], &facts));
            match (fewer, more) {
                (Verdict::Refuse(_), more) => prop_assert_eq!(more, fewer),
                (Verdict::Allow { output_tokens: Some(less), .. }, Verdict::Allow { output_tokens: Some(now), .. }) => {
                    prop_assert!(now <= less);
                }
                (Verdict::Allow { output_tokens: None, .. }, _) | (_, Verdict::Refuse(_)) => {}
                (_, Verdict::Allow { output_tokens: None, .. }) => prop_assert!(false, "a limit is gone"),
            }
        }
    }
}

#[test]
fn tools_of_a_server_are_permitted_by_server_and_tool_apart() {
    let rule =
        |server: &str, tool: &str| ServerTool { server: Glob::new(server).unwrap(), tool: Glob::new(tool).unwrap() };
    let policy = Policy { server_tools: Some(vec![rule("git*", "get_*"), rule("files", "*")]), ..Policy::default() };
    assert!(policy.permits_tool("github", "get_issue") && policy.permits_tool("files", "a/b"));
    // A pattern of a server does not reach into the name of a tool.
    assert!(!policy.permits_tool("git", "hub/get_x") && !policy.permits_tool("github", "delete"));
    assert!(policy.permits_server("gitlab") && !policy.permits_server("other"));
    let none = Policy { server_tools: Some(Vec::new()), agents: Some(Vec::new()), ..Policy::default() };
    assert!(!none.permits_server("files") && !none.permits_tool("files", "a") && !none.permits_agent("a"));
    let all = Policy::default();
    assert!(all.permits_server("x") && all.permits_tool("x", "y") && all.permits_agent("z"));
}
