//! The part of a shared budget that this process may spend: what it has claimed from the store.
//!
//! A claim is a sum since the beginning of its window, as the use of an account is. A worker compares the two, and never
//! waits for the store. The thread that claims ([`Claimant`](crate::shared::Claimant)) raises claims, and lowers them to what is
//! used already when another gateway needs the rest.

use super::account::{Budgets, Totals};
use crate::denial::Exhausted;

/// A window and a unit: one of the four budgets of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// Tokens of a day.
    DayTokens,
    /// Money of a day.
    DayMoney,
    /// Tokens of a month.
    MonthTokens,
    /// Money of a month.
    MonthMoney,
}

impl Measure {
    /// All, in the order of [`Budgets`].
    pub const ALL: [Self; 4] = [Self::DayTokens, Self::DayMoney, Self::MonthTokens, Self::MonthMoney];

    /// Its window is a day.
    pub fn is_daily(self) -> bool {
        matches!(self, Self::DayTokens | Self::DayMoney)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DayTokens => "day_tokens",
            Self::DayMoney => "day_money",
            Self::MonthTokens => "month_tokens",
            Self::MonthMoney => "month_money",
        }
    }

    /// The limit of these budgets. `None`: there is none.
    pub fn limit(self, budgets: &Budgets) -> Option<u64> {
        match self {
            Self::DayTokens => budgets.day_tokens,
            Self::DayMoney => budgets.day_money,
            Self::MonthTokens => budgets.month_tokens,
            Self::MonthMoney => budgets.month_money,
        }
    }

    /// Its amount in totals.
    pub(super) fn of(self) -> fn(&Totals) -> u64 {
        match self {
            Self::DayTokens => |totals| totals.in_day.tokens,
            Self::DayMoney => |totals| totals.in_day.money,
            Self::MonthTokens => |totals| totals.in_month.tokens,
            Self::MonthMoney => |totals| totals.in_month.money,
        }
    }

    /// The refusal of a request for which it has too little left.
    pub(super) fn exhausted(self) -> Exhausted {
        match self {
            Self::DayTokens => Exhausted::DayTokens,
            Self::DayMoney => Exhausted::DayMoney,
            Self::MonthTokens => Exhausted::MonthTokens,
            Self::MonthMoney => Exhausted::MonthMoney,
        }
    }
}

/// Where the right to spend comes from, for all accounts of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supply {
    /// The budgets are those of this process alone.
    #[default]
    Own,
    /// Other gateways have them, too: claims count.
    Claims,
    /// The same, and the store has not responded since the start, which was a moment ago.
    ClaimsAwaited,
    /// The same, and the store does not respond: nothing is known about what is left elsewhere.
    ClaimsOutOfContact,
    /// The same, and keys with a budget are refused meanwhile, whatever is claimed for them.
    Refused,
}

impl Supply {
    /// As a number, for an atomic.
    pub(super) fn number(self) -> u8 {
        self as u8
    }

    /// The supply of that number.
    pub(super) fn of(number: u8) -> Self {
        match number {
            0 => Self::Own,
            1 => Self::Claims,
            2 => Self::ClaimsAwaited,
            3 => Self::ClaimsOutOfContact,
            _ => Self::Refused,
        }
    }
}

/// The claim of one measure in the present window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// This process may have used so much of the window.
    pub allowed: u64,
    /// The store has replied about this window.
    pub is_known: bool,
    /// The store has not responded for so long that others may soon have the claim: nothing of it is spent before the next reply.
    pub is_stopped: bool,
    /// The store has enough, and granted nothing: other gateways may have to put back what they hold first.
    pub is_held_back: bool,
    /// Left elsewhere when the store last responded: unclaimed, and claimed by others who have not used it. `None`: not known.
    pub elsewhere: Option<u64>,
    /// Used by others at that moment.
    pub used_elsewhere: u64,
    /// With less left than this, more is claimed.
    pub low: u64,
    /// The smallest request since the last look for which too little was claimed. 0: there was none.
    pub denied: u64,
    /// The largest request of late.
    pub largest: u64,
    /// The claim of the next window, shortly before it begins.
    pub next: u64,
}

/// The claims of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    pub claims: [Claim; 4],
    /// The thread that claims has been called for this account.
    pub is_called: bool,
}

