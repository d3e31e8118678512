//! All keys of a configuration, as an immutable snapshot.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use super::secret::{KeyHash, is_well_formed};
use crate::{
    budget::{Account, AccountId, AccountKind, LEVELS_MAX, Ledger, Level},
    denial::Denial,
    policy::{self, CacheRule, Mode, PATTERNS_MAX, Policy},
};

/// Keys of one ring. Default 65,536. Worst case about 600 bytes each with two secrets and policies, 40 MB.
pub const KEYS_MAX: usize = 65_536;

/// Secrets of one key: the current one, and those that a rotation replaces. Default 4.
pub const SECRETS_MAX: usize = 4;

/// Bytes of a name, which is in logs. Default 128.
pub const NAME_BYTES_MAX: usize = 128;

/// One secret of a key. During a rotation a key has two, so that its clients can change at their pace.
#[derive(Clone, Debug)]
pub struct KeySecret {
    /// Its hash.
    pub hash: KeyHash,
    /// Its anonymous form, for lists.
    pub shown: Arc<str>,
    /// From this Unix time on, in seconds, it is superseded. `None`: it is the current one.
    pub until: Option<u64>,
}

/// A key as it is configured. Its account belongs to its name: a rotation and a reload keep what it has used.
#[derive(Clone, Debug)]
pub struct KeySettings {
    /// For logs, the usage log and the account.
    pub name: Arc<str>,
    /// 1 to [`SECRETS_MAX`].
    pub secrets: Vec<KeySecret>,
    /// It may be used.
    pub is_enabled: bool,
    /// From this Unix time on, in seconds, it may not.
    pub expires: Option<u64>,
    /// Its own policy.
    pub policy: Arc<Policy>,
    /// Its team.
    pub team: Option<Arc<str>>,
    /// The organisation of its team.
    pub organization: Option<Arc<str>>,
}

/// A team or an organisation, with a policy that all its keys share.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its kind; not [`AccountKind::Key`].
    pub kind: AccountKind,
    /// For logs and the account.
    pub name: Arc<str>,
    /// For all its keys together.
    pub policy: Arc<Policy>,
}

/// Whether a key may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It may.
    Active,
    /// An operator has disabled it.
    Disabled,
    /// It is past its end.
    Expired,
}

/// A key of a ring.
#[derive(Debug)]
pub struct Key {
    /// For logs and the usage log.
    pub name: Arc<str>,
    /// Its team.
    pub team: Option<Arc<str>>,
    /// Its secrets: hashes and anonymous forms.
    pub secrets: Box<[KeySecret]>,
    is_enabled: bool,
    expires: Option<u64>,
    levels: Box<[KeyLevel]>,
    policy_version: u64,
}

/// A policy with the account that it is held against.
#[derive(Clone, Debug)]
pub struct KeyLevel {
    /// Whose.
    pub kind: AccountKind,
    /// The policy.
    pub policy: Arc<Policy>,
    /// The account.
    pub account: Arc<Account>,
}

impl KeyLevel {
    /// For the ledger.
    pub fn budget_level(&self) -> Level<'_> {
        Level {
            account: &self.account,
            kind: self.kind,
            budgets: &self.policy.budgets,
            observes: self.policy.mode == Mode::Observe,
        }
    }
}

impl Key {
    /// Its state at a Unix time, in seconds.
    pub fn state(&self, unix_seconds: u64) -> KeyState {
        if !self.is_enabled {
            KeyState::Disabled
        } else if self.expires.is_some_and(|end| unix_seconds >= end) {
            KeyState::Expired
        } else {
            KeyState::Active
        }
    }

    /// Its levels: the key, its team, its organisation.
    pub fn levels(&self) -> &[KeyLevel] {
        &self.levels
    }

    /// A number that changes with the policy of any of its levels.
    pub fn policy_version(&self) -> u64 {
        self.policy_version
    }

    /// The rule by which its responses are cached: the strictest of its levels. `None`: they are not.
    pub fn cache(&self) -> Option<CacheRule> {
        self.levels.iter().filter_map(|level| level.policy.cache).reduce(CacheRule::stricter)
    }

