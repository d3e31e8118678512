//! The same rules at a real server and at the listener decide alike: random users, random commands, texts compared.

use weir_analysis::redis::COMMANDS;
use weir_base::rng::Rng;
use weir_policy::redis::{CATEGORIES, User};
use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::seed::seeded;
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{bulk, encode, shown};

const USERS: usize = 60;
const COMMANDS_PER_USER: usize = 250;

fn pick<'a, T: ?Sized>(rng: &mut Rng, list: &'a [&'a T]) -> &'a T {
    list[rng.below(list.len() as u64) as usize]
}

/// A command that Redis 7.0 knows too.
fn command(rng: &mut Rng) -> &'static weir_analysis::redis::Command {
    loop {
        let command = &COMMANDS[rng.below(COMMANDS.len() as u64) as usize];
        if command.known_to().any(|server| server == "redis-7.0") {
            return command;
        }
    }
}

fn rule(rng: &mut Rng) -> String {
    let sign = if rng.below(3) == 0 { '-' } else { '+' };
    match rng.below(20) {
        0..=6 => format!("{sign}{}", command(rng).name),
        7..=9 => format!("{sign}@{}", CATEGORIES[rng.below(CATEGORIES.len() as u64) as usize].0),
        10 => pick(rng, &["+@all", "-@all", "allcommands", "nocommands"]).to_owned(),
        11..=15 => {
            let keys =
                &["~a*", "~a1", "%R~b*", "%W~b*", "%RW~c?", "%w~*", "%R~*", "~[a-b]2", "~*", "resetkeys", "~d\\*"];
            pick(rng, keys).to_owned()
        }
        16 | 17 => pick(rng, &["&news.*", "&ch", "&*", "resetchannels", "&n?ws.a"]).to_owned(),
        18 => pick(rng, &["+select|0", "+nope", "-nope|x", "+@nope", "%X~a", "nope", "+config|", "ALLKEYS"]).to_owned(),
        _ => {
            let inner: Vec<String> = (0..rng.below(4)).map(|_| rule(rng)).filter(|rule| !rule.contains('(')).collect();
            format!("({})", inner.join(" "))
        }
    }
}

fn argument(rng: &mut Rng) -> &'static str {
    const WORDS: &[&str] = &[
        "a1",
        "a2",
        "b1",
        "b2",
        "c1",
        "d*",
        "x",
        "news.a",
        "news.*",
        "ch",
        "0",
        "1",
        "2",
        "3",
        "-1",
        "STREAMS",
        "STORE",
        "STOREDIST",
        "GET",
        "get",
        "SET",
        "LIMIT",
        "BY",
        "KEYS",
        "COUNT",
        "BLOCK",
        "GROUP",
        "EX",
        "u8",
        "LEFT",
        "AUTH",
        "km",
        "",
    ];
    pick(rng, WORDS)
}

/// A command line with an arity that the command has.
fn line(rng: &mut Rng) -> (&'static str, Vec<String>) {
    let command = command(rng);
    let least = command.arity.unsigned_abs() as usize;
    let argc = if command.arity < 0 { least + rng.below(6) as usize } else { least };
    let mut words: Vec<String> = command.name.split('|').map(str::to_owned).collect();
    // Malformed ones the server reads otherwise when it judges than when it runs them: a value that spells STREAMS.
    let before_streams = match command.name {
        "xread" => &["COUNT", "1"][..],
        "xreadgroup" => &["GROUP", "g", "c", "NOACK"],
        _ => &[],
    };
    if !before_streams.is_empty() {
        let (one, two) = (argument(rng), argument(rng));
        words.extend(before_streams.iter().chain(&["STREAMS", one, two, "0", "0"]).map(|word| (*word).to_owned()));
        return (command.name, words);
    }
    while words.len() < argc {
        words.push(argument(rng).to_owned());
    }
    (command.name, words)
}

/// Decisions in which the gateway differs from the server, on purpose.
fn differs_on_purpose(name: &str) -> bool {
    let is_script = name.starts_with("eval") || name.starts_with("fcall");
    // Redis 7.0 takes the first STORE for the written one, though it writes the last; and it shows SINTERSTORE as one that
    // reads what it overwrites. Valkey 9 has both right. WAIT is in @blocking for one of them only.
    let is_mended = name.starts_with("georadius") || matches!(name, "sinterstore" | "wait");
    is_script || is_mended
}

