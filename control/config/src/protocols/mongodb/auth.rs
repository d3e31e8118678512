//! The logins of clients: each method has needs, and keys that only others use.

use std::sync::Arc;

use weir_engine::settings::ClientAuth;
use weir_mongodb::settings::{Auth, AuthMechanism, Mechanism, Users};

use super::keys::ListenerMongodbSection;
use crate::checks::{error_at, is_local, table_header, warn_at};
use crate::protocols::ListenerContext;
use crate::protocols::listed_users::{self, Remedies};
use crate::reader::Reader;
use crate::section::Section;
use crate::sections::ListenerSection;

/// The database of users that no server has: those of PLAIN and of certificates.
const EXTERNAL: &str = "$external";

/// Remedies for keys of users that only Redis listeners have.
const REMEDIES: Remedies = Remedies {
    rights: "write [[listener.mongodb.rule]]",
    limit: "see pool_size of [upstream.mongodb]",
    login: "write user and password in [upstream.mongodb]",
};

/// The mechanisms of a listener's SCRAM.
pub(super) fn mechanisms(section: &ListenerMongodbSection) -> Vec<Mechanism> {
    let written = section.mechanisms.as_ref().map(|list| list.value.iter().map(|one| one.value.0).collect());
    written.unwrap_or_else(|| vec![Mechanism::ScramSha256, Mechanism::ScramSha1])
}

/// The users of a listener.
pub(super) fn users(of: &ListenerContext<'_>, reader: &mut Reader<'_>) -> Arc<Users> {
    let section = &of.section.own.mongodb.mongodb;
    let listed = listed_users::users(of, &REMEDIES, reader);
    let (db, mechanisms) = match section.auth.value {
        // The keys of a password in clear text are compared with those of the better mechanism.
        Auth::Plain => (EXTERNAL, vec![Mechanism::ScramSha256]),
        _ => (section.auth_source.value.0.as_str(), mechanisms(section)),
    };
    Arc::new(Users::new(db, &mechanisms, listed.iter().map(|(name, secret)| (name.as_str(), secret))))
}

/// Checks the method of a listener, and the keys that depend on it.
pub(super) fn check(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let path = format!("{}.mongodb", of.path);
    // The method is unknown, which was reported.
    if reader.problems.is_refused(&format!("{path}.auth")) {
        return;
    }
    match of.section.own.mongodb.mongodb.auth.value {
        Auth::None => check_none(of, &path, reader),
        Auth::X509 => check_x509(of, &path, reader),
        Auth::Plain => check_plain(of, &path, reader),
        Auth::Passthrough => check_passthrough(of, &path, reader),
        Auth::Scram => {}
    }
    check_users(of, &path, reader);
    check_other_keys(of, &path, reader);
}

/// Every client that reaches the listener may do all that the upstream's user may.
fn check_none(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    if !is_local(of.section) && !section.allow_none.value {
        let bind = of.section.bind.as_ref().map(|bind| bind.value.0.to_string()).unwrap_or_default();
        let what = format!("lets in all clients that reach {bind}");
        let help = "write auth = \"scram\" with [[listener.user]], or allow_none = true";
        error_at(&section.auth, path, "auth", &what, help, reader);
    }
}

fn check_x509(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    let is_requested = of.section.tls.as_ref().is_some_and(|tls| tls.client_auth.value != ClientAuth::Off);
    if !is_requested {
        let what = "lets no client in: this listener requests no certificate";
        let help = "add [listener.tls] with client_auth = \"required\" and client_ca_file, or choose another method";
        error_at(&section.auth, path, "auth", what, help, reader);
    }
    if let Some(subjects) = section.subjects.as_ref().filter(|subjects| subjects.value.is_empty()) {
        let help = "write the subjects, or remove it to accept every certificate of client_ca_file";
        error_at(subjects, path, "subjects", "is empty, so no client could log in", help, reader);
    }
}

fn check_plain(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    if of.section.tls.is_none() {
        let what = "lets no client in: passwords in clear text pass only over TLS";
        let help = format!("add {}, or write auth = \"scram\"", table_header(&format!("{}.tls", of.path)));
        error_at(&section.auth, path, "auth", what, help, reader);
    }
}

/// The user of the client logs in at the server, and no other.
fn check_passthrough(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    let Some(upstream) = of.upstream.map(|upstream| &upstream.own.mongodb.mongodb) else { return };
    let has_login = upstream.user.is_some() || upstream.auth_mechanism.value == AuthMechanism::X509;
    if has_login {
        let what = "conflicts with the login of [upstream.mongodb]: the user of the client logs in at the server";
        let help = "remove user and password there, or write auth = \"scram\" with [[listener.user]]";
        error_at(&section.auth, path, "auth", what, help, reader);
    }
    warn_pools(of, reader);
}

