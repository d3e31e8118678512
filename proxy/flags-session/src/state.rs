//! The flags of an environment, from documents and events of an upstream.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use weir_flags_codec::{DeltaChange, DeltaEvent, FeatureText, FeaturesDocument, SegmentText};

use crate::projects::Projects;

/// The flags and segments of one environment.
///
/// Several tokens may feed it, each with the part that it sees: its scope. A flag that a document of its scope lacks is gone. Each change raises the
/// revision and leads to events, whatever it came from, so clients may follow a gateway that polls.
///
/// A revision names one state in all gateways. That of the upstream does so only if the upstream's own events from one token make up the state.
/// Documents of several tokens are merged in the order in which they come, so another gateway may have other flags at the same revision of the
/// upstream. Such a state has a revision of this process' own.
#[derive(Clone, Debug)]
pub struct FlagState {
    /// The next revision of this process' own.
    next_own: u64,
    /// The last revision that is one of the upstream.
    last_named: u64,
    revision: u64,
    version: u32,
    features: BTreeMap<Arc<str>, FeatureText>,
    /// In the order of their last documents: of equal segments the last counts.
    scopes: Vec<ScopeState>,
    /// A scope has gone whose flags may have stayed.
    may_have_unseen: bool,
    meta: Option<Arc<str>>,
}

/// The part of an environment that one token sees.
#[derive(Clone, Debug)]
struct ScopeState {
    projects: Projects,
    /// The last revision that the upstream has named.
    upstream_revision: Option<u64>,
    segments: BTreeMap<i64, SegmentText>,
    /// It is of a backup, until the upstream's first response for any scope.
    is_restored: bool,
}

/// A response of the upstream that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It has no flags, and the one of the same revision before it has some.
    SuddenlyEmpty,
    /// An event is older than one before it: the whole state is to be fetched again.
    OutOfOrder,
    /// An event without a state before it: the whole state is to be fetched first.
    NoState,
}

/// The first revision of a process' own, from a random number. It has 31 bits, as SDKs and other edges read it: two processes with a thousand
/// changes each have one in common with a probability of one in a million. Servers that count from 1 do not reach it.
pub const fn first_own_revision(random: u64) -> u64 {
    const FIRST: u64 = 1 << 30;
    FIRST | (random & (FIRST - 1))
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SuddenlyEmpty => "the upstream's flags are gone without a new revision; the last ones stay",
            Self::OutOfOrder => "an event of the upstream is older than one before it; the state is fetched again",
            Self::NoState => "the upstream's first event has no state; the state is fetched",
        })
    }
}

impl std::error::Error for Refused {}

impl FlagState {
    /// An environment without flags. `first_own` is the first of the revisions that no other process has: see [`first_own_revision`].
    pub const fn new(first_own: u64) -> Self {
        Self {
            next_own: first_own,
            last_named: 0,
            revision: 0,
            version: 2,
            features: BTreeMap::new(),
            scopes: Vec::new(),
            may_have_unseen: false,
            meta: None,
        }
    }

    /// The revision: 0 before the first document.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The version of the form of documents.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The object `meta` of the newest document.
    pub const fn meta(&self) -> Option<&Arc<str>> {
        self.meta.as_ref()
    }

    /// The flags in the order of their names.
    pub fn features(&self) -> impl Iterator<Item = &FeatureText> {
        self.features.values()
    }

    /// The segments in the order of their numbers.
    pub fn segments(&self) -> BTreeMap<i64, SegmentText> {
        let all = self.scopes.iter().flat_map(|scope| scope.segments.iter());
        all.map(|(id, segment)| (*id, segment.clone())).collect()
    }

    /// The newest revision that the upstream has named for any scope.
    pub fn newest_upstream_revision(&self) -> Option<u64> {
        self.scopes.iter().filter_map(|it| it.upstream_revision).max()
    }

    /// The last revision that the upstream has named for a scope: `Last-Event-ID` of the next connection, or `If-None-Match` of a delta. A
    /// state of a backup has none: the whole state is to be fetched first.
    pub fn upstream_revision(&self, scope: &Projects) -> Option<u64> {
        self.scopes.iter().find(|it| it.projects == *scope && !it.is_restored)?.upstream_revision
    }

    /// Takes a saved state of all projects. The first response of the upstream replaces its segments, and its flags within the scope of
    /// the response.
    ///
    /// # Errors
    /// The document is refused, and the state stays.
    pub fn restore(&mut self, document: FeaturesDocument) -> Result<Vec<DeltaEvent>, Refused> {
        let events = self.apply_document(&Projects::All, document)?;
        self.scopes.iter_mut().for_each(|it| it.is_restored = true);
        Ok(events)
    }

