//! Buffers uploads before an origin gets them: a body is read before a lane is taken for it, as far as memory allows. A slow client then
//! costs the gateway some memory, and its origin nothing.

use std::{cell::RefCell, future::poll_fn, pin::pin, task::Poll, time::Duration};

use weir_http_codec::{BodyLength, Known, RequestHead, ResponseHead, Version};

use crate::{
    body::{BodyCopy, DiscardSink, Source as _},
    body_inspection::BodyInspection,
    buffered_body::BufferedBody,
    client::{Client, ExchangeIo, ResponseSink as _},
    destination::UpstreamRoute,
    failure::AttemptFailure,
    limits::REQUEST_BUFFER_BYTES,
    options::RetrySettings,
    refusal::Refusal,
    request_context::RequestContext,
    settings::HttpListenerSettings,
    upgrade::RequestedUpgrade,
    upload::{LimitedSink, UploadLimits, relay_paced},
};

/// The part of a body that is read before an origin gets the request.
#[derive(Clone, Copy)]
pub(crate) struct BufferPlan {
    /// Most bytes; 0: the body is streamed.
    bytes: usize,
    /// Not all of the body is here: it is waited for.
    pub(crate) waits: bool,
}

impl BufferPlan {
    /// The plan for a request that is about to go on. `inspected`: bytes that an inspection wants.
    pub(crate) fn of(
        client: &impl Client,
        request: &mut RequestContext,
        head: &mut RequestHead,
        routed: &UpstreamRoute<'_>,
        settings: &HttpListenerSettings,
        inspected: usize,
    ) -> Self {
        let has_none = request.is_call || request.body == BodyLength::Exact(0);
        let inspected = if has_none { 0 } else { inspected };
        let bytes = wanted(request, routed, settings).max(inspected);
        let waits = bytes > 0 && (inspected > 0 || !client.has_whole_body());
        if bytes > 0 && request.expects_continue {
            // The gateway sends the 100, since the origin has nothing of the request yet. A body that is here already needs none (RFC
            // 9110 section 10.1.1).
            head.fields.remove(Known::Expect);
            request.expects_continue = waits;
        }
        Self { bytes, waits }
    }
}

fn wanted(request: &RequestContext, routed: &UpstreamRoute<'_>, settings: &HttpListenerSettings) -> usize {
    if request.body == BodyLength::Exact(0) || request.is_call || request.upgrade != RequestedUpgrade::None {
        return 0;
    }
    // A place on a connection of HTTP/2 is one of many, and its body may be one half of a talk.
    let usual = if routed.upstream.is_multiplexed() { 0 } else { REQUEST_BUFFER_BYTES };
    let bytes = routed.action.request_buffer_bytes.or(settings.request_buffer_bytes).unwrap_or(usual);
    bytes as usize
}

/// The buffer of the body, if it needs one: until an origin gets the request, or until no retry can follow.
pub(crate) fn buffered_body(
    client: &impl Client,
    request: &RequestContext,
    retry: &RetrySettings,
    is_multiplexed: bool,
    BufferPlan { bytes: buffer, waits }: BufferPlan,
) -> Option<RefCell<BufferedBody>> {
    let most = retry_bytes(request, retry, is_multiplexed);
    let (buffer, most) = match waits {
        true => (buffer, most),
        // It came at once, and may be sent again like one that was waited for.
        false if request.is_idempotent => (0, most.max(buffer)),
        false => (0, most),
    };
    let lease = &client.connection().service.sessions.core().bytes;
    (buffer > 0 || most > 0).then(|| RefCell::new(BufferedBody::new(lease, buffer, most)))
}

/// Bytes of a body to keep for a retry, on its way to such an upstream.
pub(crate) fn retry_bytes(request: &RequestContext, retry: &RetrySettings, is_multiplexed: bool) -> usize {
    let most = retry.body_bytes_max;
    let may_fit = match request.body {
        BodyLength::Exact(length) => (1..=most as u64).contains(&length),
        BodyLength::Chunked | BodyLength::UntilClose => true,
    };
    // A call is as long as its client likes.
    if may_fit && !request.is_call && retry.keeps_bodies(is_multiplexed) { most } else { 0 }
}

/// Limits of a body while it is buffered.
pub(crate) struct BufferingLimits<'a> {
    /// Bytes that it may have.
    pub(crate) room: u64,
    /// Bytes a second that it must bring at least. 0: as slow as it likes.
    pub(crate) rate: u64,
    /// From the head of the request to the end of its body.
    pub(crate) timeout: Option<Duration>,
    /// Fields that no client may send, in trailers either.
    pub(crate) identity_fields: &'a [Box<str>],
    pub(crate) copy: Option<&'a RefCell<BodyCopy>>,
    pub(crate) inspection: Option<&'a RefCell<BodyInspection>>,
}

/// Reads the body until it is whole or `buffered` is full. Returns whether it is whole.
///
/// # Errors
/// The client is at fault, or gone.
pub(crate) async fn run<C: Client>(
    client: &mut C,
    request: &mut RequestContext,
    buffered: &RefCell<BufferedBody>,
    buffering_limits: BufferingLimits<'_>,
) -> Result<bool, AttemptFailure> {
    let connection = client.connection().clone();
    let BufferingLimits { room, rate, timeout, identity_fields, copy, inspection } = buffering_limits;
    let (is_whole, filled) = {
        let ExchangeIo { mut body, mut response_sink, .. } = client.exchange_io(request);
        if request.expects_continue {
            response_sink.interim(&ResponseHead::from_parts(Version::Http11, 100, BodyLength::Exact(0)));
        }
        let limits = UploadLimits { room, dropped: identity_fields, copy, buffered: Some(buffered), inspection };
        let mut sink = LimitedSink::new(DiscardSink, limits);
        let filled = {
            let is_enough = || buffered.borrow().is_full();
            let mut fill = pin!(relay_paced(&mut body, &mut sink, rate, is_enough));
            let all = weir_engine::deadline();
            if let Some(timeout) = timeout {
                all.set(request.arrived.saturating_add(timeout));
            }
            poll_fn(|context| {
                if C::poll_ended(&connection, context) {
                    return Poll::Ready(Err(AttemptFailure::ClientGone));
                }
                match fill.as_mut().poll(context) {
                    Poll::Ready(filled) => Poll::Ready(filled.map_err(|broken| connection.body_failure(broken))),
                    Poll::Pending => {
                        all.poll_expired(context).map(|()| Err(AttemptFailure::Client(Refusal::BODY_TIMEOUT)))
                    }
                }
            })
            .await
        };
        request.note_body(room - sink.room);
        (body.is_done(), filled)
    };
    filled?;
    request.expects_continue = false;
    if let Some(length) = buffered.borrow_mut().begin(is_whole) {
        request.body = BodyLength::Exact(length);
    }
    Ok(is_whole)
}
