//! A limit, and its state as clients see it.

use std::time::Duration;

/// So many per minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// Per minute; at least 1.
    pub per_minute: u64,
    /// At once, after a pause; at least 1.
    pub burst: u64,
}

/// Nanoseconds of a minute.
const MINUTE: u128 = 60_000_000_000;

impl Pace {
    /// A limit whose burst is the amount of a minute.
    pub fn per_minute(limit: u64) -> Self {
        Self { per_minute: limit.max(1), burst: limit.max(1) }
    }

    /// The same with another burst.
    #[must_use]
    pub fn with_burst(self, burst: u64) -> Self {
        Self { burst: burst.max(1), ..self }
    }

    /// Nanoseconds in which `units` are earned, rounded up: a bucket never earns too fast.
    pub(super) fn span(self, units: u64) -> u64 {
        let nanos = (u128::from(units) * MINUTE).div_ceil(u128::from(self.per_minute.max(1)));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Whole units that are earned in `nanos`.
    pub(super) fn units(self, nanos: u64) -> u64 {
        let units = u128::from(nanos) * u128::from(self.per_minute) / MINUTE;
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

/// A limit as `x-ratelimit-*` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateState {
    /// `x-ratelimit-limit-*`: per minute.
    pub limit: u64,
    /// `x-ratelimit-remaining-*`: may come at once.
    pub remaining: u64,
    /// `x-ratelimit-reset-*`: until the bucket is full again.
    pub reset: Duration,
    /// Until one more request may come; zero if one may now. `retry-after` of a refusal.
    pub next: Duration,
}

/// A duration as `x-ratelimit-reset-*` has it: `12ms`, `1.5s`, `6m0s`, `1h0m3s`. Parts of a millisecond count as one.
pub fn duration_text(span: Duration) -> String {
    let millis = span.as_nanos().div_ceil(1_000_000);
    let (seconds, rest) = (millis / 1_000, millis % 1_000);
    if seconds == 0 {
        return format!("{rest}ms");
    }
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:03}").trim_end_matches('0').to_owned() };
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_sdks_have_seen_them() {
        let rows = [
            (0, "0ms"),
            (1, "1ms"),
            (12_000_000, "12ms"),
            (1_500_000_000, "1.5s"),
            (59_999_000_001, "1m0s"),
            (360_000_000_000, "6m0s"),
            (3_603_000_000_000, "1h0m3s"),
        ];
        for (nanos, text) in rows {
            assert_eq!(duration_text(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn a_span_is_never_shorter_than_its_units() {
        for per_minute in [1, 7, 60, 999_983, 1 << 40] {
            let pace = Pace::per_minute(per_minute);
            for units in [0, 1, 2, 1_000, 123_457] {
                assert!(pace.units(pace.span(units)) >= units);
                let shorter = pace.span(units).saturating_sub(1);
                assert!(units == 0 || pace.units(shorter) < units || pace.span(1) <= 1);
            }
        }
        assert_eq!(Pace::per_minute(1).span(u64::MAX), u64::MAX, "saturates");
    }
}
