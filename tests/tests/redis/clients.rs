//! CLIENT over the clients of the gateway: who LIST and KILL mean, and PAUSE.

use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{bulk, shown};

fn gateway(server: &Server, workers: u32) -> Gateway {
    Gateway::start(Config::to(&server.address).workers(workers).listener("redis.admin_commands = true"))
}

fn named(gateway: &Gateway, name: &str) -> (Client, String) {
    let mut client = gateway.connect();
    client.expect(&["CLIENT", "SETNAME", name], b"+OK\r\n");
    let id = client.call(&["CLIENT", "ID"]);
    let id = String::from_utf8_lossy(&id).trim().trim_start_matches(':').to_owned();
    (client, id)
}

/// The names in a list, in its order.
fn names(client: &mut Client, options: &[&str]) -> Vec<String> {
    let words: Vec<&str> = ["CLIENT", "LIST"].iter().chain(options).copied().collect();
    let reply = client.call(&words);
    assert!(reply.starts_with(b"$"), "{options:?}: {}", shown(&reply));
    let text = String::from_utf8(bulk(&reply)).expect("text");
    let name = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("name=")).unwrap_or("?").to_owned();
    text.lines().map(name).collect()
}

#[test]
fn list_shows_clients_that_match_all_options() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, 1);
    let (mut one, first) = named(&gateway, "one");
    let (mut two, second) = named(&gateway, "two");
    let (mut hearer, _) = named(&gateway, "hearer");
    drop(hearer.call(&["SUBSCRIBE", "news"]));
    two.expect(&["SELECT", "5"], b"+OK\r\n");
    let table: [(&[&str], &[&str]); 14] = [
        (&[], &["one", "two", "hearer"]),
        (&["ID", &first, &second], &["one", "two"]),
        (&["ID", "999"], &[]),
        (&["TYPE", "pubsub"], &["hearer"]),
        (&["type", "NORMAL"], &["one", "two"]),
        (&["TYPE", "replica"], &[]),
        (&["USER", "default", "NAME", "two"], &["two"]),
        (&["USER", "nobody"], &[]),
        (&["SKIPME", "yes"], &["two", "hearer"]),
        (&["DB", "5"], &["two"]),
        (&["IP", "127.0.0.1", "ID", &second], &["two"]),
        (&["MAXAGE", "1000"], &[]),
        (&["IDLE", "1000"], &[]),
        (&["LIB-NAME", "", "SKIPME", "no"], &["one", "two", "hearer"]),
    ];
    for (options, wanted) in table {
        assert_eq!(names(&mut one, options), wanted, "{options:?}");
    }
    let errors: [(&[&str], &str); 6] = [
        (&["TYPE", "wrong"], "-ERR Unknown client type 'wrong'\r\n"),
        (&["TYPE"], "-ERR syntax error\r\n"),
        (&["ID", "x"], "-ERR Invalid client ID\r\n"),
        (&["ID", &first, "x"], "-ERR Invalid client ID\r\n"),
        (&["WRONG", "x"], "-ERR syntax error\r\n"),
        (&["LADDR", "127.0.0.1:1"], "-ERR syntax error\r\n"),
    ];
    for (options, error) in errors {
        let words: Vec<&str> = ["CLIENT", "LIST"].iter().chain(options).copied().collect();
        one.expect(&words, error.as_bytes());
    }
}

#[test]
fn kill_ends_clients_that_match_all_options_and_words_its_errors_as_redis() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, 1);
    let (mut one, first) = named(&gateway, "one");
    let (_two, second) = named(&gateway, "two");
    let (mut hearer, _) = named(&gateway, "hearer");
    drop(hearer.call(&["SUBSCRIBE", "news"]));
    let errors: [(&[&str], &str); 9] = [
        (&["ID", "10", "wrong"], "ERR syntax error"),
        (&["ID", "str"], "ERR client-id should be greater than 0"),
        (&["ID", "-1"], "ERR client-id should be greater than 0"),
        (&["ID", "0"], "ERR client-id should be greater than 0"),
        (&["TYPE", "wrong"], "ERR Unknown client type 'wrong'"),
        (&["USER", "wrong"], "ERR No such user 'wrong'"),
        (&["SKIPME", "maybe"], "ERR syntax error"),
        (&["MAXAGE", "x"], "ERR maxage is not an integer or out of range"),
        (&["MAXAGE", "0"], "ERR maxage should be greater than 0"),
    ];
    for (options, error) in errors {
        let words: Vec<&str> = ["CLIENT", "KILL"].iter().chain(options).copied().collect();
        one.expect(&words, format!("-{error}\r\n").as_bytes());
    }
    one.expect(&["CLIENT", "KILL", "TYPE", "master"], b":0\r\n");
    one.expect(&["CLIENT", "KILL", "MAXAGE", "1000"], b":0\r\n");
    one.expect(&["CLIENT", "KILL", "TYPE", "pubsub"], b":1\r\n");
    assert_eq!(names(&mut one, &[]), ["one", "two"]);
    one.expect(&["CLIENT", "KILL", "ID", &second, "USER", "default"], b":1\r\n");
    one.expect(&["CLIENT", "KILL", "ID", &first], b":0\r\n");
    one.expect(&["CLIENT", "KILL", "ID", &first, "SKIPME", "no"], b":1\r\n");
}

