//! Arrivals: the intended time of each request, as a pure function of seed, shard and rate.
//!
//! Times are nanoseconds from the begin of the schedule. A schedule is never stretched or compressed: what the system
//! under test does cannot reach it. Random times repeat on one platform; other platforms may round logarithms otherwise.

use std::fmt;
use std::time::Duration;

use weir_base::Rng;

use crate::shard::{Purpose, Shard};

/// Nanoseconds times thousandths: a rate in thousandths per second divides this into nanoseconds.
const NANOS_MILLI: u128 = 1_000_000_000_000;

/// How arrivals follow each other. Every process has the same mean rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// Even gaps. Shards are offset so that together they are even too.
    Deterministic,
    /// Exponential gaps: independent users. Each shard draws its own stream of `rate / shards`; their sum is Poisson.
    Poisson,
    /// Gamma gaps with shape `1 / burstiness`: arrivals cluster, as prompts to language models do.
    Gamma {
        /// Squared coefficient of variation of the gaps; 1 is Poisson, larger is burstier.
        burstiness: f64,
    },
    /// `burst` arrivals at one instant, then nothing for `burst / rate` seconds.
    OnOff {
        /// Arrivals of one burst, over all shards.
        burst: u32,
    },
}

/// `deterministic`, `poisson`, `gamma(4)`, `on_off(100)`.
impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deterministic => f.write_str("deterministic"),
            Self::Poisson => f.write_str("poisson"),
            Self::Gamma { burstiness } => write!(f, "gamma({burstiness})"),
            Self::OnOff { burst } => write!(f, "on_off({burst})"),
        }
    }
}

/// Offered load of the whole run in requests per second, exact to a thousandth, above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    milli: u64,
}

impl Rate {
    /// Requests per second at most. Default 100 million: beyond any loopback, and gaps are still 10 ns.
    pub const PER_SECOND_MAX: f64 = 100_000_000.0;
    /// Requests per second at least: one in 1,000 s.
    pub const PER_SECOND_MIN: f64 = 0.001;

    /// Rounded to a thousandth; `None` outside [`Self::PER_SECOND_MIN`] to [`Self::PER_SECOND_MAX`].
    #[must_use]
    pub fn per_second(rate: f64) -> Option<Self> {
        let is_possible = (Self::PER_SECOND_MIN..=Self::PER_SECOND_MAX).contains(&rate);
        is_possible.then(|| Self { milli: (rate * 1_000.0).round() as u64 })
    }

    /// Requests per second.
    #[must_use]
    pub fn as_per_second(self) -> f64 {
        self.milli as f64 / 1_000.0
    }

    /// The rate of what has so many replies, if this is the rate of the replies; not below the least that there is.
    #[must_use]
    pub(crate) fn per_copies(self, copies: u32) -> Self {
        Self { milli: (self.milli / u64::from(copies.max(1))).max(1) }
    }

    /// Requests of a schedule of this length, on average.
    #[must_use]
    pub fn mean_count(self, length: Duration) -> f64 {
        self.as_per_second() * length.as_secs_f64()
    }
}

/// The intended times of one shard, ascending, all below the length: an iterator of nanoseconds. It holds under 200 bytes
/// and costs a few tens of nanoseconds a step (gamma: times the number of shards), so it may be drawn from while sending
/// or collected before.
#[derive(Clone, Debug)]
pub struct Schedule {
    process: Process,
    /// Nanoseconds at which it ends.
    end: u64,
}

impl Schedule {
    /// The part of `shard` in arrivals at `rate` (of all shards together) for `length`. `round` tells schedules of one
    /// scenario apart, for example its phases.
    #[must_use]
    pub fn new(arrival: Arrival, rate: Rate, seed: u64, round: u64, shard: Shard, length: Duration) -> Self {
        let mean_gap = 1e12 / rate.milli as f64;
        let process = match arrival {
            Arrival::Deterministic => Process::Even(EvenArrivals::new(rate, shard)),
            Arrival::Poisson => Process::Poisson {
                rng: shard.stream(seed, Purpose::Arrivals, round),
                mean_gap: mean_gap * f64::from(shard.of()),
                clock: Clock::default(),
            },
            Arrival::Gamma { burstiness } => Process::Gamma {
                rng: Shard::common_stream(seed, Purpose::Arrivals, round),
                gap: Gamma::new(1.0 / burstiness, mean_gap * burstiness),
                clock: Clock::default(),
                turn: Turn::new(shard),
            },
            Arrival::OnOff { burst } => {
                Process::OnOff { next: u64::from(shard.index()), step: shard.of(), burst: burst.max(1), rate }
            }
        };
        Self { process, end: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX) }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        Some(self.process.step()).filter(|time| *time < self.end)
    }
}

