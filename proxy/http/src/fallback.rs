//! Fallback: after a failed attempt the filter of the route may choose again.

use std::rc::Rc;

use weir_http_codec::{BodyLength, Fields, RequestHead, ResponseHead};
use weir_upstream::LossCause;

use crate::{
    attempt::deadline_refusal,
    destination::UpstreamRoute,
    failure::AttemptFailure,
    filter::{ATTEMPTS_MAX, AfterFailure, FailedAttempt},
    options::RetryCause,
    refusal::Refusal,
    request_context::RequestContext,
    upgrade::RequestedUpgrade,
    upstream::HttpUpstream,
    upstream_request::UpstreamRequest,
};

/// A request as it was before the first choice of its filter.
pub(crate) struct Original<'r> {
    head: RequestHead,
    host: Option<Vec<u8>>,
    upstream: &'r Rc<HttpUpstream>,
    body: BodyLength,
    /// All of the body had been seen.
    pub(crate) is_whole: bool,
}

impl<'r> Original<'r> {
    /// The request that is about to be chosen for, if its filter may choose more than once.
    pub(crate) fn keep(
        request: &RequestContext,
        head: &RequestHead,
        routed: &UpstreamRoute<'r>,
        is_whole: bool,
    ) -> Option<Box<Self>> {
        let filter_handle = request.filter_handle.get()?;
        let most = filter_handle.with(|filter| filter.attempts_max()).min(ATTEMPTS_MAX);
        filter_handle.choices.most.set(most);
        (most > 1).then(|| {
            let (head, host) = (head.clone(), routed.host.clone());
            Box::new(Self { head, host, upstream: routed.upstream, body: request.body, is_whole })
        })
    }

    /// Makes the request what it was.
    pub(crate) fn restore(&self, request: &mut RequestContext, head: &mut RequestHead, routed: &mut UpstreamRoute<'r>) {
        head.clone_from(&self.head);
        routed.host.clone_from(&self.host);
        (routed.upstream, routed.endpoint, request.body) = (self.upstream, None, self.body);
    }
}

/// The facts of a failure for the filter.
pub(crate) struct Failure<'f> {
    pub(crate) cause: RetryCause,
    pub(crate) reason: &'static str,
    pub(crate) response: Option<(u16, &'f Fields)>,
    /// The endpoint that failed, if it is known.
    pub(crate) endpoint: Option<usize>,
    /// The exchange has no time left.
    pub(crate) is_last: bool,
}

impl UpstreamRequest<'_> {
    /// The response with this head is not for the client: the filter has decided so.
    pub(crate) fn leaves(&self, endpoint: usize, head: &ResponseHead) -> bool {
        if head.status() < 400 {
            return false;
        }
        let Some(filter_handle) = self.request.filter_handle.get() else { return false };
        let response = Some((head.status(), &head.fields));
        let (cause, reason) = (RetryCause::Status, ORIGIN_STATUS);
        match self.consult(Failure { cause, reason, response, endpoint: Some(endpoint), is_last: false }) {
            AfterFailure::Respond => false,
            decision => {
                *filter_handle.choices.decision.borrow_mut() = Some(decision);
                true
            }
        }
    }

    /// The decision of the filter on a failed attempt, and the word for its end.
    pub(crate) fn fall_back(&self, failure: AttemptFailure, endpoint: usize) -> (AfterFailure, &'static str) {
        let Some(filter_handle) = self.request.filter_handle.get() else { return (AfterFailure::Respond, "") };
        let (cause, reason) = match failure {
            AttemptFailure::Left(_) => {
                let decision = filter_handle.choices.decision.take();
                return (decision.unwrap_or(AfterFailure::Respond), ORIGIN_STATUS);
            }
            AttemptFailure::NoResponse => (RetryCause::Reset, Refusal::ORIGIN_CLOSED.reason),
            AttemptFailure::NotProcessed | AttemptFailure::Drained => {
                (RetryCause::RefusedStream, Refusal::ORIGIN_CLOSED.reason)
            }
            AttemptFailure::Origin(refusal, LossCause::Timeout) => (RetryCause::Timeout, refusal.reason),
            AttemptFailure::Origin(refusal, _) => (RetryCause::Reset, refusal.reason),
            AttemptFailure::Connection => (RetryCause::Reset, Refusal::ORIGIN_MALFORMED.reason),
            AttemptFailure::DeadlineExceeded => (RetryCause::Timeout, deadline_refusal(self.request).reason),
            AttemptFailure::Status(_)
            | AttemptFailure::Inspected
            | AttemptFailure::Declined(_)
            | AttemptFailure::Client(_)
            | AttemptFailure::ClientStalled
            | AttemptFailure::ClientGone => return (AfterFailure::Respond, ""),
        };
        let is_last = failure == AttemptFailure::DeadlineExceeded;
        let failure = Failure { cause, reason, response: None, endpoint: Some(endpoint), is_last };
        (self.consult(failure), reason)
    }

    /// Lets the filter decide on a failed attempt. With another one to follow the retry budget counts it.
    pub(crate) fn consult(&self, failure: Failure<'_>) -> AfterFailure {
        let UpstreamRequest { request, routed, .. } = *self;
        let Failure { cause, reason, response, endpoint, is_last } = failure;
        let Some(filter_handle) = request.filter_handle.get() else { return AfterFailure::Respond };
        if request.is_call || request.upgrade != RequestedUpgrade::None {
            return AfterFailure::Respond;
        }
        let choices = &filter_handle.choices;
        let is_free = cause.is_not_processed();
        // The budget still counts the attempt that has just failed, if that was a retry.
        choices.retry.take();
        let may_go_on = !is_last
            && choices.made.get() < choices.most.get()
            && (cause == RetryCause::ConnectFailure || self.retries.is_repeatable())
            && (is_free || routed.upstream.may_retry());
        let failed = FailedAttempt {
            number: choices.made.get(),
            upstream: &routed.upstream.settings().name,
            cause,
            reason,
            status: response.map_or(0, |(status, _)| status),
            fields: response.map(|(_, fields)| fields),
            may_go_on,
        };
        let after = filter_handle.with(|filter| filter.attempt_failed(&failed));
        match (after, endpoint) {
            (AfterFailure::Next, _) if !may_go_on => return AfterFailure::Respond,
            (AfterFailure::Next, Some(number)) if is_free => routed.upstream.goes_elsewhere(number, cause.name()),
            (AfterFailure::Next, Some(number)) => {
                *choices.retry.borrow_mut() = Some(routed.upstream.retry(number, cause.name()));
            }
            (AfterFailure::Next, None) => {}
            (after, _) => return after,
        }
        AfterFailure::Next
    }
}

/// The reason of a response with a status that is a failure.
const ORIGIN_STATUS: &str = "origin_status";