#[test]
fn a_pause_of_writes_lets_reads_through_and_unpause_ends_it_on_all_workers() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, 2);
    let mut clients: Vec<Client> = (0..6).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        // The lanes are there, so that batches would be sent.
        client.expect(&["SET", "k", "v"], b"+OK\r\n");
    }
    let mut admin = gateway.connect();
    admin.expect(&["CLIENT", "PAUSE", "60000", "WRITE"], b"+OK\r\n");
    let begun = Instant::now();
    for client in &mut clients {
        client.expect(&["GET", "k"], b"$1\r\nv\r\n");
        client.expect(&["MULTI"], b"+OK\r\n");
        client.expect(&["GET", "k"], b"+QUEUED\r\n");
        client.expect(&["EXEC"], b"*1\r\n$1\r\nv\r\n");
        client.command(&["SET", "k", "w"]);
        client.command(&["GET", "k"]);
    }
    for client in &mut clients {
        client.expect_silence(Duration::from_millis(50));
    }
    assert_eq!(server.calls("set"), 6, "nothing was written");
    admin.expect(&["CLIENT", "UNPAUSE"], b"+OK\r\n");
    for client in &mut clients {
        assert_eq!(client.reply(), b"+OK\r\n");
        assert_eq!(client.reply(), b"$1\r\nw\r\n");
    }
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_pause_of_all_ends_by_itself_and_a_shorter_one_does_not_end_it() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, 1);
    let (mut admin, mut client) = (gateway.connect(), gateway.connect());
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    admin.command(&["CLIENT", "PAUSE", "400", "ALL"]);
    assert_eq!(admin.reply(), b"+OK\r\n");
    let begun = Instant::now();
    client.expect(&["GET", "k"], b"$1\r\nv\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(300), "it waited");
    for (words, error) in [
        (&["CLIENT", "PAUSE", "x"][..], "ERR timeout is not an integer or out of range"),
        (&["CLIENT", "PAUSE", "-1"], "ERR timeout is negative"),
        (&["CLIENT", "PAUSE", "10", "SOME"], "ERR CLIENT PAUSE mode must be WRITE or ALL"),
    ] {
        admin.expect(words, format!("-{error}\r\n").as_bytes());
    }
    // A large value waits too, and arrives whole.
    admin.expect(&["CLIENT", "PAUSE", "300", "WRITE"], b"+OK\r\n");
    admin.expect(&["CLIENT", "PAUSE", "1", "WRITE"], b"+OK\r\n");
    let begun = Instant::now();
    client.expect(&["SET", "large", &"v".repeat(500_000)], b"+OK\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(200), "it waited");
    client.expect(&["STRLEN", "large"], b":500000\r\n");
}

#[test]
fn a_user_without_admin_rights_may_not_pause() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    let reply = client.call(&["CLIENT", "PAUSE", "1000"]);
    assert!(reply.starts_with(b"-ERR weir: administrative command"), "{}", shown(&reply));
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
}

#[test]
fn unblock_lets_go_a_client_by_its_number_at_the_gateway() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = gateway(&server, 2);
        let (mut admin, own) = named(&gateway, "admin");
        let mut waiters: Vec<(Client, String)> = (0..4).map(|_| named(&gateway, "waiter")).collect();
        for (waiter, _) in &mut waiters {
            waiter.command(&["BLPOP", "queue", "0"]);
        }
        weir_tests::deadline::until_true("all to be blocked", || server.info("clients", "blocked_clients") == "4");
        let (mut first, id) = waiters.remove(0);
        admin.expect(&["CLIENT", "UNBLOCK", &id], b":1\r\n");
        assert_eq!(first.reply(), b"*-1\r\n");
        first.expect(&["SET", "k", "v"], b"+OK\r\n");
        admin.expect(&["CLIENT", "UNBLOCK", &id], b":0\r\n");
        let (mut second, id) = waiters.remove(0);
        admin.expect(&["CLIENT", "UNBLOCK", &id, "error"], b":1\r\n");
        assert_eq!(second.reply(), b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
        for (words, reply) in [
            (&["CLIENT", "UNBLOCK", &own][..], ":0\r\n"),
            (&["CLIENT", "UNBLOCK", "99999"], ":0\r\n"),
            (&["CLIENT", "UNBLOCK", "-5"], ":0\r\n"),
            (&["CLIENT", "UNBLOCK", "x"], "-ERR value is not an integer or out of range\r\n"),
            (&["CLIENT", "UNBLOCK", &own, "x"], "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR\r\n"),
        ] {
            admin.expect(words, reply.as_bytes());
        }
        // The others wait on, and lose nothing.
        admin.expect(&["RPUSH", "queue", "a", "b"], b":2\r\n");
        let mut got: Vec<Vec<u8>> = waiters.iter_mut().map(|(waiter, _)| waiter.reply()).collect();
        got.sort();
        assert_eq!(got, [b"*2\r\n$5\r\nqueue\r\n$1\r\na\r\n", b"*2\r\n$5\r\nqueue\r\n$1\r\nb\r\n"]);
    }
}
