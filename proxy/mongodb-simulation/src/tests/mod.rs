//! Random runs, each from a seed of its own.

mod swarm;
