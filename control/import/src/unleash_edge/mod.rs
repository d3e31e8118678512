//! Unleash Edge: its command line and its environment become a flags listener, with an upstream or a file.
//!
//! The input has one word of the command line in each line, and variables as `NAME=value`. A line of a note is the number of the word.
//!
//! | file | concept |
//! |---|---|
//! | `words` | options by their long names, from words and variables |
//! | `secrets` | variables in place of secrets |
//! | `backup` | the store of backups |
//! | `listener` | options of the listener and of the process |

mod backup;
mod listener;
mod secrets;
mod words;

use self::secrets::Secrets;
use self::words::Options;
use crate::model::{Config, Listener, Protocol, Upstream};
use crate::note::{Mistake, Note, SourceLine};
use crate::toml::{Table, Value};

/// The name of the listener, and that of its upstream.
const LISTENER: &str = "flags";
const UPSTREAM: &str = "unleash";

/// Options whose effect Weir has without a key, or in another way.
const WITHOUT_KEY: &[(&str, &str)] = &[
    ("strict", "it is the default"),
    ("log-format", "see [telemetry] log_format"),
    ("upstream-request-timeout", "a request to the upstream has 5 s, and a poll 30 s"),
    ("upstream-socket-timeout", "see connect_timeout of [[upstream]]"),
    ("client-keepalive-timeout", "see [upstream.http]"),
    ("edge-request-timeout", "a request has the deadlines of HTTP listeners"),
    ("edge-keepalive-timeout", "see idle_timeout of the listener"),
    ("instance-id", "Weir names each process itself"),
    ("hosting-type", "Weir sends no report of itself"),
    ("client-id", "Weir sends no report of itself"),
    ("hostname", "Weir sends no report of itself"),
    ("ec2-instance-id", "Weir sends no report of itself"),
    ("consumption", "Weir sends no report of itself"),
    ("delta-diff", "it is a diagnosis of Unleash Edge"),
    ("markdown-help", "see weir --help"),
    ("redis-read-connection-timeout-milliseconds", "a Redis server has 2 s for a login and 10 s for a document"),
    ("redis-write-connection-timeout-milliseconds", "a Redis server has 2 s for a login and 10 s for a document"),
];

/// Options without a counterpart.
const WITHOUT_COUNTERPART: &[(&str, &str, &str)] = &[
    ("prometheus-remote-write-url", "Weir does not push metrics", "a scrape of /metrics of the admin address"),
    ("prometheus-push-interval", "Weir does not push metrics", ""),
    ("prometheus-username", "Weir does not push metrics", ""),
    ("prometheus-password", "Weir does not push metrics", ""),
    ("prometheus-user-id", "Weir does not push metrics", ""),
    ("pkcs12-identity-file", "a client certificate is in PEM files", "openssl pkcs12 -in FILE -out client.pem"),
    ("pkcs12-passphrase", "a client certificate is in PEM files", ""),
    ("datadog-url", "Weir does not push metrics", ""),
    ("otel-exporter-otlp-endpoint", "Weir does not push metrics", "a scrape of /metrics of the admin address"),
    ("otel-exporter-otlp-protocol", "Weir does not push metrics", ""),
    ("sentry-dsn", "Weir sends no errors to Sentry", "[telemetry] log_format, and the alerts of the admin address"),
    ("sentry-tracing-rate", "Weir sends no errors to Sentry", ""),
    ("sentry-debug", "Weir sends no errors to Sentry", ""),
    ("sentry-enable-logs", "Weir sends no errors to Sentry", ""),
    ("unleash-client-secret", "Weir does not request its tokens with a secret of the hosted service", "tokens"),
    ("desired-environments", "Weir does not request its tokens with a secret of the hosted service", "tokens"),
    ("desired-projects", "Weir does not request its tokens with a secret of the hosted service", "tokens"),
];

/// Reads a command line with its environment.
pub(crate) fn read(name: &str, text: &str) -> Result<Config, Mistake> {
    let options = words::read(name, text)?;
    let mut config = Config::default();
    let mut more = Table::default();
    let mut secrets = Secrets::default();
    match options.mode.as_deref() {
        Some("edge") => edge(&options, &mut more, &mut secrets, &mut config)?,
        Some("offline") => offline(&options, &mut more, &mut secrets, &mut config)?,
        Some(mode @ ("health" | "ready")) => {
            let message = format!(
                "`{mode}` is a probe: use curl with /internal-backstage/{mode}, or /{mode}z of the admin address"
            );
            return Err(Mistake::new(&options.top, message));
        }
        _ => return Err(Mistake::new(&options.top, "the command line has no mode: `edge` or `offline`")),
    }
    let is_offline = options.mode.as_deref() == Some("offline");
    listener::write(&options, &mut more, &mut config)?;
    notes(&options, &mut config.notes);
    config.listeners.push(Listener {
        name: LISTENER.to_owned(),
        bind: listener::bind(&options)?,
        protocol: Protocol::Flags,
        upstream: if is_offline { String::new() } else { UPSTREAM.to_owned() },
        more,
        notes: Vec::new(),
    });
    Ok(config)
}

