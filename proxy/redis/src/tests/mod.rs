//! The session against the simulated world.

mod swarm;
