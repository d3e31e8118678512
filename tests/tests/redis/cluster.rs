//! A Redis Cluster behind one address, as clients see it that know nothing of clusters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::cluster::Cluster;
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Address;
use weir_tests::wire::{bulk, bulk_array, encode, shown};

const KEYS: usize = 500;
/// A connection that ends, ends sooner.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster has one database: a client in another one cannot go on.
#[test]
fn a_reload_to_a_cluster_ends_clients_in_another_database() {
    let (cluster, server) = (Cluster::start(Kind::Redis, 3, 0), Server::start(Kind::Redis));
    let gateway = Gateway::start(Config::to(&server.address).upstream("topology = \"fixed\""));
    let (mut third, mut first) = (gateway.connect(), gateway.connect());
    third.expect(&["SELECT", "3"], b"+OK\r\n");
    first.expect(&["SET", "k", "1"], b"+OK\r\n");
    let text = std::fs::read_to_string(&gateway.file).expect("the file");
    let node = cluster.addresses().next().expect("a node");
    let text = text.replace(&server.address.text(), &node.text()).replace("\"fixed\"", "\"cluster\"");
    std::fs::write(&gateway.file, text).expect("written");
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "applied");
    let is_refused = || third.try_send(&encode(&["GET", "k"])).is_err() || third.try_reply(PATIENCE).is_err();
    until_true("the other database to be missed", is_refused);
    gateway.wait_metric("weir_connections_closed_total", &[("reason", "database_removed")], 1.0);
    until_true("the first to be at the cluster", || first.call(&["GET", "k"]) == b"$-1\r\n");
}

#[test]
fn a_plain_client_uses_the_whole_cluster() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 3, 0);
        let gateway = Gateway::before_cluster(&cluster);
        let mut client = gateway.connect();
        let keys: Vec<String> = (0..KEYS).map(|n| format!("user:{n}")).collect();
        let mut words = vec!["MSET".to_owned()];
        words.extend(keys.iter().flat_map(|key| [key.clone(), format!("value of {key}")]));
        client.expect(&words, b"+OK\r\n");
        let requests: Vec<u8> = keys.iter().flat_map(|key| encode(&["GET", key])).collect();
        client.send(&requests);
        for key in &keys {
            assert_eq!(bulk(&client.reply()), format!("value of {key}").into_bytes());
        }
        let mut words = vec!["MGET".to_owned()];
        words.extend(keys.iter().rev().cloned());
        let wanted = keys.iter().rev().map(|key| format!("value of {key}").into_bytes());
        assert!(bulk_array(&client.call(&words)).into_iter().eq(wanted));
        let counts: Vec<usize> = cluster
            .nodes
            .iter()
            .map(|node| String::from_utf8_lossy(&bulk(&node.connect().call(&["DBSIZE"]))).parse().expect("a number"))
            .collect();
        assert_eq!(counts.iter().sum::<usize>(), KEYS);
        assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
        client.expect(&["DBSIZE"], format!(":{KEYS}\r\n").as_bytes());
        client.expect(&["RENAME", "{user:1}:a", "user:1"], b"-ERR no such key\r\n");
        client.expect(&["RENAME", "user:1", "user:2"], b"-CROSSSLOT Keys in request don't hash to the same slot\r\n");
        client.expect(&["MULTI"], b"+OK\r\n");
        client.expect(&["INCR", "{user:1}:n"], b"+QUEUED\r\n");
        client.expect(&["GET", "user:1"], b"+QUEUED\r\n");
        client.expect(&["EXEC"], b"*2\r\n:1\r\n$15\r\nvalue of user:1\r\n");
        // A client that knows clusters sends everything here too.
        let slots = client.call(&["CLUSTER", "SLOTS"]);
        let port = format!(":{}\r\n", gateway.address.tcp().port());
        let text = String::from_utf8_lossy(&slots).into_owned();
        assert!(text.starts_with("*1\r\n*3\r\n:0\r\n:16383\r\n") && text.contains(&port), "{text}");
    }
}

