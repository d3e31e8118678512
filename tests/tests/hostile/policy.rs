//! R15, R18: commands in disguise, and counts that lie.

use weir_tests::client::Client;
use weir_tests::gateway::Gateway;
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{encode, shown};

use crate::scene::Scene;

/// R15: an administrative command is one in any case, inline, and as a subcommand.
#[test]
fn r15_administrative_commands_are_refused_in_every_spelling() {
    let mut scene = Scene::set();
    let forms: [&[&str]; 24] = [
        &["SHUTDOWN"],
        &["shutdown", "NOSAVE"],
        &["ShUtDoWn"],
        &["CONFIG", "SET", "maxmemory", "1"],
        &["config", "set", "maxmemory", "1"],
        &["CoNfIg", "rEwRiTe"],
        &["CONFIG", "RESETSTAT"],
        &["DEBUG", "SLEEP", "0"],
        &["DEBUG", "SEGFAULT"],
        &["SLAVEOF", "NO", "ONE"],
        &["REPLICAOF", "127.0.0.1", "1"],
        &["replicaof", "no", "one"],
        &["FAILOVER"],
        &["SAVE"],
        &["BGSAVE"],
        &["BGREWRITEAOF"],
        &["MODULE", "UNLOAD", "x"],
        &["module", "load", "/tmp/x.so"],
        &["ACL", "SETUSER", "evil", "on", "nopass", "+@all"],
        &["acl", "deluser", "nobody"],
        &["MIGRATE", "127.0.0.1", "1", "k", "0", "10"],
        &["SWAPDB", "0", "1"],
        &["CLUSTER", "RESET"],
        &["SYNC"],
    ];
    let stats = |server: &Server| {
        let text = server.connect().call(&["INFO", "commandstats"]);
        String::from_utf8_lossy(&text).into_owned()
    };
    for words in forms {
        let mut client = scene.gateway.connect();
        for bytes in [encode(words), format!("{}\r\n", words.join(" ")).into_bytes()] {
            client.send(&bytes);
            let reply = client.reply();
            assert!(reply.starts_with(b"-ERR weir: "), "{words:?}: {}", shown(&reply));
            client.expect(&["PING"], b"+PONG\r\n");
        }
        // Inside a transaction it is refused when it is queued, and the whole is dropped.
        client.expect(&["MULTI"], b"+OK\r\n");
        let reply = client.call(words);
        assert!(reply.starts_with(b"-ERR"), "{words:?} in MULTI: {}", shown(&reply));
        let done = client.call(&["EXEC"]);
        assert!(done.starts_with(b"-EXECABORT"), "{words:?} in MULTI: {}", shown(&done));
    }
    let text = stats(&scene.server);
    for name in [
        "shutdown",
        "config|set",
        "config|rewrite",
        "debug",
        "replicaof",
        "slaveof",
        "save",
        "bgsave",
        "module",
        "acl",
        "migrate",
        "swapdb",
        "sync",
    ] {
        assert!(!text.contains(&format!("cmdstat_{name}")), "{name} reached the server:\n{text}");
    }
    scene.unharmed();
}

#[test]
fn r15_replication_commands_are_refused() {
    let mut scene = Scene::set();
    for words in [
        &["PSYNC", "?", "-1"][..],
        &["psync", "?", "-1"],
        &["REPLCONF", "listening-port", "1"],
        &["SCRIPT", "DEBUG", "YES"],
    ] {
        let mut client = scene.gateway.connect();
        let reply = client.call(words);
        assert!(reply.starts_with(b"-ERR"), "{words:?}: {}", shown(&reply));
        client.expect(&["PING"], b"+PONG\r\n");
    }
    assert_eq!(scene.server.calls("psync") + scene.server.calls("replconf"), 0);
    scene.unharmed();
}

#[test]
fn administrative_commands_pass_where_they_are_allowed() {
    let server = Server::start(Kind::Redis);
    let config = weir_tests::gateway::Config::to(&server.address).listener("[listener.redis]\nadmin_commands = true");
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    client.expect(&["CONFIG", "SET", "maxmemory", "100mb"], b"+OK\r\n");
    client.expect(&["CONFIG", "GET", "maxmemory"], b"*2\r\n$9\r\nmaxmemory\r\n$9\r\n104857600\r\n");
    client.expect(&["ACL", "WHOAMI"], b"$7\r\ndefault\r\n");
}

