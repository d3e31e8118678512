//! The flags of an environment as requests read them: a snapshot, and the documents that are made of it once.
//!
//! `scopes` has the parts that tokens see, with what was made of them.

mod scopes;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use weir_base::{Time, time::turn};
use weir_flags_codec::etag::EntityTag;
use weir_flags_session::{
    Projects, Snapshot,
    client::Query,
    delta::{Follower, StreamEvent},
};
use weir_http::compression::Coding;

use self::scopes::Scopes;
pub(crate) use self::scopes::{Following, ScopeView};
use crate::{
    document::Document,
    flight::{Flights, NotMade},
    limits::{SELECTED_BYTES_MAX, SELECTED_MAX, WRITE_AT_ONCE_MAX},
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
    scopes: Scopes,
    /// Documents that queries select. The next snapshot does not have them: clients may select any.
    selected: Mutex<Recent<Part, Arc<Document>>>,
    /// Codings on their way, by the tags of their documents.
    codings: Flights<(EntityTag, Coding), ()>,
    /// Results of evaluations in codings.
    pub(crate) results: Results,
}

impl Environment {
    /// The state, with the documents and events that clients of the one `before` wait for or have wanted of late. Takes milliseconds: to be called
    /// off the workers.
    pub(crate) fn new(name: &str, snapshot: Snapshot, before: Option<&Self>, now: Time) -> Self {
        let environment = Self {
            name: name.into(),
            snapshot,
            scopes: Scopes::default(),
            selected: Mutex::new(Recent::new(SELECTED_MAX, SELECTED_BYTES_MAX)),
            codings: Flights::default(),
            results: Results::default(),
        };
        if let Some(before) = before {
            let parts = before.scopes.all().into_iter().filter(|old| !old.is_idle(millis(now)));
            parts.for_each(|old| environment.make_ahead(&old, before));
        }
        environment
    }

    /// Makes the document that clients of the snapshot before have wanted of a part, and the event that its streams wait for.
    fn make_ahead(&self, old: &ScopeView, before: &Self) {
        let view = self.scopes.add(old.next(&self.snapshot));
        if let Some(document) = old.document.get() {
            document.hand_codings_to(&self.document(&view));
            self.scopes.count(&view);
        }
        if old.has_streams() {
            // All streams that wait are at the revision before, and get this event at once.
            self.make_event(&view, "", StreamEvent::Updated, Some(before.snapshot.revision()));
        }
    }

    /// The part that the projects of a token see.
    pub(crate) fn scope(&self, projects: &Projects) -> Arc<ScopeView> {
        self.scope_at(projects, millis(turn::now()))
    }

    fn scope_at(&self, projects: &Projects, used: u64) -> Arc<ScopeView> {
        if let Some(known) = self.scopes.find(projects) {
            known.use_at(used);
            return known;
        }
        self.scopes.add(ScopeView::new(&self.snapshot, projects, used))
    }

    /// The revision for operators: that of the server, or the state's own if the server names none.
    pub(crate) fn shown_revision(&self) -> u64 {
        self.snapshot.upstream_revision().unwrap_or(self.snapshot.revision())
    }

    /// The document of a part. `None`: there is no room to make it, or the thread that made it
    /// has panicked.
    pub(crate) async fn own_document(self: &Arc<Self>, view: &Arc<ScopeView>) -> Option<Arc<Document>> {
        let find = || view.document.get().cloned();
        if let Some(made) = find() {
            return Some(made);
        }
        if self.is_small() {
            return Some(self.document(view));
        }
        let (environment, own) = (self.clone(), view.clone());
        view.documents.join((), find, move || environment.document(&own)).await.ok()
    }

