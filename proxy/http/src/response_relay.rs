//! Relays the response of an origin: interim responses, the head, the body.

use std::cell::Cell;

use weir_base::time::{Time, turn};
use weir_http_codec::{BodyLength, Fields, Known, ResponseHead, strip_hop_by_hop};
use weir_upstream::LossCause;

use crate::{
    body::{BodyError, relay_from},
    client::ResponseSink,
    compression, cookies,
    failure::{AttemptFailure, AttemptOutcome, ResponseStart},
    filter::{BrokenEnd, Tap},
    grpc,
    held_body::HeldBody,
    limits::{INTERIM_RESPONSES_MAX, LINGER_TIMEOUT},
    origin::Download,
    refusal::Refusal,
    remainder::Remainder,
    taps::{TappedSink, Taps},
    upgrade::{AcceptedUpgrade, RequestedUpgrade},
    upstream_request::UpstreamRequest,
    variables::Variables,
};

/// Bytes of a replaced body that are sent before the client is checked for room.
const REPLACED_PIECE_BYTES: usize = 64 * 1024;

/// The response of one attempt.
pub(crate) struct ResponseRelay<'a, R, D> {
    pub(crate) upstream_request: &'a UpstreamRequest<'a>,
    /// The number of the endpoint.
    pub(crate) endpoint: usize,
    pub(crate) response_sink: R,
    /// The part of it that is read without its client.
    pub(crate) remainder: &'a Remainder<'a>,
    pub(crate) origin: D,
    /// The request has been sent to its end.
    pub(crate) is_uploaded: &'a Cell<bool>,
    /// Start of the final response to the client.
    pub(crate) response_start: &'a Cell<Option<ResponseStart>>,
    /// It is a response of gRPC.
    pub(crate) is_grpc: &'a Cell<bool>,
    /// The connection is a tunnel from here on, and the client has nothing of it yet.
    pub(crate) switched: Option<Box<AcceptedUpgrade>>,
    /// The taps of its body.
    pub(crate) taps: Option<Box<Taps>>,
    /// The response allows the connection of the client to go on.
    pub(crate) keeps_client: bool,
}

