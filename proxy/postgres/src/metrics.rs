//! The cells that one listener writes on one worker.

use weir_listener::{CoreShare, Durations};
use weir_postgres_session::io::Event;
use weir_telemetry::{CoreMetrics, Counter, Gauge, catalog};

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
    pub(crate) logins: Counter,
    pub(crate) auth_failures: Counter,
    queries: Counter,
    transactions: Counter,
    client_parses: Counter,
    server_parses: Counter,
    binds: Counter,
    events: [Counter; SESSION_EVENTS.len()],
}

impl ListenerMetrics {
    pub(crate) fn new(share: &CoreShare, listener: &str) -> Self {
        let core = &share.metrics;
        let own = [listener];
        Self {
            in_flight: core.gauge(&catalog::REQUESTS_IN_FLIGHT, &own),
            durations: Durations::new(share, listener),
            logins: core.counter(&catalog::POSTGRES_LOGINS, &own),
            auth_failures: core.counter(&catalog::AUTH_FAILURES, &own),
            queries: core.counter(&catalog::POSTGRES_QUERIES, &own),
            transactions: core.counter(&catalog::POSTGRES_TRANSACTIONS, &own),
            client_parses: core.counter(&catalog::POSTGRES_PARSES, &[listener, "client"]),
            server_parses: core.counter(&catalog::POSTGRES_PARSES, &[listener, "server"]),
            binds: core.counter(&catalog::POSTGRES_BINDS, &own),
            events: SESSION_EVENTS.map(|(_, name)| core.counter(&catalog::POSTGRES_SESSION_EVENTS, &[listener, name])),
            core: core.clone(),
            listener: listener.to_owned(),
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
            _ => {
                let found = SESSION_EVENTS.iter().position(|(known, _)| *known == event);
                if let Some(place) = found {
                    self.events[place].inc();
                }
            }
        }
    }

    /// Counts a client that was refused a server. Looked up each time: it is rare.
    pub(crate) fn shed(&self, reason: &'static str) {
        self.core.counter(&catalog::SHED, &[&self.listener, reason]).inc();
    }

    /// Counts a cancel request. Looked up each time: it is rare.
    pub(crate) fn cancelled(&self, outcome: CancelOutcome) {
        self.core.counter(&catalog::POSTGRES_CANCELS, &[&self.listener, outcome.name()]).inc();
    }
}
