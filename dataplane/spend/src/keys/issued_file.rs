//! The file of issued keys: JSON with a version, replaced as a whole.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    document::{PolicyDocument, shared},
    issued::{ISSUED_MAX, IssueError, IssuedKey},
    ring::{KeySecret, KeySettings, SECRETS_MAX},
    secret::KeyHash,
};

/// The version of the form.
const VERSION: u32 = 1;

/// It is for its owner alone: names and policies of keys are in it, and their hashes.
const MODE: u32 = 0o600;

/// Bytes of the file. Default 256 MiB: [`ISSUED_MAX`] keys of some 600 bytes, with room for long lists of models. A longer one is neither
/// written nor read.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    keys: Vec<Record>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listener: Option<String>,
    enabled: bool,
    /// Unix time, in seconds.
    created: u64,
    /// Unix time, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    secrets: Vec<SecretRecord>,
    #[serde(default)]
    policy: PolicyDocument,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRecord {
    sha256: String,
    shown: String,
    /// Unix time, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

/// The file of a process.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    /// Bytes that it has at the most.
    pub(super) bytes_max: u64,
    /// Writes the names of a directory through to the disk.
    pub(super) sync_names: fn(&Path) -> io::Result<()>,
}

impl KeyFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, bytes_max: FILE_BYTES_MAX, sync_names: |directory| File::open(directory)?.sync_all() }
    }

    /// Reads the keys. Without the file there are none.
    ///
    /// # Errors
    /// The file cannot be read, is too long, or is none of this version. The text names the file and the key, never a hash.
    pub(super) fn read(&self) -> io::Result<BTreeMap<Arc<str>, IssuedKey>> {
        self.bytes()
            .and_then(|bytes| bytes.map_or_else(|| Ok(BTreeMap::new()), |bytes| keys(&bytes)))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }

    /// `None`: there is no file.
    fn bytes(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        // One more byte shows that there are more.
        file.take(self.bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > self.bytes_max {
            return Err(wrong(format!("it has more than {} bytes", self.bytes_max)));
        }
        Ok(Some(bytes))
    }

    /// Replaces the file: what is there when a process dies is the old one or the new one, whole. Returns once it is on the disk. If only
    /// its name cannot be written through, the new one is there, and is lost with the power at the most: that is logged.
    ///
    /// # Errors
    /// The keys are too many bytes, or the disk refuses. The old file is still there.
    pub(super) fn write(&self, keys: &BTreeMap<Arc<str>, IssuedKey>) -> Result<(), IssueError> {
        let document = Document { version: VERSION, keys: keys.values().map(record).collect() };
        let bytes = serde_json::to_vec(&document).map_err(|error| IssueError::Disk(error.into()))?;
        if bytes.len() as u64 > self.bytes_max {
            return Err(IssueError::TooLarge);
        }
        self.replace(&bytes).map_err(IssueError::Disk)?;
        if let Err(error) = (self.sync_names)(self.path.parent().unwrap_or(Path::new("."))) {
            tracing::error!(%error, file = %self.path.display(), "a change of the keys would not survive a loss of power");
        }
        Ok(())
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("json.new");
        // One that a process has left may be of another mode.
        if let Err(error) = fs::remove_file(&new)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(MODE).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }
}

/// The keys of a file.
fn keys(bytes: &[u8]) -> io::Result<BTreeMap<Arc<str>, IssuedKey>> {
    let document: Document = serde_json::from_slice(bytes).map_err(|error| {
        // The text of serde may quote a value of the file.
        wrong(format!("line {}, column {}: it is no file of keys", error.line(), error.column()))
    })?;
    if document.version != VERSION {
        return Err(wrong(format!("it has version {}; this program reads version {VERSION}", document.version)));
    }
    if document.keys.len() > ISSUED_MAX {
        return Err(wrong(format!("it has {} keys; the most is {ISSUED_MAX}", document.keys.len())));
    }
    let mut keys = BTreeMap::new();
    for record in document.keys {
        let name = record.name.escape_debug().to_string();
        let key = key(record).map_err(|what| wrong(format!("key `{name}`: {what}")))?;
        if keys.insert(Arc::clone(&key.settings.name), key).is_some() {
            return Err(wrong(format!("key `{name}` is there twice")));
        }
    }
    Ok(keys)
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn key(record: Record) -> Result<IssuedKey, String> {
    if !(1..=SECRETS_MAX).contains(&record.secrets.len()) {
        return Err(format!("it has {} hashes; it must have 1 to {SECRETS_MAX}", record.secrets.len()));
    }
    let secret = |one: SecretRecord| {
        let hash = KeyHash::from_hex(&one.sha256).ok_or("a hash of it is no SHA-256")?;
        Ok::<_, &str>(KeySecret { hash, shown: one.shown.into(), until: one.until })
    };
    let secrets = record.secrets.into_iter().map(secret).collect::<Result<Vec<_>, _>>()?;
    Ok(IssuedKey {
        settings: KeySettings {
            name: record.name.into(),
            secrets,
            is_enabled: record.enabled,
            expires: record.expires,
            policy: shared(&record.policy).map_err(|error| error.to_string())?,
            team: None,
            organization: None,
        },
        listener: record.listener.map(Into::into),
        created: record.created,
    })
}

fn record(key: &IssuedKey) -> Record {
    let settings = &key.settings;
    let secret =
        |one: &KeySecret| SecretRecord { sha256: one.hash.to_hex(), shown: one.shown.to_string(), until: one.until };
    Record {
        name: settings.name.to_string(),
        listener: key.listener.as_deref().map(Into::into),
        enabled: settings.is_enabled,
        created: key.created,
        expires: settings.expires,
        secrets: settings.secrets.iter().map(secret).collect(),
        policy: PolicyDocument::of(&settings.policy),
    }
}
