//! A primary with replicas behind one address: found by asking them or their sentinels, followed when another takes over, and
//! reads spread as the configuration says.

use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::cluster::Cluster;
use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::replicated::{Replicated, Sentinels, wait_linked};
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Address;
use weir_tests::wire::{encode, shown};

/// For a failover by sentinels, who have to agree first.
const FAILOVER: Duration = Duration::from_secs(30);
/// Clients that read: enough for each replica to get some.
const READERS: usize = 12;

fn before<'a>(endpoints: impl IntoIterator<Item = &'a Address>, lines: &str) -> Config {
    Config::to_all(endpoints).workers(2).upstream(lines)
}

/// Waits until `primary` has all that was written.
fn wait_in_step<'a>(primary: &Server, replicas: impl IntoIterator<Item = &'a Server>) {
    let replicas: Vec<&Server> = replicas.into_iter().collect();
    assert!(!replicas.is_empty(), "no replica to wait for");
    let offset = |server: &Server| server.info("replication", "master_repl_offset");
    until_true("the replicas to have everything", || {
        replicas.iter().all(|replica| replica.info("replication", "slave_repl_offset") == offset(primary))
    });
}

/// Commands of each server since the counts before.
struct Calls(Vec<u64>);

impl Calls {
    fn of(servers: &[Server], command: &str) -> Self {
        Self(servers.iter().map(|server| server.calls(command)).collect())
    }

    fn since(&self, before: &Self) -> Vec<u64> {
        self.0.iter().zip(&before.0).map(|(now, then)| now - then).collect()
    }
}

/// Each of many clients reads `key` a few times, alone and pipelined, and finds `value`.
fn read(gateway: &Gateway, key: &str, value: &[u8]) {
    let mut clients: Vec<Client> = (0..READERS).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.expect(&["GET", key], value);
        client.send(&encode(&["GET", key]).repeat(10));
        (0..10).for_each(|_| assert_eq!(client.reply(), value));
    }
}

#[test]
fn the_primary_is_found_by_its_role_and_followed() {
    for kind in Kind::ALL {
        let all = Replicated::start(kind, 2, None);
        // The replicas first, and one of the three not at all.
        let endpoints = [&all.servers[2].address, &all.servers[0].address];
        let gateway = Gateway::start(before(endpoints, "topology = \"replicated\""));
        let mut client = gateway.connect();
        client.expect(&["SET", "k", "1"], b"+OK\r\n");
        client.expect(&["GET", "k"], b"$1\r\n1\r\n");
        assert_eq!(all.servers[0].calls("get"), 1, "reads go to the primary too");
        wait_in_step(&all.servers[0], &all.servers[1..]);
        // The one that is not in the configuration takes over.
        all.promote(1);
        until("the gateway to follow", FAILOVER, || {
            let reply = client.call(&["SET", "k", "2"]);
            assert!(reply == b"+OK\r\n" || reply.starts_with(b"-READONLY"), "{}", shown(&reply));
            (reply == b"+OK\r\n").then_some(())
        });
        assert_eq!(all.servers[1].calls("get"), 0);
        client.expect(&["GET", "k"], b"$1\r\n2\r\n");
        assert_eq!(all.servers[1].calls("get"), 1, "the new primary is asked");
        // Pipelined commands of a client go to one of them, in order.
        client.send(&encode(&["INCR", "n"]).repeat(100));
        (1..=100).for_each(|n| assert_eq!(client.reply(), format!(":{n}\r\n").into_bytes()));
        assert_eq!(gateway.connect().call(&["GET", "k"]), b"$1\r\n2\r\n");
    }
}

