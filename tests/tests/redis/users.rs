//! Users of a listener: logins, rules, limits, and what a reload does to those who are there.

use std::time::{Duration, Instant};

use weir_tests::client::{Client, End};
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::server::{Kind, Options, Server};
use weir_tests::wire::{bulk, bulk_array, encode, encode_all, shown};

const WRONG: &[u8] = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";
const NO_KEY: &[u8] = b"-NOPERM this user has no permissions to access one of the keys used as arguments\r\n";

/// Users as tables: name, rules, further keys.
fn tables(users: &[(&str, &str, &str)]) -> String {
    let table = |(name, rules, more): &(&str, &str, &str)| {
        format!("[[listener.user]]\nname = \"{name}\"\nrules = '{rules}'\n{more}\n")
    };
    users.iter().map(table).collect()
}

fn gateway(server: &Server, users: &[(&str, &str, &str)]) -> Gateway {
    Gateway::start(Config::to(&server.address).listener(&tables(users)))
}

fn logged_in(gateway: &Gateway, user: &str, password: &str) -> Client {
    let mut client = gateway.connect();
    client.expect(&["AUTH", user, password], b"+OK\r\n");
    client
}

fn no_command(name: &str) -> Vec<u8> {
    format!("-NOPERM this user has no permissions to run the '{name}' command\r\n").into_bytes()
}

/// Writes other users into the configuration and has it taken.
fn change_users(gateway: &Gateway, from: &str, to: &str) {
    let text = std::fs::read_to_string(&gateway.file).expect("the configuration");
    assert!(text.contains(from), "{from} is not in the configuration");
    let beside = gateway.file.with_extension("new");
    std::fs::write(&beside, text.replace(from, to)).expect("the new configuration");
    std::fs::rename(&beside, &gateway.file).expect("the new configuration takes its place");
    let response = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(response.status, 200, "{}", response.body);
}

/// It got a syntax error, whatever the key.
#[test]
fn a_key_rule_counts_for_a_destination_alone() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, &[("alice", "on >secret ~ok:* +@all", "")]);
    let mut client = logged_in(&gateway, "alice", "secret");
    client.expect(&["PFMERGE", "ok:1"], b"+OK\r\n");
    client.expect(&["EXISTS", "ok:1"], b":1\r\n");
    // Redis 7.0 and Valkey 9.1 find no key here and let everybody pass.
    client.expect(&["PFMERGE", "other"], NO_KEY);
    client.expect(&["ACL", "DRYRUN", "alice", "PFMERGE", "ok:1"], b"+OK\r\n");
    assert_eq!(bulk_array(&server.connect().call(&["KEYS", "*"])), [b"ok:1"]);
}

/// ACL was refused inside MULTI, and spoiled it.
#[test]
fn acl_is_answered_at_its_place_in_exec() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, &[("alice", "on >secret ~* &* +@all", ""), ("bob", "on >secret ~* +@all -acl", "")]);
    let mut client = logged_in(&gateway, "alice", "secret");
    client.expect(&["MULTI"], b"+OK\r\n");
    for line in ["SET k v", "ACL WHOAMI", "ACL USERS", "ACL GETUSER nobody", "ACL CAT nope", "ACL SETUSER x", "GET k"] {
        client.expect(&line.split(' ').collect::<Vec<_>>(), b"+QUEUED\r\n");
    }
    let reply = client.call(&["EXEC"]);
    let begin = "*7\r\n+OK\r\n$5\r\nalice\r\n*3\r\n$5\r\nalice\r\n$3\r\nbob\r\n$7\r\ndefault\r\n$-1\r\n\
                 -ERR Unknown category 'nope'\r\n-ERR weir: ";
    assert!(reply.starts_with(begin.as_bytes()) && reply.ends_with(b"\r\n$1\r\nv\r\n"), "{}", shown(&reply));
    let mut client = logged_in(&gateway, "bob", "secret");
    client.expect(&["MULTI"], b"+OK\r\n");
    client.expect(&["ACL", "USERS"], &no_command("acl|users"));
    client.expect(&["EXEC"], b"-EXECABORT Transaction discarded because of previous errors.\r\n");
}

