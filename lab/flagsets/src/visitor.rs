//! Contexts, as far as flags of the sets look at them.

use crate::murmur::normalized;

/// Seed of the hash for variants: with the one of rollouts, users of half a rollout would all have one variant.
const VARIANT_SEED: u32 = 86_028_157;

/// The values of a context that decide about flags of the sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visitor<'a> {
    /// `userId`.
    pub user: Option<&'a str>,
    /// `properties[plan]`.
    pub plan: Option<&'a str>,
}

impl Visitor<'_> {
    /// Whether the user is within a rollout to so many of a hundred.
    pub(crate) fn is_within(&self, percent: u32, group: &str) -> bool {
        percent == 100 || self.user.is_some_and(|user| normalized(group, user, 100, 0) <= percent)
    }

    /// The place of the variant among those with these weights. Without a user it is not defined, and the first is given.
    pub(crate) fn variant(&self, weights: impl Iterator<Item = u32> + Clone, group: &str) -> Option<usize> {
        let total: u32 = weights.clone().sum();
        let target = self.user.map_or(1, |user| normalized(group, user, total, VARIANT_SEED));
        let mut sum = 0;
        weights.into_iter().position(|weight| {
            sum += weight;
            sum >= target
        })
    }
}