    /// Takes the whole state of a scope. The events lead from the state before to this one.
    ///
    /// # Errors
    /// The document is refused, and the state stays.
    pub fn apply_document(&mut self, scope: &Projects, document: FeaturesDocument) -> Result<Vec<DeltaEvent>, Refused> {
        let before = self.scopes.iter().find(|it| it.projects == *scope);
        let is_same_revision =
            before.is_some_and(|it| it.upstream_revision.is_some() && it.upstream_revision == document.revision);
        if document.features.is_empty() && is_same_revision && self.features.values().any(|it| scope.has(&it.project)) {
            return Err(Refused::SuddenlyEmpty);
        }
        self.version = document.version.max(1);
        self.meta = document.meta.or(self.meta.take());
        Ok(self.change(None, |state, changes| {
            state.replace(scope, document.revision, document.features, document.segments, changes);
        }))
    }

    /// Takes changes of a scope, in the order of their revisions. Kinds that are not known change nothing. `is_only_source`: no other token feeds
    /// the environment, so the revisions of the upstream name the states.
    ///
    /// # Errors
    /// An event is refused, and the state stays.
    pub fn apply_events(
        &mut self,
        scope: &Projects,
        events: Vec<DeltaEvent>,
        is_only_source: bool,
    ) -> Result<Vec<DeltaEvent>, Refused> {
        let mut last = self.upstream_revision(scope);
        for event in &events {
            let is_whole = matches!(event.change, DeltaChange::Hydration { .. });
            match last {
                _ if is_whole => {}
                None => return Err(Refused::NoState),
                Some(last) if event.id < last => return Err(Refused::OutOfOrder),
                Some(_) => {}
            }
            last = Some(event.id);
        }
        Ok(self.change(last.filter(|_| is_only_source), |state, changes| {
            for event in events {
                state.apply(scope, event, changes);
            }
        }))
    }

    /// Forgets flags and segments that none of these scopes sees: their tokens alone feed the environment now. Each scope must have its own
    /// state, because the flags of one that is still to come may be those of a token that is gone; otherwise nothing changes. The events lead
    /// from the state before to this one.
    pub fn keep_scopes(&mut self, scopes: &[&Projects]) -> Vec<DeltaEvent> {
        if !self.has_unseen(scopes) {
            return Vec::new();
        }
        self.may_have_unseen = false;
        self.change(None, |state, changes| {
            let before = state.segments();
            state.scopes.retain(|it| scopes.contains(&&it.projects));
            state.compare_segments(&before, changes);
            let is_unseen = |it: &&FeatureText| !scopes.iter().any(|scope| scope.has(&it.project));
            let gone: Vec<Arc<str>> = state.features.values().filter(is_unseen).map(|it| it.name.clone()).collect();
            gone.iter().for_each(|name| state.remove(name, changes));
        })
    }

    /// Whether there may be flags that no token sees. `is_polled` says whether a token has a scope. A cheap look in front of [`Self::has_unseen`],
    /// which wants to know the scopes of all tokens.
    pub fn has_scopes_besides(&self, is_polled: impl Fn(&Projects) -> bool) -> bool {
        self.may_have_unseen || self.scopes.iter().any(|it| !is_polled(&it.projects))
    }

    /// Whether [`Self::keep_scopes`] may forget something.
    pub fn has_unseen(&self, scopes: &[&Projects]) -> bool {
        let is_there = |scope: &&Projects| self.scopes.iter().any(|it| it.projects == **scope && !it.is_restored);
        self.has_scopes_besides(|scope| scopes.contains(&scope)) && !scopes.is_empty() && scopes.iter().all(is_there)
    }

    fn apply(&mut self, scope: &Projects, event: DeltaEvent, changes: &mut Vec<DeltaChange>) {
        match event.change {
            DeltaChange::Hydration { features, segments } => {
                return self.replace(scope, Some(event.id), features, segments, changes);
            }
            DeltaChange::FeatureUpdated(feature) => self.put(feature, changes),
            // A flag that has moved is gone from its former project alone, whichever of the two events comes first.
            DeltaChange::FeatureRemoved { name, project } => {
                if self.features.get(&name).is_some_and(|feature| feature.project == project) {
                    self.remove(&name, changes);
                }
            }
            DeltaChange::SegmentUpdated(segment) => {
                self.change_segments(scope, changes, |segments| drop(segments.insert(segment.id, segment)));
            }
            DeltaChange::SegmentRemoved(id) => {
                self.change_segments(scope, changes, |segments| drop(segments.remove(&id)));
            }
            DeltaChange::Unknown => {}
        }
        if let Some(state) = self.scopes.iter_mut().find(|it| it.projects == *scope) {
            state.upstream_revision = Some(event.id);
        }
    }

