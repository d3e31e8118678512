//! Keys without effect because of the values of other keys. They are read and legal, and a user may rely on them.

use weir_route::host::Labels;

use super::spelling;
use crate::checks::idle::{switched_off, unless_empty, unless_empty_but};
use crate::checks::{Lowest, error_at, warn_at, warn_repeated};
use crate::document::At;
use crate::numbers::Period;
use crate::protocols::http::handling::{CompressionSection, Handling, RetrySection, upgrades};
use crate::protocols::http::policy::{CorsSection, JwtSection, PolicyKeys, RateKeyChoice, RateLimitSection};
use crate::protocols::http::route::{CookieSection, RouteSection};
use crate::protocols::http::upstream::{OriginVersion, UpstreamHttpSection};
use crate::protocols::{ListenerContext, UpstreamContext};
use crate::reader::Reader;
use crate::section::Section as _;
use crate::sections::UpstreamSection;
use crate::texts::Word;

/// Checks a listener.
pub(in super::super) fn listener(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let (file, section, path) = (of.file, of.section, of.path);
    let http = &section.own.http.http;
    let http_path = format!("{path}.http");
    if section.idle_timeout.is_some() && http.keep_alive_timeout.is_given {
        let what = "has no effect: idle_timeout of the listener replaces it";
        warn_at(&http.keep_alive_timeout, &http_path, "keep_alive_timeout", what, "keep one of them", reader);
    }
    let handling = &http.handling;
    never_reached(Some(&handling.response_timeout), handling.request_timeout.as_ref(), &http_path, reader);
    if let Some(compression) = &handling.compression {
        self::compression(compression, &format!("{http_path}.compression"), reader);
    }
    retry(&handling.retry, Some(&handling.response_timeout), &format!("{http_path}.retry"), reader);
    policies(&http.policies, &http_path, reader);
    let routed = file.own.http.route.iter().map(|route| &route.handling.upgrades);
    let domains = file.own.http.domain.iter().map(|domain| &domain.handling.upgrades);
    let mut all = routed.chain(domains).chain([&handling.upgrades]).flatten();
    if !all.any(|list| upgrades(&list.value).websocket) {
        unless_empty(&http.websocket, &http_path, "websocket", "no `upgrades` key has \"websocket\"", reader);
    }
}

