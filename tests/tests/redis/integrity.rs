//! No reply goes to the wrong client: many clients with churn, timeouts, blocking commands,
//! transactions and kills; every value carries its key and generation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_base::rng::Rng;
use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::seed::seeded;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::{Address, Stream};
use weir_tests::wire::{encode, shown};

const CLIENTS: u64 = 48;
const LASTS: Duration = Duration::from_secs(8);

/// The results of all clients together.
#[derive(Default)]
struct ClientTotals {
    completed: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
}

/// A value that tells whose it is.
fn marked(client: u64, generation: u64, rng: &mut Rng) -> String {
    let filler = "x".repeat(match rng.below(20) {
        0 => 100_000,
        1..=4 => 5_000,
        _ => rng.below(60) as usize,
    });
    format!("client={client};generation={generation};{filler}")
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// A reply is right, or it is an error of the gateway (the server was killed); anything else is a
/// reply of somebody else.
fn judge(what: &str, came: &[u8], wanted: &[u8], seen: &ClientTotals) {
    if came == wanted {
        seen.completed.fetch_add(1, Ordering::Relaxed);
    } else if came.starts_with(b"-ERR weir: ") || came.windows(12).any(|part| part == b"\n-ERR weir: ") {
        seen.refused.fetch_add(1, Ordering::Relaxed);
    } else {
        panic!("{what}: came {}, wanted {}", shown(came), shown(wanted));
    }
}

/// One client: opens, works, leaves in one of several manners, and comes again.
fn life(address: &Address, id: u64, mut rng: Rng, stop: &AtomicBool, seen: &ClientTotals) {
    let mut generation = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(stream) = Stream::connect(address) else {
            continue;
        };
        let mut client = Client::over(stream);
        for _ in 0..1 + rng.below(40) {
            generation += 1;
            let value = marked(id, generation, &mut rng);
            if !exchange(&mut client, id, &value, &mut rng, seen) {
                break;
            }
        }
        leave(client, &mut rng);
        seen.left.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends one group of commands in one write and checks every reply. False: the connection is gone.
fn exchange(client: &mut Client, id: u64, value: &str, rng: &mut Rng, seen: &ClientTotals) -> bool {
    let key = format!("key-{id}");
    let echo = bulk(value);
    let twin = format!("twin-{id}");
    let group: Vec<(Vec<u8>, Vec<u8>)> = match rng.below(7) {
        0 => vec![(encode(&["ECHO", value]), echo)],
        1 => vec![
            (encode(&["MULTI"]), b"+OK\r\n".to_vec()),
            (encode(&["SET", &key, value]), b"+QUEUED\r\n".to_vec()),
            (encode(&["GET", &key]), b"+QUEUED\r\n".to_vec()),
            (encode(&["EXEC"]), [b"*2\r\n+OK\r\n", echo.as_slice()].concat()),
        ],
        6 => vec![
            (encode(&["MSET", &key, value, &twin, value]), b"+OK\r\n".to_vec()),
            (encode(&["MGET", &twin, &key]), [b"*2\r\n", echo.as_slice(), &echo].concat()),
            (encode(&["EXISTS", &twin, &key]), b":2\r\n".to_vec()),
        ],
        2 => vec![(encode(&["EVAL", "return ARGV[1]", "0", value]), echo)],
        3 => {
            let list = format!("list-{id}-{}", rng.next_u64());
            let popped = [format!("*2\r\n${}\r\n{list}\r\n", list.len()).as_bytes(), &echo].concat();
            vec![(encode(&["RPUSH", &list, value]), b":1\r\n".to_vec()), (encode(&["BLPOP", &list, "5"]), popped)]
        }
        _ => vec![(encode(&["SET", &key, value]), b"+OK\r\n".to_vec()), (encode(&["GET", &key]), echo)],
    };
    let bytes: Vec<u8> = group.iter().flat_map(|(sent, _)| sent.clone()).collect();
    if client.try_send(&bytes).is_err() {
        return false;
    }
    let mut failed = false;
    for (sent, wanted) in &group {
        let Ok(came) = client.try_reply(Duration::from_secs(20)) else {
            return false;
        };
        // Behind a refusal the rest of a group may differ; it must still not be foreign.
        failed |= came.starts_with(b"-");
        if failed && !came.starts_with(b"-") {
            let text = String::from_utf8_lossy(&came);
            let foreign = text.contains("client=") && !text.contains(&format!("client={id};"));
            assert!(!foreign, "{}: a foreign reply {}", shown(sent), shown(&came));
            continue;
        }
        if came.starts_with(b"-EXECABORT") {
            seen.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        judge(&shown(sent), &came, wanted, seen);
    }
    true
}

/// In order, without reading, in the middle of a command, or blocked.
fn leave(mut client: Client, rng: &mut Rng) {
    let _ = match rng.below(5) {
        0 => client.try_send(&encode(&["GET", "nobody-reads-this"]).repeat(20)),
        1 => client.try_send(b"*2\r\n$4\r\nECHO\r\n$1000\r\nhalf"),
        2 => client.try_send(&encode(&["BLPOP", "nobody-pushes", "0"])),
        3 => client.try_send(&encode(&["QUIT"])),
        _ => Ok(()),
    };
}

fn churn(shards: usize, kills: bool) {
    let mut servers: Vec<Server> = (0..shards).map(|_| Server::start(Kind::Redis)).collect();
    let config = Config::to_all(servers.iter().map(|server| &server.address))
        .workers(2)
        .upstream("request_timeout = \"2s\"\n[upstream.sharding]\ndistribution = \"ketama\"")
        .upstream("[upstream.health]\ninterval = \"100ms\"\ntimeout = \"100ms\"");
    let gateway = Gateway::start(config);
    let mut rng = seeded();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(ClientTotals::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let (address, stop, seen) = (gateway.address.clone(), Arc::clone(&stop), Arc::clone(&seen));
            let rng = rng.fork();
            std::thread::spawn(move || life(&address, id, rng, &stop, &seen))
        })
        .collect();
    let started = Instant::now();
    while started.elapsed() < LASTS {
        // The pace of the disturbance, not a wait for a condition.
        std::thread::sleep(Duration::from_millis(700));
        if kills {
            let one = rng.below(servers.len() as u64) as usize;
            servers[one].restart();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no client saw a foreign reply");
    }
    let (completed, refused, left) = (
        seen.completed.load(Ordering::Relaxed),
        seen.refused.load(Ordering::Relaxed),
        seen.left.load(Ordering::Relaxed),
    );
    eprintln!("integrity: {completed} right, {refused} refused, {left} sessions");
    assert!(completed > 1_000, "only {completed} replies were checked");
    assert!(left > CLIENTS, "only {left} sessions ended");
    if !kills {
        assert_eq!(refused, 0, "nothing may be refused while the server is well");
    }
}

#[test]
fn churn_mixes_no_replies() {
    churn(1, false);
}

#[test]
fn churn_over_three_shards_mixes_no_replies() {
    churn(3, false);
}

#[test]
fn churn_while_one_of_three_shards_is_killed_mixes_no_replies() {
    churn(3, true);
}

#[test]
fn churn_while_the_server_is_killed_mixes_no_replies() {
    churn(1, true);
}
