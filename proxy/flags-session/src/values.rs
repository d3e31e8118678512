//! The values of a context by number: a rule finds its value without a search for the name.

use std::collections::BTreeMap;

use weir_flags_codec::{Context, ContextField};

/// The number of a name. Those of the fields come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    pub(crate) const fn of_field(field: ContextField) -> Self {
        Self(field as u32)
    }
}

/// The names that flags look at, while they are compiled.
#[derive(Debug, Default)]
pub(crate) struct NameCollector(BTreeMap<Box<str>, Slot>);

impl NameCollector {
    /// The number of a name.
    pub(crate) fn slot(&mut self, name: &str) -> Slot {
        if let Some(field) = ContextField::of(name) {
            return Slot::of_field(field);
        }
        let next = Slot((ContextField::ALL.len() + self.0.len()) as u32);
        match self.0.get(name) {
            Some(slot) => *slot,
            None => *self.0.entry(name.into()).or_insert(next),
        }
    }

    /// All names.
    pub(crate) fn finish(self) -> Names {
        Names(self.0.into_iter().collect())
    }
}

/// The names of properties that the flags of a snapshot look at, in order.
#[derive(Debug)]
pub(crate) struct Names(Box<[(Box<str>, Slot)]>);

impl Names {
    /// The values of a context. Properties that no flag looks at are left out.
    pub(crate) fn values<'a>(&self, context: &'a Context<'_>) -> Values<'a> {
        let fields = ContextField::ALL.len();
        let mut values = vec![None; fields + self.0.len()];
        for (field, value) in ContextField::ALL.into_iter().zip(&mut values) {
            *value = context.field(field);
        }
        if !self.0.is_empty() {
            for (name, value) in context.properties() {
                if let Ok(at) = self.0.binary_search_by(|(other, _)| (**other).cmp(name)) {
                    // The first of equal names counts.
                    values[self.0[at].1.0 as usize].get_or_insert(value);
                }
            }
        }
        Values(values)
    }
}

/// The values of one request.
#[derive(Debug)]
pub(crate) struct Values<'a>(Vec<Option<&'a str>>);

impl<'a> Values<'a> {
    /// The value of a number.
    pub(crate) fn get(&self, slot: Slot) -> Option<&'a str> {
        self.0.get(slot.0 as usize).copied().flatten()
    }

    /// The value of a field.
    pub(crate) fn field(&self, field: ContextField) -> Option<&'a str> {
        self.get(Slot::of_field(field))
    }
}
