//! The protocols of the gateway: one file each behind the trait [`Protocol`], and the list from which the rest derives.

mod ai;
mod flags;
mod http;
mod mongodb;
mod postgres;
mod redis;
mod tcp;

use std::{any::Any, cell::OnceCell, collections::HashMap, io, rc::Rc, sync::Arc};

use weir_ai::Spend;
use weir_base::time::Time;
use weir_config::{ListenerProtocol, Snapshot, UpstreamProtocol};
use weir_listener::{CoreShare, Service, settings::ListenerSettings};
use weir_postgres::{Proofs, UpgradeRelay, WorkerShare};
use weir_redis::{Insight, InsightShare, RedisShare};
use weir_upstream::{EndpointShare, ExclusiveUpstream, Multiplexer, UpstreamMetrics, settings::UpstreamSettings};

use super::insight::insight_settings;
use crate::upgrade::connection::SessionFields;

/// The state that the protocols keep for all workers of the process.
#[derive(Clone)]
pub struct ProcessProtocols {
    insight: weir_redis::insight::settings::InsightSettings,
    insight_share: Arc<InsightShare>,
    relay: UpgradeRelay,
    proofs: Arc<Proofs>,
    mongodb: weir_mongodb::ProcessShare,
    spend: Arc<Spend>,
}

impl ProcessProtocols {
    /// The state at the start of a process. `spend`: the budgets of AI listeners.
    pub fn new(snapshot: &Snapshot, relay: UpgradeRelay, spend: Arc<Spend>) -> Self {
        Self {
            insight: insight_settings(snapshot),
            insight_share: Arc::default(),
            relay,
            proofs: Arc::default(),
            mongodb: weir_mongodb::ProcessShare::default(),
            spend,
        }
    }

    /// The members of MongoDB sets.
    pub fn mongodb(&self) -> weir_mongodb::ProcessShare {
        self.mongodb.clone()
    }

    /// The state of one worker.
    pub fn on_worker(self, worker: usize) -> WorkerProtocols {
        let seed = Time::now().as_nanos() ^ (worker as u64) << 48;
        let insight = Rc::new(Insight::new(self.insight, self.insight_share, worker, seed));
        let redis = RedisShare { waiting: Rc::default(), insight };
        let postgres = Rc::new(WorkerShare::with_proofs(self.proofs));
        WorkerProtocols {
            worker,
            redis,
            postgres,
            mongodb: self.mongodb,
            relay: self.relay,
            spend: self.spend,
            ai: OnceCell::new(),
        }
    }
}

/// The state that the protocols keep on one worker, for all their listeners.
pub struct WorkerProtocols {
    pub worker: usize,
    pub redis: RedisShare,
    pub postgres: Rc<WorkerShare>,
    /// Members of replica sets, as all workers know them.
    pub mongodb: weir_mongodb::ProcessShare,
    /// The link between the processes of an upgrade.
    pub relay: UpgradeRelay,
    spend: Arc<Spend>,
    /// Made with the first AI listener: at an upgrade the budgets are there by then.
    ai: OnceCell<weir_ai::WorkerShare>,
}

impl WorkerProtocols {
    /// Budgets, cache and issued keys of the process, and the last requests of AI listeners. `None`: another process has the budgets still.
    pub fn ai(&self) -> Option<weir_ai::WorkerShare> {
        if self.ai.get().is_none() {
            let _ = self.ai.set(self.spend.share(self.worker)?);
        }
        self.ai.get().cloned()
    }
}

/// The state that the workers share of one listener, in the form of its protocol.
pub type ListenerShare = Arc<dyn Any + Send + Sync>;

/// An upstream of any protocol on one worker.
pub trait AnyUpstream: Any {
    /// Takes part in nothing new.
    fn retire(&self);

    /// It replaces `before`, which had its name, and goes on with the orders of operators: whichever listener leads there, or has been
    /// renamed.
    fn keep_pauses(&self, _before: &dyn AnyUpstream) {}

    /// Ends its connections now. Those that are lent end with their exchanges.
    fn end(&self) {
        self.retire();
    }
}

impl<M: Multiplexer + 'static> AnyUpstream for ExclusiveUpstream<M> {
    fn retire(&self) {
        Self::retire(self);
    }
}

/// An upstream, and the settings that it was made from.
pub struct BuiltUpstream {
    pub config: weir_config::Upstream,
    pub hard_cap: usize,
    pub upstream: Rc<dyn AnyUpstream>,
}

/// The upstreams of a worker by their names.
#[derive(Default)]
pub struct Upstreams(pub HashMap<Arc<str>, BuiltUpstream>);

impl Upstreams {
    /// The upstream of that name, if it is of that protocol.
    fn named<T: AnyUpstream>(&self, name: &str) -> Option<Rc<T>> {
        let upstream: Rc<dyn Any> = self.0.get(name)?.upstream.clone();
        upstream.downcast().ok()
    }

    /// The upstreams of those names, in their order.
    fn all_named<T: AnyUpstream>(&self, names: &[Arc<str>]) -> Option<Vec<Rc<T>>> {
        names.iter().map(|name| self.named(name)).collect()
    }
}

/// The parts of an upstream, besides the settings of its protocol.
struct UpstreamParts<'a> {
    core: &'a CoreShare,
    protocols: &'a WorkerProtocols,
    settings: UpstreamSettings,
    shares: &'a [Arc<EndpointShare>],
    metrics: UpstreamMetrics,
    /// The most output in bytes that a client may hold before it must not hold up others.
    hard_cap: usize,
    /// This worker runs the health probes.
    probes: bool,
}

