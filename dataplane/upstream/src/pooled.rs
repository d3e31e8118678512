//! Whole connections for one client at a time, key by key.

mod settings;

pub use settings::{
    MIN_POOL_SIZE, POOL_SIZE, PooledSettings, RESERVE_POOL_SIZE, RESERVE_POOL_TIMEOUT, SERVER_CHECK_DELAY,
    SERVER_IDLE_TIMEOUT, SERVER_LIFETIME, UPKEEP_TIMEOUT,
};
