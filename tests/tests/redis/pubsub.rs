//! Subscribers share the subscriptions of their worker: what the server sees of them, what reaches them, and what does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_tests::client::{Client, End};
use weir_tests::cluster::Cluster;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{bulk, bulk_array, encode, shown};

fn message(mark: char, channel: &str, payload: &str) -> String {
    format!("{mark}3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n{payload}\r\n", channel.len(), payload.len())
}

/// How many clients of the server are subscribed to a channel.
fn subscribed(server: &Server, channel: &str) -> String {
    let reply = server.connect().call(&["PUBSUB", "NUMSUB", channel]);
    String::from_utf8_lossy(&reply).trim_end().rsplit(':').next().unwrap_or_default().to_owned()
}

#[test]
fn many_subscribers_are_one_at_the_server() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = Gateway::start(Config::to(&server.address).workers(2));
        let mut clients: Vec<(char, Client)> = (0..200)
            .map(|number| {
                let mut client = gateway.connect();
                let mark = if number % 2 == 0 { '*' } else { '>' };
                if mark == '>' {
                    client.call(&["HELLO", "3"]);
                }
                let reply = client.call(&["SUBSCRIBE", "news"]);
                assert_eq!(
                    shown(&reply),
                    shown(format!("{mark}3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n").as_bytes())
                );
                client.call(&["PSUBSCRIBE", "new?"]);
                (mark, client)
            })
            .collect();
        // One per worker: each has some of the clients.
        assert_eq!(subscribed(&server, "news"), "2");
        server.connect().expect(&["PUBSUB", "NUMPAT"], b":1\r\n");
        server.connect().expect(&["PUBLISH", "news", "hello"], b":4\r\n");
        for (mark, client) in &mut clients {
            assert_eq!(shown(&client.reply()), shown(message(*mark, "news", "hello").as_bytes()));
            let pattern = format!("{mark}4\r\n$8\r\npmessage\r\n$4\r\nnew?\r\n$4\r\nnews\r\n$5\r\nhello\r\n");
            assert_eq!(shown(&client.reply()), shown(pattern.as_bytes()));
        }
        let metrics = gateway.metrics();
        assert_eq!(metrics.sum("weir_redis_subscribers"), 200.0);
        assert_eq!(metrics.sum("weir_redis_subscriptions"), 400.0);
        assert_eq!(metrics.sum("weir_redis_upstream_subscriptions"), 4.0);
        assert_eq!(metrics.sum("weir_redis_messages_delivered_total"), 400.0);
        assert_eq!(metrics.sum_where("weir_lanes_open", &[("kind", "subscription")]), 2.0);
        assert_eq!(metrics.sum("weir_pinned_sessions"), 0.0);
        // All but one leave, in every way there is.
        let (_, mut last) = clients.pop().expect("clients");
        for (number, (_, mut client)) in clients.into_iter().enumerate() {
            match number % 4 {
                0 => drop(client.call(&["UNSUBSCRIBE", "news"])),
                1 => drop(client.call(&["QUIT"])),
                2 => drop(client.call(&["RESET"])),
                _ => {}
            }
        }
        deadline::until_true("one to be left", || gateway.metric("weir_redis_subscribers") == 1.0);
        deadline::until_true("one worker to be left", || subscribed(&server, "news") == "1");
        assert!(last.call(&["UNSUBSCRIBE", "news"]).ends_with(b":1\r\n"));
        assert_eq!(subscribed(&server, "news"), "0", "the confirmation comes after the server's");
        drop(last);
        deadline::until_true("nothing to be left", || server.connect().call(&["PUBSUB", "NUMPAT"]) == b":0\r\n");
    }
}