#[test]
fn users_log_in_with_auth_and_hello_and_nobody_comes_in_unnamed() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, &[("alice", "on >secret ~* &* +@all", ""), ("bob", "off >secret ~* +@all", "")]);
    let mut client = gateway.connect();
    client.expect(&["GET", "k"], b"-NOAUTH Authentication required.\r\n");
    client.expect(&["AUTH", "secret"], WRONG);
    client.expect(&["AUTH", "bob", "secret"], WRONG);
    client.expect(&["AUTH", "nobody", "secret"], WRONG);
    client.expect(&["AUTH", "alice", "secret"], b"+OK\r\n");
    client.expect(&["ACL", "WHOAMI"], b"$5\r\nalice\r\n");
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.expect(&["RESET"], b"+RESET\r\n");
    client.expect(&["GET", "k"], b"-NOAUTH Authentication required.\r\n");
    let mut third = gateway.connect();
    assert!(third.call(&["HELLO", "3", "AUTH", "alice", "secret"]).starts_with(b"%7\r\n"));
    third.expect(&["GET", "absent"], b"_\r\n");
    // A wrong login leaves the old one.
    third.expect(&["AUTH", "alice", "wrong"], WRONG);
    third.expect(&["ACL", "WHOAMI"], b"$5\r\nalice\r\n");
    gateway.wait_metric("weir_redis_logins_total", &[("user", "alice")], 2.0);
    assert_eq!(server.calls("auth"), 0, "nothing of it reached the server");
}

#[test]
fn the_listeners_own_password_is_that_of_default() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = secret_file(folder.path(), "password", "ours");
    let lines = tables(&[("alice", "on >secret ~a* +get", "")]);
    let lines = format!("redis.password = {{ file = \"{file}\" }}\n{lines}");
    let gateway = Gateway::start(Config::to(&server.address).listener(&lines));
    let mut client = gateway.connect();
    client.expect(&["GET", "k"], b"-NOAUTH Authentication required.\r\n");
    client.expect(&["AUTH", "ours"], b"+OK\r\n");
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.expect(&["AUTH", "alice", "secret"], b"+OK\r\n");
    client.expect(&["SET", "k", "v"], &no_command("set"));
}

#[test]
fn denied_commands_of_a_pipeline_are_answered_here_and_the_rest_is_forwarded() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = gateway(&server, &[("default", "on nopass ~a* +get +set +mset +ping", "")]);
        let mut client = gateway.connect();
        let commands: &[&[&str]] = &[
            &["SET", "a1", "1"],
            &["SET", "b1", "1"],
            &["GET", "a1"],
            &["DEL", "a1"],
            &["GET", "b1"],
            &["GET", "a1"],
            &["MSET", "a2", "2", "b2", "2"],
            &["GET", "a2"],
        ];
        client.send(&encode_all(commands));
        let ok = b"+OK\r\n".to_vec();
        let one = b"$1\r\n1\r\n".to_vec();
        let wanted = [&ok, NO_KEY, &one, &no_command("del"), NO_KEY, &one, NO_KEY, b"$-1\r\n".as_slice()];
        for reply in wanted {
            assert_eq!(shown(&client.reply()), shown(reply));
        }
        assert_eq!((server.calls("set"), server.calls("get"), server.calls("del"), server.calls("mset")), (1, 3, 0, 0));
        gateway.wait_metric("weir_redis_acl_denied_total", &[("user", "default"), ("reason", "key")], 3.0);
        gateway.wait_metric("weir_redis_acl_denied_total", &[("user", "default"), ("reason", "command")], 1.0);
    }
}

