//! The attempts of a request: a lane for each, until one has a response or none may follow.

use weir_http_codec::{BodyLength, RequestHead, encode};
use weir_listener::CloseReason;
use weir_upstream::{Link, LossCause, Refusal as LaneRefusal, SelectionCriteria};

use crate::{
    attempt::{Attempt, deadline_refusal},
    client::{AfterExchange, Client},
    failure::{AttemptFailure, AttemptOutcome, INSPECTED},
    fallback::Failure,
    filter::{AfterFailure, WholeResponse},
    options::RetryCause,
    origin::Http1Origin,
    refusal::Refusal,
    respond::{refuse_for, send_for, send_whole},
    stopwatch::Phase,
    tunnel,
    upstream::HttpLane,
    upstream_request::UpstreamRequest,
    wait::{WaitAborted, while_client_waits},
};

/// The reason why there is no lane for a request.
enum NoLane {
    /// The client does not wait for the response any more.
    ClientGone,
    /// The request has taken as long as it may; the endpoint that was waited for.
    Expired(Option<usize>),
    /// The body of the request was dropped for memory.
    Failed(AttemptFailure),
    /// The upstream has none; the endpoint that was tried last.
    Refused(LaneRefusal, Option<usize>),
}

/// The end of the attempts with one upstream.
pub(crate) enum DispatchEnd {
    /// The exchange is over.
    Over(AfterExchange),
    /// The filter chooses again.
    Next,
}

