//! The tables of SHOW. Their columns are those of PgBouncer 1.24: exporters and scripts read them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    rc::Rc,
};

use weir_engine::settings::Address;
use weir_upstream::pooled::{PoolCounts, PooledSettings};

use super::{
    Console,
    command::{PARAMETERS, Show},
    set,
    sockets::Wanted,
    table::{Cell, Table},
};
use crate::{inventory, server::PoolKey, service::PostgresUpstream};

const PEER_POOLS: [&str; 5] =
    ["peer_id", "cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active_cancel", "sv_login"];
const USERS: [&str; 8] = [
    "name",
    "pool_size",
    "reserve_pool_size",
    "pool_mode",
    "max_user_connections",
    "current_connections",
    "max_user_client_connections",
    "current_client_connections",
];
const POOLS: &[&str] = &[
    "database",
    "user",
    "cl_active",
    "cl_waiting",
    "cl_active_cancel_req",
    "cl_waiting_cancel_req",
    "sv_active",
    "sv_active_cancel",
    "sv_being_canceled",
    "sv_idle",
    "sv_used",
    "sv_tested",
    "sv_login",
    "maxwait",
    "maxwait_us",
    "pool_mode",
    "load_balance_hosts",
];
/// The columns that are texts.
pub(super) const TEXTS: &[&str] = &[
    "database",
    "user",
    "pool_mode",
    "load_balance_hosts",
    "name",
    "host",
    "force_user",
    "type",
    "replication",
    "state",
    "addr",
    "local_addr",
    "connect_time",
    "request_time",
    "ptr",
    "link",
    "tls",
    "application_name",
    "list",
    "key",
    "value",
    "default",
    "changeable",
    "version",
    "reason",
    "server_lifetime",
    "since",
    "hostname",
    "addrs",
    "zonename",
    "mode",
];

/// The pool of the console, which has no server: PgBouncer shows its own, and programs take an empty table for an error.
fn own_pool(clients: usize) -> Vec<Cell> {
    let name = || Cell::from("pgbouncer");
    let mut row = vec![name(), name(), clients.into()];
    row.extend((3..15).map(|_| Cell::from(0_u32)));
    row.extend(["statement".into(), Cell::Null]);
    row
}

/// Pools by database and user. PgBouncer has one for each such pair, and exporters refuse a second row of one: here further upstreams,
/// endpoints and credentials of the user may have connections of their own.
fn by_name(all: impl IntoIterator<Item = PoolCounts<PoolKey>>) -> BTreeMap<(String, String), PoolCounts<PoolKey>> {
    let mut pools: BTreeMap<_, PoolCounts<PoolKey>> = BTreeMap::new();
    for counts in all {
        let name = (counts.key.database_name(), counts.key.user_name());
        match pools.get_mut(&name) {
            Some(known) => known.add(&counts),
            None => drop(pools.insert(name, counts)),
        }
    }
    pools
}

