//! The interface of a session to its shell. The gateway's shell is `Connection` of `weir-redis`; tests and fuzzing bring their own.

use std::{net::IpAddr, rc::Rc, sync::Arc, time::Duration};

use weir_analysis::redis::Command;
use weir_base::{connection::ConnectionEntry, exchange::Refusal, time::Time, violation::Violation};
use weir_placement::{KeyLocation, Node};

use crate::{
    cache::Cache,
    lane::{LaneKey, ServerInfo},
    pin_reason::PinReason,
    pubsub::{Kind, Name},
    tracking::Scope,
    users::ListenerShare,
};

/// A request on its way to the upstream, or plain ones next to each other.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The session's number for the (first) request; replies come back with it, in order.
    pub number: u64,
    /// How many requests there are. More than one only of plain ones.
    pub count: u64,
    /// Replies to swallow before the one to deliver.
    pub skip: u32,
    /// False if the client chose how long it may take.
    pub has_deadline: bool,
}

impl Ticket {
    /// Ticket of one request that gets one reply in the usual time.
    #[inline]
    pub fn new(number: u64) -> Self {
        Self { number, count: 1, skip: 0, has_deadline: true }
    }
}

/// Whether a command is one of the few that are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Its stages are timed.
    pub is_timed: bool,
    /// It goes into the access log.
    pub is_logged: bool,
}

/// Result of [`Lanes::pin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// The lane is here.
    Ready,
    /// `Session::on_pin` follows.
    Later,
    /// As many clients of the listener sit in blocking commands as may.
    TooManyBlocked,
    /// As many clients wait for a lane as may.
    Refused(Refusal),
}

/// Reason why a subscription was refused without a request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSubscription {
    /// The clients of the worker have as many as they may.
    TooMany,
    /// The server cannot be queried just now.
    Refused(Refusal),
}

/// Result of [`Feeds::track`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// Every change is heard of.
    Live,
    /// `Session::on_tracked` follows.
    Later,
    /// The server cannot be queried just now.
    Refused(Refusal),
}

/// The resource that is exhausted or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Exchanges in flight on this core.
    InFlight,
    /// Bytes buffered in the process.
    Buffered,
    /// The primary is not known yet.
    NoPrimary,
}

impl Full {
    /// The label value.
    pub fn name(self) -> &'static str {
        match self {
            Full::InFlight => "in_flight",
            Full::Buffered => "buffered_bytes",
            Full::NoPrimary => "no_primary",
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Full::InFlight => crate::refusal::IN_FLIGHT,
            Full::Buffered => crate::refusal::BUFFERED,
            Full::NoPrimary => crate::refusal::NO_PRIMARY,
        }
    }
}

/// Time, and calls that come later.
pub trait Clock {
    /// The time of this loop turn.
    fn now(&self) -> Time;
    /// Calls [`on_retry`](crate::Session::on_retry) after `pause`.
    fn retry_later(&self, exchange: u64, pause: Duration);
}

/// The client's output.
pub trait Replies {
    /// Encodes at the end of the client's output.
    fn reply(&self, encode: impl FnOnce(&mut Vec<u8>));
    /// The client does not read fast enough: take no more commands for now.
    fn is_congested(&self) -> bool;
}

/// The room that is left on this core, and in the rate of the listener.
pub trait Admission {
    /// The resource that prevents one more exchange on this core, if any.
    fn full(&self) -> Option<Full>;
    /// How many more exchanges this core may have in flight.
    fn room(&self) -> u64;
    /// Takes the right to `count` more requests within the rate of this listener, or none: it is at its knee.
    fn admit(&self, count: u64) -> bool;
}

