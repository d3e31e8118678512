//! The plan that the control thread gives to the workers: a snapshot with everything that only the control thread can make.

use std::{any::Any, collections::HashMap, io, os::fd::OwnedFd, sync::Arc};

use weir_config::Snapshot;
use weir_engine::{accept::AcceptedConnection, settings::Address, tls};
use weir_listener::{Admission, ConnectionPermit, Drain, ListenerAdmission, Succession, SuccessionTicket};
use weir_upstream::EndpointShare;

use super::{
    departures::DepartureQueue,
    listening::OwnSockets,
    protocols::{self, ListenerShare, WorkerProtocols},
};

/// A configuration ready to run: files read, addresses bound, budgets made.
pub struct Plan {
    pub snapshot: Arc<Snapshot>,
    pub listeners: HashMap<Arc<str>, ListenerPlan>,
    /// State that the workers share for each upstream, one per endpoint.
    pub shares: HashMap<Arc<str>, Vec<Arc<EndpointShare>>>,
}

/// Objects of one listener besides its settings.
pub struct ListenerPlan {
    pub admission: ListenerAdmission,
    pub succession: Arc<Succession>,
    /// The state that its workers share, in the form of its protocol.
    pub share: ListenerShare,
    pub tls: Option<Arc<tls::ServerConfig>>,
}

/// An admitted connection on its way to the worker that serves it.
pub struct AdmittedConnection {
    pub accepted: AcceptedConnection,
    pub permit: ConnectionPermit,
    /// Its place among those of its source, if it has to be served after others of them.
    pub place: Option<SuccessionTicket>,
}

/// A message to a worker.
pub enum Mail {
    /// Run this configuration.
    Apply(Arc<Plan>),
    /// Accept on these, the worker's own sockets of new listeners. It comes when every worker has the plan in its mailbox: a
    /// connection that one accepts may be for another.
    Accept(OwnSockets),
    /// A connection that another worker accepted.
    Connection { listener: Arc<str>, admitted: AdmittedConnection },
    /// Accept what waits in the queues, then no more.
    StopAccepting,
    /// A connection that another process began, numbered and admitted.
    Adopt { listener: Arc<str>, moved: Box<Moved>, permit: ConnectionPermit },
    /// Accept no more, for another process does; on the `untaken` listeners as after [`Mail::StopAccepting`]. Connections of
    /// the `movable` ones go to that process.
    HandOver { untaken: Arc<[Arc<str>]>, movable: Arc<[Arc<str>]>, departures: DepartureQueue },
    /// Look at the state of the protocols on the worker, or change it.
    Visit(Box<dyn FnOnce(&WorkerProtocols) + Send>),
    /// A message from a session of a listener to one on another worker.
    Deliver { listener: Arc<str>, message: Box<dyn Any + Send> },
    /// Nothing to do: dropped, it tells that all mail before has been done.
    Reached(Arc<()>),
    /// End the sessions.
    Drain(Drain),
    /// End what is left, and the worker.
    Stop,
}

/// A client's connection that comes from the process before.
pub struct Moved {
    /// Its place among those of its client. The ones before it were served by the other process.
    pub place: SuccessionTicket,
    /// Its socket.
    pub socket: OwnedFd,
    /// Its number.
    pub id: u64,
    /// Address of the client.
    pub peer: String,
    /// Where its session stands, in the form of its protocol.
    pub session: Box<dyn Any + Send>,
}

/// TLS contexts from the files of the listeners, in the order of the listeners.
pub struct TlsContexts(Vec<Option<Arc<tls::ServerConfig>>>);

impl TlsContexts {
    /// Reads them.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub fn read(snapshot: &Snapshot) -> io::Result<Self> {
        let tls = |listener: &weir_config::Listener| {
            let config = listener.settings.tls.as_ref().map(tls::server_config).transpose();
            config.map_err(io::Error::other)
        };
        snapshot.listeners.iter().map(tls).collect::<io::Result<_>>().map(Self)
    }
}

impl Plan {
    /// Makes a plan of `snapshot`, keeping the budgets of listeners, and the health and the connections of upstreams that stay. The budgets get
    /// their new limits here, and this cannot fail: what can be refused has to be known before.
    pub fn new(snapshot: Arc<Snapshot>, tls: TlsContexts, admission: &Admission, previous: Option<&Plan>) -> Self {
        let mut tls = tls.0.into_iter();
        let mut listeners = HashMap::new();
        for listener in &snapshot.listeners {
            let settings = &listener.settings;
            let kept = previous.and_then(|plan| plan.listeners.get(&settings.name));
            let own = match kept {
                Some(kept) => kept.admission.with_limits(settings.connections_max, settings.connections_per_source_max),
                None => admission.listener(settings.connections_max, settings.connections_per_source_max),
            };
            let tls = tls.next().flatten();
            let share = kept.map_or_else(|| protocols::listener_share(&listener.protocol), |kept| kept.share.clone());
            let succession = kept.map_or_else(Arc::default, |kept| kept.succession.clone());
            listeners.insert(settings.name.clone(), ListenerPlan { admission: own, succession, share, tls });
        }
        let shares = |upstream: &weir_config::Upstream| {
            let name = &upstream.settings.name;
            let before = previous.and_then(|plan| Some((plan.snapshot.upstream(name)?, plan.shares.get(name)?)));
            // Known by its address: an endpoint that is down stays so when another endpoint, or a setting, is changed.
            let kept = |address: &Address| {
                let (old, shares) = before?;
                let share = shares.get(old.settings.endpoints.iter().position(|old| old == address)?)?;
                Some(share.after_reload(&old.settings, &upstream.settings))
            };
            let endpoints = upstream.settings.endpoints.iter();
            (name.clone(), endpoints.map(|address| kept(address).unwrap_or_default()).collect())
        };
        let shares = snapshot.upstreams.iter().map(shares).collect();
        Self { snapshot, listeners, shares }
    }
}
