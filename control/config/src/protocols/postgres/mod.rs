//! PostgreSQL.
//!
//! | file | concept |
//! |---|---|
//! | `certificate` | the needs of `auth = "cert"` |
//! | `futile` | settings that look like a limit or like protection and are none |
//! | `keys` | the declarations |
//! | `database` | the databases that clients may name |
//! | `lookup` | users that the server knows |
//! | `rules` | clients that may log in, and how |
//! | `statement_rules` | rules about statements |
//! | `userlist` | users from a file |

mod certificate;
mod database;
mod futile;
mod keys;
mod lookup;
mod rules;
mod statement_rules;
mod userlist;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use weir_postgres::settings::{
    PostgresListenerSettings as ListenerSettings, PostgresUpstreamSettings as UpstreamSettings,
};
use weir_postgres::settings::{TargetSessionAttrs, users};
use weir_upstream::pooled::{PooledSettings, WAITERS_MAX};
use weir_upstream::settings::BalanceSettings;

use crate::checks::{error_at, table_header};
use crate::document::At;
use crate::numbers::Period;
use crate::protocols::listed_users::{self, Remedies};
use crate::protocols::{ListenerContext, NoKeys, Protocol, ProtocolName, Unfit, UpstreamContext};
use crate::reader::Reader;
use crate::sections::FileSection;
use crate::snapshot::{Listener, Upstream};
use crate::texts::{Name, Word};

/// Its listeners share nothing.
pub(crate) type ProcessSettings = ();

/// See [`Protocol`].
pub(crate) struct Postgres;

impl Protocol for Postgres {
    type ListenerKeys = keys::ListenerKeys;
    type UpstreamKeys = keys::UpstreamKeys;
    type FileKeys = NoKeys;
    type TelemetryKeys = NoKeys;
    type Listener = ListenerSettings;
    type Upstream = UpstreamSettings;
    type Process = ProcessSettings;
    type File<'f> = ();

    const ALPN: &'static [&'static str] = &["postgresql"];
    const SHARED_LISTENER_KEYS: &'static [&'static str] = &["user"];

    fn unfit_at_listener(_: ProtocolName) -> &'static [Unfit] {
        &[
            Unfit(&["output_hard_cap"], "remove it: a client that reads slowly delays only itself"),
            Unfit(
                &["redis", "users_file"],
                "write [[listener.user]] with name and password, or userlist in [listener.postgres]",
            ),
            Unfit(&["server_name"], "write protocol = \"tls\", or remove it"),
            Unfit(&["head_timeout"], "see client_login_timeout of [listener.postgres]"),
            Unfit(&["half_close_timeout"], "remove it: a connection ends when its client closes its side"),
            Unfit(&["idle_timeout"], "see client_idle_timeout of [listener.postgres]"),
        ]
    }

    fn unfit_at_upstream(_: ProtocolName) -> &'static [Unfit] {
        const LANES: &[&str] = &["shared_lanes", "pinned_lanes_max", "pinned_lanes_idle_max", "lane_in_flight_max"];
        const ENDPOINTS: &[&str] = &["topology", "read_from", "zone", "sentinel"];
        &[
            Unfit(&["request_timeout"], "see query_timeout of [listener.postgres]"),
            Unfit(&["lane_wait_timeout"], "see query_wait_timeout of [listener.postgres]"),
            Unfit(LANES, "see pool_size of [upstream.postgres]"),
            Unfit(ENDPOINTS, "remove it"),
            Unfit(&["sharding", "reconnect"], "remove it"),
            Unfit(&["redis", "http", "tcp"], "write [upstream.postgres]"),
        ]
    }

    fn upstreams_of_listener(keys: &keys::ListenerKeys) -> Vec<&At<Name>> {
        let all = keys.postgres.database.iter();
        all.flat_map(|one| [one.upstream.as_ref(), one.read_upstream.as_ref()]).flatten().collect()
    }

    fn file(_: &FileSection, _: &mut Reader<'_>) {}

    fn listener((): &(), of: &mut ListenerContext<'_>, reader: &mut Reader<'_>) -> Option<ListenerSettings> {
        futile::check_listener(of, reader);
        certificate::check(of, reader);
        Some(listener(of, reader))
    }

    fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
        upstream(of, reader)
    }

    fn process(_: &FileSection, (): (), _: &[Listener], _: &mut [Upstream], _: &mut Reader<'_>) {}
}

/// Remedies for keys of users that only Redis listeners have.
const REMEDIES: Remedies = Remedies {
    rights: "grant rights at the PostgreSQL server",
    limit: "see pool_size and max_user_connections of [upstream.postgres]",
    login: "write user and password in [upstream.postgres]",
};

