//! Listeners: from section to settings.

use std::sync::Arc;

use weir_base::ByteSize;
use weir_http::settings::ForwardedFields;
use weir_listener::settings::{
    LimitSettings, ListenerSettings, OUTPUT_HIGH_WATER_BYTES, OUTPUT_LOW_WATER_BYTES, Protocol, ProxyProtocol,
};
use weir_redis_session::settings::{AUTH_FAILURE_DELAY_MAX, BLOCKING_MAX, CacheSettings, RedisListenerSettings};

use crate::checks::{Lowest, error_at, find_upstream, is_public, knee, policy, route, table_header, tls, unfit, users};
use crate::document::At;
use crate::http::{self, ListenerHttpSection};
use crate::reader::Reader;
use crate::sections::{FileSection, ListenerRedisSection, ListenerSection, UpstreamSection};
use crate::snapshot::{Listener, ListenerProtocol};
use crate::tcp;

/// A low-water mark that is not written is the high one divided by this.
const HIGH_TO_LOW_WATER: u64 = OUTPUT_HIGH_WATER_BYTES / OUTPUT_LOW_WATER_BYTES;
const _: () = assert!(HIGH_TO_LOW_WATER == 4, "the reference says a quarter");

/// Every listener that can be made; the others were reported.
pub(super) fn listeners(
    file: &FileSection,
    routes: &[route::Checked],
    limits: &LimitSettings,
    reader: &mut Reader<'_>,
) -> Vec<Listener> {
    let sections = file.listener.iter().enumerate();
    sections.filter_map(|(index, section)| listener(file, section, index, routes, limits, reader)).collect()
}

fn listener(
    file: &FileSection,
    section: &ListenerSection,
    index: usize,
    routes: &[route::Checked],
    limits: &LimitSettings,
    reader: &mut Reader<'_>,
) -> Option<Listener> {
    let path = format!("listener[{index}]");
    let upstream = find_upstream(file, section.upstream.as_ref()?, &path, "upstream", reader);
    for (index, one) in section.server_name.iter().enumerate() {
        if let Some(named) = &one.upstream {
            find_upstream(file, named, &format!("{path}.server_name[{index}]"), "upstream", reader);
        }
    }
    check_output(file, section, &path, limits, reader);
    check_proxy(section, &path, reader);
    let tls_path = format!("{path}.tls");
    let protocols: &[&str] = match section.protocol.as_ref().map(|protocol| protocol.value) {
        Some(Protocol::Http) => &["h2", "http/1.1"],
        Some(Protocol::Redis | Protocol::Tcp | Protocol::Tls) | None => &[],
    };
    let tls = section.tls.as_ref().map(|tls| tls::server(tls, protocols, &tls_path, reader));
    let mut redis = redis(&section.redis, upstream, &format!("{path}.redis"), reader);
    unfit::listener(section, &path, reader);
    if section.protocol.as_ref().is_none_or(|protocol| protocol.value == Protocol::Redis) {
        redis.users = users::users(section, &path, reader);
        warn_clear_password(section, &path, reader);
    }
    let knee = knee::knee(file, section, upstream, &path, reader);
    let connections_max = within(&section.connections_max, &file.limits.connections, &path, "connections_max", reader);
    let per_source = "connections_per_source_max";
    let connections_per_source_max =
        within(&section.connections_per_source_max, &file.limits.connections_per_source, &path, per_source, reader);
    let trusted = section.proxy_trusted.iter().flat_map(|list| &list.value);
    let default_sample = &file.telemetry.access_log.sample;
    let settings = ListenerSettings {
        name: Arc::clone(&section.name.as_ref()?.value.0),
        bind: section.bind.as_ref()?.value.0.clone(),
        protocol: section.protocol.as_ref()?.value,
        connections_max,
        connections_per_source_max,
        proxy_protocol: section.proxy_protocol.value,
        proxy_trusted: trusted.map(|net| net.value).collect(),
        tls: match tls {
            Some(tls) => Some(tls?),
            None => None,
        },
        backlog: section.backlog.value,
        output_high_water: section.output_high_water.value.bytes(),
        output_low_water: low_water(section),
        output_hard_cap: section.output_hard_cap.value.bytes(),
        head_timeout: section.head_timeout.value.0,
        idle_timeout: section.idle_timeout.as_ref().map(|timeout| timeout.value.0),
        half_close_timeout: section.half_close_timeout.value.0,
        access_log_sample: section.access_log_sample.as_ref().unwrap_or(default_sample).value.0,
        requests_per_second_per_core: knee.as_ref().and_then(|knee| knee::rate_per_core(knee, section)),
    };
    let upstream = Arc::clone(&section.upstream.as_ref()?.value.0);
    let protocol = match settings.protocol {
        Protocol::Redis => ListenerProtocol::Redis(Arc::new(redis)),
        Protocol::Http => {
            let http_path = format!("{path}.http");
            check_hops(&section.http, &http_path, reader);
            check_via(&section.http, &http_path, reader);
            check_half_close(section, &path, reader);
            check_windows(&section.http, &http_path, reader);
            for (key, upstream) in section.http.policies().upstreams() {
                find_upstream(file, upstream, &http_path, key, reader);
            }
            let rules = policy::rules(&section.http.policies(), &http_path, reader);
            let name = section.name.as_ref()?;
            if rules.wants_authorization_twice() {
                let what = "asks for two kinds of credentials in one Authorization field";
                error_at(name, &path, "name", what, "give one of them a header of its own", reader);
            }
            let routes = route::of_listener(routes, &name.value.0, upstream.clone(), &rules, reader);
            let retry = section.http.retry.settings(&format!("{http_path}.retry"), reader);
            ListenerProtocol::Http(Arc::new(http::listener(&section.http, routes, retry)))
        }
        protocol @ (Protocol::Tcp | Protocol::Tls) => {
            ListenerProtocol::Tcp(Arc::new(tcp::listener(file, section, protocol, &path, reader)))
        }
    };
    Some(Listener { settings: Arc::new(settings), protocol, upstream, knee })
}

