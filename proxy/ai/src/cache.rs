//! The exact cache: a response serves equal requests of the same tenant for a time.
//!
//! All workers share it, since a request comes to any of them. Only requests of a key or a listener with a rule take its locks, and no
//! lock is held across a wait or a call of the kernel.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | bounds of the process |
//! | `request` | the requests that may be served from it, and the control of their client |
//! | `fingerprint` | equality of requests: tenant, target and bytes |
//! | `store` | stored responses within their bound, least recently used ones first out |
//! | `flight` | single flight: equal requests wait for the first one |
//! | `response_cache` | both together: the way of a request |
//! | `recording` | a response that is recorded while it passes |
//! | `entry` | a stored response |
//! | `replay` | its body, event by event |
//! | `whole` | whether a whole body is fit to be stored |

mod entry;
mod fingerprint;
mod flight;
mod recording;
mod replay;
mod request;
mod response_cache;
pub(crate) mod settings;
mod store;
mod whole;

pub(crate) use self::{
    entry::{Entry, Source},
    fingerprint::{Subject, Tenant},
    recording::Recording,
    replay::Replay,
    request::{CacheControl, is_cacheable},
    response_cache::{Lead, Turn},
    store::Freshness,
    whole::is_fit,
};
pub use self::{response_cache::ResponseCache, store::Evictions};
