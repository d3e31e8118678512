//! Tests of the load generator against synthetic origins.
mod ai;
mod flags;
mod http;
mod mongodb;
mod postgres;
mod pubsub;
mod record;
mod run;
mod tcp;
