//! SHOW DATABASES: the databases that clients may name, with their servers.

use super::{
    Console,
    show::TEXTS,
    sockets::divided,
    table::{Cell, Table},
};
use crate::{route::Route, server::PoolKey};
use weir_upstream::pooled::{PoolCounts, Scope};

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

impl Console<'_> {
    /// One row for each database and server: those with an entry of their own, and those that clients use.
    pub(super) fn databases(&self) -> Table {
        let mut table = Table::new(DATABASES, TEXTS);
        let counts = self.counts();
        let routes = self.routes();
        let mut names = routes.names();
        names.extend(counts.iter().map(|(_, counts)| counts.key.database_name()));
        names.sort_unstable();
        names.dedup();
        for name in names {
            let Some(route) = routes.find(name.as_bytes()) else { continue };
            let is_own = |(upstream, one): &&(std::rc::Rc<_>, PoolCounts<PoolKey>)| {
                std::rc::Rc::ptr_eq(upstream, &route.upstream) && one.key.database_name() == name
            };
            let own: Vec<_> = counts.iter().filter(is_own).map(|(_, counts)| counts).collect();
            for endpoint in 0..route.upstream.settings().endpoints.len() {
                let here: Vec<_> = own.iter().filter(|counts| counts.endpoint == endpoint).copied().collect();
                table.row(self.database(&name, route, endpoint, &here));
            }
        }
        table.row(self.own());
        table
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

    fn database(&self, name: &str, route: &Route, endpoint: usize, counts: &[&PoolCounts<PoolKey>]) -> Vec<Cell> {
        let pools = route.upstream.pooled_settings();
        let address = route.upstream.settings().endpoints[endpoint].to_string();
        let (host, port) = divided(&address);
        let is_own = |scope: &Scope<PoolKey>| match scope {
            Scope::All => true,
            Scope::Database(paused) => **paused == *name.as_bytes(),
            Scope::Key(_) => false,
        };
        // Also one that no client has used yet.
        let is_paused = route.upstream.pauses().iter().any(is_own);
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
            counts.iter().map(|counts| counts.active + counts.waiting).sum::<u32>().into(),
            u32::from(is_paused).into(),
            u32::from(self.service.shared.is_disabled(name.as_bytes())).into(),
        ]
    }
}