/// A limit of the listener, which cannot be above the limit of the process.
fn within(own: &Option<At<u32>>, process: &At<u32>, path: &str, key: &'static str, reader: &mut Reader<'_>) -> u32 {
    let Some(own) = own else { return process.value };
    let other = match key {
        "connections_max" => "limits.connections",
        _ => "limits.connections_per_source",
    };
    Lowest { path, key, other }.check(own, process, reader);
    own.value
}

/// The written low-water mark, or the one that keeps its distance from the high one.
fn low_water(section: &ListenerSection) -> u64 {
    match &section.output_low_water {
        Some(low) => low.value.bytes(),
        None => section.output_high_water.value.bytes() / HIGH_TO_LOW_WATER,
    }
}

fn check_output(
    file: &FileSection,
    section: &ListenerSection,
    path: &str,
    limits: &LimitSettings,
    reader: &mut Reader<'_>,
) {
    let (high, cap) = (&section.output_high_water, &section.output_hard_cap);
    let low = section.output_low_water.as_ref().filter(|low| low.value >= high.value);
    if let Some(low) = low {
        let what = format!("({}) is not below output_high_water ({})", low.value, high.value);
        let help = "leave it out for a quarter of output_high_water";
        error_at(low, path, "output_low_water", &what, help, reader);
    }
    let other = format!("{path}.output_hard_cap");
    Lowest { path, key: "output_high_water", other: &other }.check(high, cap, reader);
    let total = At {
        value: ByteSize::new(limits.buffered_bytes),
        span: file.limits.place.0.clone(),
        is_given: file.limits.buffered_bytes.is_some(),
    };
    // On a small machine the default of the cap may exceed the budget of the process; then the budget acts first.
    if cap.is_given {
        Lowest { path, key: "output_hard_cap", other: "limits.buffered_bytes" }.check(cap, &total, reader);
    }
}

fn check_proxy(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let Some(trusted) = &section.proxy_trusted else { return };
    if section.proxy_protocol.value == ProxyProtocol::Off {
        let help = "set proxy_protocol = \"any\", \"v1\" or \"v2\", or remove proxy_trusted";
        error_at(trusted, path, "proxy_trusted", "has no effect while proxy_protocol is \"off\"", help, reader);
    }
    if trusted.value.is_empty() {
        let help = "name the balancers' networks; leave the key out to believe every peer";
        error_at(trusted, path, "proxy_trusted", "is empty, so nobody could connect", help, reader);
    }
}

/// Proxies in front are believed by one key and replaced by another.
fn check_hops(section: &ListenerHttpSection, path: &str, reader: &mut Reader<'_>) {
    let hops = &section.trusted_hops;
    if hops.value > 0 && section.forwarded.value == ForwardedFields::Replace {
        let what = "believes proxies in front, and forwarded = \"replace\" takes away what they say";
        error_at(hops, path, "trusted_hops", what, "write forwarded = \"append\"", reader);
    }
}

