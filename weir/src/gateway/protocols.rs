//! The protocols of the gateway: how a worker makes their upstreams and their listeners.

mod redis;

use std::{any::Any, collections::HashMap, io, rc::Rc, sync::Arc};

use weir_config::{ListenerProtocol, Snapshot, UpstreamProtocol};
use weir_http::{Http2Origins, HttpUpstream};
use weir_listener::{CoreShare, Service};
use weir_redis::{Insight, InsightShare, RedisShare, RedisUpstream, RespLane};
use weir_tcp::TcpUpstream;
use weir_upstream::{ConnectionProbe, Health, Upstream, UpstreamMetrics};

use super::insight::insight_settings;
use crate::upgrade::connection::SessionFields;

/// The state that the protocols keep for all workers of the process.
#[derive(Clone)]
pub struct ProcessProtocols {
    insight: weir_redis::insight::settings::InsightSettings,
    insight_share: Arc<InsightShare>,
}

impl ProcessProtocols {
    /// The state at the start of a process.
    pub fn new(snapshot: &Snapshot) -> Self {
        Self { insight: insight_settings(snapshot), insight_share: Arc::default() }
    }

    /// The state of one worker.
    pub fn on_worker(self, worker: usize) -> WorkerProtocols {
        let insight = Rc::new(Insight::new(self.insight, self.insight_share, worker));
        WorkerProtocols { worker, redis: RedisShare { waiting: Rc::default(), insight } }
    }
}

/// The state that the protocols keep on one worker, for all their listeners.
pub struct WorkerProtocols {
    pub worker: usize,
    pub redis: RedisShare,
}

/// The state that the workers share of one listener, in the form of its protocol.
pub type ListenerShare = Arc<dyn Any + Send + Sync>;

/// That state at the start of the listener.
pub fn listener_share(protocol: &ListenerProtocol) -> ListenerShare {
    match protocol {
        ListenerProtocol::Redis(_) => Arc::new(weir_redis::ListenerShare::default()),
        ListenerProtocol::Http(_) | ListenerProtocol::Tcp(_) => Arc::new(()),
    }
}

/// An upstream of any protocol on one worker.
pub trait AnyUpstream: Any {
    /// Takes part in nothing new.
    fn retire(&self);

    /// Ends its connections now. Those that are lent end with their exchanges.
    fn end(&self) {
        self.retire();
    }
}

impl AnyUpstream for RedisUpstream {
    fn retire(&self) {
        RedisUpstream::retire(self);
    }

    fn end(&self) {
        RedisUpstream::end(self);
    }
}

impl AnyUpstream for HttpUpstream {
    fn retire(&self) {
        HttpUpstream::retire(self);
    }
}

impl AnyUpstream for TcpUpstream {
    fn retire(&self) {
        TcpUpstream::retire(self);
    }
}

/// An upstream, and the settings that it was made from.
pub struct Made {
    pub config: weir_config::Upstream,
    pub hard_cap: usize,
    pub upstream: Rc<dyn AnyUpstream>,
}

/// The upstreams of a worker by their names.
pub type Upstreams = HashMap<Arc<str>, Made>;

/// Makes an upstream of one worker. `hard_cap`: the most output in bytes that a client may hold before it must not hold up others.
pub fn upstream(
    core: &CoreShare,
    config: &weir_config::Upstream,
    hard_cap: usize,
    health: &[Arc<Health>],
) -> io::Result<Rc<dyn AnyUpstream>> {
    let settings = (*config.settings).clone();
    let metrics = UpstreamMetrics::new(&core.metrics, core.log.clone(), settings.name.clone());
    // One worker probes for all: the server need not answer the same question once per core.
    let probes = core.worker == 0;
    Ok(match &config.protocol {
        UpstreamProtocol::Redis(redis) => {
            Upstream::new(settings, RespLane::new((**redis).clone()), health, metrics, hard_cap, probes)?
        }
        UpstreamProtocol::Http(http) => {
            let probe = probes.then(|| http.probe.clone());
            let http2 = http.http2.map(|http2| Http2Origins::new(http2, core.bytes.clone()));
            HttpUpstream::new(settings, http.lanes.clone(), http2, health, metrics, probe)?
        }
        UpstreamProtocol::Tcp(lanes) => {
            let probe = probes.then_some(ConnectionProbe);
            TcpUpstream::new(settings, (**lanes).clone(), None, health, metrics, probe)?
        }
    })
}

