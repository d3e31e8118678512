//! The usage log: one line of JSON per request, appended and never changed.
//!
//! | file | concept |
//! |---|---|
//! | [`record`] | a record and its line |
//! | [`mod@file`] | the log: rotation, and what a recovery restores |
//! | [`mod@reconcile`] | the sum of the log against the budgets |

pub mod file;
pub mod reconcile;
pub mod record;

pub use file::{UsageFile, UsageSettings};
pub use reconcile::{Difference, LogSum, reconcile};
pub use record::{Flags, LINE_BYTES_MAX, UsageRecord};
