//! A connection as a subscriber: its place in the hub of its upstream, and what it may have unread.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use weir_base::{
    error::Culprit,
    time::{Time, turn},
    violation::Violation,
};
use weir_listener::Session as _;

use super::{CHARGED_BYTES_MIN, Connection, EVICTED};
use crate::hub::Hub;

/// Output of a subscriber, in bytes, past which it is evicted (Redis `client-output-buffer-limit pubsub`, hard limit).
pub(super) const OUTPUT_MAX: u64 = 32 << 20;
/// The same, past which it has [`SOFT_TIME`] to read (the soft limit of the same setting).
const OUTPUT_SOFT: u64 = 8 << 20;
/// See [`OUTPUT_SOFT`].
const SOFT_TIME: Duration = Duration::from_secs(60);

const _: () = assert!(OUTPUT_SOFT < OUTPUT_MAX);

/// The part of a connection that subscriptions need, in a box from the first of them on.
#[derive(Default)]
pub(super) struct Subscriber {
    /// The hub of its upstream and its number there, from its first subscription on.
    place: RefCell<Option<(Rc<Hub>, usize)>>,
    count: Cell<usize>,
    /// Since when its output is past the soft limit.
    slow_since: Cell<Option<Time>>,
}

impl Connection {
    fn subscriber(&self) -> &Subscriber {
        self.subscriber.get_or_init(Box::default)
    }

    /// The hub that it has joined, and the number of this client in it.
    pub(super) fn hub(&self) -> Option<(Rc<Hub>, usize)> {
        self.subscriber.get()?.place.borrow().clone()
    }

    /// As [`Connection::hub`]; joins the hub of `login` if it has joined none. The login cannot change while subscribed.
    pub(super) fn join_hub(&self, login: u64) -> Option<(Rc<Hub>, usize)> {
        let mut place = self.subscriber().place.borrow_mut();
        if place.as_ref().is_none_or(|(hub, _)| hub.login() != login) {
            if let Some((hub, client)) = place.take() {
                hub.leave(client);
            }
            let hub = Hub::of(&self.upstream.borrow(), login);
            let client = hub.join(self.me.upgrade()?);
            *place = Some((hub, client));
        }
        place.clone()
    }

    pub(super) fn leave_hub(&self) {
        let place = self.subscriber.get().and_then(|subscriber| subscriber.place.take());
        if let Some((hub, client)) = place {
            hub.leave(client);
        }
    }

    /// The connection ends.
    pub(super) fn leave_subscriptions(&self) {
        self.leave_hub();
        self.count_subscriptions(0);
    }

    pub(super) fn count_subscriptions(&self, count: usize) {
        if count == 0 && self.subscriber.get().is_none() {
            return;
        }
        let before = self.subscriber().count.replace(count);
        let metrics = &self.service.metrics;
        metrics.subscriptions.add(count as i64 - before as i64);
        metrics.subscribers.add(i64::from(count > 0) - i64::from(before > 0));
        self.handle.entry().subscriptions.store(count as u32, std::sync::atomic::Ordering::Relaxed);
    }

    /// The listener has another upstream: what the client is subscribed to is subscribed there.
    pub(super) fn move_subscriptions(&self) {
        if self.hub().is_none() {
            return;
        }
        let (held, login) = {
            let session = self.session.borrow();
            (session.subscriptions(), session.login())
        };
        self.leave_hub();
        if !held.is_empty()
            && let Some((hub, client)) = self.join_hub(login)
        {
            hub.adopt(client, &held);
        }
    }

    /// A message.
    #[inline]
    pub(crate) fn on_message(&self, frame: &[u8]) {
        self.push(frame.len(), |session| {
            session.on_push(frame, self);
            self.service.metrics.messages.inc();
        });
    }

    /// Sends a push to the client, about `coming` bytes, and looks whether it reads such things.
    #[inline]
    pub(super) fn push(&self, coming: usize, tell: impl FnOnce(&mut weir_redis_session::session::Session)) {
        if self.handle.ending().is_some() {
            return;
        }
        self.guarded(|| {
            let unread = self.output.buffered() + self.session.borrow().kept_pushes() + coming;
            if unread >= CHARGED_BYTES_MIN {
                // Before it is copied: thousands of subscribers get the same large message in one turn.
                self.charge(coming);
                self.check_unread(unread as u64);
                if self.handle.ending().is_some() {
                    return;
                }
            }
            tell(&mut self.session.borrow_mut());
        });
    }

    /// Some of its output has left.
    #[inline]
    pub(super) fn note_read(&self) {
        if let Some(subscriber) = self.subscriber.get()
            && subscriber.slow_since.get().is_some()
            && self.output.buffered() as u64 <= OUTPUT_SOFT
        {
            subscriber.slow_since.set(None);
        }
    }

    /// Evicts a subscriber that does not read: its neighbours and their lane go on.
    fn check_unread(&self, unread: u64) {
        let listener = self.service.sessions.settings();
        // While memory is short a client's unread output is limited to the mark at which the gateway stops reading from it.
        let cap = if self.is_over_budget.get() { listener.output_high_water } else { listener.output_hard_cap };
        let limit = cap.min(OUTPUT_MAX);
        if unread > limit {
            return self.evict_subscriber("a subscriber reads more slowly than it is sent to", unread, limit);
        }
        if unread <= OUTPUT_SOFT {
            self.subscriber.get().inspect(|subscriber| subscriber.slow_since.set(None));
            return;
        }
        let slow_since = &self.subscriber().slow_since;
        let since = slow_since.get().unwrap_or(turn::now());
        slow_since.set(Some(since));
        if turn::now().since(since) >= SOFT_TIME {
            self.evict_subscriber("a subscriber has been behind for a minute", unread, OUTPUT_SOFT);
        }
    }

    pub(super) fn evict_subscriber(&self, text: &'static str, unread: u64, limit: u64) {
        if self.handle.ending().is_none() {
            self.violated(&Violation::limit("slow_subscriber", Culprit::Client, text, unread, limit));
            self.end(EVICTED);
        }
    }

    /// A message is larger than what it may have unread.
    pub(crate) fn on_message_too_large(&self) {
        self.guarded(|| {
            self.evict_subscriber("a message larger than a subscriber may have unread", OUTPUT_MAX + 1, OUTPUT_MAX)
        });
    }

    pub(crate) fn on_subscribed(&self) {
        self.notify_session(|session| session.on_subscribed(self));
    }

    pub(crate) fn on_unsubscribed(&self) {
        self.notify_session(|session| session.on_unsubscribed(self));
    }

    pub(crate) fn on_subscription_refused(&self, line: &[u8]) {
        self.notify_session(|session| session.on_subscription_refused(line, self));
    }

    pub(crate) fn on_published(&self, reply: Option<&[u8]>) {
        self.notify_session(|session| session.on_published(reply, self));
    }

    pub(crate) fn on_subscription_lost(&self) {
        self.notify_session(|session| {
            session.on_subscription_lost(self);
            true
        });
    }

    pub(super) fn notify_session(&self, tell: impl FnOnce(&mut weir_redis_session::session::Session) -> bool) {
        self.guarded(|| {
            if tell(&mut self.session.borrow_mut()) {
                self.wake();
            }
        });
    }
}
