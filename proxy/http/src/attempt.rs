//! One attempt at a request: both directions at once, and the meaning of their end.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use weir_base::{
    error::Culprit,
    time::{Time, turn},
};
use weir_engine::Deadline;
use weir_http_codec::BodyLength;
use weir_listener::CloseReason;
use weir_upstream::{ExchangeOutcome, LossCause};

use crate::{
    body::{BodyError, RequestBody, Sink},
    client::{AfterExchange, Client, DisconnectWatch, ExchangeIo, ResponseSink},
    connection::Connection,
    endpoint_responses,
    failure::{AttemptFailure, AttemptOutcome, EXPIRED, ResponseStart},
    filter::BrokenEnd,
    grpc,
    http1_body::Framing,
    mirror::MirrorCopy,
    options::RetryCause,
    origin::{AttemptContext, Download, Origin},
    refusal::Refusal,
    remainder::{ClientSink, Remainder},
    request_context::RequestContext,
    response_class::ResponseClass,
    response_relay::ResponseRelay,
    routes::Action,
    settings::HttpListenerSettings,
    upgrade::{AcceptedUpgrade, RequestedUpgrade},
    upload::{LimitedSink, UploadLimits, relay_paced},
    upstream::HttpLane,
    upstream_request::UpstreamRequest,
};

/// A deadline that passes sooner after the end of a request says nothing about the origin and the connection to it.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// One attempt at a request, on one lane.
pub(crate) struct Attempt<'a> {
    pub(crate) upstream_request: &'a UpstreamRequest<'a>,
    /// The number of the endpoint.
    endpoint: usize,
    mirror_copy: Option<Rc<MirrorCopy>>,
    pub(crate) sent: Time,
    /// The request has been sent to its end.
    is_uploaded: Cell<bool>,
    /// The origin has agreed to a tunnel.
    pub(crate) switched: Option<Box<AcceptedUpgrade>>,
    /// Start of the response, and its status.
    response_start: Cell<Option<ResponseStart>>,
    /// The response is one of gRPC.
    is_grpc: Cell<bool>,
}

impl<'a> Attempt<'a> {
    /// An attempt with endpoint number `endpoint`.
    pub(crate) fn new(upstream_request: &'a UpstreamRequest<'a>, endpoint: usize) -> Self {
        Self {
            upstream_request,
            endpoint,
            mirror_copy: upstream_request.mirror_copy.borrow().clone(),
            sent: turn::now(),
            is_uploaded: Cell::new(upstream_request.request.body == BodyLength::Exact(0)),
            switched: None,
            response_start: Cell::new(None),
            is_grpc: Cell::new(false),
        }
    }

