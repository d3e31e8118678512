//! Keys that do nothing because of what other keys say. They are read and legal, and somebody may rely on them.

use weir_http::settings::Upgrades;
use weir_listener::settings::Protocol;
use weir_route::host::Labels;
use weir_telemetry::Level;

use crate::checks::{Lowest, error_at, spelling, warn_at};
use crate::document::At;
use crate::domain::Handling;
use crate::http::{self, CompressionSection, OriginVersion, RetrySection, UpstreamHttpSection};
use crate::numbers::Period;
use crate::policy::{CorsSection, JwtSection, RateKeyChoice, RateLimitSection, Written};
use crate::reader::Reader;
use crate::route::{CookieSection, RouteSection};
use crate::section::Section;
use crate::sections::{FileSection, ListenerRedisSection, ListenerSection, TelemetrySection, UpstreamSection};
use crate::snapshot::LogTarget;
use crate::texts::Word;

/// Of the whole file.
pub(super) fn file(file: &FileSection, reader: &mut Reader<'_>) {
    telemetry(file, &file.telemetry, reader);
    for (index, section) in file.listener.iter().enumerate() {
        let path = format!("listener[{index}]");
        match section.protocol.as_ref().map(|protocol| protocol.value) {
            Some(Protocol::Http) => http_listener(file, section, &path, reader),
            Some(Protocol::Redis) => reply_cache(&section.redis, &format!("{path}.redis"), reader),
            _ => {}
        }
    }
    for (index, section) in file.upstream.iter().enumerate() {
        upstream(section, &format!("upstream[{index}]"), reader);
    }
}

fn http_listener(file: &FileSection, section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    let http = &section.http;
    let http_path = format!("{path}.http");
    if section.idle_timeout.is_some() && http.keep_alive_timeout.is_given {
        let what = "has no effect: idle_timeout of the listener holds in its place";
        warn_at(&http.keep_alive_timeout, &http_path, "keep_alive_timeout", what, "keep one of them", reader);
    }
    never_reached(Some(&http.response_timeout), http.request_timeout.as_ref(), &http_path, reader);
    if let Some(compression) = &http.compression {
        self::compression(compression, &format!("{http_path}.compression"), reader);
    }
    retry(&http.retry, Some(&http.response_timeout), &format!("{http_path}.retry"), reader);
    policies(&http.policies(), &http_path, reader);
    let routed = file.route.iter().map(|route| route.upgrades.as_ref());
    let domains = file.domain.iter().map(|domain| domain.upgrades.as_ref());
    let mut all = routed.chain(domains).chain([http.upgrades.as_ref()]).flatten().map(http::upgrades);
    if !all.any(|upgrades: Upgrades| upgrades.websocket) {
        unless_empty(
            &http.websocket,
            &http_path,
            "websocket",
            "no WebSocket is allowed: upgrades = [\"websocket\"]",
            reader,
        );
    }
}