#[test]
fn large_commands_are_judged_before_their_first_byte_flows() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, &[("default", "on nopass ~a* +set +mset +strlen +get", "")]);
    let mut client = gateway.connect();
    let value = "v".repeat(300_000);
    client.expect(&["SET", "b", &value], NO_KEY);
    client.expect(&["APPEND", "a", &value], &no_command("append"));
    client.expect(&["SET", "a", &value], b"+OK\r\n");
    client.expect(&["STRLEN", "a"], b":300000\r\n");
    // The key that decides stands behind the large value.
    client.expect(&["MSET", "a1", &value, "b1", "x"], NO_KEY);
    client.expect(&["MSET", "a1", &value, "a2", "x"], b"+OK\r\n");
    client.expect(&["GET", "a2"], b"$1\r\nx\r\n");
    let endless = "v".repeat(17 << 20);
    let reply = client.call(&["MSET", "a1", &endless, "b1", "x"]);
    assert!(reply.starts_with(b"-ERR weir: "), "{}", shown(&reply));
    client.expect(&["SET", "a3", &value], b"+OK\r\n");
    assert_eq!((server.calls("append"), server.calls("mset"), server.calls("set")), (0, 1, 2));
}

#[test]
fn channels_are_judged_by_name_and_patterns_letter_by_letter() {
    let server = Server::start(Kind::Redis);
    let rules = "on nopass &news.* +@pubsub +ping";
    let gateway = gateway(&server, &[("default", rules, "")]);
    let no_channel = b"-NOPERM this user has no permissions to access one of the channels used as arguments\r\n";
    let mut client = gateway.connect();
    client.expect(&["SUBSCRIBE", "news.a", "other"], no_channel);
    client.expect(&["PSUBSCRIBE", "news.a*"], no_channel);
    client.expect(&["PUBLISH", "other", "m"], no_channel);
    client.expect(&["SSUBSCRIBE", "other"], no_channel);
    client.expect(&["PSUBSCRIBE", "news.*"], b"*3\r\n$10\r\npsubscribe\r\n$6\r\nnews.*\r\n:1\r\n");
    client.expect(&["SUBSCRIBE", "other"], no_channel);
    client.expect(&["SUBSCRIBE", "news.b"], b"*3\r\n$9\r\nsubscribe\r\n$6\r\nnews.b\r\n:2\r\n");
    let mut publisher = gateway.connect();
    publisher.expect(&["PUBLISH", "news.x", "m"], b":1\r\n");
    assert!(client.reply().starts_with(b"*4\r\n$8\r\npmessage\r\n"));
    assert_eq!(server.calls("ssubscribe"), 0);
}

#[test]
fn commands_in_disguise_are_judged_by_their_real_name() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, &[("default", "on nopass ~a* +@all -config -eval", "")]);
    let mut client = gateway.connect();
    for words in [&["CoNfIg", "gEt", "maxmemory"][..], &["config", "GET", "maxmemory"]] {
        client.expect(words, &no_command("config|get"));
        client.send(format!("{}\r\n", words.join(" ")).as_bytes());
        assert_eq!(client.reply(), no_command("config|get"));
    }
    client.expect(&["eVaL", "return 1", "0"], &no_command("eval"));
    // A keyword ends at a NUL for the server, so it does here.
    client.expect(&["GEORADIUS", "a", "0", "0", "1", "m", "STORE\0x", "b"], NO_KEY);
    client.expect(&["SORT", "a", "STORE\0", "b"], NO_KEY);
    client
        .expect(&["SORT", "a", "BY", "w_*"], b"-ERR BY option of SORT denied due to insufficient ACL permissions.\r\n");
    client
        .expect(&["SORT", "a", "GET", "#"], b"-ERR GET option of SORT denied due to insufficient ACL permissions.\r\n");
    client.expect(&["ZUNION", "9", "a"], b"-ERR syntax error\r\n");
    // The keys of these commands are unknown.
    client.expect(&["JSON.GET", "b"], &no_command("json.get"));
    client.expect(&["OBJECT", "NOPE"], &no_command("object|nope"));
    for name in ["config|get", "eval", "georadius", "sort", "zunion"] {
        assert_eq!(server.calls(name), 0, "{name}");
    }
}

