use weir_analysis::postgres::{Limits, analyse};

use super::super::{Policy, PolicyError, RuleSettings, Settings};
use super::*;

fn rule(name: &str, action: Action) -> RuleSettings {
    let empty = Vec::new;
    RuleSettings {
        name: name.to_owned(),
        action,
        users: empty(),
        classes: empty(),
        verbs: empty(),
        tables: empty(),
        functions: empty(),
    }
}

fn list(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn settings(rules: Vec<RuleSettings>) -> Settings {
    Settings {
        read_only_users: list(&["reader"]),
        rules,
        default: Action::Allow,
        statements_max: None,
        passes_unknown: false,
    }
}

/// The word of the denial, or "ok".
fn verdict(settings: &Settings, user: &str, text: &str) -> String {
    let policy = Policy::new(settings).expect("a policy").user(user.as_bytes());
    let analysis = analyse(text.as_bytes(), &Limits::default());
    policy.check(text.as_bytes(), &analysis).map_or_else(|denial| denial.reason.word().to_owned(), |()| "ok".to_owned())
}

#[test]
fn a_read_only_user_reads() {
    let settings = settings(vec![]);
    for (text, expected) in [
        ("SELECT * FROM t", "ok"),
        ("BEGIN; SELECT 1; COMMIT", "ok"),
        ("SET search_path TO x", "ok"),
        ("PREPARE p AS SELECT 1", "ok"),
        ("EXECUTE p(1)", "ok"),
        ("COPY t TO STDOUT", "ok"),
        ("LISTEN x", "ok"),
        ("EXPLAIN DELETE FROM t", "ok"),
        ("LOCK TABLE t IN ACCESS SHARE MODE", "ok"),
        ("EXECUTE p(nextval('s'))", "read_only"),
        ("EXPLAIN ANALYZE EXECUTE p", "read_only"),
        ("SELECT 1; DELETE FROM t", "read_only"),
        ("WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", "read_only"),
        ("SELECT * FROM t FOR UPDATE", "read_only"),
        ("SELECT a INTO u FROM t", "read_only"),
        ("EXPLAIN ANALYZE DELETE FROM t", "read_only"),
        ("PREPARE p AS DELETE FROM t", "read_only"),
        ("COPY t FROM STDIN", "read_only"),
        ("COPY t TO PROGRAM 'x'", "read_only"),
        ("DO 'x'", "read_only"),
        ("CALL p()", "read_only"),
        ("SELECT pg_terminate_backend(1)", "read_only"),
        ("CREATE TEMP TABLE t (a int)", "read_only"),
        ("MAGIC", "read_only"),
        ("SELECT 'never ends", "not_analysed"),
    ] {
        assert_eq!(verdict(&settings, "reader", text), expected, "{text}");
        assert_eq!(verdict(&settings, "other", text), "ok", "{text}: no rule concerns this user");
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    let mut open = rule("open", Action::Allow);
    open.tables = list(&["public.*"]);
    open.classes = list(&["read"]);
    let mut secrets = rule("secrets", Action::Deny);
    secrets.tables = list(&["audit.*", "secret"]);
    let mut no_ddl = rule("no-ddl", Action::Deny);
    (no_ddl.classes, no_ddl.users) = (list(&["ddl", "admin"]), list(&["app"]));
    let mut sleepy = rule("no-sleep", Action::Deny);
    sleepy.functions = list(&["pg_sleep*"]);
    let mut no_truncate = rule("no-truncate", Action::Deny);
    no_truncate.verbs = list(&["truncate"]);
    let settings = settings(vec![open, secrets, no_ddl, sleepy, no_truncate]);
    for (text, expected) in [
        ("SELECT * FROM public.secret", "ok"),
        ("SELECT * FROM public.secret, secret", "secrets"),
        ("DELETE FROM public.secret", "secrets"),
        ("SELECT * FROM audit.log", "secrets"),
        ("SELECT * FROM log", "secrets"),
        ("SELECT * FROM \"Secret\", public.x", "secrets"),
        ("WITH secret AS (SELECT 1) SELECT * FROM secret", "ok"),
        ("WITH secret AS (SELECT * FROM secret) SELECT * FROM secret", "secrets"),
        ("SELECT * FROM U&\"secr\\0065t\"", "secrets"),
        ("SELECT * FROM SECRET", "secrets"),
        ("CREATE TABLE public.t (a int)", "no-ddl"),
        ("VACUUM", "no-ddl"),
        ("SELECT pg_catalog.PG_SLEEP_FOR('1 s')", "no-sleep"),
        ("TRUNCATE public.t", "no-truncate"),
        ("SELECT 1", "ok"),
    ] {
        // A name without schema may be in `audit`.
        assert_eq!(verdict(&settings, "app", text), expected, "{text}");
    }
    assert_eq!(verdict(&settings, "dba", "CREATE TABLE public.t (a int)"), "ok");
}

#[test]
fn a_default_of_deny_needs_a_rule_that_allows() {
    let mut reads = rule("reads", Action::Allow);
    (reads.verbs, reads.tables) = (list(&["select"]), list(&["orders", "items"]));
    let mut transactions = rule("transactions", Action::Allow);
    transactions.classes = list(&["transaction"]);
    let settings = Settings { default: Action::Deny, ..settings(vec![reads, transactions]) };
    for (text, expected) in [
        ("BEGIN; SELECT * FROM orders JOIN items USING (id); COMMIT", "ok"),
        ("SELECT * FROM orders, users", "default"),
        ("SELECT 1", "default"),
        ("DELETE FROM orders", "default"),
        ("", "ok"),
    ] {
        assert_eq!(verdict(&settings, "app", text), expected, "{text}");
    }
}

/// The first word of a statement is not all that it does.
#[test]
fn verbs_are_those_of_all_that_a_statement_does() {
    let mut reads = rule("reads", Action::Allow);
    (reads.verbs, reads.tables) = (list(&["select"]), list(&["orders", "items"]));
    let only_reads = Settings { default: Action::Deny, ..settings(vec![reads]) };
    for text in [
        "WITH d AS (DELETE FROM orders RETURNING *) SELECT * FROM orders",
        "SELECT * INTO items FROM orders",
        "PREPARE p AS SELECT * FROM orders",
        "EXPLAIN ANALYZE DELETE FROM orders",
    ] {
        assert_eq!(verdict(&only_reads, "app", text), "default", "{text}");
    }
    for text in
        ["SELECT * FROM orders WHERE id IN (SELECT id FROM items)", "WITH d AS (SELECT * FROM items) SELECT * FROM d"]
    {
        assert_eq!(verdict(&only_reads, "app", text), "ok", "{text}");
    }
    let mut no_delete = rule("no-delete", Action::Deny);
    no_delete.verbs = list(&["delete"]);
    let no_delete = settings(vec![no_delete]);
    for text in [
        "DELETE FROM orders",
        "WITH d AS (DELETE FROM orders RETURNING *) SELECT 1",
        "EXPLAIN ANALYZE DELETE FROM orders",
        "PREPARE p AS DELETE FROM orders",
        "COPY (DELETE FROM orders RETURNING *) TO STDOUT",
        "EXPLAIN ANALYZE WITH d AS (DELETE FROM orders RETURNING *) SELECT 1",
    ] {
        assert_eq!(verdict(&no_delete, "app", text), "no-delete", "{text}");
    }
    for text in ["EXPLAIN DELETE FROM orders", "SELECT 'delete from orders'", "UPDATE orders SET n = 1"] {
        assert_eq!(verdict(&no_delete, "app", text), "ok", "{text}");
    }
    let mut inserts = rule("inserts", Action::Allow);
    inserts.verbs = list(&["insert"]);
    let inserts = Settings { default: Action::Deny, ..settings(vec![inserts]) };
    for text in
        ["INSERT INTO orders VALUES (1)", "INSERT INTO orders SELECT * FROM items", "INSERT INTO orders TABLE items"]
    {
        assert_eq!(verdict(&inserts, "app", text), "ok", "{text}");
    }
}

/// The text that they run may be one that the rule is for.
#[test]
fn a_statement_that_may_run_anything_fits_each_rule_that_denies() {
    let texts = [
        "DO $$ BEGIN EXECUTE 'drop table orders'; END $$",
        "CALL p()",
        "SELECT query_to_xml('select * from secret', true, false, '')",
        "SELECT * FROM pg_catalog.ts_stat('select x from secret')",
        "SELECT * FROM dblink('', 'drop table orders') AS t (a int)",
        "PREPARE p AS SELECT query_to_xml('select * from secret', true, false, '')",
    ];
    let deny = |change: fn(&mut RuleSettings)| {
        let mut no = rule("no", Action::Deny);
        change(&mut no);
        no
    };
    let denies: [fn(&mut RuleSettings); 4] = [
        |rule| rule.classes = list(&["ddl"]),
        |rule| rule.tables = list(&["secret"]),
        |rule| rule.verbs = list(&["drop"]),
        |rule| rule.functions = list(&["pg_sleep"]),
    ];
    for text in texts {
        for change in denies {
            let only = settings(vec![deny(change)]);
            assert_eq!(verdict(&only, "app", text), "no", "{text}");
            assert_eq!(verdict(&only, "app", "SELECT 1"), "ok");
        }
    }
    // An earlier rule lets them run if it names them.
    let allow = |change: fn(&mut RuleSettings), text: &str| {
        let mut yes = rule("yes", Action::Allow);
        change(&mut yes);
        verdict(&settings(vec![yes, deny(denies[0])]), "app", text)
    };
    assert_eq!(allow(|rule| rule.verbs = list(&["call"]), texts[1]), "ok");
    assert_eq!(allow(|rule| rule.functions = list(&["p"]), texts[1]), "ok");
    assert_eq!(allow(|rule| rule.functions = list(&["other"]), texts[1]), "no");
    assert_eq!(allow(|rule| rule.classes = list(&["unknown"]), texts[0]), "ok");
    assert_eq!(allow(|rule| rule.users = list(&["app"]), texts[0]), "ok");
    assert_eq!(allow(|rule| rule.classes = list(&["read"]), texts[2]), "no");
    assert_eq!(allow(|rule| rule.verbs = list(&["select"]), texts[2]), "no");
    assert_eq!(allow(|rule| rule.functions = list(&["query_to_xml"]), texts[2]), "ok");
}

#[test]
fn a_rule_that_denies_writes_denies_copies_into_a_table() {
    let mut no_writes = rule("no-writes", Action::Deny);
    no_writes.classes = list(&["write"]);
    let denies = settings(vec![no_writes]);
    for text in ["COPY orders FROM STDIN", "COPY orders (a) FROM STDIN WHERE a > 1", "INSERT INTO orders VALUES (1)"] {
        assert_eq!(verdict(&denies, "app", text), "no-writes", "{text}");
    }
    for text in ["COPY orders TO STDOUT", "COPY (SELECT 1) TO STDOUT", "SELECT 1"] {
        assert_eq!(verdict(&denies, "app", text), "ok", "{text}");
    }
    let allows = |class: &str| {
        let mut only = rule("only", Action::Allow);
        only.classes = list(&[class]);
        Settings { default: Action::Deny, ..settings(vec![only]) }
    };
    assert_eq!(verdict(&allows("copy"), "app", "COPY orders FROM STDIN"), "ok");
    assert_eq!(verdict(&allows("write"), "app", "COPY orders FROM STDIN"), "default");
}

#[test]
fn statements_and_unknown_texts_have_their_own_limits() {
    let mut settings = settings(vec![]);
    settings.statements_max = Some(2);
    assert_eq!(verdict(&settings, "app", "SELECT 1; SELECT 2"), "ok");
    assert_eq!(verdict(&settings, "app", "SELECT 1; SELECT 2; SELECT 3"), "statements_max");
    assert_eq!(verdict(&settings, "app", "SELECT /*"), "not_analysed");
    settings.passes_unknown = true;
    assert_eq!(verdict(&settings, "app", "SELECT /*"), "ok");
}

#[test]
fn a_denial_has_a_code_a_name_and_a_sentence() {
    let mut deny = rule("no-writes", Action::Deny);
    deny.classes = list(&["write"]);
    let policy = Policy::new(&settings(vec![deny])).expect("a policy").user(b"app");
    assert!(!policy.is_unrestricted());
    let text = b"SELECT 1; DELETE FROM t";
    let denial = policy.check(text, &analyse(text, &Limits::default())).expect_err("denied");
    assert_eq!((denial.reason, denial.statement), (DenialReason::Rule("no-writes"), 1));
    assert_eq!(denial.to_string(), "permission denied by rule \"no-writes\"");
    assert_eq!(SQLSTATE, "42501");
}

#[test]
fn wrong_settings_are_named() {
    let error = |change: fn(&mut RuleSettings)| {
        let mut wrong = rule("r", Action::Deny);
        change(&mut wrong);
        Policy::new(&settings(vec![wrong])).expect_err("wrong").to_string()
    };
    assert!(error(|rule| rule.name.clear()).contains("1 to 63 bytes"));
    assert!(error(|rule| rule.classes = list(&["reads"])).contains("no class \"reads\"; use one of admin, ddl, write"));
    assert!(error(|rule| rule.verbs = list(&["SELECT"])).contains("no verb \"SELECT\""));
    assert!(error(|rule| rule.tables = list(&["a.b.c"])).contains("one dot"));
    let twice = settings(vec![rule("r", Action::Deny), rule("r", Action::Allow)]);
    assert_eq!(Policy::new(&twice).expect_err("twice"), PolicyError::Name("r".to_owned()));
    let none = Settings { statements_max: Some(0), ..settings(vec![]) };
    assert_eq!(Policy::new(&none).expect_err("none"), PolicyError::NoStatements);
    let many = settings((0..257).map(|at| rule(&format!("r{at}"), Action::Deny)).collect());
    assert_eq!(Policy::new(&many).expect_err("many"), PolicyError::TooManyRules(257));
}
