//! Labels of errors. A server sends them as texts; these are the ones that drivers and Weir act on.

use bitflags::bitflags;

use crate::bson::{Document, Value};
use crate::error::BsonError;

bitflags! {
    /// A set of labels.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Labels: u8 {
        /// The whole transaction may be tried again.
        const TRANSIENT_TRANSACTION = 1;
        /// The commit may have happened, and may be tried again.
        const UNKNOWN_COMMIT_RESULT = 1 << 1;
        /// The write may be tried again, with its number.
        const RETRYABLE_WRITE = 1 << 2;
        /// A change stream may go on.
        const RESUMABLE_CHANGE_STREAM = 1 << 3;
        /// The server has too much to do.
        const SYSTEM_OVERLOADED = 1 << 4;
        /// Any command may be tried again.
        const RETRYABLE = 1 << 5;
        /// Nothing was written. If an attempt before this one may have, its error counts.
        const NO_WRITES_PERFORMED = 1 << 6;
    }
}

/// Each label with its text, in the order of the bits.
const TEXTS: [&str; 7] = [
    "TransientTransactionError",
    "UnknownTransactionCommitResult",
    "RetryableWriteError",
    "ResumableChangeStreamError",
    "SystemOverloadedError",
    "RetryableError",
    "NoWritesPerformed",
];

impl Labels {
    /// From the array of a reply. Others are left out.
    ///
    /// # Errors
    /// The array is broken.
    pub(crate) fn read(array: Document<'_>) -> Result<Self, BsonError> {
        let mut labels = Self::empty();
        for element in array.elements() {
            let text = Value::as_string(element?.value).unwrap_or_default();
            let bit = TEXTS.iter().position(|known| known.as_bytes() == text);
            labels |= bit.map_or(Self::empty(), |bit| Self::from_bits_truncate(1 << bit));
        }
        Ok(labels)
    }

    /// Their texts.
    pub fn texts(self) -> impl Iterator<Item = &'static str> {
        TEXTS.into_iter().zip(0..).filter(move |(_, bit)| self.bits() & (1 << bit) != 0).map(|(text, _)| text)
    }
}
