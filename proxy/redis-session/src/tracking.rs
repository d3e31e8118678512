//! CLIENT TRACKING: clients keep their reads, and get an invalidation at a change.
//!
//! A worker has one connection per server on which it hears of every key that changes (`CLIENT TRACKING ON BCAST`), its
//! tracking lane. The gateway knows which client read which key, so the servers remember nothing, and any number of clients, in
//! any mode, cost them one client more. Reads may use any lane: shared, pinned, in a transaction, at a replica.
//!
//! # Why nothing stale is kept
//!
//! A server notifies a client of its own in the order of its replies: an invalidation before a reply is of a change
//! that the reply reflects. Here replies and invalidations come on two connections, in any order. For a read at the server at
//! *r* and a change at *w*, with the invalidation *P* of that change:
//!
//! 1. *r* after *w*: the reply is new. If *P* gets the invalidation too, the client forgets a good value: harmless.
//! 2. *r* before *w*, reply here before *P*: the client was entered in the [`table`] when the read was sent, so *P* finds it.
//! 3. *r* before *w*, *P* here before the reply: at that moment the read is under way, so it is marked, and its key is
//!    invalidated once more behind its reply (`session`). The value that the client held before is invalidated at once.
//! 4. *P* here before the read was sent: then *w* came before *r*, which is 1.
//!
//! So: what a client holds was read after every change that the gateway has heard of. For this *every* change must be heard:
//! a read counts only if the tracking lane of its server was live when it was sent, and has been since. Else it is marked from
//! the start, so that the client forgets it with its reply. When a lane is lost all reads in flight are marked and every client
//! gets an invalidation of everything; also when it is back, for the sake of BCAST clients. A request that a node of a
//! cluster redirected is marked as well: the server that answered is not the watched one.
//!
//! `tests` plays it with many clients and writers, pieces of replies and lost lanes, in orders drawn from a seed.
//!
//! # Behind the reply
//!
//! Changes of a key while the client's own write to it is in flight cause one invalidation, behind the reply, as at a server.
//! That is not too late: replies come in order, so no reply that was read after the change is delivered before. Invalidations
//! do not wait for a command that waits for others (BLPOP), as its reply may take long.
//!
//! # NOLOOP
//!
//! The tracking lane does not say who changed a key, and several changes within one turn of the server cause one invalidation. A change
//! of the client's own is therefore passed over only where it is certain to be one: its command always changes its key (SET
//! without NX or XX, INCR, HSET, ...) and has succeeded. For a client that tracks its reads this is exact: a server,
//! too, forgets that it has read a key which it then writes. A second invalidation while the write is under way comes behind the reply:
//! it may be that of a later change. With BCAST none is passed over, because one invalidation stands for all changes of a turn. The
//! same holds for a write whose key the tracking lane does not watch, for MSET on several shards, and beyond 64 own writes under
//! way. Such own writes cause an invalidation, which costs a read and is never wrong.
//!
//! | file | concept |
//! |---|---|
//! | `terms` | options of CLIENT TRACKING |
//! | `session` | a client that tracks: its commands, its reads in flight, its invalidations |
//! | `in_flight` | keys of a client's requests that have no reply yet; pure |
//! | `table` | which client has read which key; pure |
//! | `line` | messages of a server on a tracking lane; pure |
//! | `notice` | invalidations for another client (REDIRECT), perhaps on another worker |

mod in_flight;
pub mod line;
pub(crate) mod notice;
pub(crate) mod session;
pub mod table;
mod terms;
#[cfg(test)]
mod tests;

pub(crate) use self::session::Tracking;
pub use self::{notice::Notice, terms::Scope};