/// A key of the reply cache, without a cache.
fn reply_cache(section: &ListenerRedisSection, path: &str, reader: &mut Reader<'_>) {
    if section.cache_bytes_max.is_some() {
        for prefix in section.cache_prefixes.iter().flat_map(|list| &list.value) {
            if prefix.value.0.contains('*') {
                let what = "has a `*`, which stands for itself: only keys with a star begin so";
                let help = format!("write \"{}\"", prefix.value.0.trim_end_matches('*'));
                warn_at(prefix, path, "cache_prefixes", what, help, reader);
            }
        }
        if let Some(list) = section.cache_prefixes.as_ref() {
            if list.value.is_empty() {
                let help = "name prefixes, or remove it for all keys";
                error_at(list, path, "cache_prefixes", "is empty: nothing would be cached", help, reader);
            }
            spelling::repeated(list, path, "cache_prefixes", reader);
        }
        return;
    }
    let help = "add cache_bytes_max = \"64MiB\", or remove it";
    let mut refuse = |is_given: bool, span: &std::ops::Range<usize>, key: &str| {
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

fn telemetry(file: &FileSection, section: &TelemetrySection, reader: &mut Reader<'_>) {
    let log = &section.access_log;
    let path = "telemetry.access_log";
    if log.target.value == LogTarget::Off {
        let why = "target is \"off\"";
        unless_empty_but(log, &["target"], "telemetry", "access_log", why, reader);
        for (index, listener) in file.listener.iter().enumerate() {
            if let Some(sample) = listener.access_log_sample.as_ref().filter(|sample| sample.value.0 > 0.0) {
                let what = "has no effect: telemetry.access_log.target is \"off\"";
                let help = "write a target, or remove it";
                warn_at(sample, &format!("listener[{index}]"), "access_log_sample", what, help, reader);
            }
        }
    } else if !matches!(log.target.value, LogTarget::File(_)) {
        let (what, help) = ("has no effect: only files are rotated", "write target = \"file:/path\", or remove it");
        if let Some(size) = &log.rotate_size {
            warn_at(size, path, "rotate_size", what, help, reader);
        }
    }
    if section.stage_sample.is_given && section.level.value != Level::Full && section.stage_sample.value.0 > 0.0 {
        let what = "has no effect: stages are measured with level = \"full\" only";
        warn_at(&section.stage_sample, "telemetry", "stage_sample", what, "remove it, or write that", reader);
    }
    if section.slow_log.entries.value == 0 {
        unless_empty_but(&section.slow_log, &["entries"], "telemetry", "slow_log", "entries is 0", reader);
    }
    let is_redis = |one: &ListenerSection| one.protocol.as_ref().is_none_or(|own| own.value == Protocol::Redis);
    if !file.listener.is_empty() && !file.listener.iter().any(is_redis) {
        let why = "no listener of this file speaks Redis";
        unless_empty(&section.keys, "telemetry", "keys", why, reader);
        unless_empty(&section.slow_log, "telemetry", "slow_log", why, reader);
    }
}

fn upstream(section: &UpstreamSection, path: &str, reader: &mut Reader<'_>) {
    if !section.health.enabled.value {
        unless_empty_but(&section.health, &["enabled"], path, "health", "enabled is false", reader);
    }
    let http = &section.http;
    let http_path = format!("{path}.http");
    probes(section, http, &http_path, reader);
    if http.streams_max.is_given && http.version.value == OriginVersion::Http1 {
        let what = "has no effect: HTTP/1.1 has no streams";
        warn_at(&http.streams_max, &http_path, "streams_max", what, "write version = \"2\", or remove it", reader);
    }
    if let Some(affinity) = &http.affinity {
        let path = format!("{http_path}.affinity");
        if let Some(header) = &affinity.header {
            spelling::field(header, &path, "header", reader);
        }
        if let Some(age) = affinity.cookie_max_age.as_ref().filter(|_| affinity.cookie.is_none()) {
            warn_at(age, &path, "cookie_max_age", "has no effect without cookie", "add cookie, or remove it", reader);
        }
    }
    let ejection = &http.ejection;
    let ejection_path = format!("{http_path}.ejection");
    if ejection.failures.value == 0 {
        unless_empty_but(ejection, &["failures"], &http_path, "ejection", "failures is 0", reader);
    }
    let other = format!("{ejection_path}.duration_max");
    Lowest { path: &ejection_path, key: "duration", other: &other }.check(
        &ejection.duration,
        &ejection.duration_max,
        reader,
    );
}

fn probes(section: &UpstreamSection, http: &UpstreamHttpSection, path: &str, reader: &mut Reader<'_>) {
    let asks = http.health_path.is_some() || http.health_grpc_service.is_some();
    if let Some(host) = http.health_host.as_ref().filter(|_| !asks) {
        let what = "has no effect: the check only connects";
        warn_at(host, path, "health_host", what, "add health_path = \"/healthz\", or remove it", reader);
    }
    if let Some(check) = http.health_path.as_ref() {
        if check.value.0.contains('#') {
            error_at(check, path, "health_path", "has a fragment, which is never sent", "leave it out", reader);
        }
        if !section.health.enabled.value {
            let what = "has no effect: health.enabled is false";
            warn_at(check, path, "health_path", what, "remove one of them", reader);
        }
    }
}

/// Of a route.
pub(super) fn route(section: &RouteSection, path: &str, reader: &mut Reader<'_>) {
    handling(&section.handling(), path, reader);
    policies(&section.policies(), path, reader);
    wildcard(&section.wildcard, section.hosts.as_ref(), path, reader);
    if let Some(mirror) = section.mirror.as_ref().filter(|mirror| mirror.share.value.0 <= 0.0) {
        let help = "write a share above 0.0, or remove the table";
        warn_at(&mirror.share, path, "mirror.share", "is 0: nothing is copied", help, reader);
    }
    if let Some(fault) = &section.fault {
        if fault.delay.is_none() && fault.abort_status.is_none() {
            let path = format!("{path}.fault");
            let message = format!("`{path}` does nothing: it has neither delay nor abort_status");
            reader.problems.warning(&fault.place.0, &path, message, "add one of them, or remove the table");
        }
        if let Some(header) = &fault.header {
            spelling::field(header, path, "fault.header", reader);
        }
    }
    if let Some(redirect) = &section.redirect {
        let is_same = redirect.scheme.is_none()
            && redirect.host.is_none()
            && redirect.port.is_none()
            && redirect.path.is_none()
            && redirect.path_prefix.is_none();
        if is_same {
            let path = format!("{path}.redirect");
            let message = format!("`{path}` leads to the request's own address: clients go round in circles");
            reader.problems.error(&redirect.place.0, &path, message, "add scheme, host, port, path or path_prefix");
        }
    }
    if let Some(response) = &section.response {
        let bodiless = response.status.as_ref().filter(|status| matches!(status.value, 204 | 205 | 304));
        if let (Some(status), Some(body)) = (bodiless, &response.body) {
            let what = format!("has no effect: {} has no body", status.value);
            warn_at(body, path, "response.body", &what, "remove it, or write another status", reader);
        }
    }
    if let Some(rewrite) = &section.rewrite {
        if let Some(replacement) = rewrite.path_replacement.as_ref().filter(|_| rewrite.path_regex.is_none()) {
            let help = "add path_regex, or write path or path_prefix";
            error_at(replacement, path, "rewrite.path_replacement", "has no effect without path_regex", help, reader);
        }
        if let Some(header) = &rewrite.host_from_header {
            spelling::field(header, path, "rewrite.host_from_header", reader);
        }
    }
}

/// What the star stands for, where there is none.
pub(super) fn wildcard(labels: &At<Labels>, hosts: Option<&At<Vec<At<Word>>>>, path: &str, reader: &mut Reader<'_>) {
    let is_star = |host: &At<Word>| host.value.0.starts_with("*.");
    if labels.is_given && labels.value == Labels::Many && !hosts.is_some_and(|hosts| hosts.value.iter().any(is_star)) {
        let help = "write it where the wildcard host stands, or remove it";
        warn_at(labels, path, "wildcard", "has no effect: no host here begins with `*.`", help, reader);
    }
}

/// What a route or a domain does with requests on their way.
pub(super) fn handling(written: &Handling<'_>, path: &str, reader: &mut Reader<'_>) {
    never_reached(written.response_timeout, written.request_timeout, path, reader);
    if let Some(compression) = written.compression {
        self::compression(compression, &format!("{path}.compression"), reader);
    }
    if let Some(retry) = written.retry {
        self::retry(retry, written.response_timeout, &format!("{path}.retry"), reader);
    }
    for (index, one) in written.cookie.iter().enumerate() {
        cookie(one, &format!("{path}.cookie[{index}]"), reader);
    }
}

/// The shorter deadline of the whole comes before that of a part.
fn never_reached(part: Option<&At<Period>>, whole: Option<&At<Period>>, path: &str, reader: &mut Reader<'_>) {
    if let (Some(part), Some(whole)) = (part.filter(|part| part.is_given), whole)
        && part.value >= whole.value
    {
        let what = "is never reached: request_timeout is not longer";
        warn_at(part, path, "response_timeout", what, "lower it, or raise request_timeout", reader);
    }
}

fn compression(section: &CompressionSection, path: &str, reader: &mut Reader<'_>) {
    for one in section.types.iter().flat_map(|list| &list.value) {
        if !one.value.0.contains('/') || one.value.0.contains(';') {
            let help = "write it as \"text/html\", or \"text/*\"; parameters do not matter";
            error_at(one, path, "types", "has a word that is no media type", help, reader);
        }
    }
    if let Some(codings) = &section.codings {
        if codings.value.is_empty() && section.enabled.value {
            let help = "name codings, remove it for all, or write enabled = false";
            error_at(codings, path, "codings", "is empty: nothing would be compressed", help, reader);
        }
        spelling::repeated(codings, path, "codings", reader);
    }
    switched_off(section, section.enabled.value, path, reader);
}

fn retry(section: &RetrySection, response: Option<&At<Period>>, path: &str, reader: &mut Reader<'_>) {
    if section.attempts.value == 0 {
        let mut given = Vec::new();
        section.given("", &mut given);
        let useless = given.iter().find(|key| key.path != "attempts");
        if let Some(key) = useless {
            let path = format!("{path}.{}", key.path);
            let message = format!("`{path}` has no effect: attempts is 0");
            reader.problems.warning(&key.span, &path, message, "raise attempts, or remove it");
        }
        return;
    }
    if let (Some(one), Some(all)) = (&section.try_timeout, response)
        && one.value >= all.value
    {
        let what = "is never reached: response_timeout is not longer";
        warn_at(one, path, "try_timeout", what, "lower it, or raise response_timeout", reader);
    }
}

fn cookie(section: &CookieSection, path: &str, reader: &mut Reader<'_>) {
    let Some(name) = &section.name else { return };
    if !weir_http_codec::token::is_token(name.value.0.as_bytes()) {
        error_at(name, path, "name", "is no name of a cookie", "write the name alone, as in Set-Cookie", reader);
    }
    let is_idle =
        section.path.is_none() && section.domain.is_none() && section.secure.is_none() && section.same_site.is_none();
    if is_idle {
        warn_at(
            name,
            path,
            "name",
            "is of a table that changes nothing",
            "add path, domain, secure or same_site",
            reader,
        );
    }
}

/// What a listener, a domain or a route asks of requests.
pub(super) fn policies(written: &Written<'_>, path: &str, reader: &mut Reader<'_>) {
    if let Some(section) = written.ip_filter {
        switched_off(section, section.enabled.value, &format!("{path}.ip_filter"), reader);
        for (list, key) in [(&section.allow, "ip_filter.allow"), (&section.deny, "ip_filter.deny")] {
            if let Some(list) = list {
                spelling::repeated(list, path, key, reader);
            }
        }
    }
    if let Some(section) = written.cors {
        cors(section, &format!("{path}.cors"), reader);
    }
    if let Some(section) = written.basic_auth {
        switched_off(section, section.enabled.value, &format!("{path}.basic_auth"), reader);
    }
    if let Some(section) = written.api_key {
        let path = format!("{path}.api_key");
        switched_off(section, section.enabled.value, &path, reader);
        credentials(section.header.as_ref(), section.query.as_ref(), &path, reader);
    }
    if let Some(section) = written.jwt {
        jwt(section, &format!("{path}.jwt"), reader);
    }
    if let Some(section) = written.ext_auth {
        let own = format!("{path}.ext_auth");
        switched_off(section, section.enabled.value, &own, reader);
        if let Some(target) = section.path.as_ref().filter(|target| target.value.0.contains('#')) {
            error_at(target, &own, "path", "has a fragment, which is never sent", "leave it out", reader);
        }
    }
    for (index, section) in written.rate_limit.iter().enumerate() {
        rate_limit(section, &format!("{path}.rate_limit[{index}]"), reader);
    }
}

fn cors(section: &CorsSection, path: &str, reader: &mut Reader<'_>) {
    switched_off(section, section.enabled.value, path, reader);
    for method in section.allow_methods.iter().flat_map(|list| &list.value) {
        spelling::method(method, path, "allow_methods", reader);
    }
    let lists = [
        (&section.allow_origins, "allow_origins"),
        (&section.allow_methods, "allow_methods"),
        (&section.allow_headers, "allow_headers"),
        (&section.expose_headers, "expose_headers"),
    ];
    for (list, key) in lists {
        if let Some(list) = list {
            spelling::repeated(list, path, key, reader);
        }
    }
}

fn jwt(section: &JwtSection, path: &str, reader: &mut Reader<'_>) {
    switched_off(section, section.enabled.value, path, reader);
    credentials(section.header.as_ref(), section.query.as_ref(), path, reader);
    for (index, provider) in section.provider.iter().enumerate() {
        let path = format!("{path}.provider[{index}]");
        if let Some(list) = &provider.audiences {
            if list.value.is_empty() {
                let help = "name the audience of this service, or remove it to accept tokens for anybody";
                error_at(list, &path, "audiences", "is empty, and would accept every audience", help, reader);
            }
            spelling::repeated(list, &path, "audiences", reader);
        }
        if let Some(issuer) = provider.issuer.as_ref().filter(|issuer| issuer.value.0.trim() != issuer.value.0) {
            let what = "has a space at an end, and is compared as it is";
            warn_at(issuer, &path, "issuer", what, "write it as `iss` of the tokens has it", reader);
        }
        if let Some(list) = &provider.algorithms {
            spelling::repeated(list, &path, "algorithms", reader);
        }
        let keys_of_upstream = [provider.jwks_path.as_ref(), provider.jwks_host.as_ref()];
        let given = keys_of_upstream.into_iter().zip(["jwks_path", "jwks_host"]);
        for (word, key) in given.filter_map(|(word, key)| Some((word?, key))) {
            if provider.jwks_upstream.is_none() {
                warn_at(word, &path, key, "has no effect without jwks_upstream", "remove it", reader);
            }
        }
    }
}

/// Where credentials are looked for.
fn credentials(header: Option<&At<Word>>, query: Option<&At<Word>>, path: &str, reader: &mut Reader<'_>) {
    if let Some(header) = header {
        spelling::field(header, path, "header", reader);
    }
    if let Some(query) = query {
        spelling::query_name(query, path, "query", reader);
    }
}

fn rate_limit(section: &RateLimitSection, path: &str, reader: &mut Reader<'_>) {
    let key = section.key.value;
    let may_miss = matches!(key, RateKeyChoice::Header | RateKeyChoice::Identity);
    if section.missing.is_given && !may_miss && section.missing.value != weir_policy::http::MissingKey::Client {
        let what = "has no effect: each request has what is counted by";
        warn_at(&section.missing, path, "missing", what, "remove it, or write key = \"header\"", reader);
    }
    if section.ipv6_prefix.is_given && key != RateKeyChoice::Client {
        let what = "has no effect: addresses are not what is counted by";
        warn_at(&section.ipv6_prefix, path, "ipv6_prefix", what, "remove it, or write key = \"client\"", reader);
    }
    if let Some(header) = &section.header {
        spelling::field(header, path, "header", reader);
    }
}

/// Keys beside `enabled = false`.
fn switched_off(section: &impl Section, is_enabled: bool, path: &str, reader: &mut Reader<'_>) {
    let (above, table) = path.rsplit_once('.').unwrap_or(("", path));
    if !is_enabled {
        unless_empty_but(section, &["enabled"], above, table, "enabled is false", reader);
    }
}

/// Warns of a table in which something is written, though nothing of it has an effect.
fn unless_empty(section: &impl Section, path: &str, table: &str, why: &str, reader: &mut Reader<'_>) {
    unless_empty_but(section, &[], path, table, why, reader);
}

/// The same, if these keys are not all that is written.
fn unless_empty_but(section: &impl Section, but: &[&str], path: &str, table: &str, why: &str, reader: &mut Reader<'_>) {
    let mut given = Vec::new();
    section.given("", &mut given);
    if let Some(key) = given.iter().find(|key| !but.contains(&&*key.path)) {
        let path = format!("{path}.{table}.{}", key.path);
        let message = format!("`{path}` has no effect: {why}");
        reader.problems.warning(&key.span, &path, message, "remove it, or change that");
    }
}
