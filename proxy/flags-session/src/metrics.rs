//! Metrics of clients, on their way to the upstream.
//!
//! | file | concept |
//! |---|---|
//! | `aggregates.rs` | [`Aggregates`]: sums by application, flag, environment and hour |
//! | `impact.rs` | metrics of applications' own, as one |
//! | `batch.rs` | [`Batch`]: a body that the upstream takes |
//! | `pacing.rs` | [`Pacing`]: the fate of a body after a response, and the wait until the next |

mod aggregates;
mod batch;
mod impact;
mod pacing;

pub use aggregates::{Aggregates, Dropped, sdk_texts};
pub use batch::Batch;
pub use pacing::{Fate, Pacing, Upload};
