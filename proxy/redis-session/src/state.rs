//! The state of a session between two commands: its wait, its lane, its requests in flight.

use std::{rc::Rc, sync::Arc};

use weir_base::{exchange::Refusal, time::Time};
use weir_resp::{RequestLimits, Version};

use crate::{
    access::CurrentUser,
    cache::Caching,
    database::DbChange,
    io::Io,
    lane::{LaneKey, Purpose},
    local_replies::LocalReplies,
    ordering::Ordering,
    pin::{Pins, Watched},
    redirect::Attempts,
    settings::RedisListenerSettings,
    spares::Spares,
    stream::Streaming,
    subscription::Subscriptions,
    tracking::Tracking,
    transaction::Transaction,
    tunnel::Tunnel,
    users::{OWN_LOGIN, Users},
};

/// Why no command is taken just now, although bytes may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Until every request has been answered: the next command changes what later ones mean.
    Quiet,
    /// Until the requested lane is here.
    Pin,
    /// Until the core has room for one more exchange.
    Room,
    /// Until then: a wrong password costs time.
    Until(Time),
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStatus {
    /// It is complete, or on its way.
    Done,
    /// It stays in the input and is looked at again when the hold is over.
    Held,
}

/// All of a session but its input.
pub(crate) struct State {
    pub(crate) settings: Rc<RedisListenerSettings>,
    pub(crate) limits: RequestLimits,
    pub(crate) version: Version,
    pub(crate) db: u32,
    /// The endpoint of what belongs to no other one.
    pub(crate) primary: u16,
    pub(crate) is_authenticated: bool,
    /// The users of the listener, if it has any; they may be newer than the other settings.
    pub(crate) users: Option<Arc<Users>>,
    /// The client's user, among them.
    pub(crate) user: Option<CurrentUser>,
    /// As whom its requests reach the server.
    pub(crate) login: u64,
    /// The user has restrictions: each command is looked at.
    pub(crate) is_watched: bool,
    /// The command at the front of the input has been counted against the rate of its user.
    pub(crate) is_rated: bool,
    /// The login at the front of the input has waited for the wrong ones before it.
    pub(crate) has_served_penalty: bool,
    pub(crate) auth_failures: u32,
    pub(crate) order: Ordering,
    pub(crate) hold: Option<Hold>,
    pub(crate) pins: Option<(LaneKey, Pins)>,
    /// The lane with the client's state, while a large command has another.
    pub(crate) parked: Option<Box<(LaneKey, Pins)>>,
    /// The watched keys, while a WATCH waits for its reply or their slots matter.
    pub(crate) watched: Option<Box<Watched>>,
    /// The command at the front of the input is held until it is whole, however large.
    pub(crate) is_held_whole: bool,
    /// Replies may come from several shards, in any order.
    pub(crate) is_sharded: bool,
    /// Requests to a cluster that are not answered yet.
    pub(crate) attempts: Option<Box<Attempts>>,
    /// The version of the slot map by which they were sent.
    pub(crate) topology: u64,
    /// The lane that was requested last.
    pub(crate) pin_asked: Option<LaneKey>,
    /// The lane for the command at the front of the input has come, or will not.
    pub(crate) pin_result: Option<Result<(), Refusal>>,
    /// The command at the front of the input has waited for room long enough.
    pub(crate) is_room_refused: bool,
    /// The command at the front of the input has been counted against the rate of the listener.
    pub(crate) is_admitted: bool,
    /// The lane with the watched keys was lost: EXEC must not succeed.
    pub(crate) is_watch_broken: bool,
    pub(crate) transaction: Option<Box<Transaction>>,
    /// The commands of an EXEC under way that the gateway answers itself.
    pub(crate) local_replies: Option<Box<LocalReplies>>,
    /// An EXEC or a SELECT that changes the database if it succeeds.
    pub(crate) changes_db: Option<Box<DbChange>>,
    pub(crate) streaming: Option<Box<Streaming>>,
    pub(crate) tunnel: Option<Box<Tunnel>>,
    /// The client's subscriptions, from its first SUBSCRIBE on.
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    /// The client keeps its reads and gets invalidations.
    pub(crate) tracking: Option<Box<Tracking>>,
    /// Exchanges in flight that matter to the reply cache.
    pub(crate) caching: Option<Box<Caching>>,
    /// The beginning of a frame has gone to the client and its end has not: nothing may come in between.
    pub(crate) is_mid_frame: bool,
    /// The end of such a frame will never come: whatever followed would be read as a part of it.
    pub(crate) is_cut: bool,
    /// The client sends no more; what it sent is still answered.
    pub(crate) is_ended: bool,
    pub(crate) is_closing: bool,
}

