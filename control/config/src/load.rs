//! From a file, or from a text, to a snapshot.

use std::cell::LazyCell;
use std::io;
use std::path::Path;

use crate::checks;
use crate::diagnostic::{Diagnostics, Problems};
use crate::document;
use crate::reader::{Reader, TableReader};
use crate::section::Section as _;
use crate::sections::FileSection;
use crate::snapshot::Snapshot;
use crate::surroundings::{Machine, Running, Surroundings};

/// Bytes of a configuration file. Default 1 MiB: thousands of listeners fit; what is larger is not a configuration.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Loads and checks a file. `env` answers for environment variables, usually `&|name| std::env::var(name).ok()`.
///
/// Blocks on the file system, so it belongs on the control thread.
///
/// # Errors
/// Every mistake that was found, with its place and its remedy.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Snapshot, Diagnostics> {
    read(path, &Machine::new(env))
}

/// As [`load`], and tries what a start needs of this machine besides: the addresses, and the file of the access log. It leaves
/// nothing behind. A resource that a running gateway of this machine holds is noted.
///
/// # Errors
/// As [`load`].
pub fn rehearse(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Snapshot, Diagnostics> {
    read(path, &Machine::new(env).rehearsing())
}

/// As [`load`], away from the machine that the file is for, or as another user: environment variables and files that are not here, or
/// not to be read, are noted. The result has gaps where they would be, so it is not to be run. [`redacted`](crate::redacted) has no gaps.
///
/// # Errors
/// As [`load`].
pub fn check_offline(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Snapshot, Diagnostics> {
    read(path, &Machine::new(env).offline())
}

/// As [`load`], for a gateway that runs: what needs a restart is checked as it is, not as it is written.
///
/// # Errors
/// As [`load`].
pub fn reload(path: &Path, env: &dyn Fn(&str) -> Option<String>, running: Running) -> Result<Snapshot, Diagnostics> {
    read(path, &Machine::new(env).under(running))
}

fn read(path: &Path, machine: &Machine<'_>) -> Result<Snapshot, Diagnostics> {
    let name = path.display().to_string();
    let contents = machine.file(path, FILE_BYTES_MAX).map_err(|error| {
        let help = match error.kind() {
            io::ErrorKind::NotFound => "name the file with --config, or start from examples/weir.toml",
            io::ErrorKind::PermissionDenied => "let the user of this process read it",
            _ => "name a regular file of at most 1 MiB",
        };
        Diagnostics::whole_file(&name, format!("cannot read the configuration: {error}"), help)
    })?;
    let source = String::from_utf8(contents.bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("the configuration is not UTF-8 (line {line})");
        Diagnostics::whole_file(&name, message, "save it as UTF-8, which TOML requires")
    })?;
    let directory = path.parent().unwrap_or(Path::new(""));
    check(&source, &name, directory, machine)
}

/// Checks a text: the pure core of [`load`]. `name` stands in diagnostics; relative paths in the text start at `directory`.
///
/// # Errors
/// As [`load`].
pub fn check(
    source: &str,
    name: &str,
    directory: &Path,
    surroundings: &dyn Surroundings,
) -> Result<Snapshot, Diagnostics> {
    if source.len() as u64 > FILE_BYTES_MAX {
        let message = format!("the configuration has more than {FILE_BYTES_MAX} bytes");
        return Err(Diagnostics::whole_file(name, message, "is it the right file?"));
    }
    let mut problems = Problems::new(name, source);
    let Some(document) = document::parse(source, &mut problems) else {
        return Err(problems.finish());
    };
    let mut reader =
        Reader { surroundings, directory, problems, root: LazyCell::new(FileSection::info), unread: Vec::new() };
    let file = FileSection::read(&mut TableReader::root(&mut reader, document.get_ref()));
    let mut snapshot = checks::snapshot(file, &mut reader);
    let failed = reader.problems.has_errors();
    let diagnostics = reader.problems.finish();
    if failed {
        return Err(diagnostics);
    }
    snapshot.warnings = diagnostics;
    Ok(snapshot)
}
