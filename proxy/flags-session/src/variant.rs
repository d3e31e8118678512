//! The choice of a variant.

use weir_base::Rng;
use weir_flags_codec::OwnedScalar;
use weir_flags_codec::definition::Variant;

use crate::compile::Compiler;
use crate::murmur::{Murmur, VARIANT_SEED};
use crate::rule::user_or_session;
use crate::text_set::TextSet;
use crate::values::{Slot, Values};

/// Variants of a flag or of one of its strategies.
#[derive(Debug)]
pub(crate) struct Variants {
    /// The place of the first among all of the flag.
    first: u32,
    /// The weight of each, with those of all in front.
    sums: Box<[u32]>,
    sticks_to: SticksTo,
    group: Murmur,
    /// Values that select a variant whatever the weights, with the place of the variant here.
    overrides: Box<[(u32, Slot, TextSet)]>,
}

#[derive(Clone, Copy, Debug)]
enum SticksTo {
    UserOrSession,
    Value(Slot),
    Chance,
}

impl Variants {
    /// The variants of a list. `stickiness` stands for that of the first variant, which decides otherwise.
    pub(crate) fn compile(
        list: &[Variant],
        first: u32,
        group: &str,
        stickiness: Option<&str>,
        compiler: &mut Compiler<'_>,
    ) -> Self {
        let stickiness = stickiness.or_else(|| list.first()?.stickiness.as_deref());
        let sticks_to = match stickiness {
            None | Some("default") => SticksTo::UserOrSession,
            Some("random") => SticksTo::Chance,
            Some(_) if list.is_empty() => SticksTo::Chance,
            Some(name) => SticksTo::Value(compiler.names.slot(name)),
        };
        let sums = list.iter().scan(0, |sum: &mut u32, variant| {
            let weight = variant.weight.unwrap_or_default().max(0);
            *sum = sum.saturating_add(u32::try_from(weight).unwrap_or(u32::MAX));
            Some(*sum)
        });
        let mut overrides = Vec::new();
        for (at, variant) in (0..).zip(list) {
            for each in variant.overrides.iter().flatten() {
                let texts = TextSet::new(each.values.iter().filter_map(OwnedScalar::as_str));
                overrides.push((at, compiler.names.slot(&each.context_name), texts));
            }
        }
        let group = Murmur::of_group(group, VARIANT_SEED);
        Self { first, sums: sums.collect(), sticks_to, group, overrides: overrides.into() }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// The place of the chosen variant among all of the flag. `None`: there is none, or none has a weight.
    pub(crate) fn choose(&self, values: &Values<'_>, rng: &mut Rng) -> Option<u32> {
        let is_set = |slot, texts: &TextSet| values.get(slot).is_some_and(|value| texts.has(value));
        if let Some((at, ..)) = self.overrides.iter().find(|(_, slot, texts)| is_set(*slot, texts)) {
            return Some(self.first + at);
        }
        let total = self.sums.last().copied().filter(|total| *total > 0)?;
        let user = match self.sticks_to {
            SticksTo::UserOrSession => user_or_session(values),
            SticksTo::Value(slot) => values.get(slot),
            SticksTo::Chance => None,
        };
        let target = match user {
            Some(user) => self.group.normalized(user, total),
            None => rng.below(u64::from(total)) as u32 + 1,
        };
        Some(self.first + self.sums.partition_point(|sum| *sum < target) as u32)
    }
}
