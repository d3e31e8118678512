//! Flags, segments and events of one environment.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use weir_flags_codec::{DeltaChange, DeltaEvent, FeatureText, FeaturesDocument, SegmentText};
use weir_flagsets::FlagSet;

use super::{
    document::{self, Document},
    scope::Scope,
};

/// Documents that are kept for scopes of the newest revision. 256: more than any test has tokens and prefixes.
const DOCUMENTS_MAX: usize = 256;

/// An environment.
#[derive(Debug)]
pub struct Environment {
    name: String,
    revision: u64,
    /// By name.
    features: Vec<FeatureText>,
    segments: Vec<SegmentText>,
    /// The last changes, oldest first. Each has a revision of its own.
    events: VecDeque<DeltaEvent>,
    history: usize,
    documents: HashMap<Scope, Arc<Document>>,
    /// Edits so far.
    pub edits: u64,
}

/// The outcome of a request for a delta.
#[derive(Debug, PartialEq, Eq)]
pub enum Delta {
    /// Nothing is newer.
    Unchanged,
    /// These events, up to the revision of the environment.
    Events(Vec<DeltaEvent>),
}

impl Environment {
    /// With the flags of a set, at revision 1.
    pub fn new(name: &str, set: &FlagSet, history: usize) -> Self {
        let text = format!("{{\"version\":2,\"features\":{},\"segments\":{}}}", set.features(), set.segments());
        // The text of a set is a document: a test reads every set.
        let read = FeaturesDocument::read(text.as_bytes()).unwrap_or_default();
        Self {
            name: name.to_owned(),
            revision: 1,
            features: read.features,
            segments: read.segments,
            events: VecDeque::new(),
            history,
            documents: HashMap::new(),
            edits: 0,
        }
    }

    /// Its newest revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All flags, by name.
    pub fn features(&self) -> &[FeatureText] {
        &self.features
    }

    /// All segments.
    pub fn segments(&self) -> &[SegmentText] {
        &self.segments
    }

    /// Everything is new. Deltas go back no further.
    pub fn replace(&mut self, document: FeaturesDocument) {
        self.features = document.features;
        self.features.sort_by(|one, other| one.name.cmp(&other.name));
        self.segments = document.segments;
        self.events.clear();
        self.revision += 1;
        self.documents.clear();
    }

    /// Makes a change, which gets the next revision.
    pub fn apply(&mut self, change: DeltaChange) {
        if let DeltaChange::Hydration { features, segments } = change {
            return self.replace(FeaturesDocument { features, segments, ..FeaturesDocument::default() });
        }
        match &change {
            DeltaChange::FeatureUpdated(feature) => {
                match self.features.binary_search_by(|one| one.name.cmp(&feature.name)) {
                    Ok(at) => self.features[at] = feature.clone(),
                    Err(at) => self.features.insert(at, feature.clone()),
                }
            }
            DeltaChange::FeatureRemoved { name, .. } => self.features.retain(|feature| feature.name != *name),
            DeltaChange::SegmentUpdated(segment) => match self.segments.iter_mut().find(|one| one.id == segment.id) {
                Some(one) => *one = segment.clone(),
                None => self.segments.push(segment.clone()),
            },
            DeltaChange::SegmentRemoved(id) => self.segments.retain(|segment| segment.id != *id),
            DeltaChange::Hydration { .. } | DeltaChange::Unknown => {}
        }
        self.revision += 1;
        self.documents.clear();
        self.events.push_back(DeltaEvent { id: self.revision, change });
        if self.events.len() > self.history {
            self.events.pop_front();
        }
    }

    /// The document of a scope.
    pub fn document(&mut self, scope: &Scope) -> Arc<Document> {
        if let Some(document) = self.documents.get(scope) {
            return document.clone();
        }
        let features = self.features.iter().filter(|feature| scope.has(feature));
        let document = Arc::new(document::render(&self.name, self.revision, scope, features, &self.segments));
        if self.documents.len() >= DOCUMENTS_MAX {
            self.documents.clear();
        }
        self.documents.insert(scope.clone(), document.clone());
        document
    }

