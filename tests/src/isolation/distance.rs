//! Distance between two ends, and a machine that goes down: a relay that holds bytes back for half of a round trip.

use std::collections::VecDeque;
use std::io::{Read as _, Result, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use super::{Ask, Protocol};
use crate::deadline::until_true;
use crate::stream::{Address, Stream};

/// Bytes under way in one direction of one connection: more than any window that the cases need (20 MB each way).
const UNDER_WAY_MAX: usize = 32 << 20;

/// Between closing the port and cutting what stands.
const GRACE: Duration = Duration::from_millis(50);

/// A running relay; it ends with this value.
pub struct Link {
    /// Where it listens while it is up.
    pub address: Address,
    shared: Arc<Shared>,
}

struct Shared {
    origin: Mutex<SocketAddr>,
    /// Delay of one direction.
    delay: Duration,
    is_down: AtomicBool,
    /// Both sides of those that stand; the threads that carry them hold them open.
    connections: Mutex<Vec<Weak<TcpStream>>>,
}

impl Link {
    /// In front of `origin`, whose responses come a round trip later.
    ///
    /// # Panics
    /// If no port can be bound.
    pub fn before(origin: &Address, round_trip: Duration) -> Self {
        let address = Address::port(crate::port::free());
        let shared = Shared {
            origin: Mutex::new(origin.tcp()),
            delay: round_trip / 2,
            is_down: AtomicBool::new(true),
            connections: Mutex::default(),
        };
        let link = Self { address, shared: Arc::new(shared) };
        link.up();
        link
    }

    /// Listens again.
    ///
    /// # Panics
    /// If the port has been taken.
    pub fn up(&self) {
        let listener = TcpListener::bind(self.address.tcp()).expect("its own port is free");
        self.shared.is_down.store(false, Ordering::SeqCst);
        let shared = self.shared.clone();
        std::thread::spawn(move || {
            // Once it goes down it takes what the kernel has queued for it, and waits for no more: closing would reset that.
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.is_down.load(Ordering::SeqCst) {
                    listener.set_nonblocking(true).expect("a socket of its own");
                }
                // An end that is gone is gone for both.
                let _ = connect(stream, &shared);
            }
        });
    }

    /// Connections from now on lead to another server, as after the move of an address.
    pub fn lead_to(&self, origin: &Address) {
        *lock(&self.shared.origin) = origin.tcp();
    }

    /// Closes the port and cuts the open connections.
    pub fn down(&self) {
        if self.shared.is_down.swap(true, Ordering::SeqCst) {
            return;
        }
        // Wakes the acceptor, which closes the port.
        drop(TcpStream::connect(self.address.tcp()));
        until_true("the port to be closed", || TcpStream::connect(self.address.tcp()).is_err());
        // Requests in flight are answered, as by a server that shuts down; then the rest is cut.
        std::thread::sleep(GRACE);
        for stream in lock(&self.shared.connections).drain(..).filter_map(|stream| stream.upgrade()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.down();
        }
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn connect(client: TcpStream, shared: &Shared) -> Result<()> {
    let origin = *lock(&shared.origin);
    let server = TcpStream::connect(origin)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client, server) = (Arc::new(client), Arc::new(server));
    let mut all = lock(&shared.connections);
    all.retain(|stream| stream.strong_count() > 0);
    all.extend([Arc::downgrade(&client), Arc::downgrade(&server)]);
    drop(all);
    carry(client.clone(), server.clone(), shared.delay);
    carry(server, client, shared.delay);
    Ok(())
}

/// Bytes with the time at which they arrive; none of them: the end.
#[derive(Default)]
struct Queue {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    /// Bytes in all of them.
    bytes: usize,
}

#[derive(Default)]
struct Way {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Two threads: one reads and stamps, one waits and writes.
fn carry(from: Arc<TcpStream>, to: Arc<TcpStream>, delay: Duration) {
    let way = Arc::new(Way::default());
    let sender = way.clone();
    let back = from.clone();
    std::thread::spawn(move || {
        let mut chunk = vec![0; 256 * 1024];
        loop {
            let count = (&*from).read(&mut chunk).unwrap_or(0);
            let mut queue = lock(&sender.queue);
            while queue.bytes > UNDER_WAY_MAX {
                queue = sender.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            queue.bytes += count;
            queue.chunks.push_back((Instant::now() + delay, chunk[..count].to_vec()));
            sender.changed.notify_all();
            if count == 0 {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        loop {
            let mut queue = lock(&way.queue);
            let (due, bytes) = loop {
                if let Some(next) = queue.chunks.pop_front() {
                    break next;
                }
                queue = way.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            };
            queue.bytes -= bytes.len();
            way.changed.notify_all();
            drop(queue);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if bytes.is_empty() {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            if (&*to).write_all(&bytes).is_err() {
                // The sender learns it as well.
                let _ = back.shutdown(Shutdown::Both);
                lock(&way.queue).bytes = 0;
                way.changed.notify_all();
                return;
            }
        }
    });
}

/// No transfer takes longer.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// The time of a transfer on a new connection to `address`: to the last byte of the response, or to the `ok` behind the upload.
///
/// # Errors
/// The connection fails or ends early, or the transfer takes longer than a minute.
pub fn transferred(protocol: &dyn Protocol, address: &Address, ask: &Ask) -> Result<Duration> {
    let begun = Instant::now();
    let mut transfer = protocol.begin(Stream::connect(address)?, ask)?;
    let mut due = match ask {
        Ask::Bytes(length) => *length,
        _ => {
            transfer.write(&protocol.upload(ask))?;
            b"ok".len()
        }
    };
    while due > 0 {
        due -= transfer.read(due)?;
        if begun.elapsed() > GIVEN_UP {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
    }
    Ok(begun.elapsed())
}
