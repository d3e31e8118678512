//! A1: more prompts than the byte budget has room for, all at a time. The gateway refuses what does not fit, with a time to come
//! back, its memory stays within the budget, and others are served meanwhile.
//!
//! 1,000 prompts of 1 MiB in the lanes; 20,000 with `WEIR_SOAK_SECONDS`, which need `ulimit -n 20000` or more.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_tests::ai::{AiOrigin, gateway_under};
use weir_tests::http::field;
use weir_tests::soak;
use weir_tests::stream::Address;

use crate::isolation::victim;
use crate::through::chat;

/// The byte budget of the gateway. Bodies take at most half of it.
const BUDGET: u64 = 256 << 20;

/// Beside the budget: the buffers of connections that were refused and of those that were never read, and the allocator.
const MARGIN: u64 = 64 << 20;

/// The size of each prompt.
const PROMPT_BYTES: usize = 1 << 20;

/// Prompts are held incomplete for this long.
const HELD: Duration = Duration::from_secs(5);

/// For all prompts after that.
const LIMIT: Duration = Duration::from_secs(60);

/// For a victim on a busy machine; a victim that waits for the budget waits longer than prompts are held.
const WORST: Duration = Duration::from_secs(4);

/// Threads of the clients.
const THREADS: usize = 4;

/// Between two looks at all clients of a thread, when none could go on.
const PAUSE: Duration = Duration::from_millis(5);

/// The bytes of a prompt that are kept back while prompts are held.
const KEPT_BACK: usize = 64;

/// A client with one prompt.
struct Prompt {
    stream: TcpStream,
    sent: usize,
    received: Vec<u8>,
    has_ended: bool,
}

/// How the prompts of a thread ended.
#[derive(Debug, Default)]
struct Ends {
    served: usize,
    refused: usize,
    cut: usize,
    wrong: Vec<String>,
}

impl Prompt {
    /// Sends and receives what goes without waiting. Whether anything went.
    fn step(&mut self, bytes: &[u8]) -> bool {
        let mut has_moved = false;
        // A client reads first: a refusal comes before its prompt is whole.
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.has_ended = true,
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                has_moved = true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.has_ended = true,
        }
        if self.received.is_empty() && !self.has_ended {
            match self.stream.write(&bytes[self.sent.min(bytes.len())..]) {
                Ok(count) => {
                    self.sent += count;
                    has_moved |= count > 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // An earlier response is still to be read.
                Err(_) => self.sent = bytes.len(),
            }
        }
        has_moved
    }

    fn is_over(&self) -> bool {
        self.has_ended || self.received.windows(4).any(|window| window == b"\r\n\r\n")
    }
}

/// `count` prompts at a time: held, then completed.
fn prompts(address: &Address, count: usize, bytes: &[u8]) -> Ends {
    let connected = |_| {
        let stream = TcpStream::connect(address.tcp()).expect("the gateway accepts");
        stream.set_nonblocking(true).expect("a socket that does not block");
        Prompt { stream, sent: 0, received: Vec::new(), has_ended: false }
    };
    let mut open: Vec<Prompt> = (0..count).map(connected).collect();
    let (begun, mut ends) = (Instant::now(), Ends::default());
    while !open.is_empty() && begun.elapsed() < HELD + LIMIT {
        let allowed = if begun.elapsed() < HELD { bytes.len() - KEPT_BACK } else { bytes.len() };
        let mut has_moved = false;
        open.retain_mut(|prompt| {
            has_moved |= prompt.step(&bytes[..allowed]);
            if prompt.is_over() {
                ends.count(&prompt.received);
            }
            !prompt.is_over()
        });
        if !has_moved {
            std::thread::sleep(PAUSE);
        }
    }
    ends.wrong.extend(open.iter().map(|prompt| format!("no response behind {} bytes", prompt.sent)));
    ends
}

impl Ends {
    fn count(&mut self, received: &[u8]) {
        let has_time = ["retry-after", "retry-after-ms"].iter().all(|name| field(received, name).is_some());
        match received.get(9..12) {
            Some(b"200") => self.served += 1,
            Some(b"503" | b"429") if has_time => self.refused += 1,
            None => self.cut += 1,
            Some(_) => self.wrong.push(String::from_utf8_lossy(received).into_owned()),
        }
    }

    fn join(mut self, other: Self) -> Self {
        self.served += other.served;
        self.refused += other.refused;
        self.cut += other.cut;
        self.wrong.extend(other.wrong);
        self
    }
}

#[test]
fn a1_prompts_past_the_budget_are_refused_with_a_time_and_memory_stays_within_it() {
    let count = if soak::requested_duration().is_some() { 20_000 } else { 1_000 };
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let limits = format!(
        "[limits]\nbuffered_bytes = \"256MiB\"\nconnections = {0}\nconnections_per_source = {0}\n",
        count + 100
    );
    let mut gateway = gateway_under(&origin, "openai", state.path(), "", &limits);
    // The origin is one thread, and takes a while for all prompts that are completed at the same moment.
    gateway.rewrite(|text| text.replace("name = \"provider\"\n", "name = \"provider\"\nconnect_timeout = \"20s\"\n"));
    let reloaded = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    let address = gateway.address.clone();
    let bytes = chat("bytes=2 word=5eed0003 prompt=3", &format!(",\"x\":\"{}\"", "y".repeat(PROMPT_BYTES)));
    let victim = victim(&address, "m");
    weir_tests::deadline::until_true("the victim to be served", || victim.served() > 5);
    let before = gateway.process().resident();
    let ends = std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(|| prompts(&address, count / THREADS, bytes.as_bytes())));
        threads.into_iter().fold(Ends::default(), |sum, one| sum.join(one.join().expect("clients end in order")))
    });
    let grown = gateway.process().resident_peak().saturating_sub(before);
    let waits = victim.stop();
    println!("{count} prompts: {ends:?}; memory has grown by {grown} bytes; {waits:?}");
    assert!(ends.wrong.is_empty(), "{:?}", &ends.wrong[..ends.wrong.len().min(5)]);
    assert_eq!(ends.served + ends.refused + ends.cut, count);
    // A prompt that fits is served; bodies have half of the budget.
    assert!(ends.served > 0 && ends.served as u64 <= BUDGET / PROMPT_BYTES as u64, "{ends:?}");
    assert!(ends.refused >= count / 2, "{ends:?}");
    assert_eq!(ends.cut, 0, "a refusal reaches its client: {ends:?}");
    assert!(grown < BUDGET + MARGIN, "{grown} bytes");
    assert!(waits.failed == 0 && waits.worst < WORST, "{waits:?}");
    // The budget is free again.
    gateway.wait_at_rest();
    let mut after = weir_tests::http::HttpClient::connect(&address);
    after.send(&bytes);
    assert_eq!(after.response().status, 200);
}
