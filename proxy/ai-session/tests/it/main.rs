//! Tests of the AI session: fixtures that pass unchanged, usage of every shape, streams that break.

mod golden;
mod redact;
mod splice;
mod stream;
mod support;
mod usage;
