//! Starting: settings, workers, and the state that they share.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::Duration,
};

use weir_engine::{JoinHandle, mailbox, sleep, spawn};

use super::{connection, settings::FlagsOriginSettings, state::State};
use crate::server::{self, Origin, Places, WorkerStats};

/// State that every connection of a worker uses.
pub struct Shared {
    /// That of the origin.
    pub state: Arc<State>,
    /// Counts the changes of the state that this worker has learnt of.
    pub epoch: Cell<u64>,
    /// Streams of this worker that wait for the next.
    pub streams: RefCell<Vec<Waker>>,
    /// Deltas and streams exist.
    pub has_deltas: bool,
    /// Between two comments on a stream.
    pub keep_alive: Duration,
    /// Before each reply of the API.
    pub delay: Duration,
    /// Connections of this worker.
    pub connections_max: usize,
    /// Counters of this worker.
    pub stats: Arc<WorkerStats>,
}

impl Shared {
    /// Requests of this worker so far.
    pub fn requests(&self) -> u64 {
        self.stats.requests.load(Ordering::Relaxed)
    }
}

/// Binds and serves. When it returns, clients can connect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for settings out of range; otherwise the address cannot be bound, or a worker's runtime
/// cannot be built.
pub fn start(settings: FlagsOriginSettings) -> io::Result<Origin> {
    settings.check()?;
    let state = Arc::new(State::new(&settings));
    let places =
        Places { bind: &settings.bind, workers: settings.workers, cpus: &settings.cpus, runtime: &settings.runtime };
    server::start(&places, |post| {
        let (state, settings) = (state.clone(), settings.clone());
        move || async move {
            let _housekeeper = server::count_cpu(post.stats.clone());
            let FlagsOriginSettings { has_deltas, keep_alive, delay, connections_max, edit_every, tokens, .. } =
                settings;
            let shared = Rc::new(Shared {
                state,
                epoch: Cell::new(0),
                streams: RefCell::default(),
                has_deltas,
                keep_alive,
                delay,
                connections_max,
                stats: post.stats.clone(),
            });
            let _bell = ring(shared.clone());
            let environment = tokens.into_iter().next().map(|token| token.environment);
            let _editor = edit_every
                .zip(environment)
                .filter(|_| post.id == 0)
                .map(|(every, environment)| edit(shared.state.clone(), every, environment));
            server::accept(&post.listener, post.inbox, &post.stats, |socket| connection::admit(&shared, socket)).await;
        }
    })
}

/// Wakes the streams of this worker after each change.
fn ring(shared: Rc<Shared>) -> JoinHandle<()> {
    let (door, inbox) = mailbox();
    shared.state.subscribe(door);
    spawn(async move {
        loop {
            inbox.receive().await;
            shared.epoch.set(shared.epoch.get() + 1);
            shared.streams.take().into_iter().for_each(Waker::wake);
        }
    })
}

/// Edits an environment again and again.
fn edit(state: Arc<State>, every: Duration, environment: String) -> JoinHandle<()> {
    spawn(async move {
        loop {
            sleep(every).await;
            state.edit(&environment, 1);
        }
    })
}