    /// Makes changes, and events of a new revision if there are any. `named`: the upstream's revision of the whole state.
    fn change(&mut self, named: Option<u64>, make: impl FnOnce(&mut Self, &mut Vec<DeltaChange>)) -> Vec<DeltaEvent> {
        let mut changes = Vec::new();
        make(self, &mut changes);
        // The first document leads to a revision even if it is empty: clients may then know that they have it.
        if !changes.is_empty() || self.revision == 0 {
            self.revision = self.next_revision(named);
        }
        changes.into_iter().map(|change| DeltaEvent { id: self.revision, change }).collect()
    }

    fn next_revision(&mut self, named: Option<u64>) -> u64 {
        // Events of one revision may come apart, and an upstream may begin again: a revision that was here before is not used twice.
        let named = named.filter(|named| *named > self.last_named && self.scopes.len() == 1);
        match named {
            Some(named) => self.last_named = named,
            None => self.next_own += 1,
        }
        named.unwrap_or(self.next_own - 1)
    }

    /// Puts the whole state of a scope in place of the one before.
    fn replace(
        &mut self,
        scope: &Projects,
        revision: Option<u64>,
        features: Vec<FeatureText>,
        segments: Vec<SegmentText>,
        changes: &mut Vec<DeltaChange>,
    ) {
        let before = self.segments();
        self.may_have_unseen |= self.scopes.iter().any(|it| it.is_restored);
        self.scopes.retain(|it| !it.is_restored && !scope.include(&it.projects));
        let segments = segments.into_iter().map(|segment| (segment.id, segment)).collect();
        let state = ScopeState { projects: scope.clone(), upstream_revision: revision, segments, is_restored: false };
        self.scopes.push(state);
        self.compare_segments(&before, changes);
        let named: BTreeMap<Arc<str>, FeatureText> = features.into_iter().map(|it| (it.name.clone(), it)).collect();
        let is_gone = |it: &&FeatureText| scope.has(&it.project) && !named.contains_key(&it.name);
        let gone: Vec<Arc<str>> = self.features.values().filter(is_gone).map(|it| it.name.clone()).collect();
        gone.iter().for_each(|name| self.remove(name, changes));
        named.into_values().for_each(|feature| self.put(feature, changes));
    }

    fn put(&mut self, feature: FeatureText, changes: &mut Vec<DeltaChange>) {
        match self.features.get(&feature.name) {
            Some(before) if *before == feature => return,
            // Clients of its former project see it no longer.
            Some(before) if before.project != feature.project => {
                changes.push(DeltaChange::FeatureRemoved { name: before.name.clone(), project: before.project.clone() })
            }
            _ => {}
        }
        changes.push(DeltaChange::FeatureUpdated(feature.clone()));
        self.features.insert(feature.name.clone(), feature);
    }

    fn remove(&mut self, name: &str, changes: &mut Vec<DeltaChange>) {
        if let Some(FeatureText { name, project, .. }) = self.features.remove(name) {
            changes.push(DeltaChange::FeatureRemoved { name, project });
        }
    }

    fn change_segments(
        &mut self,
        scope: &Projects,
        changes: &mut Vec<DeltaChange>,
        make: impl FnOnce(&mut BTreeMap<i64, SegmentText>),
    ) {
        let before = self.segments();
        if let Some(at) = self.scopes.iter().position(|it| it.projects == *scope) {
            let mut state = self.scopes.remove(at);
            make(&mut state.segments);
            self.scopes.push(state);
        }
        self.compare_segments(&before, changes);
    }

    /// Notes how the segments differ from those before. Segments come in front of the flags that use them.
    fn compare_segments(&self, before: &BTreeMap<i64, SegmentText>, changes: &mut Vec<DeltaChange>) {
        let now = self.segments();
        let gone = before.keys().filter(|id| !now.contains_key(id));
        changes.extend(gone.map(|id| DeltaChange::SegmentRemoved(*id)));
        let changed = now.values().filter(|segment| before.get(&segment.id) != Some(segment));
        changes.extend(changed.cloned().map(DeltaChange::SegmentUpdated));
    }
}
