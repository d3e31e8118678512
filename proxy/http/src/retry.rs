//! Retries: after an origin failed, and before the response to the client has begun.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use weir_http_codec::{BodyLength, Fields, Known};
use weir_upstream::{Retry, TriedEndpoints};

pub use crate::options::RetryCause;
use crate::{
    buffered_body::BufferedBody,
    limits::{RETRY_PAUSE, RETRY_PAUSE_MAX},
    options::RetrySettings,
    request_context::RequestContext,
    service::Service,
    upstream::HttpUpstream,
};

/// The attempts of one request.
pub(crate) struct Retries<'a> {
    settings: &'a RetrySettings,
    upstream: &'a Rc<HttpUpstream>,
    request: &'a RequestContext,
    chance: u64,
    made: Cell<u32>,
    /// The endpoint that failed last.
    avoided: Cell<Option<usize>>,
    /// Endpoints that the request was for, and that gave no response.
    tried: RefCell<TriedEndpoints>,
    /// It has left an endpoint that ended its connection without a response.
    has_moved: Cell<bool>,
    /// It has left a connection that drained.
    has_left: Cell<bool>,
    under_way: RefCell<Option<Retry>>,
    /// The buffered part of the request body.
    buffered: Option<&'a RefCell<BufferedBody>>,
    /// The filter decides on failures of an origin that has the request.
    has_fallback: bool,
}

impl<'a> Retries<'a> {
    pub(crate) fn new(
        settings: &'a RetrySettings,
        upstream: &'a Rc<HttpUpstream>,
        request: &'a RequestContext,
        service: &Service,
        buffered: Option<&'a RefCell<BufferedBody>>,
    ) -> Self {
        let (made, avoided, under_way) = (Cell::new(0), Cell::new(None), RefCell::new(None));
        let (tried, has_moved, has_left) = (RefCell::default(), Cell::new(false), Cell::new(false));
        let chance = service.sessions.chance();
        let has_fallback = request.filter_handle.get().is_some_and(|handle| handle.choices.most.get() > 1);
        Self {
            settings,
            upstream,
            request,
            chance,
            made,
            avoided,
            tried,
            has_moved,
            has_left,
            under_way,
            buffered,
            has_fallback,
        }
    }

    /// The response has begun: no retry follows.
    pub(crate) fn release_body(&self) {
        if let Some(buffered) = self.buffered {
            buffered.borrow_mut().release();
        }
    }

    /// The buffer of the request body, if there is one.
    pub(crate) fn buffered(&self) -> Option<&'a RefCell<BufferedBody>> {
        self.buffered
    }

    /// Nothing of the request is lost when it is sent again.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.request.body == BodyLength::Exact(0) || self.buffered.is_some_and(|buffered| buffered.borrow().is_all())
    }

    /// The endpoint that failed last.
    pub(crate) fn avoided(&self) -> Option<usize> {
        self.avoided.get()
    }

    /// The endpoints that the request was for, and that gave no response.
    pub(crate) fn tried(&self) -> TriedEndpoints {
        self.tried.borrow().clone()
    }

    /// Endpoint number `number` ended a fresh connection without a response to a request that only reads: it goes to another
    /// endpoint, once. A request that ends servers must not end them all.
    pub(crate) fn moves_to_another(&self, number: usize) -> bool {
        // The first server may have acted on it.
        if !matches!(self.request.method, "GET" | "HEAD" | "OPTIONS") {
            return false;
        }
        let is_another = self.tried.borrow_mut().failed(number, self.upstream.settings().endpoints.len());
        if !is_another || self.settings.attempts == 0 || self.has_moved.replace(true) {
            return false;
        }
        self.avoided.set(Some(number));
        self.upstream.goes_elsewhere(number, RetryCause::Reset.name());
        true
    }

    /// Timeout of one attempt that is not the last.
    pub(crate) fn try_timeout(&self) -> Option<Duration> {
        self.settings.try_timeout.filter(|_| self.may(RetryCause::Timeout))
    }

    /// A response with this status is not for the client: a retry follows. A Retry-After makes it one for the client.
    pub(crate) fn retries_status(&self, status: u16, fields: &Fields) -> bool {
        self.settings.retries_on(status) && self.may(RetryCause::Status) && !fields.has(Known::RetryAfter)
    }

    /// Endpoint number `number` failed so, and if `is_drained`, only its connection: waits for the pause before a retry; false if
    /// none may follow.
    pub(crate) async fn prepare(&self, number: usize, class: RetryCause, is_drained: bool) -> bool {
        if class.is_not_processed() {
            let is_another = self.tried.borrow_mut().failed(number, self.upstream.settings().endpoints.len());
            // Many streams leave such a connection together, and none has loaded the endpoint. Once: it may drain every connection.
            let is_free = is_another || (is_drained && !self.has_left.replace(true));
            if is_free && self.is_wanted(class) {
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

    fn may(&self, class: RetryCause) -> bool {
        self.is_wanted(class) && self.made.get() < self.settings.attempts && self.upstream.may_retry()
    }

    /// The request and the settings allow a retry.
    fn is_wanted(&self, class: RetryCause) -> bool {
        let is_possible = match class {
            // No origin has received a part of the body.
            RetryCause::ConnectFailure => true,
            RetryCause::RefusedStream => self.is_repeatable(),
            RetryCause::Reset | RetryCause::Timeout | RetryCause::Status if self.has_fallback => false,
            RetryCause::Reset | RetryCause::Timeout | RetryCause::Status => {
                self.is_repeatable() && (self.request.is_idempotent || self.settings.non_idempotent)
            }
        };
        let is_wanted = class == RetryCause::Status || self.settings.on.contains(&class);
        is_possible && is_wanted && self.settings.attempts > 0
    }
}
