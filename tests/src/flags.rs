//! Feature flags: the lab's origin and a real Unleash server as processes, a server with buckets, a gateway in front of either, requests by hand, and the SDKs.

mod api;
mod bucket;
mod gateway;
mod origin;
mod sdk;
mod server;
mod stream;

pub use api::{Reply, call, get, is_retry_after, post};
pub use bucket::{ACCESS_KEY, BucketServer, REGION};
pub use gateway::{BACKEND, FRONTEND, before, before_with, environment, offline, offline_with};
pub use origin::FlagOrigin;
pub use sdk::{Sdk, SdkProcess};
pub use server::Unleash;
pub use stream::{Event, Events};

use std::path::PathBuf;

/// The folder of the specification that all SDKs share.
#[must_use]
pub fn specification() -> PathBuf {
    clients().join("node/node_modules/@unleash/client-specification/specifications")
}

/// The folder of the programs around SDKs.
fn clients() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients/flags")
}
