//! The usage log: one line of JSON per request, appended and never changed.
//!
//! | file | concept |
//! |---|---|
//! | [`record`] | a record and its line |
//! | [`open_record`] | the record of a request that is open, as the journal keeps it |
//! | [`mod@file`] | the log: rotation, and what a recovery restores |
//! | [`mod@reconcile`] | the sum of the log against the budgets |

pub mod file;
pub mod open_record;
pub mod reconcile;
pub mod record;

pub use file::{UsageFile, UsageSettings};
pub use reconcile::{Difference, LogSum, reconcile};
pub use record::{Flags, LINE_BYTES_MAX, TEXT_BYTES_MAX, UsageRecord};
