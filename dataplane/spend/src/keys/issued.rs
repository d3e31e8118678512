//! Keys that the admin API has issued. They are joined with those of the configuration, live in a file of the state, and survive
//! the process.

use std::{
    collections::{BTreeMap, HashSet},
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};

use super::{
    document::{DocumentError, KeyDocument, PolicyDocument, shared},
    issued_file::KeyFile,
    ring::{KEYS_MAX, KeySecret, KeySettings, SECRETS_MAX},
    secret::{KeyHash, NewKey},
};
use weir_base::time::rfc3339;

/// Issued keys. Default 10,000: a file of some 6 MB, which each change writes whole.
pub const ISSUED_MAX: usize = 10_000;

/// Bytes of a name, as in the configuration. Default 64.
pub const ISSUED_NAME_BYTES_MAX: usize = 64;

/// The file, in the directory of the state.
const FILE: &str = "keys.json";

/// A key that was issued.
#[derive(Clone, Debug)]
pub struct IssuedKey {
    /// As one of the configuration.
    pub settings: KeySettings,
    /// The listener that takes it. `None`: each one whose clients need a key.
    pub listener: Option<Arc<str>>,
    /// Unix time of its issue, in seconds.
    pub created: u64,
}

impl IssuedKey {
    /// The part that its operator may change.
    pub fn document(&self) -> KeyDocument {
        KeyDocument {
            listener: self.listener.as_deref().map(Into::into),
            enabled: self.settings.is_enabled,
            expires: self.settings.expires.map(rfc3339),
            policy: PolicyDocument::of(&self.settings.policy),
        }
    }

    fn set(&mut self, document: &KeyDocument) -> Result<(), DocumentError> {
        self.settings.policy = shared(&document.policy)?;
        self.settings.expires = document.expires()?;
        self.settings.is_enabled = document.enabled;
        self.listener = document.listener.as_deref().map(Into::into);
        Ok(())
    }

    fn is_for(&self, listener: &str) -> bool {
        self.listener.as_deref().is_none_or(|own| own == listener)
    }
}

/// Why an order was refused. Nothing has changed.
#[derive(Debug)]
pub enum IssueError {
    /// There is no directory for the file.
    NoState,
    /// A key has this name.
    Exists,
    /// No issued key has this name.
    NotFound,
    /// There are as many as there may be.
    Full,
    /// Their file would be longer than a process reads.
    TooLarge,
    /// The name is none.
    Name,
    /// The document is none of a key.
    Document(DocumentError),
    /// The key has as many texts that are still good as it may have.
    Texts,
    /// The old text is to be good until a time that is over.
    Past,
    /// The system gives no randomness.
    NoRandomness,
    /// The disk refuses.
    Disk(io::Error),
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoState => f.write_str("there is no directory for the keys"),
            Self::Exists => f.write_str("a key of this name is there"),
            Self::NotFound => f.write_str("the admin API has issued no key of this name"),
            Self::Full => write!(f, "there are {ISSUED_MAX} issued keys, which is the most"),
            Self::TooLarge => f.write_str("the file of the issued keys has no room for the change"),
            Self::Name => {
                write!(
                    f,
                    "a name has 1 to {ISSUED_NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`, and is more than dots"
                )
            }
            Self::Document(error) => error.fmt(f),
            Self::Texts => write!(f, "the key has {SECRETS_MAX} texts that are good, which is the most"),
            Self::Past => f.write_str("`old_until` is over"),
            Self::NoRandomness => f.write_str("the system gives no randomness"),
            Self::Disk(error) => write!(f, "the file of keys cannot be written: {error}"),
        }
    }
}

impl std::error::Error for IssueError {}

impl From<DocumentError> for IssueError {
    fn from(error: DocumentError) -> Self {
        Self::Document(error)
    }
}

type Keys = BTreeMap<Arc<str>, IssuedKey>;

/// The issued keys of the process. For control threads: each change waits for the disk.
#[derive(Debug)]
pub struct IssuedKeys {
    /// `None`: there is no state.
    file: Option<KeyFile>,
    /// One change at a time.
    changing: Mutex<()>,
    /// Held for a copy of the pointer.
    keys: Mutex<Arc<Keys>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IssuedKeys {
    /// The keys of a directory, which this process has for itself. `None`: none can be issued.
    ///
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn open(state: Option<&Path>) -> io::Result<Self> {
        let file = state.map(|state| KeyFile::new(state.join(FILE)));
        let keys = file.as_ref().map_or_else(|| Ok(Keys::new()), KeyFile::read)?;
        Ok(Self { file, changing: Mutex::default(), keys: Mutex::new(Arc::new(keys)) })
    }

    /// Reads the file again, since another process has had it.
    ///
    /// # Errors
    /// The file cannot be read, or is none. The keys stay as they are.
    pub fn read_again(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let _one = lock(&self.changing);
        *lock(&self.keys) = Arc::new(file.read()?);
        Ok(())
    }

    /// Keys can be issued.
    pub fn has_state(&self) -> bool {
        self.file.is_some()
    }

    /// All, by name.
    pub fn all(&self) -> Arc<BTreeMap<Arc<str>, IssuedKey>> {
        lock(&self.keys).clone()
    }

    /// Issues a key at a Unix time, in seconds. The caller has looked for the name among the keys of the configuration.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub fn issue(&self, name: &str, document: &KeyDocument, now: u64) -> Result<(IssuedKey, NewKey), IssueError> {
        check_name(name)?;
        let new = NewKey::generate().map_err(|_| IssueError::NoRandomness)?;
        let issued = self.change(|keys| {
            if keys.contains_key(name) {
                return Err(IssueError::Exists);
            }
            if keys.len() >= ISSUED_MAX {
                return Err(IssueError::Full);
            }
            let settings = KeySettings {
                name: name.into(),
                secrets: vec![secret(&new)],
                is_enabled: true,
                expires: None,
                policy: Arc::default(),
                team: None,
                organization: None,
            };
            let mut key = IssuedKey { settings, listener: None, created: now };
            key.set(document)?;
            keys.insert(name.into(), key.clone());
            Ok(key)
        })?;
        Ok((issued, new))
    }

