//! TLS of listeners and of clusters: certificates, and the authority that checks those of the other side.
//!
//! A check that cannot be read is a mistake, never a connection without it.

use super::Importer;
use crate::model::{Listener, Upstream};
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};
use crate::yaml::Node;

/// Keys of `common_tls_context` that are read.
const COMMON: [&str; 4] = ["tls_certificates", "alpn_protocols", "validation_context", "combined_validation_context"];

/// Words of `client_auth`, the strictest last.
const CLIENT_AUTH: [&str; 3] = ["off", "optional", "required"];

/// The authority that signs the certificates of the other side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authority<'n> {
    /// There is none, and Envoy checks nothing.
    Nobody,
    /// Those of the platform.
    System,
    File(&'n str),
}

impl<'n> Importer<'n> {
    /// The TLS context of a filter chain or a cluster; `None`: plain text.
    fn tls_context(&mut self, owner: &'n Node) -> Result<Option<&'n Node>, Mistake> {
        let Some(socket) = owner.get("transport_socket") else { return Ok(None) };
        let (name, kind) = (socket.text_at("name").unwrap_or_default(), socket.text_at("typed_config.@type"));
        let kind = kind.unwrap_or_default();
        if name == "envoy.transport_sockets.raw_buffer" || kind.ends_with(".RawBuffer") {
            return Ok(None);
        }
        let is_tls = match kind {
            "" => name == "envoy.transport_sockets.tls",
            kind => kind.ends_with(".DownstreamTlsContext") || kind.ends_with(".UpstreamTlsContext"),
        };
        match socket.get("typed_config").filter(|_| is_tls) {
            Some(context) => Ok(Some(context)),
            None => Err(Mistake::new(&socket.place, "a transport_socket is TLS with its typed_config, or raw_buffer")),
        }
    }

    /// The TLS of the chains: the first certificate for all, further ones for their names.
    pub(super) fn certificates(&mut self, chains: &[&'n Node], listener: &mut Listener) -> Result<(), Mistake> {
        let mut checks: Vec<(&'n Node, &'static str, Option<&'n str>)> = Vec::new();
        for chain in chains {
            let Some(context) = self.tls_context(chain)? else { continue };
            self.rest(context, &["common_tls_context", "require_client_certificate"], "DownstreamTlsContext");
            let common = context.get("common_tls_context");
            if let Some(common) = common {
                self.rest(common, &COMMON, "common_tls_context");
                self.pairs(chain, common, listener);
            }
            let tls = listener.more.table("tls");
            if tls.is_empty() {
                return Err(Mistake::new(&context.place, "the TLS context has no certificate in files"));
            }
            let protocols = common.map_or(&[][..], |common| common.items_at("alpn_protocols"));
            if !protocols.is_empty() && tls.get("alpn").is_none() {
                tls.set("alpn", Value::texts(protocols.iter().map(Node::text)));
            }
            let (word, file) = self.client_auth(context, common)?;
            checks.push((context, word, file));
        }
        // One listener asks all clients alike: the strictest chain decides.
        let rank = |word: &str| CLIENT_AUTH.iter().position(|known| *known == word);
        let Some(strictest) = checks.iter().rev().max_by_key(|(_, word, _)| rank(word)).copied() else { return Ok(()) };
        for (context, ..) in checks.iter().filter(|(_, word, file)| (*word, *file) != (strictest.1, strictest.2)) {
            let why = "all chains of a listener check clients with the settings of the strictest chain";
            self.note(context, "require_client_certificate", why, "a [[listener]] of its own");
        }
        if let (_, word, Some(file)) = strictest {
            listener.more.set("tls.client_auth", Value::text(word));
            listener.more.set("tls.client_ca_file", Value::text(file));
        }
        Ok(())
    }

    fn pairs(&mut self, chain: &'n Node, common: &'n Node, listener: &mut Listener) {
        for pair in common.items_at("tls_certificates") {
            self.rest(pair, &["certificate_chain", "private_key"], "tls_certificates");
            let (cert, key) = (pair.text_at("certificate_chain.filename"), pair.text_at("private_key.filename"));
            let (Some(cert), Some(key)) = (cert, key) else {
                let why = "certificates and keys are files";
                self.note(pair, "tls_certificates", why, "[listener.tls] cert_file, key_file");
                continue;
            };
            let tls = listener.more.table("tls");
            if tls.is_empty() {
                tls.set("cert_file", Value::text(cert));
                tls.set("key_file", Value::text(key));
                continue;
            }
            let mut table = Table::default();
            let names: Vec<&str> = chain.items_at("filter_chain_match.server_names").iter().map(Node::text).collect();
            if !names.is_empty() {
                table.set("names", Value::texts(names));
            }
            table.set("cert_file", Value::text(cert));
            table.set("key_file", Value::text(key));
            tls.push("certificate", table);
        }
    }

    /// Client authentication of a context: a word of [`CLIENT_AUTH`], and the file of the authority.
    fn client_auth(
        &mut self,
        context: &'n Node,
        common: Option<&'n Node>,
    ) -> Result<(&'static str, Option<&'n str>), Mistake> {
        let is_required = context.get("require_client_certificate").is_some_and(Node::is_true);
        match self.authority(common)? {
            Authority::File(file) => Ok((if is_required { "required" } else { "optional" }, Some(file))),
            Authority::Nobody if !is_required => Ok(("off", None)),
            Authority::Nobody | Authority::System => {
                let message = "certificates of clients need an authority in a file: trusted_ca with filename";
                Err(Mistake::new(&context.place, message))
            }
        }
    }

    /// The authority of a context.
    ///
    /// # Errors
    /// Certificates are checked by something that is not in the file.
    fn authority(&mut self, common: Option<&'n Node>) -> Result<Authority<'n>, Mistake> {
        let Some(common) = common else { return Ok(Authority::Nobody) };
        let combined = common.get("combined_validation_context");
        if let Some(combined) = combined {
            self.rest(combined, &["default_validation_context"], "combined_validation_context");
        }
        let inner = combined.and_then(|combined| combined.get("default_validation_context"));
        let context = common.get("validation_context").or(inner);
        if let Some(context) = context {
            self.rest(context, &["trusted_ca", "system_root_certs"], "validation_context");
            if let Some(file) = context.text_at("trusted_ca.filename") {
                return Ok(Authority::File(file));
            }
            if context.get("system_root_certs").is_some() && context.get("trusted_ca").is_none() {
                return Ok(Authority::System);
            }
        }
        // An empty context checks nothing in Envoy either.
        let is_check = |(key, node): &&(String, Node)| {
            key.contains("validation_context") && !(key == "validation_context" && node.entries().is_empty())
        };
        match common.entries().iter().find(is_check) {
            None => Ok(Authority::Nobody),
            Some((key, node)) => {
                let message =
                    format!("{key} has no authority in a file: write trusted_ca with filename, or system_root_certs");
                Err(Mistake::new(&node.place, message))
            }
        }
    }

    /// TLS towards a cluster. Envoy checks no certificates of upstreams without a validation context.
    pub(super) fn cluster_tls(&mut self, node: &'n Node, made: &mut Upstream) -> Result<(), Mistake> {
        let Some(context) = self.tls_context(node)? else { return Ok(()) };
        self.rest(context, &["common_tls_context", "sni"], "UpstreamTlsContext");
        let common = context.get("common_tls_context");
        if let Some(common) = common {
            self.rest(common, &COMMON, "common_tls_context");
        }
        let authority = self.authority(common)?;
        let sni = context.text_at("sni").filter(|name| !name.is_empty());
        let table = made.more.table("tls");
        match authority {
            Authority::File(file) => table.set("ca_file", Value::text(file)),
            Authority::System => {}
            Authority::Nobody => table.set("insecure_skip_verify", Value::Flag(true)),
        }
        if let Some(name) = sni {
            table.set("server_name", Value::text(name));
        }
        for pair in context.items_at("common_tls_context.tls_certificates") {
            let (cert, key) = (pair.text_at("certificate_chain.filename"), pair.text_at("private_key.filename"));
            let (Some(cert), Some(key)) = (cert, key) else {
                let message = "the certificate towards the cluster is not in files";
                return Err(Mistake::new(&pair.place, message));
            };
            table.set("cert_file", Value::text(cert));
            table.set("key_file", Value::text(key));
        }
        if authority != Authority::Nobody && sni.is_none() {
            let why = "the name in the certificate is checked too; without `sni` it is the host of the endpoint";
            made.notes.push(Note::new(&context.place, "UpstreamTlsContext", why, "[upstream.tls] server_name"));
        }
        Ok(())
    }
}