    /// The document of the flags whose names begin so, in these projects, which `view` has all. `None`: there is no room to make it,
    /// or the thread that made it has panicked.
    pub(crate) async fn selected_document(
        self: &Arc<Self>,
        view: &ScopeView,
        projects: &Projects,
        prefix: &str,
    ) -> Option<Arc<Document>> {
        let find = || lock(&self.selected).find::<dyn Selector>(&(projects, prefix));
        if let Some(made) = find() {
            return Some(made);
        }
        let part = Part { projects: projects.clone(), prefix: prefix.into() };
        if self.is_small() {
            return Some(self.select(part));
        }
        let (environment, wanted) = (self.clone(), part.clone());
        view.selecting.join(part, find, move || environment.select(wanted)).await.ok()
    }

    /// A document in a coding if it is there, else as it is, with its coding. Codings that take longer are made on another thread.
    pub(crate) fn in_coding(
        self: &Arc<Self>,
        view: &Arc<ScopeView>,
        document: &Arc<Document>,
        coding: Option<Coding>,
    ) -> (Bytes, Option<Coding>) {
        let coded = document.in_coding(coding);
        if coded.is_new {
            self.scopes.count(view);
        }
        if let Some(coding) = coding.filter(|_| coded.is_missing) {
            let (environment, view, wanted) = (self.clone(), view.clone(), document.clone());
            let make = move || {
                wanted.make_wanted();
                environment.scopes.count(&view);
            };
            let (codings, document) = (self.codings.clone(), document.clone());
            weir_engine::spawn(async move {
                // Without room responses stay as they are. The work under way may be that of an equal document that has lost its place.
                let _ = codings.join((document.tag, coding), || None, make).await;
                document.forget_unless_made(coding);
            })
            .detach();
        }
        (coded.bytes, coded.coding)
    }

    /// The document of all flags, which is not kept for it. Takes milliseconds: to be called off the workers.
    pub(crate) fn whole_json(&self) -> Bytes {
        let all = self.scopes.find(&Projects::All).and_then(|view| view.document.get().cloned());
        all.map_or_else(|| self.make(&Projects::All, "").json, |document| document.json.clone())
    }

    fn document(&self, view: &ScopeView) -> Arc<Document> {
        let made = view.document.get_or_init(|| Arc::new(self.make(&view.projects, ""))).clone();
        self.scopes.count(view);
        made
    }

    fn select(&self, part: Part) -> Arc<Document> {
        let made = Arc::new(self.make(&part.projects, &part.prefix));
        let bytes = made.json.len() + part.bytes();
        lock(&self.selected).keep(part, made, bytes)
    }

    fn make(&self, projects: &Projects, prefix: &str) -> Document {
        let environment = Some(&*self.name).filter(|name| !name.is_empty());
        let name_prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        let query = Query { projects, environment, name_prefix };
        self.snapshot.client_document(&self.snapshot.scope(projects), &query).into()
    }

    /// Whether a worker writes all flags itself: that takes less than a millisecond.
    fn is_small(&self) -> bool {
        self.snapshot.text_bytes() <= WRITE_AT_ONCE_MAX
    }

    /// The changes for a client of `/delta`. `Some(None)`: it lacks none; `None`: there is no room to make them, or the thread that made them has
    /// panicked.
    pub(crate) async fn delta(
        self: &Arc<Self>,
        view: &Arc<ScopeView>,
        prefix: &str,
        client: Option<u64>,
    ) -> Option<Option<Bytes>> {
        if self.snapshot.lacks_everything(client) || self.is_long(view, prefix, client) {
            let event = self.first_event(view, prefix, client).await?;
            let head = self.snapshot.stream_head(StreamEvent::Connected).len();
            let body = event.slice(head..event.len() - StreamEvent::END.len());
            return Some(Some(body).filter(|body| **body != *StreamEvent::NO_NEWS.as_bytes()));
        }
        let mut body = Vec::new();
        Some(self.snapshot.delta(&follower(view, prefix), client, &mut body).then(|| Bytes::from(body)))
    }