    /// A budget may refuse its requests, so they must be journaled.
    pub fn is_budgeted(&self) -> bool {
        let limits = |level: &KeyLevel| level.policy.mode == Mode::Enforce && level.policy.budgets.is_limited();
        self.levels.iter().any(limits)
    }
}

/// The snapshot. It never changes; a reload makes another one.
#[derive(Debug, Default)]
pub struct KeyRing {
    /// By hash. The map hashes with a key of the process's own, so the place of an entry says nothing about it.
    secrets: HashMap<KeyHash, (Arc<Key>, Option<u64>)>,
}

impl KeyRing {
    /// A ring of these keys, with the accounts of `ledger`. Nothing of the ledger changes but that it has an account for each name, whose
    /// budgets are claimed if a store has them, so a configuration that is refused later has no effect on a request.
    ///
    /// # Errors
    /// A name or secret twice, a team that is not there, or one of the bounds of this module.
    pub fn new(keys: &[KeySettings], scopes: &[Scope], ledger: &Ledger) -> Result<Self, KeyError> {
        if keys.len() > KEYS_MAX {
            return Err(KeyError::TooManyKeys(keys.len()));
        }
        let mut shared: HashMap<(AccountKind, &str), KeyLevel> = HashMap::new();
        for scope in scopes {
            check_name(&scope.name)?;
            check_policy(&scope.name, &scope.policy)?;
            let level = level(ledger, scope.kind, &scope.name, &scope.policy);
            if shared.insert((scope.kind, &*scope.name), level).is_some() {
                return Err(KeyError::NameTwice(scope.name.to_string()));
            }
        }
        let mut names = HashSet::new();
        let mut secrets = HashMap::new();
        for key in keys {
            check_name(&key.name)?;
            check_policy(&key.name, &key.policy)?;
            if !names.insert(&key.name) {
                return Err(KeyError::NameTwice(key.name.to_string()));
            }
            if key.secrets.is_empty() || key.secrets.len() > SECRETS_MAX {
                return Err(KeyError::Secrets(key.name.to_string(), key.secrets.len()));
            }
            let found = Arc::new(resolve(key, &shared, ledger)?);
            for secret in &key.secrets {
                if secrets.insert(secret.hash, (Arc::clone(&found), secret.until)).is_some() {
                    return Err(KeyError::SecretTwice(key.name.to_string()));
                }
            }
        }
        Ok(Self { secrets })
    }

    /// The key that a client has sent, if it may be used at this Unix time, in seconds.
    ///
    /// # Errors
    /// Why it may not.
    pub fn find(&self, sent: &[u8], unix_seconds: u64) -> Result<&Arc<Key>, Denial> {
        if sent.is_empty() {
            return Err(Denial::NoKey);
        }
        if !is_well_formed(sent) {
            return Err(Denial::UnknownKey);
        }
        let (key, until) = self.secrets.get(&KeyHash::of(sent)).ok_or(Denial::UnknownKey)?;
        match key.state(unix_seconds) {
            _ if until.is_some_and(|end| unix_seconds >= end) => Err(Denial::SupersededKey),
            KeyState::Disabled => Err(Denial::DisabledKey),
            KeyState::Expired => Err(Denial::ExpiredKey),
            KeyState::Active => Ok(key),
        }
    }

    /// All keys, by name.
    pub fn keys(&self) -> Vec<&Arc<Key>> {
        let mut keys: Vec<_> = self.secrets.values().map(|(key, _)| key).collect();
        keys.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        keys.dedup_by(|one, other| one.name == other.name);
        keys
    }

    /// No key at all.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }
}

fn resolve(
    key: &KeySettings,
    shared: &HashMap<(AccountKind, &str), KeyLevel>,
    ledger: &Ledger,
) -> Result<Key, KeyError> {
    let mut levels = Vec::with_capacity(LEVELS_MAX);
    levels.push(level(ledger, AccountKind::Key, &key.name, &key.policy));
    for (kind, name) in [(AccountKind::Team, &key.team), (AccountKind::Organization, &key.organization)] {
        if let Some(name) = name {
            let level = shared.get(&(kind, &**name));
            levels.push(level.ok_or_else(|| KeyError::NoScope(key.name.to_string(), name.to_string()))?.clone());
        }
    }
    Ok(Key {
        name: Arc::clone(&key.name),
        team: key.team.clone(),
        secrets: key.secrets.clone().into(),
        is_enabled: key.is_enabled,
        expires: key.expires,
        policy_version: policy::version(levels.iter().map(|level| &*level.policy)),
        levels: levels.into(),
    })
}

