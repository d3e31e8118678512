//! SHOW DATABASES: the databases that clients may name, with their servers.

use std::{collections::HashMap, mem, rc::Rc};

use weir_upstream::pooled::{PoolCounts, Scope};

use super::{
    Console,
    show::TEXTS,
    sockets::divided,
    table::{Cell, Table},
};
use crate::{route::Route, server::PoolKey, service::PostgresUpstream};

const DATABASES: &[&str] = &[
    "name",
    "host",
    "port",
    "database",
    "force_user",
    "pool_size",
    "min_pool_size",
    "reserve_pool_size",
    "server_lifetime",
    "pool_mode",
    "load_balance_hosts",
    "max_connections",
    "current_connections",
    "max_client_connections",
    "current_client_connections",
    "paused",
    "disabled",
];

/// A server of a database: one row, also if several upstreams have it, as the standbys of a database may be endpoints of its own upstream.
struct DatabaseServer<'a> {
    address: String,
    upstream: &'a Rc<PostgresUpstream>,
    counts: Vec<&'a PoolCounts<PoolKey>>,
}

/// The servers of a database, those that serve its reads included.
fn servers<'a>(
    upstreams: &'a [Rc<PostgresUpstream>],
    all: &'a [(Rc<PostgresUpstream>, PoolCounts<PoolKey>)],
    name: &str,
) -> Vec<DatabaseServer<'a>> {
    let mut servers: Vec<DatabaseServer<'_>> = Vec::new();
    for upstream in upstreams {
        for (endpoint, address) in upstream.settings().endpoints.iter().enumerate() {
            let is_here = |(of, one): &&(Rc<PostgresUpstream>, PoolCounts<PoolKey>)| {
                Rc::ptr_eq(of, upstream) && one.endpoint == endpoint && one.key.database_name() == name
            };
            let counts = all.iter().filter(is_here).map(|(_, counts)| counts);
            let address = address.to_string();
            match servers.iter_mut().find(|known| known.address == address) {
                Some(known) => known.counts.extend(counts),
                None => servers.push(DatabaseServer { address, upstream, counts: counts.collect() }),
            }
        }
    }
    servers
}

impl Console<'_> {
    /// One row for each database and server: databases with an entry of their own, and those that clients use.
    pub(super) fn databases(&self) -> Table {
        let mut table = Table::new(DATABASES, TEXTS);
        let (counts, clients) = (self.counts(), self.clients());
        let routes = self.routes();
        let mut names = routes.names();
        names.extend(counts.iter().map(|(_, counts)| counts.key.database_name()));
        names.extend(clients.keys().cloned());
        names.sort_unstable();
        names.dedup();
        for name in names {
            let Some(route) = routes.find(name.as_bytes()) else { continue };
            let upstreams = route.upstreams();
            let mut clients = clients.get(&name).copied().unwrap_or_default();
            for server in servers(&upstreams, &counts, &name) {
                // They are clients of the database, whatever server they use: sums over the rows count each once.
                table.row(self.database(&name, route, &server, mem::take(&mut clients)));
            }
        }
        table.row(self.own());
        table
    }

    /// The clients of each database that are logged in.
    fn clients(&self) -> HashMap<String, u32> {
        let (routes, mut clients) = (self.routes(), HashMap::new());
        for (_, details) in self.entries() {
            let route = routes.find(details.database.as_bytes()).filter(|_| !details.pool.is_empty());
            if let Some(route) = route {
                *clients.entry(route.pool_name(&details.database).to_owned()).or_default() += 1;
            }
        }
        clients
    }

    /// The row of the console: exporters look for it.
    fn own(&self) -> Vec<Cell> {
        let local = self.service.sessions.settings().bind.to_string();
        let name = || Cell::from("pgbouncer");
        let mut row = vec![name(), Cell::Null, divided(&local).1.into(), name(), name(), 2_u32.into()];
        row.extend([0_u32.into(), 0_u32.into(), Cell::Null, "statement".into(), Cell::Null]);
        row.extend((11..17).map(|_| Cell::from(0_u32)));
        row
    }

    fn database(&self, name: &str, route: &Route, server: &DatabaseServer<'_>, clients: u32) -> Vec<Cell> {
        let DatabaseServer { address, upstream, counts } = server;
        let pools = upstream.pooled_settings();
        let (host, port) = divided(address);
        let is_own = |scope: &Scope<PoolKey>| match scope {
            Scope::All => true,
            Scope::Database(paused) => **paused == *name.as_bytes(),
            Scope::Key(_) => false,
        };
        // Also one that no client has used yet.
        let is_paused = upstream.pauses().iter().any(is_own);
        vec![
            name.into(),
            host.into(),
            port.into(),
            route.database(name).into(),
            route.user().map_or(Cell::Null, Into::into),
            pools.pool_size.into(),
            pools.min_pool_size.into(),
            pools.reserve_pool_size.into(),
            pools.server_lifetime.as_secs().to_string().into(),
            route.session.pool_mode.name().into(),
            Cell::Null,
            pools.max_db_connections.unwrap_or_default().into(),
            counts.iter().map(|counts| counts.open).sum::<u32>().into(),
            0_u32.into(),
            clients.into(),
            u32::from(is_paused).into(),
            u32::from(self.service.shared.is_disabled(name.as_bytes())).into(),
        ]
    }
}