/// Settings of a listener.
fn listener(of: &ListenerContext<'_>, reader: &mut Reader<'_>) -> ListenerSettings {
    let section = &of.section.own.postgres.postgres;
    let limit = |period: &Period| Some(period.0).filter(|limit| *limit > Duration::ZERO);
    let in_file = section.userlist.iter().flat_map(|file| &file.value.users).map(|(name, secret)| (&**name, secret));
    let listed = listed_users::users(of, &REMEDIES, reader);
    let users = Arc::new(users(in_file.chain(listed.iter().map(|(name, secret)| (name.as_bytes(), secret)))));
    let (upstreams, databases) = database::databases(of, reader);
    ListenerSettings {
        upstreams,
        databases,
        statement_rules: Arc::new(statement_rules::rules(of, reader)),
        rules: rules::rules(of, reader),
        auth_query: lookup::auth_query(of, &users, reader),
        users,
        admin_users: names(section.admin_users.as_ref()),
        stats_users: names(section.stats_users.as_ref()),
        pool_mode: section.pool_mode.value,
        client_login_timeout: section.client_login_timeout.value.0,
        query_wait_timeout: section.query_wait_timeout.value.0,
        query_wait_notify: limit(&section.query_wait_notify.value),
        query_timeout: limit(&section.query_timeout.value),
        idle_transaction_timeout: limit(&section.idle_transaction_timeout.value),
        client_idle_timeout: limit(&section.client_idle_timeout.value),
        log_min_duration_statement: section.log_min_duration_statement.as_ref().map(|limit| limit.value.0),
    }
}

fn names(list: Option<&At<Vec<At<Word>>>>) -> Vec<String> {
    list.iter().flat_map(|list| &list.value).map(|name| name.value.0.clone()).collect()
}

/// Checks the keys of roles.
fn check_roles(of: &UpstreamContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.postgres.postgres;
    let attrs = &section.target_session_attrs;
    if attrs.value == TargetSessionAttrs::Any {
        if section.role_interval.is_given {
            let what = "has no effect: servers of every role take sessions";
            error_at(
                &section.role_interval,
                path,
                "role_interval",
                what,
                "set target_session_attrs, or remove it",
                reader,
            );
        }
        return;
    }
    if section.user.is_none() {
        let what = "needs user: the gateway logs in to read the role of a server";
        error_at(attrs, path, "target_session_attrs", what, "add user, and password", reader);
    }
    if of.endpoints.len() > ENDPOINTS_MAX {
        let what = format!("supports at most {ENDPOINTS_MAX} endpoints");
        error_at(attrs, path, "target_session_attrs", &what, "split the upstream", reader);
    }
}

/// Endpoints whose roles are known: sessions keep a bit for each.
const ENDPOINTS_MAX: usize = 64;

/// Settings of an upstream.
fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
    let (section, path) = (&of.section.own.postgres.postgres, format!("{}.postgres", of.path));
    if let (Some(password), None) = (&section.password, &section.user) {
        error_at(password, &path, "password", "has no effect without user", "add user, or remove it", reader);
    }
    if section.channel_binding.is_given && of.section.tls.is_none() {
        let what = "has no effect without TLS: there is nothing to bind a login to";
        let help = format!("add {}, or remove it", table_header(&format!("{}.tls", of.path)));
        error_at(&section.channel_binding, &path, "channel_binding", what, &help, reader);
    }
    check_roles(of, &path, reader);
    futile::check_pools(section, &path, reader);
    if let Some(settings) = of.settings.as_mut().filter(|_| !of.section.lane_waiters_max.is_given) {
        settings.lane_waiters_max = WAITERS_MAX;
    }
    UpstreamSettings {
        user: section.user.as_ref().map(|user| user.value.0.clone()),
        password: section.password.as_ref().map(|password| password.value.secret.clone()),
        database: section.database.as_ref().map(|database| database.value.0.clone()),
        channel_binding: section.channel_binding.value,
        target_session_attrs: section.target_session_attrs.value,
        role_interval: section.role_interval.value.0,
        server_reset_query: section.server_reset_query.as_ref().map(|query| query.value.0.clone()),
        pool: PooledSettings {
            balancing: BalanceSettings::default(),
            pool_size: section.pool_size.value,
            min_pool_size: section.min_pool_size.value,
            reserve_pool_size: section.reserve_pool_size.value,
            reserve_pool_timeout: section.reserve_pool_timeout.value.0,
            max_db_connections: section.max_db_connections.as_ref().map(|count| count.value),
            max_user_connections: section.max_user_connections.as_ref().map(|count| count.value),
            server_lifetime: section.server_lifetime.value.0,
            server_idle_timeout: section.server_idle_timeout.value.0,
            server_check_delay: section.server_check_delay.value.0,
            ..PooledSettings::default()
        },
    }
}