    /// Relays both directions, until the response is over or one of them breaks.
    pub(crate) async fn run<C: Client>(&mut self, client: &mut C, origin: &mut impl Origin) -> AttemptOutcome {
        let UpstreamRequest { connection, request, .. } = *self.upstream_request;
        let ExchangeIo { mut body, response_sink, watch, deadline, origin_deadline } = client.exchange_io(request);
        let remainder = Remainder::new(connection, request, &self.is_uploaded);
        let response_sink = ClientSink { sink: response_sink, remainder: &remainder };
        let (upload, download) = origin.split(AttemptContext {
            metrics: &connection.service.metrics,
            deadline,
            origin_deadline,
            framing: Framing::of(request.body, true, true),
            response_idle_timeout: request.pause_max(),
        });
        let all = self.upstream_request.ends.map(deadline_at);
        let poll_abort = |context: &mut Context<'_>| {
            if C::poll_ended(connection, context) {
                return Poll::Ready(AttemptOutcome::Failed(AttemptFailure::ClientGone));
            }
            match &all {
                Some(all) => {
                    all.poll_expired(context).map(|()| AttemptOutcome::Failed(AttemptFailure::DeadlineExceeded))
                }
                None => Poll::Pending,
            }
        };
        let mut relay = ResponseRelay {
            upstream_request: self.upstream_request,
            endpoint: self.endpoint,
            response_sink,
            remainder: &remainder,
            origin: download,
            is_uploaded: &self.is_uploaded,
            response_start: &self.response_start,
            is_grpc: &self.is_grpc,
            switched: None,
            taps: None,
            keeps_client: false,
        };
        match self.is_uploaded.get() {
            true => origin_deadline.set(turn::now().saturating_add(self.response_timeout())),
            false => origin_deadline.clear(),
        }
        request.note_sent(self.is_uploaded.get().then(turn::now));
        let outcome = {
            let mut download = pin!(relay.run());
            let early = match self.is_uploaded.get() {
                true => None,
                false => self.upload(&mut body, upload, &watch, download.as_mut(), &poll_abort).await,
            };
            match early {
                Some(outcome) => outcome,
                None => {
                    if self.response_start.get().is_none() {
                        self.sent = turn::now();
                        request.note_sent(Some(self.sent));
                        origin_deadline.set(turn::now().saturating_add(self.response_timeout()));
                    }
                    relay_response(connection, (&mut body, &remainder), download, &poll_abort).await
                }
            }
        };
        self.switched = relay.switched.take();
        match outcome {
            AttemptOutcome::Failed(failure) if self.response_start.get().is_some() => {
                broken_off(connection, failure, &mut relay).await
            }
            outcome => outcome,
        }
    }

    /// Sends the body of the request, and passes on meanwhile what comes back; `None`: the body is sent, or is not taken any more.
    async fn upload(
        &self,
        body: &mut impl RequestBody,
        upload: impl Sink,
        watch: &impl DisconnectWatch,
        mut download: Pin<&mut impl Future<Output = AttemptOutcome>>,
        poll_abort: &impl Fn(&mut Context<'_>) -> Poll<AttemptOutcome>,
    ) -> Option<AttemptOutcome> {
        let UpstreamRequest { connection, settings, request, routed, identity_fields, inspection, .. } =
            *self.upstream_request;
        let room = routed.body_bytes_max(settings, request);
        let buffered = self.upstream_request.retries.buffered();
        let limits = UploadLimits {
            room,
            dropped: identity_fields,
            copy: self.mirror_copy.as_ref().map(|one| &one.body),
            buffered,
            inspection,
        };
        let mut sink = LimitedSink::new(upload, limits);
        // A part of it was read before, or it is over before it began.
        let is_begun = buffered.is_some_and(|buffered| buffered.borrow().is_begun()) || body.is_done();
        let rate = if request.is_call { 0 } else { routed.body_rate_min(settings) };
        let outcome = {
            let mut upload = pin!(async {
                if is_begun {
                    sink.send_buffered(body).await?;
                }
                relay_paced(body, &mut sink, rate, || false).await
            });
            let mut is_over = false;
            poll_fn(|context| {
                if let Poll::Ready(outcome) = poll_abort(context) {
                    return Poll::Ready(Some(outcome));
                }
                if !is_over && let Poll::Ready(sent) = upload.as_mut().poll(context) {
                    is_over = true;
                    match sent {
                        Ok(()) => self.is_uploaded.set(true),
                        // The origin may have said why before it stopped reading.
                        Err(BodyError::ReceiverGone | BodyError::ReceiverStalled) => {}
                        Err(broken) => {
                            return Poll::Ready(Some(AttemptOutcome::Failed(connection.body_failure(broken))));
                        }
                    }
                }
                match download.as_mut().poll(context) {
                    Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                    Poll::Pending if is_over => Poll::Ready(None),
                    // A gateway that does not read the upload cannot see its end.
                    Poll::Pending => watch
                        .poll_disconnected(context)
                        .map(|()| Some(AttemptOutcome::Failed(AttemptFailure::ClientGone))),
                }
            })
            .await
        };
        request.note_body(room - sink.room);
        outcome
    }

    /// The request has been sent to its end.
    pub(crate) fn is_uploaded(&self) -> bool {
        self.is_uploaded.get()
    }

    fn response_timeout(&self) -> Duration {
        // The response to a gRPC call may begin with its first message, and the call has a deadline of its own.
        let usual = if self.upstream_request.request.is_call {
            self.upstream_request.settings.grpc_idle_timeout
        } else {
            self.upstream_request.settings.response_timeout
        };
        let all = self.upstream_request.routed.action.response_timeout.unwrap_or(usual);
        let first_byte = self.upstream_request.request.deadlines().first_byte;
        let shorter = [self.upstream_request.retries.try_timeout(), first_byte];
        shorter.into_iter().flatten().fold(all, Duration::min)
    }

    /// The origin received the whole request, and has been silent for long enough to be suspected.
    fn was_silent(&self) -> bool {
        self.is_uploaded.get() && self.response_start.get().is_none() && turn::now().since(self.sent) >= SILENCE_MIN
    }

    /// Reports the outcome to the endpoint, on a connection that is open since `opened`, and the start of the response to the access log.
    pub(crate) fn note(&self, outcome: &AttemptOutcome, opened: Time) {
        let (number, upstream) = (self.endpoint, self.upstream_request.routed.upstream);
        if let Some(notes) = &self.upstream_request.request.notes {
            notes.response_began.set(self.response_start.get().map(|response_start| response_start.at));
        }
        let took = self.response_start.get().map(|response_start| response_start.at.since(self.sent));
        match outcome {
            AttemptOutcome::Responded { origin_status: status, .. } => {
                let request = self.upstream_request.request;
                let class = ResponseClass::of_status(request.status_of_call(*status));
                endpoint_responses::count(upstream, number, class, took);
                let said = match request.grpc_status.get() {
                    // The client's deadline, as the origin reports it: the call failed, and the endpoint may be well.
                    Some(grpc::DEADLINE_EXCEEDED) if request.call_timeout.is_some() => *status,
                    Some(said) => grpc::http_status(said),
                    None => *status,
                };
                endpoint_responses::judge(upstream, number, said, took);
            }
            AttemptOutcome::Failed(AttemptFailure::Status(status) | AttemptFailure::Left(status)) => {
                endpoint_responses::count(upstream, number, ResponseClass::of_status(*status), took);
                endpoint_responses::judge(upstream, number, *status, took);
            }
            // Whether the endpoint is at fault is not certain: nothing is said of its health.
            AttemptOutcome::Aborted(reason) | AttemptOutcome::Finished { reason, .. } => {
                endpoint_responses::count(upstream, number, ResponseClass::of_break(*reason), took);
            }
            AttemptOutcome::Failed(
                failure @ (AttemptFailure::NoResponse | AttemptFailure::Connection | AttemptFailure::Origin(..)),
            ) => {
                upstream.note(number, failure.outcome(opened), took);
            }
            // The deadline was the gateway's own, and not the client's.
            AttemptOutcome::Failed(AttemptFailure::DeadlineExceeded)
                if self.upstream_request.request.call_timeout.is_none() && self.was_silent() =>
            {
                upstream.note(number, ExchangeOutcome::TimedOut, took);
            }
            AttemptOutcome::Failed(AttemptFailure::ClientStalled | AttemptFailure::ClientGone) => {
                let reason = self.upstream_request.connection.disconnect_reason();
                endpoint_responses::count(upstream, number, ResponseClass::of_break(reason), None);
            }
            // It is no fault of the endpoint, or not certainly one.
            AttemptOutcome::Failed(
                AttemptFailure::NotProcessed
                | AttemptFailure::Drained
                | AttemptFailure::DeadlineExceeded
                | AttemptFailure::Inspected
                | AttemptFailure::Declined(_)
                | AttemptFailure::Client(_),
            ) => {}
        }
    }

    /// The cause for a retry, as far as the origin is concerned.
    pub(crate) fn class(&self, outcome: &AttemptOutcome) -> Option<RetryCause> {
        let AttemptOutcome::Failed(failure) = outcome else { return None };
        match failure {
            AttemptFailure::NotProcessed | AttemptFailure::Drained => Some(RetryCause::RefusedStream),
            AttemptFailure::Status(_) => Some(RetryCause::Status),
            AttemptFailure::Origin(_, LossCause::Timeout) => Some(RetryCause::Timeout),
            AttemptFailure::NoResponse | AttemptFailure::Origin(_, LossCause::Closed) => Some(RetryCause::Reset),
            AttemptFailure::Origin(..)
            | AttemptFailure::Connection
            | AttemptFailure::Left(_)
            | AttemptFailure::DeadlineExceeded
            | AttemptFailure::Inspected
            | AttemptFailure::Declined(_)
            | AttemptFailure::Client(_)
            | AttemptFailure::ClientStalled
            | AttemptFailure::ClientGone => None,
        }
    }

    /// Ends the attempt: decides on the lane, and on the connection of the client.
    ///
    /// # Errors
    /// The client has received no response: this refusal is for it.
    pub(crate) fn after(&self, mut lane: HttpLane, outcome: AttemptOutcome) -> Result<AfterExchange, Refusal> {
        let UpstreamRequest { connection, request, routed, .. } = *self.upstream_request;
        let upstream = &routed.upstream.settings().name;
        match outcome {
            AttemptOutcome::Responded { status, keeps_client, remains, .. } => {
                lane.responded();
                match remains.filter(|_| self.is_uploaded.get()) {
                    Some(remains) => lane.give_back(remains),
                    None => lane.ends(),
                }
                connection.record_response(request, status, Some(self.sent), upstream, "ok");
                Ok(if keeps_client {
                    AfterExchange::KeepAlive
                } else {
                    AfterExchange::Close(CloseReason::Ended("after_response"))
                })
            }
            AttemptOutcome::Failed(failure) => self.after_failure(lane, failure),
            AttemptOutcome::Aborted(reason) => {
                self.abort(lane, reason);
                // Without its last chunk, or short of its length, it does not look complete. A call may say that it is not.
                let is_expired = self.is_grpc.get() && reason == EXPIRED;
                Ok(AfterExchange::Abort(if is_expired { grpc::EXPIRED } else { reason }))
            }
            AttemptOutcome::Finished { reason, keeps_client } => {
                self.abort(lane, reason);
                Ok(if keeps_client { AfterExchange::KeepAlive } else { AfterExchange::Close(reason) })
            }
        }
    }

    /// Ends an attempt without a response.
    fn after_failure(&self, mut lane: HttpLane, failure: AttemptFailure) -> Result<AfterExchange, Refusal> {
        let UpstreamRequest { connection, request, routed, .. } = *self.upstream_request;
        match failure {
            AttemptFailure::NoResponse
            | AttemptFailure::NotProcessed
            | AttemptFailure::Drained
            | AttemptFailure::Status(_) => {
                lane.failed(LossCause::Closed);
                Err(Refusal::ORIGIN_CLOSED)
            }
            AttemptFailure::DeadlineExceeded => {
                if self.was_silent() {
                    lane.did_not_respond();
                }
                lane.ends();
                Err(deadline_refusal(request))
            }
            // The rest of its response is not waited for.
            AttemptFailure::Left(_) => {
                lane.ends();
                Err(Refusal::ORIGIN_CLOSED)
            }
            AttemptFailure::Declined(refusal) => {
                lane.ends();
                Err(refusal)
            }
            // An inspection gives the response itself.
            AttemptFailure::Inspected => {
                lane.ends();
                Err(Refusal::POLICY_FAILED)
            }
            AttemptFailure::Origin(refusal, cause) => {
                lane.failed(cause);
                Err(refusal)
            }
            AttemptFailure::Connection => {
                lane.failed(LossCause::Violation);
                Err(Refusal::ORIGIN_MALFORMED)
            }
            AttemptFailure::Client(refusal) => {
                lane.ends();
                connection.record_client_fault(&refusal);
                Err(refusal)
            }
            AttemptFailure::ClientGone | AttemptFailure::ClientStalled => {
                lane.ends();
                connection.record_disconnect(request, Some(self.sent), &routed.upstream.settings().name);
                Ok(AfterExchange::Close(CloseReason::ClientReset))
            }
        }
    }

    /// Ends a response that breaks off: the client has a part of it.
    fn abort(&self, mut lane: HttpLane, reason: CloseReason) {
        let UpstreamRequest { connection, request, routed, .. } = *self.upstream_request;
        if reason.culprit() == Some(Culprit::Upstream) {
            lane.failed(LossCause::Closed);
        } else {
            lane.responded();
            lane.ends();
        }
        let status = self.response_start.get().map_or(0, |response_start| response_start.status);
        connection.record_abort(request, status, Some(self.sent), &routed.upstream.settings().name, reason);
    }
}

