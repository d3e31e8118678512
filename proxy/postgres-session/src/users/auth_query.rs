//! Users of a server, found by a query: `auth_query` of PgBouncer.

use std::fmt;

use weir_base::secret::Secret;

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

/// The stored password of the user in a result; `None`: there is no such user. One that is NULL, such as one that has expired,
/// lets no client in.
///
/// # Errors
/// The result has another form.
pub fn auth_query_row(user: &[u8], rows: &[Vec<Option<Vec<u8>>>]) -> Result<Option<Option<Secret>>, AuthQueryError> {
    let row = match rows {
        [] => return Ok(None),
        [row] => row,
        rows => return Err(AuthQueryError::Rows(rows.len())),
    };
    let [name, password] = row.as_slice() else { return Err(AuthQueryError::Columns(row.len())) };
    if name.as_deref() != Some(user) {
        return Err(AuthQueryError::OtherUser);
    }
    Ok(Some(password.clone().map(Secret::new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[Option<&str>]) -> Vec<Option<Vec<u8>>> {
        columns.iter().map(|column| column.map(|text| text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_row_is_a_user_and_an_expired_password_none() {
        let find = |rows: &[Vec<Option<Vec<u8>>>]| auth_query_row(b"app", rows);
        assert_eq!(find(&[row(&[Some("app"), Some("pencil")])]), Ok(Some(Some(Secret::from("pencil")))));
        assert_eq!(find(&[row(&[Some("app"), None])]), Ok(Some(None)));
        assert_eq!(find(&[]), Ok(None));
        assert_eq!(find(&[row(&[Some("eve"), Some("x")])]), Err(AuthQueryError::OtherUser));
        assert_eq!(find(&[row(&[None, Some("x")])]), Err(AuthQueryError::OtherUser));
        assert_eq!(find(&[row(&[Some("app")])]), Err(AuthQueryError::Columns(1)));
        assert_eq!(find(&[row(&[]), row(&[])]), Err(AuthQueryError::Rows(2)));
    }
}