    /// The events that a client of a scope lacks, which has this revision.
    pub fn delta(&self, scope: &Scope, since: Option<u64>) -> Delta {
        // The oldest revision behind which all changes are known.
        let oldest = self.revision - self.events.len() as u64;
        match since.filter(|since| *since > 0 && (oldest..=self.revision).contains(since)) {
            Some(since) => {
                let newer = self.events.iter().filter(|event| event.id > since);
                let seen: Vec<DeltaEvent> = newer.filter_map(|event| scope.event(event)).collect();
                if seen.is_empty() { Delta::Unchanged } else { Delta::Events(seen) }
            }
            None => {
                let (features, segments) = (self.features.clone(), self.segments.clone());
                let all = DeltaEvent { id: self.revision, change: DeltaChange::Hydration { features, segments } };
                Delta::Events(scope.event(&all).into_iter().collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_flagsets::DataSet;

    use super::*;

    fn environment() -> Environment {
        Environment::new("development", &FlagSet::new(DataSet::Small), 3)
    }

    fn all() -> Scope {
        Scope { projects: None, prefix: String::new() }
    }

    fn feature(name: &str, project: &str) -> FeatureText {
        let json = format!("{{\"name\":\"{name}\",\"project\":\"{project}\",\"enabled\":true}}");
        FeatureText { name: name.into(), project: project.into(), json: json.into() }
    }

    #[test]
    fn every_set_is_served_in_its_size() {
        for data in DataSet::ALL {
            let mut environment = Environment::new("development", &FlagSet::new(data), 20);
            assert_eq!(environment.features.len(), data.flags(), "{}", data.word());
            let bytes = environment.document(&all()).body.len();
            let tolerance = match data {
                DataSet::Small => 100,
                DataSet::Large => 2_000,
                DataSet::Huge => 20_000,
            };
            assert!(bytes.abs_diff(data.bytes()) <= tolerance, "{}: {bytes}", data.word());
        }
    }

    #[test]
    fn a_delta_goes_back_as_far_as_the_history_and_then_is_everything() {
        let mut environment = environment();
        for number in 0..5 {
            environment.apply(DeltaChange::FeatureUpdated(feature(&format!("x{number}"), "shop")));
        }
        assert_eq!(environment.revision(), 6);
        let count = |since| match environment.delta(&all(), since) {
            Delta::Unchanged => 0,
            Delta::Events(events) => events.len(),
        };
        assert_eq!((count(Some(6)), count(Some(5)), count(Some(3))), (0, 1, 3));
        for unknown in [None, Some(0), Some(2), Some(7)] {
            let Delta::Events(events) = environment.delta(&all(), unknown) else { panic!("{unknown:?}") };
            let [DeltaEvent { id: 6, change: DeltaChange::Hydration { features, .. } }] = &events[..] else {
                panic!("{unknown:?}: {events:?}")
            };
            assert_eq!(features.len(), 10);
        }
    }

    #[test]
    fn a_scope_sees_its_projects_and_its_prefix_alone() {
        let mut environment = environment();
        environment.apply(DeltaChange::FeatureUpdated(feature("b-one", "shop")));
        environment.apply(DeltaChange::FeatureUpdated(feature("a-one", "shop")));
        let shop = Scope { projects: Some(vec!["shop".to_owned()]), prefix: "b-".to_owned() };
        let text = String::from_utf8_lossy(&environment.document(&shop).body).into_owned();
        assert!(text.contains("\"b-one\"") && !text.contains("\"a-one\"") && !text.contains("\"flag-1\""), "{text}");
        let Delta::Events(events) = environment.delta(&shop, Some(1)) else { panic!("a change") };
        assert_eq!(events.len(), 1);
        assert_eq!(environment.delta(&shop, Some(2)), Delta::Unchanged, "the newer change is of others");
        environment.apply(DeltaChange::FeatureRemoved { name: "b-one".into(), project: "shop".into() });
        assert!(!String::from_utf8_lossy(&environment.document(&shop).body).contains("b-one"));
    }
}