/// A request against one claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub supply: Supply,
    /// Settled and reserved in the window.
    pub used: u64,
    /// The amount of the request.
    pub more: u64,
}

/// The verdict of a claim about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// More may come from the store.
    Later,
    /// All gateways together have less left.
    Never,
}

impl Claim {
    /// Whether it has room for a request.
    pub(super) fn room(&self, Draw { supply, used, more }: Draw) -> Room {
        let left = self.allowed.saturating_sub(used);
        let is_open = !self.is_stopped && supply != Supply::Refused;
        if supply == Supply::Own || (is_open && left > 0 && left >= more) {
            return Room::Enough;
        }
        match (supply, self.elsewhere) {
            (Supply::Claims, Some(elsewhere)) if !self.is_stopped => {
                let all = left.saturating_add(elsewhere);
                if all == 0 || all < more { Room::Never } else { Room::Later }
            }
            _ => Room::Later,
        }
    }

    /// Begins the next window: with its claim if that follows at once.
    fn begin(&mut self, is_next: bool) {
        let allowed = if is_next { self.next } else { 0 };
        *self = Self { allowed, is_known: allowed > 0, low: allowed / 2, largest: self.largest, ..Self::default() };
    }
}

impl Allowance {
    /// Begins windows. `Some(true)`: the one that follows the present one.
    pub(super) fn begin(&mut self, day: Option<bool>, month: Option<bool>) {
        for measure in Measure::ALL {
            if let Some(is_next) = if measure.is_daily() { day } else { month } {
                self.claims[measure as usize].begin(is_next);
            }
        }
    }

    /// Notes a request that a claim had no room for.
    pub(super) fn note_denied(&mut self, measure: Measure, more: u64) {
        let claim = &mut self.claims[measure as usize];
        // Even what costs nothing needs something left.
        let more = more.max(1);
        claim.denied = if claim.denied == 0 { more } else { claim.denied.min(more) };
        claim.largest = claim.largest.max(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supply_is_found_by_its_number() {
        let claims = [Supply::Claims, Supply::ClaimsAwaited, Supply::ClaimsOutOfContact];
        for supply in [Supply::Own, Supply::Refused].into_iter().chain(claims) {
            assert_eq!(Supply::of(supply.number()), supply);
        }
    }

    #[test]
    fn a_claim_says_whether_a_request_may_come_again() {
        let claim = Claim { allowed: 100, elsewhere: Some(50), ..Claim::default() };
        let room = |claim: Claim, supply, used, more| claim.room(Draw { supply, used, more });
        assert_eq!(room(claim, Supply::Claims, 60, 40), Room::Enough);
        assert_eq!(room(claim, Supply::Claims, 60, 41), Room::Later);
        assert_eq!(room(claim, Supply::Claims, 60, 91), Room::Never);
        assert_eq!(room(claim, Supply::ClaimsOutOfContact, 60, 91), Room::Later, "it is not known");
        assert_eq!(room(claim, Supply::Own, 60, 91), Room::Enough);
        assert_eq!(room(claim, Supply::Refused, 60, 1), Room::Later, "whatever is claimed");
        assert_eq!(room(Claim { is_stopped: true, ..claim }, Supply::ClaimsOutOfContact, 60, 1), Room::Later);
        assert_eq!(room(Claim { elsewhere: None, ..claim }, Supply::Claims, 60, 91), Room::Later);
        assert_eq!(room(claim, Supply::Claims, 100, 0), Room::Later, "what costs nothing needs something left");
        assert_eq!(room(Claim { elsewhere: Some(0), ..claim }, Supply::Claims, 100, 0), Room::Never);
    }

    #[test]
    fn the_smallest_request_that_was_denied_is_served_first() {
        let mut allowance = Allowance::default();
        for more in [0, 70, 30, 50] {
            allowance.note_denied(Measure::MonthMoney, more);
        }
        let claim = allowance.claims[3];
        assert_eq!((claim.denied, claim.largest), (1, 70));
        allowance.claims[3].next = 8;
        allowance.begin(Some(true), None);
        assert_eq!(allowance.claims[3].next, 8, "the month goes on");
        allowance.begin(None, Some(true));
        assert_eq!((allowance.claims[3].allowed, allowance.claims[3].denied), (8, 0));
    }
}
