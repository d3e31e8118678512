//! Tests of the configuration as its users see it: files, diagnostics, examples, the generated reference.
mod ai;
mod diagnostics;
mod effects;
mod examples;
mod explain;
mod hostile;
mod knee;
mod mongodb;
mod postgres;
mod protocols;
mod reference;
mod rehearsal;
mod snapshot;
mod support;