/// Checks an upstream.
pub(in super::super) fn upstream(of: &UpstreamContext<'_>, reader: &mut Reader<'_>) {
    let (section, path) = (of.section, of.path);
    let http = &section.own.http.http;
    let http_path = format!("{path}.http");
    probes(section, http, &http_path, reader);
    other_version(http, &http_path, reader);
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

/// Keys of the version of HTTP that the endpoints do not speak.
fn other_version(http: &UpstreamHttpSection, path: &str, reader: &mut Reader<'_>) {
    if http.version.value == OriginVersion::Http2 {
        let idle = &http.idle_connections_max;
        if idle.is_given {
            let what = "has no effect: connections of HTTP/2 are shared, and kept for idle_timeout";
            warn_at(idle, path, "idle_connections_max", what, "write version = \"1.1\", or remove it", reader);
        }
        return;
    }
    let (what, help) = ("has no effect: HTTP/1.1 has no streams", "write version = \"2\", or remove it");
    if http.streams_max.is_given {
        warn_at(&http.streams_max, path, "streams_max", what, help, reader);
    }
    for (window, key) in [(&http.stream_window, "stream_window"), (&http.stream_window_max, "stream_window_max")] {
        if window.is_given {
            warn_at(window, path, key, what, help, reader);
        }
    }
}

fn probes(section: &UpstreamSection, http: &UpstreamHttpSection, path: &str, reader: &mut Reader<'_>) {
    let asks =
        http.health_path.is_some() || http.health_grpc_service.is_some() || section.own.ai.ai.health_models.value;
    if let Some(host) = http.health_host.as_ref().filter(|_| !asks) {
        let what = "has no effect: the check only connects";
        warn_at(host, path, "health_host", what, "add health_path = \"/healthz\", or remove it", reader);
    }
    if let Some(check) = http.health_path.as_ref() {
        if check.value.0.contains('#') {
            error_at(check, path, "health_path", "has a fragment, which is never sent", "remove the fragment", reader);
        }
        if !section.health.enabled.value {
            let what = "has no effect: health.enabled is false";
            warn_at(check, path, "health_path", what, "remove it, or set health.enabled = true", reader);
        }
    }
}

/// Checks a route.
pub(super) fn route(section: &RouteSection, path: &str, reader: &mut Reader<'_>) {
    handling(&section.handling, path, reader);
    policies(&section.policies, path, reader);
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
            let message = format!("`{path}` redirects requests to their own address, which is a loop");
            reader.problems.error(&redirect.place.0, &path, message, "add scheme, host, port, path or path_prefix");
        }
    }
    if let Some(response) = &section.response {
        let bodiless = response.status.as_ref().filter(|status| matches!(status.value, 204 | 205 | 304));
        if let (Some(status), Some(body)) = (bodiless, &response.body) {
            let what = format!("has no effect: a response with status {} has no body", status.value);
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

/// Checks a `wildcard` key without a wildcard host.
pub(super) fn wildcard(labels: &At<Labels>, hosts: Option<&At<Vec<At<Word>>>>, path: &str, reader: &mut Reader<'_>) {
    let is_star = |host: &At<Word>| host.value.0.starts_with("*.");
    if labels.is_given && labels.value == Labels::Many && !hosts.is_some_and(|hosts| hosts.value.iter().any(is_star)) {
        let help = "move it to the table whose hosts have a wildcard, or remove it";
        warn_at(labels, path, "wildcard", "has no effect: no host here begins with `*.`", help, reader);
    }
}

/// The handling of requests by a route or a domain.
pub(super) fn handling(written: &Handling, path: &str, reader: &mut Reader<'_>) {
    never_reached(written.response_timeout.as_ref(), written.request_timeout.as_ref(), path, reader);
    if let Some(compression) = &written.compression {
        self::compression(compression, &format!("{path}.compression"), reader);
    }
    if let Some(retry) = &written.retry {
        self::retry(retry, written.response_timeout.as_ref(), &format!("{path}.retry"), reader);
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
            let help = "write \"text/html\" or \"text/*\", without parameters";
            error_at(one, path, "types", "has an entry that is not a media type", help, reader);
        }
    }
    if let Some(codings) = &section.codings {
        if codings.value.is_empty() && section.enabled.value {
            let help = "name codings, remove it to allow all, or write enabled = false";
            error_at(codings, path, "codings", "is empty: nothing would be compressed", help, reader);
        }
        warn_repeated(codings, path, "codings", reader);
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
        error_at(name, path, "name", "is not a cookie name", "write the name alone, as in Set-Cookie", reader);
    }
    let is_idle =
        section.path.is_none() && section.domain.is_none() && section.secure.is_none() && section.same_site.is_none();
    if is_idle {
        warn_at(
            name,
            path,
            "name",
            "has no effect: the table changes no attribute",
            "add path, domain, secure or same_site",
            reader,
        );
    }
}

/// The requirements of a listener, a domain or a route for requests.
pub(super) fn policies(written: &PolicyKeys, path: &str, reader: &mut Reader<'_>) {
    if let Some(section) = &written.ip_filter {
        switched_off(section, section.enabled.value, &format!("{path}.ip_filter"), reader);
        for (list, key) in [(&section.allow, "ip_filter.allow"), (&section.deny, "ip_filter.deny")] {
            if let Some(list) = list {
                warn_repeated(list, path, key, reader);
            }
        }
    }
    if let Some(section) = &written.cors {
        cors(section, &format!("{path}.cors"), reader);
    }
    if let Some(section) = &written.basic_auth {
        switched_off(section, section.enabled.value, &format!("{path}.basic_auth"), reader);
    }
    if let Some(section) = &written.api_key {
        let path = format!("{path}.api_key");
        switched_off(section, section.enabled.value, &path, reader);
        credentials(section.header.as_ref(), section.query.as_ref(), &path, reader);
    }
    if let Some(section) = &written.jwt {
        jwt(section, &format!("{path}.jwt"), reader);
    }
    if let Some(section) = &written.ext_auth {
        let own = format!("{path}.ext_auth");
        switched_off(section, section.enabled.value, &own, reader);
        if let Some(target) = section.path.as_ref().filter(|target| target.value.0.contains('#')) {
            error_at(target, &own, "path", "has a fragment, which is never sent", "remove the fragment", reader);
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
            warn_repeated(list, path, key, reader);
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
                let help = "name the audience of this service, or remove it to accept every audience";
                error_at(list, &path, "audiences", "is empty, and would accept every audience", help, reader);
            }
            warn_repeated(list, &path, "audiences", reader);
        }
        if let Some(issuer) = provider.issuer.as_ref().filter(|issuer| issuer.value.0.trim() != issuer.value.0) {
            let what = "begins or ends with a space, but is compared unchanged";
            warn_at(issuer, &path, "issuer", what, "write exactly the `iss` of the tokens", reader);
        }
        if let Some(list) = &provider.algorithms {
            warn_repeated(list, &path, "algorithms", reader);
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
        let what = "has no effect: with this key, every request is counted";
        warn_at(&section.missing, path, "missing", what, "remove it, or write key = \"header\"", reader);
    }
    if section.ipv6_prefix.is_given && key != RateKeyChoice::Client {
        let what = "has no effect: requests are not counted by client address";
        warn_at(&section.ipv6_prefix, path, "ipv6_prefix", what, "remove it, or write key = \"client\"", reader);
    }
    if let Some(header) = &section.header {
        spelling::field(header, path, "header", reader);
    }
}
