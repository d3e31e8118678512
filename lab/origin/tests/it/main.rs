//! Tests of the synthetic origins: their commands, limits and faults, and real tools in front of them.
mod ai;
mod commands;
mod faults;
mod flags;
mod limits;
mod mongodb;
mod postgres;
mod support;
mod tools;
