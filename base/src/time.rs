//! Monotonic process time.
//!
//! [`Time`] counts nanoseconds since the first read of the clock in the process; 64 bits last 584 years. Pure code takes a
//! `Time` as an argument. Workers call [`turn::refresh`] once per loop turn, and whatever runs within that turn reads
//! the cached [`turn::now`] for the price of a thread-local load instead of a `clock_gettime`.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The instant that [`Time::ZERO`] stands for.
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// A point in monotonic time, in nanoseconds since process start.
///
/// Arithmetic saturates: a deadline in the far future is simply never reached, and a clock that seems to run backwards
/// between two cores yields a zero duration instead of a panic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// Process start.
    pub const ZERO: Time = Time(0);
    /// A deadline that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// Reads the monotonic clock. This is the only clock read of the tree; pure code receives the result.
    #[inline]
    #[must_use]
    pub fn now() -> Time {
        let epoch = EPOCH.get_or_init(Instant::now);
        Time(saturate(epoch.elapsed()))
    }

    /// The time that lies `nanos` after process start; for tests, simulation and stored values.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since process start.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This time plus `duration`, at most [`Time::NEVER`].
    #[inline]
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(saturate(duration)))
    }

    /// How long ago `earlier` was; zero if it is in fact later.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds since `earlier`; zero if `earlier` is in fact later. Histograms record this value.
    #[inline]
    #[must_use]
    pub const fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// How long until `deadline`; zero if it has passed.
    #[inline]
    #[must_use]
    pub const fn until(self, deadline: Time) -> Duration {
        deadline.since(self)
    }

    /// The same point on the standard library's clock, for timers of a runtime.
    /// `None` for a time that `Instant` cannot hold, such as [`Time::NEVER`] on some platforms.
    #[must_use]
    pub fn to_instant(self) -> Option<Instant> {
        EPOCH.get_or_init(Instant::now).checked_add(Duration::from_nanos(self.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A duration as nanoseconds, at most `u64::MAX`.
fn saturate(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A day and a time of day, in UTC.
struct Moment {
    year: u64,
    month: u64,
    day: u64,
    /// From 0, Sunday.
    weekday: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

/// Days are counted as H. Hinnant does in "chrono-Compatible Low-Level Date Algorithms" (`civil_from_days`).
fn moment(unix_seconds: u64) -> Moment {
    let (days_since_1970, time) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let days = days_since_1970 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    // The first day of 1970 was a Thursday.
    let weekday = (days_since_1970 + 4) % 7;
    Moment { year, month, day, weekday, hour: time / 3_600, minute: time / 60 % 60, second: time % 60 }
}

/// A time in seconds since 1970 as RFC 3339 writes it, in UTC: `2026-01-31T23:59:59Z`.
#[must_use]
pub fn rfc3339(unix_seconds: u64) -> String {
    let text = rfc3339_millis(Duration::from_secs(unix_seconds));
    let seconds = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    String::from_utf8_lossy(seconds).into_owned() + "Z"
}

/// The time that [`rfc3339`] has written, in seconds since 1970; `None` for other texts and earlier times.
#[must_use]
pub fn from_rfc3339(text: &str) -> Option<u64> {
    let parts: Vec<u64> = text
        .strip_suffix('Z')?
        .split(['-', 'T', ':'])
        .map(|part| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?)
        .collect::<Option<_>>()?;
    let &[year @ 1970..=9999, month @ 1..=12, day @ 1..=31, hour @ 0..24, minute @ 0..60, second @ 0..=60] = &parts[..]
    else {
        return None;
    };
    // The inverse of `moment`: `days_from_civil`. The year begins in March.
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The same as HTTP writes it (RFC 9110 section 5.6.7, IMF-fixdate): `Sat, 31 Jan 2026 23:59:59 GMT`.
#[must_use]
pub fn http_date(unix_seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Moment { year, month, day, weekday, hour, minute, second } = moment(unix_seconds);
    let (weekday, month) = (DAYS[weekday as usize], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// The same as [`rfc3339`] with milliseconds, in ASCII: `2026-01-31T23:59:59.000Z`. Records have it for each request, so digits are put
/// into their places.
#[must_use]
pub fn rfc3339_millis(unix: Duration) -> [u8; 24] {
    let Moment { year, month, day, hour, minute, second, .. } = moment(unix.as_secs());
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let numbers = [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, hour),
        (14..16, minute),
        (17..19, second),
        (20..23, u64::from(unix.subsec_millis())),
    ];
    for (place, mut number) in numbers {
        for digit in text[place].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    text
}

/// The time of the current loop turn, cached per thread.
pub mod turn {
    use super::Time;
    use std::cell::Cell;

    thread_local! {
        /// Zero means "never refreshed on this thread".
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    /// The time at which this thread's loop turn began. As old as the turn is long; good for idle deadlines and rate
    /// windows, not for measuring a stage within one turn. Reads the clock once on a thread that never refreshed.
    #[inline]
    #[must_use]
    pub fn now() -> Time {
        let cached = NOW.get();
        if cached == 0 { refresh() } else { Time(cached) }
    }

    /// Reads the clock and caches it for this thread. The engine calls it once per loop turn.
    #[inline]
    pub fn refresh() -> Time {
        let now = Time(Time::now().0.max(1));
        NOW.set(now.0);
        now
    }

    /// Sets this thread's cached time; for simulation and tests that own the clock.
    pub fn set(now: Time) {
        NOW.set(now.0.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backwards() {
        let mut last = Time::now();
        for _ in 0..1_000 {
            let now = Time::now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn each_day_of_four_centuries_is_read_as_it_was_written() {
        for day in 0..146_097 {
            let seconds = day * 86_400 + 43_210;
            assert_eq!(from_rfc3339(&rfc3339(seconds)), Some(seconds));
        }
        for wrong in
            ["", "Z", "2026-01-31T23:59:59", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-01-+1T00:00:00Z"]
        {
            assert_eq!(from_rfc3339(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_date_is_written_as_rfc_3339_has_it_also_on_leap_days_and_at_ends_of_years() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
            assert_eq!(from_rfc3339(text), Some(seconds));
        }
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            // The example of RFC 9110 section 5.6.7.
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_798_761_599, "Thu, 31 Dec 2026 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(seconds), text);
        }
        assert_eq!(&rfc3339_millis(Duration::new(0, 5_999_999)), b"1970-01-01T00:00:00.005Z");
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let one = Time::from_nanos(1);
        assert_eq!(one.since(Time::from_nanos(5)), Duration::ZERO);
        assert_eq!(one.saturating_add(Duration::MAX), Time::NEVER);
        assert_eq!(one.saturating_add(Duration::from_micros(2)).as_nanos(), 2_001);
        assert_eq!(Time::ZERO.until(Time::from_nanos(7)), Duration::from_nanos(7));
        assert_eq!(Time::NEVER.until(one), Duration::ZERO);
    }

    #[test]
    fn instant_and_time_tell_the_same_distance() {
        let a = Time::now();
        let b = a.saturating_add(Duration::from_millis(250));
        let distance = b.to_instant().unwrap() - a.to_instant().unwrap();
        assert_eq!(distance, Duration::from_millis(250));
    }

    #[test]
    fn turn_time_stands_still_until_refreshed() {
        let first = turn::refresh();
        assert_eq!(turn::now(), first);
        while Time::now() == first {}
        assert_eq!(turn::now(), first, "within a turn the time does not move");
        assert!(turn::refresh() > first);
        turn::set(Time::from_nanos(42));
        assert_eq!(turn::now(), Time::from_nanos(42));
    }

    #[test]
    fn turn_time_is_per_thread_and_never_zero() {
        turn::set(Time::from_nanos(42));
        let elsewhere = std::thread::spawn(turn::now).join().unwrap();
        assert_ne!(elsewhere, Time::ZERO);
        assert_eq!(turn::now(), Time::from_nanos(42));
    }
}
