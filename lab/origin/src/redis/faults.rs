//! Scripted faults: late, wrong, half and missing replies, the same ones again for the same seed.

use std::{io, time::Duration};

use weir_base::{Rng, Time};

/// The origin stops answering for the last `lasting` of every `every`, counted from its start. Replies that fall into
/// the stall come at its end, as from a server that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The period.
    pub every: Duration,
    /// The part of it without replies; shorter than the period.
    pub lasting: Duration,
}

/// Faults injected on purpose.
///
/// `delay` and `stall` hold back every reply, in order, without keeping the origin from reading on. The ratios are
/// chances of one command to a key, outside of a transaction: a connection can always be set up (`HELLO`, `AUTH`,
/// `PING`, ...). At most one of them strikes a command, so their sum is at most 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// From a request to its reply. Default zero.
    pub delay: Duration,
    /// Default none.
    pub stall: Option<Stall>,
    /// Commands answered with `-ERR weir: scripted error` and not carried out. Default 0.
    pub error_ratio: f64,
    /// Commands answered by closing the connection, after the replies before it. Not carried out. Default 0.
    pub disconnect_ratio: f64,
    /// Commands that are carried out, answered with the first half of their reply, then the connection is closed.
    /// Default 0.
    pub half_reply_ratio: f64,
    /// Commands that are carried out and answered twice: what desynchronises a careless client. Default 0.
    pub extra_reply_ratio: f64,
    /// Seed of the dice; worker `n` draws from `seed + n`. Default 1.
    pub seed: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            stall: None,
            error_ratio: 0.0,
            disconnect_ratio: 0.0,
            half_reply_ratio: 0.0,
            extra_reply_ratio: 0.0,
            seed: 1,
        }
    }
}

/// The fault drawn for one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InjectedFault {
    None,
    Error,
    Disconnect,
    HalfReply,
    ExtraReply,
}

impl Faults {
    pub(super) fn check(&self) -> io::Result<()> {
        let refuse = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        for (name, ratio) in self.ratios() {
            if !(0.0..=1.0).contains(&ratio) {
                return refuse(format!("{name} = {ratio}: from 0 to 1"));
            }
        }
        let sum: f64 = self.ratios().iter().map(|(_, ratio)| ratio).sum();
        if sum > 1.0 {
            return refuse(format!("the fault ratios add up to {sum}: at most 1"));
        }
        match self.stall {
            Some(Stall { every, lasting }) if lasting >= every => {
                refuse(format!("stall of {lasting:?} every {every:?}: it must be shorter than its period"))
            }
            _ => Ok(()),
        }
    }

    fn ratios(&self) -> [(&'static str, f64); 4] {
        [
            ("error_ratio", self.error_ratio),
            ("disconnect_ratio", self.disconnect_ratio),
            ("half_reply_ratio", self.half_reply_ratio),
            ("extra_reply_ratio", self.extra_reply_ratio),
        ]
    }

    /// Whether replies are ever held back.
    pub(super) fn is_timed(&self) -> bool {
        !self.delay.is_zero() || self.stall.is_some()
    }

    /// When the reply to a request of `now` leaves, for an origin that started at `start`.
    pub(super) fn due(&self, start: Time, now: Time) -> Time {
        let due = now.saturating_add(self.delay);
        let Some(stall) = self.stall else { return due };
        let (every, lasting) = (stall.every.as_nanos(), stall.lasting.as_nanos());
        let phase = u128::from(due.nanos_since(start)) % every;
        if phase < every - lasting {
            return due;
        }
        due.saturating_add(Duration::from_nanos((every - phase) as u64))
    }
}

/// The dice of one worker.
pub(super) struct Dice {
    rng: Rng,
    /// Upper ends of the ranges of error, disconnect, half and extra in `0.0..1.0`.
    thresholds: [f64; 4],
}

impl Dice {
    /// `None` if no ratio is set: then nothing is drawn per command.
    pub(super) fn new(faults: &Faults, worker: usize) -> Option<Self> {
        let mut sum = 0.0;
        let thresholds = faults.ratios().map(|(_, ratio)| {
            sum += ratio;
            sum
        });
        let seed = faults.seed.wrapping_add(worker as u64);
        (sum > 0.0).then(|| Self { rng: Rng::new(seed), thresholds })
    }

    pub(super) fn roll(&mut self) -> InjectedFault {
        let strikes =
            [InjectedFault::Error, InjectedFault::Disconnect, InjectedFault::HalfReply, InjectedFault::ExtraReply];
        let drawn = self.rng.unit();
        let struck = self.thresholds.iter().position(|threshold| drawn < *threshold);
        struck.map_or(InjectedFault::None, |index| strikes[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_reply_inside_the_stall_leaves_at_its_end() {
        let stall = Some(Stall { every: Duration::from_secs(10), lasting: Duration::from_secs(1) });
        let faults = Faults { stall, delay: Duration::from_millis(5), ..Default::default() };
        let start = at(300);
        for (now, due) in
            [(300, 305), (9_294, 9_299), (9_295, 10_300), (10_000, 10_300), (10_295, 10_300), (10_296, 10_301)]
        {
            assert_eq!(faults.due(start, at(now)), at(due), "{now}");
        }
    }

    #[test]
    fn strikes_come_in_the_given_proportions_and_repeat_with_the_seed() {
        let faults = Faults { error_ratio: 0.2, half_reply_ratio: 0.1, seed: 7, ..Default::default() };
        let mut dice = Dice::new(&faults, 0).expect("ratios are set");
        let mut again = Dice::new(&faults, 0).expect("ratios are set");
        let drawn: Vec<InjectedFault> = (0..10_000).map(|_| dice.roll()).collect();
        assert!(drawn.iter().all(|strike| *strike == again.roll()));
        let count = |wanted| drawn.iter().filter(|strike| **strike == wanted).count();
        assert!((1_850..2_150).contains(&count(InjectedFault::Error)));
        assert!((900..1_100).contains(&count(InjectedFault::HalfReply)));
        assert_eq!(count(InjectedFault::Disconnect) + count(InjectedFault::ExtraReply), 0);
        assert!(Dice::new(&Faults::default(), 0).is_none());
    }
}
