//! The keys that analysis finds in a command are those that real servers find: routing, users and tracking rest on them. Every
//! command of the table, with optional parts absent, empty, repeated and in unusual case.

use std::collections::BTreeSet;

use weir_analysis::redis::{Access, COMMANDS, Class, Command, KeyError, KeyFlags, Keys, check_arity, keys};
use weir_base::rng::Rng;
use weir_tests::client::Client;
use weir_tests::seed::seeded;
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{bulk_array, encode, reply_length, shown};

/// Random lines of each command, besides those that are made by rule.
const RANDOM_LINES: usize = 30;

/// Words that replace an argument, in turn.
const WORDS: &[&str] = &[
    "",
    "0",
    "1",
    "2",
    "-1",
    "01",
    "STREAMS",
    "StReAmS",
    "STREAMS\0x",
    "BLOCK",
    "COUNT",
    "GROUP",
    "STORE",
    "store",
    "STOREDIST",
    "KEYS",
    "keys",
    "AUTH",
    "AUTH2",
    "GET",
    "get",
    "BY",
    "LIMIT",
    "OVERFLOW",
];

/// Keys of each type, made before every line that runs, and two that are not there.
const HELD: &[&str] = &["string", "list", "set", "zset", "hash", "stream"];
const ABSENT: &[&str] = &["new:1", "new:2"];
const REFILL: &str = "redis.call('FLUSHALL') redis.call('SET', 'string', '1') redis.call('RPUSH', 'list', '1', '2') \
     redis.call('SADD', 'set', '1', '2') redis.call('ZADD', 'zset', '1', '1', '2', '2') \
     redis.call('HSET', 'hash', '1', '1') redis.call('XADD', 'stream', '1-1', 'f', 'v')";

type Line = Vec<String>;

fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Redis => "redis-7.0",
        Kind::Valkey => "valkey-9.1",
    }
}

/// The commands that this server knows, subcommands instead of their containers.
fn commands(kind: Kind) -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(move |command| !command.container && command.known_to().any(|known| known == label(kind)))
}

fn name(command: &Command) -> Line {
    command.name.split('|').map(str::to_owned).collect()
}

fn sizes(command: &Command, most: usize) -> std::ops::RangeInclusive<usize> {
    let least = usize::from(command.arity.unsigned_abs());
    least..=if command.arity < 0 { least + most } else { least }
}

/// Lines of a command: keys everywhere, one argument after the other replaced by each word, and random ones.
fn lines(command: &Command, rng: &mut Rng) -> Vec<Line> {
    let mut lines = Vec::new();
    let plain = |size: usize| -> Line {
        let name = name(command);
        let rest = (name.len()..size).map(|index| format!("k{index}"));
        name.iter().cloned().chain(rest).collect()
    };
    for size in sizes(command, 2) {
        let plain = plain(size);
        for at in name(command).len()..size {
            lines.extend(WORDS.iter().map(|word| {
                let mut line = plain.clone();
                line[at] = (*word).to_owned();
                line
            }));
        }
        lines.push(plain);
    }
    for _ in 0..RANDOM_LINES {
        let least = *sizes(command, 0).start();
        let size = if command.arity < 0 { least + rng.below(7) as usize } else { least };
        let mut line = plain(size);
        for word in line.iter_mut().skip(name(command).len()) {
            if rng.below(2) == 0 {
                *word = WORDS[rng.below(WORDS.len() as u64) as usize].to_owned();
            }
        }
        lines.push(line);
    }
    lines
}

/// A key, and what is done with it.
type KeyUse = (Vec<u8>, BTreeSet<String>);

const FLAGS: [(KeyFlags, &str); 8] = [
    (KeyFlags::RO, "RO"),
    (KeyFlags::RW, "RW"),
    (KeyFlags::OW, "OW"),
    (KeyFlags::RM, "RM"),
    (KeyFlags::ACCESS, "access"),
    (KeyFlags::UPDATE, "update"),
    (KeyFlags::INSERT, "insert"),
    (KeyFlags::DELETE, "delete"),
];

