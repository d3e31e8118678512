//! `weir demo` as a newcomer runs it: with its processes, on ports of this machine.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::deadline::until_true;
use weir_tests::gateway::program;
use weir_tests::http::HttpClient;
use weir_tests::process::Process;
use weir_tests::stream::Address;

use super::{Bench, SCENARIO};

/// For all scenes, on a machine that does much else.
const PLAY_WAIT: Duration = Duration::from_secs(120);
/// From Ctrl-C to the end.
const END_WAIT: Duration = Duration::from_secs(20);

#[test]
fn the_demo_loses_nothing_and_prints_its_counts() {
    let bench = Bench::new(SCENARIO);
    let output = bench.weir(&[], &["demo", "--once"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "\nLoad: 8 clients of each protocol",
        "\nKill one of two HTTP servers: SIGKILL to process ",
        "; Weir sent them to the other server\n",
        "\nStart it again: 127.0.0.1:",
        "  8 Redis connections moved; ",
        "\n0 errors, 0 connections lost in ",
        "\nKill one of two Redis shards: SIGKILL to process ",
        " errors, 0 connections lost for its clients, 0 errors, 0 connections lost for all others.\n",
    ] {
        assert!(printed.contains(words), "{words:?} is not in\n{printed}");
    }
    // The line of the counts is what the rows before it add up to.
    let verdict =
        printed.lines().position(|line| line.starts_with("0 errors, 0 connections lost in ")).expect("the line");
    let lines: Vec<&str> = printed.lines().collect();
    let rows = lines[..verdict].iter().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words.first(), Some(&"redis" | &"http" | &"postgres")).then(|| words[1].parse::<u64>().ok())?
    });
    let counts: Vec<u64> = rows.collect();
    assert!(counts.len() == 12 && counts.iter().all(|count| *count > 100), "{counts:?}\n{printed}");
    let sum = format!(" in {} requests", counts.iter().sum::<u64>());
    assert!(lines[verdict].contains(&sum), "{sum} is not in {}", lines[verdict]);
    // A shard that is away cannot answer: these errors are shown as well.
    assert!(
        printed.contains("the first error of dead shard: -ERR weir: ")
            && !printed.contains("With no other server for a key: 0 errors"),
        "{printed}"
    );
    let left = fs::read_dir(bench.folder.path()).expect("the folder").flatten().map(|entry| entry.file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["scenario.toml"], "the demo leaves nothing behind");
}

/// `weir demo`, once this line is in its output.
fn started(bench: &Bench, words: &str) -> Process {
    let log = bench.path("demo.log");
    let command = [program().to_string_lossy().into_owned(), "demo".to_owned()];
    let mut process = Process::start("weir demo", &command, &log, &[]);
    weir_tests::deadline::until(format!("`{words}` of the demo"), PLAY_WAIT, || {
        let ended = process.try_wait();
        assert!(ended.is_none(), "the demo ended with {ended:?}:\n{}", process.log());
        process.log().contains(words).then_some(())
    });
    process
}

/// Every address that the demo named: of its servers, and of the gateway.
fn addresses(printed: &str) -> Vec<SocketAddr> {
    let words = printed.split(|c: char| c.is_whitespace() || matches!(c, ',' | '/' | '(' | ')'));
    let mut found: Vec<SocketAddr> = words.filter_map(|word| word.parse().ok()).collect();
    found.sort();
    found.dedup();
    found
}

/// Sends Ctrl-C, and waits until the demo and all that it started have ended. The exit status was good.
fn interrupt(mut process: Process) -> bool {
    let addresses = addresses(&process.log());
    assert_eq!(addresses.len(), 9, "five servers, three listeners, one admin server: {addresses:?}");
    process.signal("INT");
    let status = process.wait(END_WAIT);
    for address in addresses {
        until_true(format!("nobody to listen on {address}"), || TcpStream::connect(address).is_err());
    }
    status.success()
}

#[test]
fn the_demo_serves_until_ctrl_c_and_ends_its_processes() {
    let bench = Bench::new(SCENARIO);
    let process = started(&bench, "--quick\n");
    let log = process.log();
    let after = |words: &str| {
        let rest = log.split(words).nth(1).unwrap_or_else(|| panic!("{words} is not in\n{log}"));
        rest.split([',', ' ', '\n']).next().unwrap_or_default().to_owned()
    };
    let (redis, http, postgres) = (after("gateway  redis on "), after(", http on "), after(", postgres on "));
    let port = |address: &str| address.parse::<SocketAddr>().expect("an address").port();
    assert!(log.contains(&format!("redis-cli -p {} set hello world", port(&redis))), "{log}");
    Client::connect(&Address::port(port(&redis))).expect(&["SET", "hello", "world"], b"+OK\r\n");
    assert_eq!(HttpClient::connect(&Address::port(port(&http))).get("/64").content().len(), 64);
    // The line that the demo names, with the program of PostgreSQL.
    assert!(log.contains(&format!("psql postgres://demo@{postgres}/demo -c 'SELECT 1'")), "{log}");
    let url = format!("postgres://demo@{postgres}/demo");
    let account = "SELECT aid FROM pgbench_accounts WHERE aid = 4711";
    let psql = Command::new("psql").args(["-XAtq", &url, "-c", account]).output().expect("psql starts");
    let printed = String::from_utf8_lossy(&psql.stdout).into_owned();
    assert_eq!(printed.trim(), "4711", "{}", String::from_utf8_lossy(&psql.stderr));
    assert!(interrupt(process), "Ctrl-C is how it ends");
}

#[test]
fn the_demo_can_be_interrupted_under_load() {
    let bench = Bench::new(SCENARIO);
    assert!(!interrupt(started(&bench, "\nLoad: ")), "its scenes were not all seen");
}
