//! An account: the amounts that a key, a team or an organisation has used.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use aws_lc_rs::digest::{SHA256, digest};
use weir_base::Budget;

use super::{
    allowance::{Allowance, Claim, Draw, Measure, Room, Supply},
    ledger::Share,
    stance::{Limit, Stance},
    window::{Day, Month},
};
use crate::{amount::Amount, denial::Exhausted, rate::Bucket};

/// Whose account it is. The order is the one in which accounts are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountKind {
    /// That of a key.
    Key,
    /// That of a team.
    Team,
    /// That of an organisation.
    Organization,
}

/// The identity of an account: a hash of its kind and name, the same in every process and after each reload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId([u8; 16]);

impl AccountId {
    /// The account of this name. 128 bits of SHA-256: no two names of a configuration collide.
    pub fn new(kind: AccountKind, name: &str) -> Self {
        let kind = match kind {
            AccountKind::Key => "key",
            AccountKind::Team => "team",
            AccountKind::Organization => "organization",
        };
        let hash = digest(&SHA256, format!("{kind}\0{name}").as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.as_ref()[..16]);
        Self(id)
    }

    /// From its bytes in a record.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes in a record.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Limits per day and month. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budgets {
    /// Tokens per day.
    pub day_tokens: Option<u64>,
    /// Money per day, in millionths.
    pub day_money: Option<u64>,
    /// Tokens per month.
    pub month_tokens: Option<u64>,
    /// Money per month, in millionths.
    pub month_money: Option<u64>,
}

impl Budgets {
    /// There is a limit.
    pub fn is_limited(&self) -> bool {
        *self != Self::default()
    }

    /// There is a limit in money.
    pub fn limits_money(&self) -> bool {
        self.day_money.or(self.month_money).is_some()
    }
}

/// The amounts that an account has used in its latest day and month, without reservations. Durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The latest day with a charge.
    pub day: Day,
    /// Used on that day.
    pub in_day: Amount,
    /// The latest month with a charge.
    pub month: Month,
    /// Used in that month.
    pub in_month: Amount,
}

impl Totals {
    /// Adds a charge of a day. One of an earlier window than the latest is no longer of interest to that window.
    pub fn add(&mut self, day: Day, amount: Amount) {
        self.begin(day);
        if day == self.day {
            self.in_day = self.in_day.plus(amount);
        }
        if day.month() == self.month {
            self.in_month = self.in_month.plus(amount);
        }
    }

    /// Adds the charges of another sum. Those of an earlier window than the latest are left out.
    pub fn merge(&mut self, other: &Self) {
        self.begin(other.day);
        if other.month > self.month {
            (self.month, self.in_month) = (other.month, Amount::ZERO);
        }
        if other.day == self.day {
            self.in_day = self.in_day.plus(other.in_day);
        }
        if other.month == self.month {
            self.in_month = self.in_month.plus(other.in_month);
        }
    }

    /// The charges since `earlier`, which is a part of this sum.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut rest = *self;
        if earlier.day == self.day {
            rest.in_day = self.in_day.minus(earlier.in_day);
        }
        if earlier.month == self.month {
            rest.in_month = self.in_month.minus(earlier.in_month);
        }
        rest
    }

    /// Begins the windows of a day if they are later than the latest.
    pub fn begin(&mut self, day: Day) {
        if day > self.day {
            (self.day, self.in_day) = (day, Amount::ZERO);
        }
        let month = day.month();
        if month > self.month {
            (self.month, self.in_month) = (month, Amount::ZERO);
        }
    }
}

/// An account at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Settled.
    pub settled: Totals,
    /// Reserved on the day of `settled`.
    pub reserved_in_day: Amount,
    /// Reserved in the month of `settled`.
    pub reserved_in_month: Amount,
    /// The share of this process while another one has the account too.
    pub(super) stance: Stance,
    /// The latest budgets, for the thread that claims.
    pub(super) budgets: Budgets,
    /// The claims of this process, if several gateways have the budgets.
    pub(super) allowance: Allowance,
}

impl Position {
    pub(super) fn begin(&mut self, day: Day) {
        let before = self.settled;
        self.settled.begin(day);
        if self.settled.day != before.day {
            self.reserved_in_day = Amount::ZERO;
        }
        if self.settled.month != before.month {
            self.reserved_in_month = Amount::ZERO;
        }
        self.stance.begin(day);
        let step = |from: u32, to: u32| (from != to).then_some(to == from.saturating_add(1));
        let (of_day, of_month) = (
            step(before.day.number(), self.settled.day.number()),
            step(before.month.number(), self.settled.month.number()),
        );
        self.allowance.begin(of_day, of_month);
    }

