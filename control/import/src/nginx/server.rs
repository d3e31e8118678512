//! Servers: their addresses become listeners, and each server a site of its listeners.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::Importer;
use super::names::{bind, plain_names, server_names};
use super::scope::Scope;
use super::settings::{Settings, millis};
use super::site::Site;
use super::syntax::Directive;
use super::tls::ClientAuth;
use super::unknown::{self, Context};
use crate::model::{Listener, Protocol};
use crate::note::{Mistake, Note, SourceLine};
use crate::toml::{Table, Value};

/// Milliseconds that nginx waits for the head of a request. Weir's default is shorter, so it is always written.
const HEAD_MILLIS: u64 = 60_000;

/// An address that a server listens on.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    pub(super) bind: String,
    is_default: bool,
    pub(super) has_tls: bool,
    pub(super) has_http2: bool,
    pub(super) has_proxy_header: bool,
    backlog: Option<u64>,
    pub(super) place: SourceLine,
}

/// A listener in the making: its address, and the servers that share it.
pub(super) struct Shared {
    bind: String,
    pub(super) servers: Vec<(usize, Listen)>,
}

impl Shared {
    /// The server for hosts that no server names.
    pub(super) fn default_server(&self) -> usize {
        let explicit = self.servers.iter().find(|(_, listen)| listen.is_default);
        explicit.or(self.servers.first()).map_or(0, |(server, _)| *server)
    }
}

