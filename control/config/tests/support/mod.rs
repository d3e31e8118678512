//! Surroundings that stand in memory, for tests that need no file system.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use weir_config::surroundings::{FileContents, Surroundings};
use weir_engine::settings::{TlsClientSettings, TlsServerSettings};
use weir_engine::tls::TlsConfigError;

/// Environment variables and files by name. TLS contexts are not built: their files hold no real keys.
#[derive(Clone, Default)]
pub struct Memory {
    pub variables: HashMap<&'static str, String>,
    pub files: HashMap<&'static str, FileContents>,
    pub memory: Option<u64>,
}

impl Memory {
    /// Everything that the test files refer to.
    pub fn furnished() -> Self {
        let file = |bytes: &str, mode| FileContents {
            bytes: bytes.as_bytes().to_vec(),
            mode: Some(mode),
            is_root_owned: false,
        };
        Self {
            variables: HashMap::from([
                ("REDIS_PASSWORD", "correct horse battery staple".to_owned()),
                ("ADMIN_TOKEN", "0123456789abcdef0123456789abcdef".to_owned()),
                ("SHORT", "short".to_owned()),
                ("EMPTY", String::new()),
            ]),
            files: HashMap::from([
                ("server.crt", file("certificate", 0o644)),
                ("server.key", file("key", 0o600)),
                ("open.key", file("key", 0o644)),
                ("ca.crt", file("authorities", 0o644)),
                ("password", file("from a file\n", 0o400)),
                ("group-password", file("x", 0o640)),
            ]),
            memory: Some(8 << 30),
        }
    }
}

impl Surroundings for Memory {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn file(&self, path: &Path, bytes_max: u64) -> io::Result<FileContents> {
        let path = path.to_str().unwrap_or_default();
        let contents = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        if contents.bytes.len() as u64 > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(contents.clone())
    }

    fn memory_limit(&self) -> Option<u64> {
        self.memory
    }

    fn tls_server(&self, _: &TlsServerSettings) -> Result<(), TlsConfigError> {
        Ok(())
    }

    fn tls_client(&self, _: &TlsClientSettings) -> Result<(), TlsConfigError> {
        Ok(())
    }
}
