//! Requests and their checks.

use weir_postgres_codec::TransactionStatus;
use weir_postgres_codec::backend;
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::frontend::{self, tag};

use crate::requests::{Integrity, Requests};
use crate::scenario::{self, QueryForm};
use crate::shard::Shard;

fn source(section: &str) -> String {
    format!("name = \"s\"\nprotocol = \"postgres\"\n{section}\n[[phase]]\nrate = 10\nduration = \"1s\"\n")
}

fn requests(section: &str) -> Requests {
    let scenario = scenario::parse("s.toml", &source(section)).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    Requests::build(&scenario, Shard::new(0, 1).expect("a shard"), 50)
}

/// Tags and bodies of a row of messages.
fn messages(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(head) = head(bytes).expect("messages") {
        found.push((head.tag, bytes[HEAD_BYTES..head.whole()].to_vec()));
        bytes = &bytes[head.whole()..];
    }
    assert!(bytes.is_empty());
    found
}

/// The number of the account that a request asks for.
fn account(requests: &Requests, index: u64) -> String {
    let messages = messages(requests.bytes(index));
    if let Some((_, body)) = messages.iter().find(|(tag, _)| *tag == tag::BIND) {
        let arguments = frontend::Bind::read(body).expect("a Bind").arguments().expect("arguments");
        return String::from_utf8(arguments.values.iter().next().expect("one").expect("no NULL").to_vec())
            .expect("text");
    }
    let text = String::from_utf8(frontend::Query::read(&messages[0].1).expect("a Query").text.to_vec()).expect("text");
    text.rsplit(' ').next().expect("a number").to_owned()
}

/// A reply with these rows.
fn reply(rows: &[[&str; 2]], complete: &str, status: TransactionStatus) -> Vec<u8> {
    let mut out = Vec::new();
    backend::bind_complete(&mut out);
    for row in rows {
        backend::data_row(&mut out, row.iter().map(|value| Some(value.as_bytes())));
    }
    backend::command_complete(&mut out, complete.as_bytes());
    backend::ready_for_query(&mut out, status);
    out
}

#[test]
fn each_form_sends_its_messages() {
    let tags =
        |section: &str| -> Vec<u8> { messages(requests(section).bytes(0)).iter().map(|(tag, _)| *tag).collect() };
    assert_eq!(tags(""), b"Q");
    assert_eq!(tags("postgres.query = \"extended\""), b"PBDES");
    assert_eq!(tags("postgres.query = \"prepared\""), b"BDES");
}

#[test]
fn the_row_of_another_account_is_seen_in_every_form() {
    use TransactionStatus::{Failed, Idle, InBlock};
    for form in QueryForm::ALL {
        let requests = requests(&format!("postgres.query = \"{}\"", form.word()));
        for index in 0..50 {
            let own = account(&requests, index);
            let other = account(&requests, (index + 1) % 50);
            let check = |reply: &[u8]| requests.check(index, reply).expect("checked");
            assert_eq!(check(&reply(&[[&own, "-7"]], "SELECT 1", Idle)), Integrity::Ok);
            assert_eq!(requests.check(index + 50, &reply(&[[&own, "0"]], "SELECT 1", Idle)), Some(Integrity::Ok));
            assert_eq!(check(&reply(&[], "SELECT 0", Idle)), Integrity::Missing);
            let wrong = [
                reply(&[[&other, "0"]], "SELECT 1", Idle),
                reply(&[[&own, "0"], [&own, "0"]], "SELECT 2", Idle),
                reply(&[[&own, "0"], [&other, "0"]], "SELECT 1", Idle),
                reply(&[[&own, "zero"]], "SELECT 1", Idle),
                reply(&[[&own, "0"]], "SELECT 1", InBlock),
                reply(&[[&own, "0"]], "SELECT 1", Failed),
                reply(&[[&own, "0"]], "UPDATE 1", Idle),
                reply(&[[&own, "0"]], "SELECT 1", Idle)[..20].to_vec(),
                Vec::new(),
            ];
            for reply in wrong {
                assert_eq!(check(&reply), Integrity::Mismatch, "{reply:?}");
            }
        }
    }
}

#[test]
fn the_section_is_read_and_its_mistakes_have_remedies() {
    let text = source("postgres = { query = \"prepared\", user = \"app\", password = \"pw\", accounts = 5 }");
    let scenario = scenario::parse("s.toml", &text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let postgres = &scenario.postgres;
    assert_eq!((&*postgres.user, &*postgres.database, postgres.accounts), ("app", "app", 5));
    assert_eq!(postgres.query, QueryForm::Prepared);
    assert!(postgres.password.as_ref().is_some_and(|password| password.matches(b"pw")));
    assert!(!format!("{scenario:?}").contains("pw"), "the password is a secret");
    for (section, mistake) in [
        ("postgres.query = \"fast\"", "`postgres.query` is \"fast\""),
        ("postgres.accounts = 0", "`postgres.accounts` is 0"),
        ("postgres.user = \"\"", "`postgres.user` is \"\""),
        ("postgres.password = \"env:WEIR_NO_SUCH_VARIABLE\"", "$WEIR_NO_SUCH_VARIABLE is not set"),
        ("postgres.table = \"x\"", "unknown key `table` in `postgres`"),
        ("payload.size = 1", "`payload` has no meaning for PostgreSQL"),
        ("keys.count = 1", "`keys` is only for protocol = \"redis\""),
        ("request.path = \"/\"", "`request` is only for HTTP and WebSocket"),
    ] {
        let mistakes = scenario::parse("s.toml", &source(section)).expect_err(section);
        assert!(mistakes.list().len() == 1 && mistakes.to_string().contains(mistake), "{mistakes}");
    }
}

#[test]
fn the_count_of_an_origin_is_read_once_it_is_whole() {
    let packet = weir_postgres_codec::startup::read(super::COUNT).expect("a packet");
    let (_, bytes) = packet.expect("whole");
    let question = messages(&super::COUNT[bytes..]);
    assert_eq!(frontend::Query::read(&question[0].1).expect("a Query").text, b"SELECT requests FROM weir_origin");
    let mut response = Vec::new();
    backend::authentication_ok(&mut response);
    backend::ready_for_query(&mut response, TransactionStatus::Idle);
    backend::data_row(&mut response, [Some(&b"1234"[..])]);
    let whole = response.len();
    for cut in 0..whole {
        assert_eq!(super::requests_served(&response[..cut]), None, "cut at {cut}");
    }
    assert_eq!(super::requests_served(&response), Some(1_234));
}
