//! Tests of the load generator against synthetic origins.
mod http;
mod pubsub;
mod run;
mod tcp;
