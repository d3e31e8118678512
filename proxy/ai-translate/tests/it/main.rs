//! Tests of the translation: golden pairs for each row of the tables, streams against whole messages, hostile inputs.

mod accumulate;
mod calls;
mod conversations;
mod ends;
mod figures;
mod hostile;
mod properties;
mod requests;
mod responses;
mod streams;
mod support;
