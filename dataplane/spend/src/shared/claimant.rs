//! A gateway in front of the store: what it claims and gives back, and when. Pure: the accounts are in memory, time is an argument,
//! and the caller carries requests to the store.

use std::{collections::HashMap, sync::Arc, time::Duration};

use weir_base::Time;

use super::{
    AHEAD, AMOUNT_MAX, CONTACT_MAX, ClaimReply, ClaimRequest, ClaimSettings, Hunger, Item, LOOK_INTERVAL,
    OnStoreFailure, PARTS,
};
use crate::budget::{Account, Budgets, Day, Ledger, Measure, Position, Supply};

/// The knowledge of the store about an item.
#[derive(Clone, Copy, Debug)]
struct Known {
    limit: u64,
    used: u64,
    allowed: u64,
    /// When that was sent: the store ends the claim `claim_ttl` later.
    at: Time,
    /// It is said again with the next look: the store may know something else.
    is_doubtful: bool,
}

/// Counts since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Claims that were granted.
    pub granted: u64,
    /// Claims of which the store had nothing to grant.
    pub refused: u64,
    /// Claims that were lowered for another gateway.
    pub given_back: u64,
    /// Claims that were stopped, since the store did not respond for three quarters of their time.
    pub expired: u64,
}

/// The claims of a process.
#[derive(Debug)]
pub struct Claimant {
    ledger: Ledger,
    settings: ClaimSettings,
    known: HashMap<Item, Known>,
    /// The sizes of requests that other gateways have no room for.
    hungry: HashMap<Item, u64>,
    /// The last reply; before the first one, the start.
    contact: Time,
    looked: Option<Time>,
    /// The last look was at all accounts.
    is_looking: bool,
    /// All accounts are claimed for since the store has responded.
    is_settled: bool,
    /// Keys with a budget are refused, although the store responds.
    is_refusing: bool,
    /// The process ends: nothing is wanted any more.
    is_ending: bool,
    /// Something was granted since the last round: requests may wait for it.
    has_granted: bool,
    tally: Tally,
}

impl Claimant {
    /// The claims for the accounts of `ledger`, from `now` on.
    pub fn new(ledger: Ledger, settings: ClaimSettings, now: Time) -> Self {
        Self {
            ledger,
            settings,
            known: HashMap::new(),
            hungry: HashMap::new(),
            contact: now,
            looked: None,
            is_looking: false,
            is_settled: false,
            is_refusing: false,
            is_ending: false,
            has_granted: false,
            tally: Tally::default(),
        }
    }

    /// Counts since the start of the process.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Something was used in a window that is not over, or claimed.
    pub fn has_used(&self) -> bool {
        self.ledger.accounts().iter().any(|account| {
            let position = account.position();
            Measure::ALL.into_iter().any(|measure| position.used_of(measure) > 0 || position.claim(measure).allowed > 0)
        })
    }

    /// The store has begun an epoch since the last call: it may know nothing of this gateway, which puts everything back.
    pub fn on_new_epoch(&mut self) {
        self.known.values_mut().for_each(|known| known.is_doubtful = true);
        self.hungry.clear();
        (self.looked, self.is_settled) = (None, false);
    }

    /// The last requests were those of a look at all accounts: their first call looks for the needs of other gateways, too.
    pub fn is_looking(&self) -> bool {
        self.is_looking
    }

    /// The next requests, for the store as a whole or in parts. It looks at all accounts every [`LOOK_INTERVAL`], and before at those that
    /// have called.
    pub fn requests(&mut self, now: Time, unix_seconds: u64) -> Vec<ClaimRequest> {
        let today = Day::of(unix_seconds).max(self.ledger.latest_day());
        let called = self.ledger.take_calls();
        let is_due = self.looked.is_none_or(|at| now.since(at) >= LOOK_INTERVAL);
        let accounts = match is_due {
            true => self.ledger.accounts(),
            // Others see their hunger with the next look at all.
            false => called,
        };
        self.is_looking = is_due;
        let mut requests = Vec::new();
        for account in accounts {
            let (position, budgets) = account.look(today);
            self.look(&account, (&position, &budgets), Moment { now, unix_seconds, is_due }, &mut requests);
        }
        if is_due {
            self.looked = Some(now);
            self.hungry.clear();
            let month = today.month().number();
            let is_over = |item: &Item| item.window < if item.measure.is_daily() { today.number() } else { month };
            self.known.retain(|item, _| !is_over(item));
        }
        requests
    }

