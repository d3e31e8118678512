//! Publish and subscribe: the clients of a worker share its subscriptions at the server.
//!
//! A worker has one connection for subscriptions per endpoint, its subscription lane. Each name is subscribed there once for
//! all clients of the worker, and each message is copied to its subscribers.
//!
//! | file | concept |
//! |---|---|
//! | `frame` | messages of a server on a subscription lane |
//! | `registry` | subscribers and pending commands to the servers; pure |
//! | `feed` | one subscription lane as the registry sees it: what is expected of it |
//! | `replies` | messages and replies of the servers, and the clients that they concern |
//! | `recovery` | lost connections, moved slots, silence |

pub mod feed;
pub mod frame;
mod recovery;
mod registry;
mod replies;

pub use self::{
    feed::Name,
    frame::Kind,
    recovery::Patience,
    registry::{At, Registry, RegistryIo},
};