impl State {
    /// That of a client that has sent nothing yet.
    pub(crate) fn new(settings: Rc<RedisListenerSettings>, spares: Rc<Spares>) -> Self {
        // With users, a client has no user before `State::arrive`.
        let users = settings.users.clone();
        let is_authenticated = settings.password.is_none() && users.is_none();
        let limits = RequestLimits {
            args_max: settings.args_max,
            bulk_bytes_max: settings.bulk_bytes_max.min(u32::MAX.into()) as u32,
            stream_bytes: settings.stream_bytes.min(u32::MAX.into()) as u32,
            authenticated: is_authenticated,
            ..RequestLimits::default()
        };
        Self {
            settings,
            limits,
            version: Version::Resp2,
            db: 0,
            primary: 0,
            is_authenticated,
            users,
            user: None,
            login: OWN_LOGIN,
            is_watched: false,
            is_rated: false,
            has_served_penalty: false,
            auth_failures: 0,
            order: Ordering::new(spares),
            hold: None,
            pins: None,
            parked: None,
            watched: None,
            is_held_whole: false,
            is_sharded: false,
            attempts: None,
            topology: 0,
            pin_asked: None,
            pin_result: None,
            is_room_refused: false,
            is_admitted: false,
            is_watch_broken: false,
            transaction: None,
            local_replies: None,
            changes_db: None,
            streaming: None,
            tunnel: None,
            subscriptions: None,
            tracking: None,
            caching: None,
            is_mid_frame: false,
            is_cut: false,
            is_ended: false,
            is_closing: false,
        }
    }

    /// The client has come: it is at once who needs no password.
    pub(crate) fn arrive(&mut self, io: &impl Io) {
        self.forget_user(io);
    }

    /// The lane that this client's stateless commands ride; where there are several shards, those without keys.
    #[inline]
    pub(crate) fn key(&self) -> LaneKey {
        LaneKey { shard: self.primary, login: self.login, db: self.db, version: self.version, purpose: Purpose::Data }
    }

    /// Another server may be the primary now. False if what is under way at the one that was it comes first.
    #[inline]
    pub(crate) fn follow_primary(&mut self, io: &impl Io) -> bool {
        let Some(primary) = io.primary().filter(|primary| *primary != self.primary) else { return true };
        let may_follow = self.is_quiet();
        if may_follow {
            self.primary = primary;
        }
        may_follow
    }

    /// Every request has been answered in full, and nothing is half said.
    pub(crate) fn is_quiet(&self) -> bool {
        self.order.is_quiet() && !self.is_mid_frame
    }

    #[inline]
    pub(crate) fn takes_commands(&self, io: &impl Io) -> bool {
        self.hold.is_none() && !self.is_closing && !self.is_cut && !self.has_enough(io)
    }

    /// So much is on its way that it must be answered or read first.
    #[inline]
    pub(crate) fn has_enough(&self, io: &impl Io) -> bool {
        // The rest of a command under way is no further one.
        (self.is_deep() && self.streaming.is_none())
            || self.has_enough_waiting()
            || io.is_congested()
            || io.is_pin_congested()
    }

    /// As many requests wait for replies as may.
    #[inline]
    pub(crate) fn is_deep(&self) -> bool {
        self.order.outstanding() >= u64::from(self.settings.pipeline_max)
    }

    #[inline]
    pub(crate) fn has_enough_waiting(&self) -> bool {
        self.order.waiting_bytes() as u64 >= self.settings.pipeline_bytes
    }

    /// The command at the front of the input is done with: what it waited for is not the next one's.
    #[inline]
    pub(crate) fn forget_wait(&mut self, io: &impl Io) {
        self.is_room_refused = false;
        self.is_admitted = false;
        self.is_rated = false;
        self.has_served_penalty = false;
        if let Some(Ok(())) = self.pin_result.take() {
            io.unpin(true);
        }
    }

    /// The command at the front of the input has waited for something that has come, or will not.
    #[inline]
    pub(crate) fn has_waited(&self) -> bool {
        self.is_room_refused || self.is_admitted || self.pin_result.is_some()
    }

    pub(crate) fn release_hold(&mut self, io: &impl Io) {
        let is_over = match self.hold {
            Some(Hold::Quiet) => self.is_quiet(),
            Some(Hold::Room) => io.full().is_none(),
            Some(Hold::Until(time)) => io.now() >= time,
            Some(Hold::Pin) | None => false,
        };
        if is_over {
            self.hold = None;
        }
    }

    /// Ends the session once all replies are out.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }
}
