//! Counts of a listener that all workers share.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{edge::unix_time, environment::lock, surface::Endpoint};

/// Classes of statuses, and the statuses that have one of their own.
pub(crate) const STATUSES: [&str; 6] = ["2xx", "304", "4xx", "403", "503", "other"];

/// Results of polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollResult {
    /// Other flags.
    Changed,
    /// The same flags.
    Unchanged,
    /// The server refuses the token.
    Refused,
    /// The server responded with an error, or not at all.
    Failed,
    /// The response was no document of flags.
    Garbage,
}

/// The polls of an environment.
#[derive(Clone, Copy, Debug, Default)]
struct Polled {
    /// The time of the last one that has shown the flags, since 1970.
    last_good: Option<Duration>,
    is_failing: bool,
}

impl PollResult {
    /// Every one, with its word.
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::Changed, "changed"),
        (Self::Unchanged, "unchanged"),
        (Self::Refused, "refused"),
        (Self::Failed, "failed"),
        (Self::Garbage, "garbage"),
    ];
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    responses: [[AtomicU64; STATUSES.len()]; Endpoint::NAMES.len()],
    polls: [AtomicU64; PollResult::ALL.len()],
    /// By environment.
    polled: Mutex<BTreeMap<Box<str>, Polled>>,
    has_noted_tag: AtomicBool,
}

impl Counts {
    /// A response was given.
    pub(crate) fn responded(&self, endpoint: usize, status: u16) {
        let at = match status {
            200..=299 => 0,
            304 => 1,
            403 => 3,
            400..=499 => 2,
            503 => 4,
            _ => 5,
        };
        self.responses[endpoint][at].fetch_add(1, Ordering::Relaxed);
    }

    /// Endpoint, class of status, and number of responses; those without any are left out.
    pub(crate) fn responses(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        Endpoint::NAMES
            .iter()
            .zip(&self.responses)
            .flat_map(|(endpoint, row)| {
                let cells = STATUSES.iter().zip(row);
                cells.map(|(status, count)| (*endpoint, *status, count.load(Ordering::Relaxed)))
            })
            .filter(|(_, _, count)| *count > 0)
    }

    /// A poll has ended.
    pub(crate) fn polled(&self, environment: &str, result: PollResult) {
        let at = PollResult::ALL.iter().position(|(other, _)| *other == result).unwrap_or(0);
        self.polls[at].fetch_add(1, Ordering::Relaxed);
        let is_good = matches!(result, PollResult::Changed | PollResult::Unchanged);
        let mut polled = lock(&self.polled);
        let one = polled.entry(environment.into()).or_default();
        one.is_failing = !is_good;
        one.last_good = if is_good { Some(unix_time()) } else { one.last_good };
    }

    /// The flags of an environment come from a backup. `shown`: the time at which the server has shown them, since 1970, or the latest before that.
    pub(crate) fn restored(&self, environment: &str, shown: Duration) {
        let mut polled = lock(&self.polled);
        polled.entry(environment.into()).or_default().last_good.get_or_insert(shown);
    }

    /// Forgets the polls of other environments: they are gone.
    pub(crate) fn keep_environments(&self, is_kept: impl Fn(&str) -> bool) {
        lock(&self.polled).retain(|name, _| is_kept(name));
    }

    /// The polls of an environment begin: its flags may be on their way again.
    pub(crate) fn begin(&self, environment: &str) {
        if let Some(one) = lock(&self.polled).get_mut(environment) {
            one.is_failing = false;
        }
    }

    /// The last poll of an environment has not shown its flags.
    pub(crate) fn is_failing(&self, environment: &str) -> bool {
        lock(&self.polled).get(environment).is_some_and(|one| one.is_failing)
    }

    /// The stream of the server has shown that the flags of an environment are those of now.
    pub(crate) fn note_contact(&self, environment: &str) {
        if let Some(one) = lock(&self.polled).get_mut(environment) {
            one.last_good = Some(unix_time());
        }
    }

    /// Result and number of polls.
    pub(crate) fn polls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        PollResult::ALL.iter().zip(&self.polls).map(|((_, word), count)| (*word, count.load(Ordering::Relaxed)))
    }

    /// Environments, and the time of the last poll that has shown their state, since 1970.
    pub(crate) fn last_polls(&self) -> Vec<(Box<str>, Duration)> {
        let polled = lock(&self.polled);
        polled.iter().filter_map(|(name, one)| Some((name.clone(), one.last_good?))).collect()
    }

    /// A client has named tags, which have no effect. The log says so once.
    pub(crate) fn note_tag(&self) {
        if !self.has_noted_tag.swap(true, Ordering::Relaxed) {
            tracing::warn!("a client selects flags by `tag`: it gets all flags, for tags are not supported");
        }
    }
}
