//! The users of a listener that have a name and a password, and nothing else: the tables `[[listener.user]]` of all protocols but Redis.

use std::collections::HashSet;

use weir_base::Secret;

use super::ListenerContext;
use super::redis::ListenerUserSection;
use crate::checks::error_at;
use crate::diagnostic::Span;
use crate::reader::Reader;

/// Remedies for the keys of a user that only Redis listeners have.
pub(crate) struct Remedies {
    /// For `rules` and `trust_scripts`.
    pub(crate) rights: &'static str,
    /// For `connections_max` and `requests_per_second`.
    pub(crate) limit: &'static str,
    /// For `upstream_user` and `upstream_password`.
    pub(crate) login: &'static str,
}

/// The users and their passwords, in the order of the tables.
pub(crate) fn users(of: &ListenerContext<'_>, remedies: &Remedies, reader: &mut Reader<'_>) -> Vec<(String, Secret)> {
    let (mut users, mut names) = (Vec::new(), HashSet::new());
    for (index, table) in of.section.own.redis.user.iter().enumerate() {
        let path = format!("{}.user[{index}]", of.path);
        refuse_redis_keys(table, remedies, &path, reader);
        let Some(name) = &table.name else { continue };
        let secret = table.password.as_ref().map(|password| password.value.secret.clone());
        if secret.is_none() && !reader.lacks(table.password.as_ref(), &path, "password") {
            continue;
        }
        users.push((name.value.0.clone(), secret.unwrap_or_default()));
        if !names.insert(name.value.0.clone()) {
            let what = format!("names \"{}\", as another user of this listener does", name.value.0);
            error_at(name, &path, "name", &what, "give each user one table", reader);
        }
    }
    users
}

fn refuse_redis_keys(user: &ListenerUserSection, remedies: &Remedies, path: &str, reader: &mut Reader<'_>) {
    let mut refuse = |key: &str, help: &str, at: Option<&Span>| {
        let Some(span) = at else { return };
        let path = format!("{path}.{key}");
        reader.problems.error(span, &path, format!("`{path}` has no effect: only Redis listeners use it"), help);
    };
    let Remedies { rights, limit, login } = remedies;
    refuse("rules", rights, user.rules.as_ref().map(|at| &at.span));
    refuse("trust_scripts", rights, Some(&user.trust_scripts.span).filter(|_| user.trust_scripts.is_given));
    refuse("connections_max", limit, user.connections_max.as_ref().map(|at| &at.span));
    refuse("requests_per_second", limit, user.requests_per_second.as_ref().map(|at| &at.span));
    refuse("upstream_user", login, user.upstream_user.as_ref().map(|at| &at.span));
    refuse("upstream_password", login, user.upstream_password.as_ref().map(|at| &at.span));
}
