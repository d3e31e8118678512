//! Users that the server knows.

use std::sync::Arc;

use weir_postgres::settings::{AUTH_QUERY, AuthQuerySettings, Credential};
use weir_postgres::users::Users;

use crate::checks::{error_at, warn_at};
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;

/// The database of a server that is always there.
const DATABASE: &str = "postgres";

/// The lookup of a listener with these users of its own.
pub(super) fn auth_query(
    of: &ListenerContext<'_>,
    users: &Users,
    reader: &mut Reader<'_>,
) -> Option<Arc<AuthQuerySettings>> {
    let section = &of.section.own.postgres.postgres;
    let path = format!("{}.postgres", of.path);
    let Some(user) = &section.auth_user else {
        let help = "add auth_user, the user that runs it";
        if let Some(query) = &section.auth_query {
            error_at(query, &path, "auth_query", "has no effect without auth_user", help, reader);
        }
        if let Some(database) = &section.auth_dbname {
            error_at(database, &path, "auth_dbname", "has no effect without auth_user", help, reader);
        }
        return None;
    };
    if let Some(query) = section.auth_query.as_ref().filter(|query| !query.value.0.contains("$1")) {
        let help = "use $1 in it, as in WHERE name = $1";
        error_at(query, &path, "auth_query", "does not have $1, the name of the user", help, reader);
    }
    let upstream = of.upstream.map(|upstream| &upstream.own.postgres.postgres);
    let name = user.value.0.as_str();
    let listed = users.find(name.as_bytes());
    let credential = match (listed.map(|user| user.credential()), upstream) {
        (Some(credential), _) => {
            if credential == Credential::None {
                let what = "names a user with a SCRAM verifier, which is not enough to log in";
                warn_at(user, &path, "auth_user", what, "list its plain password", reader);
            }
            credential
        }
        (None, Some(upstream)) if upstream.user.as_ref().is_some_and(|own| own.value.0 == name) => {
            let password = upstream.password.as_ref().map(|password| password.value.secret.clone());
            password.map_or(Credential::None, Credential::Password)
        }
        (None, _) => Credential::None,
    };
    let database = section.auth_dbname.as_ref().or_else(|| upstream?.database.as_ref());
    let text = |at: &At<crate::texts::Word>| at.value.0.clone();
    Some(Arc::new(AuthQuerySettings {
        user: name.to_owned(),
        credential,
        database: database.map_or_else(|| DATABASE.to_owned(), text),
        timeout: section.query_wait_timeout.value.0.min(section.client_login_timeout.value.0 / 2),
        query: section.auth_query.as_ref().map_or_else(|| AUTH_QUERY.to_owned(), |query| query.value.0.clone()),
    }))
}
