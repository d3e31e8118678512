//! Tests of the synthetic origins: their commands, limits and faults, and real tools in front of them.
mod commands;
mod faults;
mod limits;
mod support;
mod tools;
