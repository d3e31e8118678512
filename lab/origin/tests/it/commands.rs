//! The origin as a client sees it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
};

use crate::support::{Client, fixed, memory};
use weir_base::Secret;
use weir_engine::settings::{Address, DriverChoice, RuntimeSettings};
use weir_origin::redis::{Mode, Origin, OriginSettings, start};
use weir_resp::encode;

#[test]
fn a_pipeline_split_anywhere_is_answered_in_order() {
    for driver in [DriverChoice::Auto, DriverChoice::Polling] {
        let runtime = RuntimeSettings { driver, ..Default::default() };
        pipeline(&start(OriginSettings { runtime, ..Default::default() }).expect("an origin"));
    }
}

fn pipeline(origin: &Origin) {
    let mut wire = Vec::new();
    for number in 0..50 {
        encode::command(&mut wire, ["SET", &format!("key:{number}"), &"v".repeat(number)]);
        encode::command(&mut wire, ["GET", &format!("key:{number}")]);
        wire.extend_from_slice(b"PING inline\r\n");
    }
    for piece in [1, 7, 100, wire.len()] {
        let mut client = Client::to(origin);
        wire.chunks(piece).for_each(|bytes| client.send(bytes));
        for number in 0..50 {
            assert_eq!(client.reply(), b"+OK\r\n");
            assert_eq!(client.reply(), format!("${number}\r\n{}\r\n", "v".repeat(number)).as_bytes());
            assert_eq!(client.reply(), b"$6\r\ninline\r\n");
        }
    }
    assert_eq!(origin.stats().requests, 4 * 150);
}

#[test]
fn a_client_that_reads_late_loses_nothing() {
    let origin = memory();
    let mut client = Client::to(&origin);
    let value = "x".repeat(100_000);
    client.ask_args(&["SET", "large", &value]);
    let mut wire = Vec::new();
    (0..500).for_each(|_| encode::command(&mut wire, ["GET", "large"]));
    client.send(&wire);
    std::thread::sleep(std::time::Duration::from_millis(200));
    let expected = format!("$100000\r\n{value}\r\n");
    for number in 0..500 {
        assert!(client.reply() == expected.as_bytes(), "reply {number}");
    }
}

#[test]
fn hello_switches_shapes_and_reset_switches_back() {
    let origin = memory();
    let mut client = Client::to(&origin);
    client.expect("HSET h f v", ":1");
    client.expect("HGETALL h", "*2 $1 f $1 v");
    assert!(client.ask("HELLO 3").starts_with("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n"));
    client.expect("HGETALL h", "%1 $1 f $1 v");
    client.expect("SADD s m", ":1");
    client.expect("SMEMBERS s", "~1 $1 m");
    client.expect("GET missing", "_");
    client.expect("HELLO 4", "-NOPROTO unsupported protocol version");
    client.expect("RESET", "+RESET");
    client.expect("GET missing", "$-1");
}