#[test]
fn scripts_of_restricted_users_need_trust() {
    let server = Server::start(Kind::Redis);
    let restricted = "on nopass ~a* +eval +get";
    let bob = ("bob", restricted, "trust_scripts = true");
    let gateway = gateway(&server, &[("alice", restricted, ""), bob, ("root", "on nopass ~* &* +@all", "")]);
    let mut alice = logged_in(&gateway, "alice", "x");
    let reply = alice.call(&["EVAL", "return redis.call('FLUSHALL')", "0"]);
    assert!(reply.starts_with(b"-NOPERM weir: "), "{}", shown(&reply));
    let mut bob = logged_in(&gateway, "bob", "x");
    bob.expect(&["EVAL", "return 1", "1", "a"], b":1\r\n");
    bob.expect(&["EVAL", "return 1", "1", "b"], NO_KEY);
    logged_in(&gateway, "root", "x").expect(&["EVAL", "return 1", "0"], b":1\r\n");
    assert_eq!(server.calls("flushall"), 0);
}

#[test]
fn a_reload_changes_the_rules_of_connected_users_and_ends_removed_ones() {
    let server = Server::start(Kind::Redis);
    let users = [
        ("default", "on nopass ~* &* +@all", ""),
        ("alice", "on nopass ~a* +get +set +multi +exec", ""),
        ("bob", "on nopass ~* +@all", ""),
        ("carol", "on nopass ~* +@all", ""),
        ("dave", "on nopass &a &b +subscribe", ""),
    ];
    let gateway = gateway(&server, &users);
    let mut alice = logged_in(&gateway, "alice", "x");
    let mut queued = logged_in(&gateway, "alice", "x");
    let mut bob = logged_in(&gateway, "bob", "x");
    let mut carol = logged_in(&gateway, "carol", "x");
    let mut dave = logged_in(&gateway, "dave", "x");
    let mut open = gateway.connect();
    alice.expect(&["SET", "a1", "v"], b"+OK\r\n");
    queued.expect(&["MULTI"], b"+OK\r\n");
    queued.expect(&["SET", "a1", "w"], b"+QUEUED\r\n");
    dave.expect(&["SUBSCRIBE", "a"], b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    let text = std::fs::read_to_string(&gateway.file).expect("the configuration");
    let begin = text.find("[[listener.user]]").expect("users");
    let end = text.find("[[upstream]]").expect("an upstream");
    let changed = [
        ("default", "on nopass ~* &* +@all", ""),
        ("alice", "on nopass ~a* +get +multi +exec", ""),
        ("carol", "off nopass ~* +@all", ""),
        ("dave", "on nopass &b +subscribe", ""),
    ];
    change_users(&gateway, &text[begin..end], &tables(&changed));
    for gone in [&mut bob, &mut carol, &mut dave] {
        assert_eq!(gone.read_to_end(Duration::from_secs(10)).1, End::Closed);
    }
    alice.expect(&["GET", "a1"], b"$1\r\nv\r\n");
    alice.expect(&["SET", "a1", "v"], &no_command("set"));
    let reply = queued.call(&["EXEC"]);
    assert!(
        reply.starts_with(b"-EXECABORT Transaction discarded because of: NOPERM ACLs rules changed"),
        "{}",
        shown(&reply)
    );
    open.expect(&["GET", "a1"], b"$1\r\nv\r\n");
    gateway.wait_metric("weir_connections_closed_total", &[("reason", "user_removed")], 3.0);
    gateway.connect().expect(&["AUTH", "carol", "x"], WRONG);
}

#[test]
fn a_file_of_users_is_read_again_and_a_wrong_one_changes_nothing() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = secret_file(folder.path(), "users.acl", "user alice on nopass ~a* +get\n");
    let gateway = Gateway::start(Config::to(&server.address).listener(&format!("users_file = \"{file}\"")));
    let mut alice = logged_in(&gateway, "alice", "x");
    alice.expect(&["SET", "a", "v"], &no_command("set"));
    secret_file(folder.path(), "users.acl", "user alice on nopass ~a* +get +nope\n");
    let response = gateway.admin.post("/api/v1/reload", "");
    assert_ne!(response.status, 200, "{}", response.body);
    assert!(response.body.contains("users.acl:1: Error in ACL SETUSER modifier '+nope'"), "{}", response.body);
    alice.expect(&["SET", "a", "v"], &no_command("set"));
    secret_file(folder.path(), "users.acl", "user alice on nopass ~a* +get +set\n");
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    alice.expect(&["SET", "a", "v"], b"+OK\r\n");
}

