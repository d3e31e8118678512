//! The last changes of an environment, for clients that know an earlier revision.

use std::collections::VecDeque;

use weir_flags_codec::DeltaEvent;

use crate::limits::HISTORY_EVENTS_MAX;

/// The last events, as many as [`HISTORY_EVENTS_MAX`]. A copy shares their texts.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: VecDeque<DeltaEvent>,
    /// The revision in front of the first event. It and those of the events are all that a client may have from here.
    base: u64,
    /// The revision behind the last one.
    revision: u64,
}

/// The changes that a client with a revision lacks.
#[derive(Debug)]
pub(crate) enum Lacking<'a> {
    /// Nothing.
    Nothing,
    /// These events.
    Events(std::collections::vec_deque::Iter<'a, DeltaEvent>),
    /// More than the history has, or the client has its revision from elsewhere: the whole state.
    Everything,
}

impl History {
    /// A history without events at a revision.
    pub fn new(revision: u64) -> Self {
        Self { events: VecDeque::new(), base: revision, revision }
    }

    /// Adds the events that lead to a revision. Without events clients of the revision before have nothing to fetch. A revision below the
    /// last one begins another count: clients with an earlier one get the whole state.
    pub fn record(&mut self, revision: u64, events: Vec<DeltaEvent>) {
        debug_assert!(events.iter().all(|event| event.id == revision), "events of one revision");
        if self.revision == 0 || revision < self.revision {
            *self = Self::new(revision);
            return;
        }
        self.events.extend(events);
        self.revision = revision;
        while self.events.len() > HISTORY_EVENTS_MAX {
            let Some(first) = self.events.pop_front() else { break };
            self.base = first.id;
            // Events of one revision stand or fall together.
            while self.events.front().is_some_and(|event| event.id == first.id) {
                self.events.pop_front();
            }
        }
    }

    /// The newest revision.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The changes that a client lacks. `None`: it has no revision. A revision that this history does not have exactly may be one of another
    /// gateway, whose state was another one.
    pub(crate) fn lacking(&self, client: Option<u64>) -> Lacking<'_> {
        match client {
            Some(client) if client == self.revision => Lacking::Nothing,
            Some(client) => {
                let first = self.events.partition_point(|event| event.id <= client);
                let last_known = first.checked_sub(1).map_or(self.base, |before| self.events[before].id);
                match client == last_known {
                    true => Lacking::Events(self.events.range(first..)),
                    false => Lacking::Everything,
                }
            }
            None => Lacking::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flags_codec::DeltaChange;

    fn events(id: u64, count: usize) -> Vec<DeltaEvent> {
        (0..count).map(|_| DeltaEvent { id, change: DeltaChange::SegmentRemoved(7) }).collect()
    }

    fn lacking(history: &History, client: u64) -> Option<usize> {
        match history.lacking(Some(client)) {
            Lacking::Nothing => Some(0),
            Lacking::Events(events) => Some(events.len()),
            Lacking::Everything => None,
        }
    }

    #[test]
    fn a_client_gets_what_it_lacks_or_everything() {
        let mut history = History::default();
        history.record(10, events(10, 500));
        history.record(12, events(12, 2));
        history.record(15, events(15, 1));
        let found = [9, 10, 11, 12, 13, 15, 16].map(|client| lacking(&history, client));
        assert_eq!(found, [None, Some(3), None, Some(1), None, Some(0), None], "11, 13 and 16 are not of this gateway");
        assert!(matches!(history.lacking(None), Lacking::Everything));
        history.record(4, events(4, 1));
        assert_eq!([4, 10, 15].map(|client| lacking(&history, client)), [Some(0), None, None], "another count");
    }

    #[test]
    fn f4_events_of_one_revision_are_forgotten_together() {
        let mut history = History::new(1);
        history.record(2, events(2, 60));
        history.record(3, events(3, 41));
        assert_eq!([1, 2, 3].map(|client| lacking(&history, client)), [None, Some(41), Some(0)]);
        history.record(4, events(4, HISTORY_EVENTS_MAX + 1));
        assert_eq!([2, 3, 4].map(|client| lacking(&history, client)), [None, None, Some(0)]);
    }
}
