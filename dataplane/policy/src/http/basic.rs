//! User names and passwords (RFC 7617).
//!
//! **Cost of a check.** A password hash is slow so that a stolen file is of little use; one check may take as long as a
//! worker needs for a thousand requests. So no worker ever computes one:
//!
//! 1. Each worker remembers recent results ([`SeenCredentials`]), right and wrong credentials apart, by
//!    a keyed hash of name and password. The key is made again with each [`Basic`], so a reload forgets all.
//! 2. Credentials that are not remembered become a [`SlowCheck`], which the session has run on a thread that serves no
//!    connections. At most [`CHECKS_MAX`] are under way in the process; beyond it the response is 503 with `Retry-After`.
//! 3. A name that does not exist costs as much as the costliest user, so that timing does not reveal which names exist.
//!
//! Fast hashes (see [`StoredPassword::is_slow`]) are computed at once and not remembered.

use std::{fmt, sync::Arc, time::Duration};

use aws_lc_rs::{hmac, rand};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use weir_base::{Budget, Permit, Secret, Time};
use weir_http_codec::{Fields, Known, token};

use super::{
    cache::{Cache, Digest},
    password::{PasswordError, StoredPassword},
    refusal::Refusal,
};

/// Users of one policy. Default 10,000. Worst case about 300 bytes each, 3 MB; more belong into an identity provider.
pub const USERS_MAX: usize = 10_000;

/// Bytes of a user name. Default 256.
pub const USER_BYTES_MAX: usize = 256;

/// Bytes of a password. Default 1,024: longer ones only cost time.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// Bytes of a realm. Default 256.
pub const REALM_BYTES_MAX: usize = 256;

/// Slow checks of one policy under way in the process. Default 4: what a thread gets through in a second at the costs
/// that people use. A client beyond it retries after a second.
pub const CHECKS_MAX: u64 = 4;

/// For how long right credentials are remembered. Default 5 minutes.
pub const SEEN_FOR: Duration = Duration::from_secs(300);

/// For how long wrong credentials are remembered. Default 10 s: a client that repeats its mistake costs one check.
pub const WRONG_FOR: Duration = Duration::from_secs(10);

/// Credentials that a worker remembers, of each kind. Default 1,024. Worst case 2 x 1,024 x about 120 bytes, 240 KiB.
pub const SEEN_MAX: u32 = 1_024;

const _: () = assert!(WRONG_FOR.as_nanos() < SEEN_FOR.as_nanos());

/// A user of a password file.
#[derive(Clone, Debug)]
pub struct BasicUser {
    /// Without a colon (RFC 7617 2).
    pub name: Arc<str>,
    /// Hashed.
    pub password: StoredPassword,
}

/// An error in a line of a password file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtpasswdError {
    /// Counted from 1.
    pub line: usize,
    /// The error.
    pub error: BasicError,
}

/// The users of a file as `htpasswd` writes it: lines `name:hash`, empty lines and comments.
///
/// # Errors
/// Everything that is wrong, at most one mistake a line.
pub fn parse_htpasswd(text: &str) -> Result<Vec<BasicUser>, Vec<HtpasswdError>> {
    let (mut users, mut errors) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse_line(line) {
            Ok(user) => users.push(user),
            Err(error) => errors.push(HtpasswdError { line: index + 1, error }),
        }
    }
    if errors.is_empty() { Ok(users) } else { Err(errors) }
}

fn parse_line(line: &str) -> Result<BasicUser, BasicError> {
    let (name, hash) = line.split_once(':').ok_or(BasicError::NoColon)?;
    let password = StoredPassword::parse(hash)
        .map_err(|why| BasicError::Password { name: name.chars().take(USER_BYTES_MAX).collect(), why })?;
    Ok(BasicUser { name: name.into(), password })
}

/// The policy: users and a realm.
#[derive(Debug)]
pub struct Basic {
    /// By name.
    users: Box<[BasicUser]>,
    challenge: Box<[u8]>,
    is_stripped: bool,
    /// Checked in place of users that do not exist: the costliest.
    decoy: StoredPassword,
    /// Key of the digests by which credentials are remembered.
    key: hmac::Key,
    checks: Budget,
}

/// The memory of a worker. One for each worker and policy; it survives reloads, though what is in it does not count
/// for another [`Basic`].
#[derive(Debug)]
pub struct SeenCredentials {
    right: Cache<Arc<str>>,
    wrong: Cache<()>,
}

impl Default for SeenCredentials {
    fn default() -> Self {
        Self { right: Cache::new(SEEN_MAX), wrong: Cache::new(SEEN_MAX) }
    }
}

