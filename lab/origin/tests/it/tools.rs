//! The real server and its tools. `cargo xtask setup` installs them.

use std::{
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{Client, fixed, memory};
use weir_origin::redis::Origin;

/// A real redis-server that keeps nothing, ended on drop.
struct Server(Child, SocketAddr);

impl Server {
    fn start() -> Self {
        // Between being found and being bound a port may become another's.
        (0..10).find_map(|_| Self::try_start()).expect("redis-server ended ten times; has it a port?")
    }

    /// `None` if it ended.
    fn try_start() -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let port = address.port().to_string();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server of the PATH: run `cargo xtask setup`");
        let mut server = Self(child, address);
        let begun = Instant::now();
        while !is_listening(address) {
            if server.0.try_wait().expect("a child").is_some() {
                return None;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        server.0.try_wait().expect("a child").is_none().then_some(server)
    }
}

/// A client that the kernel gives this very port reaches itself.
fn is_listening(address: SocketAddr) -> bool {
    let reached = std::net::TcpStream::connect(address);
    reached.is_ok_and(|stream| stream.local_addr().is_ok_and(|own| own != address))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything whose reply is the same on every server, in an order in which each command meets keys of each type.
const SCRIPT: &str = "
    PING|PING x|PING x y|ECHO a|ECHO|ECHO a b|SELECT 1|SELECT 16|SELECT -1|SELECT x|SELECT 0|NOSUCH a b|nosuch
    CLIENT NOPE|CLIENT|CLIENT GETNAME|CLIENT GETNAME x|CLIENT SETNAME me|CLIENT GETNAME|AUTH x|AUTH default x|AUTH a b
    AUTH a b c|AUTH|CONFIG GET save|CONFIG NOPE|CONFIG|CONFIG GET|COMMAND NOPE|COMMAND COUNT x
    SET s v|GET s|GET s x|SET s v NX|SET s w XX|SET t w XX|SET s x GET|SET t x NX GET|SET t x NX GET|SET s v FOO
    SET s v EX|SET s v EX 0|SET s v EX x|SET s v PX -1|SET s v EX 10 PX 10|SET s v NX XX|SET s v EX 10 KEEPTTL
    SET s v EX 9223372036854775807|SET s v EX 100|TTL s|SET s w KEEPTTL|TTL s|SET s w|TTL s|PTTL s|PTTL none|TTL none
    GETSET s n|GETSET none n|GETDEL none|GETDEL none|MSET a 1 b 2|MSET a 1 b|MSET|MGET a b none|MGET|MGET l a
    DEL a|UNLINK b|DEL a b|DEL|EXISTS s s none|TOUCH s none|TYPE s|TYPE none|APPEND s tail|STRLEN s|STRLEN none|GET s
    INCR n|INCR n|DECR n|INCRBY n 41|DECRBY n 2|INCRBY n x|INCRBY n 9223372036854775807|DECRBY n -9223372036854775808
    INCR s|INCR n x|SET n 010|INCR n|SET n 1|INCR n|GET n|EXPIRE n 100|TTL n|INCR n|TTL n|PERSIST n|PERSIST n|TTL n
    EXPIRE n 100 NX|EXPIRE n 50 NX|EXPIRE n 50 GT|EXPIRE n 200 GT|EXPIRE n 300 LT|EXPIRE n 20 LT|EXPIRE none 1|TTL n
    EXPIRE n 1 NX XX|EXPIRE n 1 GT LT|EXPIRE n 1 FOO|EXPIRE n x|EXPIRE n 9223372036854775807|EXPIRE n -1|EXISTS n
    PEXPIRE s 100000|TTL s|PEXPIRE s 9223372036854775807|PEXPIRE s -9223372036854775808|EXISTS s|EXPIRE n|SET s v
    RPUSH l a b c|LPUSH l z|LLEN l|LLEN none|LRANGE l 0 -1|LRANGE l 1 2|LRANGE l -2 -1|LRANGE l 5 9|LRANGE none 0 1
    LRANGE l x 1|LRANGE l 0|LPOP l|RPOP l|LPOP l 0|LPOP l 5|LPOP l|LPOP l 1|LPOP none 0|LPOP l -1|LPOP l x|LPOP l 1 2
    RPUSH l a b c|RPOP l 2|EXISTS l|GET l|INCR l|APPEND l x|RPUSH s x|LLEN s|LRANGE s 0 1|LPOP s|STRLEN l|GETSET l x
    SET l x GET|TYPE l|HSET h f v g w|HSET h f u|HSET h f|HSET h|HGET h f|HGET h none|HGET none f|HMGET h f none g
    HMGET none a b|HLEN h|HLEN none|HDEL h g x|HGETALL h|HGETALL none|HSET s f v|HGET s f|HMGET s f|HDEL s f|HLEN s
    HGETALL s|TYPE h|HDEL h f|EXISTS h|HDEL none f|SADD x m|SADD x m|SADD x|SISMEMBER x m|SISMEMBER x n|SCARD x
    SCARD none|SMEMBERS x|SMEMBERS none|SADD s m|SREM s m|SISMEMBER s m|SCARD s|SMEMBERS s|TYPE x|SREM x m n|EXISTS x
    SREM none m|SISMEMBER none m|LPUSH x|KEYS s|KEYS nothing*|KEYS|DBSIZE x|SCAN x|SCAN 0 COUNT 0|SCAN 0 COUNT x
    SCAN 0 FOO|SCAN 0 MATCH|SCAN 0 FOO BAR|SCAN 0 MATCH nothing*|SCAN 0 MATCH s COUNT 100|SCAN 0 TYPE hash COUNT 100
    MULTI|MULTI|SET m 1|INCR m|GET|EXEC|MULTI|SET m 1|INCR m|LPUSH m x|GET m|EXEC|EXEC|DISCARD|MULTI|SET m 9|DISCARD
    GET m|MULTI|WATCH m|EXEC|WATCH m|SET m 2|MULTI|GET m|EXEC|WATCH m|UNWATCH|SET m 3|MULTI|GET m|EXEC|WATCH|UNWATCH x
    MULTI|PING|SELECT 1|SET other 1|EXEC|GET other|SELECT 0|GET other|MULTI|NOSUCH|SET m 7|EXEC|GET m
    PUBLISH c m|PUBLISH c|UNSUBSCRIBE|SUBSCRIBE|SUBSCRIBE c|PING|PING x|GET m|UNSUBSCRIBE c|GET m
    FLUSHDB FOO|FLUSHDB|DBSIZE|SELECT 1|DBSIZE|FLUSHALL ASYNC|DBSIZE|HELLO x|HELLO 9|HELLO 3 FOO
    HELLO 2 SETNAME a b|HELLO 3 AUTH a b|RESET x|RESET|CLIENT GETNAME";

fn compare(version: &str) {
    let (server, origin) = (Server::start(), memory());
    let mut real = Client::connect(server.1);
    let mut ours = Client::to(&origin);
    for client in [&mut real, &mut ours] {
        client.ask(&format!("HELLO {version}"));
    }
    let mut compared = 0;
    for command in SCRIPT.split(['|', '\n']).map(str::trim).filter(|command| !command.is_empty()) {
        let replies = [&mut real, &mut ours].map(|client| client.ask(command));
        assert_eq!(replies[0], replies[1], "{command} (redis-server left, origin right)");
        compared += 1;
        if command == "RESET" {
            for client in [&mut real, &mut ours] {
                client.ask(&format!("HELLO {version}"));
            }
        }
    }
    assert!(compared > 280, "{compared}");
}

#[test]
fn every_reply_is_the_one_of_a_real_server_in_resp2() {
    compare("2");
}

#[test]
fn every_reply_is_the_one_of_a_real_server_in_resp3() {
    compare("3");
}

fn run(program: &str, origin: &Origin, args: &[&str]) -> String {
    let port = origin.addresses()[0].port().to_string();
    let output = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &port])
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program} of the PATH ({error}): run `cargo xtask setup`"));
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{program} {args:?}: {text}");
    text
}

#[test]
fn redis_cli_talks_both_versions() {
    let origin = memory();
    assert_eq!(run("redis-cli", &origin, &["SET", "k", "v"]), "OK\n");
    assert_eq!(run("redis-cli", &origin, &["-3", "GET", "k"]), "v\n");
    assert_eq!(run("redis-cli", &origin, &["--scan", "--pattern", "k*"]), "k\n");
    assert!(run("redis-cli", &origin, &["INFO", "server"]).contains("server_name:weir-origin"));
}

#[test]
fn redis_benchmark_runs_clean_against_both_modes() {
    for origin in [memory(), fixed(3, 1)] {
        let report = run("redis-benchmark", &origin, &["-t", "get,set,incr", "-n", "100000", "-P", "16", "-q"]);
        for test in ["SET", "GET", "INCR"] {
            assert!(report.contains(&format!("{test}: ")), "{report}");
        }
        let lower = report.to_lowercase();
        assert!(!lower.contains("error") && !lower.contains("warning"), "{report}");
        assert!(origin.stats().requests >= 300_000, "{:?}", origin.stats());
    }
}