#[test]
fn acl_commands_speak_of_the_listeners_users() {
    let server = Server::start(Kind::Redis);
    let users = [("default", "on nopass ~* &* +@all", ""), ("alice", "on >secret ~a* %R~b* +get (+set ~c)", "")];
    let gateway = gateway(&server, &users);
    let mut client = gateway.connect();
    assert_eq!(bulk_array(&client.call(&["ACL", "USERS"])), [b"alice".to_vec(), b"default".to_vec()]);
    let list = bulk_array(&client.call(&["ACL", "LIST"]));
    let alice = String::from_utf8_lossy(&list[0]).into_owned();
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let wanted = format!("user alice on #{hash} ~a* %R~b* resetchannels -@all +get (~c resetchannels -@all +set)");
    assert_eq!(alice, wanted);
    client.expect(&["ACL", "GETUSER", "nobody"], b"$-1\r\n");
    client.expect(&["ACL", "DRYRUN", "alice", "GET", "a1"], b"+OK\r\n");
    let dry = bulk(&client.call(&["ACL", "DRYRUN", "alice", "GET", "c"]));
    assert_eq!(shown(&dry), "This user has no permissions to access the \\'c\\' key");
    for words in
        [&["ACL", "SETUSER", "eve", "on"][..], &["ACL", "DELUSER", "alice"], &["ACL", "LOAD"], &["ACL", "SAVE"]]
    {
        let reply = client.call(words);
        assert!(reply.starts_with(b"-ERR weir: users are kept in the configuration"), "{}", shown(&reply));
    }
    assert_eq!(bulk(&client.call(&["ACL", "GENPASS"])).len(), 64);
    assert_eq!(bulk(&client.call(&["ACL", "GENPASS", "5"])).len(), 2);
    assert_eq!(bulk_array(&client.call(&["ACL", "CAT"])).len(), 21);
    client.expect(&["ACL", "CAT", "nope"], b"-ERR Unknown category 'nope'\r\n");
    let mut alice = logged_in(&gateway, "alice", "secret");
    alice.expect(&["ACL", "LIST"], &no_command("acl|list"));
    alice.expect(&["ACL", "WHOAMI"], &no_command("acl|whoami"));
    assert_eq!(server.calls("acl|list") + server.calls("acl|setuser") + server.calls("acl|cat"), 0);
}

#[test]
fn the_log_shows_denials_with_their_clients() {
    let server = Server::start(Kind::Redis);
    let users = [("default", "on nopass ~* &* +@all", ""), ("alice", "on >secret ~a* &a +get +multi +publish", "")];
    let gateway = gateway(&server, &users);
    let mut client = gateway.connect();
    client.expect(&["ACL", "LOG"], b"*0\r\n");
    let mut alice = logged_in(&gateway, "alice", "secret");
    alice.expect(&["GET", "b"], NO_KEY);
    alice.expect(&["GET", "b"], NO_KEY);
    alice.expect(&["DEL", "a"], &no_command("del"));
    alice.call(&["PUBLISH", "b", "m"]);
    alice.expect(&["MULTI"], b"+OK\r\n");
    alice.expect(&["GET", "c"], NO_KEY);
    gateway.connect().expect(&["AUTH", "eve", "guess"], WRONG);
    // count, reason, context, object, username; values stand at odd places.
    let entries = client.call(&["ACL", "LOG"]);
    let text = shown_all(&entries);
    for wanted in [
        ["1", "auth", "toplevel", "AUTH", "eve"],
        ["1", "key", "multi", "c", "alice"],
        ["1", "channel", "toplevel", "b", "alice"],
        ["1", "command", "toplevel", "del", "alice"],
        ["2", "key", "toplevel", "b", "alice"],
    ] {
        let [count, reason, context, object, user] = wanted;
        let entry =
            format!("count :{count} reason {reason} context {context} object {object} username {user} age-seconds");
        assert!(text.contains(&entry), "{entry} in {text}");
    }
    assert!(client.call(&["ACL", "LOG", "1"]).starts_with(b"*1\r\n"));
    client.expect(&["ACL", "LOG", "RESET"], b"+OK\r\n");
    client.expect(&["ACL", "LOG"], b"*0\r\n");
}

