//! Clients that come back: a new connection is served after what its client left behind on the one before.
//!
//! A client that gives up a request closes its connection and makes a new one, at once, and another worker may get that. What it
//! had sent before may still wait in the kernel then, for a worker that has not looked yet: a write that nobody waits for would
//! be executed after one that was acknowledged. A server with one queue of events does not do that. So each connection of a
//! listener has its [`Place`] among those of its source address. Who enters looks which of them have
//! been closed by their clients, and waits until these are over: everything read, sent and answered, or taken back.
//!
//! It costs nothing on the request path, and a connection whose source has closed none does not wait. The places of a source
//! are under a lock, as its number of connections is.

use std::{
    collections::HashMap,
    future::poll_fn,
    net::IpAddr,
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use weir_base::time::Time;
use weir_engine::net;

/// How long what a client left behind may keep its next connection waiting, counted from its end. Default 1 s: as long as a request
/// waits for a lane. A server that answers is done within a round trip; one that does not would not answer the client either.
pub const WAIT_MAX: Duration = Duration::from_secs(1);

/// Connections of one source that are looked at, the latest. Looking at one takes about 150 ns, so 150 us when there are as
/// many as one source may have by default.
const LOOKED_AT_MAX: usize = 1_024;

/// The connections of one listener by where they come from; Unix sockets are one source.
#[derive(Default)]
pub struct Succession {
    accepting: Mutex<()>,
    sources: Mutex<HashMap<Option<IpAddr>, Vec<Arc<Presence>>>>,
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
    fn note_left(&self, now: Time) {
        // A second look must not prolong it.
        let _ = self.left_at.compare_exchange(0, now.as_nanos().max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Its client has closed it, not too long ago to be waited for.
    fn is_waited_for(&self, now: Time) -> bool {
        let left_at = self.left_at.load(Ordering::Relaxed);
        left_at != 0 && now.since(Time::from_nanos(left_at)) < WAIT_MAX
    }

    fn poll_over(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut end = locked(&self.end);
        if end.is_over {
            return Poll::Ready(());
        }
        end.waiting.push(context.waker().clone());
        Poll::Pending
    }
}

impl Succession {
    /// Accepting is one at a time, from the queue to the place: who is accepted later finds who was before.
    pub fn accepting(&self) -> MutexGuard<'_, ()> {
        locked(&self.accepting)
    }

    /// A place for a connection that was accepted `now`, and those of its source that must be over before it is served. The place
    /// goes before the socket is closed.
    pub fn enter(self: &Arc<Self>, source: Option<IpAddr>, socket: &impl AsRawFd, now: Time) -> (Place, Predecessors) {
        let presence =
            Arc::new(Presence { socket: socket.as_raw_fd(), left_at: AtomicU64::new(0), end: Mutex::default() });
        let mut sources = locked(&self.sources);
        let here = sources.entry(source).or_default();
        let latest = &here[here.len().saturating_sub(LOOKED_AT_MAX)..];
        let predecessors = Predecessors(left(latest, now));
        here.push(presence.clone());
        drop(sources);
        (Place { succession: self.clone(), source, presence }, predecessors)
    }
}

/// Those of `present` whose clients have closed them.
fn left(present: &[Arc<Presence>], now: Time) -> Vec<Arc<Presence>> {
    let unknown: Vec<_> = present.iter().filter(|one| one.left_at.load(Ordering::Relaxed) == 0).collect();
    let sockets: Vec<_> = unknown.iter().map(|one| one.socket).collect();
    for (one, has_hung_up) in unknown.iter().zip(net::hung_up(&sockets)) {
        if has_hung_up {
            one.note_left(now);
        }
    }
    present.iter().filter(|one| one.is_waited_for(now)).cloned().collect()
}

/// A connection's place among those of its source; dropped when nothing that its client sent can take effect any more.
pub struct Place {
    succession: Arc<Succession>,
    source: Option<IpAddr>,
    presence: Arc<Presence>,
}

impl Place {
    /// The client has closed its side, or the connection is broken; what it sent may still be under way.
    pub fn note_left(&self, now: Time) {
        self.presence.note_left(now);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sources = locked(&self.succession.sources);
        if let Some(here) = sources.get_mut(&self.source) {
            here.retain(|one| !Arc::ptr_eq(one, &self.presence));
            if here.is_empty() {
                sources.remove(&self.source);
            }
        }
        drop(sources);
        let mut end = locked(&self.presence.end);
        end.is_over = true;
        let waiting = std::mem::take(&mut end.waiting);
        drop(end);
        waiting.into_iter().for_each(weir_engine::wake_elsewhere);
    }
}

/// Connections that their client has left, and that are not over.
pub struct Predecessors(Vec<Arc<Presence>>);

impl Predecessors {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until they are over, at most until `WAIT_MAX` after their clients left.
    pub async fn over(self) {
        let left = |one: &Arc<Presence>| Time::from_nanos(one.left_at.load(Ordering::Relaxed));
        let Some(last) = self.0.iter().map(left).max() else { return };
        let rest = WAIT_MAX.saturating_sub(Time::now().since(last));
        let all = async {
            for one in &self.0 {
                poll_fn(|context| one.poll_over(context)).await;
            }
        };
        let _ = weir_engine::timeout(rest, all).await;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    const A: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    const B: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        (client, listener.accept().expect("accepted").0)
    }

    #[test]
    fn who_comes_back_waits_for_what_was_closed_and_for_nothing_else() {
        let (succession, now) = (Arc::new(Succession::default()), Time::from_nanos(1));
        let (first, second, third) = (pair(), pair(), pair());
        let (first_place, none) = succession.enter(A, &first.1, now);
        assert!(none.is_empty());
        let (_open, none) = succession.enter(A, &second.1, now);
        assert!(none.is_empty(), "the client of the first is still there");
        drop(first.0);
        let (_other, none) = succession.enter(B, &third.1, now);
        assert!(none.is_empty(), "another source");
        let (_back, predecessors) = succession.enter(A, &third.1, now);
        assert_eq!(predecessors.0.len(), 1);
        let is_over = || {
            let mut context = Context::from_waker(Waker::noop());
            predecessors.0[0].poll_over(&mut context).is_ready()
        };
        assert!(!is_over());
        drop(first_place);
        assert!(is_over());
        let (_third, none) = succession.enter(A, &third.1, now);
        assert!(none.is_empty(), "it is over");
    }

    #[test]
    fn what_takes_too_long_is_not_waited_for_and_every_place_is_given_back() {
        let succession = Arc::new(Succession::default());
        let (client, server) = pair();
        let (place, _) = succession.enter(None, &server, Time::ZERO);
        place.note_left(Time::from_nanos(1));
        let late = Time::from_nanos(1).saturating_add(WAIT_MAX);
        let (second, none) = succession.enter(None, &client, late);
        assert!(none.is_empty());
        drop((place, second));
        assert!(locked(&succession.sources).is_empty());
    }
}
