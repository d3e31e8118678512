//! Tests of tokens, evaluation, documents, deltas and metrics, and the client specification.

mod deltas;
mod documents;
mod evaluation;
mod metrics;
mod specification;
mod support;
mod tokens;
