//! `log_min_duration_statement`: lines of slow statements, without their literals.

use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{Wire, message, parse, run};
use weir_tests::postgres::{Major, Postgres, USER};

use super::gateway::{before, sql};

/// The lines about slow statements.
fn lines(gateway: &Gateway) -> Vec<String> {
    gateway.log().lines().filter(|line| line.contains("slow statement")).map(str::to_owned).collect()
}

fn slow(gateway: &Gateway) -> f64 {
    gateway.metrics().sum_where("weir_postgres_slow_statements_total", &[("database", USER)])
}

#[test]
fn a_statement_over_the_limit_is_logged_with_its_fingerprint_and_without_its_literals() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let listener = "log_min_duration_statement = \"300ms\"";
    let gateway = Gateway::start(before(&server, folder.path(), listener, "pool_size = 2"));
    sql(&gateway, "select 'quick-secret'");
    assert_eq!(slow(&gateway), 0.0);
    sql(&gateway, "select pg_sleep(0.6), 'simple-secret'");
    gateway.wait_log("slow statement");
    let line = lines(&gateway).pop().expect("a line");
    let fields =
        ["listener=test", "user=\"app\"", "database=\"app\"", "class=\"read\"", "fingerprint=", "duration_ms="];
    assert!(fields.iter().all(|field| line.contains(field)), "{line}");
    // The same statement with another literal, prepared by the protocol: one fingerprint.
    let fingerprint = |line: &str| {
        let (_, rest) = line.split_once("fingerprint=").expect("a fingerprint");
        rest.split_whitespace().next().expect("a value").to_owned()
    };
    let mut client = Wire::connect(gateway.address.tcp().port(), USER, USER, "slow").expect("a login");
    // Not within the second of the line before.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let text = "SELECT pg_sleep(0.7), 'prepared-secret'";
    let batch = [parse("s", text), run("s", &[]), message(b'S', b"")].concat();
    client.send(&batch).expect("sent");
    assert!(client.reply().expect("a reply").errors.is_empty());
    weir_tests::deadline::until_true("a second line", || lines(&gateway).len() == 2);
    let found: Vec<_> = lines(&gateway).iter().map(|line| fingerprint(line)).collect();
    assert_eq!(found[0], found[1], "{:?}", lines(&gateway));
    assert_eq!(slow(&gateway), 2.0);
    assert!(!gateway.log().contains("secret"), "{}", gateway.log());
    // A storm of them has a line a second, and each counts.
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        assert!(client.query("select pg_sleep(0.301)").expect("a reply").errors.is_empty());
    }
    assert_eq!(slow(&gateway), 22.0);
    let most = 4 + begun.elapsed().as_secs() as usize;
    assert!((3..=most).contains(&lines(&gateway).len()), "{:?}", lines(&gateway));
}

#[test]
fn nothing_is_slow_by_default() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2"));
    sql(&gateway, "select pg_sleep(1)");
    assert_eq!((slow(&gateway), lines(&gateway).len()), (0.0, 0));
}
