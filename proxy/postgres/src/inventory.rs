//! The server connections of all workers, for operators. Each worker reports its own: a request goes to the listener of the same name
//! on each of them, and nothing is kept for it while clients are served.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use weir_base::time::{Time, turn};
use weir_engine::{Mailbox, mailbox, timeout};

use crate::{
    cancelling::CancelCounts,
    service::{PostgresUpstream, Service},
};

/// For the reports of all workers. One that says nothing for so long is left out.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// One server connection.
#[derive(Clone, Debug)]
pub(crate) struct ServerReport {
    pub(crate) id: u64,
    pub(crate) user: String,
    pub(crate) database: String,
    /// Address of its endpoint.
    pub(crate) address: String,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) since: Time,
    /// Since when no client has it. `None`: a client has it, or it is being reset or checked.
    pub(crate) idle_since: Option<Time>,
    pub(crate) is_used: bool,
    pub(crate) is_outdated: bool,
    pub(crate) process: u32,
    pub(crate) has_tls: bool,
}

/// The report of a worker, or of all of them.
#[derive(Default)]
pub(crate) struct Inventory {
    /// By their numbers.
    pub(crate) servers: Vec<ServerReport>,
    /// By pool.
    pub(crate) cancels: HashMap<String, CancelCounts>,
}

/// The request to a worker.
pub(crate) struct InventoryRequest(Mailbox<Inventory>);

impl InventoryRequest {
    /// Sends the report of the worker of `service`.
    pub(crate) fn report(&self, service: &Service) {
        let routes = service.routes();
        let servers = routes.upstreams().iter().flat_map(|upstream| servers(upstream)).collect();
        self.0.send(Inventory { servers, cancels: service.cancelling.counts() });
    }
}

fn servers(upstream: &PostgresUpstream) -> Vec<ServerReport> {
    let endpoints = &upstream.settings().endpoints;
    let report = |one: weir_upstream::pooled::ConnectionStatus<crate::server::PoolKey>| ServerReport {
        id: one.id,
        user: one.key.user_name(),
        database: one.key.database_name(),
        address: endpoints.get(one.endpoint).map(ToString::to_string).unwrap_or_default(),
        local: one.local,
        since: one.since,
        idle_since: one.idle_since,
        is_used: one.is_used,
        is_outdated: one.is_outdated,
        process: one.process,
        has_tls: one.has_tls,
    };
    upstream.connections().into_iter().map(report).collect()
}

/// The reports of all workers about the listener of `service`.
pub(crate) async fn collect(service: &Service) -> Inventory {
    let (core, name) = (service.sessions.core(), service.sessions.name());
    let (sender, reports) = mailbox();
    let mut due = 0;
    for worker in 0..core.workers {
        due += usize::from((core.post)(worker, name, Box::new(InventoryRequest(sender.clone()))));
    }
    let mut all = Inventory::default();
    let deadline = turn::now().saturating_add(REPORT_TIMEOUT);
    while due > 0 {
        let Ok(received) = timeout(deadline.since(turn::now()), reports.receive()).await else { break };
        due = due.saturating_sub(received.len());
        for report in received {
            all.servers.extend(report.servers);
            report.cancels.into_iter().for_each(|(pool, counts)| all.cancels.entry(pool).or_default().add(counts));
        }
    }
    all.servers.sort_unstable_by_key(|server| server.id);
    all
}
