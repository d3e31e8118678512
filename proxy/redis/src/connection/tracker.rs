//! A connection that tracks: its place in the tracker of its upstream, and its invalidations.

use std::{cell::RefCell, rc::Rc};

use super::Connection;
use weir_redis_session::{
    io::Track,
    pubsub::Name,
    tracking::{Notice, Scope},
};

use crate::tracker::Tracker;

/// The tracker of its upstream and its number there, while it tracks.
pub(super) type TrackerPlace = RefCell<Option<Box<(Rc<Tracker>, usize)>>>;

/// `$<length>\r\n` and the end of the line.
const KEY_HEAD_BYTES: usize = 16;

impl Connection {
    fn tracker(&self) -> Option<(Rc<Tracker>, usize)> {
        self.tracker.borrow().as_deref().cloned()
    }

    /// See [`Feeds::track`](weir_redis_session::io::Feeds::track).
    pub(super) fn begin_tracking(&self, login: u64, scope: &Scope) -> Track {
        if let Some((tracker, client)) = self.tracker().filter(|(tracker, _)| tracker.login() == login) {
            tracker.set_scope(client, scope.clone());
            return Track::Live;
        }
        self.end_tracking();
        let Some(client) = self.join_tracker(login, scope) else {
            return Track::Refused(weir_upstream::Refusal::Unreachable);
        };
        let begun = client.0.begin(client.1);
        if matches!(begun, Track::Refused(_)) {
            self.end_tracking();
        }
        begun
    }

    fn join_tracker(&self, login: u64, scope: &Scope) -> Option<(Rc<Tracker>, usize)> {
        let tracker = Tracker::of(&self.upstream.borrow(), login);
        let client = tracker.join(self.me.upgrade()?, scope.clone());
        *self.tracker.borrow_mut() = Some(Box::new((tracker.clone(), client)));
        Some((tracker, client))
    }

    /// See [`Feeds::untrack`](weir_redis_session::io::Feeds::untrack).
    pub(super) fn end_tracking(&self) {
        let place = self.tracker.borrow_mut().take();
        if let Some(place) = place {
            place.0.leave(place.1);
        }
    }

    /// The connection ends.
    pub(super) fn leave_tracking(&self) {
        self.end_tracking();
        self.count_tracking(false);
    }

    /// See [`Feeds::note_tracking`](weir_redis_session::io::Feeds::note_tracking).
    pub(super) fn count_tracking(&self, tracks: bool) {
        let before = self.is_tracking.replace(tracks);
        self.service.metrics.tracking.add(i64::from(tracks) - i64::from(before));
    }

    /// See [`Feeds::watch_keys`](weir_redis_session::io::Feeds::watch_keys).
    pub(super) fn watch(&self, keys: &[(Name, u16)], remembers: bool) -> bool {
        self.tracker().is_some_and(|(tracker, client)| tracker.watch_keys(client, keys, remembers))
    }

    /// See [`Feeds::forget_key`](weir_redis_session::io::Feeds::forget_key).
    pub(super) fn unwatch(&self, key: &[u8]) {
        if let Some((tracker, client)) = self.tracker() {
            tracker.forget(client, key);
        }
    }

    /// The listener has another upstream, or the client another login: what it has kept is of the one before.
    pub(super) fn move_tracking(&self) {
        if self.tracker.borrow().is_none() {
            return;
        }
        let (scope, login) = {
            let session = self.session.borrow();
            (session.tracking_scope(), session.login())
        };
        self.end_tracking();
        if let Some(scope) = scope
            && let Some((tracker, client)) = self.join_tracker(login, &scope)
        {
            tracker.follow(client);
        }
        self.on_all_changed();
    }

    /// Every change is heard of from now on, or this is why not.
    pub(crate) fn on_tracked(&self, refused: Option<&[u8]>) {
        self.notify_session(|session| session.on_tracked(refused, self));
    }

    /// Keys have changed that the client may have kept.
    #[inline]
    pub(crate) fn on_changed(&self, keys: &[&[u8]]) {
        self.push(wire_bytes(keys), |session| session.on_changed(keys, self));
    }

    /// All keys may have changed.
    pub(crate) fn on_all_changed(&self) {
        self.push(0, |session| session.on_all_changed(self));
    }

    /// A key that another client keeps has changed; this client gets the invalidation.
    pub(crate) fn on_notice(&self, notice: &Notice) {
        let keys: Option<Vec<&[u8]>> = notice.keys.as_ref().map(|keys| keys.iter().map(|key| &**key).collect());
        let coming = keys.as_deref().map_or(0, wire_bytes);
        self.push(coming, |session| session.on_notice(keys.as_deref(), self));
    }
}

/// About as many as a frame with these keys has.
fn wire_bytes(keys: &[&[u8]]) -> usize {
    keys.iter().map(|key| key.len() + KEY_HEAD_BYTES).sum()
}
