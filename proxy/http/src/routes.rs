//! Routes, and the actions on their requests.

use std::{sync::Arc, time::Duration};

use weir_route::{
    RouteTable,
    redirect::Redirect,
    rewrite::{HostRewrite, PathRewrite},
    split::Split,
    variables::Template,
};

pub use crate::local_response::DirectResponse;
use crate::{
    compression::Compression,
    cookies::CookieChange,
    fault::Fault,
    filter::{FilterFactory, Handler},
    options::{RetrySettings, Upgrades},
    policies::Policies,
};

/// The routes of one listener, in front of the upstreams that they name.
#[derive(Clone, Debug)]
pub struct Routes {
    /// Chosen by host, path, method, headers and query.
    pub table: RouteTable<Action>,
    /// Names that the numbers of [`Target::Upstream`] count.
    pub upstreams: Vec<Arc<str>>,
    /// Names of fields that carry identities to origins: such fields of clients are removed, on every route.
    pub identity_fields: Vec<Box<str>>,
    /// Names of routes, each once; [`Action::number`] counts them.
    pub names: Vec<Box<str>>,
}

/// The action of a route.
#[derive(Clone, Debug)]
pub struct Action {
    /// The source of the response.
    pub target: Target,
    /// Another path for the origin.
    pub path: Option<PathRewrite>,
    /// Another Host for the origin.
    pub host: Option<HostRewrite>,
    /// Changes to the fields that the origin gets, in order.
    pub request_fields: Vec<FieldChange>,
    /// Changes to the fields that the client gets, in order.
    pub response_fields: Vec<FieldChange>,
    /// Instead of the listener's.
    pub response_timeout: Option<Duration>,
    /// Instead of the listener's.
    pub request_timeout: Option<Duration>,
    /// Instead of the listener's.
    pub body_idle_timeout: Option<Duration>,
    /// Instead of the listener's.
    pub response_idle_timeout: Option<Duration>,
    /// Instead of the listener's.
    pub body_rate_min: Option<u64>,
    /// Instead of the listener's.
    pub request_buffer_bytes: Option<u64>,
    /// Instead of the listener's. 0: any.
    pub request_body_bytes_max: Option<u64>,
    /// Instead of the listener's.
    pub retry: Option<Box<RetrySettings>>,
    /// Instead of the listener's.
    pub compression: Option<Arc<Compression>>,
    /// Failures made on purpose.
    pub fault: Option<Box<Fault>>,
    /// The upstream that gets copies of its requests.
    pub mirror: Option<Mirror>,
    /// Changes to cookies that origins set.
    pub cookies: Vec<CookieChange>,
    /// Policies of its requests. `None`: none.
    pub policies: Option<Box<Policies>>,
    /// Position of the route's name among the names of its listener.
    pub number: usize,
    /// Instead of the listener's.
    pub upgrades: Option<Upgrades>,
    /// Another room that takes part. `None`: that of the listener, if it has one.
    pub filter: Option<Arc<dyn FilterFactory + Send + Sync>>,
}

impl Action {
    /// Requests go to `target` as they are.
    pub fn plain(target: Target) -> Self {
        let (request_fields, response_fields) = (Vec::new(), Vec::new());
        Self {
            target,
            path: None,
            host: None,
            request_fields,
            response_fields,
            response_timeout: None,
            request_timeout: None,
            body_idle_timeout: None,
            response_idle_timeout: None,
            body_rate_min: None,
            request_buffer_bytes: None,
            request_body_bytes_max: None,
            retry: None,
            compression: None,
            fault: None,
            mirror: None,
            cookies: Vec::new(),
            policies: None,
            number: 0,
            upgrades: None,
            filter: None,
        }
    }
}

/// A second upstream, which gets copies of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    /// By its number.
    pub upstream: usize,
    /// Share of the requests, 0 to 1.
    pub share: f64,
    /// Bytes of a body; requests with longer ones are not copied.
    pub body_bytes_max: usize,
}

/// The source of a response.
#[derive(Clone, Debug)]
pub enum Target {
    /// One of these upstreams, by their numbers.
    Upstream(Split<usize>),
    /// The gateway: go there instead.
    Redirect(Redirect),
    /// The gateway: this.
    Response(Arc<DirectResponse>),
    /// The gateway, by this handler.
    Handler(Arc<dyn Handler>),
    /// The gateway: not now, for there is a mistake in the route.
    Invalid,
}

/// One change to the fields of a message.
#[derive(Clone, Debug)]
pub enum FieldChange {
    /// One field of this name and no other.
    Set(Box<str>, Template),
    /// One more.
    Add(Box<str>, Template),
    /// None.
    Remove(Box<str>),
}
