//! The lanes of a client's own: the one in use, one that is set aside, and one that was requested.

use std::{cell::RefCell, rc::Rc};

use weir_redis_session::lane::LaneKey;
use weir_upstream::Lane;

use super::Connection;
use crate::{lane::RespLane, service::RedisUpstream};

/// The lane of the client's own, and where it came from.
pub(super) struct Pinned {
    pub(super) lane: Rc<Lane<RespLane, Connection>>,
    pub(super) key: LaneKey,
    pub(super) upstream: Rc<RedisUpstream>,
    pub(super) is_blocking: bool,
}

/// The part of a connection that these lanes need, in a box: most connections never have one. A connection that had a lane keeps the
/// box, for it often needs one again.
#[derive(Default)]
pub(super) struct OwnLanes {
    pub(super) pinned: RefCell<Option<Pinned>>,
    /// The lane with the client's state, while a large command has another.
    pub(super) parked: RefCell<Option<Pinned>>,
    /// A requested lane that has not come.
    pub(super) asked: RefCell<Option<(LaneKey, bool, Rc<RedisUpstream>)>>,
}

impl OwnLanes {
    /// Whether that is true of the lane in use, or of the one that is set aside.
    pub(super) fn any(&self, is_it: impl Fn(&Pinned) -> bool) -> bool {
        [&self.pinned, &self.parked].into_iter().any(|lane| lane.borrow().as_ref().is_some_and(&is_it))
    }
}

impl Connection {
    pub(super) fn own_lanes(&self) -> &OwnLanes {
        self.own_lanes.get_or_init(Box::default)
    }

    /// Looks at the lane in use, if there is one.
    #[inline]
    pub(super) fn with_pinned<R>(&self, look: impl FnOnce(&Pinned) -> R) -> Option<R> {
        self.own_lanes.get()?.pinned.borrow().as_ref().map(look)
    }

    pub(super) fn take_pinned(&self) -> Option<Pinned> {
        self.own_lanes.get()?.pinned.take()
    }

    pub(super) fn take_parked(&self) -> Option<Pinned> {
        self.own_lanes.get()?.parked.take()
    }

    pub(super) fn is_parked(&self) -> bool {
        self.own_lanes.get().is_some_and(|own| own.parked.borrow().is_some())
    }

    /// It has a lane of its own, in use or set aside.
    pub(super) fn has_own_lane(&self) -> bool {
        self.own_lanes.get().is_some_and(|own| own.any(|_| true))
    }

    /// A lane was requested and has not come.
    pub(super) fn awaits_lane(&self) -> bool {
        self.own_lanes.get().is_some_and(|own| own.asked.borrow().is_some())
    }
}
