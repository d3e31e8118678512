//! The destination of a request.

use std::{rc::Rc, sync::Arc};

use crate::{
    filter::{Caller, Handler},
    limits::REQUEST_BODY_BYTES_MAX,
    options::Upgrades,
    request_context::RequestContext,
    routes::Action,
    settings::HttpListenerSettings,
    upstream::HttpUpstream,
};

/// The destination of a request.
pub(crate) enum Destination<'a> {
    /// An origin.
    Upstream(UpstreamRoute<'a>),
    /// A handler.
    Handler(Box<HandlerRoute<'a>>),
}

impl<'a> Destination<'a> {
    /// The action of the route.
    pub(crate) fn action(&self) -> &'a Action {
        match self {
            Self::Upstream(routed) => routed.action,
            Self::Handler(handled) => handled.action,
        }
    }
}

/// A handler as the destination of a request.
pub(crate) struct HandlerRoute<'a> {
    pub(crate) handler: &'a Arc<dyn Handler>,
    pub(crate) action: &'a Action,
    pub(crate) caller: Caller,
}

/// An upstream as the destination of a request.
pub(crate) struct UpstreamRoute<'a> {
    pub(crate) name: &'a str,
    pub(crate) action: &'a Action,
    pub(crate) upstream: &'a Rc<HttpUpstream>,
    /// The Host of the forwarded request, if it is another one.
    pub(crate) host: Option<Vec<u8>>,
    /// The only endpoint that may serve it. `None`: any.
    pub(crate) endpoint: Option<usize>,
}

impl UpstreamRoute<'_> {
    /// Upgrades that the route allows.
    pub(crate) fn upgrades(&self, settings: &HttpListenerSettings) -> Upgrades {
        self.action.upgrades.unwrap_or(settings.upgrades)
    }

    /// Bytes a second that the body of the request must bring at least. 0: as slow as it likes.
    pub(crate) fn body_rate_min(&self, settings: &HttpListenerSettings) -> u64 {
        self.action.body_rate_min.unwrap_or(settings.body_rate_min)
    }

    /// Bytes of the request's body.
    pub(crate) fn body_bytes_max(&self, settings: &HttpListenerSettings, request: &RequestContext) -> u64 {
        body_bytes_max(self.action, settings, request, self.upstream.is_multiplexed())
    }
}

pub(crate) fn body_bytes_max(
    action: &Action,
    settings: &HttpListenerSettings,
    request: &RequestContext,
    is_multiplexed: bool,
) -> u64 {
    match action.request_body_bytes_max.or(settings.request_body_bytes_max) {
        // As with nginx, 0 is no limit.
        Some(0) => u64::MAX,
        Some(most) => most,
        // A call may stream for as long as its client likes; a client's word alone makes no call.
        None if request.is_grpc && is_multiplexed => u64::MAX,
        None => REQUEST_BODY_BYTES_MAX,
    }
}
