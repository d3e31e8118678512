//! Settings that PostgreSQL 15 reports. A gateway compares those of its clients with those of its servers: a SET must be
//! reported as PostgreSQL reports it, or each request would cost another one.

use weir_postgres_codec::backend;
use weir_postgres_codec::startup::Parameters;

use super::select::VERSION;

/// A reported setting.
struct Known {
    name: &'static str,
    value: &'static str,
    /// A client may change it.
    is_settable: bool,
}

const fn fixed(name: &'static str, value: &'static str) -> Known {
    Known { name, value, is_settable: false }
}

const fn settable(name: &'static str, value: &'static str) -> Known {
    Known { name, value, is_settable: true }
}

/// In PostgreSQL's order. `session_authorization` is the user.
const KNOWN: [Known; 13] = [
    settable("application_name", ""),
    settable("client_encoding", "UTF8"),
    settable("DateStyle", "ISO, MDY"),
    settable("default_transaction_read_only", "off"),
    fixed("in_hot_standby", "off"),
    fixed("integer_datetimes", "on"),
    settable("IntervalStyle", "postgres"),
    fixed("is_superuser", "off"),
    fixed("server_encoding", "UTF8"),
    fixed("server_version", VERSION),
    fixed("session_authorization", ""),
    settable("standard_conforming_strings", "on"),
    settable("TimeZone", "UTC"),
];

type Values = [Vec<u8>; KNOWN.len()];

/// The settings of one client.
pub(super) struct Settings {
    values: Values,
    /// As the client knows them.
    reported: Values,
    /// As the session started.
    initial: Values,
    /// As the block began, outside of which there is none.
    before_block: Option<Box<Values>>,
}

impl Settings {
    /// Those of the server, with the client's own from its startup packet.
    pub(super) fn new(user: &[u8], parameters: Parameters<'_>) -> Self {
        let value = |known: &Known| match known {
            Known { name: "session_authorization", .. } => user.to_vec(),
            Known { name, value, is_settable: true } => {
                parameters.get(name.as_bytes()).unwrap_or(value.as_bytes()).to_vec()
            }
            Known { value, .. } => value.as_bytes().to_vec(),
        };
        let values: Values = std::array::from_fn(|at| value(&KNOWN[at]));
        Self { reported: values.clone(), initial: values.clone(), values, before_block: None }
    }

    /// All of them, as a login reports them.
    pub(super) fn report_all(&self, out: &mut Vec<u8>) {
        for (known, value) in KNOWN.iter().zip(&self.values) {
            backend::parameter_status(out, known.name.as_bytes(), value);
        }
    }

    /// Those that have changed since they were reported. PostgreSQL reports them before a ReadyForQuery.
    pub(super) fn report_changes(&mut self, out: &mut Vec<u8>) {
        for (at, value) in self.values.iter().enumerate() {
            if *value != self.reported[at] {
                backend::parameter_status(out, KNOWN[at].name.as_bytes(), value);
                self.reported[at].clone_from(value);
            }
        }
    }

    /// Another value, if the setting is one of these and a client may change it; without a value that of the start.
    pub(super) fn set(&mut self, name: &[u8], value: Option<&[u8]>) {
        if let Some(at) = place(name).filter(|at| KNOWN[*at].is_settable) {
            self.values[at] = value.unwrap_or(&self.initial[at]).to_vec();
        }
    }

    /// RESET ALL.
    pub(super) fn reset(&mut self) {
        self.values = self.initial.clone();
    }

    pub(super) fn begin_block(&mut self) {
        self.before_block = Some(Box::new(self.values.clone()));
    }

    /// A block that fails takes its changes back at once.
    pub(super) fn fail_block(&mut self) {
        if let Some(before) = &self.before_block {
            self.values.clone_from(before);
        }
    }

    pub(super) fn end_block(&mut self, is_committed: bool) {
        if !is_committed {
            self.fail_block();
        }
        self.before_block = None;
    }
}

fn place(name: &[u8]) -> Option<usize> {
    KNOWN.iter().position(|known| name.eq_ignore_ascii_case(known.name.as_bytes()))
}
