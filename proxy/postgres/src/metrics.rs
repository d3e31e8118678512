//! The cells that one listener writes on one worker.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use weir_listener::{CoreShare, Durations, Stages};
use weir_postgres_session::{PinReasons, io::Event};
use weir_telemetry::{CoreMetrics, Counter, Gauge, catalog};

use crate::shared::Totals;

/// How a cancel request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelOutcome {
    /// It went to the server.
    Forwarded,
    /// The client holds no server.
    Idle,
    /// Its source sends too many.
    Limited,
    /// The server could not be reached.
    Failed,
    /// It was sent, and the server did not close its connection in time: the connection that it was for is closed.
    Unconfirmed,
    /// Its key is none of a client.
    Unknown,
}

impl CancelOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Idle => "idle",
            Self::Limited => "limited",
            Self::Failed => "failed",
            Self::Unconfirmed => "unconfirmed",
            Self::Unknown => "unknown",
        }
    }
}

/// Events of sessions that have a label of their own.
const SESSION_EVENTS: [(Event, &str); 5] = [
    (Event::Replay, "replay"),
    (Event::Eviction, "eviction"),
    (Event::Heal, "heal"),
    (Event::Refusal, "refusal"),
    (Event::Pin, "pin"),
];

/// Cells of one listener on one worker.
pub(crate) struct ListenerMetrics {
    core: CoreMetrics,
    listener: String,
    pub(crate) in_flight: Gauge,
    pub(crate) durations: Durations,
    pub(crate) stages: Stages,
    pub(crate) auth_failures: Counter,
    /// The sum of all workers, which one of them sets.
    pub(crate) paused: Gauge,
    databases: RefCell<HashMap<Arc<str>, Rc<DatabaseMetrics>>>,
}

/// Those of one of its databases.
pub(crate) struct DatabaseMetrics {
    pub(crate) logins: Counter,
    pub(crate) read: Counter,
    pub(crate) written: Counter,
    /// Nanoseconds, as the two that follow.
    pub(crate) transaction_time: Counter,
    /// With the wait for a server.
    pub(crate) query_time: Counter,
    pub(crate) wait_time: Counter,
    pub(crate) assignments: Counter,
    queries: Counter,
    transactions: Counter,
    client_parses: Counter,
    server_parses: Counter,
    binds: Counter,
    notifications: Counter,
    pub(crate) listeners: Gauge,
    /// Statements over the limit of the log.
    pub(crate) slow: Counter,
    events: [Counter; SESSION_EVENTS.len()],
}

impl DatabaseMetrics {
    fn new(core: &CoreMetrics, listener: &str, database: &str) -> Self {
        let counter = |family| core.counter(family, &[listener, database]);
        let parses = |side| core.counter(&catalog::POSTGRES_PARSES, &[listener, database, side]);
        Self {
            logins: counter(&catalog::POSTGRES_LOGINS),
            read: counter(&catalog::POSTGRES_READ_BYTES),
            written: counter(&catalog::POSTGRES_WRITTEN_BYTES),
            transaction_time: counter(&catalog::POSTGRES_TRANSACTION_SECONDS),
            query_time: counter(&catalog::POSTGRES_QUERY_SECONDS),
            wait_time: counter(&catalog::POSTGRES_WAIT_SECONDS),
            assignments: counter(&catalog::POSTGRES_SERVER_ASSIGNMENTS),
            queries: counter(&catalog::POSTGRES_QUERIES),
            transactions: counter(&catalog::POSTGRES_TRANSACTIONS),
            client_parses: parses("client"),
            server_parses: parses("server"),
            binds: counter(&catalog::POSTGRES_BINDS),
            notifications: core.counter(&catalog::POSTGRES_NOTIFICATIONS, &[listener]),
            listeners: core.gauge(&catalog::POSTGRES_LISTENERS, &[listener]),
            slow: counter(&catalog::POSTGRES_SLOW),
            events: SESSION_EVENTS.map(|(_, name)| core.counter(&catalog::POSTGRES_SESSION_EVENTS, &[listener, name])),
        }
    }

