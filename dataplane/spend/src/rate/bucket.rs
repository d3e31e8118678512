//! One number that all workers share.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use weir_base::Time;

use super::state::{Pace, RateState};

/// All that was taken, as the time at which all of it will have been earned. A new bucket is full.
///
/// Relaxed is enough: the number guards no other memory.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

/// Tokens that were charged by estimate, to be corrected when the request has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCharge {
    /// When the tokens before it have been earned.
    start: u64,
    /// The estimate.
    tokens: u64,
}

impl Bucket {
    /// Nanoseconds in which all that was taken will have been earned. For a process that goes on with the bucket.
    pub fn debt(&self, now: Time) -> u64 {
        self.0.load(Ordering::Relaxed).saturating_sub(now.as_nanos())
    }

    /// Goes on with the debt of another process.
    pub fn take_over(&self, debt: u64, now: Time) {
        self.0.fetch_max(now.as_nanos().saturating_add(debt), Ordering::Relaxed);
    }

    /// Takes one request if the limit allows it.
    ///
    /// # Errors
    /// The state of the bucket, which is unchanged.
    pub fn take_request(&self, pace: Pace, now: Time) -> Result<RateState, RateState> {
        let (now, one) = (now.as_nanos(), pace.span(1));
        let full = now.saturating_add(pace.span(pace.burst));
        let next = |earned: u64| earned.max(now).saturating_add(one);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |earned| Some(next(earned)).filter(|it| *it <= full));
        match taken {
            Ok(before) => Ok(request_state(pace, next(before), now)),
            Err(before) => Err(request_state(pace, before, now)),
        }
    }

    /// The state that [`Bucket::take_request`] would find.
    ///
    /// # Errors
    /// A request would be refused.
    pub fn look_request(&self, pace: Pace, now: Time) -> Result<RateState, RateState> {
        let state = request_state(pace, self.0.load(Ordering::Relaxed), now.as_nanos());
        if state.next.is_zero() { Ok(state) } else { Err(state) }
    }

    /// Takes the estimate of a request if the bucket holds at least one token. The rest is debt, so a request larger than
    /// the bucket passes when it is full, and the next one waits until the debt is earned.
    ///
    /// # Errors
    /// The state of the bucket, which is unchanged.
    pub fn take_tokens(&self, pace: Pace, tokens: u64, now: Time) -> Result<TokenCharge, RateState> {
        let now_nanos = now.as_nanos();
        let span = pace.span(tokens);
        let latest = latest_with_token(pace, now_nanos);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |earned| {
            (earned <= latest).then(|| earned.max(now_nanos).saturating_add(span))
        });
        match taken {
            Ok(before) => Ok(TokenCharge { start: before.max(now_nanos), tokens }),
            Err(before) => Err(token_state(pace, before, now_nanos)),
        }
    }

    /// The state for tokens.
    ///
    /// # Errors
    /// A request would be refused.
    pub fn look_tokens(&self, pace: Pace, now: Time) -> Result<RateState, RateState> {
        let state = token_state(pace, self.0.load(Ordering::Relaxed), now.as_nanos());
        if state.next.is_zero() { Ok(state) } else { Err(state) }
    }

    /// Replaces the estimate of a charge by what was used. To be called once for each charge.
    ///
    /// Tokens that come back are those that the bucket would hold now if it had been charged so from the beginning. Tokens that a
    /// full bucket could not hold meanwhile are gone.
    pub fn correct(&self, pace: Pace, charge: TokenCharge, used: u64, now: Time) {
        let now = now.as_nanos();
        let end = |tokens: u64| charge.start.saturating_add(pace.span(tokens));
        if used > charge.tokens {
            let more = end(used) - end(charge.tokens);
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |earned| {
                Some(earned.max(now).saturating_add(more))
            });
        } else {
            let back = end(charge.tokens).saturating_sub(end(used).max(now));
            let _ =
                self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |earned| Some(earned.saturating_sub(back)));
        }
    }
}

fn request_state(pace: Pace, earned: u64, now: u64) -> RateState {
    let full = now.saturating_add(pace.span(pace.burst));
    let earned = earned.max(now);
    let next = earned.saturating_add(pace.span(1)).saturating_sub(full);
    state(pace, earned, now, Duration::from_nanos(next))
}

fn token_state(pace: Pace, earned: u64, now: u64) -> RateState {
    let next = earned.saturating_sub(latest_with_token(pace, now));
    state(pace, earned.max(now), now, Duration::from_nanos(next))
}

/// The latest end of all debts with which the bucket holds a token.
fn latest_with_token(pace: Pace, now: u64) -> u64 {
    now.saturating_add(pace.span(pace.burst)).saturating_sub(pace.span(1))
}

