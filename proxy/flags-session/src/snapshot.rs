//! A state of an environment, compiled once and read by all workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_flags_codec::{FeatureText, SegmentText, text_bytes};

use crate::compile::{Compiler, Flag, Warning};
use crate::frontend::Texts;
use crate::history::History;
use crate::projects::Projects;
use crate::state::FlagState;
use crate::values::Names;

/// An immutable state with all that requests need. To be made off the workers: it costs some milliseconds for a thousand flags.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) version: u32,
    pub(crate) meta: Option<Arc<str>>,
    /// In the order of their names.
    pub(crate) features: Box<[FeatureText]>,
    /// In the order of their numbers.
    pub(crate) segments: Box<[SegmentText]>,
    pub(crate) history: History,
    upstream_revision: Option<u64>,
    text_bytes: usize,
    /// One for each of the features.
    pub(crate) flags: Box<[Flag]>,
    /// The project of each of the features, by its place in `project_names`.
    projects: Box<[u32]>,
    project_names: Box<[Arc<str>]>,
    pub(crate) names: Names,
    /// Flags that others depend on.
    pub(crate) memos: usize,
    pub(crate) texts: Texts,
    warnings: Box<[Warning]>,
}

impl Snapshot {
    /// Compiles a state. `hostname` is the name of this machine, for the strategy `applicationHostname`.
    pub fn new(state: &FlagState, history: History, hostname: Option<&str>) -> Self {
        let features: Box<[FeatureText]> = state.features().cloned().collect();
        let segments: Box<[SegmentText]> = state.segments().into_values().collect();
        let mut compiler = Compiler::new(hostname, segments.iter());
        let (mut flags, mut warnings) = compiler.flags(&features);
        let (texts, too_large) = Texts::new(&features, &mut flags);
        let text = "the texts of its variants are too large";
        warnings.extend(too_large.into_iter().map(|flag| Warning { flag, text }));
        let (project_names, projects) = numbered(&features);
        let text_bytes = text_bytes(&features, &segments);
        Self {
            version: state.version(),
            meta: state.meta().cloned(),
            texts,
            memos: flags.iter().filter(|flag| flag.memo.is_some()).count(),
            names: compiler.names.finish(),
            flags: flags.into(),
            features,
            segments,
            history,
            upstream_revision: state.newest_upstream_revision(),
            text_bytes,
            projects,
            project_names,
            warnings: warnings.into(),
        }
    }

    /// The revision of the state, as [`FlagState::revision`]: deltas and streams have it.
    pub const fn revision(&self) -> u64 {
        self.history.revision()
    }

    /// The newest revision that the upstream has named for any of its documents. The state may have parts of several revisions of the upstream.
    pub const fn upstream_revision(&self) -> Option<u64> {
        self.upstream_revision
    }

    /// Bytes of the texts of all flags and segments: no document for a client has many more.
    pub const fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// The number of flags.
    pub fn flag_count(&self) -> usize {
        self.features.len()
    }

    /// Flags that are off because their definition has no meaning here.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The flags that a set of projects lets a request see. To be made once for each snapshot and token.
    pub fn scope(&self, projects: &Projects) -> Scope {
        match projects {
            Projects::All => Scope(None),
            some => Scope(Some(self.project_names.iter().map(|name| some.has(name)).collect())),
        }
    }

    /// The text of a flag for `GET /api/client/features/{name}`, which is exact.
    pub fn feature(&self, name: &str, scope: &Scope) -> Option<&str> {
        Some(&*self.features[self.find(name, scope)?].json)
    }

    /// The place of a flag that a request may see.
    pub(crate) fn find(&self, name: &str, scope: &Scope) -> Option<usize> {
        let at = self.features.binary_search_by(|feature| (*feature.name).cmp(name)).ok()?;
        self.is_seen(at, scope).then_some(at)
    }

    /// Whether a request may see a flag.
    pub(crate) fn is_seen(&self, at: usize, scope: &Scope) -> bool {
        scope.0.as_ref().is_none_or(|projects| projects.get(self.projects[at] as usize).copied().unwrap_or_default())
    }

    /// The texts of flags that a request may see and whose names begin so, in order.
    pub(crate) fn seen<'a>(&'a self, scope: &'a Scope, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let first = self.features.partition_point(|feature| &*feature.name < prefix);
        let named = self.features[first..].iter().take_while(move |feature| feature.name.starts_with(prefix));
        let named = named.zip(first..);
        named.filter(|(_, at)| self.is_seen(*at, scope)).map(|(feature, _)| &*feature.json)
    }
}

/// The flags of one snapshot that a request may see.
#[derive(Clone, Debug)]
pub struct Scope(
    /// By the number of the project. `None`: all.
    Option<Box<[bool]>>,
);

/// The names of all projects, and the number of that of each flag.
fn numbered(features: &[FeatureText]) -> (Box<[Arc<str>]>, Box<[u32]>) {
    let mut numbers: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let mut names = Vec::new();
    let projects = features.iter().map(|feature| {
        *numbers.entry(feature.project.clone()).or_insert_with(|| {
            names.push(feature.project.clone());
            names.len() as u32 - 1
        })
    });
    let projects = projects.collect();
    (names.into(), projects)
}
