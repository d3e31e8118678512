//! A point in time as RFC 3339 writes it, with any offset.

use std::time::Duration;

/// A point in time to the nanosecond, before or after 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Since 1970, in UTC.
    seconds: i64,
    nanos: u32,
}

impl Timestamp {
    /// The time that lies `unix` after the beginning of 1970.
    pub fn from_unix(unix: Duration) -> Self {
        Self { seconds: i64::try_from(unix.as_secs()).unwrap_or(i64::MAX), nanos: unix.subsec_nanos() }
    }

    /// Seconds since 1970, rounded down.
    pub const fn unix_seconds(self) -> i64 {
        self.seconds
    }

    /// Reads a date and a time with an offset (RFC 3339 section 5.6). As the crate chrono does, it takes a blank for the `T`, and
    /// offsets without a colon.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim().as_bytes();
        let (year, month, day) = (number(&mut rest, 4, b'-')?, number(&mut rest, 2, b'-')?, number(&mut rest, 2, 0)?);
        skip(&mut rest, b"Tt ")?;
        let (hour, minute, second) =
            (number(&mut rest, 2, b':')?, number(&mut rest, 2, b':')?, number(&mut rest, 2, 0)?);
        let nanos = fraction(&mut rest)?;
        let offset = offset(rest)?;
        if !(1..=12).contains(&month) || !(1..=days_of_month(year, month)).contains(&day) {
            return None;
        }
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
        Some(Self { seconds, nanos })
    }
}

/// The number of so many digits at the front, and the mark behind it unless that is 0.
fn number(rest: &mut &[u8], digits: usize, mark: u8) -> Option<i64> {
    let (text, behind) = rest.split_at_checked(digits)?;
    *rest = behind;
    if mark != 0 {
        skip(rest, &[mark])?;
    }
    text.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

/// Passes over one of these bytes.
fn skip(rest: &mut &[u8], marks: &[u8]) -> Option<()> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    marks.contains(first).then_some(())
}

/// Nanoseconds of a fraction, if there is one. Further digits are left out.
fn fraction(rest: &mut &[u8]) -> Option<u32> {
    let Some(behind) = rest.strip_prefix(b".") else { return Some(0) };
    let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
    *rest = &behind[digits..];
    let nanos = (0..9).fold(0, |sum, at| sum * 10 + if at < digits { u32::from(behind[at] - b'0') } else { 0 });
    (digits > 0).then_some(nanos)
}

/// Seconds that the local time is ahead of UTC.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, mut rest) = match text {
        [b'Z' | b'z'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let hours = number(&mut rest, 2, 0)?;
    rest = rest.strip_prefix(b":").unwrap_or(rest);
    let minutes = number(&mut rest, 2, 0)?;
    (rest.is_empty() && hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

const fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `days_from_civil` of H. Hinnant, "chrono-Compatible Low-Level Date Algorithms". The year begins in March.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<i64> {
        Timestamp::parse(text).map(Timestamp::unix_seconds)
    }

    #[test]
    fn every_day_of_four_centuries_is_read_as_base_writes_it() {
        for day in (0..146_097).step_by(3) {
            let written = weir_base::time::rfc3339(day * 86_400 + 43_210);
            assert_eq!(seconds(&written).and_then(|seconds| u64::try_from(seconds).ok()), Some(day * 86_400 + 43_210));
        }
    }

    #[test]
    fn offsets_and_fractions_count() {
        let noon = seconds("2022-01-29T13:00:00.000Z").expect("a time");
        for same in ["2022-01-29T15:00:00+02:00", "2022-01-29 07:30:00.5-0530", "2022-01-29t13:00:00.1234567891z"] {
            assert_eq!(seconds(same), Some(noon), "{same}");
        }
        let [early, late] = ["2022-01-29T13:00:00Z", "2022-01-29T13:00:00.001Z"].map(Timestamp::parse);
        assert!(early < late);
        assert_eq!(seconds("1867-11-07T12:00:00Z"), Some(-3_223_540_800), "before 1970");
    }

    #[test]
    fn other_texts_are_no_time() {
        for wrong in [
            "",
            "2022-01-29",
            "2022-01-29T13:00:00",
            "2022-02-29T13:00:00Z",
            "2022-13-01T13:00:00Z",
            "2022-01-29T24:00:00Z",
            "2022-01-29T13:00:00.Z",
            "2022-01-29T13:00:00+2",
            "2022-01-29T13:00:00+02:00 ",
            "22-01-29T13:00:00Z",
            "2022-01-29T13:00:0ßZ",
        ] {
            let wanted = (wrong.trim() != wrong).then(|| seconds(wrong.trim())).flatten();
            assert_eq!(seconds(wrong), wanted, "{wrong}");
        }
    }
}
