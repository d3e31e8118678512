//! The flags that a request may see.

use weir_flags_codec::{DeltaChange, DeltaEvent, FeatureText, query};

use super::token::Token;

/// Projects of a token, and the prefix of names that a request wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// `None`: all.
    pub projects: Option<Vec<String>>,
    /// Empty: every name.
    pub prefix: String,
}

impl Scope {
    /// That of a request with this query.
    pub fn of(token: &Token, query: &str) -> Self {
        let projects = (!token.projects.iter().any(|project| project == "*")).then(|| token.projects.clone());
        let is_prefix = |(key, _): &(_, _)| *key == "namePrefix";
        let prefix = query::pairs(query).flatten().find(is_prefix).map(|(_, value)| value.into_owned());
        Self { projects, prefix: prefix.unwrap_or_default() }
    }

    /// Whether it has this flag.
    pub fn has(&self, feature: &FeatureText) -> bool {
        self.has_named(&feature.name, &feature.project)
    }

    fn has_named(&self, name: &str, project: &str) -> bool {
        name.starts_with(&self.prefix)
            && self.projects.as_ref().is_none_or(|projects| projects.iter().any(|one| one == project))
    }

    /// The event as this scope sees it. `None`: it is about a flag of others. Segments are everyone's.
    pub fn event(&self, event: &DeltaEvent) -> Option<DeltaEvent> {
        let change = match &event.change {
            DeltaChange::FeatureUpdated(feature) => self.has(feature).then(|| event.change.clone())?,
            DeltaChange::FeatureRemoved { name, project } => {
                self.has_named(name, project).then(|| event.change.clone())?
            }
            DeltaChange::Hydration { features, segments } => DeltaChange::Hydration {
                features: features.iter().filter(|feature| self.has(feature)).cloned().collect(),
                segments: segments.clone(),
            },
            other => other.clone(),
        };
        Some(DeltaEvent { id: event.id, change })
    }
}
