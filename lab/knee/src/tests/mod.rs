//! The search against simulated systems. Arithmetic only: no socket, no clock, no sleep.

mod bracketing;
mod judging;
mod planning;
mod properties;
mod seeds;
mod stopping;
mod systems;
mod transitions;
