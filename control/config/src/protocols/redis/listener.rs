//! Listeners: from keys to settings.

use std::time::Duration;

use weir_base::ByteSize;
use weir_redis_session::settings::{AUTH_FAILURE_DELAY_MAX, BLOCKING_MAX, CacheSettings, RedisListenerSettings};

use super::keys::ListenerRedisSection;
use super::users;
use crate::checks::{Lowest, error_at, is_public, table_header, warn_at, warn_repeated};
use crate::diagnostic::Span;
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::sections::UpstreamSection;

/// Settings of a listener.
pub(super) fn settings(of: &mut ListenerContext<'_>, reader: &mut Reader<'_>) -> RedisListenerSettings {
    check_hard_cap(of, reader);
    let keys = &of.section.own.redis;
    if let Some(settings) = &mut of.settings {
        settings.output_hard_cap = keys.output_hard_cap.value.bytes();
    }
    let (section, path) = (&keys.redis, format!("{}.redis", of.path));
    relations(section, &path, reader);
    reply_cache(section, &path, reader);
    warn_clear_password(of, reader);
    RedisListenerSettings {
        user: section.user.as_ref().map(|user| user.value.0.clone()),
        password: section.password.as_ref().map(|password| password.value.secret.clone()),
        databases: section.databases.value,
        pipeline_max: section.pipeline_max.value,
        pipeline_bytes: section.pipeline_bytes.value.bytes(),
        args_max: section.args_max.value,
        bulk_bytes_max: section.bulk_bytes_max.value.bytes(),
        stream_bytes: section.stream_bytes.value.bytes(),
        transaction_commands_max: section.transaction_commands_max.value,
        transaction_bytes_max: section.transaction_bytes_max.value.bytes(),
        subscriptions_max: section.subscriptions_max.value,
        blocking_max: blocking_max(section, of.upstream, &path, reader),
        admin_commands: section.admin_commands.value,
        unknown_commands: section.unknown_commands.value,
        auth_failure_delay: section.auth_failure_delay.value.0,
        auth_failure_delay_max: auth_failure_delay_max(section, &path, reader),
        auth_failures_max: section.auth_failures_max.value,
        users: users::users(of.section, of.path, reader),
        cache: section.cache_bytes_max.as_ref().map(|bytes_max| CacheSettings {
            bytes_max: bytes_max.value.bytes(),
            value_bytes_max: section.cache_value_bytes_max.value.bytes(),
            age_max: section.cache_age_max.value.0,
            prefixes: section
                .cache_prefixes
                .iter()
                .flat_map(|list| &list.value)
                .map(|one| one.value.0.clone())
                .collect(),
        }),
    }
}

/// Checks the cap on the waiting output of a client: not below the high-water mark, within the budget of the process.
fn check_hard_cap(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let (path, cap) = (of.path, &of.section.own.redis.output_hard_cap);
    let other = format!("{path}.output_hard_cap");
    Lowest { path, key: "output_high_water", other: &other }.check(&of.section.output_high_water, cap, reader);
    // On a small machine the default of the cap may exceed the budget of the process; then the budget acts first.
    if cap.is_given {
        let total = At {
            value: ByteSize::new(of.limits.buffered_bytes),
            span: of.file.limits.place.0.clone(),
            is_given: of.file.limits.buffered_bytes.is_some(),
        };
        Lowest { path, key: "output_hard_cap", other: "limits.buffered_bytes" }.check(cap, &total, reader);
    }
}

fn relations(section: &ListenerRedisSection, path: &str, reader: &mut Reader<'_>) {
    if let Some(user) = section.user.as_ref().filter(|_| reader.lacks(section.password.as_ref(), path, "password")) {
        error_at(user, path, "user", "has no effect without password", "add password = { env = \"NAME\" }", reader);
    }
    let stream = &section.stream_bytes;
    let bulk = format!("{path}.bulk_bytes_max");
    Lowest { path, key: "stream_bytes", other: &bulk }.check(stream, &section.bulk_bytes_max, reader);
    let pipeline = format!("{path}.pipeline_bytes");
    Lowest { path, key: "stream_bytes", other: &pipeline }.check(stream, &section.pipeline_bytes, reader);
    if let Some(bytes_max) = &section.cache_bytes_max {
        let other = format!("{path}.cache_bytes_max");
        Lowest { path, key: "cache_value_bytes_max", other: &other }.check(
            &section.cache_value_bytes_max,
            bytes_max,
            reader,
        );
    }
}

