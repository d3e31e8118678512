//! Options of the listener and of the process.

use super::words::Options;
use crate::model::Config;
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};

/// Where Unleash Edge listens unless its command line says otherwise.
const PORT: u64 = 3063;
const TLS_PORT: u64 = 3043;

/// Backstage endpoints, and the options that turn each off.
const BACKSTAGE: &[(&str, &str)] = &[
    ("health", ""),
    ("ready", ""),
    ("metrics", "disable-metrics-endpoint"),
    ("features", "disable-features-endpoint"),
    ("tokens", "disable-tokens-endpoint"),
    ("metricsbatch", "disable-metrics-batch-endpoint"),
    ("instancedata", "disable-instance-data-endpoint"),
    ("info", ""),
];

/// The address of the listener.
pub(super) fn bind(options: &Options) -> Result<String, Mistake> {
    let is_tls = options.is_set("tls-enable");
    let (option, default) = if is_tls { ("tls-server-port", TLS_PORT) } else { ("port", PORT) };
    let port = options.number(option)?.unwrap_or(default);
    let interface = options.last("interface").map_or("0.0.0.0", |given| &given.value);
    Ok(if interface.contains(':') { format!("[{interface}]:{port}") } else { format!("{interface}:{port}") })
}

/// Writes the keys.
pub(super) fn write(options: &Options, more: &mut Table, config: &mut Config) -> Result<(), Mistake> {
    if let Some(workers) = options.number("workers")? {
        config.process.set("runtime.workers", Value::Number(workers.max(1)));
    }
    if let Some(path) = options.last("base-path").filter(|path| !path.value.trim_matches('/').is_empty()) {
        more.set("flags.base_path", Value::text(format!("/{}", path.value.trim_matches('/'))));
    }
    for option in ["token-header", "edge-auth-header"] {
        if let Some(header) = options.last(option) {
            more.set("flags.token_header", Value::text(header.value.to_ascii_lowercase()));
        }
    }
    for option in ["token-header", "upstream-auth-header"] {
        if let Some(header) = options.last(option).filter(|header| !header.value.eq_ignore_ascii_case("authorization"))
        {
            let why = "the upstream gets the token in Authorization";
            config.notes.push(Note::new(
                &header.place,
                format!("--{option}"),
                why,
                "[[listener.flags.upstream_header]]",
            ));
        }
    }
    if options.is_set("disable-all-endpoint") {
        more.set("flags.all_endpoint", Value::Flag(false));
    }
    let on = BACKSTAGE.iter().filter(|(_, off)| off.is_empty() || !options.is_set(off));
    more.set("flags.backstage", Value::texts(on.map(|(word, _)| *word)));
    proxies(options, more, config);
    for (option, key) in [("allow-list", "allow"), ("deny-list", "deny")] {
        let nets = options.list(option);
        if !nets.is_empty() {
            let net = |text: &str| match (text.contains('/'), text.contains(':')) {
                (true, _) => text.to_owned(),
                (false, true) => format!("{text}/128"),
                (false, false) => format!("{text}/32"),
            };
            more.set(&format!("flags.{key}"), Value::texts(nets.iter().map(|one| net(&one.value))));
        }
    }
    cors(options, more)?;
    tls(options, more, config)
}

fn proxies(options: &Options, more: &mut Table, config: &mut Config) {
    if !options.is_set("trust-proxy") {
        return;
    }
    more.set("flags.trusted_hops", Value::Number(1));
    if let Some(given) = options.last("trust-proxy") {
        let why = "Unleash Edge takes the first address of X-Forwarded-For, which a client can forge; here one proxy in front is trusted";
        config.notes.push(Note::new(
            &given.place,
            "--trust-proxy",
            why,
            "trusted_hops: the number of proxies in front",
        ));
    }
    if let Some(given) = options.last("proxy-trusted-servers") {
        let why = "proxies are trusted by their number, not by their addresses";
        config.notes.push(Note::new(&given.place, "--proxy-trusted-servers", why, "trusted_hops"));
    }
}

fn cors(options: &Options, more: &mut Table) -> Result<(), Mistake> {
    let names = ["cors-origin", "cors-allowed-headers", "cors-exposed-headers", "cors-methods", "cors-max-age"];
    if names.iter().all(|name| options.last(name).is_none()) {
        return Ok(());
    }
    let list = |option: &str, default: &[&str]| {
        let given: Vec<String> = options.list(option).into_iter().map(|one| one.value).collect();
        if given.is_empty() { Value::texts(default.iter().copied()) } else { Value::texts(given) }
    };
    let table = more.table("flags").table("cors");
    table.set("allow_origins", list("cors-origin", &["*"]));
    table.set("allow_headers", list("cors-allowed-headers", &["*", "authorization"]));
    table.set("expose_headers", list("cors-exposed-headers", &["*"]));
    table.set("allow_methods", list("cors-methods", &["OPTIONS"]));
    table.set("max_age", Value::millis(options.number("cors-max-age")?.unwrap_or(172_800).min(7 * 86_400) * 1_000));
    Ok(())
}

fn tls(options: &Options, more: &mut Table, config: &mut Config) -> Result<(), Mistake> {
    if !options.is_set("tls-enable") {
        return Ok(());
    }
    for (option, key) in [("tls-server-cert", "cert_file"), ("tls-server-key", "key_file")] {
        let Some(file) = options.last(option) else {
            return Err(Mistake::new(&options.top, format!("--tls-enable needs --{option}")));
        };
        more.set(&format!("tls.{key}"), Value::text(&file.value));
    }
    // A listener for redirects is the second one that the note names.
    let place = options.last("redirect-http-to-https").or(options.last("tls-enable"));
    if let Some(given) = place {
        let why = "Unleash Edge also listens in clear text beside TLS; only the listener with TLS is written";
        config.notes.push(Note::new(
            &given.place,
            "--tls-enable",
            why,
            "a second [[listener]], with redirect_https = true",
        ));
    }
    Ok(())
}
