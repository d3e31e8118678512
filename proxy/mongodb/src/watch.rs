//! The knowledge of all workers about one server: the one that looks at it writes, the others read.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU8, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Poll, Waker},
};

use weir_base::time::Time;
use weir_engine::wake_elsewhere;
use weir_mongodb_session::{pins::ServerId, server_hello::ServerHello};
use weir_upstream::pooled::Fitness;

/// The number of the next server of the process. 0 stands for none.
static NEXT_SERVER: AtomicU32 = AtomicU32::new(1);

/// Facts of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Its last reply to hello. `None`: it has never replied.
    pub(crate) hello: Option<Arc<ServerHello>>,
    /// It replied to the last look.
    pub(crate) is_reachable: bool,
    /// When that reply came.
    pub(crate) seen_at: Time,
    /// The first look at it is over.
    pub(crate) is_looked_at: bool,
    /// It has refused a command since, as it is no primary any more.
    pub(crate) is_doubted: bool,
}

/// See above.
#[derive(Default)]
pub struct ServerWatch {
    fitness: AtomicU8,
    /// See [`ServerId`].
    id: AtomicU32,
    is_doubted: AtomicBool,
    /// Doubts so far.
    doubts: AtomicU64,
    is_primary: AtomicBool,
    /// Grows with each look and each doubt.
    changes: AtomicU64,
    standing: Mutex<Standing>,
    call: Mutex<Call>,
}

/// A look at the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Doubts when it began. The server may have said hello before a later one.
    doubts: u64,
    /// It needed a fresh connection.
    pub(crate) is_fresh: bool,
}

/// A session has seen something that a look may explain.
#[derive(Default)]
struct Call {
    is_due: bool,
    waker: Option<Waker>,
}

const FIT: u8 = 1;

impl ServerWatch {
    /// A session has lost a connection to the server: a look is due at once.
    pub(crate) fn suspect(&self) {
        let waker = {
            let mut call = lock(&self.call);
            call.is_due = true;
            call.waker.take()
        };
        waker.into_iter().for_each(wake_elsewhere);
    }

