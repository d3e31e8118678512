//! Scenes first, then random runs.

mod listening;
mod raw;
mod scene;
mod scenes;
mod swarm;
