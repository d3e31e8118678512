//! The clean-knee search: which load a gateway carries cleanly, and what stops it. Arithmetic only.
//!
//! [`Search::next`] takes what a trial measured and says which trial to run next, until it says [`Command::Done`]. There
//! is no clock, socket, thread or random source inside: the driver brings [`Trial`]s of plain numbers and a seed, so
//! the whole search runs against simulated systems in the tests.
//!
//! ```
//! # use weir_knee::{Command, Observation, Rules, Search, SearchOptions, Trial};
//! # fn measure(run: &weir_knee::Run) -> Trial { Trial::default() }
//! let mut search = Search::new(SearchOptions::default(), Rules::default(), 7)?;
//! let mut command = search.next(None);
//! let knee = loop {
//!     match command {
//!         Command::Run(run) => {
//!             let trial = measure(&run);
//!             command = search.next(Some(&Observation { run, trial }));
//!         }
//!         Command::Done(knee) => break knee,
//!     }
//! };
//! println!("{}", knee.clean_cell("req/s"));
//! # Ok::<(), weir_knee::BadRule>(())
//! ```
//!
//! | file | concept |
//! |---|---|
//! | [`trial`] | the facts of one timed run; rates in requests per second, times in microseconds, CPU as a share of a core |
//! | [`rules`] | every threshold, its default and its reason; a result stores the ones it used |
//! | [`judge`](mod@judge) | clean, not clean, invalid or unsteady, and why |
//! | [`stop`] | the reason that stopped the gateway: the first of eight reasons that matches, with its evidence |
//! | [`command`] | the next step that the search requests: a trial, or the end |
//! | [`search`] | the states: Calibrate, Ramp, Bisect, Verify, StepDown, StepUp, Overload |
//! | [`points`] | outcome of each rate; points that contradict each other |
//! | [`knee`] | the result: an interval, what verified it, first overload, peak completed |
//! | [`bracket`] | where the knee lies if it could not be verified |
//! | [`estimate`] | mean of repeats with a 95 % interval |
//! | [`ratio`] | ratios of paired measurements with a bootstrap interval |
//! | [`cell`] | how a result is printed in a table: a number, `below X`, `not reached`, `not run`, `n/a`, `invalid: ...` |
//! | [`markdown`] | tables that also read well in a terminal |
//! | [`plan`](mod@plan) | how many instances a demand needs, from clean knees only |
//!
//! Limits: a search ends within [`Rules::trials_max`] trials, whatever the trials say. It reports a knee only if every long
//! trial at that rate was clean.
#![forbid(unsafe_code)]

pub mod bracket;
pub mod cell;
pub mod command;
pub mod estimate;
pub mod judge;
pub mod knee;
pub mod markdown;
pub mod plan;
pub mod points;
pub mod ratio;
pub mod rules;
pub mod search;
pub mod stop;
pub mod trial;

pub use bracket::Bracket;
pub use cell::Cell;
pub use command::{Command, Length, Observation, Purpose, Rate, Run};
pub use estimate::Estimate;
pub use judge::{Check, NotClean, Verdict, judge};
pub use knee::{Knee, SearchOutcome};
pub use plan::{Plan, Refusal, plan};
pub use ratio::Ratio;
pub use rules::{BadRule, Rules};
pub use search::{Search, SearchOptions, State};
pub use stop::{Stop, StopReason};
pub use trial::{Backend, Trial};

#[cfg(test)]
mod tests;
