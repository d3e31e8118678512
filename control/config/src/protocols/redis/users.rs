//! Users of a listener: from tables, a file and the listener's own password to one set.

use std::collections::HashMap;
use std::sync::Arc;

use weir_policy::redis::{PasswordHash, User};
use weir_redis_session::users::{DEFAULT_USER, UpstreamLogin, UserSettings, Users};

use super::keys::{ListenerRedisSection, ListenerUserSection};
use crate::checks::{error_at, warn_at};
use crate::document::At;
use crate::protocols::{ListenerProtocol, UpstreamProtocol};
use crate::reader::Reader;
use crate::secret::SecretRef;
use crate::sections::ListenerSection;
use crate::snapshot::{Listener, Upstream};

/// Rules of the user whose password is that of `[listener.redis]`: everything is allowed, as with `requirepass`.
const ALL: &str = "on ~* &* +@all";

/// The users of a listener; `None`: it has none.
pub(super) fn users(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) -> Option<Arc<Users>> {
    let keys = &section.own.redis;
    if keys.user.is_empty() && keys.users_file.is_none() {
        return None;
    }
    let in_file = keys.users_file.iter().flat_map(|file| &file.value.users);
    let mut users: HashMap<&str, UserSettings> =
        in_file.map(|user| (user.name(), UserSettings::new(user.clone()))).collect();
    let mut named: Vec<&str> = Vec::new();
    let users_file = format!("{path}.users_file");
    for (index, table) in keys.user.iter().enumerate() {
        let path = format!("{path}.user[{index}]");
        let Some(name) = &table.name else { continue };
        let word = name.value.0.as_str();
        if named.contains(&word) {
            let what = format!("names \"{word}\", as another user of this listener does");
            error_at(name, &path, "name", &what, "give each user one table", reader);
            continue;
        }
        named.push(word);
        let acl = match (&table.rules, users.remove(word)) {
            (None, Some(user)) => user.acl,
            (Some(rules), None) => match User::from_rules(word, rules.value.text()) {
                Ok(user) => user,
                // They were good when they were read. Were they not, a listener without its users would be open to all.
                Err(_) => {
                    let what = format!("cannot be the rules of \"{word}\"");
                    error_at(rules, &path, "rules", &what, "write them as in ACL SETUSER", reader);
                    continue;
                }
            },
            (Some(rules), Some(_)) => {
                let help = "keep the rules in one place";
                error_at(rules, &path, "rules", "conflicts with rules of the user in users_file", help, reader);
                continue;
            }
            (None, None) => {
                // A value that could not be read has been reported.
                let is_explained = [format!("{path}.rules"), users_file.clone()];
                if !is_explained.iter().any(|key| reader.problems.is_known_wrong(key)) {
                    let what = format!("names \"{word}\", which has no rules here or in users_file");
                    error_at(name, &path, "name", &what, "add rules = \"on ~app:* +@read\", for example", reader);
                }
                continue;
            }
        };
        let made = user(table, acl, &path, reader);
        let says_off = table.rules.as_ref().is_some_and(|rules| rules.value.text().split_whitespace().any(is_off));
        // A password that could not be read was reported.
        let has_unread = table.password.is_none() && !reader.lacks(table.password.as_ref(), &path, "password");
        if !made.acl.may_log_in() && !says_off && !has_unread {
            let what =
                format!("names \"{word}\", and no client can log in as that user: it has {}", missing(&made.acl));
            let help = "write on and >PASSWORD, #HASH or nopass in its rules, or password = { env = \"NAME\" }";
            warn_at(name, &path, "name", &what, help, reader);
        }
        users.insert(word, made);
    }
    if let Some(file) = &keys.users_file {
        let is_left = |user: &&User| user.is_enabled() && !named.contains(&user.name()) && !user.may_log_in();
        for user in file.value.users.iter().filter(is_left) {
            let what =
                format!("has a user \"{}\" without a password, so no client can log in as that user", user.name());
            warn_at(file, path, "users_file", &what, "add >PASSWORD, #HASH or nopass to its line", reader);
        }
    }
    own(&keys.redis, &mut users, path, reader);
    Some(Arc::new(Users::new(users.into_values())))
}