/// Random users that the server accepts, made there. The gateway refuses in the same words what the server refuses.
fn random_users(rng: &mut Rng, direct: &mut Client) -> Vec<(String, String)> {
    let mut users = Vec::new();
    while users.len() < USERS {
        let name = format!("u{}", users.len());
        let rules: Vec<String> = (0..1 + rng.below(9)).map(|_| rule(rng)).collect();
        let base = pick(rng, &["resetchannels", "+@all", "+@all -@dangerous", "+@all ~a* ~b*", "+@read +@write %R~*"]);
        let text = format!("on nopass {base} {}", rules.join(" "));
        direct.call(&["ACL", "DELUSER", &name]);
        let mut words = vec!["ACL", "SETUSER", &name];
        words.extend(text.split(' '));
        let reply = direct.call(&words);
        match User::from_rules(&name, &text) {
            Ok(_) => {
                assert_eq!(reply, b"+OK\r\n", "{text}");
                users.push((name, text));
            }
            Err(bad) => assert_eq!(shown(&reply), shown(format!("-ERR {bad}\r\n").as_bytes()), "{text}"),
        }
    }
    users
}

/// A gateway with these users in a file, in front of a server of its own.
fn gateway(server: &Server, folder: &std::path::Path, users: &[(String, String)]) -> Gateway {
    let mut text = "user default on nopass ~* &* +@all\n".to_owned();
    for (name, rules) in users {
        text += &format!("user {name} {rules}\n");
    }
    let file = secret_file(folder, "users.acl", &text);
    Gateway::start(Config::to(&server.address).listener(&format!("users_file = \"{file}\"")))
}

#[test]
fn rules_decide_as_the_server_does_and_are_refused_as_it_refuses_them() {
    let mut rng = seeded();
    let (reference, server) = (Server::start(Kind::Redis), Server::start(Kind::Redis));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut direct = reference.connect();
    let users = random_users(&mut rng, &mut direct);
    let gateway = gateway(&server, folder.path(), &users);
    let mut through = gateway.connect();
    let (mut allowed, mut denied) = (0, 0);
    for (name, rules) in &users {
        for field in [1, 3, 7, 9] {
            // flags, passwords, keys, channels; how commands are shown is the table's business.
            let value = |client: &mut Client| element(&client.call(&["ACL", "GETUSER", name]), field);
            assert_eq!(shown(&value(&mut through)), shown(&value(&mut direct)), "{rules}");
        }
        for _ in 0..COMMANDS_PER_USER {
            let (command, words) = line(&mut rng);
            // Redis finds no key in a PFMERGE of a destination alone, so everybody may have it; here the key counts.
            let is_destination_alone = command == "pfmerge" && words.len() == 2;
            if differs_on_purpose(command) || is_destination_alone {
                continue;
            }
            let mut dryrun = vec!["ACL".to_owned(), "DRYRUN".to_owned(), name.clone()];
            dryrun.extend(words.iter().cloned());
            let (wanted, came) = (direct.call(&dryrun), through.call(&dryrun));
            let is_malformed = came.starts_with(b"$") && bulk(&came) == b"The keys of this command cannot be found";
            // The server finds SORT's BY and GET only while it runs the command.
            let is_sort = bulk_of(&came).ends_with(b"that BY and GET name") && wanted == b"+OK\r\n";
            // The gateway takes what any of its servers takes.
            let is_lax = wanted.starts_with(b"-ERR wrong number of arguments");
            if !is_malformed && !is_sort && !is_lax {
                assert_eq!(shown(&came), shown(&wanted), "{words:?} by {rules}");
            }
            if wanted == b"+OK\r\n" { allowed += 1 } else { denied += 1 }
        }
    }
    assert!(allowed > 500 && denied > 500, "{allowed} allowed, {denied} denied: too one-sided to tell");
}

fn bulk_of(reply: &[u8]) -> Vec<u8> {
    if reply.starts_with(b"$") { bulk(reply) } else { Vec::new() }
}

/// Element number `index` of an array, as its bytes.
fn element(reply: &[u8], index: usize) -> Vec<u8> {
    let mut at = reply.iter().position(|byte| *byte == b'\n').expect("a head") + 1;
    for _ in 0..index {
        at += weir_tests::wire::reply_length(&reply[at..]).expect("an element");
    }
    let length = weir_tests::wire::reply_length(&reply[at..]).expect("an element");
    reply[at..at + length].to_vec()
}

