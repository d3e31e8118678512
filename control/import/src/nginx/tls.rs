//! TLS towards clients, and what one listener says for all of its servers.

use super::Importer;
use super::names::{plain_names, server_names};
use super::scope::Scope;
use super::server::Shared;
use super::syntax::Directive;
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};

/// Directives that each server of nginx has for itself, and a listener once for all.
const OF_THE_LISTENER: [&str; 4] = ["client_header_timeout", "keepalive_timeout", "set_real_ip_from", "access_log"];

/// Client authentication of a server: a word of `client_auth`, and the file of the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientAuth<'c> {
    pub(super) word: &'static str,
    file: Option<&'c str>,
}

impl<'c> ClientAuth<'c> {
    /// Nothing.
    const OFF: Self = Self { word: "off", file: None };

    /// The setting in force at a place.
    ///
    /// # Errors
    /// There is no authority.
    pub(super) fn of(scope: &Scope<'c>) -> Result<Self, Mistake> {
        let Some(of) = scope.find("ssl_verify_client") else { return Ok(Self::OFF) };
        let word = match of.first() {
            "on" => "required",
            "optional" => "optional",
            _ => return Ok(Self::OFF),
        };
        let file = scope.first("ssl_client_certificate").or_else(|| scope.first("ssl_trusted_certificate"));
        match file {
            Some(_) => Ok(Self { word, file }),
            None => Err(Mistake::new(&of.place, "ssl_verify_client needs ssl_client_certificate")),
        }
    }

    /// Whether a server demands certificates that a listener with `listener` does not demand: it must not be open then.
    pub(super) fn is_weakened_by(self, listener: Self) -> bool {
        self.word == "required" && self != listener
    }
}

impl<'c> Importer<'c> {
    /// The certificate of the default server, and those of the others for their names.
    pub(super) fn tls(
        &mut self,
        shared: &Shared,
        servers: &[&'c Directive],
        scopes: &[Scope<'c>],
        more: &mut Table,
    ) -> Result<(), Mistake> {
        let default = shared.default_server();
        let pair = |server: usize| {
            let scope = &scopes[server];
            Some((scope.first("ssl_certificate")?, scope.first("ssl_certificate_key")?))
        };
        // A default server that ends every handshake needs no certificate.
        let rejects = scopes[default].is_on("ssl_reject_handshake");
        let of_others = || shared.servers.iter().find_map(|(server, _)| pair(*server)).filter(|_| rejects);
        let Some((cert, key)) = pair(default).or_else(of_others) else {
            let message = "the server has TLS, and no ssl_certificate with ssl_certificate_key";
            return Err(Mistake::new(&servers[default].place, message));
        };
        let tls = more.table("tls");
        tls.set("cert_file", Value::text(cert));
        tls.set("key_file", Value::text(key));
        let auth = ClientAuth::of(&scopes[default])?;
        if let (Some(file), word) = (auth.file, auth.word) {
            tls.set("client_auth", Value::text(word));
            tls.set("client_ca_file", Value::text(file));
        }
        if !shared.servers.iter().any(|(_, listen)| listen.has_http2) {
            tls.set("alpn", Value::texts(["http/1.1"]));
        }
        let mut seen = vec![(cert, key)];
        for (server, _) in &shared.servers {
            let Some(other) = pair(*server).filter(|pair| !seen.contains(pair)) else { continue };
            seen.push(other);
            let mut table = Table::default();
            let names: Vec<String> = server_names(servers[*server]).flat_map(plain_names).collect();
            if !names.is_empty() {
                table.set("names", Value::texts(names));
            }
            table.set("cert_file", Value::text(other.0));
            table.set("key_file", Value::text(other.1));
            tls.push("certificate", table);
        }
        self.tls_notes(shared, auth, servers, scopes)
    }

    /// Notes on TLS settings of its servers that a listener cannot have.
    fn tls_notes(
        &mut self,
        shared: &Shared,
        auth: ClientAuth<'c>,
        servers: &[&'c Directive],
        scopes: &[Scope<'c>],
    ) -> Result<(), Mistake> {
        for (server, _) in shared.servers.iter().filter(|(_, listen)| listen.has_tls) {
            let scope = &scopes[*server];
            if let Some(of) = scope.find("ssl_protocols") {
                let is_same = of.args.iter().all(|word| matches!(word.as_str(), "TLSv1.2" | "TLSv1.3"));
                if !is_same || of.args.len() != 2 {
                    self.note(of, "TLS 1.2 and 1.3 are served, and no other version", "");
                }
            }
            let written = scope.find("ssl_verify_client");
            if let Some(of) = written.filter(|of| !matches!(of.first(), "on" | "off" | "optional")) {
                self.note(of, "certificates of clients are checked, or not requested", "client_auth = \"optional\"");
            }
            let own = ClientAuth::of(scope)?;
            let why = match own.is_weakened_by(auth) {
                _ if own == auth => continue,
                true => "a listener checks all clients as its default server does: this server responds with 403",
                false => "a listener checks all clients as its default server does",
            };
            match written {
                Some(of) => self.note(of, why, "a [[listener]] of its own with client_auth"),
                None => {
                    let (place, text) = (&servers[*server].place, "server without ssl_verify_client");
                    self.config.notes.push(Note::new(place, text, why, "a [[listener]] of its own"));
                }
            }
        }
        Ok(())
    }

    /// Notes on servers that differ from the default one in what a listener says once.
    pub(super) fn differences(&mut self, shared: &Shared, servers: &[&'c Directive], scopes: &[Scope<'c>]) {
        let default = &scopes[shared.default_server()];
        for name in OF_THE_LISTENER {
            let texts = |scope: &Scope<'c>| scope.all(name).iter().map(|of| of.text()).collect::<Vec<_>>();
            let wanted = texts(default);
            for (server, _) in &shared.servers {
                if texts(&scopes[*server]) == wanted {
                    continue;
                }
                let why = "applies to the whole listener, with the value of the default server of its address";
                match scopes[*server].find(name) {
                    Some(of) => self.note(of, why, "a [[listener]] of its own"),
                    None => {
                        let text = format!("server without {name}");
                        self.config.notes.push(Note::new(
                            &servers[*server].place,
                            text,
                            why,
                            "a [[listener]] of its own",
                        ));
                    }
                }
            }
        }
    }
}
