//! The numbers that keys have: booleans, counts, shares, sizes, durations.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value as Json, json};
use toml::de::DeValue;
use weir_base::ByteSize;

use crate::document::Node;
use crate::reader::Reader;
use crate::value::{Shape, Value};

impl Value for bool {
    fn shape() -> Shape {
        Shape::Boolean
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let value = node.value.as_bool();
        if value.is_none() {
            reader.wrong_kind(node, &Shape::Boolean);
        }
        value
    }

    fn show(&self) -> Json {
        json!(self)
    }
}

macro_rules! whole_numbers {
    ($($number:ty),+) => { $(
        impl Value for $number {
            fn shape() -> Shape {
                Shape::Integer
            }

            fn read(node: &Node<'_>, range: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
                let Some(number) = node.integer() else {
                    reader.wrong_kind(node, &Shape::Integer);
                    return None;
                };
                match Self::try_from(number) {
                    Ok(number) => reader.ranged(node, number, range),
                    Err(_) => {
                        let whole = Self::MIN..=Self::MAX;
                        reader.out_of_range(node, &shown_integer(number), range.unwrap_or(&whole));
                        None
                    }
                }
            }

            fn show(&self) -> Json {
                json!(self)
            }
        }
    )+ };
}

whole_numbers!(u16, u32, u64);

/// The number, unless it is one that 128 bits do not hold either.
fn shown_integer(number: i128) -> String {
    match number {
        i128::MIN => "far below zero".to_owned(),
        i128::MAX => "far too large".to_owned(),
        number => number.to_string(),
    }
}

/// A share, 0.0 to 1.0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Ratio(pub(crate) f64);

impl Value for Ratio {
    fn shape() -> Shape {
        Shape::Ratio
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let number = match node.value {
            DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
            DeValue::Integer(_) => node.integer().map(|number| number as f64),
            _ => None,
        };
        match number {
            Some(number) if (0.0..=1.0).contains(&number) => Some(Self(number)),
            Some(number) => {
                reader.out_of_range(node, &number.to_string(), &(Self(0.0)..=Self(1.0)));
                None
            }
            None => {
                reader.wrong_kind(node, &Shape::Ratio);
                None
            }
        }
    }

    fn show(&self) -> Json {
        json!(self.0)
    }
}

impl Value for ByteSize {
    fn shape() -> Shape {
        Shape::Size
    }

    fn read(node: &Node<'_>, range: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let size = match (node.text(), node.integer()) {
            (Some(text), _) => match text.parse::<ByteSize>() {
                Ok(size) => size,
                Err(error) => {
                    let message = format!("`{}` is not a size", node.path);
                    reader.wrong_value(node, message, error.to_string());
                    return None;
                }
            },
            (None, Some(number)) => match u64::try_from(number) {
                Ok(bytes) => ByteSize::new(bytes),
                Err(_) => {
                    let whole = ByteSize::new(0)..=ByteSize::new(u64::MAX);
                    reader.out_of_range(node, &shown_integer(number), range.unwrap_or(&whole));
                    return None;
                }
            },
            (None, None) => {
                reader.wrong_kind(node, &Shape::Size);
                return None;
            }
        };
        reader.ranged(node, size, range)
    }

    fn show(&self) -> Json {
        json!(self.to_string())
    }
}

/// A duration as people write it: a whole number and a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Period(pub(crate) Duration);

/// Units, largest first, in nanoseconds.
const PERIOD_UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

impl Period {
    pub(crate) const fn millis(count: u64) -> Self {
        Self(Duration::from_millis(count))
    }

    pub(crate) const fn secs(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }
}

impl FromStr for Period {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err("a duration is a whole number and a unit, for example \"500ms\" or \"30s\"");
        }
        let Some((_, nanos)) = PERIOD_UNITS.iter().find(|(name, _)| *name == unit.trim_start()) else {
            return Err(match unit {
                "" => "the unit is missing: us, ms, s, m, h or d",
                _ => "the unit is one of us, ms, s, m, h, d, and the number is a whole one (\"1500ms\", not \"1.5s\")",
            });
        };
        let number: u64 = number.parse().map_err(|_| "the number is too large")?;
        let nanos = number.checked_mul(*nanos).ok_or("the duration is longer than 500 years")?;
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

/// In the largest unit that is exact, so that the text reads back as the same duration.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let unit = PERIOD_UNITS.iter().find(|(_, unit)| nanos > 0 && nanos.is_multiple_of(u128::from(*unit)));
        match unit {
            Some((name, unit)) => write!(f, "{}{name}", nanos / u128::from(*unit)),
            None if nanos == 0 => f.write_str("0s"),
            None => write!(f, "{}us", nanos / 1_000),
        }
    }
}

impl Value for Period {
    fn shape() -> Shape {
        Shape::Period
    }

    fn read(node: &Node<'_>, range: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(text) = node.text() else {
            match node.integer() {
                // 30 could be seconds or milliseconds: a factor of a thousand that must not be guessed.
                Some(number) => {
                    let message = format!("`{}` is a duration and needs a unit", node.path);
                    let number = shown_integer(number);
                    reader.wrong_value(node, message, format!("write \"{number}s\" or \"{number}ms\""));
                }
                None => reader.wrong_kind(node, &Shape::Period),
            }
            return None;
        };
        match text.parse::<Self>() {
            Ok(period) => reader.ranged(node, period, range),
            Err(help) => {
                reader.wrong_value(node, format!("`{}` is not a duration", node.path), help);
                None
            }
        }
    }

    fn show(&self) -> Json {
        json!(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("1 h", 3_600_000), ("0s", 0)] {
            assert_eq!(text.parse(), Ok(Period::millis(millis)), "{text}");
        }
        for text in ["", "s", "30", "1.5s", "-1s", "1m30s", "1S", "99999999999999999999s", "999999999999d"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_give_the_same_duration(micros in 0u64..=u64::MAX / 1_000) {
            let period = Period(Duration::from_micros(micros));
            prop_assert_eq!(period.to_string().parse(), Ok(period));
        }
    }
}
