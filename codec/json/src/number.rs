//! Numbers (section 6), resumable at every byte, and as integers for callers that need one. Nothing else converts a
//! number.

use std::fmt;

/// Where a number is between two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Minus,
    /// A zero in front, behind which no digit may follow.
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl State {
    /// Behind the first byte, which is a minus or a digit.
    pub(crate) const fn begin(byte: u8) -> Self {
        match byte {
            b'-' => Self::Minus,
            b'0' => Self::Zero,
            _ => Self::Integer,
        }
    }

    /// The state behind the next byte; `None`: the byte belongs to no number in this state.
    #[inline]
    pub(crate) const fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus | Self::Integer, b'0'..=b'9') => Self::Integer,
            (Self::Zero | Self::Integer, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::Sign,
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Self::Power,
            _ => return None,
        })
    }

    /// The number may end here.
    pub(crate) const fn is_whole(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::Power)
    }
}

/// A number that a caller cannot use as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntegerError {
    /// Below zero.
    Negative,
    /// Above the bound. It is not cut to the bound: a policy would see another number than the receiver.
    TooLarge,
    /// It has a fraction or an exponent: readers disagree whether `1e2` is an integer.
    Form,
}

impl fmt::Display for IntegerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Negative => "the number is negative",
            Self::TooLarge => "the number is too large",
            Self::Form => "the number is no plain integer",
        })
    }
}

impl std::error::Error for IntegerError {}

/// The value of a number's `text`, up to `max`.
///
/// # Errors
/// The number is below zero, above `max`, or not written as digits alone.
pub fn integer(text: &[u8], max: u64) -> Result<u64, IntegerError> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(IntegerError::Form);
    }
    if is_negative && digits.iter().any(|&digit| digit != b'0') {
        return Err(IntegerError::Negative);
    }
    let add = |value: u64, &digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let value = digits.iter().try_fold(0, add).ok_or(IntegerError::TooLarge)?;
    if value > max { Err(IntegerError::TooLarge) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_or_refused() {
        assert_eq!(integer(b"0", 0), Ok(0));
        assert_eq!(integer(b"-0", 9), Ok(0));
        assert_eq!(integer(b"4096", 4096), Ok(4096));
        assert_eq!(integer(b"4097", 4096), Err(IntegerError::TooLarge));
        assert_eq!(integer(b"18446744073709551615", u64::MAX), Ok(u64::MAX));
        assert_eq!(integer(b"18446744073709551616", u64::MAX), Err(IntegerError::TooLarge));
        assert_eq!(integer(b"-1", u64::MAX), Err(IntegerError::Negative));
        assert_eq!(integer(b"-99999999999999999999", u64::MAX), Err(IntegerError::Negative));
        for text in ["1.0", "1e2", "1E999999", "", "-", "\"1\"", "null"] {
            assert_eq!(integer(text.as_bytes(), u64::MAX), Err(IntegerError::Form), "{text}");
        }
    }
}
