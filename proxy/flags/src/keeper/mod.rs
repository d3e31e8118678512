//! The keeper of a listener: it runs on the first worker, fetches flags for all, and sends what clients have counted.
//!
//! | file | concept |
//! |---|---|
//! | `upstream` | requests to the server |
//! | `state` | tokens as the keeper has them, and the publication of its state |
//! | `flags` | the flags of environments as the keeper has them, and their changes |
//! | `tokens` | the validation of tokens |
//! | `poll` | the flags of a token: polls and deltas |
//! | `follow` | the same by a stream |
//! | `publish` | snapshots, compiled off the worker |
//! | `upload` | metrics on their way to the server |
//! | `backup` | copies in a directory, a Redis server or a bucket, and a start from them |
//! | `file` | the flags of an offline gateway |

mod backup;
mod file;
mod flags;
mod follow;
mod poll;
mod publish;
mod state;
mod tokens;
mod upload;
mod upstream;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use weir_base::Rng;
use weir_engine::{JoinHandle, spawn};

use self::state::State;
use crate::{
    edge::{Edge, Signal, seed},
    environment::lock,
    identity,
    settings::{FileSource, FlagSource, FlagsListenerSettings, UpstreamSource},
};

/// The keeper, until it is dropped.
pub(crate) struct Keeper {
    desk: Rc<Desk>,
    /// They end with the keeper.
    _tasks: Vec<JoinHandle<()>>,
}

/// The state that the tasks of a keeper share.
struct Desk {
    edge: Arc<Edge>,
    source: Source,
    http: Rc<weir_http::Service>,
    state: RefCell<State>,
    /// An environment has other flags than its snapshot.
    is_dirty: Signal,
    /// Other tokens are to be polled.
    has_other_sources: Signal,
    /// Another keeper has taken the state: tasks that still run once more change nothing.
    is_over: Cell<bool>,
    connection_id: String,
    hostname: Option<String>,
    rng: RefCell<Rng>,
}

#[derive(Clone)]
enum Source {
    Upstream(UpstreamSource),
    File(FileSource),
}

impl Source {
    /// Whether the state of a keeper with the one holds for a keeper with the other.
    fn shares_state_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Upstream(one), Self::Upstream(other)) => one.is_server_of(other),
            (Self::File(_), Self::File(_)) => true,
            (Self::Upstream(_), Self::File(_)) | (Self::File(_), Self::Upstream(_)) => false,
        }
    }
}

impl Source {
    /// Whether both have their backups in one store.
    fn shares_backup_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Upstream(one), Self::Upstream(other)) => one.backup == other.backup,
            _ => false,
        }
    }
}

impl Keeper {
    /// Begins. `before` is the keeper with the settings that these replace: its flags stay until newer ones are there.
    pub(crate) fn start(
        edge: &Arc<Edge>,
        settings: &FlagsListenerSettings,
        http: &Rc<weir_http::Service>,
        before: Option<Self>,
    ) -> Self {
        lock(&edge.aggregates).set_bytes_max(settings.metrics_bytes_max);
        let source = match &settings.source {
            FlagSource::Upstream(source) => {
                edge.set_app_name(&source.app_name);
                Source::Upstream(source.clone())
            }
            FlagSource::File(source) => Source::File(source.clone()),
        };
        let before = before.map(|keeper| {
            keeper.desk.is_over.set(true);
            (keeper.desk.source.clone(), keeper.desk.state.take())
        });
        let desk = Rc::new(Desk {
            state: RefCell::new(State::new(&source, before, seed())),
            edge: edge.clone(),
            source: source.clone(),
            http: http.clone(),
            is_dirty: Signal::default(),
            has_other_sources: Signal::default(),
            is_over: Cell::new(false),
            connection_id: identity::connection_id(),
            hostname: identity::hostname(),
            rng: RefCell::new(Rng::new(seed())),
        });
        desk.publish();
        edge.want_again();
        let mut tasks = vec![spawn(publish::run(desk.clone()))];
        match source {
            Source::File(source) => tasks.push(spawn(file::run(desk.clone(), source))),
            Source::Upstream(source) => tasks.push(spawn(run_upstream(desk.clone(), source))),
        }
        Self { desk, _tasks: tasks }
    }

    /// The last work at the end of the process: the backup is written if it lacks something, and metrics go out once. Neither waits for the other.
    pub(crate) async fn finish(&self) {
        let Source::Upstream(source) = &self.desk.source else { return };
        let (desk, own) = (self.desk.clone(), source.clone());
        let saving = spawn(async move {
            let is_saved = desk.state.borrow().saved == Some(desk.state.borrow().generation);
            if !is_saved {
                backup::save(&desk, &own).await;
            }
        });
        upload::last(&self.desk, source).await;
        let _ = saving.await;
    }

    /// The keeper's own handle on its last work, which outlives a borrow of the keeper.
    pub(crate) fn finishing(&self) -> impl Future<Output = ()> + 'static {
        let keeper = Self { desk: self.desk.clone(), _tasks: Vec::new() };
        async move { keeper.finish().await }
    }
}

/// Restores the backup, and then runs everything at once.
async fn run_upstream(desk: Rc<Desk>, source: UpstreamSource) {
    let _restoring = backup::restore(&desk, &source).await;
    let _tasks = [
        spawn(tokens::run(desk.clone(), source.clone())),
        spawn(upload::run(desk.clone(), source.clone())),
        spawn(backup::run(desk.clone(), source.clone())),
    ];
    poll::supervise(desk, source).await;
}

#[cfg(test)]
mod tests;
