//! The passage of a request to its upstream: all that its attempts share.

use std::{cell::RefCell, rc::Rc};

use weir_base::time::Time;

use crate::{
    asked::Asked, connection::Connection, inspecting::Inspecting, mirror::Copying, retry::Retries, routed::Routed,
    settings::HttpListenerSettings,
};

/// A request that goes to an upstream.
pub(crate) struct Passage<'a> {
    pub(crate) connection: &'a Rc<Connection>,
    pub(crate) settings: &'a HttpListenerSettings,
    pub(crate) asked: &'a Asked,
    pub(crate) routed: &'a Routed<'a>,
    /// Fields that no client may send, in trailers either.
    pub(crate) identity_fields: &'a [Box<str>],
    pub(crate) retries: Retries<'a>,
    /// The copy for a mirror, until the request has gone to its end.
    pub(crate) copying: RefCell<Option<Rc<Copying>>>,
    /// The inspection of the body, if the route has one.
    pub(crate) inspecting: Option<&'a RefCell<Inspecting>>,
    /// The hash of what keeps the request together with others.
    pub(crate) affinity: Option<u64>,
    /// The time at which the exchange is to be over.
    pub(crate) ends: Option<Time>,
}
