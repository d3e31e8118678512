//! All lines of the process: a hub finds its own here, or begins it.

use std::{
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64},
    },
};

use weir_base::time::Time;
use weir_engine::{Mailbox, mailbox};
use weir_upstream::settings::UpstreamSettings;

use super::{FromLine, HubId, ToLine, line::Line};
use crate::{server::PoolKey, service::PostgresUpstream, settings::PostgresUpstreamSettings};

/// The difference of a line from others: who listens where, in which encoding. The settings are part of it: after a reload with others,
/// new clients get a line of their own.
#[derive(Clone, PartialEq)]
pub(crate) struct LineKey {
    pub(crate) pool: PoolKey,
    pub(super) encoding: Option<Box<[u8]>>,
    pub(crate) upstream: UpstreamSettings,
    own: PostgresUpstreamSettings,
}

impl LineKey {
    pub(super) fn new(upstream: &PostgresUpstream, pool: &PoolKey, encoding: Option<Box<[u8]>>) -> Self {
        let own = upstream.protocol().settings().clone();
        Self { pool: pool.clone(), encoding, upstream: upstream.settings().clone(), own }
    }
}

/// A line as operators see it.
pub(crate) struct LineView {
    pub(crate) key: LineKey,
    /// Its number, unique in the process.
    pub(crate) id: u64,
    pub(crate) begun_at: Time,
    /// Its server can be reached.
    pub(crate) is_up: AtomicBool,
    pub(crate) channels: AtomicU32,
    pub(crate) gaps: AtomicU64,
}

struct Entry {
    view: Arc<LineView>,
    to: Mailbox<ToLine>,
}

/// All lines, and the number of the last one.
static LINES: Mutex<(u64, Vec<Entry>)> = Mutex::new((0, Vec::new()));

fn lines() -> MutexGuard<'static, (u64, Vec<Entry>)> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All lines, for operators.
pub(crate) fn views() -> Vec<Arc<LineView>> {
    lines().1.iter().map(|entry| entry.view.clone()).collect()
}

/// The line of `key`, which hub number `hub` joins; this worker begins it if there is none.
pub(super) fn join(
    key: LineKey,
    upstream: &Rc<PostgresUpstream>,
    hub: HubId,
    news: Mailbox<FromLine>,
) -> Mailbox<ToLine> {
    let mut all = lines();
    let known = all.1.iter().find(|entry| entry.view.key == key).map(|entry| entry.to.clone());
    let to = known.unwrap_or_else(|| {
        let (to, inbox) = mailbox();
        all.0 += 1;
        let view = Arc::new(LineView {
            key,
            id: all.0,
            begun_at: weir_base::time::turn::now(),
            is_up: AtomicBool::new(false),
            channels: AtomicU32::new(0),
            gaps: AtomicU64::new(0),
        });
        all.1.push(Entry { view: view.clone(), to: to.clone() });
        weir_engine::spawn(Line::new(view, upstream.clone()).run(inbox)).detach();
        to
    });
    // Under the lock: the line cannot end before it has read this.
    to.send(ToLine::Join(hub, news));
    to
}

/// The line ends if no message is on its way to it: then true.
pub(super) fn leave(view: &Arc<LineView>) -> bool {
    let mut all = lines();
    let is_over = |entry: &Entry| Arc::ptr_eq(&entry.view, view) && entry.to.depth() == 0;
    let before = all.1.len();
    all.1.retain(|entry| !is_over(entry));
    all.1.len() < before
}
