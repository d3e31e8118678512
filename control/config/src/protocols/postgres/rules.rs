//! The clients that may log in, and how: `auth` for all, or rules as in `pg_hba.conf`.

use weir_base::Net;
use weir_engine::settings::ClientAuth;
use weir_postgres::settings::{Method, Name, Rule, Rules, Transport};

use super::futile;
use super::keys::ListenerPostgresSection;
use crate::checks::{error_at, is_local, warn_at};
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::section::section;
use crate::texts::{Choice, Text};

section! {
    /// A rule about clients, like a line of PostgreSQL's `pg_hba.conf`. The first rule that fits a client decides how the client
    /// logs in. A client that no rule fits is refused with SQLSTATE 28000.
    pub(crate) struct HbaSection {
        /// Kind of connection: `host` for TCP, `hostssl` for TCP with TLS, `hostnossl` for TCP without TLS, `local` for a Unix
        /// socket.
        required r#type: Transport;
        /// Databases, separated by commas: names, `all`, or `sameuser` for the database with the name of the user. A name in double
        /// quotes is not a keyword. If absent, `all`.
        optional database: Text;
        /// Users, separated by commas: names or `all`. If absent, `all`.
        optional user: Text;
        /// Network of the client, such as `10.0.0.0/8`, or `all`. If absent, `all`.
        optional address: Text;
        /// Login method: `scram-sha-256`, `md5`, `password` (in clear text, over TLS or a Unix socket), `cert`, `trust`, or
        /// `reject`.
        required method: RuleMethod;
    }
}

/// The method of a rule: all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RuleMethod(Method);

impl RuleMethod {
    pub(super) fn method(self) -> Method {
        self.0
    }
}

impl Choice for RuleMethod {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("scram-sha-256", Self(Method::ScramSha256)),
        ("md5", Self(Method::Md5)),
        ("password", Self(Method::Password)),
        ("cert", Self(Method::Cert)),
        ("trust", Self(Method::Trust)),
        ("reject", Self(Method::Reject)),
    ];
}

impl Choice for Transport {
    const WORDS: &'static [(&'static str, Self)] =
        &[("host", Self::Host), ("hostssl", Self::HostTls), ("hostnossl", Self::HostPlain), ("local", Self::Local)];
}

/// The rules of a listener.
pub(super) fn rules(of: &ListenerContext<'_>, reader: &mut Reader<'_>) -> Rules {
    let section = &of.section.own.postgres.postgres;
    let path = format!("{}.postgres", of.path);
    let mut needs_trust = false;
    let rules = if section.hba.is_empty() {
        needs_trust = section.auth.value == Method::Trust && !is_local(of.section);
        if needs_trust && !section.allow_trust.value {
            refuse_trust(&section.auth, &path, "auth", of, reader);
        }
        Rules::of(section.auth.value)
    } else {
        if section.auth.is_given {
            let what = "conflicts with rules in hba, which replace it";
            error_at(&section.auth, &path, "auth", what, "remove it, or write it as the method of a last rule", reader);
        }
        let rules = section.hba.iter().enumerate().map(|(index, table)| {
            let path = format!("{path}.hba[{index}]");
            let rule = rule(table, &path, reader)?;
            if let Some(method) = &table.method {
                needs_trust |= check_method(&rule, method, &path, of, reader);
            }
            Some(rule)
        });
        let rules: Vec<Option<Rule>> = rules.collect();
        futile::hba::check(&rules, of, reader);
        // One that is wrong has been reported, and its file is not used.
        Rules(rules.into_iter().flatten().collect())
    };
    unneeded_trust(section, needs_trust, &path, reader);
    rules
}

/// A table as a rule; `None`: a mistake, which was reported.
fn rule(table: &HbaSection, path: &str, reader: &mut Reader<'_>) -> Option<Rule> {
    let mut names = |text: &Option<At<Text>>, key: &str, read: fn(&str) -> Result<Vec<Name>, &'static str>| {
        let Some(at) = text else { return Some(vec![Name::All]) };
        let names = read(&at.value.0);
        if let Err(why) = &names {
            error_at(at, path, key, &format!("is not a name list: {why}"), "write \"all\", or \"app,shop\"", reader);
        }
        names.ok()
    };
    let databases = names(&table.database, "database", Name::databases);
    let users = names(&table.user, "user", Name::users);
    let transport = table.r#type.as_ref()?.value;
    let address = match &table.address {
        Some(at) if transport == Transport::Local => {
            error_at(at, path, "address", "does not apply to Unix sockets", "remove it", reader);
            return None;
        }
        Some(at) if at.value.0 != "all" => {
            let net: Result<Net, _> = at.value.0.parse();
            if let Err(error) = &net {
                error_at(at, path, "address", "is neither \"all\" nor a network", error.to_string(), reader);
            }
            Some(net.ok()?)
        }
        _ => None,
    };
    let method = table.method.as_ref()?.value.0;
    Some(Rule { transport, databases: databases?, users: users?, addresses: address.into_iter().collect(), method })
}

/// Checks that the method of a rule can be; true: it is `trust` for clients of other machines.
fn check_method(
    rule: &Rule,
    method: &At<RuleMethod>,
    path: &str,
    of: &ListenerContext<'_>,
    reader: &mut Reader<'_>,
) -> bool {
    match rule.method {
        Method::Cert => {
            let asks = |auth: ClientAuth| auth != ClientAuth::Off;
            let has_certificates = of.section.tls.as_ref().is_some_and(|tls| asks(tls.client_auth.value));
            if !has_certificates {
                let what = "lets no client in: the listener requests no certificate";
                let help = "write [listener.tls] with client_ca_file and client_auth = \"optional\"";
                error_at(method, path, "method", what, help, reader);
            }
            false
        }
        Method::Trust => {
            let is_near =
                rule.transport == Transport::Local || rule.addresses.iter().any(is_loopback) || is_local(of.section);
            let is_permitted = of.section.own.postgres.postgres.allow_trust.value;
            if !is_near && !is_permitted {
                refuse_trust(method, path, "method", of, reader);
            }
            !is_near
        }
        _ => false,
    }
}

/// `trust` at an address of other machines: every client that reaches it may do all that the upstream's user may.
fn refuse_trust<T>(at: &At<T>, path: &str, key: &str, of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let bind = of.section.bind.as_ref().map(|bind| bind.value.0.to_string()).unwrap_or_default();
    let what = format!("lets in all clients that reach {bind}");
    let help = format!("write {key} = \"scram-sha-256\" with [[listener.user]], or allow_trust = true");
    error_at(at, path, key, &what, help, reader);
}

fn unneeded_trust(section: &ListenerPostgresSection, is_needed: bool, path: &str, reader: &mut Reader<'_>) {
    if section.allow_trust.value && !is_needed {
        let what = "changes nothing here: it permits auth = \"trust\" where other machines connect";
        warn_at(&section.allow_trust, path, "allow_trust", what, "remove it", reader);
    }
}

/// Whether all addresses of a network are this machine.
fn is_loopback(net: &Net) -> bool {
    let (address, prefix) = net.parts();
    address.is_loopback() && prefix >= if address.is_ipv4() { 8 } else { 128 }
}
