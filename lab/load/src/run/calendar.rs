//! Instants as people and files write them, read into microseconds since 1970. Days are counted as H. Hinnant does in
//! "chrono-Compatible Low-Level Date Algorithms" (`days_from_civil`).

use toml::value::{Datetime, Offset};

/// Reads RFC 3339 with an offset (`2026-01-02T03:04:05Z`, `2026-01-02T04:04:05.5+01:00`), or seconds since 1970
/// (`1767323045`), into microseconds since 1970.
///
/// # Errors
/// Neither, or an instant before 1970; a sentence with an example.
pub fn instant(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let micros = match seconds {
        Some(seconds) => u64::checked_mul(seconds, 1_000_000),
        None => text.parse().ok().and_then(|datetime: Datetime| micros_of(&datetime)),
    };
    micros.ok_or_else(|| "write date and time with an offset, 2026-01-02T03:04:05Z, or seconds since 1970".to_owned())
}

/// `None` unless date, time and offset are there and the instant is not before 1970.
fn micros_of(datetime: &Datetime) -> Option<u64> {
    let (date, time) = (datetime.date?, datetime.time?);
    let offset_minutes = match datetime.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    // Years begin in March, so that the day that is sometimes there is the last.
    let year = i64::from(date.year) - i64::from(date.month <= 2);
    let day_of_year = (153 * ((i64::from(date.month) + 9) % 12) + 2) / 5 + i64::from(date.day) - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    let minutes = days * 1_440 + i64::from(time.hour) * 60 + i64::from(time.minute) - offset_minutes;
    let seconds = u64::try_from(minutes * 60).ok()? + u64::from(time.second.unwrap_or(0));
    Some(seconds * 1_000_000 + u64::from(time.nanosecond.unwrap_or(0)) / 1_000)
}

#[cfg(test)]
mod tests {
    use weir_base::time::rfc3339;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar_and_read_back() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_323_045, "2026-01-02T03:04:05Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
            assert_eq!(instant(text), Ok(seconds * 1_000_000));
            assert_eq!(instant(&seconds.to_string()), Ok(seconds * 1_000_000));
        }
    }

    #[test]
    fn offsets_and_fractions_count_and_half_an_instant_is_none() {
        assert_eq!(instant("2026-01-02T04:34:05.25+01:30"), Ok(1_767_323_045_250_000));
        assert_eq!(instant("2026-01-01T23:04:05-04:00"), Ok(1_767_323_045_000_000));
        for wrong in ["", "now", "2026-01-02", "03:04:05", "2026-01-02T03:04:05", "1969-12-31T23:59:59Z", "-5", "1.5"] {
            assert!(instant(wrong).is_err_and(|error| error.contains("seconds since 1970")), "{wrong}");
        }
    }
}