/// A deadline that passes at this time.
fn deadline_at(time: Time) -> Deadline {
    let deadline = weir_engine::deadline();
    deadline.set(time);
    deadline
}

/// Ends a response that has begun and will not come to its end.
async fn broken_off<R: ResponseSink, D: Download>(
    connection: &Connection,
    failure: AttemptFailure,
    relay: &mut ResponseRelay<'_, R, D>,
) -> AttemptOutcome {
    let reason = match failure {
        AttemptFailure::ClientGone => connection.disconnect_reason(),
        failure => failure.reason(),
    };
    if relay.taps.is_some()
        && failure.leaves_client()
        && Box::pin(relay.break_off(reason.name())).await == Some(BrokenEnd::Finish)
    {
        return AttemptOutcome::Finished { reason, keeps_client: relay.keeps_client };
    }
    AttemptOutcome::Aborted(reason)
}

/// Passes on what comes back once the request is sent, or is not taken any more. If the client leaves, the rest may be read without it.
async fn relay_response(
    connection: &Connection,
    (body, remainder): (&mut impl RequestBody, &Remainder<'_>),
    mut download: Pin<&mut impl Future<Output = AttemptOutcome>>,
    poll_abort: &impl Fn(&mut Context<'_>) -> Poll<AttemptOutcome>,
) -> AttemptOutcome {
    poll_fn(|context| {
        if let Poll::Ready(outcome) = poll_abort(context) {
            return Poll::Ready(outcome);
        }
        let gone = || AttemptOutcome::Failed(AttemptFailure::ClientGone);
        if !remainder.is_read() {
            if body.poll_disconnected(context).is_ready() {
                if !remainder.begin() {
                    return Poll::Ready(gone());
                }
            } else if let Poll::Ready(broken) = body.poll_arrived(context) {
                // An origin that does not read an upload to its end leaves some of it here.
                return Poll::Ready(AttemptOutcome::Failed(connection.body_failure(broken)));
            }
        }
        match download.as_mut().poll(context) {
            // Whatever has become of it, there is no client for it.
            Poll::Ready(_) if remainder.is_read() => Poll::Ready(gone()),
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => remainder.poll_over(context).map(|()| gone()),
        }
    })
    .await
}

/// Timeout of the whole exchange.
pub(crate) fn call_timeout(
    request: &RequestContext,
    action: &Action,
    settings: &HttpListenerSettings,
) -> Option<Duration> {
    let may_be_long = request.is_call || request.upgrade != RequestedUpgrade::None;
    let usual = settings.request_timeout.filter(|_| !may_be_long);
    // The route's timeout holds for every request of the route. A WebSocket stops being a request once it is accepted.
    let own = action.request_timeout.filter(|_| request.upgrade == RequestedUpgrade::None).or(usual);
    [own, request.call_timeout].into_iter().flatten().min()
}

/// The refusal of a request that took too long, named after the key that set the deadline. A gRPC call has the deadline of its client.
pub(crate) const fn deadline_refusal(request: &RequestContext) -> Refusal {
    match request.call_timeout {
        None => Refusal::REQUEST_TIMEOUT,
        Some(_) => Refusal::RESPONSE_TIMEOUT,
    }
}