/// The response to credentials.
#[derive(Debug)]
pub enum BasicCheck {
    /// This user.
    Granted(Arc<str>),
    /// 401, or 503 while too many checks are under way.
    Refused(Refusal),
    /// Not known yet: run it elsewhere, and give what comes of it to [`Basic::finish`].
    Slow(Box<SlowCheck>),
}

/// A check that takes milliseconds. It holds one of [`CHECKS_MAX`] until it and its outcome are gone.
#[derive(Debug)]
pub struct SlowCheck {
    /// `None`: there is no such user, and the check is for show.
    user: Option<Arc<str>>,
    stored: StoredPassword,
    password: Secret,
    digest: Digest,
    permit: Permit,
}

impl SlowCheck {
    /// Computes the hash. Not for a thread that serves connections.
    pub fn run(self) -> SlowOutcome {
        let fits = self.stored.matches(self.password.expose());
        SlowOutcome { user: self.user.filter(|_| fits), digest: self.digest, _permit: self.permit }
    }
}

/// The result of a [`SlowCheck`].
#[derive(Debug)]
pub struct SlowOutcome {
    user: Option<Arc<str>>,
    digest: Digest,
    _permit: Permit,
}

impl Basic {
    /// A policy for these users. `is_stripped`: the credentials are not forwarded, see [`Basic::strip`].
    ///
    /// # Errors
    /// No users, too many, names that are none or twice there, a bad realm; no randomness.
    pub fn new(users: Vec<BasicUser>, realm: &str, is_stripped: bool) -> Result<Self, BasicError> {
        if users.len() > USERS_MAX {
            return Err(BasicError::TooManyUsers(users.len()));
        }
        let mut users = users;
        users.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(bad) = users.iter().find(|user| !is_name(&user.name)) {
            return Err(BasicError::Name(bad.name.chars().take(USER_BYTES_MAX).collect()));
        }
        if let Some(twice) = users.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(BasicError::Twice(twice[0].name.to_string()));
        }
        let costliest = users.iter().max_by_key(|user| user.password.cost()).ok_or(BasicError::NoUsers)?;
        let mut key = [0; 32];
        rand::fill(&mut key).map_err(|_| BasicError::NoRandomness)?;
        Ok(Self {
            decoy: costliest.password.clone(),
            challenge: challenge(realm)?,
            users: users.into(),
            is_stripped,
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            checks: Budget::new(CHECKS_MAX),
        })
    }

    /// Looks at the credentials of a request.
    pub fn check(&self, fields: &Fields, seen: &mut SeenCredentials, now: Time) -> BasicCheck {
        let mut lines = fields.all(Known::Authorization);
        let (Some(line), None) = (lines.next(), lines.next()) else {
            let reason = if fields.has(Known::Authorization) { "basic_malformed" } else { "basic_missing" };
            return BasicCheck::Refused(self.unauthorized(reason));
        };
        let Some(credentials) = decode(line) else {
            return BasicCheck::Refused(self.unauthorized("basic_malformed"));
        };
        let Some((name, password)) = split(credentials.expose()) else {
            return BasicCheck::Refused(self.unauthorized("basic_malformed"));
        };
        let found = self.users.binary_search_by(|user| (*user.name).cmp(name));
        let user = found.ok().map(|at| &self.users[at]);
        let stored = user.map_or(&self.decoy, |user| &user.password);
        let name = user.map(|user| Arc::clone(&user.name));
        if !stored.is_slow() {
            let fits = stored.matches(password);
            return self.granted_or_refused(name.filter(|_| fits));
        }
        let digest = self.digest(credentials.expose());
        if let Some(user) = seen.right.get(&digest, now.as_nanos()) {
            return BasicCheck::Granted(Arc::clone(user));
        }
        if seen.wrong.get(&digest, now.as_nanos()).is_some() {
            return self.granted_or_refused(None);
        }
        let Some(permit) = self.checks.try_acquire() else {
            let busy = Refusal::new(503, "basic_busy").with(Known::RetryAfter.name(), b"1");
            return BasicCheck::Refused(busy);
        };
        let (stored, password) = (stored.clone(), Secret::from(password));
        BasicCheck::Slow(Box::new(SlowCheck { user: name, stored, password, digest, permit }))
    }

    /// The user, if the credentials of the check were right. The outcome is remembered in any case.
    ///
    /// # Errors
    /// 401.
    pub fn finish(&self, outcome: SlowOutcome, seen: &mut SeenCredentials, now: Time) -> Result<Arc<str>, Refusal> {
        let ends = |span| now.saturating_add(span).as_nanos();
        match outcome.user {
            Some(user) => {
                seen.right.insert(outcome.digest, Arc::clone(&user), ends(SEEN_FOR), now.as_nanos());
                Ok(user)
            }
            None => {
                seen.wrong.insert(outcome.digest, (), ends(WRONG_FOR), now.as_nanos());
                Err(self.unauthorized("basic_wrong"))
            }
        }
    }

    /// Takes the credentials away before the request is forwarded, if the policy says so.
    pub fn strip(&self, fields: &mut Fields) {
        if self.is_stripped {
            fields.remove(Known::Authorization);
        }
    }

    fn granted_or_refused(&self, user: Option<Arc<str>>) -> BasicCheck {
        match user {
            Some(user) => BasicCheck::Granted(user),
            None => BasicCheck::Refused(self.unauthorized("basic_wrong")),
        }
    }

    fn unauthorized(&self, reason: &'static str) -> Refusal {
        Refusal::new(401, reason).with(Known::WwwAuthenticate.name(), &self.challenge)
    }

    fn digest(&self, credentials: &[u8]) -> Digest {
        let mut digest = [0; 32];
        digest.copy_from_slice(hmac::sign(&self.key, credentials).as_ref());
        digest
    }
}

