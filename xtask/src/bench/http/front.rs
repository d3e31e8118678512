//! What clients speak to the gateways, and what that changes in the files of the peers.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::row::HttpRow;
use crate::bench::peers::name;
use crate::bench::peers::peer::built_in;
use crate::bench::peers::weir::{Protocol, Settings};
use crate::bench::place::Place;

/// Routes of [`Front::Routes`].
const ROUTES: usize = 100;

/// What clients speak to the gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Front {
    /// HTTP/1.1, as the gateways are delivered.
    #[default]
    Plain,
    /// The same with 100 routes, and a line of the access log for every request, in a file.
    Routes,
    /// HTTP/1.1 in TLS.
    Tls,
    /// HTTP/2 in clear text, by prior knowledge.
    Http2,
    /// WebSocket, one message there and back.
    WebSocket,
}

impl Front {
    /// Every one, with its word on the command line.
    const ALL: [(&'static str, Self); 5] = [
        ("plain", Self::Plain),
        ("routes", Self::Routes),
        ("tls", Self::Tls),
        ("http2", Self::Http2),
        ("websocket", Self::WebSocket),
    ];

    /// By its word on the command line.
    pub(crate) fn named(word: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, front)| *front);
        found.with_context(|| format!("--front takes plain, routes, tls, http2 or websocket, not `{word}`"))
    }

    /// Gateways that speak it, in the order of a block.
    pub(crate) const fn arms(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &name::HTTP,
            Self::Routes | Self::Tls => &[name::WEIR, name::NGINX, name::HAPROXY, name::ENVOY],
            Self::Http2 | Self::WebSocket => &[name::WEIR, name::NGINX, name::HAPROXY, name::ENVOY, name::DIRECT],
        }
    }

    /// The file of the peer that is called so, with what this front changes in it.
    pub(crate) fn peer(self, arm: &str, place: &Place) -> Result<(&'static str, String)> {
        let known = match (self, arm) {
            (Self::Http2, name::NGINX) => "nginx-http2",
            (Self::Http2, name::HAPROXY) => "haproxy-http2",
            (Self::Http2, name::ENVOY) => "envoy-http2",
            (Self::WebSocket, name::NGINX) => "nginx-websocket",
            (_, name::NGINX) => "nginx",
            (_, name::HAPROXY) => "haproxy-http",
            (_, name::ENVOY) => "envoy-http",
            _ => bail!("no such arm"),
        };
        let text = built_in(known)?;
        let text = match self {
            Self::Routes => with_routes(arm, text)?,
            Self::Tls => with_tls(arm, text, place)?,
            Self::Plain | Self::Http2 | Self::WebSocket => text,
        };
        Ok((known, text))
    }

    /// The same for Weir.
    pub(crate) fn settings(self, origin: u16, place: &Place) -> Result<Settings> {
        let mut settings = Settings { protocol: Protocol::Http, ..Settings::new(origin)? };
        match self {
            Self::Plain | Self::Http2 => {}
            Self::Tls => settings.tls = Some(place.certificate()?),
            Self::WebSocket => settings.listener_lines = "\n[listener.http]\nupgrades = [\"websocket\"]\n".to_owned(),
            Self::Routes => {
                settings.access_log = Some(place.path().join("weir-access.log"));
                for (number, path) in paths().enumerate() {
                    // Writing to a string does not fail.
                    let _ = write!(
                        settings.upstream_lines,
                        "\n[[route]]\nname = \"r{number}\"\npath_prefix = \"{path}\"\nupstream = \"app\"\n"
                    );
                }
            }
        }
        Ok(settings)
    }
}

/// The paths of the routes: those that are asked for come last.
fn paths() -> impl Iterator<Item = String> {
    let asked: Vec<String> = HttpRow::sizes().into_iter().map(|bytes| format!("/{bytes}")).collect();
    (asked.len()..ROUTES).map(|number| format!("/service-{number}")).chain(asked)
}

/// `old` becomes `new`, and has to be there.
fn changed(text: String, old: &str, new: &str) -> Result<String> {
    ensure!(text.contains(old), "the peer's file has no longer `{old}`");
    Ok(text.replace(old, new))
}