fn state(pace: Pace, earned: u64, now: u64, next: Duration) -> RateState {
    let free = pace.span(pace.burst).saturating_sub(earned - now);
    RateState { limit: pace.per_minute, remaining: pace.units(free), reset: Duration::from_nanos(earned - now), next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000 + 1)
    }

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let (bucket, pace) = (Bucket::default(), Pace::per_minute(60).with_burst(3));
        for left in [2, 1, 0] {
            assert_eq!(bucket.take_request(pace, at(0)).unwrap().remaining, left);
        }
        let refused = bucket.take_request(pace, at(0)).unwrap_err();
        assert_eq!((refused.limit, refused.remaining), (60, 0));
        assert_eq!((refused.next, refused.reset), (Duration::from_secs(1), Duration::from_secs(3)));
        assert!(bucket.look_request(pace, at(0)).is_err());
        assert!(bucket.take_request(pace, at(1)).is_ok() && bucket.take_request(pace, at(1)).is_err());
        assert_eq!(bucket.look_request(pace, at(100)).unwrap().remaining, 3, "never above the burst");
    }

    #[test]
    fn tokens_go_into_debt_by_one_request_and_no_further() {
        let (bucket, pace) = (Bucket::default(), Pace::per_minute(600));
        assert!(bucket.take_tokens(pace, 599, at(0)).is_ok());
        assert!(bucket.take_tokens(pace, 5_000, at(0)).is_ok(), "one token was left");
        let refused = bucket.take_tokens(pace, 1, at(0)).unwrap_err();
        assert_eq!(refused.remaining, 0);
        assert_eq!(refused.next, Duration::from_millis(500_000), "4,999 of debt and one token, ten a second");
        assert!(bucket.take_tokens(pace, 1, at(499)).is_err() && bucket.take_tokens(pace, 1, at(500)).is_ok());
    }

    #[test]
    fn a_settlement_gives_back_what_was_not_used_and_takes_what_was_used_beyond() {
        let (bucket, pace) = (Bucket::default(), Pace::per_minute(60));
        let charge = bucket.take_tokens(pace, 60, at(0)).unwrap();
        assert_eq!(bucket.look_tokens(pace, at(0)).unwrap_err().remaining, 0);
        bucket.correct(pace, charge, 10, at(0));
        assert_eq!(bucket.look_tokens(pace, at(0)).unwrap().remaining, 50);
        let charge = bucket.take_tokens(pace, 1, at(0)).unwrap();
        bucket.correct(pace, charge, 41, at(0));
        assert_eq!(bucket.look_tokens(pace, at(0)).unwrap().remaining, 9);
    }

    #[test]
    fn what_a_full_bucket_would_have_lost_does_not_come_back() {
        let (bucket, pace) = (Bucket::default(), Pace::per_minute(60));
        let early = bucket.take_tokens(pace, 60, at(0)).unwrap();
        // A minute later the bucket is full, as it would be had the first request been charged 6.
        let _late = bucket.take_tokens(pace, 60, at(61)).unwrap();
        bucket.correct(pace, early, 6, at(61));
        assert_eq!(bucket.look_tokens(pace, at(61)).unwrap_err().remaining, 0);
    }

    proptest! {
        /// In each span: the burst, what was earned, one request, and what came back of requests from before.
        #[test]
        fn estimates_and_corrections_hold_the_bound(
            steps in proptest::collection::vec((0u64..40, 1u64..50, 0u64..60, 0u64..30), 1..40),
        ) {
            let (bucket, pace) = (Bucket::default(), Pace::per_minute(60));
            let (mut now, mut open) = (1u64, Vec::<(u64, TokenCharge, usize)>::new());
            // Taken at, estimate, used, settled at.
            let mut taken: Vec<(u64, u64, u64, u64)> = Vec::new();
            for (wait, estimate, used, hold) in steps {
                now += wait;
                open.sort_by_key(|(due, ..)| *due);
                while open.first().is_some_and(|(due, ..)| *due <= now) {
                    let (due, charge, index) = open.remove(0);
                    bucket.correct(pace, charge, taken[index].2, at(due));
                }
                if let Ok(charge) = bucket.take_tokens(pace, estimate, at(now)) {
                    open.push((now + hold, charge, taken.len()));
                    taken.push((now, estimate, used, now + hold));
                }
            }
            for to in 0..taken.len() {
                let end = taken[to].0;
                let is_settled = |due: u64| due <= end;
                for from in 0..=to {
                    let begin = taken[from].0;
                    let charged: u64 = taken[from..to]
                        .iter()
                        .map(|&(_, estimate, used, due)| if is_settled(due) { used } else { estimate })
                        .sum();
                    let back: u64 = taken[..from]
                        .iter()
                        .filter(|(.., due)| (begin..=end).contains(due))
                        .map(|(_, estimate, used, _)| estimate.saturating_sub(*used))
                        .sum();
                    prop_assert!(charged <= 60 + (end - begin) + back, "{charged} of {taken:?}, {from}..{to}");
                }
            }
        }

        #[test]
        fn exact_estimates_hold_the_bound_of_burst_rate_and_one_request(
            steps in proptest::collection::vec((0u64..20, 1u64..200), 1..60),
        ) {
            let (bucket, pace) = (Bucket::default(), Pace::per_minute(60).with_burst(30));
            let (mut now, mut taken) = (1u64, Vec::new());
            for (wait, tokens) in steps {
                now += wait;
                if bucket.take_tokens(pace, tokens, at(now)).is_ok() {
                    taken.push((now, tokens));
                }
            }
            for from in 0..taken.len() {
                for to in from..taken.len() {
                    let sum: u64 = taken[from..=to].iter().map(|(_, tokens)| tokens).sum();
                    let largest = taken[from..=to].iter().map(|(_, tokens)| *tokens).max().unwrap_or(0);
                    prop_assert!(sum <= 30 + (taken[to].0 - taken[from].0) + largest);
                }
            }
        }
    }
}
