//! Asking again: when an origin failed, and nothing of an answer has gone to the client.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use weir_http_codec::{BodyLength, Fields, Known};
use weir_upstream::{Retry, Tried};

pub use crate::options::Class;
use crate::{
    asked::Asked,
    kept::Kept,
    limits::{RETRY_PAUSE, RETRY_PAUSE_MAX},
    options::RetrySettings,
    service::Service,
    upstream::HttpUpstream,
};

/// The attempts of one request.
pub(crate) struct Retries<'a> {
    settings: &'a RetrySettings,
    upstream: &'a Rc<HttpUpstream>,
    asked: &'a Asked,
    chance: u64,
    made: Cell<u32>,
    /// The endpoint that failed last.
    avoided: Cell<Option<usize>>,
    /// Endpoints that the request was for, and that gave no response.
    tried: RefCell<Tried>,
    /// It has left an endpoint that ended its connection without a response.
    has_moved: Cell<bool>,
    under_way: RefCell<Option<Retry>>,
    /// What was read of the body of the request.
    kept: Option<&'a RefCell<Kept>>,
}

impl<'a> Retries<'a> {
    pub(crate) fn new(
        settings: &'a RetrySettings,
        upstream: &'a Rc<HttpUpstream>,
        asked: &'a Asked,
        service: &Service,
        kept: Option<&'a RefCell<Kept>>,
    ) -> Self {
        let (made, avoided, under_way) = (Cell::new(0), Cell::new(None), RefCell::new(None));
        let (tried, has_moved) = (RefCell::default(), Cell::new(false));
        let chance = service.sessions.chance();
        Self { settings, upstream, asked, chance, made, avoided, tried, has_moved, under_way, kept }
    }

    /// The answer has begun: nothing is asked again.
    pub(crate) fn forget(&self) {
        if let Some(kept) = self.kept {
            kept.borrow_mut().release();
        }
    }

    /// Where the body of the request is kept, if it is.
    pub(crate) fn kept(&self) -> Option<&'a RefCell<Kept>> {
        self.kept
    }

    /// Nothing of the request is lost when it is sent again.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.asked.body == BodyLength::Exact(0) || self.kept.is_some_and(|kept| kept.borrow().is_all())
    }

    /// The endpoint that failed last.
    pub(crate) fn avoided(&self) -> Option<usize> {
        self.avoided.get()
    }

    /// The endpoints that the request was for, and that gave no response.
    pub(crate) fn tried(&self) -> Tried {
        self.tried.borrow().clone()
    }

    /// Endpoint number `number` ended a fresh connection without a response to a request that only reads: it goes to another
    /// endpoint, once. A request that ends servers must not end them all.
    pub(crate) fn moves(&self, number: usize) -> bool {
        // The first server may have acted on it.
        if !matches!(self.asked.method, "GET" | "HEAD" | "OPTIONS") {
            return false;
        }
        let is_another = self.tried.borrow_mut().failed(number, self.upstream.settings().endpoints.len());
        if !is_another || self.settings.attempts == 0 || self.has_moved.replace(true) {
            return false;
        }
        self.avoided.set(Some(number));
        self.upstream.goes_elsewhere(number, Class::Reset.name());
        true
    }

    /// How long one attempt may take, while it is not the last.
    pub(crate) fn try_timeout(&self) -> Option<Duration> {
        self.settings.try_timeout.filter(|_| self.may(Class::Timeout))
    }

    /// An answer with this status is not for the client: another origin is to be asked. One that says when to come again is.
    pub(crate) fn wants(&self, status: u16, fields: &Fields) -> bool {
        self.settings.takes(status) && self.may(Class::Status) && !fields.has(Known::RetryAfter)
    }

    /// Endpoint number `number` failed so: waits until it is time to ask again; false if that may not be.
    pub(crate) async fn again(&self, number: usize, class: Class) -> bool {
        if class.is_unseen() {
            let is_another = self.tried.borrow_mut().failed(number, self.upstream.settings().endpoints.len());
            if is_another && self.is_wanted(class) {
                self.avoided.set(Some(number));
                self.upstream.goes_elsewhere(number, class.name());
                return true;
            }
        }
        if !self.may(class) {
            return false;
        }
        let made = self.made.get() + 1;
        self.made.set(made);
        self.avoided.set(Some(number));
        // The retry before it is over first.
        self.under_way.take();
        *self.under_way.borrow_mut() = Some(self.upstream.retry(number, class.name()));
        // Any part of the whole pause: those that failed together do not come back together.
        let whole = (RETRY_PAUSE * (1 << (made - 1).min(8))).min(RETRY_PAUSE_MAX);
        weir_engine::sleep(whole.mul_f64(self.chance.rotate_left(7 * made) as f64 / u64::MAX as f64)).await;
        true
    }

    fn may(&self, class: Class) -> bool {
        self.is_wanted(class) && self.made.get() < self.settings.attempts && self.upstream.may_retry()
    }

    /// It may be asked again as far as the request and the settings are concerned.
    fn is_wanted(&self, class: Class) -> bool {
        let is_possible = match class {
            // Nothing of a body has been asked for.
            Class::ConnectFailure => true,
            Class::RefusedStream => self.is_repeatable(),
            Class::Reset | Class::Timeout | Class::Status => {
                self.is_repeatable() && (self.asked.is_idempotent || self.settings.non_idempotent)
            }
        };
        let is_wanted = class == Class::Status || self.settings.on.contains(&class);
        is_possible && is_wanted && self.settings.attempts > 0
    }
}
