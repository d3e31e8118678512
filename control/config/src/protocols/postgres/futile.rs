//! Settings that look like a limit or like protection and are none.

pub(super) mod hba;
mod statements;

use std::time::Duration;

use weir_postgres::settings::Method;

use super::keys::UpstreamPostgresSection;
use crate::checks::warn_at;
use crate::document::At;
use crate::numbers::Period;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::sections::UpstreamSection;

/// Those of a listener.
pub(super) fn check_listener(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let (section, path) = (&of.section.own.postgres.postgres, format!("{}.postgres", of.path));
    statements::check(of, reader);
    if section.hba.is_empty() && section.auth.value == Method::Trust && has_unproven_users(of) {
        let what = "accepts every client: none has to prove the password of its [[listener.user]]";
        let help = "remove auth, or the users";
        warn_at(&section.auth, &path, "auth", what, help, reader);
    }
}

/// The limit of lag of a database. `upstreams` are those of its primary and of its standbys: the looks at both make a standby older.
pub(super) fn check_lag(lag: &At<Period>, upstreams: [&UpstreamSection; 2], path: &str, reader: &mut Reader<'_>) {
    let interval = |upstream: &UpstreamSection| upstream.own.postgres.postgres.role_interval.value.0;
    let age: Duration = upstreams.into_iter().map(interval).sum();
    if lag.value.0 < age {
        let what = format!("is below {age:?}, the possible age of role checks: all standbys are excluded at times");
        let help = "raise it, or lower role_interval of both upstreams";
        warn_at(lag, path, "replica_lag_max", &what, help, reader);
    }
}

/// The listener has users, and without a proof of their passwords nothing uses these: the gateway logs in as a user of its own.
fn has_unproven_users(of: &ListenerContext<'_>) -> bool {
    let has_login = of.upstream.is_some_and(|upstream| upstream.own.postgres.postgres.user.is_some());
    has_login && !of.section.own.redis.user.is_empty()
}

/// Those of an upstream.
pub(super) fn check_pools(section: &UpstreamPostgresSection, path: &str, reader: &mut Reader<'_>) {
    let most = section.pool_size.value;
    if section.min_pool_size.value > most {
        let what = format!("is above pool_size, {most}: no pool has so many connections");
        warn_at(&section.min_pool_size, path, "min_pool_size", &what, "lower it, or raise pool_size", reader);
    }
    let shared =
        [(&section.max_db_connections, "max_db_connections"), (&section.max_user_connections, "max_user_connections")];
    for (limit, key) in shared {
        let Some(limit) = limit.as_ref().filter(|limit| limit.value < most) else { continue };
        let what = format!("is below pool_size, {most}: no pool reaches its size");
        warn_at(limit, path, key, &what, "raise it, or lower pool_size", reader);
    }
    if section.reserve_pool_timeout.is_given && section.reserve_pool_size.value == 0 {
        let what = "has no effect without reserve_pool_size";
        warn_at(
            &section.reserve_pool_timeout,
            path,
            "reserve_pool_timeout",
            what,
            "add reserve_pool_size, or remove it",
            reader,
        );
    }
}
