//! The clients of the demo: threads with one connection each, one request at a time, every reply checked.

use std::{
    io,
    net::TcpStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use weir_parties::interrupt;

use super::{http::HttpConnection, postgres::PostgresConnection, redis::RedisConnection, stage::Stage};

/// Clients per protocol. A multiple of the number of shards.
pub const CLIENTS: u16 = 8;
/// Pause between a reply and the client's next request: the demo shows that nothing is lost, not how much a machine carries.
const PACE: Duration = Duration::from_millis(1);
/// Limit for a reply; longer than any of the gateway's own deadlines for these requests.
const REPLY_LIMIT: Duration = Duration::from_secs(10);

/// The clients' results in a stretch of time.
#[derive(Clone, Debug, Default)]
pub struct TrafficCounts {
    /// Requests with the right reply.
    pub requests: u64,
    /// Requests with an error, or with a wrong reply.
    pub errors: u64,
    /// Connections that ended before the reply to a request was complete, or that could not be made.
    pub lost: u64,
    /// Connections that ended in order, between two requests, and were made again.
    pub closed: u64,
    /// The first error in words.
    pub first_error: Option<String>,
    /// The times of right replies, in microseconds.
    pub micros: Vec<u32>,
}

impl TrafficCounts {
    /// The outage as a user sees it.
    pub fn failures(&self) -> u64 {
        self.errors + self.lost
    }

    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.lost += other.lost;
        self.closed += other.closed;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
        self.micros.extend(&other.micros);
    }

    fn note_error(&mut self, text: String) {
        self.errors += 1;
        self.first_error.get_or_insert(text);
    }

    fn note_lost(&mut self, error: &io::Error) {
        self.lost += 1;
        self.first_error.get_or_insert_with(|| format!("connection lost: {error}"));
    }
}

/// A whole reply.
pub enum Reply {
    /// The one that belongs to the request.
    Right,
    /// The same, and the gateway closes the connection behind it.
    RightAndLast,
    /// An error in words, or a wrong reply.
    Wrong(String),
}

/// Why there is no whole reply.
pub enum ReplyError {
    /// The connection ended before it had seen this request: a client sends it again on another one.
    BetweenRequests,
    /// The connection ended, or was silent, when a reply was due.
    Lost(io::Error),
}

impl From<io::Error> for ReplyError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// One connection of a client.
pub trait Connection: Sized {
    /// Over this socket.
    fn over(socket: TcpStream) -> io::Result<Self>;

    /// Sends a request that no other is like, and checks the reply.
    fn exchange(&mut self, key: &str, round: u64) -> Result<Reply, ReplyError>;
}

/// A client, as the conductor sees it.
pub struct Client {
    /// Its protocol.
    pub protocol: &'static str,
    /// The shard of its key, with Redis.
    pub shard: Option<u16>,
    seen: Arc<Mutex<TrafficCounts>>,
}

impl Client {
    fn seen(&self) -> MutexGuard<'_, TrafficCounts> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clients at work. They stop when it is dropped.
pub struct Load {
    clients: Vec<Client>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Starts the clients of all protocols.
    pub fn start(stage: &Stage) -> anyhow::Result<Self> {
        let mut load = Self { clients: Vec::new(), threads: Vec::new(), stop: Arc::default() };
        for number in 0..CLIENTS {
            // As many clients on one shard as on the other.
            let shard = number % stage.redis_servers.len() as u16;
            load.client::<RedisConnection>("redis", &stage.redis, stage.key_on(shard, number), Some(shard))?;
            load.client::<HttpConnection>("http", &stage.http, format!("c{number}"), None)?;
            load.client::<PostgresConnection>("postgres", &stage.postgres, number.to_string(), None)?;
        }
        Ok(load)
    }

    fn client<C: Connection + 'static>(
        &mut self,
        protocol: &'static str,
        address: &str,
        key: String,
        shard: Option<u16>,
    ) -> io::Result<()> {
        let client = Client { protocol, shard, seen: Arc::default() };
        let (seen, stop, address) = (client.seen.clone(), self.stop.clone(), address.to_owned());
        let run = move || run::<C>(&address, &key, &seen, &stop);
        self.threads.push(thread::Builder::new().name(format!("{protocol}-client")).spawn(run)?);
        self.clients.push(client);
        Ok(())
    }

    /// Takes the counts of the clients that `belongs` selects, collected since the last call.
    pub fn take(&self, belongs: impl Fn(&Client) -> bool) -> TrafficCounts {
        let mut sum = TrafficCounts::default();
        for client in self.clients.iter().filter(|client| belongs(client)) {
            sum.add(&std::mem::take(&mut *client.seen()));
        }
        sum
    }

    /// Waits until each client of a shard has a right reply again. The time that it took.
    pub fn wait_for_shard(&self, shard: u16, limit: Duration) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let of_shard = || self.clients.iter().filter(|client| client.shard == Some(shard));
        let before: Vec<u64> = of_shard().map(|client| client.seen().requests).collect();
        interrupt::wait_until("right replies of the shard that is back", limit, || {
            Ok(of_shard().zip(&before).all(|(client, before)| client.seen().requests > *before))
        })?;
        Ok(begun.elapsed())
    }

    /// Ends the clients.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.threads.drain(..).map(JoinHandle::join).filter(Result::is_err).count();
        anyhow::ensure!(ended == 0, "{ended} clients of the demo panicked");
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A client until it is stopped.
fn run<C: Connection>(address: &str, key: &str, seen: &Mutex<TrafficCounts>, stop: &AtomicBool) {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut connection, mut round) = (None, 0);
    while !stop.load(Ordering::Relaxed) {
        let mut open = match connection.take().map_or_else(|| connect::<C>(address), Ok) {
            Ok(open) => open,
            Err(error) => {
                lock().note_lost(&error);
                thread::sleep(PACE);
                continue;
            }
        };
        let begun = Instant::now();
        let outcome = open.exchange(key, round);
        let mut seen = lock();
        match outcome {
            Ok(reply) => {
                round += 1;
                match &reply {
                    Reply::Wrong(text) => seen.note_error(text.clone()),
                    Reply::Right | Reply::RightAndLast => {
                        seen.requests += 1;
                        seen.micros.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
                    }
                }
                match reply {
                    Reply::RightAndLast => seen.closed += 1,
                    _ => connection = Some(open),
                }
            }
            Err(ReplyError::BetweenRequests) => seen.closed += 1,
            Err(ReplyError::Lost(error)) => seen.note_lost(&error),
        }
        drop(seen);
        thread::sleep(PACE);
    }
}

fn connect<C: Connection>(address: &str) -> io::Result<C> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(REPLY_LIMIT))?;
    C::over(socket)
}
