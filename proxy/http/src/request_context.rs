//! The properties of a request that decide its handling.

use std::{
    cell::{Cell, OnceCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_http_codec::{BodyLength, Fields, Known, RequestHead, Version, token};
use weir_listener::StageTimes;

use crate::{
    access_notes::AccessNotes,
    compression::{Coding, Compression},
    filter::Deadlines,
    filter_handle::FilterHandle,
    grpc,
    metrics::RouteMetrics,
    policies::PolicyFields,
    refusal_format::RefusalFormat,
    settings::HttpListenerSettings,
    stopwatch::Phase,
    upgrade::RequestedUpgrade,
};

/// The properties of a request that decide its handling, once its head is ready to go on.
pub(crate) struct RequestContext {
    pub(crate) arrived: Time,
    /// When its head was parsed, and the instants after that, if its stages are timed. In a box, as few are.
    stages: Option<Box<(Time, Cell<Option<StageTimes>>)>>,
    pub(crate) method: &'static str,
    pub(crate) is_head: bool,
    pub(crate) is_idempotent: bool,
    pub(crate) version: Version,
    pub(crate) is_persistent: bool,
    pub(crate) expects_continue: bool,
    pub(crate) wants_trailers: bool,
    /// Its response is one of gRPC.
    pub(crate) is_grpc: bool,
    /// It goes on as a call of gRPC, which may be silent for long.
    pub(crate) is_call: bool,
    /// The status that the origin gave the call.
    pub(crate) grpc_status: Cell<Option<u8>>,
    pub(crate) body: BodyLength,
    /// Fields that policies add to its response. Empty without policies.
    pub(crate) policy_fields: OnceCell<Box<PolicyFields>>,
    /// If it was chosen for the access log.
    pub(crate) notes: Option<Box<AccessNotes>>,
    /// Longest pause in its body.
    pub(crate) body_idle_timeout: Duration,
    /// Longest pause in the body of its response.
    pub(crate) response_idle_timeout: Duration,
    /// The client's timeout of the whole call.
    pub(crate) call_timeout: Option<Duration>,
    /// Its filter, if its route has one.
    pub(crate) filter_handle: OnceCell<Rc<FilterHandle>>,
    /// Cells of its route, if routes are counted.
    pub(crate) route: OnceCell<Rc<RouteMetrics>>,
    pub(crate) upgrade: RequestedUpgrade,
    /// The coding of its response, if that is fit and the client accepts it.
    pub(crate) coding: Option<(Option<Coding>, Arc<Compression>)>,
    /// Its client, by the fields of trusted proxies, if its upstream has affinity by address.
    pub(crate) client: OnceCell<IpAddr>,
    /// A cookie for the client, by which it is recognised.
    pub(crate) affinity_cookie: OnceCell<Box<[u8]>>,
    /// The format of its refusals by its target. `None`: that of the listener.
    pub(crate) refusal_format: Option<&'static dyn RefusalFormat>,
}

impl RequestContext {
    /// The fields that policies put into a response of the gateway's own.
    pub(crate) fn local_response_fields(&self) -> Fields {
        self.policy_fields.get().map(|fields| fields.own().clone()).unwrap_or_default()
    }

    /// The stages of the request are timed; its head is parsed.
    pub(crate) fn time_stages(&mut self) {
        self.stages = Some(Box::new((Time::now(), Cell::new(None))));
    }

    /// A phase of the exchange begins, if a filter wants to know.
    pub(crate) fn enter(&self, phase: Phase) {
        if let Some(filter_handle) = self.filter_handle.get() {
            filter_handle.enter(phase);
        }
    }

    /// Limits and policies have let the request pass.
    pub(crate) fn note_policies_passed(&self) {
        self.enter(Phase::Request);
        if let Some((parsed, times)) = self.stages.as_deref() {
            let judged = Time::now();
            times.set(Some(StageTimes { parsed: *parsed, judged, wanted: judged, encoded: None }));
        }
    }

    /// A lane is wanted for the request.
    pub(crate) fn note_lane_requested(&self) {
        if let Some((_, times)) = self.stages.as_deref() {
            times.set(times.get().map(|times| StageTimes { wanted: Time::now(), ..times }));
        }
    }

    /// The stages, if they are timed and the request was not refused. The last one is the end of the turn, for which no client waits.
    pub(crate) fn stages(&self) -> Option<StageTimes> {
        self.stages.as_deref().and_then(|(_, times)| times.get())
    }

    /// Notes the bytes of the body of the request.
    pub(crate) fn note_body(&self, bytes: u64) {
        if let Some(notes) = &self.notes {
            notes.body_bytes.set(bytes);
        }
        if let Some(filter_handle) = self.filter_handle.get() {
            filter_handle.body_bytes.set(bytes);
        }
    }

    /// The deadlines of its filter; none without one.
    pub(crate) fn deadlines(&self) -> Deadlines {
        self.filter_handle.get().map_or(Deadlines::default(), |filter_handle| filter_handle.deadlines.get())
    }

    /// Lets its filter set the deadlines of the next attempts.
    pub(crate) fn set_deadlines(&self) {
        if let Some(filter_handle) = self.filter_handle.get()
            && !self.is_call
            && self.upgrade == RequestedUpgrade::None
        {
            filter_handle.deadlines.set(filter_handle.with(|filter| filter.deadlines()));
        }
    }

    /// Longest pause in the body of its response, by its filter or by its route.
    pub(crate) fn pause_max(&self) -> Duration {
        self.deadlines().idle.unwrap_or(self.response_idle_timeout)
    }

    /// An origin has the whole request; `None`: it is sent again.
    pub(crate) fn note_sent(&self, at: Option<Time>) {
        if let Some(filter_handle) = self.filter_handle.get() {
            filter_handle.sent_at.set(at);
        }
    }

    /// The time at which the first byte of a response body must be there, if its filter has set one.
    pub(crate) fn first_byte_by(&self) -> Option<Time> {
        let filter_handle = self.filter_handle.get()?;
        let since = filter_handle.sent_at.get().unwrap_or_else(turn::now);
        Some(since.saturating_add(filter_handle.deadlines.get().first_byte?))
    }

    pub(crate) fn of(head: &RequestHead, upgrade: RequestedUpgrade, settings: &HttpListenerSettings) -> Self {
        let is_grpc = head.fields.get(Known::ContentType).is_some_and(grpc::is_grpc);
        let wants_trailers = |value| token::list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        Self {
            arrived: turn::now(),
            stages: None,
            method: method_name(head.method()),
            is_head: head.method() == b"HEAD",
            // RFC 9110 section 9.2.2.
            is_idempotent: matches!(head.method(), b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE"),
            version: head.version(),
            is_persistent: head.is_persistent(),
            expects_continue: head.expects_continue(),
            wants_trailers: head.fields.all(Known::Te).any(wants_trailers),
            is_grpc,
            is_call: false,
            grpc_status: Cell::new(None),
            body_idle_timeout: settings.body_idle_timeout,
            response_idle_timeout: settings.response_idle_timeout,
            call_timeout: if is_grpc { grpc::timeout(&head.fields) } else { None },
            body: head.body(),
            policy_fields: OnceCell::new(),
            notes: None,
            filter_handle: OnceCell::new(),
            route: OnceCell::new(),
            upgrade,
            coding: None,
            client: OnceCell::new(),
            affinity_cookie: OnceCell::new(),
            refusal_format: settings.refusal_format.as_ref().and_then(|format| format.for_target(head.target())),
        }
    }
}

fn method_name(method: &[u8]) -> &'static str {
    match method {
        b"GET" => "GET",
        b"HEAD" => "HEAD",
        b"POST" => "POST",
        b"PUT" => "PUT",
        b"DELETE" => "DELETE",
        b"PATCH" => "PATCH",
        b"OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
