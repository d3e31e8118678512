//! The tables of SHOW. Their columns are those of PgBouncer 1.24: exporters and scripts read them.

use std::{rc::Rc, sync::atomic::Ordering::Relaxed};

use weir_base::time::{Time, turn};
use weir_listener::Session as _;
use weir_telemetry::catalog;
use weir_upstream::pooled::PoolCounts;

use super::{
    Console,
    command::{Show, help},
    table::{Cell, Table},
};
use crate::{server::PoolKey, service::PostgresUpstream};

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
const STATS: &[&str] = &[
    "database",
    "total_server_assignment_count",
    "total_xact_count",
    "total_query_count",
    "total_received",
    "total_sent",
    "total_xact_time",
    "total_query_time",
    "total_wait_time",
    "total_client_parse_count",
    "total_server_parse_count",
    "total_bind_count",
    "total_client_login_count",
];
const AVERAGES: &[&str] = &[
    "avg_server_assignment_count",
    "avg_xact_count",
    "avg_query_count",
    "avg_recv",
    "avg_sent",
    "avg_xact_time",
    "avg_query_time",
    "avg_wait_time",
    "avg_client_parse_count",
    "avg_server_parse_count",
    "avg_bind_count",
    "avg_client_login_count",
];
const CLIENTS: &[&str] = &[
    "type",
    "user",
    "database",
    "replication",
    "state",
    "addr",
    "port",
    "local_addr",
    "local_port",
    "connect_time",
    "request_time",
    "wait",
    "wait_us",
    "close_needed",
    "ptr",
    "link",
    "remote_pid",
    "tls",
    "application_name",
    "prepared_statements",
    "id",
];
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
];