fn user(table: &ListenerUserSection, mut acl: User, path: &str, reader: &mut Reader<'_>) -> UserSettings {
    add_password(&mut acl, table.password.as_ref());
    if let Some(connections) = table.connections_max.as_ref().filter(|_| is_open(&acl)) {
        let help = "set connections_max of the listener, or give the user a password";
        error_at(connections, path, "connections_max", "limits a user that needs no login", help, reader);
    }
    let upstream = match (&table.upstream_user, &table.upstream_password) {
        (Some(user), Some(password)) => {
            Some(UpstreamLogin { user: user.value.0.clone(), password: password.value.secret.clone() })
        }
        (Some(_), None) if !reader.lacks(table.upstream_password.as_ref(), path, "upstream_password") => None,
        (Some(user), None) => {
            let help = "add upstream_password = { env = \"NAME\" }";
            error_at(user, path, "upstream_user", "has no effect without upstream_password", help, reader);
            None
        }
        (None, Some(password)) => {
            let help = "add upstream_user, the ACL user at the server";
            error_at(password, path, "upstream_password", "has no effect without upstream_user", help, reader);
            None
        }
        (None, None) => None,
    };
    UserSettings {
        acl,
        connections_max: table.connections_max.as_ref().map(|count| count.value),
        requests_per_second: table.requests_per_second.as_ref().map(|rate| rate.value.into()),
        trusts_scripts: table.trust_scripts.value,
        upstream,
    }
}

/// The listener's own user and password are one user more, that may do everything: without a name it is `default`, as with
/// Redis's `requirepass`.
fn own<'s>(
    section: &'s ListenerRedisSection,
    users: &mut HashMap<&'s str, UserSettings>,
    path: &str,
    reader: &mut Reader<'_>,
) {
    let path = format!("{path}.redis");
    let Some(password) = &section.password else { return };
    let name = section.user.as_ref().map_or(DEFAULT_USER, |user| user.value.0.as_str());
    if users.contains_key(name) {
        let what = format!("is the password of \"{name}\", which is also a user with rules");
        error_at(password, &path, "password", &what, "remove it, and give that user its password", reader);
    } else if let Ok(mut acl) = User::from_rules(name, ALL) {
        add_password(&mut acl, Some(password));
        users.insert(name, UserSettings::new(acl));
    }
}

fn is_off(rule: &str) -> bool {
    rule.eq_ignore_ascii_case("off")
}

/// Why no client can log in.
fn missing(user: &User) -> &'static str {
    if user.is_enabled() { "no password, and no nopass" } else { "no `on` in its rules" }
}

fn add_password(user: &mut User, password: Option<&At<SecretRef>>) {
    if let Some(password) = password {
        let hash = PasswordHash::of(password.value.secret.expose()).to_hex();
        // A hash that was just made is one.
        let _ = user.apply(&format!("#{hash}"));
    }
}

fn is_open(user: &User) -> bool {
    user.is_default() && user.is_enabled() && user.needs_no_password()
}

/// An upstream knows as whom the users of its listeners log in there.
pub(super) fn give_logins(listeners: &[Listener], upstreams: &mut [Upstream]) {
    for upstream in upstreams {
        let here = listeners.iter().filter(|listener| listener.upstream == upstream.settings.name);
        let users = here.filter_map(|listener| match &listener.protocol {
            ListenerProtocol::Redis(redis) => redis.users.as_ref(),
            _ => None,
        });
        let mut logins: Vec<UpstreamLogin> =
            users.flat_map(|users| users.iter()).filter_map(|user| user.upstream.clone()).collect();
        if logins.is_empty() {
            continue;
        }
        // In an order of their own, so that moving a table is no change.
        logins.sort_by_key(UpstreamLogin::key);
        logins.dedup_by_key(|login| login.key());
        if let UpstreamProtocol::Redis(redis) = &mut upstream.protocol {
            Arc::make_mut(redis).logins = logins;
        }
    }
}