/// Lanes to the servers: the shared ones, and the client's own.
pub trait Lanes {
    /// The server's description of itself in this protocol version's greeting; `None` if no lane of that version was made yet.
    fn server(&self, key: LaneKey) -> Option<Rc<ServerInfo>>;
    /// How many plain requests the shared lane of `key` takes at once just now; 0 if each has to be looked at.
    fn batch_room(&self, key: LaneKey) -> u64;
    /// The next request of `key` would ride another connection than those that wait for replies: they must be answered
    /// first.
    fn must_settle(&self, key: LaneKey) -> bool;
    /// Sends a request, or as many as the ticket says, on the shared lane of `key`.
    ///
    /// # Errors
    /// They were not accepted; nothing was sent.
    fn forward(&self, key: LaneKey, request: &[u8], ticket: Ticket) -> Result<(), Refusal>;
    /// The last byte of a streamed command has been written: from now on its reply may be late.
    fn request_complete(&self);
    /// Asks for a lane of the client's own.
    fn pin(&self, key: LaneKey, reason: PinReason) -> Pinning;
    /// Sends a request on the client's own lane.
    fn forward_pinned(&self, request: &[u8], ticket: Ticket);
    /// Sends bytes on the client's own lane that belong to no new exchange.
    fn write_pinned(&self, bytes: &[u8]);
    /// The client's own lane does not take more bytes for now.
    fn is_pin_congested(&self) -> bool;
    /// Frames of the client's own lane come unpaired from now on, or no longer.
    fn set_tunnel(&self, is_tunnel: bool);
    /// Sets the client's own lane aside: it asks for a second one.
    fn park(&self);
    /// The lane that was set aside is the client's own again.
    fn unpark(&self);
    /// Gives the client's own lane back; if it is not clean it is closed.
    fn unpin(&self, is_clean: bool);
}

/// Servers, and the place of each key.
pub trait Topology {
    /// The endpoint for all commands that do not belong to another one; `None`: not known yet.
    fn primary(&self) -> Option<u16>;
    /// Where this client reads what `shard` has.
    fn read_from(&self, shard: u16) -> u16;
    /// Requests may go to several servers at once.
    fn is_sharded(&self) -> bool;
    /// The shards that have keys.
    fn shards(&self) -> Vec<u16>;
    /// Where `key` is.
    fn place(&self, key: &[u8]) -> KeyLocation;
    /// Where the keys of `group` are now.
    fn shard_of(&self, group: u16) -> u16;
    /// Where commands go that name no key: a stable choice, so that what one leaves there another finds.
    fn keyless(&self) -> u16;
    /// Where PUBLISH goes: as [`Topology::keyless`], and in a cluster the same node for as long as it is there, whatever slots
    /// move.
    fn home(&self) -> u16;
    /// In front of a cluster, a number that changes with its map of slots.
    fn topology(&self) -> Option<u64>;
    /// A node, reached as `from`, says that a request belongs to `node`; with a slot, all of that slot. The shard to send it
    /// to, if it is known to be in the cluster.
    fn redirected(&self, slot: Option<u16>, node: &Node, from: u16) -> Option<u16>;
    /// The known topology of the cluster may be outdated.
    fn refresh(&self);
    /// Where clients reach this listener: host, empty for the one they used, and port.
    fn advertised(&self) -> (String, u16);
}