    /// The first event of a stream whose client has a revision. `None`: there is no room to make it, or the thread that made it has panicked.
    pub(crate) async fn first_event(
        self: &Arc<Self>,
        view: &Arc<ScopeView>,
        prefix: &str,
        client: Option<u64>,
    ) -> Option<Bytes> {
        match self.event_at_once(view, prefix, StreamEvent::Connected, client) {
            Some(event) => Some(event),
            None => self.event_elsewhere(view, prefix, StreamEvent::Connected, client).await.ok(),
        }
    }

    /// An event of a stream whose client has a revision, if it is there or a worker writes it itself. Empty: nothing is new for the client. `None`:
    /// it takes longer.
    pub(crate) fn event_at_once(
        &self,
        view: &ScopeView,
        prefix: &str,
        event: StreamEvent,
        client: Option<u64>,
    ) -> Option<Bytes> {
        let kept = self.kept(view, prefix, event, client);
        kept.or_else(|| (!self.is_long(view, prefix, client)).then(|| self.make_event(view, prefix, event, client)))
    }

    /// The same, made on another thread, once for all who want it at the same time.
    pub(crate) async fn event_elsewhere(
        self: &Arc<Self>,
        view: &Arc<ScopeView>,
        prefix: &str,
        event: StreamEvent,
        client: Option<u64>,
    ) -> Result<Bytes, NotMade> {
        // All who lack everything get the same.
        let client = client.filter(|_| !self.snapshot.lacks_everything(client));
        let flights = match (event, client) {
            (StreamEvent::Connected, None) if prefix.is_empty() => &view.first_wholes,
            (StreamEvent::Connected, _) => &view.firsts,
            (StreamEvent::Updated, _) if prefix.is_empty() => &view.updates,
            (StreamEvent::Updated, _) => &view.prefix_updates,
        };
        let find = || self.kept(view, prefix, event, client);
        let (environment, own, beginning) = (self.clone(), view.clone(), Box::<str>::from(prefix));
        let key = (beginning.clone(), client);
        flights.join(key, find, move || environment.make_event(&own, &beginning, event, client)).await
    }

    /// Whether a client of a revision lacks more than a worker writes itself.
    fn is_long(&self, view: &ScopeView, prefix: &str, client: Option<u64>) -> bool {
        match self.snapshot.lacks_everything(client) {
            true => !self.is_small(),
            false => self.snapshot.change_bytes(&follower(view, prefix), client) > WRITE_AT_ONCE_MAX,
        }
    }

    /// An event that was made before.
    fn kept(&self, view: &ScopeView, prefix: &str, event: StreamEvent, client: Option<u64>) -> Option<Bytes> {
        match (event, client) {
            _ if !prefix.is_empty() => None,
            _ if self.snapshot.lacks_everything(client) => view.whole(event).get().cloned(),
            (StreamEvent::Updated, Some(revision)) => {
                view.update.load().as_deref().filter(|(known, _)| *known == revision).map(|(_, event)| event.clone())
            }
            (StreamEvent::Connected | StreamEvent::Updated, _) => None,
        }
    }

    /// Writes an event, and keeps it where [`Self::kept`] finds it. Two threads may write it at once: none waits for the other.
    fn make_event(&self, view: &ScopeView, prefix: &str, event: StreamEvent, client: Option<u64>) -> Bytes {
        let mut out = Vec::new();
        self.snapshot.stream_event(event, &follower(view, prefix), client, &mut out);
        let made = Bytes::from(out);
        let made = match (event, client) {
            _ if !prefix.is_empty() => return made,
            _ if self.snapshot.lacks_everything(client) => view.whole(event).get_or_init(|| made).clone(),
            (StreamEvent::Updated, Some(revision)) => {
                view.update.store(Some(Arc::new((revision, made.clone()))));
                made
            }
            (StreamEvent::Connected | StreamEvent::Updated, _) => return made,
        };
        self.scopes.count(view);
        made
    }
}

fn follower<'a>(view: &'a ScopeView, name_prefix: &'a str) -> Follower<'a> {
    Follower { projects: &view.projects, scope: &view.scope, name_prefix }
}

fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Each change of what these locks guard is one step, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests;