fn level(ledger: &Ledger, kind: AccountKind, name: &str, policy: &Arc<Policy>) -> KeyLevel {
    let account = ledger.budgeted_account(AccountId::new(kind, name), &policy.budgets);
    KeyLevel { kind, policy: Arc::clone(policy), account }
}

fn check_name(name: &str) -> Result<(), KeyError> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if is_name { Ok(()) } else { Err(KeyError::Name(name.chars().take(NAME_BYTES_MAX).collect())) }
}

fn check_policy(name: &str, policy: &Policy) -> Result<(), KeyError> {
    let tools = policy.tools_allowed.as_ref().map_or(0, Vec::len);
    let longest = policy.models_allowed.len().max(policy.models_denied.len()).max(tools).max(policy.sources.len());
    if longest > PATTERNS_MAX { Err(KeyError::TooManyPatterns(name.to_owned(), longest)) } else { Ok(()) }
}

/// Why there is no ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// So many.
    TooManyKeys(usize),
    /// A name that is empty, too long, or has a control character.
    Name(String),
    /// A key, team or organisation twice.
    NameTwice(String),
    /// The key of this name has so many secrets.
    Secrets(String, usize),
    /// A secret of the key of this name belongs to another one too.
    SecretTwice(String),
    /// The key of this name is in a team or organisation that is not there.
    NoScope(String, String),
    /// A list in the policy of this name is so long.
    TooManyPatterns(String, usize),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyKeys(count) => write!(f, "{count} virtual keys; the most is {KEYS_MAX}"),
            Self::Name(name) => {
                write!(f, "`{}`: a name has 1 to {NAME_BYTES_MAX} bytes and no control character", name.escape_debug())
            }
            Self::NameTwice(name) => {
                write!(f, "`{name}` is there twice: give each key, team and organisation one entry")
            }
            Self::Secrets(name, count) => {
                write!(f, "key `{name}` has {count} hashes; it must have 1 to {SECRETS_MAX}")
            }
            Self::SecretTwice(name) => {
                write!(f, "a hash of key `{name}` is there twice: make a new key for one of them")
            }
            Self::NoScope(name, scope) => write!(f, "key `{name}` is in `{scope}`, which is not defined: define it"),
            Self::TooManyPatterns(name, count) => {
                write!(f, "a list in the policy of `{name}` has {count} entries; the most is {PATTERNS_MAX}")
            }
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{budget::Budgets, keys::NewKey};

    fn settings(name: &str, secrets: Vec<KeySecret>) -> KeySettings {
        KeySettings {
            name: name.into(),
            secrets,
            is_enabled: true,
            expires: None,
            policy: Arc::default(),
            team: None,
            organization: None,
        }
    }

    fn secret(key: &NewKey, until: Option<u64>) -> KeySecret {
        KeySecret { hash: key.hash, shown: key.shown.as_str().into(), until }
    }

    fn found(ring: &KeyRing, key: &NewKey, at: u64) -> Result<String, Denial> {
        ring.find(key.text.expose(), at).map(|key| key.name.to_string())
    }

    #[test]
    fn a_key_is_found_in_the_states_in_which_it_may_be_used() {
        let keys = [(); 4].map(|()| NewKey::generate().unwrap());
        let [active, disabled, expiring, stranger] = &keys;
        let ring = KeyRing::new(
            &[
                settings("active", vec![secret(active, None)]),
                KeySettings { is_enabled: false, ..settings("disabled", vec![secret(disabled, None)]) },
                KeySettings { expires: Some(1_000), ..settings("expiring", vec![secret(expiring, None)]) },
            ],
            &[],
            &Ledger::default(),
        )
        .unwrap();
        assert_eq!(found(&ring, active, 0), Ok("active".into()));
        assert_eq!(found(&ring, disabled, 0), Err(Denial::DisabledKey));
        assert_eq!(found(&ring, expiring, 999), Ok("expiring".into()));
        assert_eq!(found(&ring, expiring, 1_000), Err(Denial::ExpiredKey));
        assert_eq!(found(&ring, stranger, 0), Err(Denial::UnknownKey));
        assert_eq!(ring.find(b"", 0).unwrap_err(), Denial::NoKey);
        assert_eq!(ring.find(b"sk-weir-short", 0).unwrap_err(), Denial::UnknownKey);
        let mut almost = active.text.expose().to_vec();
        *almost.last_mut().unwrap() ^= 1;
        assert!(ring.find(&almost, 0).is_err());
    }

    #[test]
    fn a_rotation_overlaps_and_keeps_the_account() {
        let (old, new) = (NewKey::generate().unwrap(), NewKey::generate().unwrap());
        let ledger = Ledger::default();
        let before = KeyRing::new(&[settings("a", vec![secret(&old, None)])], &[], &ledger).unwrap();
        let during =
            KeyRing::new(&[settings("a", vec![secret(&old, Some(500)), secret(&new, None)])], &[], &ledger).unwrap();
        assert!(found(&during, &old, 499).is_ok() && found(&during, &new, 499).is_ok());
        assert_eq!(found(&during, &old, 500), Err(Denial::SupersededKey));
        assert!(found(&during, &new, 500).is_ok() && found(&before, &new, 0).is_err());
        let account =
            |ring: &KeyRing, key: &NewKey| Arc::clone(&ring.find(key.text.expose(), 0).unwrap().levels()[0].account);
        assert!(Arc::ptr_eq(&account(&before, &old), &account(&during, &new)));
        let [key] = &during.keys()[..] else { panic!("{:?}", during.keys()) };
        assert_eq!(
            (key.state(0), key.secrets.len(), &*key.secrets[1].shown),
            (KeyState::Active, 2, new.shown.as_str())
        );
    }

    #[test]
    fn keys_of_a_team_share_its_account_and_its_limits() {
        let (one, other) = (NewKey::generate().unwrap(), NewKey::generate().unwrap());
        let policy =
            Arc::new(Policy { budgets: Budgets { day_tokens: Some(1), ..Budgets::default() }, ..Policy::default() });
        let team = Scope { kind: AccountKind::Team, name: "t".into(), policy };
        let of_team = |name, key| KeySettings { team: Some("t".into()), ..settings(name, vec![secret(key, None)]) };
        let keys = [of_team("a", &one), of_team("b", &other)];
        let ring = KeyRing::new(&keys, &[team], &Ledger::default()).unwrap();
        let level = |key: &NewKey| &ring.find(key.text.expose(), 0).unwrap().levels()[1];
        assert!(Arc::ptr_eq(&level(&one).account, &level(&other).account));
        assert!(ring.find(one.text.expose(), 0).unwrap().is_budgeted());
        assert_eq!(
            KeyRing::new(&keys, &[], &Ledger::default()).unwrap_err(),
            KeyError::NoScope("a".into(), "t".into())
        );
    }

    #[test]
    fn mistakes_of_a_configuration_are_named() {
        let key = NewKey::generate().unwrap();
        let ledger = Ledger::default();
        let one = settings("a", vec![secret(&key, None)]);
        let ring = |keys: &[KeySettings]| KeyRing::new(keys, &[], &ledger).map(drop);
        assert_eq!(ring(&[one.clone(), one.clone()]), Err(KeyError::NameTwice("a".into())));
        let same = settings("b", vec![secret(&key, None)]);
        assert_eq!(ring(&[one.clone(), same]), Err(KeyError::SecretTwice("b".into())));
        assert_eq!(ring(&[settings("a", Vec::new())]), Err(KeyError::Secrets("a".into(), 0)));
        assert!(matches!(ring(&[settings("a\n", vec![secret(&key, None)])]), Err(KeyError::Name(_))));
    }
}
