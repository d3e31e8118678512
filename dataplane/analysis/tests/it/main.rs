//! Tests of the facts of messages: commands against golden files, classes, HTTP.
mod classes;
mod golden;
mod http;
mod postgres;
