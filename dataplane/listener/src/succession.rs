//! A client that reconnects: its new connection is served after the requests that it left behind on the one before.
//!
//! A client that gives up a request closes its connection and reconnects at once, perhaps to another worker. Its earlier
//! requests may still wait in the kernel then, unread by the first worker: a write whose client has given up would be executed
//! after one that was acknowledged. A server with a single event queue does not do that. So each connection of a
//! listener has its [`SuccessionTicket`] among those of its [`Source`]. Before a connection is served, it checks which earlier
//! ones have been closed by their clients, and waits until these are over: everything read, sent and answered, or taken back.
//!
//! It costs nothing on the request path, and a connection whose source has closed none does not wait. An accept takes a
//! place in a map under a lock; the check is done on the worker that serves the connection, without the lock.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    net::IpAddr,
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use weir_base::time::Time;
use weir_engine::net;

/// How long what a client left behind may keep its next connection waiting, counted from its end. Default 1 s: as long as a request
/// waits for a lane. A server that responds is done within a round trip; one that does not would not respond to the client either.
pub const WAIT_MAX: Duration = Duration::from_secs(1);

/// Connections of one source that are looked at: so many of the latest, and as many of those before them whose worker has seen
/// the end. Looking at one takes about 150 ns, so 40 us for a source with many. A client is overtaken by what it left behind only
/// where more connections of its source came in between, before the worker of the one it closed has read the end.
const LOOKED_AT_MAX: usize = 256;

/// Where a connection comes from, as far as that tells one client from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An address.
    Address(IpAddr),
    /// A process at the other end of a Unix socket.
    Process(u32),
    /// A proxy, at an address or a Unix socket, that has not said yet whom it speaks for.
    Proxy(Option<IpAddr>),
}

/// The connections of one listener by where they come from.
#[derive(Default)]
pub struct Succession {
    accepting: Mutex<()>,
    places: Mutex<Places>,
}

/// A source, and which of all connections it is: the later the higher.
type Number = (Source, u64);

#[derive(Default)]
struct Places {
    last: u64,
    present: BTreeMap<Number, Arc<Presence>>,
    /// Those whose end their worker has read.
    left: BTreeMap<Number, Arc<Presence>>,
}

/// One connection.
struct Presence {
    socket: RawFd,
    /// When its client was seen to have closed it, in nanoseconds of [`Time`]; 0: it has not.
    left_at: AtomicU64,
    end: Mutex<End>,
}

#[derive(Default)]
struct End {
    is_over: bool,
    waiting: Vec<Waker>,
}

impl Presence {
    fn new(socket: RawFd) -> Arc<Self> {
        Arc::new(Self { socket, left_at: AtomicU64::new(0), end: Mutex::default() })
    }

    fn note_left(&self, now: Time) {
        // A second look must not prolong it.
        let _ = self.left_at.compare_exchange(0, now.as_nanos().max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    fn has_left(&self) -> bool {
        self.left_at.load(Ordering::Relaxed) != 0
    }

    /// How much longer it is waited for; `None` unless its client has closed it.
    fn rest(&self, now: Time) -> Option<Duration> {
        let left_at = Time::from_nanos(self.left_at.load(Ordering::Relaxed));
        self.has_left().then(|| WAIT_MAX.saturating_sub(now.since(left_at))).filter(|rest| !rest.is_zero())
    }

    fn poll_over(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut end = locked(&self.end);
        if end.is_over {
            return Poll::Ready(());
        }
        end.waiting.push(context.waker().clone());
        Poll::Pending
    }

    fn set_over(&self) {
        let mut end = locked(&self.end);
        end.is_over = true;
        let waiting = std::mem::take(&mut end.waiting);
        drop(end);
        waiting.into_iter().for_each(weir_engine::wake_elsewhere);
    }
}

impl Places {
    /// Connections of the source of `number` before it that are not over: the latest, and others that their clients have left.
    fn before(&self, number: Number) -> Vec<Arc<Presence>> {
        let first = (number.0, 0);
        let latest: Vec<_> = self.present.range(first..number).rev().take(LOOKED_AT_MAX).collect();
        let lowest = latest.last().map_or(number, |(number, _)| **number);
        let left = self.left.range(first..lowest).rev().take(LOOKED_AT_MAX).map(|(_, one)| one);
        latest.iter().map(|(_, one)| *one).chain(left).cloned().collect()
    }

    fn remove(&mut self, number: Number) {
        self.present.remove(&number);
        self.left.remove(&number);
    }
}

impl Succession {
    /// Accepting is one at a time, from the queue to the place: a connection accepted later stands behind those accepted earlier.
    /// `None` while another worker is at it.
    pub fn try_accepting(&self) -> Option<MutexGuard<'_, ()>> {
        match self.accepting.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// As [`Succession::try_accepting`]; waits for the other worker.
    pub fn accepting(&self) -> MutexGuard<'_, ()> {
        locked(&self.accepting)
    }

    /// A place for a connection that has just been accepted. Drop it before the socket is closed, and when nothing
    /// that the client sent can take effect any more. Without a `source` it is not known which connections belong together, and
    /// none of them waits.
    pub fn enter(self: &Arc<Self>, source: Option<Source>, socket: &impl AsRawFd) -> SuccessionTicket {
        let mut places = locked(&self.places);
        places.last += 1;
        let (order, presence) = (places.last, Presence::new(socket.as_raw_fd()));
        if let Some(source) = source {
            places.present.insert((source, order), presence.clone());
        }
        drop(places);
        SuccessionTicket { succession: self.clone(), source, order, presence }
    }
}

/// A connection's place among those of its source.
pub struct SuccessionTicket {
    succession: Arc<Succession>,
    source: Option<Source>,
    order: u64,
    presence: Arc<Presence>,
}

impl SuccessionTicket {
    fn number(&self) -> Option<Number> {
        self.source.map(|source| (source, self.order))
    }

