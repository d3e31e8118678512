//! The order of admission: the calls of a worker for each request.
//!
//! 1. [`KeyRing::find`](crate::keys::KeyRing::find): the key.
//! 2. [`Meter::judge`]: the verdict of its policies about the request alone.
//! 3. [`Meter::reserve`]: requests in flight, budgets, rates, and the journal, in this order. The first three can be given
//!    back exactly; a record in the journal is the last step, so that a refused request leaves none.
//! 4. [`Reservation::settle`] when the response has ended, or [`Reservation::release`] when it cost nothing. A reservation that
//!    is dropped instead, by a panic, is charged in full, as after a crash.

use std::{sync::Arc, time::Duration};

use weir_base::{Permit, Time};

use crate::{
    amount::Amount,
    budget::{Account, Day, Grant, LEVELS_MAX, Ledger, Level, Supply},
    denial::{Denial, Exhausted},
    journal::{JournalWriter, record::Charge},
    keys::{Key, KeyLevel},
    policy::{Facts, Mode, Verdict, judge},
    rate::{Pace, RateState, TokenCharge},
    shared::{CLAIM_WAIT, GRACE_WAIT},
    usage::open_record::crash_line,
};

/// Room for a usage record of the usual length.
const LINE_BYTES: usize = 768;

/// Admission on one worker.
#[derive(Clone, Debug)]
pub struct Meter {
    ledger: Ledger,
    /// `None`: budgets end with the process, and there is no usage log.
    journal: Option<Arc<JournalWriter>>,
}

/// The clocks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The clock of rates.
    pub now: Time,
    /// The clock of budgets: Unix time in seconds.
    pub unix_seconds: u64,
}

/// The rates of a key as `x-ratelimit-*` shows them: of its levels, those with the least left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Requests per minute.
    pub requests: Option<RateState>,
    /// Tokens per minute.
    pub tokens: Option<RateState>,
}

impl Meter {
    /// Admission with the accounts of the process and the journal of this worker.
    pub fn new(ledger: Ledger, journal: Option<Arc<JournalWriter>>) -> Self {
        Self { ledger, journal }
    }

    /// The accounts of the process.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The verdict of the key's policies about the request alone. `None`: there are no keys, and nothing is limited.
    pub fn judge(&self, key: Option<&Key>, facts: &Facts<'_>) -> Verdict {
        judge(levels(key).iter().map(|level| &*level.policy), facts)
    }

    /// Reserves what a request may cost. `line` appends its usage record in the
    /// [short form](crate::usage::UsageRecord::write_open), in case the process dies.
    ///
    /// # Errors
    /// The first limit that refuses it. Nothing is taken then, except in a race: a request that one rate admits and the
    /// next one refuses counts with the first.
    pub fn reserve(
        &self,
        key: Option<&Key>,
        estimate: Amount,
        clock: Clock,
        line: impl FnOnce(Day, &mut Vec<u8>),
    ) -> Result<Reservation, Denial> {
        let levels = levels(key);
        let mut observed = None;
        let permits = permits(levels, &mut observed)?;
        let (grant, exhausted) = self.grant(levels, estimate, clock)?;
        observed = observed.or(exhausted.map(|exhausted| Denial::Budget { exhausted }));
        let mut charges = [None; LEVELS_MAX];
        let mut judge = RateJudge { now: clock.now, observed: &mut observed };
        let taken = judge.look(levels).and_then(|()| judge.take(levels, estimate.tokens, &mut charges));
        if let Err(denial) = taken {
            correct(grant.accounts(), &charges, 0, clock.now);
            self.ledger.settle(grant, Amount::ZERO);
            return Err(denial);
        }
        let mut text = Vec::with_capacity(LINE_BYTES);
        line(grant.day, &mut text);
        let mut reservation = Reservation {
            ledger: self.ledger.clone(),
            journal: self.journal.clone(),
            grant: Some(grant),
            id: None,
            line: text,
            charges,
            now: clock.now,
            observed,
            _permits: permits,
        };
        if !reservation.write() && key.is_some_and(Key::is_budgeted) {
            reservation.give_back(clock.now);
            return Err(Denial::Journal);
        }
        Ok(reservation)
    }

