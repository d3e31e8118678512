//! Names of keys.

use crate::scenario::Scenario;

/// Key names. Numbers have the same width, so that all requests of a kind are of one length.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
    digits: usize,
}

/// Keys that only one kind of command uses.
#[derive(Clone, Copy)]
pub(super) enum Space {
    Strings,
    Counters,
    Raw,
}

impl Names {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let last = scenario.keys.count.max(1) - 1;
        Self { prefix: scenario.keys.prefix.clone(), digits: last.to_string().len() }
    }

    pub(super) fn write(&self, space: Space, key: u64, out: &mut Vec<u8>) {
        let word = match space {
            Space::Strings => "",
            Space::Counters => "counter:",
            Space::Raw => "raw:",
        };
        out.extend_from_slice(format!("{}{word}{key:0width$}", self.prefix, width = self.digits).as_bytes());
    }
}