#[derive(Clone, Debug)]
enum Process {
    Even(EvenArrivals),
    Poisson {
        rng: Rng,
        /// Nanoseconds between arrivals of this shard.
        mean_gap: f64,
        clock: Clock,
    },
    /// One process for all shards, dealt out in turn: the sum of independent gamma streams would be less bursty.
    Gamma {
        rng: Rng,
        gap: Gamma,
        clock: Clock,
        turn: Turn,
    },
    /// Arrival `i` of all shards is part of burst `i / burst`; it is dealt to shard `i mod shards`.
    OnOff {
        next: u64,
        step: u32,
        burst: u32,
        rate: Rate,
    },
}

impl Process {
    #[inline]
    fn step(&mut self) -> u64 {
        match self {
            Self::Even(even) => even.step(),
            Self::Poisson { rng, mean_gap, clock } => clock.advance(exponential(rng) * *mean_gap),
            Self::Gamma { rng, gap, clock, turn } => loop {
                let time = clock.advance(gap.draw(rng));
                if turn.is_mine() {
                    return time;
                }
            },
            Self::OnOff { next, step, burst, rate } => {
                let first_of_burst = *next / u64::from(*burst) * u64::from(*burst);
                *next += u64::from(*step);
                let time = u128::from(first_of_burst) * NANOS_MILLI / u128::from(rate.milli);
                u64::try_from(time).unwrap_or(u64::MAX)
            }
        }
    }
}

/// `floor((index + i * shards) / rate)` without a division per step and without drift: the remainder is carried.
#[derive(Clone, Debug)]
struct EvenArrivals {
    time: u64,
    /// Remainder of the division by the rate, so below the rate.
    remainder: u64,
    gap: u64,
    gap_remainder: u64,
    milli: u64,
}

impl EvenArrivals {
    fn new(rate: Rate, shard: Shard) -> Self {
        let milli = u128::from(rate.milli);
        let divided = |count: u32| {
            let nanos_milli = u128::from(count) * NANOS_MILLI;
            ((nanos_milli / milli) as u64, (nanos_milli % milli) as u64)
        };
        let (time, remainder) = divided(shard.index());
        let (gap, gap_remainder) = divided(shard.of());
        Self { time, remainder, gap, gap_remainder, milli: rate.milli }
    }

    #[inline]
    fn step(&mut self) -> u64 {
        let now = self.time;
        self.remainder += self.gap_remainder;
        let carry = u64::from(self.remainder >= self.milli);
        self.remainder -= carry * self.milli;
        self.time = now.saturating_add(self.gap + carry);
        now
    }
}

/// A sum of gaps: whole nanoseconds apart from the fraction, which therefore keeps its precision over any length.
#[derive(Clone, Debug, Default)]
struct Clock {
    whole: u64,
    /// Below 1.
    fraction: f64,
}

impl Clock {
    #[inline]
    fn advance(&mut self, nanos: f64) -> u64 {
        let sum = self.fraction + nanos;
        let whole = sum as u64;
        self.fraction = sum - whole as f64;
        self.whole = self.whole.saturating_add(whole);
        self.whole
    }
}

/// Whose turn it is when arrivals are dealt out to shards.
#[derive(Clone, Debug)]
struct Turn {
    /// Arrivals until the next of this shard.
    left: u32,
    of: u32,
}

impl Turn {
    fn new(shard: Shard) -> Self {
        Self { left: shard.index(), of: shard.of() }
    }

    fn is_mine(&mut self) -> bool {
        let is_mine = self.left == 0;
        self.left = if is_mine { self.of - 1 } else { self.left - 1 };
        is_mine
    }
}

/// Gamma variates of a shape of at most 1 (G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables",
/// ACM TOMS 26(3), 2000, with the boost of section 6).
#[derive(Clone, Debug)]
struct Gamma {
    shape: f64,
    scale: f64,
    d: f64,
    c: f64,
}

impl Gamma {
    fn new(shape: f64, scale: f64) -> Self {
        let d = shape + 1.0 - 1.0 / 3.0;
        Self { shape, scale, d, c: 1.0 / (9.0 * d).sqrt() }
    }

    fn draw(&self, rng: &mut Rng) -> f64 {
        loop {
            let x = normal(rng);
            let v = (1.0 + self.c * x).powi(3);
            let u = 1.0 - rng.unit();
            if v > 0.0 && u.ln() < 0.5 * x * x + self.d * (1.0 - v + v.ln()) {
                let boost = (-exponential(rng) / self.shape).exp();
                return self.d * v * boost * self.scale;
            }
        }
    }
}

/// Exponential with mean 1. The logarithm never sees zero: `unit` is below one.
#[inline]
fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.unit()).ln()
}

/// Standard normal by the polar method of Marsaglia; the second variate is dropped, which keeps the stream without state.
fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (a, b) = (2.0 * rng.unit() - 1.0, 2.0 * rng.unit() - 1.0);
        let square = a * a + b * b;
        if square > 0.0 && square < 1.0 {
            return a * (-2.0 * square.ln() / square).sqrt();
        }
    }
}

#[cfg(test)]
mod tests;
