//! The name of a gateway in the store, which survives its process: a file in the directory of the state.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use aws_lc_rs::rand;

/// The file.
const FILE: &str = "store-identity";

/// The directory of the journal, in that of the state. A copy of the file is there, beside the amounts that the store knows by this name.
const JOURNAL: &str = "journal";

/// The identity of a gateway, and the epoch of the store that it knew last.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    pub gateway: String,
    pub epoch: String,
}

/// The contents of a file.
enum Found {
    Good { gateway: String, epoch: String },
    Damaged,
    Missing,
}

impl Found {
    fn read(path: &Path) -> io::Result<Self> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Missing),
            Err(error) => return Err(error),
        };
        let text = String::from_utf8_lossy(&bytes);
        let mut words = text.split_ascii_whitespace();
        let gateway = words.next().filter(|word| is_token(word)).map(str::to_owned);
        let epoch = words.next().filter(|word| is_token(word)).unwrap_or_default().to_owned();
        Ok(gateway.map_or(Self::Damaged, |gateway| Self::Good { gateway, epoch }))
    }
}

impl Identity {
    /// Reads the file, or makes it. A file that is lost or damaged gets the name of its copy: with another one, the store would count twice what
    /// the journal has.
    ///
    /// # Errors
    /// It can be neither read nor written, or both are damaged.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        let (path, copy) = (state.join(FILE), state.join(JOURNAL).join(FILE));
        let (own, copied) = (Found::read(&path)?, Found::read(&copy)?);
        let is_copied = match (&own, &copied) {
            (Found::Good { gateway, .. }, Found::Good { gateway: copied, .. }) => gateway == copied,
            (_, copied) => matches!(copied, Found::Good { .. }),
        };
        let (gateway, epoch) = match (own, copied) {
            (Found::Good { gateway, epoch }, _) => (gateway, epoch),
            (_, Found::Good { gateway, .. }) => {
                tracing::warn!(path = %path.display(), "the name of the gateway in the store of budgets is read from its copy");
                (gateway, String::new())
            }
            (Found::Missing, Found::Missing) => (token()?, String::new()),
            _ => return Err(damaged(&path, &copy)),
        };
        let identity = Self { path, gateway, epoch };
        identity.write(&identity.path)?;
        if !is_copied {
            fs::create_dir_all(state.join(JOURNAL))?;
            identity.write(&copy)?;
        }
        Ok(identity)
    }

    /// Notes an epoch. A failure is no harm: a loss of the store's data together with a restart is then noticed by what was used.
    pub(super) fn set_epoch(&mut self, epoch: &str) {
        if self.epoch != epoch {
            epoch.clone_into(&mut self.epoch);
            if let Err(error) = self.write(&self.path) {
                tracing::warn!(%error, "the identity of the gateway in the store of budgets cannot be written");
            }
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let beside = path.with_extension("new");
        let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
        file.write_all(format!("{}\n{}\n", self.gateway, self.epoch).as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    }
}

fn damaged(path: &Path, copy: &Path) -> io::Error {
    let what = format!(
        "{} is damaged or lost, and so is {}; restore one of them from a backup. Without one, remove both: the gateway gets a new name, and the \
         store counts what it has used in the present day and month a second time until they end",
        path.display(),
        copy.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn is_token(word: &str) -> bool {
    word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// 128 random bits in hexadecimal.
///
/// # Errors
/// The system gives no randomness.
pub(super) fn token() -> io::Result<String> {
    let mut random = [0; 16];
    rand::fill(&mut random).map_err(|_| io::Error::other("the system gives no randomness"))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_with_its_epoch() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = Identity::open(folder.path()).expect("it is made");
        assert!(is_token(&first.gateway) && first.epoch.is_empty());
        let epoch = token().expect("randomness");
        first.set_epoch(&epoch);
        let second = Identity::open(folder.path()).expect("it is read");
        assert_eq!((&second.gateway, &second.epoch), (&first.gateway, &epoch));
    }

    #[test]
    fn a_file_that_is_lost_or_damaged_gets_its_name_from_the_journal() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, copy) = (folder.path().join(FILE), folder.path().join(JOURNAL).join(FILE));
        let name = |folder: &Path| Identity::open(folder).map(|identity| identity.gateway);
        let first = name(folder.path()).expect("it is made");
        for (file, other) in [(&path, &copy), (&copy, &path)] {
            fs::remove_file(file).expect("removed");
            assert_eq!(name(folder.path()).expect("it is read"), first);
            fs::write(file, b"\xff").expect("written");
            assert_eq!(name(folder.path()).expect("it is read"), first);
            assert_eq!(fs::read_to_string(file).expect("mended").lines().next(), Some(&*first));
            fs::write(other, "x").expect("written");
            fs::write(file, "x").expect("written");
            let error = name(folder.path()).expect_err("no name").to_string();
            assert!(error.contains("store-identity") && error.contains("a second time"), "{error}");
            fs::write(&path, format!("{first}\n")).expect("restored");
            assert_eq!(name(folder.path()).expect("it is read"), first);
        }
        // Another journal, which has used nothing of that name: the file decides.
        fs::remove_dir_all(folder.path().join(JOURNAL)).expect("removed");
        assert_eq!(name(folder.path()).expect("it is read"), first);
    }
}
