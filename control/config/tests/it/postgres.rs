//! Rules of PostgreSQL listeners: those that protect nothing are reported, and those of the example do what they say.

use std::path::Path;

use crate::support::Memory;
use weir_analysis::postgres::{Limits, analyse};
use weir_config::{ListenerProtocol, check};
use weir_policy::postgres::{Action, Policy, RuleSettings, Settings};
use weir_postgres::rules::RuleAction;

/// The warnings about a listener with these lines.
fn warnings(bind: &str, lines: &str) -> String {
    let file = format!(
        "[[listener]]\nname = \"pg\"\nprotocol = \"postgres\"\nbind = \"{bind}\"\nupstream = \"pg\"\n{lines}\n\
         [[upstream]]\nname = \"pg\"\nendpoints = [\"127.0.0.1:5432\"]\n[upstream.postgres]\nuser = \"app\"\n\
         password = \"env:REDIS_PASSWORD\"\n"
    );
    let snapshot = check(&file, "weir.toml", Path::new(""), &Memory::furnished());
    let warnings = snapshot.unwrap_or_else(|errors| panic!("{lines}: {errors}")).warnings;
    if warnings.is_empty() { String::new() } else { warnings.to_string() }
}

const APP: &str = "[[listener.user]]\nname = \"app\"\npassword = \"env:REDIS_PASSWORD\"\n";
const TLS: &str = "[listener.tls]\ncert_file = \"server.crt\"\nkey_file = \"server.key\"\n";
const TCP: &str = "127.0.0.1:6432";

fn hba(rules: &[&str]) -> String {
    rules.iter().map(|rule| format!("[[listener.postgres.hba]]\n{}\n", rule.replace("; ", "\n"))).collect()
}

#[test]
fn a_rule_about_clients_that_fits_none_is_reported() {
    let all = "type = \"host\"; method = \"scram-sha-256\"";
    let eve = "type = \"host\"; user = \"eve\"; method = \"reject\"";
    let eve_here = "type = \"hostnossl\"; user = \"eve,mallory\"; address = \"10.1.0.0/16\"; method = \"reject\"";
    let near = "type = \"host\"; address = \"10.0.0.0/8\"; method = \"scram-sha-256\"";
    let with_tls = "type = \"hostssl\"; method = \"scram-sha-256\"";
    let local = "type = \"local\"; method = \"trust\"";
    let trust = "type = \"host\"; method = \"trust\"";
    for (bind, rules, tls, word) in [
        (TCP, [all, eve], "", "never reached"),
        (TCP, [near, eve_here], "", "never reached"),
        (TCP, [with_tls, all], "", "the listener has no TLS"),
        (TCP, [local, all], "", "not bound to a Unix socket"),
        ("unix:/run/weir/pg", [local, all], "", "use the Unix socket"),
        (TCP, [eve, trust], "", "accepts every client"),
        (TCP, [eve, all], "", ""),
        (TCP, [near, eve], "", ""),
        (TCP, [eve_here, near], "", ""),
        (TCP, [with_tls, all], TLS, ""),
    ] {
        let said = warnings(bind, &format!("{tls}{}{APP}", hba(&rules)));
        let is_right = if word.is_empty() { said.is_empty() } else { said.contains(word) };
        assert!(is_right, "{rules:?}: {said}");
    }
}

