//! The parts of an environment that tokens see, with the documents and events that are made of them.

use std::{
    collections::HashMap,
    ptr,
    sync::{
        Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use weir_flags_session::{Projects, Scope, Snapshot, delta::StreamEvent};

use crate::{
    document::Document,
    flight::Flights,
    limits::{SCOPE_IDLE_MAX, SCOPES_BYTES_MAX, SCOPES_MAX},
    selector::Part,
};

/// The part of an environment that tokens of the same projects see.
#[derive(Debug)]
pub(crate) struct ScopeView {
    pub(crate) projects: Projects,
    pub(crate) scope: Scope,
    pub(super) document: OnceLock<Arc<Document>>,
    /// The first event of a stream that has the whole state.
    pub(super) first_whole: OnceLock<Bytes>,
    /// A later event of a stream that has the whole state.
    pub(super) later_whole: OnceLock<Bytes>,
    /// The last event that was written from a revision to this one, with that revision.
    pub(super) update: ArcSwapOption<(u64, Bytes)>,
    /// The document on its way.
    pub(super) documents: Flights<(), Arc<Document>>,
    /// Documents on their way that queries of its tokens select.
    pub(super) selecting: Flights<Part, Arc<Document>>,
    /// First events of streams on their way that have the whole state. They are apart, since clients choose the keys of the others, and could
    /// leave no room for these.
    pub(super) first_wholes: EventFlights,
    /// Other first events and deltas on their way.
    pub(super) firsts: EventFlights,
    /// Later events on their way. There is always room: a history has fewer revisions than there are places.
    pub(super) updates: EventFlights,
    /// Later events on their way of streams with a beginning of names.
    pub(crate) prefix_updates: EventFlights,
    /// The time of the last request, in milliseconds.
    used: AtomicU64,
    /// Open streams, which move on from one state of the environment to the next.
    streams: Arc<AtomicUsize>,
}

/// Events on their way, by the beginnings of names and the revisions of clients.
pub(crate) type EventFlights = Flights<(Box<str>, Option<u64>), Bytes>;

/// An open stream of a part, until it is dropped.
#[derive(Debug)]
pub(crate) struct Following(Arc<AtomicUsize>);

impl ScopeView {
    /// Without documents and events.
    pub(super) fn new(snapshot: &Snapshot, projects: &Projects, used: u64) -> Self {
        Self {
            projects: projects.clone(),
            scope: snapshot.scope(projects),
            document: OnceLock::new(),
            first_whole: OnceLock::new(),
            later_whole: OnceLock::new(),
            update: ArcSwapOption::empty(),
            documents: Flights::default(),
            selecting: Flights::default(),
            first_wholes: Flights::default(),
            firsts: Flights::default(),
            updates: Flights::default(),
            prefix_updates: Flights::default(),
            used: AtomicU64::new(used),
            streams: Arc::default(),
        }
    }

    /// The same part of the next state, with the same streams.
    pub(super) fn next(&self, snapshot: &Snapshot) -> Self {
        Self { streams: self.streams.clone(), ..Self::new(snapshot, &self.projects, self.last_use()) }
    }

    /// The place of the event that has the whole state.
    pub(super) fn whole(&self, event: StreamEvent) -> &OnceLock<Bytes> {
        match event {
            StreamEvent::Connected => &self.first_whole,
            StreamEvent::Updated => &self.later_whole,
        }
    }

    /// Counts a stream among those of the part.
    pub(crate) fn follow(&self) -> Following {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Following(self.streams.clone())
    }

    /// Whether a stream is open.
    pub(super) fn has_streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing of the part is made ahead: it has no stream, and no request since long. `now` is in milliseconds.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        !self.has_streams() && now.saturating_sub(self.last_use()) >= SCOPE_IDLE_MAX.as_millis() as u64
    }

    fn last_use(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn use_at(&self, now: u64) {
        // Workers that only read share the cache line.
        if self.last_use() != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// Parts in the order in which they are forgotten: those with streams come last.
    fn rank(&self) -> (bool, u64) {
        (self.has_streams(), self.last_use())
    }

    /// Bytes of the document, its codings and the events.
    pub(super) fn bytes(&self) -> usize {
        let document = self.document.get().map_or(0, |document| document.bytes());
        let wholes = [&self.first_whole, &self.later_whole].into_iter().filter_map(OnceLock::get).map(Bytes::len);
        let update = self.update.load().as_ref().map_or(0, |update| update.1.len());
        document + wholes.sum::<usize>() + update
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The parts, bounded in number and in bytes. Nothing is made while its lock is held.
#[derive(Debug, Default)]
pub(super) struct Scopes(RwLock<Kept>);

#[derive(Debug, Default)]
struct Kept {
    views: HashMap<Projects, Counted>,
    /// The sum of those of the parts.
    bytes: usize,
}

#[derive(Debug)]
struct Counted {
    view: Arc<ScopeView>,
    /// Its bytes when they were counted last.
    bytes: usize,
}

impl Scopes {
    pub(super) fn find(&self, projects: &Projects) -> Option<Arc<ScopeView>> {
        self.read().views.get(projects).map(|counted| counted.view.clone())
    }

    pub(super) fn all(&self) -> Vec<Arc<ScopeView>> {
        self.read().views.values().map(|counted| counted.view.clone()).collect()
    }

    /// Adds a part, unless another thread was first. Returns the one that is there.
    pub(super) fn add(&self, made: ScopeView) -> Arc<ScopeView> {
        let mut kept = self.write();
        if let Some(first) = kept.views.get(&made.projects) {
            return first.view.clone();
        }
        if kept.views.len() >= SCOPES_MAX {
            let oldest = kept.views.values().min_by_key(|counted| counted.view.rank());
            let oldest = oldest.map(|counted| counted.view.projects.clone());
            oldest.iter().for_each(|projects| kept.forget(projects));
        }
        let view = Arc::new(made);
        kept.views.insert(view.projects.clone(), Counted { view: view.clone(), bytes: 0 });
        view
    }

    /// Counts the bytes of a part in which something was made, and forgets others until it has room.
    pub(super) fn count(&self, grown: &ScopeView) {
        let mut kept = self.write();
        let Some(counted) = kept.views.get_mut(&grown.projects).filter(|it| ptr::eq(&*it.view, grown)) else {
            // It was forgotten, and ends with its requests.
            return;
        };
        let bytes = grown.bytes();
        let before = std::mem::replace(&mut counted.bytes, bytes);
        kept.bytes = kept.bytes + bytes - before;
        if kept.bytes > SCOPES_BYTES_MAX {
            kept.make_room(grown);
        }
    }

    /// Parts, and the sum of their bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let kept = self.read();
        (kept.views.len(), kept.bytes)
    }

    fn read(&self) -> RwLockReadGuard<'_, Kept> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Kept> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Forgets the parts that were not used for the longest time, and never `latest`.
    fn make_room(&mut self, latest: &ScopeView) {
        let others = self.views.values().filter(|counted| !ptr::eq(&*counted.view, latest));
        let mut others: Vec<_> = others.map(|counted| (counted.view.rank(), counted.view.clone())).collect();
        others.sort_unstable_by_key(|(rank, _)| *rank);
        for (_, view) in others {
            if self.bytes <= SCOPES_BYTES_MAX {
                return;
            }
            self.forget(&view.projects);
        }
    }

    fn forget(&mut self, projects: &Projects) {
        let gone = self.views.remove(projects);
        self.bytes -= gone.map_or(0, |counted| counted.bytes);
    }
}
