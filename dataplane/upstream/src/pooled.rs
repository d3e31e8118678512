//! Whole connections for one client at a time, key by key.

pub mod settings;

pub use settings::PooledSettings;
