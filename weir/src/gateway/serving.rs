//! Listeners and upstreams of every protocol, as a worker holds them.

use std::{cell::Cell, rc::Rc, sync::Arc};

use weir_http::HttpUpstream;
use weir_listener::Drain;
use weir_redis::RedisUpstream;
use weir_tcp::TcpUpstream;

/// One listener on one worker.
#[derive(Clone)]
pub enum Serving {
    Redis(Rc<weir_redis::Service>),
    Http(Rc<weir_http::Service>),
    Tcp(Rc<weir_tcp::Service>),
}

impl Serving {
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Redis(service) => service.name(),
            Self::Http(service) => service.name(),
            Self::Tcp(service) => service.name(),
        }
    }

    /// Begins or hardens a drain.
    pub fn drain(&self, drain: Drain) {
        match self {
            Self::Redis(service) => service.drain(drain),
            Self::Http(service) => service.drain(drain),
            Self::Tcp(service) => service.drain(drain),
        }
    }

    /// Ends every session now; how many connections and requests were cut.
    pub fn cut(&self) -> (usize, u64) {
        match self {
            Self::Redis(service) => service.cut(),
            Self::Http(service) => service.cut(),
            Self::Tcp(service) => service.cut(),
        }
    }

    /// Ends the sessions that an operator named.
    pub fn end_killed(&self) {
        match self {
            Self::Redis(service) => service.end_killed(),
            Self::Http(service) => service.end_killed(),
            Self::Tcp(service) => service.end_killed(),
        }
    }

    /// Sessions open on this worker.
    pub fn open_count(&self) -> usize {
        match self {
            Self::Redis(service) => service.open_count(),
            Self::Http(service) => service.open_count(),
            Self::Tcp(service) => service.open_count(),
        }
    }

    /// Sessions may still use `upstream`.
    pub fn uses(&self, upstream: &AnyUpstream) -> bool {
        match (self, upstream) {
            (Self::Redis(service), AnyUpstream::Redis { upstream, .. }) => service.uses(upstream),
            (Self::Http(service), AnyUpstream::Http(upstream)) => service.uses(upstream),
            (Self::Tcp(service), AnyUpstream::Tcp(upstream)) => service.uses(upstream),
            _ => false,
        }
    }

    /// The Redis listener that it is, if it is one.
    pub fn redis(&self) -> Option<&Rc<weir_redis::Service>> {
        match self {
            Self::Redis(service) => Some(service),
            Self::Http(_) | Self::Tcp(_) => None,
        }
    }
}

/// One upstream on one worker.
pub enum AnyUpstream {
    Redis {
        upstream: Rc<RedisUpstream>,
        /// It was known who is the primary when that was last looked at.
        has_primary: Cell<bool>,
    },
    Http(Rc<HttpUpstream>),
    Tcp(Rc<TcpUpstream>),
}

impl AnyUpstream {
    /// Takes part in nothing new.
    pub fn retire(&self) {
        match self {
            Self::Redis { upstream, .. } => upstream.retire(),
            Self::Http(upstream) => upstream.retire(),
            Self::Tcp(upstream) => upstream.retire(),
        }
    }

    /// Ends its connections now.
    pub fn end(&self) {
        match self {
            Self::Redis { upstream, .. } => upstream.end(),
            // Those that are lent end with their exchanges.
            Self::Http(upstream) => upstream.retire(),
            Self::Tcp(upstream) => upstream.retire(),
        }
    }

    /// It has become known who is the primary since this was asked last.
    pub fn has_found_primary(&self) -> bool {
        match self {
            Self::Redis { upstream, has_primary } => upstream.primary().is_some() && !has_primary.replace(true),
            Self::Http(_) | Self::Tcp(_) => false,
        }
    }
}
