//! The databases that clients of a listener may name.

use std::collections::HashSet;
use std::sync::Arc;

use weir_postgres::settings::{PoolMode, PostgresDatabaseSettings, TargetSessionAttrs};

use super::futile;
use crate::checks::{error_at, find_upstream};
use crate::document::At;
use crate::numbers::Period;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::secret::SecretRef;
use crate::section::section;
use crate::sections::UpstreamSection;
use crate::texts::{Name, Text, Word};

/// Every name that no other entry has.
pub(super) const OTHERS: &str = "*";
/// The name of the admin console.
const CONSOLE: &str = "pgbouncer";

section! {
    /// A database that clients of a PostgreSQL listener may name. If there are entries, every other name is refused with SQLSTATE
    /// 3D000, unless an entry has the name `*`. If there are none, the `upstream` of the listener serves all names.
    pub(crate) struct DatabaseSection {
        /// Name that clients give. `*` stands for every name without an entry.
        required name: Text;
        /// Upstream of the database. If absent, that of the listener.
        optional upstream: Name;
        /// Upstream whose standbys serve statements that only read. Its `target_session_attrs` is `standby` or `prefer-standby`,
        /// that of the upstream for writes is `primary`. A client reads its own writes. If absent, all statements go to the
        /// `upstream`.
        optional read_upstream: Name;
        /// Maximum lag of a standby that serves reads. A lower limit than `role_interval` of `upstream` plus `role_interval` of
        /// `read_upstream` excludes all standbys at times. If absent, there is no limit.
        optional replica_lag_max: Period => Period::millis(100)..=Period::secs(86_400);
        /// Database at the servers. If absent, the database of the upstream, or else the name that the client gives.
        optional database: Text;
        /// Pool mode of the database. If absent, `pool_mode` of `[listener.postgres]`.
        optional pool_mode: PoolMode;
        /// User for the login at the servers. If absent, the user of the upstream.
        optional user: Word;
        /// Password of `user`.
        optional password: SecretRef;
    }
}

/// Checks the upstreams that a database names.
fn check_upstreams(of: &ListenerContext<'_>, one: &DatabaseSection, path: &str, reader: &mut Reader<'_>) {
    let own = one.upstream.as_ref().map(|name| find_upstream(of.file, name, path, "upstream", reader));
    let Some(name) = &one.read_upstream else {
        if let Some(lag) = &one.replica_lag_max {
            let what = "has no effect: there are no standbys to read from";
            error_at(lag, path, "replica_lag_max", what, "add read_upstream, or remove it", reader);
        }
        return;
    };
    let attrs = |upstream: &UpstreamSection| upstream.own.postgres.postgres.target_session_attrs.value;
    let (writes, reads) = (own.unwrap_or(of.upstream), find_upstream(of.file, name, path, "read_upstream", reader));
    if let (Some(lag), Some(writes), Some(reads)) = (&one.replica_lag_max, writes, reads) {
        futile::check_lag(lag, [writes, reads], path, reader);
    }
    let (writes, reads) = (writes.map(attrs), reads.map(attrs));
    if writes.is_some_and(|attrs| attrs != TargetSessionAttrs::Primary) {
        let what = "needs target_session_attrs = \"primary\" at the upstream for writes";
        error_at(name, path, "read_upstream", what, "set it in [upstream.postgres] of that upstream", reader);
    }
    if reads.is_some_and(|attrs| !matches!(attrs, TargetSessionAttrs::Standby | TargetSessionAttrs::PreferStandby)) {
        let what = "names an upstream that may be a primary";
        error_at(name, path, "read_upstream", what, "set target_session_attrs = \"prefer-standby\" there", reader);
    }
    let mode = one.pool_mode.as_ref().map_or(of.section.own.postgres.postgres.pool_mode.value, |mode| mode.value);
    if mode == PoolMode::Session {
        let what = "has no effect in session mode, where a client keeps its server";
        error_at(name, path, "read_upstream", what, "set pool_mode = \"transaction\", or remove it", reader);
    }
}

/// The names of all upstreams of a listener, its own first, and its databases.
pub(super) fn databases(
    of: &ListenerContext<'_>,
    reader: &mut Reader<'_>,
) -> (Vec<Arc<str>>, Vec<PostgresDatabaseSettings>) {
    let section = &of.section.own.postgres.postgres;
    let mut upstreams: Vec<Arc<str>> = of.section.upstream.iter().map(|name| name.value.0.clone()).collect();
    let (mut databases, mut names, mut is_own_used) =
        (Vec::new(), HashSet::new(), section.database.is_empty() || section.auth_user.is_some());
    for (index, one) in section.database.iter().enumerate() {
        let path = format!("{}.postgres.database[{index}]", of.path);
        let mut number_of = |upstream: &At<Name>| {
            let number = upstreams.iter().position(|known| *known == upstream.value.0);
            number.unwrap_or_else(|| {
                upstreams.push(upstream.value.0.clone());
                upstreams.len() - 1
            })
        };
        let number = one.upstream.as_ref().map_or(0, &mut number_of);
        let read_upstream = one.read_upstream.as_ref().map(&mut number_of);
        check_upstreams(of, one, &path, reader);
        is_own_used |= number == 0;
        if let (Some(password), None) = (&one.password, &one.user) {
            error_at(password, &path, "password", "has no effect without user", "add user, or remove it", reader);
        }
        let Some(name) = &one.name else { continue };
        for (key, text) in [("name", Some(name)), ("database", one.database.as_ref())] {
            if let Some(text) = text.filter(|text| text.value.0.is_empty() || text.value.0.contains('\0')) {
                error_at(text, &path, key, "is not a database name", "write a name", reader);
            }
        }
        if name.value.0 == CONSOLE {
            error_at(name, &path, "name", "is the name of the admin console", "give it another name", reader);
        }
        if !names.insert(&name.value.0) {
            let what = format!("names \"{}\", as another database of this listener does", name.value.0);
            error_at(name, &path, "name", &what, "give each database one table", reader);
        }
        databases.push(PostgresDatabaseSettings {
            name: Some(name.value.0.clone()).filter(|name| name != OTHERS),
            upstream: number,
            read_upstream,
            replica_lag_max: one.replica_lag_max.as_ref().map(|period| period.value.0),
            database: one.database.as_ref().map(|database| database.value.0.clone()),
            pool_mode: one.pool_mode.as_ref().map_or(section.pool_mode.value, |mode| mode.value),
            user: one.user.as_ref().map(|user| user.value.0.clone()),
            password: one.password.as_ref().map(|password| password.value.secret.clone()),
        });
    }
    if let Some(own) = of.section.upstream.as_ref().filter(|_| !is_own_used) {
        let what = "has no effect: each database names another upstream";
        let help = "name the upstream of one of them here";
        error_at(own, of.path, "upstream", what, help, reader);
    }
    (upstreams, databases)
}