#[test]
fn reads_go_where_the_rule_says() {
    let mut all = Replicated::start(Kind::Redis, 2, None);
    let health = "[upstream.breaker]\nfailures = 1\nwindow = \"10s\"\nopen_for = \"500ms\"";
    let start = |all: &Replicated, rule: &str| {
        let lines = format!("topology = \"replicated\"\nread_from = \"{rule}\"\n{health}");
        Gateway::start(before(all.addresses(), &lines))
    };
    all.servers[0].connect().expect(&["MSET", "k", "1", "l", "2"], b"+OK\r\n");
    wait_in_step(&all.servers[0], &all.servers[1..]);
    for (rule, may) in [
        ("primary", [true, false, false]),
        ("prefer_primary", [true, false, false]),
        ("any", [true, true, true]),
        ("prefer_replica", [false, true, true]),
        ("replica", [false, true, true]),
    ] {
        let gateway = start(&all, rule);
        let before = Calls::of(&all.servers, "get");
        read(&gateway, "k", b"$1\r\n1\r\n");
        let calls = Calls::of(&all.servers, "get").since(&before);
        assert_eq!(calls.iter().sum::<u64>(), 11 * READERS as u64, "{rule}");
        let has: Vec<bool> = calls.iter().map(|calls| *calls > 0).collect();
        assert_eq!(has, may, "{rule}: {calls:?}");
        // Writes, watched keys and cursors stay at the primary.
        let mut client = gateway.connect();
        client.expect(&["MGET", "k", "l"], b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
        let before = Calls::of(&all.servers, "get");
        client.expect(&["WATCH", "k"], b"+OK\r\n");
        client.expect(&["GET", "k"], b"$1\r\n1\r\n");
        client.expect(&["MULTI"], b"+OK\r\n");
        client.expect(&["GET", "k"], b"+QUEUED\r\n");
        client.expect(&["EXEC"], b"*1\r\n$1\r\n1\r\n");
        assert_eq!(Calls::of(&all.servers, "get").since(&before), [2, 0, 0], "{rule}");
        assert!(client.call(&["SCAN", "0"]).starts_with(b"*2\r\n"));
        assert_eq!(Calls::of(&all.servers, "scan").0[1..], [0, 0], "{rule}");
        // Replies stay in order, wherever they come from.
        let mixed: Vec<u8> =
            (0..50).flat_map(|n| [encode(&["SET", "n", &n.to_string()]), encode(&["GET", "k"])].concat()).collect();
        client.send(&mixed);
        for _ in 0..50 {
            assert_eq!((client.reply(), client.reply()), (b"+OK\r\n".to_vec(), b"$1\r\n1\r\n".to_vec()));
        }
    }
    // Without replicas.
    let (preferring, insisting) = (start(&all, "prefer_replica"), start(&all, "replica"));
    let mut clients = (preferring.connect(), insisting.connect());
    let good = |client: &mut Client| client.call(&["GET", "k"]) == b"$1\r\n1\r\n";
    assert!(good(&mut clients.0) && good(&mut clients.1));
    all.servers[1].kill();
    all.servers[2].kill();
    until_true("reads to go to the primary", || good(&mut clients.0));
    (0..20).for_each(|_| assert!(good(&mut clients.0)));
    until_true("reads to be refused", || clients.1.call(&["GET", "k"]).starts_with(b"-ERR weir: upstream un"));
    clients.1.expect(&["SET", "k", "1"], b"+OK\r\n");
    all.servers[1].restart();
    wait_linked(&all.servers[1]);
    let calls = all.servers[1].calls("get");
    until_true("the replica to be read again", || good(&mut clients.1));
    assert!(all.servers[1].calls("get") > calls);
    let calls = all.servers[1].calls("get");
    until_true("the replica to be preferred again", || good(&mut clients.0) && all.servers[1].calls("get") > calls);
}

#[test]
fn reads_stay_in_the_zone_while_it_has_a_server_for_them() {
    let mut all = Replicated::start(Kind::Valkey, 2, None);
    for (at, zone) in ["eu-1a", "eu-1a", "eu-1b"].iter().enumerate() {
        all.servers[at].connect().expect(&["CONFIG", "SET", "availability-zone", zone], b"+OK\r\n");
    }
    all.servers[0].connect().expect(&["SET", "k", "1"], b"+OK\r\n");
    wait_in_step(&all.servers[0], &all.servers[1..]);
    let start = |rule: &str, zone: &str| {
        let lines = format!("topology = \"replicated\"\nread_from = \"{rule}\"\nzone = \"{zone}\"");
        Gateway::start(before(all.addresses(), &lines))
    };
    let reads_at = |gateway: &Gateway| -> Vec<bool> {
        let before = Calls::of(&all.servers, "get");
        read(gateway, "k", b"$1\r\n1\r\n");
        Calls::of(&all.servers, "get").since(&before).iter().map(|calls| *calls > 0).collect()
    };
    let near = start("prefer_replica", "eu-1b");
    let sentinels = Sentinels::start(1, &all, None);
    let lines = "topology = \"sentinel\"\nread_from = \"prefer_replica\"\nzone = \"eu-1b\"";
    let named = before(&sentinels.addresses, lines).upstream("[upstream.sentinel]\nservice = \"main\"");
    for (gateway, may) in [
        (&Gateway::start(named), [false, false, true]),
        (&start("prefer_replica", "eu-1a"), [false, true, false]),
        (&start("replica", "eu-1b"), [false, false, true]),
        (&start("any", "eu-1a"), [true, true, false]),
        (&start("any", "eu-1b"), [false, false, true]),
        // The zone has no server.
        (&start("replica", "us-2"), [false, true, true]),
        (&near, [false, false, true]),
    ] {
        // A worker that does not know the zones yet chooses by the number of the connection, and may choose well by chance.
        // One more connection between two rounds gives its next ones other numbers.
        until_true("both workers to know the zones", || {
            (0..4).all(|_| {
                gateway.connect().expect(&["PING"], b"+PONG\r\n");
                reads_at(gateway) == may
            })
        });
        (0..3).for_each(|_| assert_eq!(reads_at(gateway), may));
    }
    let mut client = near.connect();
    all.servers[2].kill();
    until_true("reads to leave the zone", || client.call(&["GET", "k"]) == b"$1\r\n1\r\n");
    assert!(all.servers[1].calls("get") > 0);
}

#[test]
fn transactions_and_scripts_go_to_the_primary_wherever_it_stands_in_the_list() {
    let all = Replicated::start(Kind::Redis, 1, None);
    let endpoints = [&all.servers[1].address, &all.servers[0].address];
    let gateway = Gateway::start(before(endpoints, "topology = \"replicated\"\nread_from = \"prefer_replica\""));
    let mut client = gateway.connect();
    client.expect(&["MULTI"], b"+OK\r\n");
    client.expect(&["SET", "k", "1"], b"+QUEUED\r\n");
    client.expect(&["EXEC"], b"*1\r\n+OK\r\n");
    let sha = client.call(&["SCRIPT", "LOAD", "return redis.call('GET', KEYS[1])"]);
    let sha = String::from_utf8_lossy(&sha[5..45]).into_owned();
    client.expect(&["EVALSHA_RO", &sha, "1", "k"], b"$1\r\n1\r\n");
    assert_eq!(all.servers[0].calls("exec"), 1);
}

#[test]
fn sentinels_name_the_primary_and_its_successor() {
    const PASSWORD: &str = "of-the-servers";
    let mut all = Replicated::start(Kind::Redis, 2, Some(PASSWORD));
    let sentinels = Sentinels::start(3, &all, Some(PASSWORD));
    let folder = tempfile::tempdir().expect("a folder");
    // The sentinels themselves have no password.
    let config = before(&sentinels.addresses, "topology = \"sentinel\"")
        .upstream("[upstream.sentinel]\nservice = \"main\"")
        .upstream_password(folder.path(), None, PASSWORD);
    let gateway = Gateway::start(config);
    // Requested at once: the first commands wait until it is known who is the primary.
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "1"], b"+OK\r\n");
    assert_eq!(all.servers[0].calls("set"), 1);
    wait_in_step(&all.servers[0], &all.servers[1..]);
    let mut subscriber = gateway.connect();
    assert!(subscriber.call(&["SUBSCRIBE", "news"]).ends_with(b":1\r\n"));
    let port_of = |all: &Replicated, port: u16| all.servers.iter().position(|one| one.address.tcp().port() == port);
    // Ordered: the old primary lives on as a replica.
    sentinels.fail_over();
    let second =
        until("the sentinels to name another", FAILOVER, || port_of(&all, sentinels.primary()).filter(|at| *at != 0));
    set_until_ok(&gateway, &mut client);
    assert!(all.servers[second].calls("set") > 0);
    until("the old primary to follow", FAILOVER, || {
        (all.servers[0].info("replication", "role") == "slave").then_some(())
    });
    // Killed.
    until("the replicas to be known", FAILOVER, || {
        (all.servers[second].info("replication", "connected_slaves") == "2").then_some(())
    });
    let followers = all.servers.iter().enumerate().filter(|(at, _)| *at != second).map(|(_, server)| server);
    wait_in_step(&all.servers[second], followers);
    all.servers[second].kill();
    let begun = Instant::now();
    set_until_ok(&gateway, &mut client);
    // The queried sentinel may be the last to learn it.
    let third = until("the sentinels to name a third", FAILOVER, || {
        port_of(&all, sentinels.primary()).filter(|at| *at != second)
    });
    assert!(all.servers[third].calls("set") > 0, "written {:?} after the kill", begun.elapsed());
    client.expect(&["GET", "k"], b"$1\r\n9\r\n");
    // A subscriber gets messages of the new primary.
    until_true("the subscription to be at the new primary", || client.call(&["PUBLISH", "news", "hello"]) == b":1\r\n");
    assert!(subscriber.reply().ends_with(b"hello\r\n"));
}

