//! Tests of the crate as a gateway uses it: with threads, files, and processes that are killed.

mod crash;
mod disk;
mod ledger;
mod meter;
mod model;
mod rates;
mod recovery;
mod shared;
mod support;
