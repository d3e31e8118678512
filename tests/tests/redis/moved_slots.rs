//! Commands that cannot be redirected, when their slot has moved: they are refused once at most, and then succeed, on the same
//! connection and at once.

use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::cluster::Cluster;
use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::server::Kind;
use weir_tests::wire::{bulk, encode, shown};

const TRY_AGAIN: &[u8] = b"-ERR weir: the key is being moved to another node, try again\r\n";
const LARGE: usize = 200 << 10;
const MOVES: usize = 4;

fn slot_of(cluster: &Cluster, key: &str) -> u16 {
    let reply = cluster.nodes[0].connect().call(&["CLUSTER", "KEYSLOT", key]);
    String::from_utf8_lossy(&bulk(&reply)).parse().expect("a slot")
}

/// Moves the slot of `key` to the next node. The gateway does not know it.
fn move_slot(cluster: &Cluster, key: &str) {
    let slot = slot_of(cluster, key);
    let to = (cluster.owner(slot) + 1) % 3;
    let from = cluster.begin_move(slot, to);
    while cluster.move_keys(slot, from, to, 10) > 0 {}
    cluster.end_move(slot, to);
}

/// A client of a worker that has the map of the cluster: a key of the last node, which is none of those that the gateway was
/// given, can be watched. No test moves its slot.
fn connect(gateway: &Gateway) -> Client {
    let mut client = gateway.connect();
    until_true("the cluster to be known", || client.call(&["WATCH", "foo"]) == b"+OK\r\n");
    client.expect(&["UNWATCH"], b"+OK\r\n");
    client
}

/// Says it, and again if it is refused: the second time it is not. True if it was refused.
fn insist(client: &mut Client, what: &str, wanted: &[u8], say: impl Fn(&mut Client) -> Vec<u8>) -> bool {
    let first = say(client);
    if first == wanted {
        return false;
    }
    assert!(first == TRY_AGAIN, "{what}: {}", shown(&first));
    let second = say(client);
    assert!(second == wanted, "{what}, tried again: {}", shown(&second));
    true
}

/// Commands of redis-py's `transaction()`: WATCH, a read, and the rest in one packet. None is taken back after an error.
fn count_up(client: &mut Client, key: &str) -> Vec<u8> {
    let watch = client.call(&["WATCH", key]);
    if watch != b"+OK\r\n" {
        return watch;
    }
    let read = client.call(&["GET", key]);
    if read.starts_with(b"-") {
        // A driver raises it and lets go of the keys.
        client.expect(&["UNWATCH"], b"+OK\r\n");
        return read;
    }
    let count: u64 = match &read[..] {
        b"$-1\r\n" => 0,
        read => String::from_utf8_lossy(&bulk(read)).parse().expect("a number"),
    };
    let rest = [encode(&["MULTI"]), encode(&["SET", key, &(count + 1).to_string()]), encode(&["EXEC"])].concat();
    client.send(&rest);
    client.reply();
    client.reply();
    client.reply()
}

#[test]
fn a_watch_that_got_tryagain_succeeds_when_retried() {
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let gateway = Gateway::before_cluster(&cluster);
    let mut client = connect(&gateway);
    let mut refused = 0;
    for _ in 0..MOVES {
        for n in 0..3 {
            let key = format!("w{n}");
            insist(&mut client, "before the move", b"*1\r\n+OK\r\n", |client| count_up(client, &key));
            move_slot(&cluster, &key);
            refused += usize::from(insist(&mut client, "WATCH", b"*1\r\n+OK\r\n", |client| count_up(client, &key)));
        }
    }
    eprintln!("{refused} refused once");
    assert!(refused > 0, "the gateway knew of all moves, so nothing was tested");
    for n in 0..3 {
        let count = (2 * MOVES).to_string();
        assert_eq!(bulk(&client.call(&["GET", &format!("w{n}")])), count.as_bytes(), "every transaction counts once");
    }
    until_true("the lanes to be given back", || gateway.metric("weir_pinned_sessions") == 0.0);
}

