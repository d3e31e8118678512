//! The flags of an environment as requests read them: a snapshot, and the documents that are made of it once.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use weir_base::{Time, time::turn};
use weir_flags_session::{
    Projects, Scope, Snapshot,
    client::Query,
    delta::{Follower, StreamEvent},
};

use crate::{
    document::Document,
    limits::{SCOPE_IDLE_MAX, SCOPES_BYTES_MAX, SCOPES_MAX, SELECTED_BYTES_MAX, SELECTED_MAX, WRITE_AT_ONCE_MAX},
    recent::Recent,
    results::Results,
    selector::{Part, Selector},
};

/// An immutable state of an environment. Documents are added as they are first wanted.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Empty: the only one of an offline gateway.
    pub(crate) name: Box<str>,
    pub(crate) snapshot: Snapshot,
    /// The parts that tokens see.
    scopes: RwLock<HashMap<Projects, Arc<ScopeView>>>,
    /// Documents that queries select. The next snapshot does not have them: clients may select any.
    selected: Mutex<Recent<Part, Arc<Document>>>,
    /// Results of evaluations in codings.
    pub(crate) results: Results,
}

/// The part of an environment that tokens of the same projects see.
#[derive(Debug)]
pub(crate) struct ScopeView {
    pub(crate) projects: Projects,
    pub(crate) scope: Scope,
    document: OnceLock<Arc<Document>>,
    /// The events of streams that have the whole state: the first one, and a later one.
    wholes: [OnceLock<Bytes>; 2],
    /// The event that leads from a revision to this one.
    update: Mutex<Option<(u64, Bytes)>>,
    /// The time of the last request, in milliseconds. Zero: there was none.
    used: AtomicU64,
}

impl Environment {
    /// The state, with the documents that clients of the one `before` have wanted of late. Takes milliseconds: to be called off the workers.
    pub(crate) fn new(name: &str, snapshot: Snapshot, before: Option<&Self>) -> Self {
        let environment = Self {
            name: name.into(),
            snapshot,
            scopes: RwLock::default(),
            selected: Mutex::new(Recent::new(SELECTED_MAX, SELECTED_BYTES_MAX)),
            results: Results::default(),
        };
        if let Some(before) = before {
            let now = millis(Time::now());
            let scopes: Vec<_> = read(&before.scopes).values().cloned().collect();
            let used = scopes.into_iter().filter(|old| !is_idle(old.last_use(), now));
            used.for_each(|old| environment.make_ahead(&old, before));
        }
        environment
    }

    /// Makes the document and the event of a part that clients of the snapshot before have wanted.
    fn make_ahead(&self, old: &ScopeView, before: &Self) {
        let view = self.scope_at(&old.projects, old.last_use());
        if let Some(document) = old.document.get() {
            document.hand_codings_to(&self.document(&view));
        }
        let has_streams = old.wholes.iter().any(|event| event.get().is_some()) || lock(&old.update).is_some();
        if has_streams {
            // All streams that wait are at the revision before, and get this event at once.
            self.stream_event(&view, "", StreamEvent::Updated, Some(before.snapshot.revision()));
        }
    }

    /// The part that the projects of a token see.
    pub(crate) fn scope(&self, projects: &Projects) -> Arc<ScopeView> {
        self.scope_at(projects, millis(turn::now()))
    }

    fn scope_at(&self, projects: &Projects, used: u64) -> Arc<ScopeView> {
        if let Some(known) = read(&self.scopes).get(projects) {
            known.use_at(used);
            return known.clone();
        }
        let made = Arc::new(ScopeView {
            projects: projects.clone(),
            scope: self.snapshot.scope(projects),
            document: OnceLock::new(),
            wholes: Default::default(),
            update: Mutex::default(),
            used: AtomicU64::new(used),
        });
        let mut scopes = self.scopes.write().unwrap_or_else(PoisonError::into_inner);
        if scopes.len() >= SCOPES_MAX && !scopes.contains_key(projects) {
            forget_oldest(&mut scopes, projects);
        }
        scopes.entry(projects.clone()).or_insert(made).clone()
    }

