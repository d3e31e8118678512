//! Usage in an event of a stream.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use weir_json_codec::{Duplicates, Kind, Scanner, Sink, Value};

use super::figures::Figures;
use super::paths::{self, Place};
use crate::dialect::Dialect;

/// Within a string the quotes would have backslashes.
pub(super) static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));

/// The findings in an event that may report usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFacts {
    /// The figures.
    pub(crate) figures: Figures,
    /// The event has an object for them.
    has_report: bool,
    /// A chunk of a chat has an empty array of choices.
    has_no_choice: bool,
}

impl EventFacts {
    /// A chunk of a chat that was sent for its usage alone.
    pub(crate) const fn is_for_usage(&self) -> bool {
        self.has_report && self.has_no_choice
    }
}

/// Reads an event, if it may report usage; its key stands in one of the parts `around`. Most events have no report, or a `null`: a search
/// finds so. Data that is no JSON has none.
pub(crate) fn event_facts(dialect: Dialect, data: &[u8], around: [&[u8]; 2]) -> Option<EventFacts> {
    if !around.iter().any(|part| may_report(part)) {
        return None;
    }
    let mut report = Report::default();
    let mut scanner = Scanner::new(paths::of(dialect), Duplicates::Report);
    scanner.push(data, &mut report).and_then(|()| scanner.finish(&mut report)).ok()?;
    Some(report.facts)
}

/// Whether an object stands behind the key.
fn may_report(data: &[u8]) -> bool {
    KEY.find_iter(data).any(|at| {
        let mut behind = data[at + KEY.needle().len()..].iter().filter(|byte| !byte.is_ascii_whitespace());
        behind.next() == Some(&b':') && behind.next() == Some(&b'{')
    })
}

/// Takes the values of one event, or of the end of a response. The last of equal members counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) facts: EventFacts,
}

impl Sink<Place> for Report {
    fn begin(&mut self, path: Place, _: Kind, _: u64) {
        if matches!(path, Place::Report | Place::ChoiceReport) {
            self.facts.figures = Figures::default();
        }
    }

    fn value(&mut self, value: Value<'_, Place>) {
        let is_object = value.kind == Kind::Object;
        match value.path {
            Place::Choices => self.facts.has_no_choice = value.kind == Kind::Array && value.count == 0,
            Place::Report => {
                // A null behind a report takes it back, but not the one of a choice.
                if self.facts.has_report && !is_object {
                    self.facts.figures = Figures::default();
                }
                self.facts.has_report = is_object;
            }
            _ => self.facts.figures.take(&value),
        }
    }
}