impl UpstreamRequest<'_> {
    /// Forwards the request to an origin, or refuses it.
    pub(crate) async fn run(&self, client: &mut impl Client, head: &RequestHead) -> DispatchEnd {
        let (mut is_repeated, mut wants_fresh) = (false, false);
        loop {
            let is_fresh = std::mem::take(&mut wants_fresh);
            self.request.enter(Phase::Queue);
            let mut lane = match self.acquire(client, is_fresh).await {
                Ok(lane) => lane,
                Err(none) => return self.without_lane(client, none),
            };
            self.request.enter(Phase::Upstream);
            if let Some(notes) = &self.request.notes {
                notes.note_try(self.routed.upstream.settings(), lane.number());
            }
            if let Some(filter_handle) = self.request.filter_handle.get() {
                filter_handle.with(|filter| filter.attempt_begins(lane.number()));
            }
            let mut attempt = Attempt::new(self, lane.number());
            let is_reused = lane.is_reused();
            let outcome = send(&mut attempt, client, &mut lane, head).await;
            if matches!(outcome, AttemptOutcome::Failed(AttemptFailure::NoResponse)) && self.may_repeat() {
                // The origin has probably closed the idle connection when the request was on its way. Not for ever: it may be this
                // request that ends it. If the origin is restarting, its other idle connections are closed too.
                if is_reused && !is_repeated {
                    self.routed.upstream.look_again(lane.number());
                    (is_repeated, wants_fresh) = (true, true);
                    continue;
                }
                // The kernel may have taken the connection for an origin that was about to end.
                if self.retries.moves_to_another(lane.number()) {
                    attempt.note(&outcome, lane.open_since());
                    lane.failed(LossCause::Closed);
                    continue;
                }
            }
            if attempt.is_uploaded()
                && let Some(mirror_copy) = self.mirror_copy.take()
            {
                mirror_copy.send(self.connection, self.request, self.routed);
            }
            attempt.note(&outcome, lane.open_since());
            let is_drained = matches!(outcome, AttemptOutcome::Failed(AttemptFailure::Drained));
            if let Some(class) = attempt.class(&outcome)
                && self.retries.prepare(lane.number(), class, is_drained).await
            {
                match outcome {
                    AttemptOutcome::Failed(AttemptFailure::Origin(_, cause)) => lane.failed(cause),
                    _ => lane.ends(),
                }
                continue;
            }
            if let Some(switched) = attempt.switched.take() {
                let upstream = &self.routed.upstream.settings().name;
                self.connection.record_response(self.request, 101, Some(attempt.sent), upstream, "ok");
                return DispatchEnd::Over(Box::pin(tunnel::run(client.tunnel_io(), self, lane, *switched)).await);
            }
            return self.settle(client, &attempt, lane, outcome);
        }
    }

    /// Ends the last attempt with this upstream.
    fn settle(
        &self,
        client: &mut impl Client,
        attempt: &Attempt<'_>,
        mut lane: HttpLane,
        outcome: AttemptOutcome,
    ) -> DispatchEnd {
        let upstream = &self.routed.upstream.settings().name;
        if let Some(refused) = self.refused(&outcome) {
            lane.ends();
            return DispatchEnd::Over(send_whole(client, self.request, refused, INSPECTED));
        }
        let (decision, reason) = match outcome {
            AttemptOutcome::Failed(failure) => self.fall_back(failure, lane.number()),
            _ => (AfterFailure::Respond, ""),
        };
        let sent = Some(attempt.sent);
        DispatchEnd::Over(match (attempt.after(lane, outcome), decision) {
            (Ok(after), _) => after,
            (Err(_), AfterFailure::Next) => return DispatchEnd::Next,
            (Err(_), AfterFailure::Refuse(whole)) => send_for(client, self.request, whole, reason, sent, upstream),
            (Err(refusal), AfterFailure::Respond) => refuse_for(client, self.request, refusal, sent, upstream),
        })
    }

    /// The request may be sent again on another connection after one that said nothing.
    fn may_repeat(&self) -> bool {
        self.request.is_idempotent && self.retries.is_repeatable()
    }

    /// The response that an inspection refuses the request with, if the client has nothing yet.
    fn refused(&self, outcome: &AttemptOutcome) -> Option<WholeResponse> {
        let inspection =
            self.inspection.filter(|_| matches!(outcome, AttemptOutcome::Failed(AttemptFailure::Inspected)))?;
        inspection.borrow_mut().refused()
    }

    /// A lane for the request. An endpoint that cannot be reached is followed by another, until the request ends.
    async fn acquire(&self, client: &mut impl Client, mut is_fresh: bool) -> Result<HttpLane, NoLane> {
        loop {
            let (avoid, tried) = (self.retries.avoided(), self.retries.tried());
            let is_fresh = std::mem::take(&mut is_fresh);
            let mut acquiring = self.routed.upstream.acquire(SelectionCriteria {
                avoid,
                tried,
                is_fresh,
                hash: self.affinity,
                only: self.routed.endpoint,
                ..SelectionCriteria::default()
            });
            let (refusal, number) = match while_client_waits(client, self.ends, &mut acquiring).await {
                Ok(Ok(lane)) => {
                    lane.charge_to(self.connection.handle.account().clone());
                    return Ok(lane);
                }
                Ok(Err(refused)) => refused,
                Err(aborted) => {
                    let number = acquiring.number();
                    acquiring.leave();
                    return Err(self.wait_aborted(aborted, number));
                }
            };
            let Some(unreachable) = number.filter(|_| refusal == LaneRefusal::Unreachable) else {
                return Err(NoLane::Refused(refusal, number));
            };
            match while_client_waits(
                client,
                self.ends,
                self.retries.prepare(unreachable, RetryCause::ConnectFailure, false),
            )
            .await
            {
                Ok(true) => {}
                Ok(false) => return Err(NoLane::Refused(refusal, number)),
                Err(aborted) => return Err(self.wait_aborted(aborted, number)),
            }
        }
    }

    fn wait_aborted(&self, aborted: WaitAborted, number: Option<usize>) -> NoLane {
        match aborted {
            WaitAborted::ClientGone => NoLane::ClientGone,
            WaitAborted::Body(broken) => NoLane::Failed(self.connection.body_failure(broken)),
            WaitAborted::TimedOut => NoLane::Expired(number),
        }
    }

    /// Ends a request that got no lane.
    fn without_lane(&self, client: &mut impl Client, none: NoLane) -> DispatchEnd {
        let Self { request, routed, connection, .. } = *self;
        let settings = routed.upstream.settings();
        let (refusal, number, cause) = match none {
            NoLane::Failed(AttemptFailure::Declined(refusal)) => (refusal, None, None),
            NoLane::Failed(_) | NoLane::ClientGone => {
                connection.record_disconnect(request, None, &settings.name);
                return DispatchEnd::Over(AfterExchange::Close(CloseReason::ClientReset));
            }
            NoLane::Expired(number) => (deadline_refusal(request), number, Some(RetryCause::Timeout)),
            NoLane::Refused(refusal, number) => (Refusal::no_lane(refusal), number, Some(RetryCause::ConnectFailure)),
        };
        if let (Some(notes), Some(number)) = (&request.notes, number) {
            notes.note_endpoint(settings, number);
        }
        let decision = cause.map_or(AfterFailure::Respond, |cause| {
            let (reason, is_last) = (refusal.reason, cause == RetryCause::Timeout);
            self.consult(Failure { cause, reason, response: None, endpoint: number, is_last })
        });
        if matches!(decision, AfterFailure::Next) {
            return DispatchEnd::Next;
        }
        if refusal.status == 503 && cause.is_some() {
            connection.service.metrics.shed(refusal.reason);
        }
        DispatchEnd::Over(match decision {
            AfterFailure::Refuse(whole) => send_for(client, request, whole, refusal.reason, None, &settings.name),
            AfterFailure::Respond | AfterFailure::Next => refuse_for(client, request, refusal, None, &settings.name),
        })
    }
}

/// Sends the request on a lane, and passes on what comes back.
async fn send<C: Client>(
    attempt: &mut Attempt<'_>,
    client: &mut C,
    lane: &mut HttpLane,
    head: &RequestHead,
) -> AttemptOutcome {
    let UpstreamRequest { request, routed, .. } = attempt.upstream_request;
    let host = routed.host.as_deref().unwrap_or(head.authority());
    match lane.link() {
        Link::Connection(stream) => {
            stream.output.with(|into| encode::request(head, host, request.body, into));
            // Lent: a future stores an argument twice, once as it was passed.
            let mut origin = Http1Origin::new(stream);
            attempt.run(client, &mut origin).await
        }
        Link::Carrier(carrier) => match carrier.send_request(head, host, request.body == BodyLength::Exact(0)) {
            // Every connection pays for the size of this future, and few for this branch.
            Ok(mut origin) => Box::pin(async move { attempt.run(client, &mut origin).await }).await,
            Err(failure) => AttemptOutcome::Failed(failure),
        },
    }
}