/// A subscriber that comes and goes while numbered messages are published: from its confirmation on it hears every one, in
/// order, once, until it says that it leaves.
#[test]
fn churn_loses_no_message_and_repeats_none() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    let stop = Arc::new(AtomicBool::new(false));
    // The last number whose PUBLISH has been answered.
    let published = Arc::new(AtomicU64::new(0));
    let publisher = {
        let (stop, published, address) = (stop.clone(), published.clone(), gateway.address.clone());
        std::thread::spawn(move || {
            let mut client = Client::connect(&address);
            let mut number = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let batch: Vec<u8> =
                    (1..=20).flat_map(|n| encode(&["PUBLISH", "count", &(number + n).to_string()])).collect();
                client.send(&batch);
                for _ in 0..20 {
                    let reply = client.reply();
                    assert!(reply.starts_with(b":"), "{}", shown(&reply));
                    number += 1;
                    published.store(number, Ordering::Release);
                }
            }
        })
    };
    let subscribers: Vec<_> = (0..12)
        .map(|id| {
            let (address, published) = (gateway.address.clone(), published.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(&address);
                if id % 2 == 0 {
                    client.call(&["HELLO", "3"]);
                }
                let mut heard = 0u64;
                for round in 0..60 {
                    let before = published.load(Ordering::Acquire);
                    client.command(&["SUBSCRIBE", "count"]);
                    assert!(shown(&client.reply()).contains("subscribe"));
                    let after = published.load(Ordering::Acquire);
                    let first = number(&client.reply());
                    assert!(first > before && first > heard, "{first} was published before {before}, or heard");
                    // A batch may have been executed before the confirmation, and not been answered yet.
                    assert!(first <= after + 21, "{first}: {} is missing", after + 21);
                    heard = first;
                    for _ in 0..(round * 7) % 50 {
                        let next = number(&client.reply());
                        assert_eq!(next, heard + 1, "in order, each once");
                        heard = next;
                    }
                    let owed = published.load(Ordering::Acquire);
                    client.command(&["UNSUBSCRIBE", "count"]);
                    loop {
                        let reply = client.reply();
                        if shown(&reply).contains("unsubscribe") {
                            break;
                        }
                        let next = number(&reply);
                        assert_eq!(next, heard + 1, "in order, each once");
                        heard = next;
                    }
                    assert!(heard >= owed, "{owed} was published before UNSUBSCRIBE; {heard} is the last heard");
                    client.expect(&["PING"], b"+PONG\r\n");
                }
            })
        })
        .collect();
    subscribers.into_iter().for_each(|subscriber| subscriber.join().expect("no message is lost"));
    stop.store(true, Ordering::Relaxed);
    publisher.join().expect("a publisher");
    eprintln!("{} published", published.load(Ordering::Relaxed));
}

fn number(message: &[u8]) -> u64 {
    let payload = bulk_array(message).pop().expect("a payload");
    String::from_utf8_lossy(&payload).parse().unwrap_or_else(|_| panic!("{}", shown(message)))
}

#[test]
fn a_server_that_returns_finds_its_subscribers_again() {
    let mut server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut clients: Vec<Client> = (0..10).map(|_| gateway.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.call(&["SUBSCRIBE", "all"]);
        client.call(&["SUBSCRIBE", &format!("own:{number}")]);
        client.call(&["PSUBSCRIBE", "patt*"]);
    }
    for round in 0..2 {
        server.kill();
        gateway.wait_metric("weir_redis_subscription_gaps_total", &[], f64::from(round) + 1.0);
        // A later caller gets an error.
        let mut late = gateway.connect();
        let reply = late.call(&["SUBSCRIBE", "all"]);
        assert!(reply.starts_with(b"-ERR weir: upstream"), "{}", shown(&reply));
        server.restart();
        deadline::until_true("the subscriptions to be back", || {
            subscribed(&server, "all") == "1" && subscribed(&server, "own:9") == "1"
        });
        deadline::until_true("the patterns to be back", || server.connect().call(&["PUBSUB", "NUMPAT"]) == b":1\r\n");
        server.connect().call(&["PUBLISH", "all", "again"]);
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(shown(&client.reply()), shown(message('*', "all", "again").as_bytes()));
            server.connect().expect(&["PUBLISH", &format!("own:{number}"), "x"], b":1\r\n");
            client.reply();
            client.expect(&["PING"], b"*2\r\n$4\r\npong\r\n$0\r\n\r\n");
        }
        deadline::until_true("a new subscriber to be welcome", || late.call(&["SUBSCRIBE", "all"]).starts_with(b"*3"));
    }
    let log = gateway.folder().join("weir.log");
    assert!(std::fs::read_to_string(log).expect("a log").contains("subscription_gap"));
}