    fn look(
        &mut self,
        account: &Arc<Account>,
        (position, budgets): (&Position, &Budgets),
        moment: Moment,
        requests: &mut Vec<ClaimRequest>,
    ) {
        for measure in Measure::ALL {
            let Some(limit) = measure.limit(budgets) else { continue };
            let window = position.window_of(measure);
            let item = Item { account: account.id(), measure, window };
            let seconds_left = seconds_left(position, measure, moment.unix_seconds);
            let base = ClaimRequest {
                item,
                limit: limit.min(AMOUNT_MAX),
                used: 0,
                held: None,
                need: 0,
                comfort: position.claim(measure).largest.min(AMOUNT_MAX),
                is_wanting: true,
                seconds_left,
            };
            requests.extend(self.request(account, position, base, moment));
            requests.extend(self.request_ahead(account, position, base, moment));
        }
    }

    /// The request about an item in the present window, if there is something to say.
    fn request(
        &mut self,
        account: &Account,
        position: &Position,
        base: ClaimRequest,
        Moment { now, is_due, .. }: Moment,
    ) -> Option<ClaimRequest> {
        let (item, measure) = (base.item, base.item.measure);
        let (mut claim, mut used) = (*position.claim(measure), position.used_of(measure));
        let known = self.known.get(&item).copied();
        let age = known.map_or(Duration::ZERO, |known| now.since(known.at));
        let idle = claim.allowed.saturating_sub(used);
        let hunger = self.hungry.get(&item).copied().filter(|_| idle > 0 && position.is_sole());
        let is_over = known.is_some() && age >= self.settings.stop_after();
        if is_over || hunger.is_some() {
            let half = if hunger.is_some_and(|need| idle / 2 >= need) { idle / 2 } else { 0 };
            let (keep, was_stopped) = (if is_over { 0 } else { half }, claim.is_stopped);
            let lowered = account.change_claim(measure, item.window, |claim, used| {
                claim.allowed = claim.allowed.min(used.saturating_add(keep));
                // More is wanted as soon as the store responds again.
                claim.low = if is_over { 1 } else { keep / 2 };
                claim.is_stopped |= is_over;
            });
            (claim, used) = lowered?;
            self.tally.given_back += u64::from(!is_over);
            self.tally.expired += u64::from(is_over && !was_stopped);
        }
        if is_due {
            // Large requests of long ago are no reason for large claims.
            let _ = account.change_claim(measure, item.window, |claim, _| claim.largest -= claim.largest / 16);
        }
        let is_low = claim.allowed.saturating_sub(used) < claim.low && claim.elsewhere != Some(0);
        let is_lacking = position.claim(measure).denied > 0 || is_low || !claim.is_known || claim.is_held_back;
        let is_wanting = !self.is_ending && is_lacking;
        let is_news = self.is_ending
            || known.is_none_or(|known| {
                let is_changed = known.used != used && age >= LOOK_INTERVAL;
                let is_other = known.limit != base.limit || known.allowed != claim.allowed;
                known.is_doubtful || is_changed || is_other || age >= self.settings.refresh_interval()
            });
        // The end gives back a claim of an earlier process, too.
        let held = (claim.is_known || self.is_ending).then_some(claim.allowed.min(AMOUNT_MAX));
        let need = if self.is_ending { 0 } else { position.claim(measure).denied.min(AMOUNT_MAX) };
        let used = used.min(AMOUNT_MAX);
        let request = ClaimRequest { used, held, need, is_wanting, ..base };
        (is_wanting || is_news).then_some(request)
    }

    /// The request about the window that follows `base`: claimed shortly before it begins, kept until then, and given back whole
    /// by the end of a process.
    fn request_ahead(
        &self,
        account: &Account,
        position: &Position,
        base: ClaimRequest,
        Moment { now, is_due, .. }: Moment,
    ) -> Option<ClaimRequest> {
        let is_near = base.seconds_left <= AHEAD.as_secs();
        let item = Item { window: base.item.window.saturating_add(1), ..base.item };
        let base = ClaimRequest { item, seconds_left: base.seconds_left + NEXT_SECONDS, ..base };
        let known = self.known.get(&item);
        if self.is_ending {
            let last = ClaimRequest { held: Some(0), is_wanting: false, ..base };
            return (known.is_some() || is_near).then_some(last);
        }
        let Some(known) = known else { return (is_near && is_due).then_some(base) };
        let (age, mut held) = (now.since(known.at), position.claim(item.measure).next);
        if age >= self.settings.stop_after() {
            held = 0;
            account.set_next_claim(item.measure, item.window, held);
        }
        let is_news = known.is_doubtful || known.limit != base.limit || age >= self.settings.refresh_interval();
        (is_due && is_news).then_some(ClaimRequest { held: Some(held), is_wanting: held == 0, ..base })
    }