    /// The revision for operators: that of the server, or the state's own if the server names none.
    pub(crate) fn shown_revision(&self) -> u64 {
        self.snapshot.upstream_revision().unwrap_or(self.snapshot.revision())
    }

    /// The document of a part. `None`: the thread that made it has panicked.
    pub(crate) async fn own_document(self: &Arc<Self>, view: &Arc<ScopeView>) -> Option<Arc<Document>> {
        if let Some(made) = view.document.get() {
            return Some(made.clone());
        }
        let view = view.clone();
        self.off_worker(move |environment| environment.document(&view)).await
    }

    /// The document of flags of these projects whose names begin so. `None`: the thread that made it has panicked.
    pub(crate) async fn selected_document(
        self: &Arc<Self>,
        projects: &Projects,
        prefix: &str,
    ) -> Option<Arc<Document>> {
        let key: &dyn Selector = &(projects, prefix);
        if let Some(known) = lock(&self.selected).find(key) {
            return Some(known);
        }
        let part = Part { projects: projects.clone(), prefix: prefix.into() };
        self.off_worker(move |environment| environment.select(part)).await
    }

    /// The document of all flags, which is not kept for it. Takes milliseconds: to be called off the workers.
    pub(crate) fn whole_json(&self) -> Bytes {
        let all = read(&self.scopes).get(&Projects::All).and_then(|view| view.document.get().cloned());
        all.map_or_else(|| self.make(&Projects::All, "").json, |document| document.json.clone())
    }

    fn document(&self, view: &ScopeView) -> Arc<Document> {
        let made = view.document.get_or_init(|| Arc::new(self.make(&view.projects, ""))).clone();
        self.make_room_for(view);
        made
    }

    fn select(&self, part: Part) -> Arc<Document> {
        let made = Arc::new(self.make(&part.projects, &part.prefix));
        let bytes = made.json.len();
        lock(&self.selected).keep(part, made, bytes)
    }

    fn make(&self, projects: &Projects, prefix: &str) -> Document {
        let environment = Some(&*self.name).filter(|name| !name.is_empty());
        let name_prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        let query = Query { projects, environment, name_prefix };
        self.snapshot.client_document(&self.snapshot.scope(projects), &query).into()
    }