/// `name:password` out of `Basic base64`.
fn decode(line: &[u8]) -> Option<Secret> {
    // Four characters for three bytes, rounded up, and the colon.
    const CHARS_MAX: usize = (USER_BYTES_MAX + 1 + PASSWORD_BYTES_MAX).div_ceil(3) * 4;
    let (scheme, rest) = line.split_at_checked(6)?;
    let chars = token::trim(rest);
    if !scheme.eq_ignore_ascii_case(b"basic ") || chars.len() > CHARS_MAX {
        return None;
    }
    STANDARD.decode(chars).ok().map(Secret::new)
}

/// At the first colon. Control characters are in neither (RFC 7617 2).
fn split(credentials: &[u8]) -> Option<(&str, &[u8])> {
    if credentials.iter().any(u8::is_ascii_control) {
        return None;
    }
    let at = credentials.iter().position(|&byte| byte == b':')?;
    let (name, password) = (&credentials[..at], &credentials[at + 1..]);
    let fits = name.len() <= USER_BYTES_MAX && password.len() <= PASSWORD_BYTES_MAX;
    std::str::from_utf8(name).ok().filter(|_| fits).map(|name| (name, password))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= USER_BYTES_MAX
        && !name.bytes().any(|byte| byte == b':' || byte.is_ascii_control())
}

fn challenge(realm: &str) -> Result<Box<[u8]>, BasicError> {
    let is_text = |byte: u8| matches!(byte, b' '..=b'~');
    if realm.is_empty() || realm.len() > REALM_BYTES_MAX || !realm.bytes().all(is_text) {
        return Err(BasicError::Realm);
    }
    let quoted = realm.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("Basic realm=\"{quoted}\", charset=\"UTF-8\"").into_bytes().into())
}

/// Why a policy cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BasicError {
    /// A line without a colon.
    NoColon,
    /// The hash of a user's password.
    Password {
        /// The user.
        name: String,
        /// Why it was refused.
        why: PasswordError,
    },
    /// No user.
    NoUsers,
    /// So many.
    TooManyUsers(usize),
    /// A name that is empty, too long, or has a colon or a control character.
    Name(String),
    /// A name that is there twice.
    Twice(String),
    /// A realm that is empty, too long or not printable ASCII.
    Realm,
    /// The system gives no randomness.
    NoRandomness,
}

impl fmt::Display for BasicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoColon => f.write_str("a line is `name:hash`, as `htpasswd -B` writes it"),
            Self::Password { name, why } => write!(f, "user `{name}`: {why}"),
            Self::NoUsers => f.write_str("there is no user, so no client could log in: name one"),
            Self::TooManyUsers(count) => write!(f, "{count} users; the most is {USERS_MAX}"),
            Self::Name(name) => {
                write!(f, "user `{name}`: a name has 1 to {USER_BYTES_MAX} bytes, no colon and no control character")
            }
            Self::Twice(name) => write!(f, "user `{name}` is there twice"),
            Self::Realm => write!(f, "a realm has 1 to {REALM_BYTES_MAX} printable ASCII characters"),
            Self::NoRandomness => f.write_str("the system gives no randomness"),
        }
    }
}

impl std::error::Error for BasicError {}

#[cfg(test)]
mod tests;
