//! Scenes first, then random runs.

mod scene;
mod scenes;
mod swarm;