    /// Admits a request that costs nothing, whatever its response is: requests in flight and per minute are judged, and no budget and no
    /// rate of tokens. `line` is as that of [`Meter::reserve`].
    ///
    /// # Errors
    /// The first limit that refuses it.
    pub fn admit_free(
        &self,
        key: Option<&Key>,
        clock: Clock,
        line: impl FnOnce(Day, &mut Vec<u8>),
    ) -> Result<Reservation, Denial> {
        let levels = levels(key);
        let mut observed = None;
        let permits = permits(levels, &mut observed)?;
        RateJudge { now: clock.now, observed: &mut observed }.requests_alone(levels)?;
        let (grant, _) = self.grant(&[], Amount::ZERO, clock)?;
        let mut text = Vec::with_capacity(LINE_BYTES);
        line(grant.day, &mut text);
        let mut reservation = Reservation {
            ledger: self.ledger.clone(),
            journal: self.journal.clone(),
            grant: Some(grant),
            id: None,
            line: text,
            charges: [None; LEVELS_MAX],
            now: clock.now,
            observed,
            _permits: permits,
        };
        // Nothing is charged, so a journal that refuses keeps nothing from the budgets.
        let _ = reservation.write();
        Ok(reservation)
    }

    /// Takes one call of a tool or an agent from the rates of a key. Returns the first refusal of a level that only observes.
    ///
    /// # Errors
    /// A level has none left.
    pub fn take_tool_call(&self, key: Option<&Key>, now: Time) -> Result<Option<Denial>, Denial> {
        let (levels, mut observed) = (levels(key), None);
        let mut judge = RateJudge { now, observed: &mut observed };
        // Looks at all first, so that a refusal takes from none.
        for is_taken in [false, true] {
            for level in levels {
                let Some(pace) = level.policy.tool_calls else { continue };
                let bucket = &level.account.tool_calls;
                let state = if is_taken { bucket.take_request(pace, now) } else { bucket.look_request(pace, now) };
                judge.judge(level, state.err().map(|state| Denial::ToolCalls { retry_after: wait(state) }))?;
            }
        }
        Ok(observed)
    }