impl<'c> Importer<'c> {
    /// All servers of `http`.
    pub(super) fn servers(&mut self, servers: &[&'c Directive], http: &Scope<'c>) -> Result<(), Mistake> {
        let scopes: Vec<Scope<'c>> = servers.iter().map(|server| http.inner(server.body())).collect();
        let mut shared: Vec<Shared> = Vec::new();
        for (number, server) in servers.iter().enumerate() {
            for listen in self.listens(server)? {
                match shared.iter_mut().find(|one| one.bind == listen.bind) {
                    Some(one) => one.servers.push((number, listen)),
                    None => shared.push(Shared { bind: listen.bind.clone(), servers: vec![(number, listen)] }),
                }
            }
        }
        self.join_overlaps(&mut shared);
        let mut bases: Vec<(String, Settings)> = Vec::new();
        for one in &shared {
            bases.push(self.listener(one, servers, &scopes)?);
        }
        let first = self.config.listeners.len() - shared.len();
        for (number, server) in servers.iter().enumerate() {
            let notes = server.body().iter().filter_map(|one| unknown::note(one, Context::Server));
            let is_of = |one: &Shared| one.servers.iter().any(|(other, _)| *other == number);
            match shared.iter().position(is_of) {
                Some(at) => self.config.listeners[first + at].notes.extend(notes),
                None => self.config.notes.extend(notes),
            }
        }
        let mut taken: HashSet<(String, String)> = HashSet::new();
        for number in 0..servers.len() {
            for site in self.sites(number, servers, &scopes, &shared, &bases, &mut taken)? {
                self.site(&site)?;
            }
        }
        self.set_forwarded();
        Ok(())
    }

    fn listens(&mut self, server: &'c Directive) -> Result<Vec<Listen>, Mistake> {
        let written: Vec<&Directive> = server.body().iter().filter(|one| one.name == "listen").collect();
        if written.is_empty() {
            return Ok(vec![Listen {
                bind: "0.0.0.0:80".to_owned(),
                is_default: false,
                has_tls: false,
                has_http2: false,
                has_proxy_header: false,
                backlog: None,
                place: server.place.clone(),
            }]);
        }
        let is_on = |name: &str| server.body().iter().any(|one| one.name == name && one.first() == "on");
        let (ssl, http2) = (is_on("ssl"), is_on("http2"));
        let mut all = Vec::new();
        for of in written {
            if let Some(mut listen) = self.listen(of)? {
                listen.has_tls |= ssl;
                listen.has_http2 |= http2;
                all.push(listen);
            }
        }
        Ok(all)
    }

    /// A `listen`; `None`: it cannot be said, which is noted.
    pub(super) fn listen(&mut self, of: &Directive) -> Result<Option<Listen>, Mistake> {
        let Some(bind) = bind(of.first()) else {
            let why = "a listener has an IP address and a port, or a socket file";
            self.note(of, why, "bind = \"0.0.0.0:80\"");
            return Ok(None);
        };
        let mut listen = Listen {
            bind,
            is_default: false,
            has_tls: false,
            has_http2: false,
            has_proxy_header: false,
            backlog: None,
            place: of.place.clone(),
        };
        for option in of.args.iter().skip(1) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("default_server" | "default", _) => listen.is_default = true,
                ("ssl", _) => listen.has_tls = true,
                ("http2", _) => listen.has_http2 = true,
                ("proxy_protocol", _) => listen.has_proxy_header = true,
                ("backlog", value) => {
                    let count = value.parse().map_err(|_| Mistake::new(&of.place, "backlog is no number"))?;
                    listen.backlog = Some(count);
                }
                // Every worker has a socket of its own, and IPv6 addresses take IPv6 alone.
                ("reuseport" | "bind", _) | ("ipv6only", "on") => {}
                ("udp" | "quic", _) => {
                    self.note(of, "UDP is not served", "");
                    return Ok(None);
                }
                _ => self.note(of, &format!("`{option}` has no counterpart"), ""),
            }
        }
        Ok(Some(listen))
    }

    /// nginx lets `127.0.0.1:80` stand beside `*:80`; here one socket takes both.
    fn join_overlaps(&mut self, shared: &mut Vec<Shared>) {
        let wildcards: Vec<SocketAddr> = shared
            .iter()
            .filter_map(|one| one.bind.parse::<SocketAddr>().ok())
            .filter(|address| address.ip().is_unspecified())
            .collect();
        let covers = |one: &Shared| {
            let own = one.bind.parse::<SocketAddr>().ok()?;
            let is_covered =
                |all: &&SocketAddr| **all != own && all.port() == own.port() && all.is_ipv4() == own.is_ipv4();
            wildcards.iter().find(is_covered).map(ToString::to_string)
        };
        let mut kept: Vec<Shared> = Vec::new();
        for mut one in shared.drain(..) {
            let Some(wide) = covers(&one) else {
                match kept.iter_mut().find(|other| other.bind == one.bind) {
                    Some(other) => other.servers.append(&mut one.servers),
                    None => kept.push(one),
                }
                continue;
            };
            for (_, listen) in &mut one.servers {
                let why = format!("{} is a part of {wide}, and one listener takes both", one.bind);
                self.config.notes.push(Note::new(&listen.place, format!("listen {}", one.bind), why, "hosts"));
                (listen.bind, listen.is_default) = (wide.clone(), false);
            }
            match kept.iter_mut().find(|other| other.bind == wide) {
                Some(other) => other.servers.append(&mut one.servers),
                None => kept.push(Shared { bind: wide, servers: one.servers }),
            }
        }
        *shared = kept;
    }

    /// Makes a listener; returns its name and what its routes have from it.
    fn listener(
        &mut self,
        shared: &Shared,
        servers: &[&'c Directive],
        scopes: &[Scope<'c>],
    ) -> Result<(String, Settings), Mistake> {
        let default = shared.default_server();
        let scope = &scopes[default];
        let has_tls = shared.servers.iter().any(|(_, listen)| listen.has_tls);
        let mut notes = Vec::new();
        let mut more = Table::default();
        self.connection_keys(shared, scope, &mut more)?;
        self.differences(shared, servers, scopes);
        let base = self.settings(scope, &mut notes)?;
        // Notes on what a server has stand at its routes.
        notes.clear();
        for (key, value) in &base {
            more.set(&format!("http.{key}"), value.clone());
        }
        if has_tls {
            self.tls(shared, servers, scopes, &mut more)?;
        }
        let kind = if has_tls { "https" } else { "http" };
        let port = shared.bind.rsplit(':').next().unwrap_or_default();
        let name = self.listener_names.unique(&format!("{kind}-{port}"));
        self.config.listeners.push(Listener {
            name: name.clone(),
            bind: shared.bind.clone(),
            protocol: Protocol::Http,
            upstream: String::new(),
            more,
            notes,
        });
        Ok((name, base))
    }

    fn connection_keys(&mut self, shared: &Shared, scope: &Scope<'c>, more: &mut Table) -> Result<(), Mistake> {
        if shared.servers.iter().any(|(_, listen)| listen.has_proxy_header) {
            more.set("proxy_protocol", Value::text("any"));
            let trusted: Vec<&str> = scope.all("set_real_ip_from").iter().map(|of| of.first()).collect();
            if !trusted.is_empty() {
                more.set("proxy_trusted", Value::texts(trusted));
            }
        } else {
            for of in scope.all("set_real_ip_from") {
                self.note(of, "proxies in front are counted", "listener.http.trusted_hops");
            }
        }
        if let Some(backlog) = shared.servers.iter().find_map(|(_, listen)| listen.backlog) {
            more.set("backlog", Value::Number(backlog));
        }
        let head = scope.find("client_header_timeout").map(millis).transpose()?.unwrap_or(HEAD_MILLIS);
        more.set("head_timeout", Value::millis(head.clamp(1, 3_600_000)));
        if let Some(of) = scope.find("keepalive_timeout") {
            match millis(of)? {
                0 => self.note(of, "connections of clients are always kept", "keep_alive_timeout"),
                time => more.set("http.keep_alive_timeout", Value::millis(time.min(86_400_000))),
            }
        }
        match scope.find("access_log") {
            Some(log) if log.first() == "off" => more.set("access_log_sample", Value::Fraction(0.0)),
            Some(log) => self.set_access_log(log),
            None => {}
        }
        Ok(())
    }

    /// A server on the listeners where it means the same, once for each meaning.
    fn sites(
        &mut self,
        number: usize,
        servers: &[&'c Directive],
        scopes: &[Scope<'c>],
        shared: &[Shared],
        bases: &[(String, Settings)],
        taken: &mut HashSet<(String, String)>,
    ) -> Result<Vec<Site<'c>>, Mistake> {
        let (server, scope) = (servers[number], &scopes[number]);
        let mut sites: Vec<Site<'c>> = Vec::new();
        let first = server_names(server).flat_map(plain_names).next().unwrap_or_else(|| "default".to_owned());
        for (one, (listener, base)) in shared.iter().zip(bases) {
            let Some((_, listen)) = one.servers.iter().find(|(other, _)| *other == number) else { continue };
            let is_default = one.default_server() == number;
            let is_alone = one.servers.iter().all(|(other, _)| *other == number);
            let mut hosts = match is_alone {
                true => Vec::new(),
                false => self.hosts(server, listener, taken),
            };
            if is_default && !is_alone {
                hosts.push("*".to_owned());
            }
            if hosts.is_empty() && !is_alone {
                let why = "no host leads to this server";
                self.config.notes.push(Note::new(&server.place, format!("server {first}"), why, ""));
                continue;
            }
            let of_listener = ClientAuth::of(&scopes[one.default_server()])?;
            let is_closed = listen.has_tls && ClientAuth::of(scope)?.is_weakened_by(of_listener);
            let is_same = |site: &&mut Site<'c>| {
                (&site.hosts, site.has_tls, site.is_closed, &site.base) == (&hosts, listen.has_tls, is_closed, base)
            };
            match sites.iter_mut().find(is_same) {
                Some(site) => site.listeners.push(listener.clone()),
                None => sites.push(Site {
                    name: first.trim_start_matches(['*', '.']).to_owned(),
                    hosts,
                    listeners: vec![listener.clone()],
                    has_tls: listen.has_tls,
                    is_closed,
                    scope: scope.clone(),
                    place: server.place.clone(),
                    base: base.clone(),
                }),
            }
        }
        Ok(sites)
    }
}