/// The words of a reply, lengths left out.
fn shown_all(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply).into_owned();
    let words: Vec<&str> = text.split("\r\n").filter(|line| !line.starts_with(['$', '*', '%'])).collect();
    words.join(" ")
}

#[test]
fn connections_and_requests_of_a_user_are_limited() {
    let server = Server::start(Kind::Redis);
    let users = [
        ("default", "on nopass ~* &* +@all", ""),
        ("alice", "on nopass ~* &* +@all", "connections_max = 2"),
        ("bob", "on nopass ~* &* +@all", "requests_per_second = 20"),
    ];
    let gateway = Gateway::start(Config::to(&server.address).workers(2).listener(&tables(&users)));
    let first = logged_in(&gateway, "alice", "x");
    let mut second = logged_in(&gateway, "alice", "x");
    second.expect(&["AUTH", "alice", "x"], b"+OK\r\n");
    let mut third = gateway.connect();
    third.expect(&["AUTH", "alice", "x"], b"-ERR weir: too many connections of this user\r\n");
    third.expect(&["GET", "k"], b"$-1\r\n");
    drop(first);
    deadline::until_true("room for another connection", || third.call(&["AUTH", "alice", "x"]) == b"+OK\r\n");
    let mut bobs = [logged_in(&gateway, "bob", "x"), logged_in(&gateway, "bob", "x"), logged_in(&gateway, "bob", "x")];
    let started = Instant::now();
    let (mut passed, mut refused) = (0, 0);
    // More than the burst, however fast the machine is.
    while passed < 30 || refused == 0 {
        assert!(started.elapsed() < deadline::WAIT, "{passed} passed, {refused} refused");
        for bob in &mut bobs {
            match bob.call(&["GET", "k"]).as_slice() {
                b"$-1\r\n" => passed += 1,
                reply => {
                    refused += 1;
                    assert_eq!(shown(reply), shown(b"-ERR weir: too many requests per second of this user\r\n"));
                }
            }
        }
    }
    let most = started.elapsed().as_secs_f64() * 20.0 + 3.0;
    assert!(f64::from(passed) <= most, "{passed} of at most {most}");
    gateway.wait_metric("weir_redis_acl_denied_total", &[("user", "bob"), ("reason", "rate")], 1.0);
    gateway.wait_metric("weir_redis_acl_denied_total", &[("user", "alice"), ("reason", "connections")], 1.0);
    // Others are not slowed, and what a user may not send ends no transaction by halves.
    third.expect(&["GET", "k"], b"$-1\r\n");
}

