//! Where a request goes.

use std::{rc::Rc, sync::Arc};

use crate::{
    asked::Asked,
    doors::{Caller, Handler},
    limits::REQUEST_BODY_BYTES_MAX,
    options::Upgrades,
    routes::Action,
    settings::HttpListenerSettings,
    upstream::HttpUpstream,
};

/// Who answers a request.
pub(crate) enum Found<'a> {
    /// An origin.
    Upstream(Routed<'a>),
    /// A handler.
    Handler(Box<Handled<'a>>),
}

impl<'a> Found<'a> {
    /// What the route does.
    pub(crate) fn action(&self) -> &'a Action {
        match self {
            Self::Upstream(routed) => routed.action,
            Self::Handler(handled) => handled.action,
        }
    }
}

/// A handler, and what it is given besides the request.
pub(crate) struct Handled<'a> {
    pub(crate) handler: &'a Arc<dyn Handler>,
    pub(crate) action: &'a Action,
    pub(crate) caller: Caller,
}

/// Where a request goes.
pub(crate) struct Routed<'a> {
    pub(crate) name: &'a str,
    pub(crate) action: &'a Action,
    pub(crate) upstream: &'a Rc<HttpUpstream>,
    /// Of the request that goes on, if it is another one.
    pub(crate) host: Option<Vec<u8>>,
}

impl Routed<'_> {
    /// What the connection may become.
    pub(crate) fn upgrades(&self, settings: &HttpListenerSettings) -> Upgrades {
        self.action.upgrades.unwrap_or(settings.upgrades)
    }

    /// Bytes a second that the body of the request must bring at least. 0: as slow as it likes.
    pub(crate) fn body_rate_min(&self, settings: &HttpListenerSettings) -> u64 {
        self.action.body_rate_min.unwrap_or(settings.body_rate_min)
    }

    /// Bytes of the request's body.
    pub(crate) fn body_bytes_max(&self, settings: &HttpListenerSettings, asked: &Asked) -> u64 {
        body_bytes_max(self.action, settings, asked, self.upstream.is_multiplexed())
    }
}

pub(crate) fn body_bytes_max(
    action: &Action,
    settings: &HttpListenerSettings,
    asked: &Asked,
    is_multiplexed: bool,
) -> u64 {
    match action.request_body_bytes_max.or(settings.request_body_bytes_max) {
        // As with nginx, 0 is no limit.
        Some(0) => u64::MAX,
        Some(most) => most,
        // A call may stream for as long as its client likes; a client's word alone makes no call.
        None if asked.is_grpc && is_multiplexed => u64::MAX,
        None => REQUEST_BODY_BYTES_MAX,
    }
}