    /// The client has closed its side, or the connection is broken; what it sent may still be under way.
    pub fn note_left(&self, now: Time) {
        self.presence.note_left(now);
        if let Some(number) = self.number() {
            locked(&self.succession.places).left.insert(number, self.presence.clone());
        }
    }

    /// The proxy has named its client, or none. Waits for earlier connections that are closed and whose client is still unknown:
    /// any may be the same client's.
    pub async fn identify(&mut self, source: Option<Source>) {
        let unknown = self.become_known(source);
        let now = Time::now();
        note_hung_up(&unknown, now);
        if unknown.iter().any(|one| one.rest(now).is_some()) {
            // The wait for those of its own source begins now, too, and not when this one is over.
            note_hung_up(&self.predecessors(), now);
            left_behind_are_over(unknown).await;
        }
    }

    /// Its place is among those of `source` from now on. Returns the earlier connections whose client is still unknown.
    fn become_known(&mut self, source: Option<Source>) -> Vec<Arc<Presence>> {
        let known = Presence::new(self.presence.socket);
        let mut places = locked(&self.succession.places);
        let before = self.number().map_or_else(Vec::new, |number| {
            places.remove(number);
            places.before(number)
        });
        // Connections that wait for it go on waiting for the rest of the time, and not for all of it once more.
        let left_at = self.presence.left_at.load(Ordering::Relaxed);
        known.left_at.store(left_at, Ordering::Relaxed);
        let unknown = std::mem::replace(&mut self.presence, known);
        self.source = source;
        if let Some(number) = self.number() {
            places.present.insert(number, self.presence.clone());
            if self.presence.has_left() {
                places.left.insert(number, self.presence.clone());
            }
        }
        drop(places);
        unknown.set_over();
        if source.is_some() { before } else { Vec::new() }
    }

    /// Waits until the connections of its source that came before it and that their clients have left are over, at most until
    /// `WAIT_MAX` after they left.
    pub async fn predecessors_over(&self) {
        left_behind_are_over(self.predecessors()).await;
    }

