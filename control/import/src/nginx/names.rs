//! Addresses and names of servers.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use super::Importer;
use super::syntax::Directive;
use crate::note::Note;

impl Importer<'_> {
    /// The hosts of a server on a listener. The first server that names a host has it.
    pub(super) fn hosts(
        &mut self,
        server: &Directive,
        listener: &str,
        taken: &mut HashSet<(String, String)>,
    ) -> Vec<String> {
        let mut hosts = Vec::new();
        for of in server.body().iter().filter(|one| one.name == "server_name") {
            for name in &of.args {
                let own = plain_names(name);
                // `_` and nothing are conventional names for a server that no client requests by name.
                if own.is_empty() && name != "_" && !name.is_empty() {
                    let why = "hosts are names, or names with a star in front";
                    self.config.notes.push(Note::new(&of.place, of.text(), why, "hosts = [\"*.example.com\"]"));
                }
                for host in own {
                    match taken.insert((listener.to_owned(), host.clone())) {
                        true => hosts.push(host),
                        false => {
                            let why = format!("another server of {listener} has {host}");
                            self.config.notes.push(Note::new(&of.place, of.text(), why, ""));
                        }
                    }
                }
            }
        }
        hosts
    }
}

/// The address of a listener; `None`: it cannot be said.
pub(super) fn bind(text: &str) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Some(format!("unix:{path}"));
    }
    if let Ok(port) = text.parse::<u16>() {
        return Some(format!("0.0.0.0:{port}"));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.to_string());
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(SocketAddr::new(address, 80).to_string());
    }
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    match host {
        "*" => Some(format!("0.0.0.0:{port}")),
        "localhost" => Some(format!("127.0.0.1:{port}")),
        _ => None,
    }
}

pub(super) fn server_names(server: &Directive) -> impl Iterator<Item = &str> {
    let own = server.body().iter().filter(|one| one.name == "server_name");
    own.flat_map(|one| &one.args).map(String::as_str)
}

/// The hosts of a name: `.a.example` is the name and all below it. Empty: it cannot be said.
pub(super) fn plain_names(name: &str) -> Vec<String> {
    match name.strip_prefix('.') {
        Some(rest) if is_plain(rest) => vec![rest.to_lowercase(), format!("*.{}", rest.to_lowercase())],
        _ if is_plain(name) => vec![name.to_lowercase()],
        _ => Vec::new(),
    }
}

/// A name, perhaps with a star in front.
fn is_plain(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !rest.is_empty() && rest != "_" && !rest.starts_with('.') && !rest.ends_with('.') && rest.chars().all(is_host)
}
