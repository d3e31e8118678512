//! The users of a listener. Verifiers are made of their passwords once, before logins need them.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use weir_base::Secret;
use weir_listener::login::entropy::process_secret;
use weir_mongodb_session::users::{Identity, User};
use weir_sasl::{Mechanism, ScramVerifier, mongodb};

/// Users by database and name. They are equal if their passwords and mechanisms are.
#[derive(Debug, Default, PartialEq)]
pub struct Users(HashMap<Identity, Arc<ListedUser>>);

/// A user with its password.
#[derive(Debug)]
pub(crate) struct ListedUser {
    identity: Identity,
    password: Secret,
    mechanisms: Vec<Mechanism>,
    made: OnceLock<Arc<User>>,
}

impl Users {
    /// The users of a database with their passwords, for these mechanisms. A later one of a name replaces an earlier one. This is
    /// fast: the derivations, of 5 to 10 ms each, come later.
    pub fn new<'a>(db: &str, mechanisms: &[Mechanism], users: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Self {
        let user = |(name, password): (&str, &Secret)| {
            let identity = Identity::new(db.as_bytes(), name.as_bytes());
            let (password, mechanisms) = (password.clone(), mechanisms.to_vec());
            let listed = ListedUser { identity: identity.clone(), password, mechanisms, made: OnceLock::new() };
            (identity, Arc::new(listed))
        };
        Self(users.into_iter().map(user).collect())
    }

    /// Number of users.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The user of this name in this database. The first call for a user may take some milliseconds: see [`Users::unmade`].
    pub(crate) fn find(&self, db: &[u8], name: &[u8]) -> Option<Arc<User>> {
        self.0.get(&Identity::new(db, name)).map(|user| user.user())
    }

    /// Users without verifiers.
    pub(crate) fn unmade(&self) -> impl Iterator<Item = &Arc<ListedUser>> {
        self.0.values().filter(|user| user.made.get().is_none())
    }

    /// Takes over the verifiers of users that are the same in `before`: a reload derives new ones alone.
    pub(crate) fn adopt(&self, before: &Self) {
        for (identity, user) in &self.0 {
            let Some(known) = before.0.get(identity) else { continue };
            let is_same = known.password == user.password && known.mechanisms == user.mechanisms;
            if let Some(made) = known.made.get().filter(|_| is_same) {
                let _ = user.made.set(made.clone());
            }
        }
    }
}

impl PartialEq for ListedUser {
    fn eq(&self, other: &Self) -> bool {
        (&self.identity, &self.password, &self.mechanisms) == (&other.identity, &other.password, &other.mechanisms)
    }
}

impl ListedUser {
    /// The user with its verifiers. The salt is that which a user of this name has that does not exist: neither a reload nor a new
    /// user shows in it.
    pub(crate) fn user(&self) -> Arc<User> {
        self.made.get_or_init(|| Arc::new(self.derive())).clone()
    }

    fn derive(&self) -> User {
        let secret = process_secret();
        let salt = |mechanism: &Mechanism| {
            let none = ScramVerifier::mock(*mechanism, &self.identity.name, &secret, mongodb::iterations(*mechanism));
            let mut salt = [0; 16];
            salt.copy_from_slice(&none.challenge().salt);
            salt
        };
        let salts: Vec<_> = self.mechanisms.iter().map(salt).collect();
        User::from_password(self.identity.clone(), &self.password, &self.mechanisms, &salts)
    }
}
