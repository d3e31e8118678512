//! Budgets per day and month: reserve, then settle.
//!
//! A request reserves what it may cost with each of its accounts (its key, its team, its organisation), in one step that
//! either all budgets grant or none. The settlement replaces the reservation by the true amount.
//!
//! **Exact.** Each account has a lock, held for a comparison and an addition, some 50 ns; a reservation holds those of its
//! accounts together, in the order of their ranks, so no two wait for each other. When two requests race for the last
//! tokens, one is admitted. Single atomics would not do: a request that one of eight counters refuses would have to
//! give the others back, and a third request could meanwhile be refused for a budget that nothing used.
//!
//! **Overshoot.** Settled and reserved together never exceed a budget by a reservation. A settlement may exceed its own
//! reservation when the estimate was too low; the budget is then exceeded by that difference, for each request that was
//! open at that moment, and no further request is admitted.
//!
//! **Windows** are days and months in UTC. A reservation belongs to the day on which it was made, and so does its
//! settlement. The day of a ledger never goes back: a clock that steps back stays in the window of the latest day, so it
//! gives no second budget. A clock that stepped far ahead keeps the window until that day comes; see
//! [`Ledger::latest_day`] and `journal::JournalSettings::trusts_clock`.
//!
//! **Several gateways** share budgets through a store: `allowance` is the part of this process, see [`crate::shared`].
//!
//! **Two processes** have the accounts for a moment at an upgrade: `stance` says which of them may grant how much.

mod account;
mod allowance;
mod ledger;
mod news;
mod stance;
mod window;

pub use account::{Account, AccountId, AccountKind, Budgets, Position, Totals};
pub use allowance::{Claim, Measure, Supply};
pub use ledger::{Grant, LEVELS_MAX, Ledger, Level, Reserved, Share};
pub use window::{Day, Month};