#[test]
fn a_slow_subscriber_is_evicted_and_the_others_get_everything() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(
        Config::to(&server.address).listener("output_high_water = \"256KiB\"\noutput_hard_cap = \"2MiB\""),
    );
    let mut slow = gateway.connect();
    slow.call(&["SUBSCRIBE", "news"]);
    let heard: Vec<Arc<AtomicUsize>> = (0..4).map(|_| Arc::default()).collect();
    let readers: Vec<_> = heard
        .iter()
        .cloned()
        .map(|heard| {
            let mut good = gateway.connect();
            good.call(&["SUBSCRIBE", "news"]);
            std::thread::spawn(move || {
                for wanted in 0..300 {
                    let payload = bulk_array(&good.reply()).pop().expect("a payload");
                    assert!(payload.starts_with(format!("{wanted:06}").as_bytes()), "message {wanted}");
                    heard.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut publisher = server.connect();
    for number in 0..300 {
        publisher.call(&["PUBLISH", "news", &format!("{number:06}{}", "m".repeat(100_000))]);
        // The readers have the same cap, and must stay below it on any machine: eight of these are.
        deadline::until_true("the readers to follow", || {
            heard.iter().all(|heard| heard.load(Ordering::Relaxed) + 8 > number)
        });
    }
    readers.into_iter().for_each(|reader| reader.join().expect("every message"));
    gateway.wait_metric("weir_defensive_closes_total", &[("reason", "slow_subscriber")], 1.0);
    assert_eq!(gateway.metrics().sum_where("weir_connections_closed_total", &[("reason", "evicted")]), 1.0);
    assert_ne!(slow.read_to_end(deadline::WAIT).1, End::Silent);
    assert_eq!(gateway.metric("weir_redis_subscription_gaps_total"), 0.0);
}

#[test]
fn a_subscriber_of_resp3_uses_shared_lanes_for_everything_else() {
    Kind::ALL.into_iter().for_each(a_subscriber_of_resp3);
}

fn a_subscriber_of_resp3(kind: Kind) {
    let server = Server::start(kind);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    client.call(&["HELLO", "3"]);
    client.call(&["SUBSCRIBE", "own", "other"]);
    client.reply();
    let mut direct = server.connect();
    direct.call(&["HELLO", "3"]);
    direct.call(&["SUBSCRIBE", "dir"]);
    client.expect(&["SELECT", "3"], b"+OK\r\n");
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.expect(&["GET", "k"], b"$1\r\nv\r\n");
    client.expect(&["MULTI"], b"+OK\r\n");
    client.expect(&["GET", "k"], b"+QUEUED\r\n");
    client.expect(&["EXEC"], b"*1\r\n$1\r\nv\r\n");
    // As on a direct connection: Redis 7.0 tells one's own message before the reply, Valkey 9 behind it.
    let told = [client.call(&["PUBLISH", "own", "x"]), client.reply()].concat();
    let wanted = [direct.call(&["PUBLISH", "dir", "x"]), direct.reply()].concat();
    assert_eq!(shown(&told), shown(&wanted).replace("dir", "own"));
    drop(direct);
    // A subscriber that waits for data hears messages meanwhile.
    client.command(&["BLPOP", "list", "0"]);
    deadline::until_true("the pop to wait", || server.info("clients", "blocked_clients") == "1");
    server.connect().call(&["PUBLISH", "other", "y"]);
    assert_eq!(shown(&client.reply()), shown(message('>', "other", "y").as_bytes()));
    let mut other = gateway.connect();
    other.expect(&["SELECT", "3"], b"+OK\r\n");
    other.call(&["RPUSH", "list", "z"]);
    assert_eq!(client.reply(), b"*2\r\n$4\r\nlist\r\n$1\r\nz\r\n");
    assert!(client.call(&["HELLO", "2"]).starts_with(b"*14"));
    server.connect().call(&["PUBLISH", "own", "z"]);
    assert_eq!(shown(&client.reply()), shown(message('*', "own", "z").as_bytes()));
    assert!(client.call(&["GET", "k"]).starts_with(b"-ERR Can't execute 'get'"));
}

#[test]
fn subscriptions_follow_the_listener_to_another_server() {
    let (first, second) = (Server::start(Kind::Redis), Server::start(Kind::Redis));
    let gateway = Gateway::before(&first);
    let mut client = gateway.connect();
    client.call(&["SUBSCRIBE", "news"]);
    client.call(&["PSUBSCRIBE", "n*"]);
    let text = std::fs::read_to_string(&gateway.file).expect("the configuration");
    std::fs::write(&gateway.file, text.replace(&first.address.text(), &second.address.text())).expect("written");
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    deadline::until_true("the subscription to be at the second server", || subscribed(&second, "news") == "1");
    deadline::until_true("the first to be rid of it", || subscribed(&first, "news") == "0");
    second.connect().expect(&["PUBLISH", "news", "x"], b":2\r\n");
    assert_eq!(shown(&client.reply()), shown(message('*', "news", "x").as_bytes()));
    assert!(shown(&client.reply()).contains("pmessage"));
    assert!(client.call(&["UNSUBSCRIBE", "news"]).ends_with(b":1\r\n"));
    assert_eq!(subscribed(&second, "news"), "0");
}

#[test]
fn a_refusal_of_the_server_is_the_reply_and_the_others_stay() {
    let server = Server::start(Kind::Redis);
    let mut admin = server.connect();
    admin.expect(&["ACL", "SETUSER", "gate", "on", ">secret", "~*", "+@all", "resetchannels", "&open:*"], b"+OK\r\n");
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config::to(&server.address).upstream_password(folder.path(), Some("gate"), "secret");
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    assert!(client.call(&["SUBSCRIBE", "open:1"]).starts_with(b"*3"));
    let reply = client.call(&["SUBSCRIBE", "open:2", "closed"]);
    assert!(reply.starts_with(b"-NOPERM"), "{}", shown(&reply));
    assert_eq!((subscribed(&server, "open:1").as_str(), subscribed(&server, "open:2").as_str()), ("1", "0"));
    server.connect().call(&["PUBLISH", "open:1", "x"]);
    assert_eq!(shown(&client.reply()), shown(message('*', "open:1", "x").as_bytes()));
    assert!(client.call(&["SUBSCRIBE", "open:2"]).ends_with(b":2\r\n"));
}

/// Publishes until a subscriber hears it: afterwards its subscription is where it belongs.
fn until_received(subscriber: &mut Client, publish: impl Fn(&str) -> Vec<u8>) -> Duration {
    let started = Instant::now();
    for number in 0.. {
        publish(&number.to_string());
        match subscriber.try_reply(Duration::from_millis(50)) {
            Ok(reply) => {
                assert!(shown(&reply).contains("message"), "{}", shown(&reply));
                // Other messages on their way are about the same.
                while subscriber.try_reply(Duration::from_millis(100)).is_ok() {}
                return started.elapsed();
            }
            Err(end) => assert_eq!(end, End::Silent, "a subscriber stays connected"),
        }
        assert!(started.elapsed() < Duration::from_secs(30), "the subscription did not come back");
    }
    unreachable!("numbers do not end")
}

#[test]
fn shard_channels_follow_their_slot() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 3, 0);
        let gateway = Gateway::before_cluster(&cluster);
        let mut subscriber = gateway.connect();
        assert!(subscriber.call(&["SSUBSCRIBE", "{s}a", "{s}b"]).starts_with(b"*3"));
        assert!(subscriber.reply().ends_with(b":2\r\n"));
        let reply = subscriber.call(&["SSUBSCRIBE", "x", "y"]);
        assert_eq!(shown(&reply), shown(b"-CROSSSLOT Keys in request don't hash to the same slot\r\n"));
        let mut publisher = gateway.connect();
        publisher.expect(&["SPUBLISH", "{s}a", "1"], b":1\r\n");
        assert_eq!(shown(&subscriber.reply()), shown(b"*3\r\n$8\r\nsmessage\r\n$4\r\n{s}a\r\n$1\r\n1\r\n"));
        let reply = cluster.nodes[0].connect().call(&["CLUSTER", "KEYSLOT", "s"]);
        let slot: u16 = String::from_utf8_lossy(&bulk(&reply)).parse().expect("a slot");
        for _ in 0..2 {
            let to = (cluster.owner(slot) + 1) % 3;
            cluster.begin_move(slot, to);
            cluster.end_move(slot, to);
            let took = until_received(&mut subscriber, |n| gateway.connect().call(&["SPUBLISH", "{s}b", n]));
            eprintln!("heard again after {took:?}");
            assert_eq!(
                cluster.nodes[to].connect().call(&["PUBSUB", "SHARDNUMSUB", "{s}a"]),
                b"*2\r\n$4\r\n{s}a\r\n:1\r\n"
            );
        }
        gateway.wait_metric("weir_redis_subscription_gaps_total", &[], 1.0);
        assert!(subscriber.call(&["SUNSUBSCRIBE"]).starts_with(b"*3"));
    }
}

#[test]
fn a_cluster_has_one_classic_subscription_and_survives_a_failover() {
    let mut cluster = Cluster::start_to_lose_a_node(Kind::Redis, 3, 1);
    let gateway = Gateway::before_cluster(&cluster);
    let mut subscribers: Vec<Client> = (0..20).map(|_| gateway.connect()).collect();
    for subscriber in &mut subscribers {
        subscriber.call(&["SUBSCRIBE", "news"]);
    }
    let at = |cluster: &Cluster| -> Vec<usize> {
        let is_alive = |node: &&Server| weir_tests::stream::Stream::connect(&node.address).is_ok();
        cluster.nodes.iter().filter(is_alive).map(|node| subscribed(node, "news").parse().expect("a number")).collect()
    };
    let counts = at(&cluster);
    assert_eq!(counts.iter().sum::<usize>(), 2, "one per worker: {counts:?}");
    // Whichever node the message is published at, each subscriber receives it once.
    for node in &cluster.nodes[..3] {
        node.connect().call(&["PUBLISH", "news", "x"]);
        for subscriber in &mut subscribers {
            assert_eq!(shown(&subscriber.reply()), shown(message('*', "news", "x").as_bytes()));
        }
    }
    // The events of keys are each node's own.
    for node in &cluster.nodes {
        node.connect().expect(&["CONFIG", "SET", "notify-keyspace-events", "KEA"], b"+OK\r\n");
    }
    let mut watcher = gateway.connect();
    assert!(watcher.call(&["SUBSCRIBE", "__keyevent@0__:set"]).starts_with(b"*3"));
    let mut writer = gateway.connect();
    for number in 0..30 {
        let key = format!("key:{number}");
        writer.expect(&["SET", &key, "v"], b"+OK\r\n");
        assert_eq!(shown(&watcher.reply()), shown(message('*', "__keyevent@0__:set", &key).as_bytes()));
    }
    let home = counts.iter().position(|&count| count > 0).expect("a node");
    cluster.nodes[home].kill();
    let other = (0..3).find(|&node| node != home).expect("a living primary");
    let took = until_received(&mut subscribers[0], |n| cluster.nodes[other].connect().call(&["PUBLISH", "news", n]));
    eprintln!("heard again after {took:?}");
    gateway.wait_metric("weir_redis_subscription_gaps_total", &[], 1.0);
    deadline::until_true("one subscription per worker again", || at(&cluster).iter().sum::<usize>() == 2);
}