#[test]
fn a_password_is_required_and_unknown_commands_are_refused_before_it() {
    let password = Some(Secret::from("right"));
    let origin = start(OriginSettings { password, ..Default::default() }).expect("an origin");
    let mut client = Client::to(&origin);
    client.expect("NOSUCH a", "-ERR unknown command 'NOSUCH', with args beginning with: 'a'");
    client.expect("GET", "-ERR wrong number of arguments for 'get' command");
    client.expect("GET k", "-NOAUTH Authentication required.");
    client.expect("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.");
    client.expect("AUTH nobody right", "-WRONGPASS invalid username-password pair or user is disabled.");
    assert!(client.ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    client.expect("AUTH default right", "+OK");
    client.expect("GET k", "$-1");
    client.expect("RESET", "+RESET");
    client.expect("GET k", "-NOAUTH Authentication required.");
    assert!(client.ask("HELLO 3 AUTH default right SETNAME me").starts_with("%7"));
    client.expect("CLIENT GETNAME", "$2 me");
}

#[test]
fn keys_expire_at_their_time_whether_read_or_not() {
    let origin = memory();
    let mut client = Client::to(&origin);
    client.expect("SET a 1 PX 50", "+OK");
    client.expect("SET b 1 EX 100", "+OK");
    client.expect("TTL b", ":100");
    client.expect("DBSIZE", ":2");
    std::thread::sleep(std::time::Duration::from_millis(80));
    client.expect("GET a", "$-1");
    client.expect("PEXPIRE b 30", ":1");
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.expect("DBSIZE", ":0");
}

#[test]
fn a_watched_key_that_another_client_changes_ends_the_transaction() {
    let origin = memory();
    let (mut client, mut other) = (Client::to(&origin), Client::to(&origin));
    for (change, reply) in [("GET k", "*1 :1"), ("SET k 5", "*-1"), ("FLUSHALL", "*-1")] {
        client.expect("SET k 0", "+OK");
        client.expect("WATCH k", "+OK");
        other.ask(change);
        client.expect("MULTI", "+OK");
        client.expect("INCR k", "+QUEUED");
        client.expect("EXEC", reply);
    }
    client.expect("MULTI", "+OK");
    client.expect("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with:");
    client.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.");
}

#[test]
fn published_messages_reach_every_subscriber_and_stand_between_replies() {
    let origin = memory();
    let (mut old, mut new, mut sender) = (Client::to(&origin), Client::to(&origin), Client::to(&origin));
    new.ask("HELLO 3");
    old.expect("SUBSCRIBE c", "*3 $9 subscribe $1 c :1");
    new.expect("SUBSCRIBE c", ">3 $9 subscribe $1 c :1");
    old.expect(
        "GET k",
        "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context",
    );
    sender.expect("PUBLISH c hi", ":2");
    assert_eq!(old.reply(), b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n");
    assert_eq!(new.reply(), b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n");
    new.expect("MULTI", "+OK");
    new.expect("PUBLISH c in", "+QUEUED");
    new.expect("EXEC", "*1 :2");
    assert!(new.reply().starts_with(b">3"));
    old.reply();
    old.expect("UNSUBSCRIBE", "*3 $11 unsubscribe $1 c :0");
    drop(new);
    while sender.ask("PUBLISH c hi") != ":0\r\n" {}
}

#[test]
fn quit_is_answered_after_everything_before_it_and_nothing_after_it() {
    let origin = memory();
    let mut client = Client::to(&origin);
    client.send(b"PING\r\nQUIT\r\nPING\r\n");
    assert_eq!(client.rest(), b"+PONG\r\n+OK\r\n");
}

#[test]
fn a_client_that_closes_its_write_side_still_gets_its_replies() {
    let origin = memory();
    let mut client = Client::to(&origin);
    client.send(b"PING\r\nECHO last\r\n");
    client.finish();
    assert_eq!(client.rest(), b"+PONG\r\n$4\r\nlast\r\n");
}

#[test]
fn fixed_mode_serves_payloads_on_several_workers() {
    let origin = fixed(5, 2);
    for _ in 0..16 {
        let mut client = Client::to(&origin);
        client.expect("GET any", "$5 xxxxx");
        client.expect("MGET a b", "*2 $5 xxxxx $5 xxxxx");
        client.expect("SET k v", "+OK");
        client.expect("DEL a b c", ":3");
        client.expect("LRANGE l 0 -1", "-ERR unknown command 'LRANGE', with args beginning with: 'l' '0' '-1'");
    }
    assert_eq!((origin.stats().accepted, origin.stats().requests), (16, 80));
}

#[test]
fn a_stopped_origin_closes_its_connections_and_its_port() {
    let origin = memory();
    let address = origin.addresses()[0];
    let mut client = Client::to(&origin);
    client.expect("PING", "+PONG");
    origin.stop().expect("no worker panicked");
    assert_eq!(client.rest(), b"");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_unix_socket_is_served_by_all_workers_and_removed_at_the_end() {
    let path = std::env::temp_dir().join(format!("weir-origin-{}.sock", std::process::id()));
    let settings = OriginSettings {
        bind: Address::Unix(path.clone()),
        mode: Mode::Fixed { payload: 1 },
        workers: 2,
        ..Default::default()
    };
    let origin = start(settings).expect("an origin");
    assert!(origin.addresses().is_empty());
    let mut client = UnixStream::connect(&path).expect("connect");
    client.write_all(b"GET k\r\nQUIT\r\n").expect("send");
    let mut replies = String::new();
    client.read_to_string(&mut replies).expect("receive");
    assert_eq!(replies, "$1\r\nx\r\n+OK\r\n");
    origin.stop().expect("no worker panicked");
    assert!(!path.exists());
}