/// Keys of pools, of which the connections of clients that log in at the server themselves are none.
const POOLS: &[&str] = &["pool_size", "min_pool_size", "server_lifetime", "server_idle_timeout", "server_check_delay"];

/// Warns of pools without a listener that uses them, at the first listener.
fn warn_pools(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let Some(upstream) = of.upstream else { return };
    let is_upstream = |listener: &&ListenerSection| {
        listener.upstream.as_ref().map(|name| &name.value) == upstream.name.as_ref().map(|name| &name.value)
    };
    let mut listeners = of.file.listener.iter().filter(is_upstream).peekable();
    let is_first = listeners.peek().is_some_and(|first| std::ptr::eq(*first, of.section));
    if !is_first || listeners.any(|listener| listener.own.mongodb.mongodb.auth.value != Auth::Passthrough) {
        return;
    }
    let mut given = Vec::new();
    upstream.own.mongodb.mongodb.given("", &mut given);
    let index = of.file.upstream.iter().position(|one| std::ptr::eq(one, upstream)).unwrap_or_default();
    for key in given.iter().filter(|key| POOLS.contains(&&*key.path)) {
        let path = format!("upstream[{index}].mongodb.{}", key.path);
        let message = format!("`{path}` has no effect: with auth = \"passthrough\" each client has its own connection");
        reader.problems.warning(&key.span, &path, message, "remove it");
    }
}

/// Users without a use, and a method without users.
fn check_users(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    let (auth, users) = (&section.auth, &of.section.own.redis.user);
    let uses_them = matches!(auth.value, Auth::Scram | Auth::Plain);
    match (users.first(), uses_them) {
        (None, true) => {
            let what = format!("lets no client in: the listener has no {}", users_header(of));
            let help = "add users with name and password, or choose another method";
            error_at(auth, path, "auth", &what, help, reader);
        }
        (Some(first), false) => {
            let method = word(section);
            let (key, message) = (
                format!("{}.user[0]", of.path),
                format!("`{}.user` has no effect: no password is checked here with auth = \"{method}\"", of.path),
            );
            let help = "write auth = \"scram\", or remove the users";
            reader.problems.error(&first.place.0, &key, message, help);
        }
        _ => {}
    }
    for (index, user) in users.iter().enumerate().filter(|_| uses_them) {
        let path = format!("{}.user[{index}]", of.path);
        if let Some(name) = user.name.as_ref().filter(|_| reader.lacks(user.password.as_ref(), &path, "password")) {
            let help = "add password = { env = \"NAME\" }";
            error_at(name, &path, "name", "has no password, so the user could not log in", help, reader);
        }
    }
}

fn users_header(of: &ListenerContext<'_>) -> String {
    format!("[{}]", table_header(&format!("{}.user", of.path)))
}

fn word(section: &ListenerMongodbSection) -> &'static str {
    match section.auth.value {
        Auth::None => "none",
        Auth::Scram => "scram",
        Auth::X509 => "x509",
        Auth::Plain => "plain",
        Auth::Passthrough => "passthrough",
    }
}

/// Keys that are for another method.
fn check_other_keys(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    let (auth, method) = (section.auth.value, word(section));
    let what = |owner: &str| format!("has no effect with auth = \"{method}\": only auth = \"{owner}\" uses it");
    if section.auth_source.is_given && auth != Auth::Scram {
        error_at(&section.auth_source, path, "auth_source", &what("scram"), "remove it", reader);
    }
    if let Some(mechanisms) = &section.mechanisms {
        if auth != Auth::Scram {
            error_at(mechanisms, path, "mechanisms", &what("scram"), "remove it", reader);
        } else if mechanisms.value.is_empty() {
            let help = "write [\"SCRAM-SHA-256\"], or remove it for both";
            error_at(mechanisms, path, "mechanisms", "is empty, so no client could log in", help, reader);
        }
    }
    if let Some(subjects) = section.subjects.as_ref().filter(|_| auth != Auth::X509) {
        error_at(subjects, path, "subjects", &what("x509"), "remove it", reader);
    }
    if auth == Auth::None && section.login_failures_max.is_given {
        let what = "has no effect with auth = \"none\": no client logs in";
        error_at(&section.login_failures_max, path, "login_failures_max", what, "remove it", reader);
    }
    if section.allow_none.value && (auth != Auth::None || is_local(of.section)) {
        let what = "changes nothing here: it permits auth = \"none\" where other machines connect";
        warn_at(&section.allow_none, path, "allow_none", what, "remove it", reader);
    }
}
