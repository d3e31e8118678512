//! Scenes first, then random runs.

mod raw;
mod scene;
mod scenes;
mod split;
mod swarm;