fn of_analysis(command: &Command, line: &Line) -> Result<Vec<KeyUse>, KeyError> {
    let mut out = Keys::new();
    keys(command, line, &mut out)?;
    let real = out.iter().filter(|key| !key.flags.contains(KeyFlags::NOT_KEY));
    let found = real.map(|key| {
        let flags = FLAGS.iter().filter(|(flag, _)| key.flags.contains(*flag)).map(|(_, name)| (*name).to_owned());
        (line[key.index].clone().into_bytes(), flags.collect())
    });
    Ok(found.collect())
}

/// The reply to COMMAND GETKEYSANDFLAGS; `None`: it finds no keys.
fn of_server(reply: &[u8]) -> Option<Vec<KeyUse>> {
    if reply.starts_with(b"-") {
        return None;
    }
    let mut found: Vec<KeyUse> = Vec::new();
    let mut at = 0;
    while at < reply.len() {
        let end = at + reply[at..].iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        let line = &reply[at + 1..end - 2];
        at = end;
        match reply[at - line.len() - 3] {
            b'$' => {
                let length: usize = std::str::from_utf8(line).expect("a length").parse().expect("a length");
                found.push((reply[at..at + length].to_vec(), BTreeSet::new()));
                at += length + 2;
            }
            b'+' => {
                let flag = String::from_utf8_lossy(line).into_owned();
                if FLAGS.iter().any(|(_, name)| *name == flag) {
                    found.last_mut().expect("a key stands first").1.insert(flag);
                }
            }
            _ => {}
        }
    }
    Some(found)
}

/// Where COMMAND GETKEYSANDFLAGS does not say what the server does when it runs the command.
fn getkeys_is_wrong(kind: Kind, command: &Command, line: &Line) -> bool {
    match command.name {
        // It finds no key of a destination alone, and runs the command on it.
        "pfmerge" => line.len() == 2,
        // It takes STREAMS for the keyword wherever it stands, and keys without IDs.
        "xread" | "xreadgroup" => true,
        // Redis 7.0 names the first STORE, writes the last, and overlooks that the destination of SINTERSTORE is overwritten.
        name if name.starts_with("georadius") => true,
        // It takes a destination that is called STORE for the keyword once more.
        "sort" => line.windows(2).any(|two| two.iter().all(|word| word.eq_ignore_ascii_case("STORE"))),
        "sinterstore" => kind == Kind::Redis,
        // It does not look at the words behind KEYS; MIGRATE itself refuses none, and a key beside them.
        "migrate" => line.iter().skip(6).any(|word| word.eq_ignore_ascii_case("KEYS")),
        // It reads a count as atoi does; the commands themselves refuse this one.
        _ => of_analysis(command, line) == Err(KeyError::CountNotInteger) && line.iter().any(|word| word == "01"),
    }
}

#[test]
fn keys_and_their_access_are_those_of_the_server() {
    let mut rng = seeded();
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let mut direct = server.connect();
        let (mut compared, mut wrong) = (0, Vec::new());
        for command in commands(kind) {
            let lines = lines(command, &mut rng);
            let asked = |line: &Line| {
                let words = ["COMMAND", "GETKEYSANDFLAGS"].map(str::to_owned);
                encode(&words.iter().chain(line).collect::<Vec<_>>())
            };
            direct.send(&lines.iter().flat_map(asked).collect::<Vec<u8>>());
            for line in &lines {
                let reply = direct.reply();
                let is_arity =
                    reply.starts_with(b"-ERR Invalid number of arguments") || !check_arity(command, line.len());
                if is_arity || getkeys_is_wrong(kind, command, line) {
                    continue;
                }
                let (wanted, found) = (of_server(&reply), of_analysis(command, line));
                // In an unreadable line the server finds nothing: it will refuse it.
                let is_same = wanted.unwrap_or_default() == *found.as_deref().unwrap_or_default();
                if !is_same {
                    wrong.push(format!("{line:?}: {found:?}, not {}", shown(&reply)));
                }
                compared += 1;
            }
        }
        assert!(
            wrong.is_empty(),
            "{}: {} of {compared}:\n{}",
            kind.name(),
            wrong.len(),
            wrong[..wrong.len().min(40)].join("\n")
        );
        assert!(compared > 20_000, "{compared}");
    }
}

