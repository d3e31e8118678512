//! The users of a listener: who may log in, what each may do, and what the workers count of them together.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use weir_base::{permit::Budget, secret::Secret, shared_rate::SharedRate};
use weir_policy::redis::{AclLog, PasswordHash, User};

use crate::{login_failures::LoginFailures, pause::Pause};

/// The user that a connection has before it says who it is.
pub const DEFAULT_USER: &str = "default";

/// One user: its rules, and what else the configuration says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct UserSettings {
    /// Passwords and rules.
    pub acl: User,
    /// Connections logged in as this user at a time, in the whole process; `None`: no limit of its own.
    pub connections_max: Option<u32>,
    /// Requests of all its connections together; `None`: no limit of its own.
    pub requests_per_second: Option<f64>,
    /// Let it run scripts although their effects cannot be checked: at the server they have the rights of the gateway.
    pub trusts_scripts: bool,
    /// As whom its requests reach the server; `None`: as the gateway.
    pub upstream: Option<UpstreamLogin>,
}

impl UserSettings {
    /// A user with rules and nothing else.
    pub fn new(acl: User) -> Self {
        Self { acl, connections_max: None, requests_per_second: None, trusts_scripts: false, upstream: None }
    }

    /// As whom its requests reach the server.
    pub(crate) fn login_key(&self) -> u64 {
        self.upstream.as_ref().map_or(OWN_LOGIN, UpstreamLogin::key)
    }

    /// It has to be looked at what it sends.
    pub(crate) fn is_watched(&self) -> bool {
        self.requests_per_second.is_some() || !self.acl.is_unrestricted()
    }
}

/// A user and a password at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLogin {
    /// The ACL user.
    pub user: String,
    /// Its password.
    pub password: Secret,
}

impl UpstreamLogin {
    /// Key that distinguishes it from other logins, never [`OWN_LOGIN`]: a part of the SHA-256 of both. An upstream that does not
    /// know the key refuses; it takes no other login in its place.
    pub fn key(&self) -> u64 {
        let both = Secret::new([self.user.as_bytes(), b"\0", self.password.expose()].concat());
        PasswordHash::of(both.expose()).short().max(OWN_LOGIN + 1)
    }
}

/// The key of the gateway's own login.
pub const OWN_LOGIN: u64 = 0;

/// The users of a listener. There is always one named `default`.
#[derive(Clone, Debug, PartialEq)]
pub struct Users(BTreeMap<String, Arc<UserSettings>>);

impl Users {
    /// These users. Without one named `default` there is one that may nothing and cannot log in: who is not named gets
    /// nothing.
    pub fn new(users: impl IntoIterator<Item = UserSettings>) -> Self {
        let named = |user: UserSettings| (user.acl.name().to_owned(), Arc::new(user));
        let mut users: BTreeMap<_, _> = users.into_iter().map(named).collect();
        users.entry(DEFAULT_USER.to_owned()).or_insert_with(|| Arc::new(UserSettings::new(User::new(DEFAULT_USER))));
        Self(users)
    }

    /// The user of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<UserSettings>> {
        self.0.get(std::str::from_utf8(name).ok()?)
    }

    /// All, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<UserSettings>> {
        self.0.values()
    }

    /// The user that every connection is at once, if `default` needs no password.
    pub fn open(&self) -> Option<&Arc<UserSettings>> {
        let default = self.0.get(DEFAULT_USER)?;
        (default.acl.is_enabled() && default.acl.needs_no_password()).then_some(default)
    }

    /// The user `name`, if this is its password. It takes the same time if there is no such user.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<&Arc<UserSettings>> {
        match self.get(name) {
            Some(user) => user.acl.admits(password).then_some(user),
            None => {
                let _ = User::new("").admits(password);
                None
            }
        }
    }
}

/// State of a listener's users, shared by its workers: it outlives reloads. Used at logins and
/// denials; the limits of a user also at each of its requests, if it has any.
#[derive(Debug, Default)]
pub struct ListenerShare {
    log: Mutex<AclLog>,
    login_failures: Mutex<LoginFailures>,
    limits: Mutex<HashMap<String, Arc<UserLimits>>>,
    /// Whether the clients of the listener are paused: all of them, of every user.
    pub(crate) pause: Pause,
}

/// Limits of one user.
#[derive(Debug)]
pub struct UserLimits {
    pub(crate) connections: Budget,
    pub(crate) rate: SharedRate,
}

impl ListenerShare {
    /// The log of denials.
    pub(crate) fn log(&self) -> MutexGuard<'_, AclLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The failed logins, by address.
    pub(crate) fn login_failures(&self) -> MutexGuard<'_, LoginFailures> {
        self.login_failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits of a user, as its settings are now.
    pub(crate) fn limits(&self, user: &UserSettings) -> Arc<UserLimits> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(UserLimits { connections: Budget::new(u64::MAX), rate: SharedRate::default() });
        let limits = limits.entry(user.acl.name().to_owned()).or_insert_with(fresh).clone();
        limits.connections.set_limit(user.connections_max.map_or(u64::MAX, u64::from));
        limits.rate.set(user.requests_per_second);
        limits
    }

    /// Forgets the limits of users that are gone, once their connections are.
    pub fn forget_others(&self, users: Option<&Users>) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |name: &str| users.is_some_and(|users| users.get(name.as_bytes()).is_some());
        limits.retain(|name, limits| is_there(name) || limits.connections.in_use() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, rules: &str) -> UserSettings {
        UserSettings::new(User::from_rules(name, rules).expect("valid rules"))
    }

    #[test]
    fn without_a_default_nobody_comes_in_unnamed() {
        let users = Users::new([user("alice", "on >x")]);
        assert!(users.open().is_none());
        assert!(users.log_in(b"default", b"").is_none() && users.log_in(b"alice", b"x").is_some());
        assert!(users.log_in(b"bob", b"x").is_none() && users.log_in(b"\xff", b"x").is_none());
        assert_eq!(users.iter().len(), 2);
    }

    #[test]
    fn an_open_default_is_everybody_at_once() {
        assert!(Users::new([user("default", "on nopass")]).open().is_some());
        assert!(Users::new([user("default", "off nopass")]).open().is_none());
        assert!(Users::new([user("default", "on >x")]).open().is_none());
    }

    #[test]
    fn limits_are_those_of_the_settings_and_survive_while_they_are_used() {
        let share = ListenerShare::default();
        let mut alice = user("alice", "on");
        alice.connections_max = Some(1);
        let permit = share.limits(&alice).connections.try_acquire().expect("room");
        assert!(share.limits(&alice).connections.try_acquire().is_none());
        share.forget_others(None);
        assert!(share.limits(&alice).connections.try_acquire().is_none(), "the permit is out");
        drop(permit);
        share.forget_others(None);
        assert!(share.limits(&alice).connections.try_acquire().is_some());
    }
}