/// R18: numkeys that are negative, huge, or beyond the arguments. Nothing runs; the words are those
/// of the server.
#[test]
fn r18_key_counts_that_lie() {
    let mut scene = Scene::set();
    let mut direct = scene.server.connect();
    direct.expect(&["SADD", "s", "m"], b":1\r\n");
    let mut client = scene.gateway.connect();
    let counts = ["-1", "0", "2", "99", "2147483648", "9223372036854775807", "-9223372036854775808", "x", ""];
    for count in counts {
        for words in [
            &["EVAL", "return redis.call('SET', 'touched', 1)", count, "k"][..],
            &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", count, "k"],
            &["FCALL", "nosuch", count, "k"],
            &["ZUNION", count, "z"],
            &["ZUNIONSTORE", "dest", count, "z"],
            &["ZINTERCARD", count, "z"],
            &["SINTERCARD", count, "s"],
            &["LMPOP", count, "l", "LEFT"],
            &["ZMPOP", count, "z", "MIN"],
            &["BLMPOP", "0.01", count, "l", "LEFT"],
            &["BZMPOP", "0.01", count, "z", "MIN"],
        ] {
            let (came, wanted) = (client.call(words), direct.call(words));
            assert!(came == wanted, "{words:?}: {}, the server says {}", shown(&came), shown(&wanted));
        }
        direct.call(&["DEL", "touched", "dest"]);
    }
    client.expect(&["PING"], b"+PONG\r\n");
    drop(client);
    scene.unharmed();
}

/// A transaction has a limit of its own; past it the whole is dropped and nothing reached the server.
#[test]
fn a_transaction_past_its_limits_is_aborted() {
    let mut scene = Scene::set_with(|config| {
        config.listener("[listener.redis]\ntransaction_commands_max = 50\ntransaction_bytes_max = \"64KiB\"")
    });
    let overfull = |client: &mut Client, value: &str, count: usize| {
        client.expect(&["MULTI"], b"+OK\r\n");
        let mut refused = 0;
        for _ in 0..count {
            let reply = client.call(&["SET", "t", value]);
            if reply != b"+QUEUED\r\n" {
                assert_eq!(reply, b"-ERR weir: transaction too large\r\n", "{}", shown(&reply));
                refused += 1;
            }
        }
        assert!(refused > 0);
        let done = client.call(&["EXEC"]);
        assert!(done.starts_with(b"-EXECABORT"), "{}", shown(&done));
    };
    let mut client = scene.gateway.connect();
    overfull(&mut client, "v", 60);
    overfull(&mut client, &"v".repeat(10_000), 10);
    client.expect(&["EXISTS", "t"], b":0\r\n");
    client.expect(&["MULTI"], b"+OK\r\n");
    client.expect(&["SET", "t", "v"], b"+QUEUED\r\n");
    client.expect(&["EXEC"], b"*1\r\n+OK\r\n");
    drop(client);
    scene.unharmed();
}

#[test]
fn subscriptions_have_a_limit() {
    let mut scene = Scene::set_with(|config| config.listener("[listener.redis]\nsubscriptions_max = 20"));
    let mut client = scene.gateway.connect();
    for number in 0..20 {
        let reply = client.call(&["SUBSCRIBE", &format!("c{number}")]);
        assert!(reply.starts_with(b"*3"), "{}", shown(&reply));
    }
    let reply = client.call(&["SUBSCRIBE", "one-more"]);
    assert_eq!(reply, b"-ERR weir: too many subscriptions\r\n", "{}", shown(&reply));
    let many: Vec<String> =
        std::iter::once("PSUBSCRIBE".to_owned()).chain((0..100).map(|n| format!("p{n}*"))).collect();
    let reply = client.call(&many);
    assert!(reply.starts_with(b"-ERR weir: "), "{}", shown(&reply));
    // Those it has still work.
    scene.server.connect().expect(&["PUBLISH", "c7", "hi"], b":1\r\n");
    let message = client.reply();
    assert!(message.ends_with(b"$2\r\nhi\r\n"), "{}", shown(&message));
    drop(client);
    scene.unharmed();
}