/// How long half a connection is served says nothing where none is.
fn check_half_close(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let timeout = &section.half_close_timeout;
    if timeout.is_given && !section.http.half_close.value {
        let what = "has no effect: a client that closes its direction has left";
        let help = "add half_close = true to [listener.http], or remove it";
        error_at(timeout, path, "half_close_timeout", what, help, reader);
    }
}

fn check_windows(section: &ListenerHttpSection, path: &str, reader: &mut Reader<'_>) {
    let (initial, max) = (&section.http2_stream_window, &section.http2_stream_window_max);
    // One that is not written follows the other.
    if initial.is_given && max.is_given {
        let other = format!("{path}.http2_stream_window_max");
        Lowest { path, key: "http2_stream_window", other: &other }.check(initial, max, reader);
    }
}

fn check_via(section: &ListenerHttpSection, path: &str, reader: &mut Reader<'_>) {
    if let Some(name) = &section.via
        && !weir_http_codec::token::is_token(name.value.0.as_bytes())
    {
        error_at(name, path, "via", "is no name of a proxy", "use letters, digits and hyphens", reader);
    }
}

/// Passwords in clear text across the internet are readable on the way.
fn warn_clear_password(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let passwords = [
        section.redis.password.as_ref().map(|password| (&password.span, "redis.password")),
        section.users_file.as_ref().map(|file| (&file.span, "users_file")),
        section.user.first().map(|user| (&user.place.0, "user")),
    ];
    let (Some((span, key)), Some(bind), None) = (passwords.into_iter().flatten().next(), &section.bind, &section.tls)
    else {
        return;
    };
    if is_public(&bind.value.0) {
        let message = format!("`{path}`: clients send their password in clear text to {}", bind.value.0);
        let help = format!("add {} with cert_file and key_file", table_header(&format!("{path}.tls")));
        reader.problems.warning(span, &format!("{path}.{key}"), message, help);
    }
}

fn redis(
    section: &ListenerRedisSection,
    upstream: Option<&UpstreamSection>,
    path: &str,
    reader: &mut Reader<'_>,
) -> RedisListenerSettings {
    if let (Some(user), None) = (&section.user, &section.password) {
        error_at(user, path, "user", "stands without password", "add password = { env = \"NAME\" }", reader);
    }
    let bulk = format!("{path}.bulk_bytes_max");
    Lowest { path, key: "stream_bytes", other: &bulk }.check(&section.stream_bytes, &section.bulk_bytes_max, reader);
    let pipeline = format!("{path}.pipeline_bytes");
    Lowest { path, key: "stream_bytes", other: &pipeline }.check(
        &section.stream_bytes,
        &section.pipeline_bytes,
        reader,
    );
    if let Some(bytes_max) = &section.cache_bytes_max {
        let other = format!("{path}.cache_bytes_max");
        Lowest { path, key: "cache_value_bytes_max", other: &other }.check(
            &section.cache_value_bytes_max,
            bytes_max,
            reader,
        );
    }
    let delay = &section.auth_failure_delay;
    let auth_failure_delay_max = match &section.auth_failure_delay_max {
        Some(max) => {
            let other = format!("{path}.auth_failure_delay_max");
            Lowest { path, key: "auth_failure_delay", other: &other }.check(delay, max, reader);
            max.value.0
        }
        None => AUTH_FAILURE_DELAY_MAX.max(delay.value.0),
    };
    let lanes = upstream.map(|upstream| &upstream.pinned_lanes_max);
    let blocking_max = match (&section.blocking_max, lanes) {
        (Some(blocking), Some(lanes)) => {
            let other = "upstream.pinned_lanes_max";
            Lowest { path, key: "blocking_max", other }.check(blocking, lanes, reader);
            blocking.value
        }
        (Some(blocking), None) => blocking.value,
        (None, Some(lanes)) => BLOCKING_MAX.min(lanes.value / 2),
        (None, None) => BLOCKING_MAX,
    };
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
        blocking_max,
        admin_commands: section.admin_commands.value,
        unknown_commands: section.unknown_commands.value,
        auth_failure_delay: section.auth_failure_delay.value.0,
        auth_failure_delay_max,
        auth_failures_max: section.auth_failures_max.value,
        users: None,
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