/// Messages and changed keys that come unasked, and the replies that hold until a key changes.
pub trait Feeds {
    /// Subscribes the client to names of one kind, none of which it has, none of them twice.
    /// [`on_subscribed`](crate::Session::on_subscribed) follows for each, in order, or
    /// [`on_subscription_refused`](crate::Session::on_subscription_refused).
    ///
    /// # Errors
    /// It is refused; nothing was requested, and nothing follows.
    fn subscribe(&self, login: u64, kind: Kind, names: &[Name]) -> Result<(), NoSubscription>;
    /// Ends subscriptions that the client has. True if that is done;
    /// else [`on_unsubscribed`](crate::Session::on_unsubscribed) follows.
    fn unsubscribe(&self, kind: Kind, names: &[Name]) -> bool;
    /// Ends all that the client is subscribed to.
    fn unsubscribe_all(&self);
    /// The client has so many subscriptions.
    fn note_subscriptions(&self, count: usize);
    /// Sends a PUBLISH of the client where its own messages come from, so that the message comes before the reply.
    /// [`on_published`](crate::Session::on_published) follows. False if that cannot be done.
    fn publish(&self, login: u64, kind: Kind, name: &[u8], request: &[u8]) -> bool;
    /// The client gets changes from now on, by [`on_changed`](crate::Session::on_changed) and
    /// [`on_all_changed`](crate::Session::on_all_changed); or other changes from now on, if it tracks already.
    fn track(&self, login: u64, scope: &Scope) -> Track;
    /// It gets no more invalidations.
    fn untrack(&self);
    /// It is counted as one that tracks, or no longer.
    fn note_tracking(&self, tracks: bool);
    /// The client is about to read these keys, each at the server of that number. True if all changes of them from now on will
    /// be heard of. With `remembers` the client is entered as a reader of them, until they change.
    fn watch_keys(&self, keys: &[(Name, u16)], remembers: bool) -> bool;
    /// The client is no reader of `key` any more.
    fn forget_key(&self, key: &[u8]);
    /// The reply cache of this listener, if it has one.
    fn cache(&self) -> Option<Rc<Cache>>;
}

/// The client of this session, and the others of its listener.
pub trait Clients {
    /// The public side of this connection: name, database, state.
    fn entry(&self) -> &ConnectionEntry;
    /// The address that the client comes from, if it has one.
    fn source(&self) -> Option<IpAddr>;
    /// State of the users of this listener, shared by the workers.
    fn share(&self) -> Option<&ListenerShare>;
    /// Another client of this listener, on any worker.
    fn find_client(&self, id: u64) -> Option<Arc<ConnectionEntry>>;
    /// Tells another client that `keys` have changed, `None`: all.
    fn post(&self, client: &ConnectionEntry, keys: Option<&[&[u8]]>);
    /// The connections of this listener that the filter lets through, as one CLIENT LIST line each.
    fn list_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool, out: &mut Vec<u8>);
    /// Ends the connections for which `CLIENT KILL` was called; the number of them.
    fn kill_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool) -> u64;
    /// As whom the server knows client number `id` of this listener, and on which shard, if it sits in a blocking command.
    fn blocked_as(&self, id: u64) -> Option<(u16, u64)>;
}

/// Counters, samples, the log and INFO.
pub trait Tally {
    /// Draws what becomes of the next command besides being served.
    fn draw_sample(&self) -> Sample;
    /// A command with this sample is about to be judged, or a batch without one is about to be sent.
    fn begin_command(&self, sample: Sample);
    /// Counts a command that came `times` times in a row.
    fn count(&self, command: Option<&'static Command>, times: u64);
    /// Counts a refusal before work, of a command that is counted or is a part of one.
    fn count_shed(&self, reason: &'static str);
    /// Counts a command that is refused before work, and the refusal.
    fn count_refused(&self, command: Option<&'static Command>, reason: &'static str);
    /// Counts a failed login.
    fn count_auth_failure(&self);
    /// Counts an error reply by its first word.
    fn count_error(&self, reply: &[u8]);
    /// Counts a request that goes another way than it was sent first.
    fn count_redirect(&self, kind: &'static str);
    /// Counts sent invalidations.
    fn count_invalidations(&self, count: usize);
    /// Counts something that a user of the configuration was denied.
    fn count_denied(&self, user: &str, reason: &'static str);
    /// Counts a login of a user of the configuration.
    fn count_login(&self, user: &str);
    /// Writes what INFO tells of the gateway, hot keys only `with_keys`.
    fn write_info(&self, out: &mut String, with_keys: bool);
    /// Reports a broken rule that does not end the connection.
    fn report(&self, violation: &Violation);
}

/// The surroundings of a session. Every call returns at once, and none has a reply that a shell could forget to give.
pub trait Io: Clock + Replies + Admission + Lanes + Topology + Feeds + Clients + Tally {}

impl<T: Clock + Replies + Admission + Lanes + Topology + Feeds + Clients + Tally> Io for T {}
