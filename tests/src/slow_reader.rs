//! A client that reads its reply at a pace of its own, and what others wait beside it.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::stream::{Address, Stream};
use crate::wire::encode;

/// Between two reads of a paced client.
const TICK: Duration = Duration::from_millis(5);
/// A request of a victim that takes longer counts as this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that has sent one request and reads the reply slowly.
pub struct PacedReader {
    stop: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PacedReader {
    /// Sends `request` on `client`, then reads `bytes_per_second` until the connection ends or the reader is dropped; 0: nothing.
    pub fn start(mut client: Client, request: &[u8], bytes_per_second: u64) -> Self {
        client.send(request);
        let (stop, read, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::default());
        let (stops, counts, ends) = (stop.clone(), read.clone(), Arc::<AtomicBool>::clone(&is_over));
        let thread = std::thread::spawn(move || {
            pace(client.stream(), bytes_per_second, &stops, &counts);
            ends.store(true, Ordering::Relaxed);
        });
        Self { stop, read, is_over, thread: Some(thread) }
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The connection was ended by the other side.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for PacedReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pace(stream: &mut Stream, bytes_per_second: u64, stop: &AtomicBool, count: &AtomicU64) {
    let started = Instant::now();
    let mut chunk = vec![0; 256 * 1024];
    stream.set_read_timeout(TICK).expect("a read timeout can be set");
    while !stop.load(Ordering::Relaxed) {
        let due = (started.elapsed().as_secs_f64() * bytes_per_second as f64) as u64;
        let behind = due.saturating_sub(count.load(Ordering::Relaxed)).min(chunk.len() as u64) as usize;
        if behind == 0 {
            // The pace of the client.
            std::thread::sleep(TICK);
            continue;
        }
        match stream.read(&mut chunk[..behind]) {
            Ok(0) => return,
            Ok(length) => {
                count.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

/// Waits of small requests of several clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// The longest.
    pub worst: Duration,
    /// Replies.
    pub replies: u64,
}

/// GETs of a key that does not exist, one after the other on each of `clients` connections, until `is_enough` says so.
///
/// # Panics
/// If one gets no reply, or a wrong one.
pub fn waits_beside(address: &Address, clients: usize, is_enough: impl Fn() -> bool + Sync) -> Waits {
    let request = encode(&["GET", "no-such-key"]);
    let flow = || {
        let mut client = Client::connect(address);
        let mut waits = Waits::default();
        while !is_enough() {
            let sent = Instant::now();
            client.send(&request);
            let reply = client.try_reply(PATIENCE).unwrap_or_else(|end| panic!("a victim got no reply: {end:?}"));
            assert_eq!(reply, b"$-1\r\n");
            waits = Waits { worst: waits.worst.max(sent.elapsed()), replies: waits.replies + 1 };
        }
        waits
    };
    std::thread::scope(|scope| {
        let flows: Vec<_> = (0..clients).map(|_| scope.spawn(flow)).collect();
        let all = flows.into_iter().map(|flow| flow.join().expect("a victim ends in order"));
        all.fold(Waits::default(), |sum, one| Waits {
            worst: sum.worst.max(one.worst),
            replies: sum.replies + one.replies,
        })
    })
}

/// The commands that have large replies.
pub const KINDS: [&str; 5] = ["GET", "LRANGE", "MGET", "MULTI", "EVAL"];

/// Puts values at `server` of which [`request`] makes replies of `mebibytes`.
pub fn prepare(server: &mut Client, mebibytes: usize) {
    server.expect(&["FLUSHALL", "ASYNC"], b"+OK\r\n");
    // One script for all of them would keep the server from answering for longer than a client waits.
    let script = "local part = string.rep('x', 1048576) \
        redis.call('RPUSH', 'list', part) redis.call('SET', 'part:' .. ARGV[1], part) \
        redis.call('APPEND', 'large', part) return 1";
    for number in 1..=mebibytes {
        server.expect(&["EVAL", script, "0", &number.to_string()], b":1\r\n");
    }
}

/// A request of that kind.
pub fn request(kind: &str, mebibytes: usize) -> Vec<u8> {
    match kind {
        "LRANGE" => encode(&["LRANGE", "list", "0", "-1"]),
        "MGET" => {
            let parts = (1..=mebibytes).map(|number| format!("part:{number}"));
            encode(&std::iter::once("MGET".to_owned()).chain(parts).collect::<Vec<_>>())
        }
        "MULTI" => [encode(&["MULTI"]), encode(&["GET", "large"]), encode(&["EXEC"])].concat(),
        "EVAL" => encode(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "large"]),
        _ => encode(&["GET", "large"]),
    }
}