/// Writes until the primary of the moment takes it.
fn set_until_ok(gateway: &Gateway, client: &mut Client) {
    until("a write to be taken", FAILOVER, || {
        let reply = client.call(&["SET", "k", "9"]);
        if reply == b"+OK\r\n" {
            return Some(());
        }
        let is_known = [&b"-READONLY"[..], b"-ERR weir: upstream", b"-ERR weir: timed out"];
        assert!(is_known.iter().any(|word| reply.starts_with(word)), "{}", shown(&reply));
        std::thread::sleep(Duration::from_millis(20));
        None
    });
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
}

#[test]
fn an_unknown_service_is_refused_and_said() {
    let all = Replicated::start(Kind::Redis, 0, None);
    let sentinels = Sentinels::start(1, &all, None);
    let config =
        before(&sentinels.addresses, "topology = \"sentinel\"").upstream("[upstream.sentinel]\nservice = \"other\"");
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "1"], b"-ERR weir: no primary is known\r\n");
    client.expect(&["PING"], b"+PONG\r\n");
    gateway.wait_metric("weir_lane_connect_failures_total", &[("reason", "discovery")], 1.0);
    assert_eq!(all.servers[0].calls("set"), 0);
    assert_eq!(Client::connect(&sentinels.addresses[0]).call(&["PING"]), b"+PONG\r\n");
}

