//! A request on its way to an upstream: the state that its attempts share.

use std::{cell::RefCell, rc::Rc};

use weir_base::time::Time;

use crate::{
    body_inspection::BodyInspection, connection::Connection, destination::UpstreamRoute, mirror::MirrorCopy,
    request_context::RequestContext, retry::Retries, settings::HttpListenerSettings,
};

/// A request that goes to an upstream.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) connection: &'a Rc<Connection>,
    pub(crate) settings: &'a HttpListenerSettings,
    pub(crate) request: &'a RequestContext,
    pub(crate) routed: &'a UpstreamRoute<'a>,
    /// Fields that no client may send, in trailers either.
    pub(crate) identity_fields: &'a [Box<str>],
    pub(crate) retries: Retries<'a>,
    /// The copy for a mirror, until the request has gone to its end.
    pub(crate) mirror_copy: &'a RefCell<Option<Rc<MirrorCopy>>>,
    /// The inspection of the body, if the route has one.
    pub(crate) inspection: Option<&'a RefCell<BodyInspection>>,
    /// The hash of what keeps the request together with others.
    pub(crate) affinity: Option<u64>,
    /// The time at which the exchange is to be over.
    pub(crate) ends: Option<Time>,
}