    fn grant(&self, levels: &[KeyLevel], estimate: Amount, clock: Clock) -> Result<(Grant, Option<Exhausted>), Denial> {
        let today = Day::of(clock.unix_seconds);
        let mut all: [Option<Level<'_>>; LEVELS_MAX] = [None; LEVELS_MAX];
        all.iter_mut().zip(levels).for_each(|(place, level)| *place = Some(level.budget_level()));
        let reserved = match all {
            [None, ..] => self.ledger.reserve(&[], estimate, today),
            [Some(one), None, _] => self.ledger.reserve(&[one], estimate, today),
            [Some(one), Some(two), None] => self.ledger.reserve(&[one, two], estimate, today),
            [Some(one), Some(two), Some(three)] => self.ledger.reserve(&[one, two, three], estimate, today),
        };
        reserved.map(|reserved| (reserved.grant, reserved.observed)).map_err(|exhausted| Denial::Budget { exhausted })
    }

    /// How long a request of a key may wait for [news](Ledger::news_after) after this refusal, in all: the store of budgets may grant what
    /// it lacks. Zero: nothing of that kind was lacking, the store is out of contact, or this process may not spend.
    pub fn claim_wait(&self, key: Option<&Key>, denial: Denial) -> Duration {
        if denial != (Denial::Budget { exhausted: Exhausted::Store }) {
            return Duration::ZERO;
        }
        let mut accounts = levels(key).iter().map(|level| &level.account);
        match self.ledger.supply() {
            Supply::ClaimsAwaited => GRACE_WAIT,
            Supply::Claims if accounts.any(|account| account.position().is_held_back()) => GRACE_WAIT,
            Supply::Claims => CLAIM_WAIT,
            Supply::Own | Supply::ClaimsOutOfContact | Supply::Refused => Duration::ZERO,
        }
    }

    /// The rates of a key at present.
    pub fn rates(&self, key: &Key, now: Time) -> Rates {
        let least = |of: &dyn Fn(&KeyLevel) -> Option<RateState>| {
            key.levels().iter().filter_map(of).min_by_key(|state| (state.remaining, std::cmp::Reverse(state.next)))
        };
        let either = |state: Result<RateState, RateState>| state.unwrap_or_else(|state| state);
        Rates {
            requests: least(&|level| {
                level.policy.requests.map(|pace| either(level.account.requests.look_request(pace, now)))
            }),
            tokens: least(&|level| level.policy.tokens.map(|pace| either(level.account.tokens.look_tokens(pace, now)))),
        }
    }
}

fn levels(key: Option<&Key>) -> &[KeyLevel] {
    key.map_or(&[], Key::levels)
}

fn permits(levels: &[KeyLevel], observed: &mut Option<Denial>) -> Result<[Option<Permit>; LEVELS_MAX], Denial> {
    let mut permits = [None, None, None];
    for (place, level) in permits.iter_mut().zip(levels) {
        let Some(limit) = level.policy.concurrent_max else { continue };
        let denial = Denial::Concurrency { limit };
        let is_enforced = level.policy.mode == Mode::Enforce;
        // The limit is that of the snapshot in use; a reload may bring another one for the same account.
        let limit_now = if is_enforced { u64::from(limit) } else { u64::MAX };
        if level.account.open.limit() != limit_now {
            level.account.open.set_limit(limit_now);
        }
        match level.policy.mode {
            Mode::Observe => {
                *place = level.account.open.try_acquire();
                let is_above = level.account.open.in_use() > u64::from(limit);
                *observed = observed.or(is_above.then_some(denial));
            }
            Mode::Enforce => *place = Some(level.account.open.try_acquire().ok_or(denial)?),
        }
    }
    Ok(permits)
}

/// Tokens that were charged with each level, and the limit that they were charged at.
type Charges = [Option<(Pace, TokenCharge)>; LEVELS_MAX];

/// The rates that refuse a request, as refusals of levels that enforce or as observations.
struct RateJudge<'a> {
    now: Time,
    observed: &'a mut Option<Denial>,
}

impl RateJudge<'_> {
    fn requests(&mut self, level: &KeyLevel, state: Result<RateState, RateState>) -> Result<(), Denial> {
        self.judge(level, state.err().map(|state| Denial::Requests { retry_after: wait(state) }))
    }

    fn tokens(&mut self, level: &KeyLevel, state: RateState) -> Result<(), Denial> {
        self.judge(level, Some(Denial::Tokens { retry_after: wait(state) }))
    }

    fn judge(&mut self, level: &KeyLevel, denial: Option<Denial>) -> Result<(), Denial> {
        match (denial, level.policy.mode) {
            (Some(denial), Mode::Enforce) => Err(denial),
            (denial, _) => {
                *self.observed = self.observed.or(denial);
                Ok(())
            }
        }
    }

    /// Looks at all rates, so that a refusal takes from none.
    fn look(&mut self, levels: &[KeyLevel]) -> Result<(), Denial> {
        for level in levels {
            let (policy, account) = (&level.policy, &level.account);
            if let Some(pace) = policy.requests {
                self.requests(level, account.requests.look_request(pace, self.now))?;
            }
            if let Some(pace) = policy.tokens
                && let Err(state) = account.tokens.look_tokens(pace, self.now)
            {
                self.tokens(level, state)?;
            }
        }
        Ok(())
    }

    /// Takes from the rates of requests. A refusal takes from none, except in a race.
    fn requests_alone(&mut self, levels: &[KeyLevel]) -> Result<(), Denial> {
        let paced = || levels.iter().filter_map(|level| Some((level, level.policy.requests?)));
        for (level, pace) in paced() {
            self.requests(level, level.account.requests.look_request(pace, self.now))?;
        }
        for (level, pace) in paced() {
            self.requests(level, level.account.requests.take_request(pace, self.now))?;
        }
        Ok(())
    }

    /// Takes from all rates. After a refusal, which only a race can bring, `charges` has what was taken before it.
    fn take(&mut self, levels: &[KeyLevel], tokens: u64, charges: &mut Charges) -> Result<(), Denial> {
        for (charge, level) in charges.iter_mut().zip(levels) {
            let (policy, account) = (&level.policy, &level.account);
            if let Some(pace) = policy.requests {
                self.requests(level, account.requests.take_request(pace, self.now))?;
            }
            if let Some(pace) = policy.tokens {
                match account.tokens.take_tokens(pace, tokens, self.now) {
                    Ok(taken) => *charge = Some((pace, taken)),
                    Err(state) => self.tokens(level, state)?,
                }
            }
        }
        Ok(())
    }
}