#[test]
fn replicas_of_a_cluster_are_read() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 3, 1);
        let seeds: Vec<&Address> = cluster.addresses().take(1).collect();
        let keys: Vec<String> = (0..100).map(|n| format!("user:{n}")).collect();
        let writing = Gateway::start(before(seeds.clone(), "topology = \"cluster\""));
        let mut client = writing.connect();
        for key in &keys {
            client.expect(&["SET", key, "v"], b"+OK\r\n");
        }
        drop(client);
        writing.finish();
        // A replica is named once it has reported that it has data (Redis 7.0 `cluster.c`, `isReplicaAvailable`).
        let ports: Vec<String> = cluster.addresses().map(|one| format!(":{}\r\n", one.tcp().port())).collect();
        until("the seed to name all nodes", FAILOVER, || {
            let slots = cluster.nodes[0].connect().call(&["CLUSTER", "SLOTS"]);
            let slots = String::from_utf8_lossy(&slots).into_owned();
            ports.iter().all(|port| slots.contains(port)).then_some(())
        });
        let gateway = Gateway::start(before(seeds, "topology = \"cluster\"\nread_from = \"prefer_replica\""));
        let mut client = gateway.connect();
        for (primary, replica) in (0..3).map(|at| (&cluster.nodes[at], &cluster.nodes[at + 3])) {
            wait_in_step(primary, [replica]);
        }
        let before = Calls::of(&cluster.nodes, "get");
        client.send(&keys.iter().flat_map(|key| encode(&["GET", key])).collect::<Vec<_>>());
        keys.iter().for_each(|key| assert_eq!(client.reply(), b"$1\r\nv\r\n", "{key}"));
        let calls = Calls::of(&cluster.nodes, "get").since(&before);
        assert_eq!(calls[..3], [0, 0, 0], "{calls:?}");
        assert!(calls[3..].iter().all(|calls| *calls > 10), "{calls:?}");
        let mut words = vec!["MGET".to_owned()];
        words.extend(keys.iter().cloned());
        assert_eq!(client.call(&words), format!("*100\r\n{}", "$1\r\nv\r\n".repeat(100)).into_bytes());
    }
}
