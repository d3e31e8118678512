//! Budgets that several gateways share through a store.
//!
//! | file | concept |
//! |---|---|
//! | `claimant` | a gateway: what it claims and gives back, and when (pure) |
//! | [`model`] | the rules of the store (pure), for simulations; a script in the store is the same |
//!
//! A **claim** is a part of a budget that one gateway may spend alone. It is a sum since the beginning of the window, for each
//! account, window and unit ([`Item`]). The store has the claims of all gateways, and their sum stays within the budget. A gateway
//! claims ahead of need, from a thread of its own. A worker compares what is used with the local claim. A request for which too little is
//! claimed waits for that thread, within [`CLAIM_WAIT`]. The journal of the gateway is as durable as ever: `kill -9` loses no settlement.
//!
//! **Absolute.** Each call says what a gateway has used and what it holds, as sums. The store replaces what it knew, so a call
//! that is sent again changes nothing. A lost reply leaves the gateway with less than the store has noted, which the next call
//! corrects. Before a call that gives back, the gateway lowers its own claim. So what a gateway may spend is never more than the store
//! has noted.
//!
//! **Order.** A connection opens a session, which ends the one before. A call of an old connection that arrives late is refused.
//!
//! **Parts.** One claim is an eighth of what is unclaimed, but at least the largest request of late. It is renewed when half of it is
//! used. So the parts shrink with the budget.
//!
//! **Hunger.** A request that finds no room is noted, and so is its size if the store cannot grant it while others hold claims that they do
//! not use. Each gateway reads that with its look twice a second, gives back half of what it does not use, and all of it if that
//! would not be enough for one such request. So the last tokens of a budget are in reach of each gateway.
//!
//! **The store loses data.** A new epoch begins if the store is empty, if another process of the server has the data (a restart, a
//! failover: they may be older), or if their revision, which grows with each call, is less than one that a gateway has seen. Each
//! gateway then puts back what it has used and what it holds. For a time of grace nothing new is granted, so that all can do so. A gateway
//! that wants something meanwhile says so with each look, and its requests wait ([`GRACE_WAIT`]).
//!
//! **The store does not respond.** [`OnStoreFailure`] decides.
//!
//! **A budget is lowered.** While all claims are above it, the store replies with less than a gateway holds. The gateway lowers its claim, and
//! says so with its next call: only then others may have that.
//!
//! **A process ends.** Its last call gives back what it has not used, and wants nothing.
//!
//! **A gateway is gone.** Its claim ends [`ClaimSettings::claim_ttl`] after its last call, and what it had not used returns to the budget.
//! The gateway itself stops at three quarters of that time, and grants nothing until the next reply, not even what a settlement frees.
//!
//! **Bound.** All gateways together settle at most the budget, and what settlements exceed their reservations. Past that may be only: what
//! a gateway spent that was out of contact for longer than `claim_ttl` (at most its last claim), and, after a loss of data, what was used
//! by gateways that did not come back within the grace.

mod claimant;
pub mod model;

use std::time::Duration;

pub use claimant::{Claimant, Tally};

use crate::budget::{AccountId, Measure};

/// From the last call of a gateway to the end of its claims. Default 10 min: longer than a restart of a machine.
pub const CLAIM_TTL: Duration = Duration::from_secs(600);

/// The time after a loss of data in which gateways put back what they hold, and nothing new is granted. Default 5 s: ten times the pause
/// between two calls of a gateway.
pub const GRACE: Duration = Duration::from_secs(5);

/// Between two looks at all accounts, and between two calls of a gateway that has nothing to say.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The use of other gateways, which operators see, is at most this old. Default 60 s: with 65,536 keys some 2,000 budgets a second.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// How long a request waits for a claim. Default 1 s: two looks, in which another gateway gives back what it does not use.
pub const CLAIM_WAIT: Duration = Duration::from_secs(1);

/// The same while the store grants nothing, or has not responded yet. Default 6 s: the grace, and a look behind it.
pub const GRACE_WAIT: Duration = Duration::from_secs(6);

const _: () = assert!(GRACE_WAIT.as_millis() >= GRACE.as_millis() + LOOK_INTERVAL.as_millis());

/// Without a reply for so long the store is out of contact. Four looks.
pub const CONTACT_MAX: Duration = Duration::from_secs(2);

/// How long the next window is claimed ahead of its beginning.
pub const AHEAD: Duration = Duration::from_secs(60);

/// One claim is this part of what is unclaimed.
pub const PARTS: u64 = 8;

