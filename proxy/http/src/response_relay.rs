//! Relays the response of an origin: interim responses, the head, the body.

use std::cell::Cell;

use weir_base::time::turn;
use weir_http_codec::{BodyLength, Fields, Known, ResponseHead, strip_hop_by_hop};
use weir_upstream::LossCause;

use crate::{
    body::relay,
    client::ResponseSink,
    compression, cookies,
    failure::{AttemptFailure, AttemptOutcome, ResponseStart},
    filter::Tap,
    grpc,
    limits::INTERIM_RESPONSES_MAX,
    origin::Download,
    refusal::Refusal,
    taps::{TappedSink, Taps},
    upgrade::{AcceptedUpgrade, RequestedUpgrade},
    upstream_request::UpstreamRequest,
    variables::Variables,
};

/// The response of one attempt.
pub(crate) struct ResponseRelay<'a, R, D> {
    pub(crate) upstream_request: &'a UpstreamRequest<'a>,
    /// The number of the endpoint.
    pub(crate) endpoint: usize,
    pub(crate) response_sink: R,
    pub(crate) origin: D,
    /// The request has been sent to its end.
    pub(crate) is_uploaded: &'a Cell<bool>,
    /// Start of the final response to the client.
    pub(crate) response_start: &'a Cell<Option<ResponseStart>>,
    /// It is a response of gRPC.
    pub(crate) is_grpc: &'a Cell<bool>,
    /// The connection is a tunnel from here on, and the client has nothing of it yet.
    pub(crate) switched: Option<Box<AcceptedUpgrade>>,
}

impl<R: ResponseSink, D: Download> ResponseRelay<'_, R, D> {
    /// Relays the response to its end.
    pub(crate) async fn run(&mut self) -> AttemptOutcome {
        let mut interim = 0;
        let mut head = loop {
            let mut head = match self.origin.head().await {
                Ok(head) => head,
                Err(failure) => return AttemptOutcome::Failed(failure),
            };
            if !head.is_interim() {
                break head;
            }
            if head.status() == 101 && self.upstream_request.request.upgrade.is_accepted_by(&head) {
                self.switched = Some(Box::new(AcceptedUpgrade { head, input: self.origin.rest() }));
                return AttemptOutcome::Responded { status: 101, keeps_client: false, remains: None };
            }
            interim += 1;
            // The request did not ask for an upgrade.
            if interim > INTERIM_RESPONSES_MAX || head.status() == 101 {
                return AttemptOutcome::Failed(AttemptFailure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation));
            }
            strip_hop_by_hop(&mut head.fields);
            head.fields.remove(Known::ContentLength);
            self.response_sink.interim(&head);
        };
        if self.upstream_request.retries.retries_status(head.status(), &head.fields) {
            return AttemptOutcome::Failed(AttemptFailure::Status(head.status()));
        }
        if self.upstream_request.leaves(self.endpoint, &head) {
            return AttemptOutcome::Failed(AttemptFailure::Left(head.status()));
        }
        let is_misleading = self.upstream_request.request.version.is_multiplexed()
            && self.upstream_request.request.upgrade != RequestedUpgrade::None;
        if is_misleading && (200..300).contains(&head.status()) {
            return AttemptOutcome::Failed(AttemptFailure::Declined(Refusal::ORIGIN_NO_WEBSOCKET));
        }
        let length = self.origin.begin(&head, self.upstream_request.request.is_head);
        let taps = self.taps(&mut head, length);
        let is_persistent = head.is_persistent();
        let is_edited = taps.as_ref().is_some_and(|taps| !taps.edits.is_empty());
        let keeps_client = self.pass_head(&mut head, if is_edited { BodyLength::Chunked } else { length });
        // Bytes where no body may be belong to no response: they would be taken for the next one.
        if length != BodyLength::Exact(0) {
            let passed = match taps {
                None => relay(&mut self.origin, &mut self.response_sink).await,
                // Every connection pays for the size of this future.
                Some(taps) => {
                    Box::pin(relay(&mut self.origin, &mut TappedSink::new(*taps, &mut self.response_sink))).await
                }
            };
            if let Err(broken) = passed {
                return AttemptOutcome::Failed(AttemptFailure::of_origin(broken));
            }
        }
        if self.is_grpc.get() {
            let status = self.origin.trailers().and_then(grpc::status);
            self.upstream_request.request.grpc_status.set(status.or_else(|| grpc::status(&head.fields)));
        }
        let status = head.status();
        self.origin.reuse(head);
        AttemptOutcome::Responded { status, keeps_client, remains: self.origin.remains().filter(|_| is_persistent) }
    }

    /// The taps of the body; the head says so then.
    fn taps(&self, head: &mut ResponseHead, length: BodyLength) -> Option<Box<Taps>> {
        if length == BodyLength::Exact(0) {
            return None;
        }
        let (request, mut taps) = (self.upstream_request.request, Taps::default());
        if let Some(filter_handle) = request.filter_handle.get() {
            let said = head.fields.get(Known::ContentLength).map(Box::<[u8]>::from);
            let tap = filter_handle.with(|filter| filter.tap(head.status(), &mut head.fields));
            if !head.fields.all(Known::ContentLength).eq(said.as_deref()) {
                // A filter may not change the framing.
                head.fields.remove(Known::ContentLength);
                said.iter().for_each(|length| head.fields.add(Known::ContentLength, length));
            }
            match tap {
                Tap::No => {}
                Tap::Follow => taps.follower = Some(filter_handle.clone()),
                Tap::Edit => {
                    compression::forget_bytes(&mut head.fields);
                    taps.edits.push(Box::new(filter_handle.clone()));
                }
            }
        }
        if let Some((coding, compression)) = &request.coding
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
        self.response_start.set(Some(ResponseStart { at: turn::now(), status: head.status() }));
        self.is_grpc.set(
            self.upstream_request.request.is_call && head.fields.get(Known::ContentType).is_some_and(grpc::is_grpc),
        );
        self.upstream_request.retries.release_body();
        strip_hop_by_hop(&mut head.fields);
        if head.status() == 204 {
            // RFC 9110 section 8.6.
            head.fields.remove(Known::ContentLength);
        }
        change(&mut head.fields, self.upstream_request, self.endpoint);
        self.response_sink.head(head, length, self.is_uploaded.get())
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
