//! Variables in place of secrets: a configuration file has none.

use super::words::Options;
use crate::note::{Note, SourceLine};
use crate::toml::Value;

/// Variables that are in use.
#[derive(Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// The secret of an option: its own variable if it came from the environment, else one that is to be set. An option may stand several times: the
    /// variable has the values of all places then.
    pub(super) fn of(&mut self, options: &Options, option: &str, wanted: &str, notes: &mut Vec<Note>) -> Option<Value> {
        let given = options.last(option)?;
        if let Some(variable) = &given.variable {
            return Some(Value::text(format!("env:{variable}")));
        }
        let mut places: Vec<SourceLine> = options.list(option).into_iter().map(|given| given.place).collect();
        places.dedup();
        if places.len() < 2 {
            return Some(self.inline(wanted, &given.place, notes));
        }
        let name = self.name(wanted);
        for place in &places {
            let why = format!(
                "its value is a secret: set the variable {name} to the values of all its {} places, separated by commas",
                places.len()
            );
            notes.push(Note::new(place, name.clone(), why, ""));
        }
        Some(Value::text(format!("env:{name}")))
    }

    /// A variable for a secret that stands on the command line.
    pub(super) fn inline(&mut self, wanted: &str, place: &SourceLine, notes: &mut Vec<Note>) -> Value {
        let name = self.name(wanted);
        let why = format!("its value is a secret: set the variable {name} to it");
        notes.push(Note::new(place, name.clone(), why, ""));
        Value::text(format!("env:{name}"))
    }

    /// The name of a new variable.
    pub(super) fn name(&mut self, wanted: &str) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let base: String = wanted.chars().map(word).collect();
        let mut numbered = std::iter::once(base.clone()).chain((2..).map(|number| format!("{base}_{number}")));
        let name = numbered.find(|name| !self.0.contains(name)).unwrap_or(base);
        self.0.push(name.clone());
        name
    }
}
