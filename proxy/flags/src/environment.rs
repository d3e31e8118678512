//! The flags of an environment as requests read them: a snapshot, and the documents that are made of it once.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU8, Ordering},
    },
};

use bytes::Bytes;
use weir_flags_codec::etag::EntityTag;
use weir_flags_session::{
    Projects, Scope, Snapshot,
    client::Query,
    delta::{Follower, StreamEvent},
};
use weir_http::compression::{Coding, compress};

use crate::limits::{COMPRESS_AT_ONCE_MAX, COMPRESS_MIN, PREFIXES_MAX, QUERIED_SCOPES_MAX, SCOPES_MAX};

/// An immutable state of an environment. Documents are added as they are first wanted.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Empty: the only one of an offline gateway.
    pub(crate) name: Box<str>,
    pub(crate) snapshot: Snapshot,
    /// Those of tokens.
    scopes: RwLock<HashMap<Projects, Arc<ScopeView>>>,
    /// Those that queries name. The next snapshot does not have them.
    queried: RwLock<HashMap<Projects, Arc<ScopeView>>>,
}

/// The part of an environment that tokens of the same projects see.
#[derive(Debug)]
pub(crate) struct ScopeView {
    pub(crate) projects: Projects,
    pub(crate) scope: Scope,
    document: OnceLock<Arc<Document>>,
    prefixed: Mutex<HashMap<Box<str>, Arc<Document>>>,
    /// The first event of a stream whose client has nothing.
    hydration: OnceLock<Bytes>,
    /// The event that leads from a revision to this one.
    update: Mutex<Option<(u64, Bytes)>>,
}

/// A document of `GET /api/client/features`, with the codings that clients have accepted so far.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) tag: EntityTag,
    /// The tag as a field has it.
    pub(crate) tag_text: Box<str>,
    pub(crate) json: Bytes,
    /// In the order of [`Coding::ALL`].
    coded: [OnceLock<Option<Bytes>>; Coding::ALL.len()],
    /// Bits of the codings that a client has wanted.
    wanted: AtomicU8,
}

impl Environment {
    /// The state with the documents that clients of the one `before` had wanted. Takes milliseconds: to be called off the workers.
    pub(crate) fn new(name: &str, snapshot: Snapshot, before: Option<&Self>) -> Self {
        let environment = Self { name: name.into(), snapshot, scopes: RwLock::default(), queried: RwLock::default() };
        let scopes = before.map(|before| read(&before.scopes).values().cloned().collect::<Vec<_>>());
        for old in scopes.into_iter().flatten() {
            let Some(wanted) = old.document.get().map(|document| document.wanted.load(Ordering::Relaxed)) else {
                continue;
            };
            let document = environment.document(&environment.scope(&old.projects), None);
            document.wanted.store(wanted, Ordering::Relaxed);
            document.make_wanted();
        }
        environment
    }

    /// The part that the projects of a token see.
    pub(crate) fn scope(&self, projects: &Projects) -> Arc<ScopeView> {
        self.scope_among(&self.scopes, SCOPES_MAX, projects)
    }

    /// The part that the projects of a query see, which the client may choose.
    pub(crate) fn queried_scope(&self, projects: &Projects) -> Arc<ScopeView> {
        self.scope_among(&self.queried, QUERIED_SCOPES_MAX, projects)
    }

    fn scope_among(
        &self,
        scopes: &RwLock<HashMap<Projects, Arc<ScopeView>>>,
        most: usize,
        projects: &Projects,
    ) -> Arc<ScopeView> {
        if let Some(known) = read(scopes).get(projects) {
            return known.clone();
        }
        let made = Arc::new(ScopeView {
            projects: projects.clone(),
            scope: self.snapshot.scope(projects),
            document: OnceLock::new(),
            prefixed: Mutex::default(),
            hydration: OnceLock::new(),
            update: Mutex::default(),
        });
        let mut scopes = scopes.write().unwrap_or_else(PoisonError::into_inner);
        if scopes.len() < most {
            return scopes.entry(projects.clone()).or_insert(made).clone();
        }
        made
    }

    /// The document of a part, with flags whose names begin with `prefix`.
    pub(crate) fn document(&self, view: &ScopeView, prefix: Option<&str>) -> Arc<Document> {
        let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else {
            return view.document.get_or_init(|| Arc::new(self.make(view, None))).clone();
        };
        if let Some(known) = lock(&view.prefixed).get(prefix) {
            return known.clone();
        }
        let made = Arc::new(self.make(view, Some(prefix)));
        let mut prefixed = lock(&view.prefixed);
        if prefixed.len() < PREFIXES_MAX {
            return prefixed.entry(prefix.into()).or_insert(made).clone();
        }
        made
    }

