//! PLAIN (RFC 4616): user and password in clear text. It is for TLS alone.

use std::fmt;

use weir_base::secret::Secret;

use crate::limits::MESSAGE_BYTES_MAX;

/// The one message of PLAIN.
#[derive(Clone, PartialEq, Eq)]
pub struct Plain {
    /// The user who logs in.
    pub user: Vec<u8>,
    /// Its password.
    pub password: Secret,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(..)")
    }
}

impl Plain {
    /// Reads the message of a client: `[identity] NUL user NUL password`. `None`: it has another form, an empty user or password, or
    /// wants to act as another user.
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Plain> {
        let mut parts = message.split(|byte| *byte == 0);
        let (identity, user, password) = (parts.next()?, parts.next()?, parts.next()?);
        let is_itself = identity.is_empty() || identity == user;
        let is_whole = !user.is_empty() && !password.is_empty() && parts.next().is_none();
        let fits = is_itself && is_whole && message.len() <= MESSAGE_BYTES_MAX;
        fits.then(|| Plain { user: user.to_vec(), password: Secret::from(password) })
    }

    /// The message of a client.
    #[must_use]
    pub fn message(&self) -> Secret {
        Secret::new([b"\0", &self.user[..], b"\0", self.password.expose()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4616, section 4, and the example of MongoDB's driver specification.
    #[test]
    fn the_messages_of_the_specifications_are_read() {
        let tim = Plain::read(b"\0tim\0tanstaaftanstaaf").unwrap();
        assert_eq!((&tim.user[..], tim.password.expose()), (&b"tim"[..], &b"tanstaaftanstaaf"[..]));
        let pencil = Plain::read(b"user\0user\0pencil").unwrap();
        assert_eq!(pencil.message().expose(), b"\0user\0pencil");
        assert_eq!(Plain::read(pencil.message().expose()), Some(pencil));
    }

    #[test]
    fn other_messages_are_none() {
        for message in
            [&b""[..], b"\0", b"\0\0", b"\0user\0", b"\0\0pencil", b"\0user\0pencil\0", b"Ursel\0Kurt\0xipj3plmq"]
        {
            assert_eq!(Plain::read(message), None, "{message:?}");
        }
        assert_eq!(Plain::read(&[b"\0user\0", &[b'x'; MESSAGE_BYTES_MAX][..]].concat()), None);
    }
}