    /// No other process has a part of the account.
    pub(crate) fn is_sole(&self) -> bool {
        self.stance == Stance::Sole
    }

    /// The claim of a measure.
    pub fn claim(&self, measure: Measure) -> &Claim {
        &self.allowance.claims[measure as usize]
    }

    /// Settled and reserved.
    fn used(&self) -> Totals {
        Totals {
            in_day: self.settled.in_day.plus(self.reserved_in_day),
            in_month: self.settled.in_month.plus(self.reserved_in_month),
            ..self.settled
        }
    }

    /// The first budget that has less left than `amount`.
    pub(super) fn lacks(&self, budgets: &Budgets, amount: Amount, supply: Supply) -> Option<Exhausted> {
        let used = self.used();
        let limits = Measure::ALL.into_iter().filter_map(|measure| {
            let (of, more) = (measure.of(), amount.of(measure));
            measure.limit(budgets).map(|limit| (Limit { limit, used: of(&used), more, of }, measure))
        });
        // An account at its limit admits nothing, even what costs nothing by estimate.
        let is_lacking = |one: &Limit| one.used >= one.limit || one.limit - one.used < one.more;
        if let Some((_, measure)) = limits.clone().find(|(limit, _)| is_lacking(limit)) {
            return Some(measure.exhausted());
        }
        let room =
            |limit: &Limit, measure| self.claim(measure).room(Draw { supply, used: limit.used, more: limit.more });
        let rooms = limits.clone().map(|(limit, measure)| (room(&limit, measure), measure));
        if let Some((_, measure)) = rooms.clone().find(|(room, _)| *room == Room::Never) {
            return Some(measure.exhausted());
        }
        if rooms.into_iter().any(|(room, _)| room == Room::Later) {
            return Some(Exhausted::Store);
        }
        let mut claimed = limits.map(|(limit, measure)| match supply {
            Supply::Own => limit,
            _ => Limit { limit: limit.limit.min(self.claim(measure).allowed), ..limit },
        });
        claimed.any(|limit| !self.stance.has_room(limit)).then_some(Exhausted::Lease)
    }

    /// Notes the claims that had no room for a request, unless the budget itself has none.
    pub(super) fn note_denied(&mut self, budgets: &Budgets, amount: Amount, supply: Supply) {
        let used = self.used();
        for measure in Measure::ALL {
            let draw = Draw { supply, used: measure.of()(&used), more: amount.of(measure) };
            let fits = measure.limit(budgets).is_some_and(|limit| draw.used < limit && limit - draw.used >= draw.more);
            if fits && self.claim(measure).room(draw) != Room::Enough {
                self.allowance.note_denied(measure, draw.more);
            }
        }
    }

    /// Notes a request that was granted. Whether a claim has little left.
    pub(super) fn note_granted(&mut self, budgets: &Budgets, amount: Amount) -> bool {
        let used = self.used();
        let mut is_low = false;
        for measure in Measure::ALL {
            if measure.limit(budgets).is_some() {
                let claim = &mut self.allowance.claims[measure as usize];
                claim.largest = claim.largest.max(amount.of(measure));
                is_low |= claim.allowed.saturating_sub(measure.of()(&used)) < claim.low;
            }
        }
        is_low
    }

    /// A claim of it is held back.
    pub(crate) fn is_held_back(&self) -> bool {
        self.allowance.claims.iter().any(|claim| claim.is_held_back)
    }

    /// Used of a measure: settled and reserved.
    pub fn used_of(&self, measure: Measure) -> u64 {
        measure.of()(&self.used())
    }

    /// The number of the window of a measure.
    pub fn window_of(&self, measure: Measure) -> u32 {
        if measure.is_daily() { self.settled.day.number() } else { self.settled.month.number() }
    }

    pub(super) fn reserve(&mut self, amount: Amount) {
        self.reserved_in_day = self.reserved_in_day.plus(amount);
        self.reserved_in_month = self.reserved_in_month.plus(amount);
        self.stance.grant(amount);
    }

    /// Counts a reservation that another process made on `day`.
    pub(super) fn reserve_elsewhere(&mut self, day: Day, amount: Amount) {
        self.begin(day);
        if day == self.settled.day {
            self.reserved_in_day = self.reserved_in_day.plus(amount);
        }
        if day.month() == self.settled.month {
            self.reserved_in_month = self.reserved_in_month.plus(amount);
        }
    }