impl Console<'_> {
    /// The result of SHOW. `None`: it has no rows.
    pub(super) async fn table(&self, show: Show) -> Option<Table> {
        Some(match show {
            Show::Help => return None,
            Show::Version => self.version(),
            Show::Pools => self.pools().await,
            Show::Databases => self.databases(),
            Show::Stats => self.stats(),
            Show::StatsTotals => self.stats_totals(),
            Show::StatsAverages => self.stats_averages(),
            Show::Totals => self.totals(),
            Show::Clients => self.sockets(Wanted::Clients).await,
            Show::Servers => self.sockets(Wanted::Servers).await,
            Show::Sockets => self.sockets(Wanted::Sockets).await,
            Show::ActiveSockets => self.sockets(Wanted::ActiveSockets).await,
            Show::Lists => self.lists(),
            Show::Users => self.users(),
            Show::Config => self.config(),
            Show::State => self.state(),
            Show::Mem => self.memory(),
            Show::DnsHosts => self.dns_hosts(),
            // Nothing here transfers zones, and cancel requests find their worker without peers.
            Show::DnsZones => Table::new(&["zonename", "serial", "count"], TEXTS),
            Show::Peers => Table::new(&["peer_id", "host", "port", "pool_size"], TEXTS),
            Show::PeerPools => Table::new(&PEER_POOLS, TEXTS),
            Show::Pins => self.pins(),
            Show::Listeners => self.listeners(),
            Show::Parameter(place) => {
                let (name, value) = PARAMETERS[place];
                let mut table = Table::new(&[name], &[name]);
                table.row(vec![value.into()]);
                table
            }
        })
    }

    fn version(&self) -> Table {
        let mut table = Table::new(&["version"], TEXTS);
        // Exporters look for the name and a number of three parts.
        table.row(vec![format!("PgBouncer 1.24.1 (Weir {})", env!("CARGO_PKG_VERSION")).into()]);
        table
    }

    /// The pools of all upstreams of the listener.
    pub(super) fn counts(&self) -> Vec<(Rc<PostgresUpstream>, PoolCounts<PoolKey>)> {
        let upstreams = self.upstreams().into_iter();
        upstreams
            .flat_map(|upstream| upstream.counts().into_iter().map(move |counts| (upstream.clone(), counts)))
            .collect()
    }

    /// The pool mode of a database.
    fn mode(&self, database: &str) -> &'static str {
        let route = self.routes().find(database.as_bytes()).cloned();
        route.map_or_else(|| self.settings().pool_mode, |route| route.session.pool_mode).name()
    }

    async fn pools(&self) -> Table {
        let mut table = Table::new(POOLS, TEXTS);
        let entries = self.entries();
        let cancels = inventory::collect(self.service).await.cancels;
        for ((database, user), counts) in by_name(self.counts().into_iter().map(|(_, counts)| counts)) {
            let mode = self.mode(&database);
            let (wait, pool) = (counts.maxwait, counts.key.to_string());
            // One that waits for another pool counts there.
            let clients = entries.iter().filter(|(entry, details)| match entry.waiting_since() {
                Some(_) => entry.awaited_pool(details).pool == pool,
                None => details.pool == pool,
            });
            let clients = clients.count() as u32;
            let cancels = cancels.get(&pool).copied().unwrap_or_default();
            table.row(vec![
                database.into(),
                user.into(),
                clients.saturating_sub(counts.waiting).into(),
                counts.waiting.into(),
                cancels.active.into(),
                cancels.waiting.into(),
                counts.active.saturating_sub(cancels.held).into(),
                cancels.active.into(),
                cancels.held.into(),
                counts.idle.into(),
                counts.used.into(),
                counts.tested.into(),
                counts.login.into(),
                wait.as_secs().into(),
                wait.subsec_micros().into(),
                mode.into(),
                Cell::Null,
            ]);
        }
        let consoles = entries.iter().filter(|(_, details)| details.database.as_bytes() == super::DATABASE).count();
        table.row(own_pool(consoles));
        table
    }

    fn lists(&self) -> Table {
        let mut table = Table::new(&["list", "items"], TEXTS);
        let counts = self.counts();
        let sum = |of: fn(&PoolCounts<PoolKey>) -> u32| counts.iter().map(|(_, one)| of(one)).sum::<u32>() as usize;
        let entries = self.entries();
        let login = entries.iter().filter(|(_, details)| details.user.is_empty()).count();
        let databases: HashSet<_> = counts.iter().map(|(_, one)| one.key.database_name()).collect();
        let hosts = self.hosts().len();
        let pools = by_name(counts.iter().map(|(_, one)| one.clone())).len();
        let rows: [(&str, usize); 14] = [
            ("databases", databases.len()),
            ("users", self.user_names().len()),
            ("peers", 0),
            ("pools", pools),
            ("peer_pools", 0),
            ("free_clients", 0),
            ("used_clients", entries.len()),
            ("login_clients", login),
            ("free_servers", 0),
            ("used_servers", sum(|one| one.open)),
            ("dns_names", hosts),
            ("dns_zones", 0),
            ("dns_queries", 0),
            ("dns_pending", 0),
        ];
        for (name, items) in rows {
            table.row(vec![name.into(), items.into()]);
        }
        table
    }

    /// Users of the listener and of its console, and those that have a pool.
    fn user_names(&self) -> BTreeSet<String> {
        let settings = self.settings();
        let listed = settings.admin_users.iter().chain(&settings.stats_users).cloned();
        let pooled = self.counts().into_iter().map(|(_, counts)| counts.key.user_name());
        let clients = self.entries().into_iter().map(|(_, details)| details.user);
        listed.chain(pooled).chain(clients).filter(|name| !name.is_empty()).collect()
    }

    fn users(&self) -> Table {
        let mut table = Table::new(&USERS, TEXTS);
        let (counts, entries) = (self.counts(), self.entries());
        for name in self.user_names() {
            let servers = counts.iter().filter(|(_, one)| one.key.user_name() == name);
            let most = servers.clone().find_map(|(upstream, _)| upstream.pooled_settings().max_user_connections);
            let clients = entries.iter().filter(|(_, details)| details.user == name).count();
            table.row(vec![
                name.clone().into(),
                Cell::Null,
                Cell::Null,
                Cell::Null,
                most.unwrap_or_default().into(),
                servers.map(|(_, one)| one.open).sum::<u32>().into(),
                0_u32.into(),
                clients.into(),
            ]);
        }
        table
    }

    fn config(&self) -> Table {
        let mut table = Table::new(&["key", "value", "default", "changeable"], TEXTS);
        let settings = self.settings();
        for (key, value) in set::values(&settings) {
            table.row(vec![key.into(), value.into(), Cell::Null, "yes".into()]);
        }
        let max = self.service.sessions.settings().connections_max;
        let upstreams = self.upstreams();
        let Some(pools) = upstreams.first().map(|upstream| upstream.pooled_settings()) else { return table };
        let count = |count: Option<u32>| count.unwrap_or_default().to_string();
        let default = PooledSettings::default();
        let row = |of: fn(&PooledSettings) -> String| (of(pools), Some(of(&default)));
        let rows = [
            ("pool_mode", (settings.pool_mode.name().to_owned(), Some("transaction".to_owned()))),
            ("max_client_conn", (max.to_string(), None)),
            ("default_pool_size", row(|pools| pools.pool_size.to_string())),
            ("min_pool_size", row(|pools| pools.min_pool_size.to_string())),
            ("reserve_pool_size", row(|pools| pools.reserve_pool_size.to_string())),
            ("reserve_pool_timeout", row(|pools| set::seconds(pools.reserve_pool_timeout))),
            ("max_db_connections", (count(pools.max_db_connections), Some("0".to_owned()))),
            ("max_user_connections", (count(pools.max_user_connections), Some("0".to_owned()))),
            ("server_lifetime", row(|pools| set::seconds(pools.server_lifetime))),
            ("server_idle_timeout", row(|pools| set::seconds(pools.server_idle_timeout))),
            ("server_check_delay", row(|pools| set::seconds(pools.server_check_delay))),
            ("admin_users", (settings.admin_users.join(", "), Some(String::new()))),
            ("stats_users", (settings.stats_users.join(", "), Some(String::new()))),
        ];
        for (key, (value, default)) in rows {
            table.row(vec![key.into(), value.into(), default.into(), "no".into()]);
        }
        table
    }

    fn state(&self) -> Table {
        let mut table = Table::new(&["key", "value"], TEXTS);
        let is_paused = self.upstreams().iter().any(|upstream| upstream.is_all_paused());
        for (key, holds) in [("active", !is_paused), ("paused", is_paused), ("suspended", false)] {
            table.row(vec![key.into(), if holds { "yes" } else { "no" }.into()]);
        }
        table
    }

    /// The names of servers. Addresses of a name are found when a connection is made, and are not kept.
    fn hosts(&self) -> BTreeSet<String> {
        let upstreams = self.upstreams();
        let all = upstreams.iter().flat_map(|upstream| upstream.settings().endpoints.clone());
        let names = all.filter_map(|endpoint| match endpoint {
            Address::Host { name, .. } => Some(name.to_string()),
            _ => None,
        });
        names.collect()
    }

    fn dns_hosts(&self) -> Table {
        let mut table = Table::new(&["hostname", "ttl", "addrs"], TEXTS);
        for host in self.hosts() {
            table.row(vec![host.into(), Cell::Null, Cell::Null]);
        }
        table
    }

    /// Memory by its owners: the objects of each client and server, and the bytes that wait, of all listeners.
    fn memory(&self) -> Table {
        let mut table = Table::new(&["name", "size", "used", "free", "memtotal"], TEXTS);
        let clients = self.entries().len();
        let servers: u32 = self.counts().iter().map(|(_, one)| one.open).sum();
        let snapshot = self.service.sessions.core().metrics.registry().read();
        let buffered = snapshot.gauge("weir_buffered_bytes", &[]).unwrap_or_default().max(0) as usize;
        let rows = [
            ("client_cache", crate::connection::CLIENT_BYTES, clients),
            ("server_cache", PostgresUpstream::CONNECTION_BYTES, servers as usize),
            ("buffered_bytes", 1, buffered),
        ];
        for (name, size, used) in rows {
            table.row(vec![name.into(), size.into(), used.into(), 0_u32.into(), (size * used).into()]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_postgres_session::users::Credential;

    use super::*;
    use crate::settings::{AuthQuerySettings, BindingMode};

    fn counts(user: &str, credential: Credential, endpoint: usize) -> PoolCounts<PoolKey> {
        let (user, database, query) = (user.to_owned(), "shop".to_owned(), String::new());
        let lookups = AuthQuerySettings { user, credential, database, query, timeout: Duration::ZERO };
        let key = PoolKey::of_lookups(&lookups, BindingMode::Prefer);
        let maxwait = Duration::from_secs(1 + endpoint as u64);
        let (active, idle, used, tested, login, waiting, open) = (1, 2, 3, 4, 5, 6, 15);
        PoolCounts { key, endpoint, active, idle, used, tested, login, waiting, maxwait, open }
    }

    #[test]
    fn pools_of_one_user_and_database_are_one() {
        let other = || Credential::Password("another".into());
        let all = [
            counts("app", Credential::None, 0),
            counts("app", Credential::None, 1),
            counts("app", other(), 0),
            counts("web", Credential::None, 0),
        ];
        let pools = by_name(all.clone());
        let names: Vec<_> = pools.keys().map(|(database, user)| (&**database, &**user)).collect();
        assert_eq!(names, [("shop", "app"), ("shop", "web")]);
        let app = &pools[&("shop".to_owned(), "app".to_owned())];
        assert_eq!([app.active, app.idle, app.used, app.tested, app.login, app.waiting], [3, 6, 9, 12, 15, 18]);
        assert_eq!((app.open, app.maxwait), (45, Duration::from_secs(2)));
        assert_eq!(pools[&("shop".to_owned(), "web".to_owned())], all[3]);
    }
}
