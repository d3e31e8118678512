//! `weir upgrade` and SIGUSR2: another process takes the sockets, and no client notices; if it cannot, nothing changes.

mod failures;
mod life;
mod load;
mod manager;
mod moves;
mod takeover;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use std::time::Duration;

use tempfile::TempDir;
use weir_tests::gateway::{self, Config, Gateway};
use weir_tests::process::Process;
use weir_tests::server::Server;

/// The time that a process may take from its upgrade to its end when no client holds it up.
const END_WAIT: Duration = Duration::from_secs(10);

/// A place for the gateway program that a test may replace.
struct ProgramFile {
    folder: TempDir,
}

impl ProgramFile {
    /// With a link to the program, as releases are often installed.
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        place.install();
        place
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("weir")
    }

    fn config(&self, server: &Server) -> Config {
        let mut config = Config::to(&server.address);
        config.program = Some(self.path());
        config
    }

    /// The real program.
    fn install(&self) {
        self.put(|new| symlink(gateway::program(), new).expect("a link"));
    }

    /// A program that does this instead.
    fn install_script(&self, lines: &str) {
        self.put(|new| {
            fs::write(new, format!("#!/bin/sh\n{lines}\n")).expect("a script");
            fs::set_permissions(new, fs::Permissions::from_mode(0o755)).expect("executable");
        });
    }

    /// Made beside and moved, as an installer does.
    fn put(&self, make: impl FnOnce(&Path)) {
        let new = self.folder.path().join("weir.new");
        make(&new);
        fs::rename(&new, self.path()).expect("it takes its place");
    }
}

/// The old process has to end in order.
fn ends(mut old: Process, limit: Duration) {
    let status = old.wait(limit);
    assert!(status.success(), "the old process ended with {status}; the log:\n{}", old.log());
}

/// Runs `weir upgrade`, which has to fail with these words.
fn fails(gateway: &mut Gateway, words: &[&str]) {
    let output = gateway.request_upgrade();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    assert_eq!(gateway.process().try_wait(), None, "the old process serves");
}
