//! Surroundings that stand in memory, for tests that need no file system.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use weir_config::surroundings::{FileContents, Listening, Running, Surroundings};
use weir_engine::settings::{Address, TlsClientSettings, TlsServerSettings};
use weir_engine::tls::TlsConfigError;

use self::knee::knee;

pub mod knee;

/// Environment variables and files by name. TLS contexts are not built: their files hold no real keys.
#[derive(Clone, Default)]
pub struct Memory {
    pub variables: HashMap<&'static str, String>,
    pub files: HashMap<&'static str, FileContents>,
    pub memory: Option<u64>,
    pub running: Option<Running>,
    pub is_offline: bool,
    /// Addresses at which somebody listens, and the one of them where that is a gateway.
    pub taken: Vec<&'static str>,
    pub gateway: Option<&'static str>,
    /// One at which a process listens that cannot be seen.
    pub hidden: Option<&'static str>,
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
                ("UNLEASH_TOKEN", "*:development.0123456789abcdef".to_owned()),
                ("OTHER_TOKEN", "*:production.0123456789abcdef".to_owned()),
                ("EMPTY", String::new()),
            ]),
            files: HashMap::from([
                ("server.crt", file("certificate", 0o644)),
                ("server.key", file("key", 0o600)),
                ("open.key", file("key", 0o644)),
                ("ca.crt", file("authorities", 0o644)),
                ("password", file("from a file\n", 0o400)),
                ("group-password", file("x", 0o640)),
                ("users.acl", file("user alice on >canary ~a* +get\nuser default off\n", 0o600)),
                ("users-idle.acl", file("user alice on ~a* +get\nuser default off\n", 0o600)),
                ("users-open.acl", file("user alice on >canary\n", 0o644)),
                (
                    "users-wrong.acl",
                    file("# no comments\nuser\nuser a +nope\nuser a on\nuser b >canary ~* ~x\nuser c (+get\n", 0o600),
                ),
                ("userlist.txt", file("; of PgBouncer\n\"listed\" \"canary\"\n", 0o600)),
                ("users-wrong.txt", file("\"listed\" \"canary\"\nbob canary\n", 0o600)),
                ("users.htpasswd", file("alice:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n", 0o600)),
                ("wrong.htpasswd", file("# comment\nalice\nbob:$apr1$canary$x\ncarol:canary\n", 0o600)),
                (
                    "jwks.json",
                    file(
                        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
                        0o644,
                    ),
                ),
                ("secret-jwks.json", file(r#"{"keys":[{"kty":"oct","k":"canary"}]}"#, 0o644)),
                ("knee.json", file(&knee(|_| ()), 0o644)),
                (
                    "knee-quick.json",
                    file(&knee(|it| it["shape"]["row"] = json!("cache, real back end, quick look")), 0o644),
                ),
                (
                    "knee-none.json",
                    file(&knee(|it| it["knee"]["outcome"] = json!({ "below": { "rate": 9.0 } })), 0o644),
                ),
                ("knee-at-ceiling.json", file(&knee(|it| it["knee"]["outcome"] = json!("at_ceiling")), 0o644)),
                ("knee-no-side.json", file(&knee(|it| it["knee"]["clean"] = json!(null)), 0o644)),
                ("knee-postgres.json", file(&knee(|it| it["scenario"] = json!("protocol = \"postgres\"")), 0o644)),
                ("knee-of-4.json", file(&knee(|it| it["shape"]["budget_vcpu"] = json!(4.0)), 0o644)),
                ("knee-of-half.json", file(&knee(|it| it["shape"]["budget_vcpu"] = json!(0.5)), 0o644)),
                ("knee-no-scenario.json", file(&knee(|it| it["scenario"] = json!("mode = \"open\"")), 0o644)),
                ("comparison.json", file("{ \"schema\": \"weir.lab.compare/1\" }", 0o644)),
                ("something.json", file("{ \"a\": [1, 2] }", 0o644)),
                ("half.json", file("{ \"schema\": \"weir.lab", 0o644)),
            ]),
            memory: Some(8 << 30),
            running: None,
            is_offline: false,
            taken: Vec::new(),
            gateway: None,
            hidden: None,
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

    fn cores(&self) -> usize {
        2
    }

    fn running(&self) -> Option<Running> {
        self.running
    }

    fn is_offline(&self) -> bool {
        self.is_offline
    }

    fn listen(&self, address: &Address, _: bool) -> Listening {
        let address = address.to_string();
        if self.hidden == Some(&*address) {
            return Listening::ByHidden;
        }
        match (self.taken.iter().find(|taken| address == **taken), self.gateway) {
            (Some(taken), Some(gateway)) if *taken == gateway => Listening::ByGateway("process 1 (weir)".to_owned()),
            (Some(_), _) => {
                Listening::Refused(io::Error::new(io::ErrorKind::AddrInUse, "process 2 (x) listens there already"))
            }
            (None, _) => Listening::Possible,
        }
    }

    fn append(&self, path: &Path) -> io::Result<()> {
        if path.starts_with("/none") { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1_800_000_000)
    }

    fn kernel(&self) -> Option<String> {
        Some("6.18.1".to_owned())
    }

    fn cpu_model(&self) -> Option<String> {
        Some("Slow 2000".to_owned())
    }

    fn tls_server(&self, _: &TlsServerSettings) -> Result<(), TlsConfigError> {
        Ok(())
    }

    fn tls_client(&self, _: &TlsClientSettings) -> Result<(), TlsConfigError> {
        Ok(())
    }
}
