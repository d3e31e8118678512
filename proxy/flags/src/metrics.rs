//! The cells that this room writes, on the worker with the keeper.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use weir_telemetry::{CoreMetrics, Counter, Gauge, catalog};

use crate::{
    edge::{Edge, unix_time},
    environment::lock,
};

/// The cells of a listener.
pub(crate) struct Metrics {
    core: CoreMetrics,
    listener: Arc<str>,
    requests: RefCell<HashMap<(&'static str, &'static str), Counter>>,
    polls: RefCell<HashMap<&'static str, Counter>>,
    dropped: [Counter; 4],
    without_series: Counter,
    streams: Gauge,
    bytes: Gauge,
    valid: Gauge,
    invalid: Gauge,
    ages: RefCell<HashMap<Box<str>, (Gauge, Gauge)>>,
}

impl Metrics {
    pub(crate) fn new(core: &CoreMetrics, listener: &Arc<str>) -> Self {
        let dropped = |reason| core.counter(&catalog::FLAGS_METRICS_DROPPED, &[&**listener, reason]);
        let tokens = |status| core.gauge(&catalog::FLAGS_TOKENS, &[&**listener, status]);
        Self {
            requests: RefCell::default(),
            polls: RefCell::default(),
            dropped: ["distant", "no_room", "foreign", "too_large"].map(dropped),
            without_series: core.counter(&catalog::FLAGS_USAGE_WITHOUT_SERIES, &[&**listener]),
            streams: core.gauge(&catalog::FLAGS_STREAMS, &[&**listener]),
            bytes: core.gauge(&catalog::FLAGS_METRICS_BYTES, &[&**listener]),
            valid: tokens("valid"),
            invalid: tokens("invalid"),
            ages: RefCell::default(),
            core: core.clone(),
            listener: listener.clone(),
        }
    }

    /// Writes the present counts.
    pub(crate) fn show(&self, edge: &Edge) {
        let mut requests = self.requests.borrow_mut();
        for (endpoint, status, count) in edge.counts.responses() {
            let make = || self.core.counter(&catalog::FLAGS_REQUESTS, &[&*self.listener, endpoint, status]);
            requests.entry((endpoint, status)).or_insert_with(make).advance_to(count);
        }
        let mut polls = self.polls.borrow_mut();
        for (result, count) in edge.counts.polls().filter(|(_, count)| *count > 0) {
            let make = || self.core.counter(&catalog::FLAGS_POLLS, &[&*self.listener, result]);
            polls.entry(result).or_insert_with(make).advance_to(count);
        }
        let (dropped, bytes) = {
            let sums = lock(&edge.aggregates);
            (sums.dropped(), sums.bytes())
        };
        let dropped = [dropped.distant, dropped.new, dropped.foreign, dropped.too_large];
        self.dropped.iter().zip(dropped).for_each(|(cell, count)| cell.advance_to(count));
        self.without_series.advance_to(lock(&edge.usage).without_series());
        self.bytes.set(bytes as i64);
        self.streams.set(edge.streams.load(Ordering::Relaxed) as i64);
        let view = edge.view();
        self.valid.set(view.tokens.valid().count() as i64);
        self.invalid.set(view.tokens.invalid_count() as i64);
        self.show_environments(edge);
    }

    /// The series of an environment that is gone would keep their last values.
    fn retire(&self, environment: &str) {
        for family in [&catalog::FLAGS_POLL_AGE, &catalog::FLAGS_REVISION] {
            self.core.registry().retire_series(family, &[&self.listener, environment]);
        }
    }

    fn show_environments(&self, edge: &Edge) {
        let (view, now) = (edge.view(), unix_time());
        let (mut ages, polls) = (self.ages.borrow_mut(), edge.counts.last_polls());
        ages.retain(|name, _| {
            let is_there = polls.iter().any(|(other, _)| other == name);
            if !is_there {
                self.retire(name);
            }
            is_there
        });
        for (name, polled) in polls {
            let labels = [&*self.listener, &*name];
            let (age, revision) = ages.entry(name.clone()).or_insert_with(|| {
                (self.core.gauge(&catalog::FLAGS_POLL_AGE, &labels), self.core.gauge(&catalog::FLAGS_REVISION, &labels))
            });
            age.set_duration(now.saturating_sub(polled));
            revision.set(view.environments.get(&name).map_or(0, |one| one.shown_revision() as i64));
        }
    }
}
