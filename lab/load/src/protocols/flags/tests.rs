//! Requests and checks without a connection.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use weir_flagsets::{DataSet, FlagSet, Visitor};

use crate::requests::{Integrity, Requests};
use crate::scenario::{self, CONTEXTS, Scenario};
use crate::shard::Shard;

fn scenario(flags: &str) -> Scenario {
    scenario::parse("s.toml", &source("", flags)).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn source(head: &str, flags: &str) -> String {
    format!("name = \"s\"\nprotocol = \"flags\"\n{head}\n[flags]\n{flags}\n[[phase]]\nrate = 10\nduration = \"1s\"\n")
}

fn requests(flags: &str) -> Requests {
    Requests::build(&scenario(flags), Shard::new(1, 2).expect("a shard"), 300)
}

fn text(requests: &Requests, index: u64) -> String {
    String::from_utf8(requests.bytes(index).to_vec()).expect("text")
}

fn document(set: &FlagSet) -> String {
    format!("{{\"version\":2,\"features\":{},\"segments\":{},\"query\":{{}}}}", set.features(), set.segments())
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("written");
    encoder.finish().expect("compressed")
}

#[test]
fn backends_request_all_flags_and_a_changed_flag_is_found() {
    let requests = requests("gzip = false");
    let head = text(&requests, 0);
    assert!(head.starts_with("GET /api/client/features HTTP/1.1\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(head.contains("\r\nAuthorization: *:development.lab-backend\r\n"), "{head}");
    let set = FlagSet::new(DataSet::Large);
    let right = document(&set);
    let check = |text: &str| requests.check(0, text.as_bytes());
    assert_eq!((check(&right), check("")), (Some(Integrity::Ok), Some(Integrity::Missing)));
    // Another form of the same flags.
    let value: Value = serde_json::from_str(&right).expect("JSON");
    let rewritten = value.to_string().replace("\"variants\":[]", "\"variants\":null");
    assert_ne!(rewritten, right);
    assert_eq!([check(&rewritten), check(&right), check(&right)], [Some(Integrity::Ok); 3]);
    for wrong in [
        right.replacen("\"enabled\":true", "\"enabled\":false", 1),
        right.replacen("\"rollout\":\"100\"", "\"rollout\":\"99\"", 1),
        right.replacen("\"id\":3,", "\"id\":9,", 1),
        document(&FlagSet::new(DataSet::Small)),
        right[..right.len() - 1].to_owned(),
        "{\"version\":2,\"features\":[]}".to_owned(),
    ] {
        assert_eq!(check(&wrong), Some(Integrity::Mismatch), "{}", &wrong[..60.min(wrong.len())]);
    }
}

#[test]
fn gzip_is_undone_where_it_was_wanted_and_wrong_elsewhere() {
    let right = document(&FlagSet::new(DataSet::Large));
    let wanted = requests("gzip = true");
    assert!(text(&wanted, 0).contains("\r\nAccept-Encoding: gzip\r\n"));
    let coded = gzip(&right);
    assert_eq!(wanted.check(0, &coded), Some(Integrity::Ok));
    assert_eq!(wanted.check(0, right.as_bytes()), Some(Integrity::Mismatch), "it is large and not compressed");
    assert_eq!(wanted.check(0, &coded[..coded.len() / 2]), Some(Integrity::Mismatch), "cut off");
    assert_eq!(requests("").check(0, &coded), Some(Integrity::Mismatch));
    let small = requests("gzip = true\nendpoint = \"frontend\"\ndata = \"small\"\ncontext = \"none\"");
    let toggles = FlagSet::new(DataSet::Small).toggles(&Visitor::default());
    assert_eq!(small.check(0, toggles.as_bytes()), Some(Integrity::Ok), "so small that it need not be compressed");
}

#[test]
fn frontends_get_the_flags_of_their_own_context() {
    let set = FlagSet::new(DataSet::Large);
    for method in ["get", "post"] {
        let requests = requests(&format!("endpoint = \"frontend\"\nmethod = \"{method}\""));
        // The second of two shards begins in the middle.
        let context = |index: u64| FlagSet::visitor_of((CONTEXTS / 2 + index) % CONTEXTS);
        for index in [0, 1, 200] {
            let (user, plan) = context(index);
            let text = text(&requests, index);
            assert!(text.contains(&user) && text.contains(plan) && text.contains("lab-frontend"), "{text}");
            let toggles = set.toggles(&Visitor { user: Some(&user), plan: Some(plan) });
            for _ in 0..2 {
                assert_eq!(requests.check(index, toggles.as_bytes()), Some(Integrity::Ok));
                assert_eq!(
                    requests.check(index + 1, toggles.as_bytes()),
                    Some(Integrity::Mismatch),
                    "another context's"
                );
            }
            for (from, to) in [
                ("\"enabled\":true", "\"enabled\":false"),
                ("\"name\":\"control\"", "\"name\":\"treatment\""),
                ("\"impressionData\":true", "\"impressionData\":false"),
                ("\"value\":\"", "\"value\":\"x"),
            ] {
                let wrong = toggles.replacen(from, to, 1);
                assert_ne!(wrong, toggles, "{from}");
                assert_eq!(requests.check(index, wrong.as_bytes()), Some(Integrity::Mismatch), "{from}");
            }
        }
        let (_, body) =
            text(&requests, 0).split_once("\r\n\r\n").map(|(head, body)| (head.len(), body.len())).expect("a head");
        assert_eq!(body > 0, method == "post");
    }
}

#[test]
fn conditional_requests_have_one_context_and_no_body_in_their_response() {
    let requests = requests("endpoint = \"frontend\"\nconditional = true");
    assert_eq!(requests.bytes(0), requests.bytes(1));
    assert_eq!((requests.check(0, b""), requests.check(0, b"{}")), (Some(Integrity::Ok), Some(Integrity::Mismatch)));
}

#[test]
fn keys_that_do_not_fit_are_mistakes() {
    for (head, flags, part) in [
        ("", "method = \"post\"", "only for endpoint = \"frontend\""),
        ("", "context = \"none\"", "only for endpoint = \"frontend\""),
        ("", "data = \"tiny\"", "small, large, huge"),
        ("", "endpoint = \"proxy\"", "client, frontend"),
        ("", "endpoint = \"frontend\"\nmethod = \"post\"\nconditional = true", "only for method = \"get\""),
        ("integrity = false", "conditional = true", "needs the check of responses"),
        ("churn = true", "conditional = true", "no connection that knows a tag"),
        ("payload.size = 5", "", "has no meaning for feature flags"),
        ("", "token = \"a b\"", "no token has"),
    ] {
        let mistakes = scenario::parse("s.toml", &source(head, flags)).expect_err(flags).to_string();
        assert!(mistakes.contains(part), "{flags}: {mistakes}");
    }
}