/// Commands that may be run a thousand times over: they neither block nor leave the connection in another state.
const RUNNABLE: &[&str] = &[
    "GET a1",
    "GET b1",
    "get x",
    "SET a1 v",
    "SET b1 v",
    "SET b1 v GET",
    "SETEX c1 10 v",
    "MSET a1 v b1 v",
    "MGET a1 b1 x",
    "DEL a1 x",
    "EXISTS b1",
    "TOUCH a1",
    "INCR a2",
    "APPEND b2 v",
    "STRLEN b1",
    "GETRANGE c1 0 1",
    "COPY b1 a2",
    "RENAME x a1",
    "LPUSH c2 v",
    "LRANGE c2 0 1",
    "HSET d* f v",
    "HGET a1 f",
    "SADD b2 v",
    "SUNIONSTORE a1 b1 b2",
    "ZADD c1 1 v",
    "ZRANGESTORE a1 c1 0 1",
    "XADD a2 * f v",
    "XREAD COUNT 1 STREAMS a2 0",
    "XREAD STREAMS a1 b1 0 0",
    "ZUNION 2 a1 b1",
    "ZUNIONSTORE a1 2 b1 x",
    "BITFIELD b1 GET u8 0",
    "BITFIELD b1 SET u8 0 1",
    "BITOP AND a1 b1 b2",
    "PFMERGE a1 b1",
    "SORT c2",
    "SORT c2 STORE a1",
    "OBJECT ENCODING a1",
    "MEMORY USAGE b1",
    "TYPE a1",
    "TTL x",
    "PEXPIRE b1 100000",
    "PUBLISH news.a m",
    "PUBLISH x m",
    "SPUBLISH ch m",
    "PUBSUB CHANNELS",
    "DBSIZE",
    "RANDOMKEY",
    "SCAN 0",
    "KEYS a*",
    "TIME",
    "PING",
    "ECHO x",
    "SELECT 0",
    "SELECT 1",
    "CLIENT ID",
    "CLIENT GETNAME",
    "COMMAND COUNT",
    "INFO server",
    "LASTSAVE",
    "OBJECT FREQ x",
    "LCS a1 b1",
    "GETDEL b1",
    "WATCH a1",
    "UNWATCH",
    "ACL WHOAMI",
    "ACL USERS",
    "ACL CAT",
    "ACL GENPASS",
    "CONFIG GET maxmemory",
    "SLOWLOG LEN",
    "LATENCY LATEST",
];

#[test]
fn refusals_on_the_wire_are_those_of_the_server() {
    let mut rng = seeded();
    let (reference, server) = (Server::start(Kind::Redis), Server::start(Kind::Redis));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut users = random_users(&mut rng, &mut reference.connect());
    users.truncate(25);
    let gateway = gateway(&server, folder.path(), &users);
    let (mut denied, mut passed) = (0, 0);
    for (name, rules) in &users {
        let log_in = |mut client: Client| {
            client.expect(&["AUTH", name, "any"], b"+OK\r\n");
            client
        };
        let (mut direct, mut through) = (log_in(reference.connect()), log_in(gateway.connect()));
        for text in RUNNABLE {
            let mut text = (*text).to_owned();
            let words: Vec<&str> = text.split(' ').collect();
            // The gateway refuses these between MULTI and EXEC, for every user.
            let is_queued = rng.below(4) == 0 && !matches!(words[0], "WATCH" | "ACL" | "CLIENT");
            let mut bytes = if rng.below(3) == 0 {
                if rng.below(2) == 0 {
                    text.make_ascii_lowercase();
                }
                format!("{text}\r\n").into_bytes()
            } else {
                encode(&words)
            };
            if is_queued {
                bytes = [encode(&["MULTI"]), bytes, encode(&["EXEC"])].concat();
            }
            let ask = |client: &mut Client| {
                client.send(&bytes);
                let count = if is_queued { 3 } else { 1 };
                (0..count).map(|_| client.reply()).collect::<Vec<_>>()
            };
            let (wanted, came) = (ask(&mut direct), ask(&mut through));
            for (wanted, came) in wanted.iter().zip(&came) {
                let is_no = |reply: &[u8]| reply.starts_with(b"-NOPERM") || reply.starts_with(b"-EXECABORT");
                let is_same = if is_no(wanted) || is_no(came) { wanted == came } else { true };
                assert!(is_same, "{text} by {rules}: {}, not {}", shown(came), shown(wanted));
                if is_no(wanted) { denied += 1 } else { passed += 1 }
            }
        }
    }
    assert!(denied > 200 && passed > 200, "{denied} denied, {passed} passed: too one-sided to tell");
}
