//! Upstreams: from keys to settings.

use weir_engine::settings::Address;
use weir_mongodb::settings::{AuthMechanism, MEMBERS_MAX, MongodbUpstreamSettings};
use weir_upstream::pooled::{PooledSettings, WAITERS_MAX};

use super::keys::UpstreamMongodbSection;
use crate::checks::{error_at, table_header, warn_at, warn_repeated};
use crate::protocols::UpstreamContext;
use crate::reader::Reader;

/// Settings of an upstream.
pub(super) fn settings(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> MongodbUpstreamSettings {
    let (section, path) = (&of.section.own.mongodb.mongodb, format!("{}.mongodb", of.path));
    check_login(of, &path, reader);
    check_endpoints(of, reader);
    if let Some(compressors) = &section.compressors {
        warn_repeated(compressors, &path, "compressors", reader);
    }
    if section.min_pool_size.value > section.pool_size.value {
        let what = format!("is above pool_size, {}: no pool has so many connections", section.pool_size.value);
        warn_at(&section.min_pool_size, &path, "min_pool_size", &what, "lower it, or raise pool_size", reader);
    }
    if let Some(settings) = of.settings.as_mut().filter(|_| !of.section.lane_waiters_max.is_given) {
        settings.lane_waiters_max = WAITERS_MAX;
    }
    MongodbUpstreamSettings {
        user: section.user.as_ref().map(|user| user.value.0.clone()),
        password: section.password.as_ref().map(|password| password.value.secret.clone()),
        auth_mechanism: section.auth_mechanism.value,
        auth_source: section.auth_source.value.0.clone(),
        replica_set: section.replica_set.as_ref().map(|name| name.value.0.clone()),
        compressors: section.compressors.iter().flat_map(|list| &list.value).map(|one| one.value).collect(),
        heartbeat_interval: section.heartbeat_interval.value.0,
        pool: PooledSettings {
            pool_size: section.pool_size.value,
            min_pool_size: section.min_pool_size.value,
            server_lifetime: section.server_lifetime.value.0,
            server_idle_timeout: section.server_idle_timeout.value.0,
            server_check_delay: section.server_check_delay.value.0,
            ..PooledSettings::default()
        },
    }
}

/// The gateway's own login, and the keys that depend on its mechanism.
fn check_login(of: &UpstreamContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    let mechanism = &section.auth_mechanism;
    match mechanism.value {
        AuthMechanism::Scram => check_password(section, path, reader),
        AuthMechanism::Plain => {
            check_password(section, path, reader);
            if of.section.tls.is_none() {
                let what = "needs TLS: it sends the password in clear text";
                let help = format!("add {}, or write \"scram\"", table_header(&format!("{}.tls", of.path)));
                error_at(mechanism, path, "auth_mechanism", what, help, reader);
            }
        }
        AuthMechanism::X509 => {
            if let Some(password) = &section.password {
                let what = "has no effect: the certificate of the gateway is its proof";
                error_at(password, path, "password", what, "remove it", reader);
            }
            let has_certificate = of.section.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some());
            if !has_certificate {
                let header = table_header(&format!("{}.tls", of.path));
                let help = format!("write cert_file and key_file in {header}");
                error_at(mechanism, path, "auth_mechanism", "needs a certificate of the gateway", help, reader);
            }
        }
    }
    check_source(section, path, reader);
}

fn check_password(section: &UpstreamMongodbSection, path: &str, reader: &mut Reader<'_>) {
    match (&section.user, &section.password) {
        (None, Some(password)) => {
            error_at(password, path, "password", "has no effect without user", "add user, or remove it", reader);
        }
        (Some(user), None) if reader.lacks(section.password.as_ref(), path, "password") => {
            let help = "add password = { env = \"NAME\" }";
            error_at(user, path, "user", "has no effect without password", help, reader);
        }
        (None, None) if section.auth_mechanism.is_given => {
            let what = "has no effect without user";
            let help = "add user and password, or remove it";
            error_at(&section.auth_mechanism, path, "auth_mechanism", what, help, reader);
        }
        _ => {}
    }
}

fn check_source(section: &UpstreamMongodbSection, path: &str, reader: &mut Reader<'_>) {
    if !section.auth_source.is_given {
        return;
    }
    let what = match section.auth_mechanism.value {
        AuthMechanism::Scram if section.user.is_none() => "has no effect without user",
        AuthMechanism::Scram => return,
        AuthMechanism::Plain | AuthMechanism::X509 => {
            "has no effect: users of this mechanism are in the database $external"
        }
    };
    error_at(&section.auth_source, path, "auth_source", what, "remove it", reader);
}

/// One server, several mongos, or the first members of a set.
fn check_endpoints(of: &UpstreamContext<'_>, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    if let Some(extra) = of.endpoints.get(MEMBERS_MAX) {
        let what = format!("has more than {MEMBERS_MAX} entries, the members that a replica set may have");
        error_at(extra, of.path, "endpoints", &what, "split the upstream", reader);
    }
    let socket = of.endpoints.iter().find(|endpoint| matches!(endpoint.value.0, Address::Unix(_)));
    if let (Some(socket), Some(_)) = (socket, &section.replica_set) {
        let what = "is a Unix socket; the members of a replica set name each other by host and port";
        error_at(socket, of.path, "endpoints", what, "name a member by host and port, or remove replica_set", reader);
    }
}
