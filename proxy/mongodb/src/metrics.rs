//! The cells that one listener writes on one worker.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use weir_analysis::mongodb::Class;
use weir_listener::{CoreShare, Durations, Stages};
use weir_mongodb_codec::compressed::Compressor;
use weir_telemetry::{CoreMetrics, Counter, Gauge, catalog};

/// Cells of one listener on one worker.
pub(crate) struct ListenerMetrics {
    core: CoreMetrics,
    listener: String,
    pub(crate) in_flight: Gauge,
    pub(crate) durations: Durations,
    pub(crate) stages: Stages,
    pub(crate) auth_failures: Counter,
    pub(crate) logins: Counter,
    /// Those of all workers, which one of them sets.
    pub(crate) cursors: Gauge,
    pub(crate) transactions: Gauge,
    databases: RefCell<HashMap<Arc<str>, Rc<DatabaseMetrics>>>,
}

/// Those of one of its databases.
pub(crate) struct DatabaseMetrics {
    pub(crate) read: Counter,
    pub(crate) written: Counter,
    /// Nanoseconds.
    pub(crate) wait_time: Counter,
    classes: [ClassMetrics; Class::ALL.len()],
}

/// Those of one class of commands.
pub(crate) struct ClassMetrics {
    pub(crate) commands: Counter,
    /// Replies of servers with `ok: 0`.
    pub(crate) errors: Counter,
    /// Nanoseconds.
    pub(crate) time: Counter,
}

impl DatabaseMetrics {
    fn new(core: &CoreMetrics, listener: &str, database: &str) -> Self {
        let counter = |family| core.counter(family, &[listener, database]);
        let class = |class: Class| {
            let counter = |family| core.counter(family, &[listener, database, class.word()]);
            ClassMetrics {
                commands: counter(&catalog::MONGODB_COMMANDS),
                errors: counter(&catalog::MONGODB_ERRORS),
                time: counter(&catalog::MONGODB_COMMAND_SECONDS),
            }
        };
        Self {
            read: counter(&catalog::MONGODB_READ_BYTES),
            written: counter(&catalog::MONGODB_WRITTEN_BYTES),
            wait_time: counter(&catalog::MONGODB_WAIT_SECONDS),
            classes: Class::ALL.map(class),
        }
    }

    #[inline]
    pub(crate) fn class(&self, class: Class) -> &ClassMetrics {
        &self.classes[class as usize]
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
            logins: core.counter(&catalog::MONGODB_LOGINS, &own),
            cursors: core.gauge(&catalog::MONGODB_CURSORS, &own),
            transactions: core.gauge(&catalog::MONGODB_TRANSACTIONS, &own),
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

    /// Counts a client that was refused a server. Looked up each time: it is rare.
    pub(crate) fn shed(&self, reason: &'static str) {
        self.core.counter(&catalog::SHED, &[&self.listener, reason]).inc();
    }

    /// Counts a command that a rule fits. Looked up each time: rules that fit are few.
    pub(crate) fn rule(&self, rule: &str, action: &str) {
        self.core.counter(&catalog::MONGODB_RULES, &[&self.listener, rule, action]).inc();
    }

    /// Counts a command of the gateway's own for a cursor or a transaction that has lost its client.
    pub(crate) fn cleaned(&self, kind: &str, outcome: &str) {
        self.core.counter(&catalog::MONGODB_CLEANUPS, &[&self.listener, kind, outcome]).inc();
    }

    /// Counts the bytes of a message that was inflated.
    pub(crate) fn inflated(&self, compressor: Compressor, bytes: usize) {
        let name = compressor.name();
        self.core.counter(&catalog::MONGODB_INFLATED_BYTES, &[&self.listener, name]).add(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_its_place_in_the_list() {
        assert!(Class::ALL.iter().enumerate().all(|(place, class)| *class as usize == place));
    }
}
