//! Users and their stored passwords, in the three forms that PostgreSQL and PgBouncer know.

mod auth_query;
mod userlist;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use weir_base::secret::Secret;
use weir_sasl::limits::{ITERATIONS_DEFAULT, SALT_BYTES};
use weir_sasl::{Challenge, Mechanism, ScramKeys, ScramVerifier, md5};

pub use auth_query::{AUTH_QUERY, AuthQueryError, auth_query_row};
pub use userlist::{UserlistError, userlist};

/// A user that may log in, with all that can be known of its password.
#[derive(Clone)]
pub struct User {
    /// Name.
    pub name: Vec<u8>,
    password: Option<Secret>,
    salt: [u8; SALT_BYTES],
    /// That of a plain password is made when it is first needed.
    verifier: OnceLock<ScramVerifier>,
    md5: Option<Secret>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &String::from_utf8_lossy(&self.name)).finish_non_exhaustive()
    }
}

impl User {
    /// A user with a password as PostgreSQL decides its form: a SCRAM verifier, an MD5 hash, or the plain password. A verifier
    /// of the last has `salt`, which is random or follows from the name and a secret.
    ///
    /// An empty password lets no client in, as in PostgreSQL.
    #[must_use]
    pub fn new(name: &[u8], stored: &Secret, salt: &[u8; SALT_BYTES]) -> User {
        let mut user = User::without_password(name);
        if let Ok(verifier) = ScramVerifier::parse(stored.expose()) {
            user.verifier = verifier.into();
        } else if md5::is_stored(stored.expose()) {
            user.md5 = Some(stored.clone());
        } else if !stored.is_empty() {
            user.salt = *salt;
            user.md5 = Some(md5::stored(name, stored));
            user.password = Some(stored.clone());
        }
        user
    }

    /// A user that no password lets in: only `trust` and `cert` do.
    #[must_use]
    pub fn without_password(name: &[u8]) -> User {
        User { name: name.to_vec(), password: None, salt: [0; SALT_BYTES], verifier: OnceLock::new(), md5: None }
    }

    /// The SCRAM verifier. The first call for a plain password makes it, which takes a millisecond; see [`User::is_derived`].
    #[must_use]
    pub fn verifier(&self) -> Option<&ScramVerifier> {
        let Some(password) = &self.password else { return self.verifier.get() };
        let mechanism = Mechanism::ScramSha256;
        let made = || ScramVerifier::from_password(mechanism, password, &self.salt, ITERATIONS_DEFAULT);
        Some(self.verifier.get_or_init(made))
    }

    /// Whether [`User::verifier`] takes no time.
    #[must_use]
    pub fn is_derived(&self) -> bool {
        self.password.is_none() || self.verifier.get().is_some()
    }

    /// The MD5 hash.
    #[must_use]
    pub fn md5(&self) -> Option<&Secret> {
        self.md5.as_ref()
    }

    /// The plain password, if it is known.
    #[must_use]
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// A password may let this user in.
    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some() || self.md5.is_some() || self.verifier().is_some()
    }

    /// The form of its password.
    #[must_use]
    pub fn form(&self) -> PasswordForm {
        // That of a plain password is ours.
        let stored = if self.password.is_some() { None } else { self.verifier() };
        let iterations = stored.map_or(ITERATIONS_DEFAULT, |known| known.challenge().iterations);
        PasswordForm { iterations, has_md5: self.md5.is_some() }
    }

    /// The means of this user to log in at a server without more from its client: the password, or the MD5 hash.
    #[must_use]
    pub fn credential(&self) -> Credential {
        let password = self.password.clone().map(Credential::Password);
        password.or_else(|| self.md5.clone().map(Credential::Md5)).unwrap_or(Credential::None)
    }
}

/// The form of a stored password, which a login shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PasswordForm {
    /// Iterations of its SCRAM verifier; the default without one.
    pub iterations: u32,
    /// MD5 is possible.
    pub has_md5: bool,
}

impl Default for PasswordForm {
    fn default() -> PasswordForm {
        PasswordForm { iterations: ITERATIONS_DEFAULT, has_md5: true }
    }
}

