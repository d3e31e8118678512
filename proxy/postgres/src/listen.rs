//! LISTEN for all clients of a server, database and user through one connection of the process.
//!
//! The **line** is that connection, on the worker whose client listened first. Each worker has a **hub** with its own clients, and all
//! messages between a hub and the line go through mailboxes. A **feed** has the news of one client until its session takes them. The
//! logic is in `weir-postgres-session`: `notify` (channels at the server), `listening` (those of a client).
//!
//! | file | concept |
//! |---|---|
//! | `feed` | one client |
//! | `hub` | the clients of one worker |
//! | `line` | the connection |
//! | `lines` | all lines of the process |

mod feed;
mod hub;
mod line;
mod lines;

pub(crate) use self::{
    feed::{ClientFeed, NEWS_BYTES_MAX},
    hub::Hubs,
    lines::{LineView, views},
};

use std::sync::Arc;

use weir_engine::Mailbox;
use weir_postgres_session::{Refusal, io::Notification};

/// A hub, by a number that is unique in the process.
type HubId = u64;

/// The number of a request of a hub for a channel: the reply to an earlier one is of no use to those that came later.
type RequestNumber = u64;

/// A message of a hub to its line.
enum ToLine {
    /// The hub has clients from now on.
    Join(HubId, Mailbox<FromLine>),
    /// It has none any more.
    Leave(HubId),
    /// One of its clients is the first to want the channel.
    Listen(HubId, Box<[u8]>, RequestNumber),
    /// None of its clients wants it any more.
    Unlisten(HubId, Box<[u8]>),
    /// [`FromLine::Fenced`] is to follow the notifications of all transactions that have committed.
    Fence(HubId, u64),
}

/// A message of a line to a hub.
enum FromLine {
    /// The server has the channel.
    There(Box<[u8]>, RequestNumber),
    /// The server refuses it.
    Refused(Box<[u8]>, RequestNumber, Refusal),
    /// A notification.
    Notification(Arc<Notification>),
    /// See [`ToLine::Fence`].
    Fenced(u64),
    /// The server is lost.
    Lost,
    /// No server can be had just now: clients that wait for a channel wait no longer.
    Unavailable(Refusal),
    /// After a loss, the server has all channels again.
    Restored,
    /// The last message.
    Over,
}