#[test]
fn a_rule_about_statements_that_fits_none_is_reported() {
    let rule = |name: &str, action: &str, lists: &str| {
        let lists = lists.replace("; ", "\n");
        format!("[[listener.postgres.rule]]\nname = \"{name}\"\naction = \"{action}\"\n{lists}\n")
    };
    let database = "[[listener.postgres.database]]\nname = \"shop\"\n";
    for (lines, word) in [
        (rule("a", "deny", "classes = [\"ddl\"]; verbs = [\"truncate\"]"), "fits no statement"),
        (rule("a", "deny", "verbs = [\"drop\", \"vacuum\"]; functions = [\"*\"]"), "fits no statement"),
        (rule("a", "deny", "classes = [\"transaction\"]; tables = [\"orders\"]"), "fits no statement"),
        (rule("a", "deny", "classes = [\"ddl\"]; verbs = [\"truncate\", \"drop\"]"), ""),
        (rule("a", "deny", "classes = [\"ddl\"]; functions = [\"pg_sleep\"]"), ""),
        (rule("a", "allow", "") + &rule("b", "deny", "classes = [\"ddl\"]"), "never decides"),
        (rule("a", "allow", "users = [\"app\"]") + &rule("b", "deny", "users = [\"app\"]"), "never decides"),
        (rule("a", "allow", "users = [\"app\"]") + &rule("b", "deny", "classes = [\"ddl\"]"), ""),
        (rule("a", "count", "") + &rule("b", "deny", "classes = [\"ddl\"]"), ""),
        (rule("a", "deny", "tables = [\"Orders\"]"), "double quotes"),
        (rule("a", "deny", "tables = [\"Orders\", \"orders\"]"), ""),
        (rule("a", "deny", "tables = [\"audit.*\"]"), "every name without schema"),
        (rule("a", "deny", "functions = [\"pg_catalog.*\"]"), "every name without schema"),
        (rule("a", "deny", "tables = [\"audit.log*\"]"), ""),
        (rule("a", "allow", "tables = [\"audit.*\"]"), ""),
        (rule("a", "deny", "users = [\"ap\"]"), "no user of this listener"),
        ("[listener.postgres]\nread_only_users = [\"reprots\"]\n".to_owned(), "no user of this listener"),
        ("[listener.postgres]\nread_only_users = [\"listed\"]\nuserlist = \"userlist.txt\"\n".to_owned(), ""),
        ("[listener.postgres]\nread_only_users = [\"x\"]\nauth_user = \"app\"\n".to_owned(), ""),
        (rule("a", "deny", "databases = [\"shpo\"]") + database, "no database of this listener"),
        (rule("a", "deny", "databases = [\"shop\"]") + database, ""),
        (rule("a", "deny", "databases = [\"any\"]"), ""),
    ] {
        let said = warnings(TCP, &format!("{lines}{APP}"));
        let is_right = if word.is_empty() { said.is_empty() } else { said.contains(word) };
        assert!(is_right, "{lines}: {said}");
    }
}

/// A rule that is copied from the example has to protect.
#[test]
fn the_rules_of_the_example_do_what_they_say() {
    let snapshot = crate::examples::loaded("postgres-full.toml");
    let ListenerProtocol::Postgres(settings) = &snapshot.listener("pg").expect("the listener").protocol else {
        panic!("a PostgreSQL listener")
    };
    let rules = settings.statement_rules.rules.iter();
    let decide = rules.filter(|rule| matches!(rule.action, RuleAction::Allow | RuleAction::Deny)).map(|rule| {
        let action = if rule.action == RuleAction::Allow { Action::Allow } else { Action::Deny };
        RuleSettings { action, ..rule.conditions.clone() }
    });
    let policy = Policy::new(&Settings {
        read_only_users: settings.statement_rules.read_only_users.clone(),
        rules: decide.collect(),
        default: if settings.statement_rules.denies_others { Action::Deny } else { Action::Allow },
        statements_max: settings.statement_rules.statements_max,
        passes_unknown: false,
    });
    let user = policy.expect("a policy").user(b"app");
    let judged = |text: &str| {
        let analysis = analyse(text.as_bytes(), &Limits::default());
        user.check(text.as_bytes(), &analysis).map_err(|denial| denial.reason.word().to_owned())
    };
    for (text, rule) in [
        ("drop table public.orders", "no-ddl"),
        ("vacuum", "no-ddl"),
        ("truncate public.orders", "no-truncate"),
        ("select * from audit.log_2026", "no-secrets"),
        ("select * from log_2026", "no-secrets"),
        ("select * from public.secret", "no-secrets"),
        ("select pg_sleep(1000)", "no-sleep"),
    ] {
        assert_eq!(judged(text), Err(rule.to_owned()), "{text}");
    }
    assert_eq!(judged("select * from orders"), Ok(()));
}
