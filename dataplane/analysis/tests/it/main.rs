//! Tests of the facts of messages: commands against golden files, classes, HTTP.
mod ai;
mod classes;
mod golden;
mod http;
mod postgres;
