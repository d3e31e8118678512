//! Users of a server, found by a query: `auth_query` of PgBouncer.

use std::fmt;

use weir_base::secret::Secret;
use weir_sasl::limits::SALT_BYTES;

use super::User;

/// The query that is sent unless another is configured, with the user as `$1`. Every name has its schema (CVE-2025-12819), an
/// expired password is none (`VALID UNTIL`, CVE-2025-2291), and a role that may not log in is no user.
///
/// It must run on a session of its own that carries no setting of a client.
pub const AUTH_QUERY: &str = "SELECT rolname, CASE WHEN rolvaliduntil OPERATOR(pg_catalog.<) pg_catalog.now() \
     THEN NULL ELSE rolpassword END FROM pg_catalog.pg_authid \
     WHERE rolname OPERATOR(pg_catalog.=) $1 AND rolcanlogin";

/// A result that names no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthQueryError {
    /// The row does not have two columns.
    Columns(usize),
    /// The row has another user than the one that was looked for: its password must not open this user.
    OtherUser,
    /// More than one row.
    Rows(usize),
}

impl fmt::Display for AuthQueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthQueryError::Columns(count) => {
                write!(f, "auth_query returned {count} columns; it must return two, the user and its password")
            }
            AuthQueryError::OtherUser => f.write_str("auth_query returned another user than its parameter names"),
            AuthQueryError::Rows(count) => write!(f, "auth_query returned {count} rows; it may return one"),
        }
    }
}

impl std::error::Error for AuthQueryError {}

/// The user of a result; `None`: there is none. A password that is NULL, such as one that has expired, lets no client in.
///
/// # Errors
/// The result has another form.
pub fn auth_query_user(
    user: &[u8],
    rows: &[Vec<Option<Vec<u8>>>],
    salt: &[u8; SALT_BYTES],
) -> Result<Option<User>, AuthQueryError> {
    let row = match rows {
        [] => return Ok(None),
        [row] => row,
        rows => return Err(AuthQueryError::Rows(rows.len())),
    };
    let [name, password] = row.as_slice() else { return Err(AuthQueryError::Columns(row.len())) };
    if name.as_deref() != Some(user) {
        return Err(AuthQueryError::OtherUser);
    }
    Ok(Some(match password {
        Some(stored) => User::new(user, &Secret::new(stored.clone()), salt),
        None => User::without_password(user),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[Option<&str>]) -> Vec<Option<Vec<u8>>> {
        columns.iter().map(|column| column.map(|text| text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_row_is_a_user_and_an_expired_password_none() {
        let find = |rows: &[Vec<Option<Vec<u8>>>]| auth_query_user(b"app", rows, &[0; SALT_BYTES]);
        let user = find(&[row(&[Some("app"), Some("pencil")])]).expect("legal").expect("a user");
        assert_eq!(user.password(), Some(&Secret::from("pencil")));
        let expired = find(&[row(&[Some("app"), None])]).expect("legal").expect("a user");
        assert!(expired.verifier().is_none() && expired.md5().is_none());
        assert!(find(&[]).expect("legal").is_none());
        assert_eq!(find(&[row(&[Some("eve"), Some("x")])]).err(), Some(AuthQueryError::OtherUser));
        assert_eq!(find(&[row(&[None, Some("x")])]).err(), Some(AuthQueryError::OtherUser));
        assert_eq!(find(&[row(&[Some("app")])]).err(), Some(AuthQueryError::Columns(1)));
        assert_eq!(find(&[row(&[]), row(&[])]).err(), Some(AuthQueryError::Rows(2)));
    }
}
