//! Scenes first, then random runs.

mod swarm;
