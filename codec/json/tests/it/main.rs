//! Tests of the scanner: the grammar, the watched values, and both against serde_json.

mod differential;
mod grammar;
mod support;
mod values;
