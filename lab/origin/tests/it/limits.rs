//! Bounds: what is stored, what is received in part, what one reply may hold, how many may connect.

use crate::support::{Client, memory};
use weir_origin::redis::{MESSAGE_BYTES_MAX, OriginSettings, start};
use weir_resp::encode;

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

fn small() -> OriginSettings {
    OriginSettings { memory_bytes_max: 1_000_000, message_bytes_max: 300_000, ..Default::default() }
}

fn used(client: &mut Client) -> usize {
    let info = client.ask("INFO memory");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a line");
    used.parse().expect("a number")
}

#[test]
fn writes_past_the_memory_limit_are_refused_and_deletes_make_room() {
    let origin = start(small()).expect("an origin");
    let mut client = Client::to(&origin);
    let value = "x".repeat(10_000);
    let mut stored = 0;
    while client.ask_args(&["SET", &format!("k{stored}"), &value]) == "+OK\r\n" {
        stored += 1;
    }
    assert!((80..100).contains(&stored), "{stored}");
    for command in [["RPUSH", "l"], ["SADD", "s"], ["APPEND", "k0"]] {
        assert_eq!(client.ask_args(&[command[0], command[1], &value]), OOM);
    }
    assert_eq!(client.ask_args(&["HSET", "h", "f", &value]), OOM);
    assert!(used(&mut client) <= 1_000_000);
    client.expect("DEL k0 k1", ":2");
    assert_eq!(client.ask_args(&["SET", "k0", &value]), "+OK\r\n");
    client.expect("FLUSHALL", "+OK");
    assert!(used(&mut client) <= 64 * 1024, "only this client's request buffer");
}

#[test]
fn a_transaction_may_not_queue_more_than_there_is_room_for() {
    let origin = start(small()).expect("an origin");
    let mut client = Client::to(&origin);
    let value = "x".repeat(100_000);
    client.expect("MULTI", "+OK");
    let mut queued = 0;
    while client.ask_args(&["ECHO", &value]) == "+QUEUED\r\n" {
        queued += 1;
    }
    assert!((4..10).contains(&queued), "{queued}");
    client.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.");
    client.expect("SET k v", "+OK");
}

#[test]
fn one_reply_holds_no_more_than_one_message() {
    let origin = start(small()).expect("an origin");
    let mut client = Client::to(&origin);
    client.ask_args(&["SET", "k", &"x".repeat(100_000)]);
    let limit = "-ERR weir: origin message limit exceeded (message_bytes_max)";
    client.expect("MGET k k k k", limit);
    client.expect("MULTI", "+OK");
    (0..4).for_each(|_| client.expect("GET k", "+QUEUED"));
    let replies = client.ask("EXEC");
    assert!(replies.starts_with("*4\r\n$100000\r\n") && replies.ends_with(&format!("{limit}\r\n")));
    client.expect("PING", "+PONG");
}

#[test]
fn a_request_past_the_message_limit_ends_the_connection_with_a_reason() {
    let origin = start(small()).expect("an origin");
    let mut client = Client::to(&origin);
    client.send(b"*2\r\n$3\r\nGET\r\n$300001\r\n");
    assert_eq!(client.rest(), b"-ERR Protocol error: invalid bulk length\r\n");
    // Many arguments instead of a large one, which never complete.
    let mut client = Client::to(&origin);
    client.send(b"*1000\r\n$3\r\nDEL\r\n");
    let mut argument = Vec::new();
    encode::bulk(&mut argument, &vec![b'k'; 200_000]);
    (0..4).for_each(|_| client.send_in_vain(&argument));
    assert_eq!(String::from_utf8(client.rest()).expect("text"), OOM);
    let mut client = Client::to(&origin);
    client.expect("PING", "+PONG");
    assert!(used(&mut client) <= 64 * 1024);
}

#[test]
fn broken_protocol_is_named_and_closed() {
    let origin = memory();
    for (bytes, reply) in [
        (&b"*1\r\n+OK\r\n"[..], "-ERR Protocol error: expected '$', got '+'\r\n"),
        (b"PING\r\n*x\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"),
        (b"POST / HTTP/1.1\r\n", ""),
    ] {
        let mut client = Client::to(&origin);
        client.send(bytes);
        assert_eq!(String::from_utf8(client.rest()).expect("text"), reply);
    }
}

#[test]
fn clients_past_the_connection_limit_read_why() {
    let origin = start(OriginSettings { connections_max: 2, ..Default::default() }).expect("an origin");
    let mut held = [Client::to(&origin), Client::to(&origin)];
    held.iter_mut().for_each(|client| client.expect("PING", "+PONG"));
    assert_eq!(Client::to(&origin).rest(), b"-ERR max number of clients reached\r\n");
    drop(held);
    while origin.stats().connections > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Client::to(&origin).expect("PING", "+PONG");
}

#[test]
fn the_largest_message_passes_and_leaves_no_buffer_behind() {
    let origin = memory();
    let mut client = Client::to(&origin);
    let value = "x".repeat(MESSAGE_BYTES_MAX);
    assert_eq!(client.ask_args(&["SET", "k", &value]), "+OK\r\n");
    client.expect("STRLEN k", &format!(":{MESSAGE_BYTES_MAX}"));
    client.expect("DEL k", ":1");
    assert!(used(&mut client) <= 64 * 1024);
    client.ask_args(&["SET", "k", &value[..MESSAGE_BYTES_MAX / 2]]);
    assert!(client.ask("GET k").len() > MESSAGE_BYTES_MAX / 2);
}

#[test]
fn a_subscriber_that_does_not_read_is_cut_off_alone() {
    let origin = memory();
    let (mut deaf, mut sender) = (Client::to(&origin), Client::to(&origin));
    deaf.expect("SUBSCRIBE c", "*3 $9 subscribe $1 c :1");
    let message = "x".repeat(1024 * 1024);
    let mut sent = 0;
    while sender.ask_args(&["PUBLISH", "c", &message]) == ":1\r\n" {
        sent += 1;
        assert!(sent < 200, "never cut off");
    }
    assert!(sent > 32, "{sent}");
    sender.expect("PING", "+PONG");
}