/// A writer counts each of its keys up and knows what it must find.
fn write(address: &Address, id: usize, stop: &AtomicBool, seen: &NodeTraffic) {
    let mut client = Client::connect(address);
    let keys: Vec<String> = (0..20).map(|n| format!("writer:{id}:{n}")).collect();
    let mut counts = vec![0u64; keys.len()];
    let mut is_certain = vec![true; keys.len()];
    while !stop.load(Ordering::Relaxed) {
        let requests: Vec<u8> = keys.iter().flat_map(|key| encode(&["INCR", key])).collect();
        client.send(&requests);
        for (at, key) in keys.iter().enumerate() {
            let reply = client.reply();
            if reply.starts_with(b"-") {
                // It may have been executed or not: what the key says next is right.
                is_certain[at] = false;
                seen.refused.fetch_add(1, Ordering::Relaxed);
                *seen.last_error.lock().expect("no panic") = Some((Instant::now(), shown(&reply)));
                continue;
            }
            let came: u64 =
                String::from_utf8_lossy(&bulk(&reply)).parse().unwrap_or_else(|_| panic!("{}", shown(&reply)));
            let wanted = counts[at] + 1;
            if is_certain[at] {
                assert_eq!(came, wanted, "{key}: an acknowledged write is lost, or a reply is another's");
            } else {
                assert!(came >= wanted, "{key}: {came} after {wanted}: an acknowledged write is lost");
            }
            (counts[at], is_certain[at]) = (came, true);
            seen.completed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct NodeTraffic {
    completed: AtomicU64,
    refused: AtomicU64,
    last_error: std::sync::Mutex<Option<(Instant, String)>>,
}

/// Writers all the while that `disturb` does something to the cluster.
fn under_writes(cluster: &mut Cluster, disturb: impl FnOnce(&mut Cluster, &NodeTraffic)) -> Arc<NodeTraffic> {
    let gateway = Gateway::before_cluster(cluster);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(NodeTraffic::default());
    let writers: Vec<_> = (0..8)
        .map(|id| {
            let (address, stop, seen) = (gateway.address.clone(), stop.clone(), seen.clone());
            std::thread::spawn(move || write(&address, id, &stop, &seen))
        })
        .collect();
    progress(&seen);
    disturb(cluster, &seen);
    progress(&seen);
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("no write was lost"));
    eprintln!("{:?} completed, {:?} refused", seen.completed, seen.refused);
    seen
}

/// Waits until some thousand more writes have replies.
fn progress(seen: &NodeTraffic) {
    let target = seen.completed.load(Ordering::Relaxed) + 4_000;
    weir_tests::deadline::until_true("more writes", || seen.completed.load(Ordering::Relaxed) >= target);
}

#[test]
fn slots_move_under_writes_and_nobody_notices() {
    let mut cluster = Cluster::start(Kind::Redis, 3, 0);
    let seen = under_writes(&mut cluster, |cluster, seen| {
        // Slots of keys that are written to.
        for n in 0..12 {
            let slot = slot_of(cluster, &format!("writer:{}:{n}", n % 8));
            let to = (cluster.owner(slot) + 1) % 3;
            let from = cluster.begin_move(slot, to);
            progress(seen);
            while cluster.move_keys(slot, from, to, 10) > 0 {}
            progress(seen);
            cluster.end_move(slot, to);
        }
    });
    let error = seen.last_error.lock().expect("no panic").clone();
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0, "{error:?}");
}

#[test]
fn slots_migrate_at_once_under_writes_and_nobody_notices() {
    let mut cluster = Cluster::start(Kind::Valkey, 3, 0);
    let seen = under_writes(&mut cluster, |cluster, seen| {
        for n in 0..8 {
            // With those around it that are at the same node.
            let slot = slot_of(cluster, &format!("writer:{n}:{n}"));
            let from = cluster.owner(slot);
            let last = (slot..=(slot + 50).min(16_383)).take_while(|&slot| cluster.owner(slot) == from).last();
            cluster.migrate(slot..=last.expect("itself"), (from + 1) % 3);
            progress(seen);
        }
    });
    let error = seen.last_error.lock().expect("no panic").clone();
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0, "{error:?}");
}

fn slot_of(cluster: &Cluster, key: &str) -> u16 {
    let reply = cluster.nodes[0].connect().call(&["CLUSTER", "KEYSLOT", key]);
    String::from_utf8_lossy(&bulk(&reply)).parse().expect("a slot")
}

