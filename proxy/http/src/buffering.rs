//! Uploads are held back from origins: a body is read before a connection is taken for it, as far as it may be kept in memory. A
//! slow client then costs the gateway some memory, and its origin nothing.

use std::{cell::RefCell, future::poll_fn, pin::pin, task::Poll, time::Duration};

use weir_http_codec::{BodyLength, Known, RequestHead, ResponseHead, Version};

use crate::{
    asked::Asked,
    body::{Copied, Nowhere, Source as _},
    client::{Client, Replies as _, Sides},
    failure::Failure,
    inspecting::Inspecting,
    kept::Kept,
    limits::REQUEST_BUFFER_BYTES,
    options::RetrySettings,
    refusal::Refusal,
    routed::Routed,
    settings::HttpListenerSettings,
    upgrade::Wish,
    upload::{Limited, Limits, relay_paced},
};

/// The part of a body that is read before an origin is asked.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    /// At most so many bytes; 0: the body goes on as it comes.
    bytes: usize,
    /// Not all of the body is here: it is waited for.
    pub(crate) waits: bool,
}

impl Buffer {
    /// That of a request that is about to go on. `inspected`: so many bytes are wanted for an inspection.
    pub(crate) fn of(
        client: &impl Client,
        asked: &mut Asked,
        head: &mut RequestHead,
        routed: &Routed<'_>,
        settings: &HttpListenerSettings,
        inspected: usize,
    ) -> Self {
        let inspected = if asked.is_call { 0 } else { inspected };
        let bytes = wanted(asked, routed, settings).max(inspected);
        let waits = bytes > 0 && (inspected > 0 || !client.has_whole_body());
        if bytes > 0 && asked.expects_continue {
            // The gateway answers `Expect`, and not the origin, which has nothing of the request yet. Behind a body that is here already
            // nothing is waited for (RFC 9110 section 10.1.1).
            head.fields.remove(Known::Expect);
            asked.expects_continue = waits;
        }
        Self { bytes, waits }
    }
}

fn wanted(asked: &Asked, routed: &Routed<'_>, settings: &HttpListenerSettings) -> usize {
    if asked.body == BodyLength::Exact(0) || asked.is_call || asked.wish != Wish::None {
        return 0;
    }
    // A place on a connection of HTTP/2 is one of many, and its body may be one half of a talk.
    let usual = if routed.upstream.is_multiplexed() { 0 } else { REQUEST_BUFFER_BYTES };
    let bytes = routed.action.request_buffer_bytes.or(settings.request_buffer_bytes).unwrap_or(usual);
    bytes as usize
}

/// Where the body is kept, if it is: until an origin is asked, or until it need not be sent again.
pub(crate) fn kept(
    client: &impl Client,
    asked: &Asked,
    retry: &RetrySettings,
    is_multiplexed: bool,
    Buffer { bytes: buffer, waits }: Buffer,
) -> Option<RefCell<Kept>> {
    let most = kept_for_retry(asked, retry, is_multiplexed);
    let (buffer, most) = match waits {
        true => (buffer, most),
        // It came at once, and may be sent again like one that was waited for.
        false if asked.is_idempotent => (0, most.max(buffer)),
        false => (0, most),
    };
    let lease = &client.connection().service.sessions.core().bytes;
    (buffer > 0 || most > 0).then(|| RefCell::new(Kept::new(lease, buffer, most)))
}

/// So much of a body is kept while it is on its way to such an upstream, so that it can be sent again.
pub(crate) fn kept_for_retry(asked: &Asked, retry: &RetrySettings, is_multiplexed: bool) -> usize {
    let most = retry.body_bytes_max;
    let may_fit = match asked.body {
        BodyLength::Exact(length) => (1..=most as u64).contains(&length),
        BodyLength::Chunked | BodyLength::UntilClose => true,
    };
    // A call is as long as its client likes.
    if may_fit && !asked.is_call && retry.keeps_bodies(is_multiplexed) { most } else { 0 }
}

/// What a body passes while it is read.
pub(crate) struct Passing<'a> {
    /// Bytes that it may have.
    pub(crate) room: u64,
    /// Bytes a second that it must bring at least. 0: as slow as it likes.
    pub(crate) rate: u64,
    /// From the head of the request to the end of its body.
    pub(crate) timeout: Option<Duration>,
    /// Fields that no client may send, in trailers either.
    pub(crate) identity_fields: &'a [Box<str>],
    pub(crate) copied: Option<&'a RefCell<Copied>>,
    pub(crate) inspecting: Option<&'a RefCell<Inspecting>>,
}

/// Reads the body until it is whole or `kept` is full. Tells whether it is whole.
///
/// # Errors
/// The client is at fault, or gone.
pub(crate) async fn run<C: Client>(
    client: &mut C,
    asked: &mut Asked,
    kept: &RefCell<Kept>,
    passing: Passing<'_>,
) -> Result<bool, Failure> {
    let connection = client.connection().clone();
    let Passing { room, rate, timeout, identity_fields, copied, inspecting } = passing;
    let (is_whole, filled) = {
        let Sides { mut body, mut replies, .. } = client.sides(asked);
        if asked.expects_continue {
            replies.interim(&ResponseHead::from_parts(Version::Http11, 100, BodyLength::Exact(0)));
        }
        let limits = Limits { room, dropped: identity_fields, copied, kept: Some(kept), inspecting };
        let mut sink = Limited::new(Nowhere, limits);
        let filled = {
            let is_enough = || kept.borrow().is_full();
            let mut fill = pin!(relay_paced(&mut body, &mut sink, rate, is_enough));
            let all = weir_engine::deadline();
            if let Some(timeout) = timeout {
                all.set(asked.arrived.saturating_add(timeout));
            }
            poll_fn(|context| {
                if C::poll_ended(&connection, context) {
                    return Poll::Ready(Err(Failure::ClientGone));
                }
                match fill.as_mut().poll(context) {
                    Poll::Ready(filled) => Poll::Ready(filled.map_err(|broken| connection.unread(broken))),
                    Poll::Pending => all.poll_expired(context).map(|()| Err(Failure::Client(Refusal::BODY_TIMEOUT))),
                }
            })
            .await
        };
        asked.note_body(room - sink.room);
        (body.is_done(), filled)
    };
    filled?;
    asked.expects_continue = false;
    if let Some(length) = kept.borrow_mut().begin(is_whole) {
        asked.body = BodyLength::Exact(length);
    }
    Ok(is_whole)
}
