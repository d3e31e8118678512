//! Dependencies: a flag that is off unless another flag has a certain result.

use crate::compile::Outcome;

/// A condition for the result of another flag.
#[derive(Debug)]
pub(crate) struct Parent {
    /// The place of the other flag in the snapshot.
    pub(crate) flag: u32,
    /// Whether it shall be on.
    pub(crate) shall_be_on: bool,
    /// Results that it may have while on: none of its variants, then each. Empty: any.
    pub(crate) admitted: Box<[bool]>,
}

impl Parent {
    /// Whether the result of the other flag admits this one.
    pub(crate) fn admits(&self, outcome: Outcome) -> bool {
        let result = match outcome {
            Outcome::Off => return !self.shall_be_on,
            Outcome::On => 0,
            Outcome::Variant(variant) => variant as usize + 1,
        };
        self.shall_be_on && (self.admitted.is_empty() || self.admitted.get(result).copied().unwrap_or_default())
    }
}