fn auth_failure_delay_max(section: &ListenerRedisSection, path: &str, reader: &mut Reader<'_>) -> Duration {
    let delay = &section.auth_failure_delay;
    let Some(max) = &section.auth_failure_delay_max else { return AUTH_FAILURE_DELAY_MAX.max(delay.value.0) };
    let other = format!("{path}.auth_failure_delay_max");
    Lowest { path, key: "auth_failure_delay", other: &other }.check(delay, max, reader);
    max.value.0
}

/// At most the pinned lanes of the upstream, or half of them if nothing is written.
fn blocking_max(
    section: &ListenerRedisSection,
    upstream: Option<&UpstreamSection>,
    path: &str,
    reader: &mut Reader<'_>,
) -> u32 {
    let lanes = upstream.map(|upstream| &upstream.own.redis.pinned_lanes_max);
    match (&section.blocking_max, lanes) {
        (Some(blocking), Some(lanes)) => {
            let other = "upstream.pinned_lanes_max";
            Lowest { path, key: "blocking_max", other }.check(blocking, lanes, reader);
            blocking.value
        }
        (Some(blocking), None) => blocking.value,
        (None, Some(lanes)) => BLOCKING_MAX.min(lanes.value / 2),
        (None, None) => BLOCKING_MAX,
    }
}

/// Keys of the reply cache, and those that stand without a cache.
fn reply_cache(section: &ListenerRedisSection, path: &str, reader: &mut Reader<'_>) {
    if section.cache_bytes_max.is_some() {
        for prefix in section.cache_prefixes.iter().flat_map(|list| &list.value) {
            if prefix.value.0.contains('*') {
                let what = "has a `*`, which matches only the character `*`";
                let help = format!("write \"{}\"", prefix.value.0.trim_end_matches('*'));
                warn_at(prefix, path, "cache_prefixes", what, help, reader);
            }
        }
        if let Some(list) = section.cache_prefixes.as_ref() {
            if list.value.is_empty() {
                let help = "name prefixes, or remove it to cache all keys";
                error_at(list, path, "cache_prefixes", "is empty: nothing would be cached", help, reader);
            }
            warn_repeated(list, path, "cache_prefixes", reader);
        }
        return;
    }
    let help = "add cache_bytes_max = \"64MiB\", or remove it";
    let mut refuse = |is_given: bool, span: &Span, key: &str| {
        if is_given {
            let path = format!("{path}.{key}");
            let message = format!("`{path}` has no effect without cache_bytes_max: there is no cache");
            reader.problems.error(span, &path, message, help);
        }
    };
    let (value, age) = (&section.cache_value_bytes_max, &section.cache_age_max);
    refuse(value.is_given, &value.span, "cache_value_bytes_max");
    refuse(age.is_given, &age.span, "cache_age_max");
    if let Some(prefixes) = &section.cache_prefixes {
        refuse(true, &prefixes.span, "cache_prefixes");
    }
}

/// Passwords in clear text across the internet are readable on the way.
fn warn_clear_password(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let keys = &of.section.own.redis;
    let passwords = [
        keys.redis.password.as_ref().map(|password| (&password.span, "redis.password")),
        keys.users_file.as_ref().map(|file| (&file.span, "users_file")),
        keys.user.first().map(|user| (&user.place.0, "user")),
    ];
    let (Some((span, key)), Some(bind), None) =
        (passwords.into_iter().flatten().next(), &of.section.bind, &of.section.tls)
    else {
        return;
    };
    if is_public(&bind.value.0) {
        let path = of.path;
        let message = format!("`{path}`: clients send their password in clear text to {}", bind.value.0);
        let help = format!("add {} with cert_file and key_file", table_header(&format!("{path}.tls")));
        reader.problems.warning(span, &format!("{path}.{key}"), message, help);
    }
}