    /// The server has refused a command because it is no primary, or not for long: it gets no write before the next look.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, SeqCst);
        if !self.is_doubted.swap(true, Relaxed) {
            self.changes.fetch_add(1, Relaxed);
        }
        self.suspect();
    }

    /// Ready once a look is due.
    pub(crate) async fn called(&self) {
        poll_fn(|context| {
            let mut call = lock(&self.call);
            if std::mem::take(&mut call.is_due) {
                return Poll::Ready(());
            }
            call.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether the server takes connections.
    pub(crate) fn fitness(&self) -> Fitness {
        if self.fitness.load(Relaxed) == FIT { Fitness::Fit } else { Fitness::Unfit }
    }

    /// Sets that; true: it was otherwise.
    pub(crate) fn set_fitness(&self, fitness: Fitness) -> bool {
        let byte = u8::from(fitness == Fitness::Fit) * FIT;
        self.fitness.swap(byte, Relaxed) != byte
    }

    /// The server is the primary of its set, or is none; true: it was otherwise.
    pub(crate) fn set_primary(&self, is_primary: bool) -> bool {
        self.is_primary.swap(is_primary, Relaxed) != is_primary
    }

    /// The server by its number. A process that starts again at the same address is another one.
    pub(crate) fn id(&self) -> ServerId {
        let known = self.id.load(Relaxed);
        if known != 0 {
            return ServerId(known);
        }
        let made = NEXT_SERVER.fetch_add(1, Relaxed);
        match self.id.compare_exchange(0, made, Relaxed, Relaxed) {
            Ok(_) => ServerId(made),
            Err(other) => ServerId(other),
        }
    }

    /// The last look has found another process than this one. False where either names none: nothing shows it.
    pub(crate) fn is_other(&self, process: Option<[u8; 12]>) -> bool {
        let standing = lock(&self.standing);
        let known = standing.hello.as_deref().and_then(crate::server::process);
        known.zip(process).is_some_and(|(known, process)| known != process)
    }

    /// A number that grows with each change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// The facts.
    pub(crate) fn standing(&self) -> Standing {
        Standing { is_doubted: self.is_doubted.load(Relaxed), ..lock(&self.standing).clone() }
    }

    /// A look begins.
    pub(crate) fn begin_look(&self) -> Look {
        Look { doubts: self.doubts.load(SeqCst), is_fresh: false }
    }

    /// A look is over; `None`: the server gave no reply. True: it is another server now, and connections to the one before serve no client.
    pub(crate) fn note(&self, look: Look, hello: Option<ServerHello>, now: Time) -> bool {
        let mut standing = lock(&self.standing);
        let (was_reachable, mut is_new) = (standing.is_reachable, false);
        standing.is_looked_at = true;
        standing.is_reachable = hello.is_some();
        if let Some(hello) = hello {
            is_new = standing.hello.as_deref().is_some_and(|before| {
                match (crate::server::process(before), crate::server::process(&hello)) {
                    (Some(before), Some(now)) => before != now,
                    // A process that does not name itself may be another one behind a break.
                    _ => look.is_fresh || !was_reachable,
                }
            });
            if is_new {
                self.id.store(NEXT_SERVER.fetch_add(1, Relaxed), Relaxed);
            }
            if self.doubts.load(SeqCst) == look.doubts {
                self.is_doubted.store(false, Relaxed);
            }
            (standing.hello, standing.seen_at) = (Some(Arc::new(hello)), now);
        }
        drop(standing);
        self.changes.fetch_add(1, Relaxed);
        is_new
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use weir_mongodb_session::face::TopologyVersion;

    use super::*;

    fn hello(run: u8) -> ServerHello {
        let topology = Some(TopologyVersion { process_id: [run; 12], counter: 0 });
        ServerHello { topology, ..ServerHello::default() }
    }

    fn note(watch: &ServerWatch, hello: Option<ServerHello>) {
        watch.note(watch.begin_look(), hello, Time::ZERO);
    }

    #[test]
    fn a_server_that_starts_again_is_another_one() {
        let watch = ServerWatch::default();
        let first = watch.id();
        note(&watch, Some(hello(1)));
        note(&watch, None);
        note(&watch, Some(hello(1)));
        assert_eq!(watch.id(), first, "its connections broke, and it is the same process");
        note(&watch, Some(hello(2)));
        assert_ne!(watch.id(), first);
    }

    #[test]
    fn one_endpoint_is_one_process() {
        let watch = ServerWatch::default();
        let of = |run: u8| Some([run; 12]);
        assert!(!watch.is_other(of(1)), "none has been found yet");
        note(&watch, Some(hello(1)));
        assert!(watch.is_other(of(2)) && !watch.is_other(of(1)) && !watch.is_other(None));
        note(&watch, None);
        assert!(watch.is_other(of(2)), "no look has found it");
        assert!(watch.note(watch.begin_look(), Some(hello(2)), Time::ZERO), "it has started again");
        assert!(watch.is_other(of(1)) && !watch.is_other(of(2)));
        assert!(!watch.note(watch.begin_look(), Some(hello(2)), Time::ZERO));
        note(&watch, Some(ServerHello::default()));
        assert!(!watch.is_other(of(1)), "it names none");
    }

    #[test]
    fn a_server_that_does_not_name_its_process_is_another_one_behind_a_break() {
        let watch = ServerWatch::default();
        let first = watch.id();
        let nameless = || Some(ServerHello::default());
        let fresh = || Look { is_fresh: true, ..watch.begin_look() };
        watch.note(fresh(), nameless(), Time::ZERO);
        note(&watch, nameless());
        assert_eq!(watch.id(), first);
        watch.note(fresh(), nameless(), Time::ZERO);
        let second = watch.id();
        assert_ne!(second, first, "it has closed the connection");
        note(&watch, None);
        note(&watch, nameless());
        assert_ne!(watch.id(), second, "it was away");
    }

    #[test]
    fn a_doubt_holds_until_a_reply_to_a_later_look() {
        let watch = ServerWatch::default();
        note(&watch, Some(hello(1)));
        let before = watch.changes();
        let early = watch.begin_look();
        watch.doubt();
        watch.doubt();
        assert_eq!((watch.changes(), watch.standing().is_doubted), (before + 1, true));
        watch.note(early, Some(hello(1)), Time::ZERO);
        assert!(watch.standing().is_doubted, "the server has said so before it stepped down");
        note(&watch, None);
        assert!(watch.standing().is_doubted, "no reply says nothing");
        note(&watch, Some(hello(1)));
        assert!(!watch.standing().is_doubted);
    }
}
