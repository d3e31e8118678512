//! The victim flow: an innocent client at a steady pace while something hostile goes on beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::stream::{Address, Stream};

/// Between two requests of the flow.
const PACE: Duration = Duration::from_millis(2);
/// A request that takes longer counts as an error.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running flow.
pub struct Victim {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<VictimStats>>,
}

/// Measurements of the flow.
#[derive(Debug)]
pub struct VictimStats {
    /// Requests with the right reply.
    pub completed: u64,
    /// Lost connections, wrong or missing replies; the first few in words.
    pub errors: Vec<String>,
    /// 99th percentile of the time from sending to the whole reply.
    pub p99: Duration,
}

impl Victim {
    /// Starts a flow of SET and GET on one connection; each value is checked.
    pub fn start(address: &Address) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let address = address.clone();
        let thread = std::thread::spawn(move || flow(&address, &seen));
        Self { stop, thread: Some(thread) }
    }

    /// Ends the flow and returns what it saw.
    ///
    /// # Panics
    /// If the flow itself panicked.
    pub fn stop(mut self) -> VictimStats {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("a flow is stopped once");
        thread.join().expect("the victim flow ends in order")
    }

    /// Ends the flow.
    ///
    /// # Panics
    /// If it saw a single error, or no reply at all.
    pub fn stop_unharmed(self) -> VictimStats {
        let suffered = self.stop();
        assert!(suffered.errors.is_empty() && suffered.completed > 0, "the victim flow suffered: {suffered:?}");
        suffered
    }
}

impl Drop for Victim {
    /// A test that fails, or that does not ask, must not leave a client behind.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the key of each flow its own.
static FLOWS: AtomicU64 = AtomicU64::new(0);

fn flow(address: &Address, stop: &AtomicBool) -> VictimStats {
    let mut client = Client::connect(address);
    let key = format!("victim-{}", FLOWS.fetch_add(1, Ordering::Relaxed));
    let mut times = Vec::new();
    let mut errors = Vec::new();
    let mut number: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let value = format!("{key}-{number}");
        let started = Instant::now();
        let outcome = exchange(&mut client, &["SET", &key, &value], b"+OK\r\n").and_then(|()| {
            let reply = format!("${}\r\n{value}\r\n", value.len());
            exchange(&mut client, &["GET", &key], reply.as_bytes())
        });
        match outcome {
            Ok(()) => times.push(started.elapsed() / 2),
            Err(error) => {
                if errors.len() < 10 {
                    errors.push(format!("request {number}: {error}"));
                }
                match Stream::connect(address) {
                    Ok(stream) => client = Client::over(stream),
                    Err(error) => errors.push(format!("cannot connect again: {error}")),
                }
                if errors.len() >= 20 {
                    break;
                }
            }
        }
        std::thread::sleep(PACE);
    }
    times.sort();
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    VictimStats { completed: times.len() as u64, errors, p99 }
}

fn exchange(client: &mut Client, words: &[&str], reply: &[u8]) -> Result<(), String> {
    client.try_send(&crate::wire::encode(words)).map_err(|error| format!("cannot send: {error}"))?;
    let came = client.try_reply(PATIENCE).map_err(|end| format!("{words:?}: {end:?}"))?;
    if came == reply { Ok(()) } else { Err(format!("{words:?}: {}", crate::wire::shown(&came))) }
}
