//! Byte sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Reads and prints binary units: `512B`, `64KiB`, `1MiB`, `2GiB`, or a bare number of bytes.
///
/// Decimal units (`KB`, `MB`) are refused: half of all readers mean 1,000 and half 1,024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// Units, largest first, as printed.
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl ByteSize {
    /// The size of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> ByteSize {
        ByteSize(bytes)
    }

    /// `count` x 1,024 bytes.
    #[must_use]
    pub const fn kib(count: u64) -> ByteSize {
        ByteSize(count << 10)
    }

    /// `count` x 1,048,576 bytes.
    #[must_use]
    pub const fn mib(count: u64) -> ByteSize {
        ByteSize(count << 20)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes as a length in memory, at most `usize::MAX`.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Why a text is not a byte size. The message carries the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// No digits at the start.
    NotANumber,
    /// A unit that is not one of `B`, `KiB`, `MiB`, `GiB`, `TiB`.
    UnknownUnit,
    /// More than 2^64 - 1 bytes.
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SizeError::NotANumber => "a size is a whole number with an optional unit, for example \"64KiB\"",
            SizeError::UnknownUnit => "unknown unit; use B, KiB, MiB, GiB or TiB (1 KiB is 1024 bytes)",
            SizeError::TooLarge => "the size does not fit 64 bits",
        })
    }
}

impl std::error::Error for SizeError {}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<ByteSize, SizeError> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::NotANumber);
        }
        // Only the range can be wrong: these are digits.
        let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
        let unit = unit.trim_start();
        let factor = match unit {
            "" | "B" => 1,
            _ => UNITS.iter().find(|(name, _)| *name == unit).ok_or(SizeError::UnknownUnit)?.1,
        };
        number.checked_mul(factor).map(ByteSize).ok_or(SizeError::TooLarge)
    }
}

/// Prints the largest unit that divides the size exactly, so that the text reads back as the same size.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, factor) in UNITS {
            if self.0 != 0 && self.0.is_multiple_of(factor) {
                return write!(f, "{}{name}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [("64KiB", 65_536), ("1 MiB", 1 << 20), (" 512B ", 512), ("4096", 4_096), ("0", 0)] {
            assert_eq!(text.parse(), Ok(ByteSize::new(bytes)), "{text}");
        }
    }

    #[test]
    fn an_invalid_size_names_the_right_form() {
        let parse = |text: &str| text.parse::<ByteSize>().unwrap_err();
        assert_eq!(parse(""), SizeError::NotANumber);
        assert_eq!(parse("-1KiB"), SizeError::NotANumber);
        assert_eq!(parse("KiB"), SizeError::NotANumber);
        assert_eq!(parse("64KB"), SizeError::UnknownUnit);
        assert_eq!(parse("64kib"), SizeError::UnknownUnit);
        assert_eq!(parse("1.5MiB"), SizeError::UnknownUnit);
        assert_eq!(parse("99999999999999999999"), SizeError::TooLarge);
        assert_eq!(parse("99999999999TiB"), SizeError::TooLarge);
        assert!(parse("64KB").to_string().contains("KiB"));
    }

    proptest! {
        #[test]
        fn printing_and_reading_give_the_same_size(bytes: u64, shift in 0u32..64) {
            let size = ByteSize::new(bytes >> shift << shift);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