    /// The store has replied to requests that were sent at `sent`.
    pub fn on_replies(&mut self, requests: &[ClaimRequest], replies: &[ClaimReply], sent: Time) {
        self.contact = self.contact.max(sent);
        for (request, reply) in requests.iter().zip(replies) {
            let ClaimRequest { item, held, is_wanting, .. } = *request;
            let account = self.ledger.account(item.account);
            let is_granted = reply.allowed > held.unwrap_or(0);
            let lack = request.need.saturating_sub(reply.allowed.saturating_sub(request.used));
            let is_present = account.change_claim(item.measure, item.window, |claim, used| {
                claim.allowed = reply.allowed;
                claim.elsewhere = Some(reply.rest.saturating_add(reply.idle_elsewhere));
                claim.used_elsewhere = reply.used_elsewhere;
                (claim.is_known, claim.is_stopped) = (true, false);
                if is_wanting {
                    claim.low = claim.allowed.saturating_sub(used) / 2;
                    // A store that has so much grants something.
                    claim.is_held_back = !is_granted && reply.rest >= lack.max(PARTS);
                }
            });
            if is_present.is_none() {
                account.set_next_claim(item.measure, item.window, reply.allowed);
            }
            self.has_granted |= is_granted;
            self.tally.granted += u64::from(is_wanting && is_granted);
            self.tally.refused += u64::from(is_wanting && !is_granted);
            // A claim that the store has lowered is noted by the next call.
            let is_doubtful = held.is_some_and(|held| reply.allowed < held);
            let ClaimRequest { limit, used, .. } = *request;
            self.known.insert(item, Known { limit, used, allowed: reply.allowed, at: sent, is_doubtful });
        }
    }

    /// Other gateways lack these.
    pub fn on_hungers(&mut self, hungers: &[Hunger]) {
        for hunger in hungers {
            let need = self.hungry.entry(hunger.item).or_default();
            *need = (*need).max(hunger.need);
        }
    }

    /// All requests of a look have their replies.
    pub fn on_round(&mut self, now: Time) {
        self.contact = self.contact.max(now);
        self.is_settled = true;
        self.ledger.set_supply(if self.is_refusing { Supply::Refused } else { Supply::Claims });
        if std::mem::take(&mut self.has_granted) || self.is_looking {
            self.ledger.announce();
        }
    }

    /// The store has not replied to these. It may have carried them out.
    pub fn on_failure(&mut self, requests: &[ClaimRequest], now: Time) {
        // The time of the last reply stays: the claim ends by it.
        for request in requests {
            if let Some(known) = self.known.get_mut(&request.item) {
                known.is_doubtful = true;
            }
        }
        // The next look is at all accounts: a round whose requests all have their replies ends the failure.
        self.looked = None;
        if self.is_in_contact(now) {
            return;
        }
        self.ledger.set_supply(match self.settings.on_failure {
            _ if self.is_refusing => Supply::Refused,
            OnStoreFailure::Claimed => Supply::ClaimsOutOfContact,
            OnStoreFailure::Local => Supply::Own,
            OnStoreFailure::Refuse => Supply::Refused,
        });
        self.is_settled = false;
    }

    /// The store has responded of late.
    pub fn is_in_contact(&self, now: Time) -> bool {
        now.since(self.contact) < CONTACT_MAX
    }

    /// All accounts are claimed for, and the store responds.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// When the store last responded; before the first reply, the start.
    pub fn contact(&self) -> Time {
        self.contact
    }

    /// The next look is at all accounts.
    pub fn look_at_all(&mut self) {
        self.looked = None;
    }

    /// The process ends: nothing is spent any more. The next requests give the claims back, and none wants anything.
    pub fn end(&mut self) {
        self.is_ending = true;
        self.looked = None;
        self.refuse();
    }

    /// Spends again behind [`Self::refuse`]. The next requests say everything.
    pub fn resume(&mut self) {
        self.is_refusing = false;
        self.on_new_epoch();
    }

    /// Lowers all claims to what is used, and refuses keys with a budget: at the end, or since another process has the identity of this one.
    pub fn refuse(&mut self) {
        self.is_refusing = true;
        // A settlement below its reservation makes no room for a request.
        self.ledger.set_supply(Supply::Refused);
        for account in self.ledger.accounts() {
            let position = account.position();
            for measure in Measure::ALL {
                let window = position.window_of(measure);
                let _ = account.change_claim(measure, window, |claim, used| {
                    claim.allowed = claim.allowed.min(used);
                    (claim.low, claim.denied, claim.next) = (0, 0, 0);
                });
            }
        }
    }
}

/// From the end of a window to that of the next one, and a day more.
const NEXT_SECONDS: u64 = 32 * 86_400;

/// The time of a look.
#[derive(Clone, Copy, Debug)]
struct Moment {
    now: Time,
    unix_seconds: u64,
    /// All accounts are looked at.
    is_due: bool,
}

/// Seconds to the end of the present window of a measure.
fn seconds_left(position: &Position, measure: Measure, unix_seconds: u64) -> u64 {
    let day = position.settled.day;
    let mut end = Day::new(day.number().saturating_add(1));
    while !measure.is_daily() && end.month() == day.month() && end.number() < u32::MAX {
        end = Day::new(end.number() + 1);
    }
    (u64::from(end.number()) * 86_400).saturating_sub(unix_seconds)
}
