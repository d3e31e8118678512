//! Numbers in few columns.

use std::time::Duration;

/// A count or rate in at most six columns: `0`, `12.3`, `999`, `12.3k`, `1.23M`.
pub(super) fn count(value: f64) -> String {
    if value > 0.0 && value < 0.05 {
        // Rare is not never.
        return "<0.1".to_owned();
    }
    if value < 99.95 && value.fract() > 0.0 {
        return trim(format!("{value:.1}"));
    }
    if value < 9_999.5 {
        return format!("{value:.0}");
    }
    scaled(value, 1000.0, &["", "k", "M", "G", "T"])
}

/// Bytes in at most nine columns: `512 B`, `11.2 MiB`.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// A time in at most six columns: `870ns`, `12.3us`, `1.23ms`, `2.10s`.
pub(super) fn seconds(value: f64) -> String {
    if value.is_infinite() {
        return ">64s".to_owned();
    }
    // Rounded to three digits first, so that 999.6 us is 1.00 ms and not 1000us.
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)];
    for (unit, size) in units {
        let scaled = value / size;
        if scaled < 999.5 {
            return format!("{}{unit}", three_digits(scaled));
        }
    }
    format!("{}s", three_digits(value))
}

/// A span as `42s`, `3m07s`, `5h02m`, `12d03h`.
pub(super) fn span(value: f64) -> String {
    let total = Duration::try_from_secs_f64(value).map_or(0, |span| span.as_secs());
    let (days, hours, minutes, seconds) = (total / 86_400, total / 3600 % 24, total / 60 % 60, total % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{seconds:02}s"),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = units[0];
    for next in &units[1..] {
        if value < step - 0.5 {
            break;
        }
        value /= step;
        unit = next;
    }
    if unit == units[0] {
        return format!("{value:.0}{unit}");
    }
    format!("{}{unit}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn trim(text: String) -> String {
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_in_six_columns() {
        let table = [
            (0.0, "0"),
            (0.004, "<0.1"),
            (0.5, "0.5"),
            (7.0, "7"),
            (7.96, "8"),
            (99.97, "100"),
            (9_999.0, "9999"),
            (9_999.9, "10.0k"),
            (12_345.0, "12.3k"),
            (999_999.0, "1.00M"),
            (1_234_567.0, "1.23M"),
            (45e9, "45.0G"),
        ];
        for (value, text) in table {
            assert_eq!(count(value), text);
            assert!(count(value).len() <= 6);
        }
    }

    #[test]
    fn times_choose_their_unit() {
        let table = [
            (0.0, "0.00ns"),
            (87e-8, "870ns"),
            (12.34e-6, "12.3us"),
            (999.6e-6, "1.00ms"),
            (0.0123, "12.3ms"),
            (2.1, "2.10s"),
            (64.0, "64.0s"),
            (f64::INFINITY, ">64s"),
        ];
        for (value, text) in table {
            assert_eq!(seconds(value), text);
        }
    }

    #[test]
    fn bytes_and_spans() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(1023.0), "1023 B");
        assert_eq!(bytes(11.2 * 1024.0 * 1024.0), "11.2 MiB");
        assert_eq!(span(42.9), "42s");
        assert_eq!(span(187.0), "3m07s");
        assert_eq!(span(5.0 * 3600.0 + 120.0), "5h02m");
        assert_eq!(span(12.0 * 86_400.0 + 3.0 * 3600.0), "12d03h");
        assert_eq!(span(f64::NAN), "0s");
        assert_eq!(span(-1.0), "0s");
    }
}
