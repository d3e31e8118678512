//! Publish and subscribe: the clients of a worker share its subscriptions at the server.
//!
//! A worker has one connection for subscriptions per endpoint, its subscription lane. What its clients subscribe to is
//! subscribed there once, however many they are, and each message is copied to those who want it.
//!
//! | file | concept |
//! |---|---|
//! | `frame` | what a server says on a subscription lane |
//! | `registry` | who hears what, and what has been asked of the servers; pure |
//! | `feed` | one subscription lane as the registry sees it: what is expected of it |
//! | `answers` | what the servers say, and whom it concerns |
//! | `recovery` | lost connections, moved slots, silence |
//! | `hub` | the registry of one upstream on one worker, with its connections |

mod answers;
pub(crate) mod feed;
pub(crate) mod frame;
mod hub;
mod recovery;
pub(crate) mod registry;
#[cfg(test)]
mod tests;

pub(crate) use self::hub::Hub;
pub use self::{feed::Name, frame::Kind};
#[cfg(any(test, feature = "simulation"))]
pub(crate) use self::{
    recovery::Patience,
    registry::{At, Registry, RegistryIo},
};