/// The means of the gateway to log in at a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// Nothing: the server must trust the gateway, or accept its certificate.
    #[default]
    None,
    /// The password.
    Password(Secret),
    /// An MD5 hash, which is enough for a server that wants one.
    Md5(Secret),
    /// Keys of a client's proof. In a box: each client keeps a credential.
    Keys(Box<ProvenKeys>),
}

/// Keys that a client's proof has shown. They are worth something only at a server with the same salt and iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenKeys {
    /// The keys.
    pub keys: ScramKeys,
    /// Salt and iterations of the verifier to which they belong.
    pub challenge: Challenge,
}

/// Users by name. It is made once per configuration and shared by all workers.
#[derive(Clone, Debug, Default)]
pub struct Users(HashMap<Vec<u8>, Arc<User>>);

impl Users {
    /// The user of this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.0.get(name)
    }

    /// The forms of all passwords, each as often as users have it, in an order that does not depend on chance.
    #[must_use]
    pub fn forms(&self) -> Vec<PasswordForm> {
        let mut forms: Vec<_> = self.0.values().filter(|user| user.has_password()).map(|user| user.form()).collect();
        forms.sort_unstable();
        forms
    }

    /// Takes over the verifiers that were made for the same passwords before.
    pub fn adopt(&self, before: &Users) {
        for (name, user) in &self.0 {
            let known = before.find(name).filter(|known| known.password == user.password && known.salt == user.salt);
            if let Some(verifier) = known.and_then(|known| known.verifier.get()) {
                let _ = user.verifier.set(verifier.clone());
            }
        }
    }

    /// Users whose verifier takes a millisecond yet: their first login would show that they exist.
    pub fn underived(&self) -> impl Iterator<Item = &Arc<User>> {
        self.0.values().filter(|user| !user.is_derived())
    }

    /// Number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A later user of the same name replaces an earlier one.
impl FromIterator<User> for Users {
    fn from_iter<I: IntoIterator<Item = User>>(users: I) -> Users {
        Users(users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: [u8; SALT_BYTES] = [7; SALT_BYTES];

    #[test]
    fn the_form_of_a_stored_password_decides_about_its_use() {
        let plain = User::new(b"app", &Secret::from("pencil"), &SALT);
        assert!(!plain.is_derived(), "that waits for a login");
        assert!(plain.verifier().is_some() && plain.password().is_some());
        assert!(plain.is_derived());
        let expected = md5::stored(b"app", &Secret::from("pencil"));
        assert_eq!(plain.md5(), Some(&expected));
        assert_eq!(plain.credential(), Credential::Password(Secret::from("pencil")));

        let hashed = User::new(b"app", &expected, &SALT);
        assert!(hashed.verifier().is_none() && hashed.password().is_none());
        assert_eq!(hashed.credential(), Credential::Md5(expected));

        let text = plain.verifier().expect("a verifier").format();
        let verified = User::new(b"app", &text, &SALT);
        assert_eq!(verified.verifier(), plain.verifier());
        assert_eq!((verified.md5(), verified.credential()), (None, Credential::None));

        let empty = User::new(b"app", &Secret::from(""), &SALT);
        assert!(empty.verifier().is_none() && empty.md5().is_none() && empty.password().is_none());
    }

    #[test]
    fn a_user_prints_no_secret_and_the_later_of_two_wins() {
        let users: Users =
            [User::new(b"app", &Secret::from("one"), &SALT), User::without_password(b"app")].into_iter().collect();
        assert_eq!(users.len(), 1);
        assert!(users.find(b"app").is_some_and(|user| user.password().is_none()));
        assert!(users.find(b"App").is_none());
        let user = User::new(b"app", &Secret::from("canary"), &SALT);
        assert!(!format!("{user:?} {:?}", user.credential()).contains("canary"));
    }

    #[test]
    fn verifiers_outlive_a_reload_of_the_same_passwords() {
        let users = |password: &str| Users::from_iter([User::new(b"app", &Secret::from(password), &SALT)]);
        let before = users("pencil");
        assert_eq!(before.underived().count(), 1);
        before.underived().for_each(|user| assert!(user.verifier().is_some()));
        assert_eq!(before.underived().count(), 0);
        let (same, other) = (users("pencil"), users("brush"));
        same.adopt(&before);
        other.adopt(&before);
        assert_eq!((same.underived().count(), other.underived().count()), (0, 1));
    }
}
