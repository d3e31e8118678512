//! A span of time as people write it in a key: a whole number and a unit, as in the configuration.

use std::time::Duration;

/// Units, largest first, in microseconds.
const UNITS: [(&str, u64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// The span of a text. `None`: it is none, or too long.
pub(super) fn read(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, micros) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*micros).map(Duration::from_micros)
}

/// The text of a span, in the largest unit that is exact. Parts of a microsecond are left out.
pub(super) fn text(span: Duration) -> String {
    let micros = span.as_micros();
    let is_exact = |unit: u64| micros > 0 && micros.is_multiple_of(u128::from(unit));
    let (name, unit) = UNITS.into_iter().find(|(_, unit)| is_exact(*unit)).unwrap_or(("s", 1));
    format!("{}{name}", micros / u128::from(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reads_back_as_it_was_written() {
        for (text, millis) in [("30d", 2_592_000_000), ("1h", 3_600_000), ("5m", 300_000), ("90s", 90_000)] {
            assert_eq!(
                (read(text), self::text(Duration::from_millis(millis))),
                (Some(Duration::from_millis(millis)), text.to_owned())
            );
        }
        for text in ["1500ms", "7us", "0s"] {
            assert_eq!(read(text).map(self::text).as_deref(), Some(text));
        }
        for wrong in ["", "s", "5", "5 m", "-5m", "1.5s", "1h30m", "5M", "99999999999999999999s", "9999999999999d"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