    #[inline]
    pub(crate) fn count(&self, event: Event) {
        match event {
            Event::Query => self.queries.inc(),
            Event::Transaction => self.transactions.inc(),
            Event::ClientParse => self.client_parses.inc(),
            Event::ServerParse => self.server_parses.inc(),
            Event::Bind => self.binds.inc(),
            Event::Notification => self.notifications.inc(),
            _ => {
                let found = SESSION_EVENTS.iter().position(|(known, _)| *known == event);
                if let Some(place) = found {
                    self.events[place].inc();
                }
            }
        }
    }
}

impl ListenerMetrics {
    pub(crate) fn new(share: &CoreShare, listener: &str) -> Self {
        let core = &share.metrics;
        let own = [listener];
        Self {
            in_flight: core.gauge(&catalog::REQUESTS_IN_FLIGHT, &own),
            durations: Durations::new(share, listener),
            stages: Stages::new(share, listener),
            auth_failures: core.counter(&catalog::AUTH_FAILURES, &own),
            paused: core.gauge(&catalog::POSTGRES_PAUSED, &own),
            databases: RefCell::default(),
            core: core.clone(),
            listener: listener.to_owned(),
        }
    }

    /// The cells of a database, by its name of [`crate::shared::ListenerShared::label`].
    pub(crate) fn database(&self, label: &Arc<str>) -> Rc<DatabaseMetrics> {
        let mut databases = self.databases.borrow_mut();
        let made = || Rc::new(DatabaseMetrics::new(&self.core, &self.listener, label));
        databases.entry(label.clone()).or_insert_with(made).clone()
    }

    /// The counts of a database on all workers, times in microseconds.
    pub(crate) fn totals(&self, database: &str) -> Totals {
        let (registry, own) = (self.core.registry(), [&*self.listener, database]);
        let count = |family| registry.count(family, &own).unwrap_or_default();
        let parses = |side| registry.count(&catalog::POSTGRES_PARSES, &[own[0], own[1], side]).unwrap_or_default();
        let micros = |family| count(family) / 1_000;
        let wait = micros(&catalog::POSTGRES_WAIT_SECONDS);
        [
            count(&catalog::POSTGRES_SERVER_ASSIGNMENTS),
            count(&catalog::POSTGRES_TRANSACTIONS),
            count(&catalog::POSTGRES_QUERIES),
            count(&catalog::POSTGRES_READ_BYTES),
            count(&catalog::POSTGRES_WRITTEN_BYTES),
            micros(&catalog::POSTGRES_TRANSACTION_SECONDS),
            micros(&catalog::POSTGRES_QUERY_SECONDS).saturating_sub(wait),
            wait,
            parses("client"),
            parses("server"),
            count(&catalog::POSTGRES_BINDS),
            count(&catalog::POSTGRES_LOGINS),
        ]
    }

    /// Counts a client that was refused a server. Looked up each time: it is rare.
    pub(crate) fn shed(&self, reason: &'static str) {
        self.core.counter(&catalog::SHED, &[&self.listener, reason]).inc();
    }

    /// Counts the reasons of a pin to that endpoint. Looked up each time: it is rare.
    pub(crate) fn pinned(&self, [upstream, endpoint]: [&str; 2], reasons: PinReasons) {
        for (name, _) in reasons.iter_names() {
            let reason = name.to_ascii_lowercase();
            self.core.counter(&catalog::PINS, &[upstream, endpoint, &reason]).inc();
        }
    }

    /// Counts a cancel request. Looked up each time: it is rare.
    pub(crate) fn cancelled(&self, outcome: CancelOutcome) {
        self.core.counter(&catalog::POSTGRES_CANCELS, &[&self.listener, outcome.name()]).inc();
    }
}
