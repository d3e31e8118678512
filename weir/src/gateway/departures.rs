//! Connections on their way to the new process, at an upgrade: a queue, and the thread that sends what is in it.
//!
//! The queue is bounded by the connections of the process: each is in it once. A connection in it belongs to no worker any
//! more, so the process must not end before it is empty.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use weir_engine::handover::Channel;
use weir_listener::Departure;
use weir_telemetry::{Registry, catalog};

use super::protocols;
use crate::upgrade::{connection::MovedConnection, successor::send_connection};

/// A connection of the listener of this name; `None` is the end.
type Entry = Option<(Arc<str>, Departure)>;

struct Shared {
    waiting: AtomicUsize,
    /// The time is over: nothing more is sent.
    is_over: AtomicBool,
    registry: Registry,
}

impl Shared {
    /// A connection that does not arrive was cut.
    fn lost(&self, listener: &str) {
        self.registry.shared().counter(&catalog::DRAIN_CUT, &[listener, "connection"]).inc();
    }
}

/// Where workers put connections.
#[derive(Clone)]
pub struct DepartureQueue {
    queue: mpsc::Sender<Entry>,
    shared: Arc<Shared>,
}

impl DepartureQueue {
    /// Sends `departure` to the new process, at which it is of `listener`.
    pub fn push(&self, listener: Arc<str>, departure: Departure) {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(mpsc::SendError(Some((listener, _)))) = self.queue.send(Some((listener, departure))) {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            self.shared.lost(&listener);
        }
    }
}

/// The thread that sends them.
pub struct Departures {
    queue: DepartureQueue,
    thread: Option<JoinHandle<()>>,
}

impl Departures {
    /// Sends through `channel`. `binds`: the address of each listener as the configuration has it.
    pub fn start(channel: Arc<Channel>, binds: HashMap<Arc<str>, String>, registry: Registry) -> Self {
        let (queue, entries) = mpsc::channel();
        let shared = Arc::new(Shared { waiting: AtomicUsize::new(0), is_over: AtomicBool::new(false), registry });
        let own = shared.clone();
        let send = move || send_all(&entries, &channel, &binds, &own);
        let thread = thread::Builder::new().name("departures".into()).spawn(send);
        let thread = thread.map_err(|error| tracing::error!(%error, "connections cannot be moved and end")).ok();
        Self { queue: DepartureQueue { queue, shared }, thread }
    }

    /// For the workers.
    pub fn queue(&self) -> DepartureQueue {
        self.queue.clone()
    }

    /// Connections that have not been sent.
    pub fn waiting(&self) -> usize {
        self.queue.shared.waiting.load(Ordering::Relaxed)
    }

    /// Sends what is left until `deadline`; the rest is cut and counted. The workers have ended.
    pub fn finish(self, deadline: Instant) {
        let Some(thread) = self.thread else { return };
        // Behind all that they have queued.
        let _ = self.queue.queue.send(None);
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        self.queue.shared.is_over.store(true, Ordering::Relaxed);
        // Soon: a send waits no longer than the patience of the channel.
        if thread.join().is_err() {
            tracing::error!("the thread that moves connections panicked");
        }
    }
}

fn send_all(entries: &mpsc::Receiver<Entry>, channel: &Channel, binds: &HashMap<Arc<str>, String>, shared: &Shared) {
    let mut lost = 0_u64;
    while let Ok(Some((listener, departure))) = entries.recv() {
        if let Err(error) = send(channel, binds, &listener, departure, &shared.is_over) {
            // The others will fare likewise: the sum is reported at the end.
            if lost == 0 {
                tracing::error!(%error, "a connection could not be moved and ends");
            }
            lost += 1;
            shared.lost(&listener);
        }
        shared.waiting.fetch_sub(1, Ordering::Relaxed);
    }
    if lost > 0 {
        tracing::error!(connections = lost, "not moved");
    }
}

fn send(
    channel: &Channel,
    binds: &HashMap<Arc<str>, String>,
    listener: &Arc<str>,
    departure: Departure,
    is_over: &AtomicBool,
) -> io::Result<()> {
    let Departure { socket, id, peer, session } = departure;
    let session = protocols::encode_session(session)
        .ok_or_else(|| io::Error::other("its protocol cannot move this connection"))?;
    let bind = binds.get(listener).cloned().unwrap_or_default();
    send_connection(channel, MovedConnection { bind, id, peer, session }, &socket, is_over)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use weir_engine::handover::Received;
    use weir_redis::MovedSession;
    use weir_telemetry::Level;

    use super::*;

    /// With `INPUT` more than the socket buffer between the processes holds.
    const MANY: u64 = 300;
    const INPUT: usize = 8 * 1024;
    const PATIENCE: Duration = Duration::from_millis(10);
    const LATER: Duration = Duration::from_secs(60);

    fn start(connections: u64) -> (Departures, Registry, Channel) {
        let (channel, theirs) = Channel::pair().expect("a pair");
        channel.set_patience(Some(PATIENCE)).expect("set");
        let registry = Registry::with_level(Level::Full);
        let binds = HashMap::from([("test".into(), "127.0.0.1:6380".to_owned())]);
        let departures = Departures::start(Arc::new(channel), binds, registry.clone());
        for id in 0..connections {
            let socket = OwnedFd::from(std::fs::File::open("/dev/null").expect("there"));
            let session = MovedSession { input: vec![7; INPUT], ..MovedSession::default() };
            departures
                .queue()
                .push("test".into(), Departure { socket, id, peer: String::new(), session: Box::new(session) });
        }
        (departures, registry, Channel::from(theirs))
    }

    fn cut(registry: &Registry) -> u64 {
        registry.read().counter("weir_drain_cut_total", &[("cut", "connection")]).unwrap_or(0)
    }

    fn received(successor: &Channel) -> u64 {
        let mut count = 0;
        while let Ok(Received::Message(_, sockets)) = successor.receive() {
            assert_eq!(sockets.len(), 1);
            count += 1;
        }
        count
    }

    /// The new process is slower than the sessions are to leave.
    #[test]
    fn queued_connections_are_sent_before_the_end() {
        let (departures, registry, successor) = start(MANY);
        assert!(departures.waiting() > 0, "nobody has read yet");
        let reader = thread::spawn(move || received(&successor));
        departures.finish(Instant::now() + LATER);
        assert_eq!((reader.join().expect("it reads to the end"), cut(&registry)), (MANY, 0));
    }

    #[test]
    fn connections_not_taken_in_time_are_counted_as_cut() {
        let (departures, registry, successor) = start(MANY);
        let begun = Instant::now();
        departures.finish(begun);
        assert!(begun.elapsed() < LATER, "it was held up");
        let cut = cut(&registry);
        assert!(cut > 0, "nobody has read");
        assert_eq!(received(&successor) + cut, MANY, "each is there or counted");
    }

    #[test]
    fn connections_that_cannot_be_sent_are_counted_as_cut() {
        let (departures, registry, successor) = start(0);
        drop(successor);
        let socket = OwnedFd::from(std::fs::File::open("/dev/null").expect("there"));
        let departure = Departure { socket, id: 1, peer: String::new(), session: Box::new(MovedSession::default()) };
        departures.queue().push("test".into(), departure);
        departures.finish(Instant::now() + LATER);
        assert_eq!(cut(&registry), 1);
    }
}