    /// Changes what its operator may write, by the members of `patch` (RFC 7396).
    ///
    /// # Errors
    /// See [`IssueError`].
    pub fn patch(&self, name: &str, patch: Map<String, Value>) -> Result<IssuedKey, IssueError> {
        self.change_one(name, |key| {
            let document = key.document().patched(patch)?;
            Ok(key.set(&document)?)
        })
    }

    /// Gives a key another text. The one before is good until `old_until`, a Unix time in seconds; `None`: no longer.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub fn rotate(&self, name: &str, old_until: Option<u64>, now: u64) -> Result<(IssuedKey, NewKey), IssueError> {
        if old_until.is_some_and(|until| until <= now) {
            return Err(IssueError::Past);
        }
        let new = NewKey::generate().map_err(|_| IssueError::NoRandomness)?;
        let key = self.change_one(name, |key| {
            let secrets = &mut key.settings.secrets;
            match old_until {
                // The reason of a rotation may be that the text is known to others: all earlier ones end.
                None => secrets.clear(),
                Some(until) => {
                    secrets.retain(|old| old.until.is_none_or(|end| end > now));
                    secrets.iter_mut().for_each(|old| old.until = Some(old.until.map_or(until, |end| end.min(until))));
                }
            }
            if secrets.len() >= SECRETS_MAX {
                return Err(IssueError::Texts);
            }
            secrets.push(secret(&new));
            Ok(())
        })?;
        Ok((key, new))
    }

    /// Removes a key. The use of its account stays: another key of this name goes on with it.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub fn remove(&self, name: &str) -> Result<IssuedKey, IssueError> {
        self.change(|keys| keys.remove(name).ok_or(IssueError::NotFound))
    }

    fn change_one(
        &self,
        name: &str,
        act: impl FnOnce(&mut IssuedKey) -> Result<(), IssueError>,
    ) -> Result<IssuedKey, IssueError> {
        self.change(|keys| {
            let key = keys.get_mut(name).ok_or(IssueError::NotFound)?;
            act(key)?;
            Ok(key.clone())
        })
    }

    /// Changes a copy, writes it, and only then shows it.
    fn change<T>(&self, act: impl FnOnce(&mut Keys) -> Result<T, IssueError>) -> Result<T, IssueError> {
        let file = self.file.as_ref().ok_or(IssueError::NoState)?;
        let _one = lock(&self.changing);
        let mut keys = Keys::clone(&self.all());
        let result = act(&mut keys)?;
        file.write(&keys)?;
        *lock(&self.keys) = Arc::new(keys);
        Ok(result)
    }

    /// The keys of a listener: those of its configuration, and the issued ones that it takes. A name or a hash of the configuration
    /// takes the place of an issued key, and so do its keys where both are more than [`KEYS_MAX`].
    pub fn joined(&self, listener: &str, configured: &[KeySettings]) -> Vec<KeySettings> {
        let names: HashSet<&str> = configured.iter().map(|key| &*key.name).collect();
        let mut hashes: HashSet<KeyHash> = hashes(configured).collect();
        let mut all = configured.to_vec();
        for key in self.all().values().filter(|key| key.is_for(listener)) {
            let settings = std::slice::from_ref(&key.settings);
            let is_shadowed =
                names.contains(&*key.settings.name) || self::hashes(settings).any(|one| hashes.contains(&one));
            if is_shadowed || all.len() >= KEYS_MAX {
                tracing::warn!(key = %key.settings.name, listener, "an issued key has no effect: the configuration has its place");
                continue;
            }
            hashes.extend(self::hashes(settings));
            all.push(key.settings.clone());
        }
        all
    }
}

fn hashes(keys: &[KeySettings]) -> impl Iterator<Item = KeyHash> + '_ {
    keys.iter().flat_map(|key| key.secrets.iter().map(|secret| secret.hash))
}

fn secret(new: &NewKey) -> KeySecret {
    KeySecret { hash: new.hash, shown: new.shown.as_str().into(), until: None }
}

/// A name is a part of admin paths, in which dots alone would lead elsewhere.
fn check_name(name: &str) -> Result<(), IssueError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = (1..=ISSUED_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    if is_name && name.bytes().any(|byte| byte != b'.') { Ok(()) } else { Err(IssueError::Name) }
}

#[cfg(test)]
mod tests;