/// Replaces the estimates of the charges by what was used.
fn correct<'a>(accounts: impl Iterator<Item = &'a Arc<Account>>, charges: &Charges, used: u64, now: Time) {
    for (account, charge) in accounts.zip(charges) {
        if let Some((pace, charge)) = charge {
            account.tokens.correct(*pace, *charge, used, now);
        }
    }
}

/// At least a millisecond: zero would be an invitation to come at once.
fn wait(state: RateState) -> Duration {
    state.next.max(Duration::from_millis(1))
}

/// A request that was admitted. It holds its permits until it is settled.
#[derive(Debug)]
#[must_use = "dropped, it is charged in full"]
pub struct Reservation {
    ledger: Ledger,
    journal: Option<Arc<JournalWriter>>,
    /// `None`: it is settled.
    grant: Option<Grant>,
    /// In the journal; `None`: it is not there.
    id: Option<u64>,
    /// The usage record if it is dropped, in the short form.
    line: Vec<u8>,
    charges: Charges,
    now: Time,
    observed: Option<Denial>,
    _permits: [Option<Permit>; LEVELS_MAX],
}

impl Reservation {
    /// The first refusal of a level that only observes.
    pub fn observed(&self) -> Option<Denial> {
        self.observed
    }

    /// It survives the process.
    pub fn is_journaled(&self) -> bool {
        self.id.is_some()
    }

    /// The day whose budgets it is charged to.
    pub fn day(&self) -> Day {
        self.grant.as_ref().map_or(Day::default(), |grant| grant.day)
    }

    /// Replaces the reservation by what was used. `line` appends the usage record, which must say the same amount and day.
    pub fn settle(mut self, used: Amount, now: Time, line: impl FnOnce(Day, &mut Vec<u8>)) {
        let mut text = std::mem::take(&mut self.line);
        text.clear();
        line(self.day(), &mut text);
        self.end(used, now, &text);
    }

    /// The request cost nothing: it failed, or came from a cache.
    pub fn release(self, now: Time, line: impl FnOnce(Day, &mut Vec<u8>)) {
        self.settle(Amount::ZERO, now, line);
    }

    /// Writes the reservation. False: there is a journal, and it refuses.
    fn write(&mut self) -> bool {
        let (Some(journal), Some(grant)) = (&self.journal, &self.grant) else { return true };
        self.id = journal.reserve(charge(grant, grant.amount), &self.line).ok();
        self.id.is_some()
    }

    /// Takes everything back that is in memory; there is no record.
    fn give_back(&mut self, now: Time) {
        if let Some(grant) = self.grant.take() {
            correct(grant.accounts(), &self.charges, 0, now);
            self.ledger.settle(grant, Amount::ZERO);
        }
    }

    fn end(&mut self, used: Amount, now: Time, line: &[u8]) {
        let Some(grant) = self.grant.take() else { return };
        correct(grant.accounts(), &self.charges, used.tokens, now);
        let written = match (&self.journal, self.id) {
            (Some(journal), Some(id)) => journal.settle(id, charge(&grant, used), line),
            (Some(journal), None) => journal.charge(charge(&grant, used), line),
            (None, _) => Ok(()),
        };
        // A reservation that stays open in the journal will be charged in full: the budgets of this process say the same.
        let used = if written.is_err() && self.id.is_some() { grant.amount } else { used };
        self.ledger.settle(grant, used);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(grant) = &self.grant {
            let amount = grant.amount;
            let line = crash_line(&self.line, grant.day, amount);
            self.end(amount, self.now, &line);
        }
    }
}

fn charge(grant: &Grant, amount: Amount) -> Charge {
    Charge::new(grant.day, amount, grant.accounts().map(|account| account.id()))
}