/// A listener in front of a server.
fn edge(options: &Options, more: &mut Table, secrets: &mut Secrets, config: &mut Config) -> Result<(), Mistake> {
    let Some(url) = options.last("upstream-url") else {
        return Err(Mistake::new(&options.top, "`edge` needs --upstream-url"));
    };
    config.upstreams.push(upstream(options, &url.place, &url.value)?);
    for (option, key, variable) in [
        ("tokens", "tokens", "UNLEASH_TOKENS"),
        ("pretrusted-tokens", "pretrusted_tokens", "UNLEASH_PRETRUSTED_TOKENS"),
    ] {
        if let Some(value) = secrets.of(options, option, variable, &mut config.notes) {
            more.set(&format!("flags.{key}"), Value::List(vec![value]));
        }
    }
    if options.is_set("dynamic") {
        more.set("flags.dynamic", Value::Flag(true));
    }
    let mode = [("streaming", "streaming"), ("delta", "delta")].into_iter().find(|(option, _)| options.is_set(option));
    if let Some((_, mode)) = mode {
        more.set("flags.upstream_mode", Value::text(mode));
    }
    for (option, key) in [
        ("features-refresh-interval-seconds", "poll_interval"),
        ("metrics-interval-seconds", "metrics_interval"),
        ("token-revalidation-interval-seconds", "revalidation_interval"),
    ] {
        if let Some(seconds) = options.number(option)? {
            more.set(&format!("flags.{key}"), Value::millis(seconds.max(1) * 1_000));
        }
    }
    backup::write(options, more, secrets, config)?;
    if let Some(name) = options.last("app-name") {
        more.set("flags.app_name", Value::text(&name.value));
    }
    if options.is_set("defer-token-validation") {
        more.set("flags.validation_timeout", Value::millis(0));
    }
    for field in options.list("custom-client-headers") {
        let Some((name, _)) = field.value.split_once([':', '=']) else {
            return Err(Mistake::new(&field.place, "a header is NAME:VALUE"));
        };
        let variable = secrets.inline(&format!("UNLEASH_HEADER_{}", name.trim()), &field.place, &mut config.notes);
        let mut header = Table::default();
        header.set("name", Value::text(name.trim()));
        header.set("value", variable);
        more.table("flags").push("upstream_header", header);
    }
    Ok(())
}

/// A listener with a file.
fn offline(options: &Options, more: &mut Table, secrets: &mut Secrets, config: &mut Config) -> Result<(), Mistake> {
    let Some(file) = options.last("bootstrap-file") else {
        return Err(Mistake::new(&options.top, "`offline` needs --bootstrap-file"));
    };
    more.set("flags.bootstrap_file", Value::text(&file.value));
    if let Some(seconds) = options.number("reload-interval")? {
        more.set("flags.reload_interval", Value::millis(seconds * 1_000));
    }
    // Tokens without a type are those of both APIs.
    let both = secrets.of(options, "tokens", "UNLEASH_TOKENS", &mut config.notes);
    for (option, key, variable) in [
        ("client-tokens", "client_tokens", "UNLEASH_CLIENT_TOKENS"),
        ("frontend-tokens", "frontend_tokens", "UNLEASH_FRONTEND_TOKENS"),
    ] {
        let own = secrets.of(options, option, variable, &mut config.notes);
        let all: Vec<Value> = own.into_iter().chain(both.clone()).collect();
        if !all.is_empty() {
            more.set(&format!("flags.{key}"), Value::List(all));
        }
    }
    Ok(())
}

/// The server of a URL.
fn upstream(options: &Options, place: &SourceLine, url: &str) -> Result<Upstream, Mistake> {
    let mut upstream = Upstream::new(UPSTREAM.to_owned(), place);
    let (scheme, rest) = url.split_once("://").ok_or_else(|| Mistake::new(place, format!("`{url}` is no URL")))?;
    let is_tls = match scheme {
        "http" => false,
        "https" => true,
        other => return Err(Mistake::new(place, format!("a URL with `{other}`: http or https"))),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(name, port)| !port.is_empty() && !name.ends_with(':') && port.parse::<u16>().is_ok());
    upstream.endpoints.push(if has_port {
        host.to_owned()
    } else {
        format!("{host}:{}", if is_tls { 443 } else { 80 })
    });
    if is_tls {
        let tls = upstream.more.table("tls");
        if let Some(file) = options.last("upstream-certificate-file") {
            tls.set("ca_file", Value::text(&file.value));
        }
        if options.is_set("skip-ssl-verification") {
            tls.set("insecure_skip_verify", Value::Flag(true));
        }
        for (option, key) in [
            ("pkcs8-client-certificate-file", "cert_file"),
            ("pem-cert-file", "cert_file"),
            ("pkcs8-client-key-file", "key_file"),
            ("pem-cert-file", "key_file"),
        ] {
            if let Some(file) = options.last(option) {
                tls.set(key, Value::text(&file.value));
            }
        }
    }
    let path = path.trim_end_matches('/');
    if !path.is_empty() {
        upstream.more.set("flags.base_path", Value::text(path));
    }
    Ok(upstream)
}

/// Notes on options without a key.
fn notes(options: &Options, notes: &mut Vec<Note>) {
    for (option, why) in WITHOUT_KEY {
        if let Some(found) = options.last(option) {
            notes.push(Note::new(&found.place, format!("--{option}"), *why, ""));
        }
    }
    for (option, why, nearest) in WITHOUT_COUNTERPART {
        if let Some(found) = options.last(option) {
            notes.push(Note::new(&found.place, format!("--{option}"), *why, nearest));
        }
    }
    // Variables of AWS are there for other programs too.
    for (option, place) in options.unread().into_iter().filter(|(option, _)| !option.starts_with("aws-")) {
        let why = "it has no effect in this mode, or without another option";
        notes.push(Note::new(&place, format!("--{option}"), why, ""));
    }
}