/// Lines of a command that writes, of keys that are there, those that are not, and words.
fn lines_to_run(command: &Command, rng: &mut Rng) -> Vec<Line> {
    let mut lines = Vec::new();
    let name = name(command);
    for size in sizes(command, 2) {
        for held in HELD {
            // A destination first, or the key itself; and a count before it.
            for head in [&["new:1"][..], &[], &["new:1", "1"], &["1"]] {
                let rest = head.iter().chain(std::iter::repeat(held)).take(size.saturating_sub(name.len()));
                lines.push(name.iter().cloned().chain(rest.map(|word| (*word).to_owned())).collect());
            }
        }
    }
    for _ in 0..RANDOM_LINES {
        let least = *sizes(command, 0).start();
        let size = if command.arity < 0 { least + rng.below(5) as usize } else { least };
        let word = |rng: &mut Rng| {
            let list = [HELD, ABSENT, WORDS][rng.below(3) as usize];
            list[rng.below(list.len() as u64) as usize].to_owned()
        };
        let rest: Line = (name.len()..size).map(|_| word(rng)).collect();
        lines.push([name.clone(), rest].concat());
    }
    lines
}

/// Runs a line between MULTI and EXEC, where nothing blocks: the reply to it, and the keys that are new then.
fn run(direct: &mut Client, line: &Line) -> (Vec<u8>, BTreeSet<Vec<u8>>) {
    let mut wire = encode(&["EVAL", REFILL, "0"]);
    wire.extend([encode(&["MULTI"]), encode(line), encode(&["EXEC"]), encode(&["KEYS", "*"])].concat());
    direct.send(&wire);
    let [_, _, _, reply, keys] = std::array::from_fn(|_| direct.reply());
    let element = if reply.starts_with(b"*1\r\n") { reply[4..].to_vec() } else { reply };
    assert_eq!(reply_length(&element), Some(element.len()), "{line:?}");
    let mut keys: BTreeSet<Vec<u8>> = bulk_array(&keys).into_iter().collect();
    keys.retain(|key| HELD.iter().all(|held| held.as_bytes() != key));
    (element, keys)
}

#[test]
fn written_keys_are_among_the_keys_of_a_command_and_the_server_refuses_unreadable_commands() {
    let mut rng = seeded();
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let mut direct = server.connect();
        let (mut done, mut refused, mut wrong) = (0, 0, Vec::new());
        let is_run = |command: &&Command| {
            let is_plain = matches!(command.class, Class::Shared | Class::Blocking);
            is_plain && !command.keys.is_empty() && (command.access == Access::Write || command.arity < 0)
        };
        for command in commands(kind).filter(is_run) {
            for line in lines_to_run(command, &mut rng).into_iter().filter(|line| check_arity(command, line.len())) {
                let (reply, new) = run(&mut direct, &line);
                let is_error = reply.starts_with(b"-");
                let mut found = Keys::new();
                let is_right = match keys(command, &line, &mut found) {
                    Ok(()) => {
                        let named: BTreeSet<&[u8]> = found.iter().map(|key| line[key.index].as_bytes()).collect();
                        done += u32::from(!is_error);
                        found.is_incomplete() || new.iter().all(|key| named.contains(&key[..]))
                    }
                    Err(_) => {
                        refused += 1;
                        is_error
                    }
                };
                if !is_right {
                    wrong.push(format!("{line:?}: {found:?}, but {} and {new:?}", shown(&reply)));
                }
            }
        }
        assert!(wrong.is_empty(), "{}: {}", kind.name(), wrong[..wrong.len().min(40)].join("\n"));
        assert!(done > 2_000 && refused > 200, "{done} done, {refused} refused");
    }
}