    /// Sets the share of this process, from what is left now.
    pub(super) fn set_share(&mut self, share: Share) {
        let base = self.used();
        self.stance = match share {
            Share::Sole => Stance::Sole,
            Share::Leased => Stance::Leased { base, granted: base.since(&base) },
            Share::Ceded => Stance::Ceded,
            Share::Lending => Stance::Lending { base },
        };
    }

    /// Takes a reservation of `day` back.
    pub(super) fn release(&mut self, day: Day, amount: Amount) {
        if day == self.settled.day {
            self.reserved_in_day = self.reserved_in_day.minus(amount);
        }
        if day.month() == self.settled.month {
            self.reserved_in_month = self.reserved_in_month.minus(amount);
        }
    }
}

/// An account as the workers of a process share it. It outlives reloads: policies come and go, its amounts stay.
#[derive(Debug)]
pub struct Account {
    id: AccountId,
    /// Requests per minute.
    pub requests: Bucket,
    /// Tokens per minute.
    pub tokens: Bucket,
    /// Calls of tools and agents per minute.
    pub tool_calls: Bucket,
    /// Requests in flight; the limit is that of the latest policy.
    pub open: Budget,
    position: Mutex<Position>,
}

impl Account {
    pub(super) fn new(id: AccountId, settled: Totals) -> Self {
        let position = Position { settled, ..Position::default() };
        Self {
            id,
            requests: Bucket::default(),
            tokens: Bucket::default(),
            tool_calls: Bucket::default(),
            open: Budget::new(u64::MAX),
            position: Mutex::new(position),
        }
    }

    /// Its identity.
    pub fn id(&self) -> AccountId {
        self.id
    }

    /// The used and reserved amounts at this moment.
    pub fn position(&self) -> Position {
        *self.lock()
    }

    /// Sets the budgets that are claimed for. Whether they are others than before, and limited.
    pub(crate) fn set_budgets(&self, budgets: Budgets) -> bool {
        let mut position = self.lock();
        let is_new = position.budgets != budgets;
        position.budgets = budgets;
        is_new && budgets.is_limited()
    }

    /// A look of the thread that claims: the position in the windows of a day, and its budgets. Requests from now on may call again.
    pub(crate) fn look(&self, today: Day) -> (Position, Budgets) {
        let mut position = self.lock();
        let day = today.max(position.settled.day);
        position.begin(day);
        let found = *position;
        position.allowance.is_called = false;
        position.allowance.claims.iter_mut().for_each(|claim| claim.denied = 0);
        (found, found.budgets)
    }

    /// Changes the claim of a measure, if its window is this one. Returns the claim, and what is used. `None`: the window is over.
    pub(crate) fn change_claim(
        &self,
        measure: Measure,
        window: u32,
        change: impl FnOnce(&mut Claim, u64),
    ) -> Option<(Claim, u64)> {
        let mut position = self.lock();
        let used = position.used_of(measure);
        if position.window_of(measure) != window {
            return None;
        }
        let claim = &mut position.allowance.claims[measure as usize];
        change(claim, used);
        Some((*claim, used))
    }

    /// Sets the claim of the window that follows this one.
    pub(crate) fn set_next_claim(&self, measure: Measure, window: u32, allowed: u64) {
        let mut position = self.lock();
        if position.window_of(measure).saturating_add(1) == window {
            position.allowance.claims[measure as usize].next = allowed;
        }
    }

    /// Held for a few additions, never over a system call.
    pub(super) fn lock(&self) -> MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_names_have_accounts_of_their_own() {
        let ids = [
            AccountId::new(AccountKind::Key, "a"),
            AccountId::new(AccountKind::Team, "a"),
            AccountId::new(AccountKind::Organization, "a"),
            AccountId::new(AccountKind::Key, "b"),
        ];
        for (index, id) in ids.iter().enumerate() {
            assert!(ids[index + 1..].iter().all(|other| other != id));
            assert_eq!(AccountId::from_bytes(*id.bytes()), *id);
        }
    }

    #[test]
    fn charges_of_an_earlier_day_count_for_their_month_only() {
        let mut totals = Totals::default();
        let amount = Amount { tokens: 5, money: 7 };
        // 2026-01-30, -31, 02-01.
        let [first, second, third] = [20_483, 20_484, 20_485].map(Day::new);
        totals.add(second, amount);
        totals.add(first, amount);
        assert_eq!((totals.in_day, totals.in_month), (amount, amount.plus(amount)));
        totals.add(third, amount);
        assert_eq!((totals.in_day, totals.in_month), (amount, amount));
        totals.add(second, amount);
        assert_eq!((totals.in_day, totals.in_month), (amount, amount), "both windows are over");
    }
}
