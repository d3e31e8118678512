//! Traffic beside a change of the gateway: pipelines whose every reply is checked, and newcomers all the time. Lost, wrong and
//! cut replies are errors in its account.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::client::{Client, End};
use crate::deadline::{WAIT, until};
use crate::stream::{Address, Stream};
use crate::wire::{bulk, encode, shown};

#[cfg(test)]
mod tests;

/// Commands in one write.
const DEPTH: u64 = 16;
/// A reply that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// How clients connect.
#[derive(Clone)]
pub struct Way {
    /// Where to.
    pub address: Address,
    /// With TLS, and with what they trust.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Way {
    /// Without TLS.
    pub fn plain(address: &Address) -> Self {
        Self { address: address.clone(), tls: None }
    }

    fn connect(&self) -> std::io::Result<Client> {
        match &self.tls {
            None => Stream::connect(&self.address).map(Client::over),
            Some(config) => Stream::connect_tls(self.address.tcp(), config.clone()).map(Client::over),
        }
    }
}

/// Counts of one client, or of all.
#[derive(Debug, Default)]
pub struct TrafficCounts {
    /// Right replies.
    pub right: u64,
    /// Connections made.
    pub connections: u64,
    /// Requests whose connection ended before any byte of their reply, and that were not executed: a client may send them
    /// again. Where connections have to end that may happen: one is ended when nothing came for a moment, in which a client
    /// may have had no time on its processor.
    pub crossed: u64,
    /// Whatever else happened, in words.
    pub errors: BTreeMap<String, u64>,
}

impl TrafficCounts {
    fn error(&mut self, text: String) {
        *self.errors.entry(text).or_default() += 1;
    }

    fn add(&mut self, other: Self) {
        self.right += other.right;
        self.connections += other.connections;
        self.crossed += other.crossed;
        for (text, count) in other.errors {
            *self.errors.entry(text).or_default() += count;
        }
    }
}

/// Clients at work until they are stopped.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<TrafficCounts>>,
}

impl Traffic {
    /// `count` clients that pipeline on one connection each, and two that connect again for every command.
    pub fn start(way: &Way, count: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let work = |run: fn(&Way, u64, &AtomicBool) -> TrafficCounts, id| {
            let (way, stop) = (way.clone(), stop.clone());
            std::thread::spawn(move || run(&way, id, &stop))
        };
        let mut threads: Vec<_> = (0..count).map(|id| work(pipeline, id)).collect();
        threads.extend((count..count + 2).map(|id| work(newcomers, id)));
        Self { stop, threads }
    }

    /// Stops them after what they are at.
    ///
    /// # Panics
    /// If a client panicked.
    pub fn stop(mut self) -> TrafficCounts {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = TrafficCounts::default();
        for thread in self.threads.drain(..) {
            all.add(thread.join().expect("a client ends in order"));
        }
        all
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Counts up under a key of its own: a lost, doubled or foreign execution shows in the next reply.
fn pipeline(way: &Way, id: u64, stop: &AtomicBool) -> TrafficCounts {
    let mut seen = TrafficCounts::default();
    let (counter, key) = (format!("count-{id}"), format!("value-{id}"));
    let mut number = 0;
    let mut connection: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) {
        let mut client = match connection.take() {
            Some(client) => client,
            None => match way.connect() {
                Ok(client) => {
                    seen.connections += 1;
                    client
                }
                Err(error) => {
                    seen.error(format!("connect: {error}"));
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
            },
        };
        let mut wire = Vec::new();
        for step in 1..=DEPTH {
            let value = format!("{id}:{}", number + step);
            for words in [vec!["INCR", &counter], vec!["SET", &key, &value], vec!["GET", &key]] {
                wire.extend(encode(&words));
            }
        }
        if client.try_send(&wire).is_err() {
            seen.crossed += 3 * DEPTH;
            continue;
        }
        match replies(&mut client, id, number, &mut seen) {
            Ok(()) => {
                number += DEPTH;
                connection = Some(client);
            }
            // The server shows the commands executed before the end; the next round starts from there.
            Err(executed) => number = resync(way, &counter, number, executed, &mut seen),
        }
    }
    seen
}

/// The replies to one round; how many INCRs got one if they do not all come.
fn replies(client: &mut Client, id: u64, number: u64, seen: &mut TrafficCounts) -> Result<(), u64> {
    for step in 1..=DEPTH {
        let value = format!("{id}:{}", number + step);
        let wanted = [
            format!(":{}\r\n", number + step).into_bytes(),
            b"+OK\r\n".to_vec(),
            format!("${}\r\n{value}\r\n", value.len()).into_bytes(),
        ];
        for (at, wanted) in wanted.iter().enumerate() {
            match client.try_reply(PATIENCE) {
                Ok(came) if came == *wanted => seen.right += 1,
                Ok(came) => {
                    seen.error(format!("came {}, wanted {}", shown(&came), shown(wanted)));
                    return Err(step - u64::from(at == 0));
                }
                Err(End::Silent) => {
                    seen.error("no reply in time".to_owned());
                    return Err(step - u64::from(at == 0));
                }
                Err(End::Closed | End::Reset) if step == 1 && at == 0 && !client.has_partial_reply() => {
                    seen.crossed += 3 * DEPTH;
                    return Err(0);
                }
                Err(end) => {
                    seen.error(format!("{end:?} among the replies of a round"));
                    return Err(step - u64::from(at == 0));
                }
            }
        }
    }
    Ok(())
}

/// The server's counter after a round without all its replies. If it is more than the replies say, a reply was lost.
fn resync(way: &Way, counter: &str, number: u64, replies: u64, seen: &mut TrafficCounts) -> u64 {
    let held = until("what the server holds", WAIT, || {
        // This connection may end as well.
        let mut client = way.connect().ok()?;
        client.try_send(&encode(&["GET", counter])).ok()?;
        let came = client.try_reply(PATIENCE).ok()?;
        Some(std::str::from_utf8(&bulk(&came)).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
    });
    if held != number + replies {
        seen.error(format!("{} executed without a reply", held as i64 - (number + replies) as i64));
    }
    held
}

/// A connection, a command, and away.
fn newcomers(way: &Way, id: u64, stop: &AtomicBool) -> TrafficCounts {
    let mut seen = TrafficCounts::default();
    let key = format!("newcomer-{id}");
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        match way.connect() {
            Ok(mut client) => {
                seen.connections += 1;
                number += 1;
                let wire = encode(&["INCR", &key]);
                let came = client.try_send(&wire).map_err(|_| End::Reset).and_then(|()| client.try_reply(PATIENCE));
                match came {
                    Ok(came) if came == format!(":{number}\r\n").as_bytes() => seen.right += 1,
                    // Not executed: the next one gets the number.
                    Err(End::Closed | End::Reset) if !client.has_partial_reply() => {
                        seen.crossed += 1;
                        number -= 1;
                    }
                    other => seen.error(format!("a newcomer: {:?}", other.map(|came| shown(&came)))),
                }
            }
            Err(error) => seen.error(format!("a newcomer cannot connect: {error}")),
        }
        // The pace of the newcomers.
        std::thread::sleep(Duration::from_millis(1).saturating_sub(started.elapsed()));
    }
    seen
}
