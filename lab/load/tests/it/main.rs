//! Tests of the load generator against synthetic origins.
mod http;
mod run;
mod tcp;