impl Console<'_> {
    /// The result of SHOW.
    pub(super) fn table(&self, show: Show) -> Table {
        match show {
            Show::Help | Show::Version => self.version(show),
            Show::Pools => self.pools(),
            Show::Databases => self.databases(),
            Show::Stats => self.stats(true, true),
            Show::StatsTotals => self.stats(true, false),
            Show::StatsAverages => self.stats(false, true),
            Show::Clients => self.clients(),
            Show::Lists => self.lists(),
            Show::Users => self.users(),
            Show::Config => self.config(),
            Show::State => self.state(),
            Show::Mem => Table::new(&["name", "size", "used", "free", "memtotal"], TEXTS),
            Show::Pins => self.pins(),
        }
    }

    fn version(&self, show: Show) -> Table {
        let mut table = Table::new(&["version"], TEXTS);
        let text = match show {
            Show::Help => help(),
            // Exporters look for the name and a number of three parts.
            _ => format!("PgBouncer 1.24.1 (Weir {})", env!("CARGO_PKG_VERSION")),
        };
        table.row(vec![text.into()]);
        table
    }

    /// The pools of all upstreams of the listener.
    pub(super) fn counts(&self) -> Vec<(Rc<PostgresUpstream>, PoolCounts<PoolKey>)> {
        let upstreams = self.routes.upstreams().iter();
        upstreams.flat_map(|upstream| upstream.counts().into_iter().map(|counts| (upstream.clone(), counts))).collect()
    }

    /// The pool mode of a database.
    fn mode(&self, database: &str) -> &'static str {
        let route = self.routes.find(database.as_bytes());
        route.map_or(self.settings.pool_mode, |route| route.session.pool_mode).name()
    }

    fn pools(&self) -> Table {
        let mut table = Table::new(POOLS, TEXTS);
        for (_, counts) in self.counts() {
            let database = counts.key.database_name();
            let mode = self.mode(&database);
            let (wait, none) = (counts.maxwait, || Cell::from(0_u32));
            table.row(vec![
                database.into(),
                counts.key.user_name().into(),
                counts.active.into(),
                counts.waiting.into(),
                none(),
                none(),
                counts.active.into(),
                none(),
                none(),
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
        table
    }

    /// One row for the listener: counters are those of `/metrics`.
    fn stats(&self, has_totals: bool, has_averages: bool) -> Table {
        let (service, own) = (self.service, [&**self.service.sessions.name()]);
        let registry = service.sessions.core().metrics.registry();
        let count = |family, labels: &[&str]| registry.count(family, labels).unwrap_or_default();
        let snapshot = registry.read();
        let micros = |family: &str| {
            let histogram = snapshot.histogram(family, &[("listener", own[0])]);
            histogram.map_or(0, |histogram| histogram.sum() / 1_000)
        };
        let transactions = count(&catalog::POSTGRES_TRANSACTIONS, &own);
        let time = micros("weir_request_duration_seconds");
        let server_time = micros("weir_request_upstream_duration_seconds");
        let totals = [
            transactions,
            transactions,
            count(&catalog::POSTGRES_QUERIES, &own),
            count(&catalog::CLIENT_READ_BYTES, &own),
            count(&catalog::CLIENT_WRITTEN_BYTES, &own),
            server_time,
            server_time,
            time.saturating_sub(server_time),
            count(&catalog::POSTGRES_PARSES, &[own[0], "client"]),
            count(&catalog::POSTGRES_PARSES, &[own[0], "server"]),
            count(&catalog::POSTGRES_BINDS, &own),
            count(&catalog::POSTGRES_LOGINS, &own),
        ];
        let mut columns = vec!["database"];
        columns.extend_from_slice(if has_totals { &STATS[1..] } else { &[] });
        columns.extend_from_slice(if has_averages { AVERAGES } else { &[] });
        let mut table = Table::new(&columns, TEXTS);
        let mut row: Vec<Cell> = vec![own[0].into()];
        if has_totals {
            row.extend(totals.map(Cell::from));
        }
        if has_averages {
            let seconds = turn::now().as_nanos() / 1_000_000_000;
            let rate = |total: u64| total / seconds.max(1);
            let each = |total: u64| total / transactions.max(1);
            let is_time = |place: usize| (5..8).contains(&place);
            let averages = totals.iter().enumerate().map(|(place, total)| match is_time(place) {
                true => each(*total),
                false => rate(*total),
            });
            row.extend(averages.map(Cell::from));
        }
        table.row(row);
        table
    }

    fn clients(&self) -> Table {
        let mut table = Table::new(CLIENTS, TEXTS);
        let now = turn::now();
        for entry in self.connection.handle().table().entries() {
            if entry.listener != *self.service.sessions.name() {
                continue;
            }
            let details = entry.details().clone();
            let (addr, port) = entry.peer.rsplit_once(':').unwrap_or((&entry.peer, "0"));
            let is_busy = entry.in_flight.load(Relaxed) > 0;
            let ago = |at: Time| format!("{}s ago", now.since(at).as_secs());
            table.row(vec![
                "C".into(),
                details.user.into(),
                details.database.into(),
                "none".into(),
                if is_busy { "active" } else { "idle" }.into(),
                addr.into(),
                port.parse::<u32>().unwrap_or_default().into(),
                Cell::Null,
                Cell::Null,
                ago(entry.accepted_at).into(),
                ago(Time::from_nanos(entry.active_at.load(Relaxed))).into(),
                0_u32.into(),
                0_u32.into(),
                u32::from(entry.is_killed()).into(),
                format!("{:#x}", entry.id).into(),
                "".into(),
                0_u32.into(),
                "".into(),
                details.name.into(),
                0_u32.into(),
                entry.id.into(),
            ]);
        }
        table
    }

    fn lists(&self) -> Table {
        let mut table = Table::new(&["list", "items"], TEXTS);
        let counts = self.counts();
        let sum = |of: fn(&PoolCounts<PoolKey>) -> u32| counts.iter().map(|(_, one)| of(one)).sum::<u32>();
        let entries = self.connection.handle().table().entries();
        let own = entries.iter().filter(|entry| entry.listener == *self.service.sessions.name()).count();
        let databases: std::collections::HashSet<_> = counts.iter().map(|(_, one)| one.key.database_name()).collect();
        let rows: [(&str, usize); 14] = [
            ("databases", databases.len()),
            ("users", self.user_names().len()),
            ("peers", 0),
            ("pools", counts.len()),
            ("peer_pools", 0),
            ("free_clients", 0),
            ("used_clients", own),
            ("login_clients", 0),
            ("free_servers", sum(|one| one.idle + one.used) as usize),
            ("used_servers", sum(|one| one.active) as usize),
            ("dns_names", 0),
            ("dns_zones", 0),
            ("dns_queries", 0),
            ("dns_pending", 0),
        ];
        for (name, items) in rows {
            table.row(vec![name.into(), items.into()]);
        }
        table
    }

    fn users(&self) -> Table {
        let mut table = Table::new(&["name", "pool_mode"], TEXTS);
        for name in self.user_names() {
            table.row(vec![name.into(), Cell::Null]);
        }
        table
    }

    fn config(&self) -> Table {
        let mut table = Table::new(&["key", "value", "default", "changeable"], TEXTS);
        let (settings, pools) = (&self.settings, self.routes.upstreams()[0].pooled_settings());
        let max = self.service.sessions.settings().connections_max;
        let rows = [
            ("pool_mode", settings.pool_mode.name().to_owned()),
            ("max_client_conn", max.to_string()),
            ("default_pool_size", pools.pool_size.to_string()),
            ("min_pool_size", pools.min_pool_size.to_string()),
            ("reserve_pool_size", pools.reserve_pool_size.to_string()),
            ("reserve_pool_timeout", pools.reserve_pool_timeout.as_secs().to_string()),
            ("max_db_connections", pools.max_db_connections.unwrap_or_default().to_string()),
            ("max_user_connections", pools.max_user_connections.unwrap_or_default().to_string()),
            ("query_wait_timeout", settings.query_wait_timeout.as_secs().to_string()),
            ("server_lifetime", pools.server_lifetime.as_secs().to_string()),
            ("server_idle_timeout", pools.server_idle_timeout.as_secs().to_string()),
            ("server_check_delay", pools.server_check_delay.as_secs().to_string()),
        ];
        for (key, value) in rows {
            table.row(vec![key.into(), value.into(), Cell::Null, "no".into()]);
        }
        table
    }

    fn state(&self) -> Table {
        let mut table = Table::new(&["key", "value"], TEXTS);
        let is_paused = self.counts().iter().any(|(upstream, counts)| upstream.is_paused(&counts.key));
        for (key, holds) in [("active", !is_paused), ("paused", is_paused), ("suspended", false)] {
            table.row(vec![key.into(), if holds { "yes" } else { "no" }.into()]);
        }
        table
    }

    /// The clients that keep their servers, and why.
    fn pins(&self) -> Table {
        let mut table = Table::new(&["id", "user", "database", "reason"], TEXTS);
        for entry in self.connection.handle().table().entries() {
            let details = entry.details().clone();
            if entry.listener == *self.service.sessions.name() && !details.pinned.is_empty() {
                table.row(vec![entry.id.into(), details.user.into(), details.database.into(), details.pinned.into()]);
            }
        }
        table
    }
}