    /// Does work on another thread, unless the environment is small: then it takes less than a millisecond. `None`: that thread has panicked.
    async fn off_worker<T: Send + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        if self.snapshot.text_bytes() <= WRITE_AT_ONCE_MAX {
            return Some(make(self));
        }
        let environment = self.clone();
        weir_engine::run_blocking(move || make(&environment)).await.ok()
    }

    /// Forgets the parts that were not used for the longest time, until the documents of the others have room. `latest` stays.
    fn make_room_for(&self, latest: &ScopeView) {
        let bytes =
            |scopes: &HashMap<Projects, Arc<ScopeView>>| scopes.values().map(|view| view.bytes()).sum::<usize>();
        if bytes(&read(&self.scopes)) <= SCOPES_BYTES_MAX {
            return;
        }
        let mut scopes = self.scopes.write().unwrap_or_else(PoisonError::into_inner);
        while scopes.len() > 1 && bytes(&scopes) > SCOPES_BYTES_MAX {
            forget_oldest(&mut scopes, &latest.projects);
        }
    }

    /// The changes for a client of `/delta`. `Some(None)`: it lacks none; `None`: the thread that made them has panicked.
    pub(crate) async fn delta(
        self: &Arc<Self>,
        view: &Arc<ScopeView>,
        prefix: &str,
        client: Option<u64>,
    ) -> Option<Option<Bytes>> {
        let (view, prefix) = (view.clone(), prefix.to_owned());
        if prefix.is_empty() && self.snapshot.lacks_everything(client) {
            let make = move |environment: &Self| environment.whole_event(&view, StreamEvent::Connected);
            let event = self.off_worker(make).await?;
            let head = self.snapshot.stream_head(StreamEvent::Connected).len();
            return Some(Some(event.slice(head..event.len() - StreamEvent::END.len())));
        }
        let make = move |environment: &Self| {
            let follower = Follower { projects: &view.projects, scope: &view.scope, name_prefix: &prefix };
            let mut body = Vec::new();
            environment.snapshot.delta(&follower, client, &mut body).then(|| Bytes::from(body))
        };
        self.off_worker(make).await
    }

    /// The first event of a stream whose client has a revision. `None`: the thread that made it has panicked.
    pub(crate) async fn first_event(
        self: &Arc<Self>,
        view: &Arc<ScopeView>,
        prefix: &str,
        client: Option<u64>,
    ) -> Option<Bytes> {
        let (view, prefix) = (view.clone(), prefix.to_owned());
        let make = move |environment: &Self| environment.stream_event(&view, &prefix, StreamEvent::Connected, client);
        Some(self.off_worker(make).await?.unwrap_or_default())
    }

    /// The next event of a stream whose client has a revision. Clients of the same revision share the bytes.
    pub(crate) fn stream_event(
        &self,
        view: &ScopeView,
        prefix: &str,
        event: StreamEvent,
        client: Option<u64>,
    ) -> Option<Bytes> {
        let make = || self.event(view, prefix, event, client);
        let bytes = match (event, client) {
            _ if prefix.is_empty() && self.snapshot.lacks_everything(client) => self.whole_event(view, event),
            (StreamEvent::Updated, Some(revision)) if prefix.is_empty() => {
                let mut update = lock(&view.update);
                match &*update {
                    Some((known, bytes)) if *known == revision => bytes.clone(),
                    _ => update.insert((revision, make())).1.clone(),
                }
            }
            _ => make(),
        };
        (!bytes.is_empty()).then_some(bytes)
    }

    /// An event with the whole state of a part.
    fn whole_event(&self, view: &ScopeView, event: StreamEvent) -> Bytes {
        let place = match event {
            StreamEvent::Connected => &view.wholes[0],
            StreamEvent::Updated => &view.wholes[1],
        };
        if let Some(made) = place.get() {
            return made.clone();
        }
        let made = place.get_or_init(|| self.event(view, "", event, None)).clone();
        self.make_room_for(view);
        made
    }

    fn event(&self, view: &ScopeView, prefix: &str, event: StreamEvent, client: Option<u64>) -> Bytes {
        let follower = Follower { projects: &view.projects, scope: &view.scope, name_prefix: prefix };
        let mut out = Vec::new();
        self.snapshot.stream_event(event, &follower, client, &mut out);
        Bytes::from(out)
    }
}

impl ScopeView {
    /// The time of the last request, in milliseconds.
    fn last_use(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn use_at(&self, now: u64) {
        // Workers that only read share the cache line.
        if self.last_use() != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// Bytes of the document and the events.
    fn bytes(&self) -> usize {
        let document = self.document.get().map_or(0, |document| document.bytes());
        let events = self.wholes.iter().filter_map(OnceLock::get).map(Bytes::len);
        document + events.sum::<usize>() + lock(&self.update).as_ref().map_or(0, |(_, event)| event.len())
    }
}

/// Forgets the part that was not used for the longest time, and never `kept`.
fn forget_oldest(scopes: &mut HashMap<Projects, Arc<ScopeView>>, kept: &Projects) {
    let others = scopes.values().filter(|view| view.projects != *kept);
    let oldest = others.min_by_key(|view| view.last_use()).map(|view| view.projects.clone());
    oldest.and_then(|projects| scopes.remove(&projects));
}

/// Whether a part without a request since then is not made ahead. Both times in milliseconds.
fn is_idle(last_use: u64, now: u64) -> bool {
    now.saturating_sub(last_use) >= SCOPE_IDLE_MAX.as_millis() as u64
}

fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Each change of what these locks guard is one step, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
