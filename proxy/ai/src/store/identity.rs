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

/// The identity of a gateway, and the epoch of the store that it knew last.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    pub gateway: String,
    pub epoch: String,
}

impl Identity {
    /// Reads the file, or makes it.
    ///
    /// # Errors
    /// It can be neither read nor written, or is damaged.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        let path = state.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let mut words = text.split_ascii_whitespace();
                let gateway = words.next().filter(|word| is_token(word)).map(str::to_owned);
                let damaged = || {
                    let what = format!(
                        "{} is damaged; remove it: the claims of this gateway end by themselves",
                        path.display()
                    );
                    io::Error::new(io::ErrorKind::InvalidData, what)
                };
                let gateway = gateway.ok_or_else(damaged)?;
                let epoch = words.next().filter(|word| is_token(word)).unwrap_or_default().to_owned();
                Ok(Self { path, gateway, epoch })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Self { path, gateway: token()?, epoch: String::new() };
                identity.write()?;
                Ok(identity)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes an epoch. A failure is no harm: a loss of the store's data together with a restart is then noticed by what was used.
    pub(super) fn set_epoch(&mut self, epoch: &str) {
        if self.epoch != epoch {
            epoch.clone_into(&mut self.epoch);
            if let Err(error) = self.write() {
                tracing::warn!(%error, "the identity of the gateway in the store of budgets cannot be written");
            }
        }
    }

    fn write(&self) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
        file.write_all(format!("{}\n{}\n", self.gateway, self.epoch).as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)
    }
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
        fs::write(folder.path().join(FILE), "x").expect("written");
        assert!(Identity::open(folder.path()).is_err());
    }
}