#[test]
fn a_slot_that_moves_behind_a_watch_makes_exec_null_and_not_an_error() {
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let gateway = Gateway::before_cluster(&cluster);
    let mut client = connect(&gateway);
    for _ in 0..MOVES {
        client.call(&["SET", "k", "1"]);
        insist(&mut client, "WATCH", b"+OK\r\n", |client| client.call(&["WATCH", "k"]));
        move_slot(&cluster, "k");
        client.send(&[encode(&["MULTI"]), encode(&["SET", "k", "2"]), encode(&["EXEC"])].concat());
        let came = [client.reply(), client.reply(), client.reply()];
        assert_eq!(came.map(|reply| shown(&reply)), ["+OK", "+QUEUED", "*-1"].map(|text| format!("{text}\\r\\n")));
        assert_eq!(count_up(&mut client, "k"), b"*1\r\n+OK\r\n", "and the next try of the client succeeds");
    }
}

#[test]
fn blocking_and_large_commands_are_refused_once_at_most_after_a_move() {
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let gateway = Gateway::before_cluster(&cluster);
    let (mut client, mut pusher) = (connect(&gateway), gateway.connect());
    let value = vec![b'v'; LARGE];
    let mut refused = [0, 0];
    for _ in 0..MOVES {
        for n in 0..3 {
            let (list, large) = (format!("list{n}"), format!("large{n}"));
            move_slot(&cluster, &list);
            pusher.call(&["RPUSH", &list, "x"]);
            let popped = format!("*2\r\n${}\r\n{list}\r\n$1\r\nx\r\n", list.len());
            let pop = |client: &mut Client| client.call(&["BLPOP", &list, "5"]);
            refused[0] += usize::from(insist(&mut client, "BLPOP", popped.as_bytes(), pop));
            move_slot(&cluster, &large);
            let set = |client: &mut Client| client.call(&[b"SET", large.as_bytes(), &value[..]]);
            refused[1] += usize::from(insist(&mut client, "a large SET", b"+OK\r\n", set));
            assert!(bulk(&client.call(&["GET", &large])) == value);
        }
    }
    eprintln!("{refused:?} refused once");
    assert!(refused[1] > 0, "the gateway knew of all moves, so nothing was tested");
}

/// A waiter in a blocking command when its slot leaves is sent away by the server.
#[test]
fn a_client_blocked_when_the_slot_leaves_can_block_again_at_once() {
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let gateway = Gateway::before_cluster(&cluster);
    let (mut client, mut pusher) = (connect(&gateway), gateway.connect());
    for _ in 0..MOVES {
        client.send(&encode(&["BLPOP", "list", "20"]));
        until_true("the client to be blocked", || gateway.metric("weir_pinned_sessions") > 0.0);
        move_slot(&cluster, "list");
        assert_eq!(shown(&client.reply()), shown(TRY_AGAIN));
        let begun = Instant::now();
        client.send(&encode(&["BLPOP", "list", "20"]));
        // Through the same worker or the other one, which may have to be redirected.
        pusher.call(&["RPUSH", "list", "x"]);
        assert_eq!(client.reply(), b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

/// A small command before a large one is redirected: the large one, which waits for it, goes where it went.
#[test]
fn a_large_value_follows_the_small_one_before_it() {
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let gateway = Gateway::before_cluster(&cluster);
    let mut client = connect(&gateway);
    let value = vec![b'v'; LARGE];
    for _ in 0..MOVES {
        client.call(&["SET", "k", "1"]);
        move_slot(&cluster, "k");
        client.send(&[encode(&["SET", "k", "2"]), encode(&[b"SET", &b"k"[..], &value])].concat());
        assert_eq!([client.reply(), client.reply()].map(|reply| shown(&reply)), ["+OK\\r\\n", "+OK\\r\\n"]);
        assert!(bulk(&client.call(&["GET", "k"])) == value);
    }
}