/// How long a noted hunger is seen by others, in milliseconds: four looks.
pub const HUNGER_MS: u64 = 2_000;

/// The most hungers that the store keeps. Default 256: each gateway reads all of them with each look, which takes the server some 0.2 ms.
/// Others are noted as soon as one is served, or over.
pub const HUNGERS_MAX: usize = 256;

/// The largest number of the store, whose script has floating-point numbers of 64 bits: 2^53, nine thousand million million. Limits beyond
/// it are this one.
pub const AMOUNT_MAX: u64 = 1 << 53;

/// One budget in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// Whose.
    pub account: AccountId,
    /// Its window and unit.
    pub measure: Measure,
    /// The number of the day or month.
    pub window: u32,
}

impl Item {
    /// Its name in the store, such as `3f…:day_tokens:20484`.
    pub fn name(&self) -> String {
        let account: String = self.account.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{account}:{}:{}", self.measure.name(), self.window)
    }

    /// The item of a name. `None`: it is none.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.split(':');
        let (account, measure, window) = (parts.next()?, parts.next()?, parts.next()?);
        let mut bytes = [0; 16];
        if account.len() != 32 || !account.is_ascii() || parts.next().is_some() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&account[2 * index..2 * index + 2], 16).ok()?;
        }
        let measure = Measure::ALL.into_iter().find(|one| one.name() == measure)?;
        Some(Self { account: AccountId::from_bytes(bytes), measure, window: window.parse().ok()? })
    }
}

/// The statement and the wish of a gateway about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Which.
    pub item: Item,
    /// The budget.
    pub limit: u64,
    /// Settled and reserved here in this window.
    pub used: u64,
    /// It may use so much. `None`: the process has just begun, and takes what it had.
    pub held: Option<u64>,
    /// The smallest request that found no room. 0: none.
    pub need: u64,
    /// The largest request of late.
    pub comfort: u64,
    /// More is wanted.
    pub is_wanting: bool,
    /// Seconds to the end of the window.
    pub seconds_left: u64,
}

/// The reply of the store about an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimReply {
    /// The gateway may use so much of the window.
    pub allowed: u64,
    /// Unclaimed.
    pub rest: u64,
    /// Claimed by other gateways, and not used.
    pub idle_elsewhere: u64,
    /// Used by other gateways.
    pub used_elsewhere: u64,
}

/// Another gateway lacks so much of an item for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hunger {
    /// The budget.
    pub item: Item,
    /// The size of the request.
    pub need: u64,
}

/// The treatment of keys with a budget while the store does not respond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Claims may be used up, and requests beyond it are refused.
    #[default]
    Claimed,
    /// Requests are refused, from [`CONTACT_MAX`] on.
    Refuse,
    /// From [`CONTACT_MAX`] on the gateway counts alone: each one may use the whole budget.
    Local,
}

impl OnStoreFailure {
    /// The word in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Refuse => "refuse",
            Self::Local => "local",
        }
    }
}

/// How a gateway claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimSettings {
    /// See [`CLAIM_TTL`]. The same in all gateways.
    pub claim_ttl: Duration,
    /// See [`OnStoreFailure`].
    pub on_failure: OnStoreFailure,
}

impl ClaimSettings {
    /// Without a reply for so long, a gateway spends nothing of a claim any more: three quarters of its time.
    pub fn stop_after(&self) -> Duration {
        self.claim_ttl / 4 * 3
    }

    /// Between two calls about an item that has no news: [`REFRESH_INTERVAL`], or less, so that no claim ends meanwhile.
    pub fn refresh_interval(&self) -> Duration {
        REFRESH_INTERVAL.min(self.claim_ttl / 3)
    }
}

impl Default for ClaimSettings {
    fn default() -> Self {
        Self { claim_ttl: CLAIM_TTL, on_failure: OnStoreFailure::Claimed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::AccountKind;

    #[test]
    fn an_item_is_read_from_its_name() {
        let account = AccountId::new(AccountKind::Key, "a");
        for measure in Measure::ALL {
            let item = Item { account, measure, window: 20_484 };
            assert_eq!(Item::from_name(&item.name()), Some(item));
        }
        let good = Item { account, measure: Measure::DayMoney, window: 7 }.name();
        for bad in ["", ":", "é", &good[1..], &format!("{good}:"), &format!("{good}x"), &good.replace("day", "year")] {
            assert_eq!(Item::from_name(bad), None, "{bad}");
        }
    }
}