    fn predecessors(&self) -> Vec<Arc<Presence>> {
        self.number().map_or_else(Vec::new, |number| locked(&self.succession.places).before(number))
    }
}

impl Drop for SuccessionTicket {
    fn drop(&mut self) {
        if let Some(number) = self.number() {
            locked(&self.succession.places).remove(number);
        }
        self.presence.set_over();
    }
}

/// Waits until those of `before` that their clients closed are over, at most `WAIT_MAX` after each was closed.
async fn left_behind_are_over(before: Vec<Arc<Presence>>) {
    let now = Time::now();
    note_hung_up(&before, now);
    let Some(rest) = before.iter().filter_map(|one| one.rest(now)).max() else { return };
    let all = async {
        for one in before.iter().filter(|one| one.rest(now).is_some()) {
            poll_fn(|context| one.poll_over(context)).await;
        }
    };
    let _ = weir_engine::timeout(rest, all).await;
}

/// Looks which of `present` have been closed by their clients. One of them may be over meanwhile and its descriptor another
/// connection's: whatever is noted of it then is of no account.
fn note_hung_up(present: &[Arc<Presence>], now: Time) {
    let unknown: Vec<_> = present.iter().filter(|one| !one.has_left()).collect();
    let sockets: Vec<_> = unknown.iter().map(|one| one.socket).collect();
    for (one, has_hung_up) in unknown.iter().zip(net::hung_up(&sockets)) {
        if has_hung_up {
            one.note_left(now);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    const A: Option<Source> = Some(Source::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))));
    const B: Option<Source> = Some(Source::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))));
    const PROXY: Option<Source> = Some(Source::Proxy(None));

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        (client, listener.accept().expect("accepted").0)
    }

    /// Those that `place` has to wait for, looked at now.
    fn waited_for(place: &SuccessionTicket, now: Time) -> Vec<Arc<Presence>> {
        let number = place.number().expect("a source");
        let mut before = locked(&place.succession.places).before(number);
        note_hung_up(&before, now);
        before.retain(|one| one.rest(now).is_some());
        before
    }

    fn is_over(one: &Presence) -> bool {
        one.poll_over(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_reconnecting_client_waits_for_its_closed_connections_and_for_nothing_else() {
        let (succession, now) = (Arc::new(Succession::default()), Time::from_nanos(1));
        let (first, second, third) = (pair(), pair(), pair());
        let first_place = succession.enter(A, &first.1);
        let open = succession.enter(A, &second.1);
        assert!(waited_for(&open, now).is_empty(), "the client of the first is still there");
        drop(first.0);
        let other = succession.enter(B, &third.1);
        assert!(waited_for(&other, now).is_empty(), "another source");
        let back = succession.enter(A, &third.1);
        let predecessors = waited_for(&back, now);
        assert_eq!(predecessors.len(), 1);
        assert!(!is_over(&predecessors[0]));
        drop(first_place);
        assert!(is_over(&predecessors[0]));
        assert!(waited_for(&back, now).is_empty(), "it is over");
    }

    #[test]
    fn a_wait_that_takes_too_long_ends_and_every_ticket_is_returned() {
        let succession = Arc::new(Succession::default());
        let (client, server) = pair();
        let place = succession.enter(A, &server);
        place.note_left(Time::from_nanos(1));
        let late = Time::from_nanos(1).saturating_add(WAIT_MAX);
        let second = succession.enter(A, &client);
        assert_eq!(waited_for(&second, Time::from_nanos(1)).len(), 1);
        assert!(waited_for(&second, late).is_empty());
        drop((place, second));
        let places = locked(&succession.places);
        assert!(places.present.is_empty() && places.left.is_empty());
    }

    /// However many connections a source has, the work is the same; what was left long before is found by what its worker noted.
    #[test]
    fn of_many_connections_the_latest_and_those_left_are_looked_at() {
        let (succession, now) = (Arc::new(Succession::default()), Time::from_nanos(1));
        let (_client, server) = pair();
        let all: Vec<_> = (0..10 * LOOKED_AT_MAX).map(|_| succession.enter(A, &server)).collect();
        all[3].note_left(now);
        let last = succession.enter(A, &server);
        assert_eq!(waited_for(&last, now).len(), 1);
        all.iter().for_each(|place| place.note_left(now));
        assert_eq!(locked(&succession.places).before(last.number().expect("a source")).len(), 2 * LOOKED_AT_MAX);
    }

    #[test]
    fn behind_a_proxy_clients_wait_for_their_own_and_not_for_each_other() {
        let (succession, now) = (Arc::new(Succession::default()), Time::from_nanos(1));
        let (first, second) = (pair(), pair());
        let identify = |place: &mut SuccessionTicket, source| {
            let mut identified = Box::pin(place.identify(source));
            identified.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        let mut place = succession.enter(PROXY, &first.1);
        assert!(identify(&mut place, A));
        drop(first.0);
        let mut other = succession.enter(PROXY, &second.1);
        assert!(identify(&mut other, B) && waited_for(&other, now).is_empty());
        let mut back = succession.enter(PROXY, &second.1);
        assert!(identify(&mut back, A));
        assert_eq!(waited_for(&back, now).len(), 1);
        let mut nobody = succession.enter(PROXY, &second.1);
        assert!(identify(&mut nobody, None) && nobody.number().is_none(), "a health check of the proxy's own");
    }

    /// The header of the first one has not been read yet when that of the second one has.
    #[test]
    fn an_unknown_client_that_has_left_is_waited_for_until_it_is_known() {
        let (succession, now) = (Arc::new(Succession::default()), Time::from_nanos(1));
        let (first, second) = (pair(), pair());
        let mut place = succession.enter(PROXY, &first.1);
        drop(first.0);
        let back = succession.enter(PROXY, &second.1);
        let unknown = waited_for(&back, now);
        assert_eq!(unknown.len(), 1);
        assert!(Box::pin(place.identify(A)).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(is_over(&unknown[0]), "who it is decides now");
        assert!(waited_for(&back, now).is_empty());
    }

    /// The wait began again when the first one became known: two seconds in all.
    #[test]
    fn the_wait_for_a_connection_that_becomes_known_is_the_rest_of_the_time() {
        let succession = Arc::new(Succession::default());
        let (first, second) = (pair(), pair());
        let mut place = succession.enter(PROXY, &first.1);
        drop(first.0);
        let mut back = succession.enter(PROXY, &second.1);
        let seen_at = Time::from_nanos(1);
        assert_eq!(waited_for(&back, seen_at).len(), 1);
        drop((place.become_known(A), back.become_known(A)));
        assert_eq!(waited_for(&back, seen_at).len(), 1, "the same client's");
        assert!(waited_for(&back, seen_at.saturating_add(WAIT_MAX)).is_empty(), "it has been waited for");
        let number = place.number().expect("a source");
        assert!(locked(&succession.places).left.contains_key(&number), "and is found among many");
    }
}