/// Makes a listener of one worker. `None`: an upstream could not be made, and the log says why.
pub fn service(
    core: &CoreShare,
    protocols: &WorkerProtocols,
    config: &weir_config::Listener,
    share: &ListenerShare,
    upstreams: &Upstreams,
) -> Option<Rc<dyn Service>> {
    let (settings, core) = ((*config.settings).clone(), core.clone());
    Some(match &config.protocol {
        ListenerProtocol::Redis(own) => {
            let upstream = named::<RedisUpstream>(upstreams, &config.upstream)?;
            let share = share.clone().downcast().ok()?;
            weir_redis::Service::new((core, protocols.redis.clone()), settings, (**own).clone(), upstream, share)
        }
        ListenerProtocol::Http(own) => {
            let upstreams = all_named(upstreams, &own.routes.upstreams)?;
            weir_http::Service::new(core, settings, (**own).clone(), upstreams)
        }
        ListenerProtocol::Tcp(own) => {
            let upstreams = all_named(upstreams, &own.upstreams)?;
            weir_tcp::Service::new(core, settings, (**own).clone(), upstreams)
        }
    })
}

/// Gives new settings to a listener that stays. A reload that changes its protocol is refused before.
pub fn update(service: &Rc<dyn Service>, config: &weir_config::Listener, upstreams: &Upstreams) {
    let settings = (*config.settings).clone();
    let service: &dyn Any = &**service;
    match &config.protocol {
        ListenerProtocol::Redis(own) => {
            let service = service.downcast_ref::<weir_redis::Service>();
            if let Some((service, upstream)) = service.zip(named(upstreams, &config.upstream)) {
                service.update(settings, (**own).clone(), upstream);
            }
        }
        ListenerProtocol::Http(own) => {
            let service = service.downcast_ref::<weir_http::Service>();
            if let Some((service, upstreams)) = service.zip(all_named(upstreams, &own.routes.upstreams)) {
                service.update(settings, (**own).clone(), upstreams);
            }
        }
        ListenerProtocol::Tcp(own) => {
            let service = service.downcast_ref::<weir_tcp::Service>();
            if let Some((service, upstreams)) = service.zip(all_named(upstreams, &own.upstreams)) {
                service.update(settings, (**own).clone(), upstreams);
            }
        }
    }
}

/// Sessions of the protocol can go on in another process.
pub fn moves_sessions(protocol: &ListenerProtocol) -> bool {
    matches!(protocol, ListenerProtocol::Redis(_))
}

/// A session that leaves this process, for a message. `None`: its protocol has no form for it.
pub fn encode_session(session: Box<dyn Any + Send>) -> Option<SessionFields> {
    session.downcast().ok().map(|session| redis::encode_session(*session))
}

/// The session of a message, for a listener of that protocol. `None`: it cannot be understood.
pub fn decode_session(protocol: &ListenerProtocol, fields: SessionFields) -> Option<Box<dyn Any + Send>> {
    match protocol {
        ListenerProtocol::Redis(_) => Some(Box::new(redis::decode_session(fields)?)),
        ListenerProtocol::Http(_) | ListenerProtocol::Tcp(_) => None,
    }
}

/// The upstream of that name, if it is of that protocol.
fn named<T: AnyUpstream>(upstreams: &Upstreams, name: &str) -> Option<Rc<T>> {
    let upstream: Rc<dyn Any> = upstreams.get(name)?.upstream.clone();
    upstream.downcast().ok()
}

/// The upstreams of those names, in their order.
fn all_named<T: AnyUpstream>(upstreams: &Upstreams, names: &[Arc<str>]) -> Option<Vec<Rc<T>>> {
    names.iter().map(|name| named(upstreams, name)).collect()
}
