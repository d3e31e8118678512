//! `stream`: TCP as it is, and TLS by its server name.

use super::Importer;
use super::names::plain_names;
use super::scope::Scope;
use super::server::Listen;
use super::settings::millis;
use super::syntax::Directive;
use super::unknown::{self, Context};
use super::upstream::UpstreamUse;
use crate::model::{Listener, Protocol};
use crate::note::Mistake;
use crate::toml::{Table, Value};

/// The variable of the server name that a client asks for.
const SERVER_NAME: &str = "$ssl_preread_server_name";

/// Milliseconds after which nginx closes a silent connection; Weir does so only if it is written.
const IDLE_MILLIS: u64 = 600_000;

impl<'c> Importer<'c> {
    pub(super) fn stream(&mut self, body: &'c [Directive]) -> Result<(), Mistake> {
        let http = std::mem::take(&mut self.blocks);
        for one in body.iter().filter(|one| one.name == "upstream") {
            self.blocks.insert(one.first(), one);
        }
        let scope = Scope::new(body);
        for one in body {
            let is_map = one.name == "map" && one.first() == SERVER_NAME;
            match one.name.as_str() {
                "server" => self.stream_server(one, &scope.inner(one.body()), body)?,
                _ if is_map => {}
                _ => self.config.notes.extend(unknown::note(one, Context::Stream)),
            }
        }
        self.warn_unused(body);
        self.blocks = http;
        Ok(())
    }

    fn stream_server(
        &mut self,
        server: &'c Directive,
        scope: &Scope<'c>,
        body: &'c [Directive],
    ) -> Result<(), Mistake> {
        for one in server.body() {
            self.config.notes.extend(unknown::note(one, Context::Stream));
        }
        let Some(pass) = scope.find_own("proxy_pass") else {
            self.note(server, "a listener passes connections on: there is no proxy_pass", "");
            return Ok(());
        };
        let mut listens = Vec::new();
        for of in server.body().iter().filter(|one| one.name == "listen") {
            listens.extend(self.listen(of)?.map(|listen| (of, listen)));
        }
        if listens.is_empty() {
            return Ok(());
        }
        let by_name = body.iter().find(|one| {
            one.name == "map" && one.first() == SERVER_NAME && one.args.get(1).is_some_and(|name| name == pass.first())
        });
        let (upstream, names) = match by_name {
            // Without ssl_preread there is no name to look at.
            Some(map) => {
                let (rest, names) = self.names(map, scope)?;
                (rest, if scope.is_on("ssl_preread") { names } else { Vec::new() })
            }
            None if pass.first().contains('$') => {
                self.note(pass, "an upstream is chosen by server name, or not at all", "[[listener.server_name]]");
                return Ok(());
            }
            None => (self.upstream(pass.first(), UpstreamUse::Tcp, scope, &pass.place)?, Vec::new()),
        };
        for (of, listen) in listens {
            let mut more = connection_keys(of, &listen, scope)?;
            let protocol = if scope.is_on("ssl_preread") { Protocol::Tls } else { Protocol::Tcp };
            for (name, upstream) in &names {
                let mut table = Table::default();
                table.set("names", Value::texts([name]));
                table.set("upstream", Value::text(upstream));
                more.push("server_name", table);
            }
            let port = listen.bind.rsplit(':').next().unwrap_or_default();
            let kind = if protocol == Protocol::Tls { "tls" } else { "tcp" };
            self.config.listeners.push(Listener {
                name: self.listener_names.unique(&format!("{kind}-{port}")),
                bind: listen.bind.clone(),
                protocol,
                upstream: upstream.clone(),
                more,
                notes: Vec::new(),
            });
        }
        Ok(())
    }

    /// A `map` of server names: the upstream for all others, and those of the names.
    fn names(&mut self, map: &'c Directive, scope: &Scope<'c>) -> Result<(String, Vec<(String, String)>), Mistake> {
        let mut names = Vec::new();
        let mut rest = None;
        for one in map.body().iter().filter(|one| one.name != "hostnames") {
            let upstream = self.upstream(one.first(), UpstreamUse::Tcp, scope, &one.place)?;
            match one.name.as_str() {
                "default" => rest = Some(upstream),
                name if name.starts_with('~') => {
                    self.note(one, "names are names, or have a star in front", "names = [\"*.example.com\"]")
                }
                name => match plain_names(name) {
                    all if all.is_empty() => self.note(one, "is no name of a server; it is left out", "names"),
                    all => names.extend(all.into_iter().map(|name| (name, upstream.clone()))),
                },
            }
        }
        // Without a default nginx ends connections for other names: they go nowhere here.
        match rest.or_else(|| (!names.is_empty()).then(String::new)) {
            Some(rest) => Ok((rest, names)),
            None => Err(Mistake::new(&map.place, "the map has no server")),
        }
    }
}

/// The keys of a TCP or TLS listener besides its upstream.
fn connection_keys(of: &Directive, listen: &Listen, scope: &Scope<'_>) -> Result<Table, Mistake> {
    let mut more = Table::default();
    if listen.has_tls {
        for (name, key) in [("ssl_certificate", "cert_file"), ("ssl_certificate_key", "key_file")] {
            let Some(file) = scope.first(name) else {
                return Err(Mistake::new(&of.place, format!("the server has TLS, and no {name}")));
            };
            more.set(&format!("tls.{key}"), Value::text(file));
        }
    }
    if listen.has_proxy_header {
        more.set("proxy_protocol", Value::text("any"));
    }
    let idle = scope.find("proxy_timeout").map(millis).transpose()?.unwrap_or(IDLE_MILLIS);
    more.set("idle_timeout", Value::millis(idle.clamp(100, 2_592_000_000)));
    Ok(more)
}
