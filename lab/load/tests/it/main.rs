//! Tests of the load generator against synthetic origins.
mod http;
mod pubsub;
mod record;
mod run;
mod tcp;