/// The parts of a listener, besides the settings of its protocol.
struct ListenerParts<'a> {
    core: &'a CoreShare,
    protocols: &'a WorkerProtocols,
    settings: ListenerSettings,
    share: &'a ListenerShare,
    /// The name of the upstream of the listener.
    upstream: &'a str,
    upstreams: &'a Upstreams,
}

/// A protocol, as a worker makes its upstreams and listeners.
trait Protocol {
    /// The settings of a listener.
    type Listener;
    /// The settings of an upstream.
    type Upstream;
    /// A listener.
    type Service: Service;

    /// Its sessions can go on in another process.
    const MOVES_SESSIONS: bool = false;

    /// Makes an upstream.
    ///
    /// # Errors
    /// The settings name files that cannot be used.
    fn upstream(of: UpstreamParts<'_>, own: &Self::Upstream) -> io::Result<Rc<dyn AnyUpstream>>;

    /// The state that the workers share of a listener, at its start.
    fn listener_share() -> ListenerShare {
        Arc::new(())
    }

    /// Makes a listener. `None`: an upstream could not be made, and the log says why.
    fn service(of: ListenerParts<'_>, own: &Self::Listener) -> Option<Rc<dyn Service>>;

    /// Gives new settings to a listener. `None`: as [`Protocol::service`], and the old ones hold.
    fn update(
        service: &Self::Service,
        settings: ListenerSettings,
        own: &Self::Listener,
        upstream: &str,
        upstreams: &Upstreams,
    ) -> Option<()>;

    /// A session that leaves this process, for a message. The session comes back if it is of another protocol.
    fn encode_session(session: Box<dyn Any + Send>) -> Result<SessionFields, Box<dyn Any + Send>> {
        Err(session)
    }

    /// The session of a message. `None`: it cannot be understood.
    fn decode_session(_: SessionFields) -> Option<Box<dyn Any + Send>> {
        None
    }
}

/// Expands the list of the protocols: the file of each and the type in it that implements [`Protocol`].
macro_rules! protocols {
    ($($file:ident $protocol:ident),+) => {
        /// See [`Protocol::upstream`].
        fn make_upstream(of: UpstreamParts<'_>, protocol: &UpstreamProtocol) -> io::Result<Rc<dyn AnyUpstream>> {
            match protocol {
                $(UpstreamProtocol::$protocol(own) => $file::$protocol::upstream(of, own),)+
            }
        }

        /// See [`Protocol::service`].
        fn make_service(of: ListenerParts<'_>, protocol: &ListenerProtocol) -> Option<Rc<dyn Service>> {
            match protocol {
                $(ListenerProtocol::$protocol(own) => $file::$protocol::service(of, own),)+
            }
        }

        /// See [`Protocol::listener_share`].
        pub fn listener_share(protocol: &ListenerProtocol) -> ListenerShare {
            match protocol {
                $(ListenerProtocol::$protocol(_) => $file::$protocol::listener_share(),)+
            }
        }

        /// See [`Protocol::update`]. `None` also for a listener of another protocol; a reload that changes it is refused before.
        pub fn update(service: &dyn Service, config: &weir_config::Listener, upstreams: &Upstreams) -> Option<()> {
            let (service, settings): (&dyn Any, _) = (service, (*config.settings).clone());
            match &config.protocol {
                $(ListenerProtocol::$protocol(own) => {
                    let service = service.downcast_ref::<<$file::$protocol as Protocol>::Service>()?;
                    $file::$protocol::update(service, settings, own, &config.upstream, upstreams)
                })+
            }
        }

        /// See [`Protocol::MOVES_SESSIONS`].
        pub fn moves_sessions(protocol: &ListenerProtocol) -> bool {
            match protocol {
                $(ListenerProtocol::$protocol(_) => $file::$protocol::MOVES_SESSIONS,)+
            }
        }

        /// See [`Protocol::encode_session`]. `None`: no protocol has a form for it.
        pub fn encode_session(session: Box<dyn Any + Send>) -> Option<SessionFields> {
            let encoded = Err(session);
            $(let encoded = encoded.or_else($file::$protocol::encode_session);)+
            encoded.ok()
        }

        /// See [`Protocol::decode_session`].
        pub fn decode_session(protocol: &ListenerProtocol, fields: SessionFields) -> Option<Box<dyn Any + Send>> {
            match protocol {
                $(ListenerProtocol::$protocol(_) => $file::$protocol::decode_session(fields),)+
            }
        }
    };
}

protocols! {
    redis Redis,
    http Http,
    tcp Tcp,
    postgres Postgres,
    mongodb Mongodb,
    ai Ai,
    flags Flags
}

/// Makes an upstream of one worker.
///
/// # Errors
/// See [`Protocol::upstream`].
pub fn upstream(
    core: &CoreShare,
    protocols: &WorkerProtocols,
    config: &weir_config::Upstream,
    hard_cap: usize,
    shares: &[Arc<EndpointShare>],
) -> io::Result<Rc<dyn AnyUpstream>> {
    let settings = (*config.settings).clone();
    let metrics = UpstreamMetrics::new(&core.metrics, core.events.clone(), settings.name.clone());
    // One worker probes for all: the server need not serve the same probe once per core.
    let probes = core.worker == 0;
    make_upstream(UpstreamParts { core, protocols, settings, shares, metrics, hard_cap, probes }, &config.protocol)
}

/// Makes a listener of one worker. `None`: an upstream could not be made, and the log says why.
pub fn service(
    core: &CoreShare,
    protocols: &WorkerProtocols,
    config: &weir_config::Listener,
    share: &ListenerShare,
    upstreams: &Upstreams,
) -> Option<Rc<dyn Service>> {
    let settings = (*config.settings).clone();
    let of = ListenerParts { core, protocols, settings, share, upstream: &config.upstream, upstreams };
    make_service(of, &config.protocol)
}