#[test]
fn a_new_connection_does_not_make_guessing_cheaper() {
    let server = Server::start(Kind::Redis);
    let lines = "redis.auth_failure_delay = \"100ms\"\nredis.auth_failure_delay_max = \"400ms\"\n".to_owned()
        + &tables(&[("alice", "on >secret ~* &* +@all", "")]);
    let gateway = Gateway::start(Config::to(&server.address).listener(&lines));
    let started = Instant::now();
    for _ in 0..4 {
        gateway.connect().expect(&["AUTH", "alice", "guess"], WRONG);
    }
    // The second waits for the first, the third for the second, and so on: 100 + 200 + 400 ms.
    assert!(started.elapsed() >= Duration::from_millis(690), "{:?}", started.elapsed());
    // The right password waits once, and not longer than the longest wait.
    let started = Instant::now();
    logged_in(&gateway, "alice", "secret").expect(&["PING"], b"+PONG\r\n");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_users_own_login_at_the_server_is_nobody_elses_and_fails_closed() {
    for kind in Kind::ALL {
        let options = Options {
            password: Some("servers".to_owned()),
            user: Some(("theirs".to_owned(), "right".to_owned())),
            ..Options::default()
        };
        let server = Server::start_with(kind, options);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let right = secret_file(folder.path(), "right", "right");
        let wrong = secret_file(folder.path(), "wrong", "wrong");
        let own = |file: &str| format!("upstream_user = \"theirs\"\nupstream_password = {{ file = \"{file}\" }}");
        let (good, bad) = (own(&right), own(&wrong));
        let users = [
            ("default", "on nopass ~* &* +@all", ""),
            ("alice", "on nopass ~* &* +@all", good.as_str()),
            ("bob", "on nopass ~* &* +@all", bad.as_str()),
        ];
        let config = Config::to(&server.address)
            .listener(&tables(&users))
            .upstream("breaker.failures = 1")
            .upstream_password(folder.path(), None, "servers");
        let gateway = Gateway::start(config);
        // The permissions of this user at the server show which user the server takes a client for.
        server.connect().expect(&["ACL", "SETUSER", "theirs", "resetkeys", "~theirs:*"], b"+OK\r\n");
        server.connect().expect(&["ACL", "SETUSER", "theirs", "resetchannels", "&theirs:*"], b"+OK\r\n");
        let is_theirs = |client: &mut Client| {
            assert_eq!(client.call(&["EXISTS", "theirs:k"]), b":0\r\n");
            client.call(&["EXISTS", "k"]).starts_with(b"-NOPERM")
        };
        let mut alice = gateway.connect();
        let greeting = alice.call(&["HELLO", "3", "AUTH", "alice", "x"]);
        assert!(greeting.starts_with(b"%7\r\n"), "{}", shown(&greeting));
        let mut other = gateway.connect();
        let mut bob = logged_in(&gateway, "bob", "x");
        for _ in 0..3 {
            assert!(is_theirs(&mut alice) && !is_theirs(&mut other));
            let reply = bob.call(&["GET", "k"]);
            assert!(reply.starts_with(b"-ERR weir: upstream refused"), "{}", shown(&reply));
        }
        // A channel with subscribers already still needs the server's permission.
        assert!(other.call(&["SUBSCRIBE", "news"]).ends_with(b":1\r\n"));
        let reply = alice.call(&["SUBSCRIBE", "news"]);
        assert!(reply.starts_with(b"-NOPERM"), "{}", shown(&reply));
        assert!(alice.call(&["SUBSCRIBE", "theirs:news"]).ends_with(b":1\r\n"));
        let reply = alice.call(&["AUTH", "default", "x"]);
        assert!(reply.starts_with(b"-ERR weir: AUTH cannot change the user"), "{}", shown(&reply));
        assert!(alice.call(&["UNSUBSCRIBE"]).ends_with(b":0\r\n"));
        assert!(other.call(&["UNSUBSCRIBE"]).ends_with(b":0\r\n"));
        // Lanes of their own too.
        alice.expect(&["WATCH", "theirs:k"], b"+OK\r\n");
        assert!(is_theirs(&mut alice));
        let reply = alice.call(&["AUTH", "default", "x"]);
        assert!(reply.starts_with(b"-ERR weir: AUTH cannot change the user"), "{}", shown(&reply));
        alice.expect(&["UNWATCH"], b"+OK\r\n");
        alice.expect(&["AUTH", "default", "x"], b"+OK\r\n");
        assert!(!is_theirs(&mut alice));
    }
}

#[test]
fn users_without_restrictions_pipeline_as_before() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, &[("default", "on nopass ~* &* +@all", "")]);
    let mut client = gateway.connect();
    let one = encode(&["INCR", "n"]);
    client.send(&one.repeat(2_000));
    for number in 1..=2_000 {
        assert_eq!(client.reply(), format!(":{number}\r\n").into_bytes());
    }
    client.send(b"ACL CAT hyperloglog\r\n");
    assert!(client.reply().starts_with(b"*"));
    assert_eq!(server.calls("acl|cat"), 0, "answered here");
}
