//! Durations and sizes in the notations of the other programs.

/// Milliseconds of a time of nginx: `30s`, `1m30s`, `500ms`; a bare number is seconds.
pub(crate) fn nginx_time(text: &str) -> Option<u64> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];
    let mut rest = text;
    let mut total = 0u64;
    while !rest.is_empty() {
        let (number, behind) = leading_number(rest)?;
        let word = behind.find(|c: char| !c.is_ascii_alphabetic()).map_or(behind, |end| &behind[..end]);
        let size = match word {
            "" => 1_000,
            word => units.iter().find(|(unit, _)| *unit == word)?.1,
        };
        total = total.checked_add(number.checked_mul(size)?)?;
        rest = behind[word.len()..].trim_start();
    }
    (!text.is_empty()).then_some(total)
}

/// Bytes of a size of nginx: `10m`, `8k`, `1g`; a bare number is bytes.
pub(crate) fn nginx_size(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text)?;
    let size = match unit {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(size)
}

/// Microseconds of a time of HAProxy: `30s`, `500ms`, `10us`; a bare number is milliseconds.
pub(crate) fn haproxy_time(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text)?;
    let size = match unit {
        "us" => 1,
        "" | "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    number.checked_mul(size)
}

/// Milliseconds of a duration of protobuf as Envoy has it: `5s`, `0.25s`.
pub(crate) fn protobuf_duration(text: &str) -> Option<u64> {
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    (seconds.is_finite() && (0.0..1e12).contains(&seconds)).then(|| (seconds * 1_000.0).round() as u64)
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_its_own_unit_for_a_bare_number() {
        assert_eq!(nginx_time("65"), Some(65_000));
        assert_eq!(nginx_time("1m30s"), Some(90_000));
        assert_eq!(nginx_time("500ms"), Some(500));
        assert_eq!(haproxy_time("5000"), Some(5_000_000));
        assert_eq!(haproxy_time("1h"), Some(3_600_000_000));
        assert_eq!(protobuf_duration("0.25s"), Some(250));
        assert_eq!(nginx_size("10m"), Some(10 << 20));
    }

    #[test]
    fn invalid_quantities_are_refused() {
        for text in ["", "x", "5x", "-1", "99999999999999999999"] {
            assert_eq!((nginx_time(text), haproxy_time(text), nginx_size(text)), (None, None, None), "{text}");
        }
        assert_eq!(protobuf_duration("5"), None);
        assert_eq!(protobuf_duration("NaNs"), None);
    }
}
