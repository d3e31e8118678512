//! The pause that a provider demands.

use std::time::Duration;

use weir_base::time::from_rfc3339;
use weir_http_codec::{Fields, Known};

/// The pause that a response demands. `unix`: the time since 1970, for dates. `None`: none, or one that cannot be read.
pub(crate) fn pause(fields: &Fields, unix: Duration) -> Option<Duration> {
    // Milliseconds are more exact, so SDKs read them first.
    let millis = fields.all_named(b"retry-after-ms").next().and_then(number).map(|millis| millis / 1_000.0);
    let seconds = || {
        let value = fields.get(Known::RetryAfter)?;
        number(value).or_else(|| Some(date(value)?.saturating_sub(unix.as_secs()) as f64))
    };
    // A longer one is as good as a day: the caller takes two minutes at most.
    millis.or_else(seconds).map(|seconds| Duration::from_secs_f64(seconds.min(86_400.0)))
}

/// A number of zero or more, which may have a fraction: digits, and no exponent.
fn number(value: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = text.parse().ok().filter(|_| is_plain)?;
    number.is_finite().then_some(number)
}

/// A date as HTTP writes it (RFC 9110 section 5.6.7, IMF-fixdate), in seconds since 1970. The two obsolete forms are none.
fn date(value: &[u8]) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = std::str::from_utf8(value).ok()?.trim().strip_suffix(" GMT")?;
    let (_, text) = text.split_once(", ")?;
    let parts: Vec<&str> = text.split(' ').collect();
    let &[day, month, year, time] = &parts[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    from_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z"))
}

#[cfg(test)]
mod tests {
    use weir_base::time::http_date;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn paused(lines: &[(&str, &str)]) -> Option<Duration> {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        pause(&fields, Duration::from_secs(NOW))
    }

    #[test]
    fn a_pause_is_a_number_a_fraction_or_a_date() {
        let (soon, before) = (http_date(NOW + 90), http_date(NOW - 90));
        for (value, millis) in [
            ("7", Some(7_000)),
            (" 7 ", Some(7_000)),
            ("1.5", Some(1_500)),
            ("0", Some(0)),
            (&*soon, Some(90_000)),
            (&*before, Some(0)),
            ("-1", None),
            ("1e9", None),
            ("inf", None),
            ("NaN", None),
            ("", None),
            (".", None),
            ("tomorrow", None),
            ("Sat, 31 Foo 2026 23:59:59 GMT", None),
            ("Sat, 31 Jan 2026 23:59:59 CET", None),
            (", GMT", None),
        ] {
            assert_eq!(paused(&[("Retry-After", value)]), millis.map(Duration::from_millis), "{value}");
        }
    }

    #[test]
    fn milliseconds_come_first_and_no_pause_is_endless() {
        let both = [("Retry-After", "7"), ("retry-after-ms", "250.5")];
        assert_eq!(paused(&both), Some(Duration::from_micros(250_500)));
        assert_eq!(paused(&[("Retry-After", "7"), ("retry-after-ms", "x")]), Some(Duration::from_secs(7)));
        let long = "9".repeat(400);
        assert_eq!(paused(&[("Retry-After", &long)]), None, "as large as infinity");
        assert_eq!(paused(&[("Retry-After", "99999999999999999999")]), Some(Duration::from_secs(86_400)));
    }
}