/// PUBLISH went to the owner of the lowest slot: when that moved, messages of one client took two ways between the nodes, and
/// number 3,916 came behind 4,006.
#[test]
fn messages_of_one_client_stay_on_their_node_while_slots_move() {
    let cluster = Cluster::start(Kind::Valkey, 3, 0);
    let gateway = Gateway::before_cluster(&cluster);
    let (mut publisher, mut subscriber) = (gateway.connect(), cluster.nodes[2].connect());
    subscriber.call(&["SUBSCRIBE", "c"]);
    let mut published = 0;
    for to in [2, 1, 0, 1, 2] {
        let numbers = (published..published + 500).map(|number: usize| number.to_string());
        publisher.send(&numbers.flat_map(|number| encode(&["PUBLISH", "c", &number])).collect::<Vec<u8>>());
        (0..500).for_each(|_| assert!(publisher.reply().starts_with(b":")));
        published += 500;
        cluster.migrate(0..=100, to);
        // A key of slot 0: the worker of this client learns that it has moved.
        publisher.expect(&["SET", "{06S}", "v"], b"+OK\r\n");
    }
    for number in 0..2_500 {
        let message = bulk_array(&subscriber.reply());
        assert_eq!(message[2], number.to_string().into_bytes());
    }
    let calls: Vec<u64> = cluster.nodes.iter().map(|node| node.calls("publish")).collect();
    assert_eq!(calls.iter().filter(|calls| **calls > 0).count(), 1, "{calls:?}");
}

#[test]
fn a_failover_by_hand_loses_nothing() {
    let mut cluster = Cluster::start(Kind::Redis, 3, 1);
    under_writes(&mut cluster, |cluster, seen| {
        for slot in [100, 8_000, 16_000] {
            let primary = cluster.owner(slot);
            let replica = cluster.replica_of(primary);
            cluster.fail_over(slot, replica);
            cluster.wait_well();
            progress(seen);
        }
    });
}

#[test]
fn a_dead_primary_costs_its_slots_until_its_replica_takes_over() {
    let mut cluster = Cluster::start_to_lose_a_node(Kind::Redis, 3, 1);
    let primary = cluster.owner(100);
    let replica = cluster.replica_of(primary);
    let gateway = Gateway::before_cluster(&cluster);
    let mut client = gateway.connect();
    // Keys of each primary, safe on the replicas too.
    let keys: Vec<String> = (0..60).map(|n| format!("user:{n}")).collect();
    for key in &keys {
        client.expect(&["SET", key, key], b"+OK\r\n");
    }
    until_in_step(&cluster);
    let lost: Vec<bool> = keys.iter().map(|key| cluster.owner(slot_of(&cluster, key)) == primary).collect();
    cluster.nodes[primary].kill();
    let killed = Instant::now();
    let mut refused = 0;
    loop {
        let mut is_whole = true;
        for (key, &is_lost) in keys.iter().zip(&lost) {
            let reply = client.call(&["GET", key]);
            match reply.starts_with(b"-") {
                // The others may refuse for a moment too: `cluster-require-full-coverage` is Redis's default.
                true => {
                    is_whole = false;
                    refused += 1;
                    let text = shown(&reply);
                    assert!(is_lost || text.starts_with("-CLUSTERDOWN"), "{key}: {text}");
                }
                false => assert_eq!(bulk(&reply), key.as_bytes()),
            }
        }
        if is_whole && cluster.nodes[replica].connect().call(&["ROLE"]).windows(6).any(|part| part == b"master") {
            break;
        }
        assert!(killed.elapsed() < Duration::from_secs(30), "the gateway did not find the new primary");
    }
    eprintln!("{refused} refused, whole again after {:?}", killed.elapsed());
    assert!(refused > 0, "a dead primary is noticed");
}

/// Every write of every primary is on its replica.
fn until_in_step(cluster: &Cluster) {
    weir_tests::deadline::until_true("the replicas to be in step", || {
        cluster.nodes.iter().all(|node| {
            let info = String::from_utf8(bulk(&node.connect().call(&["INFO", "replication"]))).expect("text");
            let offset = |name: &str, end: &str| {
                let rest = info.split_once(name).map(|(_, rest)| rest)?;
                rest.split(end).next().map(str::to_owned)
            };
            info.contains("role:slave") || offset("master_repl_offset:", "\r\n") == offset(",offset=", ",")
        })
    });
}
