//! Copies of requests, sent to a second upstream. No client waits for them, and their responses are discarded.

use std::{cell::RefCell, rc::Rc};

use weir_engine::Account;
use weir_http_codec::RequestHead;

use crate::{
    body::{BodyCopy, DiscardSink},
    connection::Connection,
    destination::UpstreamRoute,
    request_context::RequestContext,
    routes::Mirror,
    service::Service,
    subrequest::{Subrequest, SubrequestError},
    upstream::HttpUpstream,
};

/// Copies under way on one worker of a listener; more are not made. As many exchanges as a second upstream can be expected to bear
/// unasked.
const MIRRORS_MAX: u32 = 256;

/// Suffix of the host, by which the second upstream recognises copies, as with Envoy.
const SUFFIX: &[u8] = b"-shadow";

/// A copy that is being made.
pub(crate) struct MirrorCopy {
    upstream: Rc<HttpUpstream>,
    head: RequestHead,
    host: Vec<u8>,
    /// Copy of the body.
    pub(crate) body: RefCell<BodyCopy>,
    /// It counts from here on: a body that is still coming is held for it.
    _under_way: MirrorGuard,
}

impl MirrorCopy {
    /// The copy of a request that is about to go on, if its route wants one.
    pub(crate) fn of(
        connection: &Connection,
        mirror: &Mirror,
        upstream: &Rc<HttpUpstream>,
        head: &RequestHead,
        host: &[u8],
    ) -> Option<Rc<Self>> {
        let service = &connection.service;
        if (service.sessions.chance() as f64 / u64::MAX as f64) >= mirror.share {
            return None;
        }
        if service.mirrors.get() >= MIRRORS_MAX {
            service.metrics.mirrored("in_flight");
            return None;
        }
        let mut shadow = host.to_vec();
        // In front of the port, if there is one.
        let colon =
            host.iter().rposition(|byte| *byte == b':').filter(|at| host[at + 1..].iter().all(u8::is_ascii_digit));
        let at = colon.unwrap_or(host.len());
        shadow.splice(at..at, SUFFIX.iter().copied());
        let body = RefCell::new(BodyCopy::new(mirror.body_bytes_max));
        service.mirrors.set(service.mirrors.get() + 1);
        let _under_way = MirrorGuard(service.clone());
        Some(Rc::new(Self { upstream: upstream.clone(), head: head.clone(), host: shadow, body, _under_way }))
    }

    /// The request has gone to its end: the copy goes too.
    pub(crate) fn send(self: Rc<Self>, connection: &Connection, request: &RequestContext, routed: &UpstreamRoute<'_>) {
        let service = connection.service.clone();
        let copy = self.body.borrow_mut().take();
        let Some(body) = copy else { return service.metrics.mirrored("body_too_long") };
        let settings = service.http();
        let timeout = routed.action.response_timeout.unwrap_or(settings.response_timeout);
        let (idle_timeout, is_head) = (request.response_idle_timeout, request.is_head);
        weir_engine::spawn(async move {
            let (head, host, body) = (&self.head, &*self.host, &*body);
            let any = Subrequest::within(timeout, head, host, body);
            // The client may be gone before the copy is.
            let account = Some(Rc::new(RefCell::new(service.sessions.core().bytes.empty())) as Rc<dyn Account>);
            let subrequest = Subrequest { is_head, idle_timeout, limit: None, account, ..any };
            let outcome = match subrequest.send(&service.metrics, &self.upstream, &mut DiscardSink).await {
                Ok(response) if response.is_whole => "ok",
                Ok(_) | Err(SubrequestError::Failed) => "failed",
                Err(SubrequestError::Unreachable) => "unreachable",
            };
            service.metrics.mirrored(outcome);
        })
        .detach();
    }
}

struct MirrorGuard(Rc<Service>);

impl Drop for MirrorGuard {
    fn drop(&mut self) {
        self.0.mirrors.set(self.0.mirrors.get() - 1);
    }
}