/// From `start` to the end of the first `end` behind it.
fn part<'t>(text: &'t str, start: &str, end: &str) -> Result<&'t str> {
    let from = text.find(start).with_context(|| format!("the peer's file has no longer `{start}`"))?;
    let length = text[from..].find(end).with_context(|| format!("the peer's file has no longer `{end}`"))?;
    Ok(&text[from..from + length + end.len()])
}

fn with_routes(arm: &str, text: String) -> Result<String> {
    match arm {
        name::NGINX => {
            let log = "access_log {folder}/nginx-access.log combined buffer=64k flush=1s;";
            let text = changed(text, "access_log off;", log)?;
            let location = part(&text, "        location / {", "\n        }\n")?.to_owned();
            let all: String =
                paths().map(|path| location.replace("location / {", &format!("location {path} {{"))).collect();
            changed(text, &location, &format!("{all}{location}"))
        }
        name::HAPROXY => {
            let server = part(&text, "    server origin", "\n")?.to_owned();
            let rules: String = paths().map(|path| format!("    use_backend app if {{ path_beg {path} }}\n")).collect();
            let text =
                changed(text, "listen web", "frontend web\n    log stdout format raw local0\n    option httplog")?;
            changed(text, &server, &format!("{rules}    default_backend app\n\nbackend app\n{server}"))
        }
        name::ENVOY => {
            let log = "stat_prefix: web\n          access_log:\n          - name: envoy.access_loggers.file\n            typed_config: { \"@type\": \
                       type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: {folder}/envoy-access.log }";
            let text = changed(text, "stat_prefix: web", log)?;
            let route = part(&text, "              - match: { prefix: \"/\" }", "timeout: 0s }\n")?.to_owned();
            let all: String =
                paths().map(|path| route.replace("prefix: \"/\"", &format!("prefix: \"{path}\""))).collect();
            changed(text, &route, &format!("{all}{route}"))
        }
        _ => bail!("no such arm"),
    }
}

fn with_tls(arm: &str, text: String, place: &Place) -> Result<String> {
    let (certificate, key) = place.certificate()?;
    let (shown_certificate, shown_key) = (certificate.display(), key.display());
    match arm {
        name::NGINX => {
            let new = format!(
                "listen 127.0.0.1:{{port}} ssl backlog=4096;\n        ssl_protocols TLSv1.2 TLSv1.3;\n        \
                 ssl_certificate {shown_certificate};\n        ssl_certificate_key {shown_key};"
            );
            changed(text, "listen 127.0.0.1:{port} backlog=4096;", &new)
        }
        name::HAPROXY => {
            let both = place.path().join("both.pem");
            write_both(&both, &[&certificate, &key])?;
            let new = format!("bind 127.0.0.1:{{port}} ssl crt {} backlog 4096", both.display());
            changed(text, "bind 127.0.0.1:{port} backlog 4096", &new)
        }
        name::ENVOY => {
            let new = format!(
                "    - transport_socket:\n        name: envoy.transport_sockets.tls\n        typed_config:\n          \
                 \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext\n          \
                 common_tls_context: {{ tls_certificates: [{{ certificate_chain: {{ filename: {shown_certificate} }}, \
                 private_key: {{ filename: {shown_key} }} }}] }}\n      filters:"
            );
            changed(text, "    - filters:", &new)
        }
        _ => bail!("no such arm"),
    }
}

fn write_both(path: &Path, parts: &[&Path]) -> Result<()> {
    let mut text = String::new();
    for part in parts {
        text.push_str(&std::fs::read_to_string(part)?);
    }
    Ok(std::fs::write(path, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_peers_still_have_what_is_changed_in_them() {
        for arm in [name::NGINX, name::HAPROXY, name::ENVOY] {
            let known = if arm == name::NGINX { "nginx".to_owned() } else { format!("{arm}-http") };
            let text = with_routes(arm, built_in(&known).unwrap()).unwrap();
            for path in ["/service-50", "/128"] {
                assert!(text.contains(path), "{arm}");
            }
        }
        assert_eq!(paths().count(), ROUTES);
    }
}