impl<R: ResponseSink, D: Download> ResponseRelay<'_, R, D> {
    /// Relays the response to its end.
    pub(crate) async fn run(&mut self) -> AttemptOutcome {
        let mut head = match self.final_head().await {
            Ok(head) => head,
            Err(outcome) => return outcome,
        };
        let request = self.upstream_request.request;
        if self.upstream_request.retries.retries_status(head.status(), &head.fields) {
            return AttemptOutcome::Failed(AttemptFailure::Status(head.status()));
        }
        if self.upstream_request.leaves(self.endpoint, &head) {
            return AttemptOutcome::Failed(AttemptFailure::Left(head.status()));
        }
        let is_misleading = request.version.is_multiplexed() && request.upgrade != RequestedUpgrade::None;
        if is_misleading && (200..300).contains(&head.status()) {
            return AttemptOutcome::Failed(AttemptFailure::Declined(Refusal::ORIGIN_NO_WEBSOCKET));
        }
        let length = self.origin.begin(&head, request.is_head);
        let is_filled = match request.first_byte_by().filter(|_| length != BodyLength::Exact(0)) {
            None => false,
            Some(by) => match self.first_byte(by).await {
                Ok(()) => true,
                Err(failure) => return AttemptOutcome::Failed(failure),
            },
        };
        self.taps = self.make_taps(&mut head, length);
        if let Some((filter_handle, limits)) = self.taps.as_mut().and_then(|taps| taps.replacer.take()) {
            self.taps = None;
            let held = HeldBody::new(filter_handle, limits, &self.upstream_request.connection.service);
            // Every connection pays for the size of this future.
            return Box::pin(self.replace(head, length, held, is_filled)).await;
        }
        let is_persistent = head.is_persistent();
        let is_edited = self.taps.as_ref().is_some_and(|taps| !taps.edits.is_empty());
        let keeps_client = self.pass_head(&mut head, if is_edited { BodyLength::Chunked } else { length });
        // Bytes where no body may be belong to no response: they would be taken for the next one.
        if length != BodyLength::Exact(0)
            && let Err(broken) = self.body(is_filled).await
        {
            return AttemptOutcome::Failed(self.body_failure(broken));
        }
        if self.is_grpc.get() {
            let status = self.origin.trailers().and_then(grpc::status);
            request.grpc_status.set(status.or_else(|| grpc::status(&head.fields)));
        }
        let status = head.status();
        self.origin.reuse(head);
        let remains = self.origin.remains().filter(|_| is_persistent);
        AttemptOutcome::Responded { status, origin_status: status, keeps_client, remains }
    }

    /// The final head; those before it are passed on.
    ///
    /// # Errors
    /// There is none.
    async fn final_head(&mut self) -> Result<ResponseHead, AttemptOutcome> {
        let mut interim = 0;
        loop {
            let mut head = match self.origin.head().await {
                Ok(head) => head,
                Err(failure) => return Err(AttemptOutcome::Failed(self.head_failure(failure))),
            };
            if !head.is_interim() {
                return Ok(head);
            }
            if head.status() == 101 && self.upstream_request.request.upgrade.is_accepted_by(&head) {
                self.switched = Some(Box::new(AcceptedUpgrade { head, input: self.origin.rest() }));
                return Err(AttemptOutcome::Responded {
                    status: 101,
                    origin_status: 101,
                    keeps_client: false,
                    remains: None,
                });
            }
            interim += 1;
            // The request did not ask for an upgrade.
            if interim > INTERIM_RESPONSES_MAX || head.status() == 101 {
                let malformed = AttemptFailure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation);
                return Err(AttemptOutcome::Failed(malformed));
            }
            strip_hop_by_hop(&mut head.fields);
            head.fields.remove(Known::ContentLength);
            self.response_sink.interim(&head);
        }
    }

    /// Holds the whole body, and passes on what its filter puts in its place.
    async fn replace(
        &mut self,
        mut head: ResponseHead,
        length: BodyLength,
        mut held: HeldBody,
        is_filled: bool,
    ) -> AttemptOutcome {
        let is_whole = match self.hold(&mut held, length, is_filled).await {
            Ok(is_whole) => is_whole,
            Err(failure) => return AttemptOutcome::Failed(failure),
        };
        let is_persistent = head.is_persistent();
        let origin_status = head.status();
        let replaced = match held.replace(origin_status, &mut head.fields) {
            Ok(replaced) => replaced,
            Err(refusal) => return AttemptOutcome::Failed(AttemptFailure::Declined(refusal)),
        };
        compression::forget_bytes(&mut head.fields);
        let length = BodyLength::Exact(replaced.body.len() as u64);
        head.fields.set(Known::ContentLength, itoa::Buffer::new().format(replaced.body.len()).as_bytes());
        let mut new = ResponseHead::from_parts(head.version(), replaced.status, length);
        new.fields = std::mem::take(&mut head.fields);
        let keeps_client = self.pass_head(&mut new, length);
        let sent = async {
            for piece in replaced.body.chunks(REPLACED_PIECE_BYTES) {
                self.response_sink.data(piece);
                self.response_sink.ready().await?;
            }
            self.response_sink.end(None);
            self.response_sink.ready().await
        };
        if let Err(broken) = sent.await {
            return AttemptOutcome::Failed(self.body_failure(broken));
        }
        self.origin.reuse(head);
        let remains = self.origin.remains().filter(|_| is_persistent && is_whole);
        AttemptOutcome::Responded { status: replaced.status, origin_status, keeps_client, remains }
    }

    /// Holds the body to its end, or to where it may be cut. Whether it is whole.
    async fn hold(&mut self, held: &mut HeldBody, length: BodyLength, is_filled: bool) -> Result<bool, AttemptFailure> {
        let announced = if let BodyLength::Exact(length) = length { length } else { 0 };
        let relayed = match held.fits(announced) {
            true if length == BodyLength::Exact(0) => Ok(()),
            true => relay_from(&mut self.origin, is_filled, held).await,
            false => Err(BodyError::TooLong),
        };
        match (relayed, held.refused()) {
            (Ok(()), _) => Ok(true),
            (Err(_), Some(refusal)) => Err(AttemptFailure::Declined(refusal)),
            (Err(_), None) if held.may_be_cut() => Ok(false),
            (Err(broken), None) => Err(self.body_failure(broken)),
        }
    }

    /// Waits for the first byte of the body, or its end, while the client has nothing of the response.
    async fn first_byte(&mut self, by: Time) -> Result<(), AttemptFailure> {
        self.origin.limit_pauses(by.since(turn::now()));
        let filled = self.origin.fill().await;
        self.origin.limit_pauses(self.upstream_request.request.pause_max());
        filled.map_err(|broken| match broken {
            BodyError::TimedOut => AttemptFailure::Origin(Refusal::FIRST_BYTE_TIMEOUT, LossCause::Timeout),
            broken => AttemptFailure::of_origin(broken),
        })
    }

    /// Relays the body to its end.
    async fn body(&mut self, is_filled: bool) -> Result<(), BodyError> {
        let Self { origin, response_sink, taps, .. } = self;
        match taps {
            None => relay_from(origin, is_filled, response_sink).await,
            Some(taps) => {
                let mut sink = TappedSink::new(taps, response_sink);
                // Every connection pays for the size of this future.
                let relayed = Box::pin(relay_from(origin, is_filled, &mut sink)).await;
                // Behind a break there is no further flush.
                sink.send();
                relayed
            }
        }
    }

    /// The response has broken off for `reason`: lets its filter append a last piece. Returns how it ends then.
    pub(crate) async fn break_off(&mut self, reason: &str) -> Option<BrokenEnd> {
        if self.is_grpc.get() {
            return None;
        }
        let Self { response_sink, taps, .. } = self;
        let (last, end) = taps.as_mut()?.break_off(reason)?;
        if !last.is_empty() {
            response_sink.data(last);
        }
        if end == BrokenEnd::Finish {
            response_sink.end(None);
        }
        // A client that does not take it in time loses it.
        let _ = weir_engine::timeout(LINGER_TIMEOUT, response_sink.ready()).await;
        Some(end)
    }

    /// The failure of a head that did not come, by the deadline that was shorter.
    fn head_failure(&self, failure: AttemptFailure) -> AttemptFailure {
        let UpstreamRequest { request, routed, settings, .. } = *self.upstream_request;
        let response_timeout = routed.action.response_timeout.unwrap_or(settings.response_timeout);
        match failure {
            AttemptFailure::Origin(Refusal::RESPONSE_TIMEOUT, cause)
                if request.deadlines().first_byte.is_some_and(|first_byte| first_byte <= response_timeout) =>
            {
                AttemptFailure::Origin(Refusal::FIRST_BYTE_TIMEOUT, cause)
            }
            failure => failure,
        }
    }

    /// The failure of a body, by the filter's deadline if that has set one.
    fn body_failure(&self, broken: BodyError) -> AttemptFailure {
        match broken {
            BodyError::TimedOut if self.upstream_request.request.deadlines().idle.is_some() => {
                AttemptFailure::Origin(Refusal::IDLE_TIMEOUT, LossCause::Timeout)
            }
            broken => AttemptFailure::of_origin(broken),
        }
    }

    /// The taps of the body; the head says so then.
    fn make_taps(&self, head: &mut ResponseHead, length: BodyLength) -> Option<Box<Taps>> {
        let (request, mut taps) = (self.upstream_request.request, Taps::default());
        if !head.has_body(request.is_head) {
            return None;
        }
        let is_empty = length == BodyLength::Exact(0);
        if let Some(filter_handle) = request.filter_handle.get() {
            let status = head.status();
            let tap = filter_handle.keeping_length(&mut head.fields, |filter, fields| filter.tap(status, fields));
            match tap {
                Tap::No => {}
                Tap::Follow | Tap::Edit if is_empty => {}
                Tap::Replace(limits) => {
                    taps.replacer = Some((filter_handle.clone(), limits));
                    return Some(Box::new(taps));
                }
                Tap::Follow => taps.follower = Some(filter_handle.clone()),
                Tap::Edit => {
                    compression::forget_bytes(&mut head.fields);
                    taps.edits.push(Box::new(filter_handle.clone()));
                    taps.editor = Some(filter_handle.clone());
                }
            }
        }
        if let Some((coding, compression)) = &request.coding
            && !is_empty
            && compression::is_fit(head, length, compression)
        {
            compression::vary(&mut head.fields);
            if let Some(coding) = *coding {
                compression::announce(&mut head.fields, coding);
                taps.edits.push(compression::encoder(coding));
            }
        }
        (!taps.is_empty()).then(|| Box::new(taps))
    }

    /// Passes the final head on; whether the connection of the client may bring another request.
    fn pass_head(&mut self, head: &mut ResponseHead, length: BodyLength) -> bool {
        if !self.remainder.is_read() {
            self.response_start.set(Some(ResponseStart { at: turn::now(), status: head.status() }));
        }
        self.is_grpc.set(
            self.upstream_request.request.is_call && head.fields.get(Known::ContentType).is_some_and(grpc::is_grpc),
        );
        self.upstream_request.retries.release_body();
        if let Some(filter_handle) = self.upstream_request.request.filter_handle.get() {
            filter_handle.change_head(head.status(), &mut head.fields);
        }
        strip_hop_by_hop(&mut head.fields);
        if head.status() == 204 {
            // RFC 9110 section 8.6.
            head.fields.remove(Known::ContentLength);
        }
        change(&mut head.fields, self.upstream_request, self.endpoint);
        self.keeps_client = self.response_sink.head(head, length, self.is_uploaded.get());
        self.keeps_client
    }
}

/// Changes the head of an origin's final response: fields of policies and of the route, cookies, affinity.
pub(crate) fn change(fields: &mut Fields, upstream_request: &UpstreamRequest<'_>, endpoint: usize) {
    let UpstreamRequest { connection, routed, request, .. } = *upstream_request;
    if let Some(policy_fields) = request.policy_fields.get() {
        policy_fields.apply(routed.action.policies.as_deref(), fields);
    }
    let changes = &routed.action.response_fields;
    if !changes.is_empty() {
        Variables::of_response(connection, routed, endpoint, request).change(fields, changes);
    }
    if !routed.action.cookies.is_empty() {
        cookies::change(fields, &routed.action.cookies);
    }
    if let Some(cookie) = request.affinity_cookie.get() {
        fields.push(b"Set-Cookie", cookie);
    }
}