    fn make(&self, view: &ScopeView, prefix: Option<&str>) -> Document {
        let environment = Some(&*self.name).filter(|name| !name.is_empty());
        let query = Query { projects: &view.projects, environment, name_prefix: prefix };
        let document = self.snapshot.client_document(&view.scope, &query);
        Document {
            tag: document.tag,
            tag_text: document.tag.to_string().into(),
            json: document.json.into(),
            coded: Default::default(),
            wanted: AtomicU8::new(0),
        }
    }

    /// Appends the next event of a stream whose client has a revision. Clients of the same revision share the bytes.
    pub(crate) fn stream_event(
        &self,
        view: &ScopeView,
        prefix: &str,
        event: StreamEvent,
        client: Option<u64>,
    ) -> Option<Bytes> {
        let make = || {
            let follower = Follower { projects: &view.projects, scope: &view.scope, name_prefix: prefix };
            let mut out = Vec::new();
            self.snapshot.stream_event(event, &follower, client, &mut out);
            Bytes::from(out)
        };
        let bytes = match (event, client) {
            (StreamEvent::Connected, None) if prefix.is_empty() => view.hydration.get_or_init(make).clone(),
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

    /// Makes the codings that clients have wanted. Takes milliseconds: to be called off the workers.
    pub(crate) fn make_wanted(&self) {
        let views: Vec<_> = [&self.scopes, &self.queried]
            .iter()
            .flat_map(|it| read(it).values().cloned().collect::<Vec<_>>())
            .collect();
        for view in views {
            let prefixed: Vec<_> = lock(&view.prefixed).values().cloned().collect();
            view.document.get().cloned().into_iter().chain(prefixed).for_each(|document| document.make_wanted());
        }
    }
}

/// The bytes of a document for one client.
pub(crate) struct CodedDocument {
    pub(crate) bytes: Bytes,
    pub(crate) coding: Option<Coding>,
    /// The coding is not there yet: another thread is to make it.
    pub(crate) is_missing: bool,
}

impl Document {
    /// The document in a coding if it is there, else as it is. A short one is compressed at once.
    pub(crate) fn in_coding(&self, coding: Option<Coding>) -> CodedDocument {
        let plain = |is_missing| CodedDocument { bytes: self.json.clone(), coding: None, is_missing };
        let Some(coding) = coding.filter(|_| self.json.len() >= COMPRESS_MIN) else { return plain(false) };
        let at = place(coding);
        if self.json.len() <= COMPRESS_AT_ONCE_MAX {
            self.make(at);
        }
        match self.coded[at].get() {
            Some(Some(bytes)) => CodedDocument { bytes: bytes.clone(), coding: Some(coding), is_missing: false },
            Some(None) => plain(false),
            None => plain(self.wanted.fetch_or(1 << at, Ordering::Relaxed) & 1 << at == 0),
        }
    }

    fn make(&self, at: usize) {
        self.wanted.fetch_or(1 << at, Ordering::Relaxed);
        self.coded[at].get_or_init(|| compress(Coding::ALL[at], &self.json).map(Bytes::from));
    }

    fn make_wanted(&self) {
        let wanted = self.wanted.load(Ordering::Relaxed);
        (0..Coding::ALL.len()).filter(|at| wanted & 1 << at != 0).for_each(|at| self.make(at));
    }
}

fn place(coding: Coding) -> usize {
    Coding::ALL.iter().position(|other| *other == coding).unwrap_or(0)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Each change of what these locks guard is one step, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use weir_flags_codec::FeaturesDocument;
    use weir_flags_session::{FlagState, History};

    use super::*;

    fn environment(before: Option<&Environment>) -> Environment {
        let mut state = FlagState::new(1);
        let document = FeaturesDocument::read(br#"{"features":[{"name":"a"}]}"#).expect("a document");
        state.apply_document(&Projects::All, document).expect("taken");
        Environment::new("e", Snapshot::new(&state, History::new(state.revision()), None), before)
    }

    #[test]
    fn projects_that_clients_name_are_bounded_and_end_with_the_snapshot() {
        let first = environment(None);
        for number in 0..2 * QUERIED_SCOPES_MAX {
            let view = first.queried_scope(&Projects::new(&[format!("project-{number}")]));
            assert!(!first.document(&view, None).json.is_empty());
        }
        first.document(&first.scope(&Projects::All), None);
        assert_eq!(read(&first.queried).len(), QUERIED_SCOPES_MAX);
        let next = environment(Some(&first));
        assert_eq!((read(&next.scopes).len(), read(&next.queried).len()), (1, 0));
    }
}
