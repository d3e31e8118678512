//! nginx: `http` with its servers, locations and upstreams, and `stream`.
//!
//! | file | concept |
//! |---|---|
//! | `syntax` | words, blocks, includes |
//! | `scope` | a directive as it holds at a place: inherited from outer blocks |
//! | `server` | servers become listeners, and sites with their hosts |
//! | `names` | addresses and names of servers |
//! | `tls` | TLS towards clients, and what a listener says once for all servers |
//! | `site` | the actions of a server on a request: returns, rewrites, locations |
//! | `location` | which paths a location has, in the order of nginx |
//! | `route` | the route of a location, with its settings and headers |
//! | `action` | `proxy_pass`, `return`, `rewrite` |
//! | `settings` | limits, timeouts, compression and policies |
//! | `headers` | `proxy_set_header` and `add_header` |
//! | `upstream` | upstream blocks, and servers named by `proxy_pass` |
//! | `stream` | TCP and TLS by server name |
//! | `unknown` | why a directive has no counterpart |

mod action;
mod headers;
mod location;
mod names;
mod route;
mod scope;
mod server;
mod settings;
mod site;
mod stream;
mod syntax;
mod tls;
mod unknown;
mod upstream;

use std::collections::HashMap;

use self::scope::Scope;
use self::syntax::Directive;
use crate::Files;
use crate::model::{Config, Names};
use crate::note::{Mistake, Note, SourceLine};
use crate::toml::Value;

/// A conversion under way.
struct Importer<'c> {
    config: Config,
    listener_names: Names,
    route_names: Names,
    upstream_names: Names,
    /// `upstream` blocks by name: of `http`, or of `stream` while that is read.
    blocks: HashMap<&'c str, &'c Directive>,
    /// Upstreams that have been made, by what makes them differ.
    made: HashMap<String, String>,
    /// `limit_req_zone` by name.
    zones: HashMap<&'c str, &'c Directive>,
}

impl<'c> Importer<'c> {
    fn note(&mut self, of: &Directive, why: &str, nearest: &str) {
        self.config.notes.push(Note::new(&of.place, of.text(), why, nearest));
    }
}

/// Reads a configuration.
pub(crate) fn read(name: &str, text: &str, files: &dyn Files) -> Result<Config, Mistake> {
    let all = syntax::parse(name, text, files)?;
    let mut importer = Importer {
        config: Config::default(),
        listener_names: Names::default(),
        route_names: Names::default(),
        upstream_names: Names::default(),
        blocks: HashMap::new(),
        made: HashMap::new(),
        zones: HashMap::new(),
    };
    let has_frame = all.iter().any(|one| matches!(one.name.as_str(), "http" | "stream"));
    if has_frame {
        for one in &all {
            match one.name.as_str() {
                "http" => importer.http(one.body())?,
                "stream" => importer.stream(one.body())?,
                "events" => one.body().iter().for_each(|inner| importer.main(inner)),
                _ => importer.main(one),
            }
        }
    } else {
        // A file of `conf.d` or `sites-enabled`, which nginx includes in `http`.
        importer.http(&all)?;
    }
    if importer.config.listeners.is_empty() {
        let place = SourceLine { file: name.into(), line: 1 };
        return Err(Mistake::new(&place, "there is no `server` with an address that could be imported"));
    }
    Ok(importer.config)
}

impl<'c> Importer<'c> {
    fn main(&mut self, of: &'c Directive) {
        match (of.name.as_str(), of.first()) {
            ("worker_processes", "auto") => {}
            ("worker_processes", count) => match count.parse() {
                Ok(count) => self.config.process.set("runtime.workers", Value::Number(count)),
                Err(_) => self.note(of, "is not a number of workers", "runtime.workers"),
            },
            _ => self.config.notes.extend(unknown::note(of, unknown::Context::Main)),
        }
    }

    fn http(&mut self, body: &'c [Directive]) -> Result<(), Mistake> {
        let mut servers = Vec::new();
        for one in body {
            match one.name.as_str() {
                "server" => servers.push(one),
                "upstream" => {
                    self.blocks.insert(one.first(), one);
                }
                "limit_req_zone" => {
                    let zone = one.args.iter().find_map(|arg| arg.strip_prefix("zone="));
                    let Some(zone) = zone else { return Err(Mistake::new(&one.place, "limit_req_zone needs zone=")) };
                    self.zones.insert(zone.split(':').next().unwrap_or(zone), one);
                }
                // The map for WebSockets: Weir upgrades without one where `Upgrade` is passed on.
                "map" if one.first() == "$http_upgrade" => {}
                _ => self.config.notes.extend(unknown::note(one, unknown::Context::Http)),
            }
        }
        let scope = Scope::new(body);
        self.access_log(&scope);
        self.servers(&servers, &scope)?;
        self.warn_unused(body);
        Ok(())
    }

    /// The access log of the process: nginx has one for each place, Weir has one.
    fn access_log(&mut self, scope: &Scope<'c>) {
        let Some(log) = scope.find("access_log").filter(|log| log.first() != "off") else { return };
        self.set_access_log(log);
    }

    /// Switches the access log on, with the file of `log`.
    fn set_access_log(&mut self, log: &Directive) {
        let file = log.first();
        if !file.starts_with('/') || file.contains('$') {
            self.note(log, "the access log is a file with an absolute path", "telemetry.access_log.target");
            return;
        }
        let target = Value::text(format!("file:{file}"));
        match self.config.process.get("telemetry.access_log.target") {
            Some(known) if *known == target => {}
            Some(_) => self.note(log, "Weir has one access log for all servers", "the field `listener` of a line"),
            None => {
                self.config.process.set("telemetry.access_log.target", target);
                self.config.process.set("telemetry.access_log.sample", Value::Fraction(1.0));
                self.note(log, "lines are JSON with fields of Weir, not log_format", "telemetry.access_log.fields");
            }
        }
    }

    /// Upstream blocks that nothing has named.
    fn warn_unused(&mut self, body: &[Directive]) {
        for one in body.iter().filter(|one| one.name == "upstream") {
            let is_used = self.made.keys().any(|key| key.split(' ').next() == Some(one.first()));
            if !is_used {
                self.note(one, "nothing that was imported sends requests to it", "");
            }
        }
    }
}
