//! The layout of the package.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::licences;
use crate::command::{command, output, run};
use crate::workspace::Workspace;

/// Files that go into the package as they are.
const FILES: [(&str, &str); 5] = [
    ("packaging/weir.service", "usr/lib/systemd/system/weir.service"),
    ("packaging/weir.toml", "etc/weir/weir.toml"),
    ("packaging/logrotate", "etc/logrotate.d/weir"),
    ("packaging/debian/copyright", "usr/share/doc/weir/copyright"),
    ("CHANGELOG.md", "usr/share/doc/weir/changelog"),
];

/// Scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Folders that the gateway writes into; `postinst` makes them its own.
const FOLDERS: [&str; 2] = ["var/lib/weir", "var/log/weir"];

/// The completion scripts.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/weir"),
    ("zsh", "usr/share/zsh/vendor-completions/_weir"),
    ("fish", "usr/share/fish/vendor_completions.d/weir.fish"),
];

/// Examples of the configuration.
const EXAMPLES: &str = "usr/share/doc/weir/examples";

/// Puts all files of the package below `stage`. The program itself writes its completion scripts and manual pages.
///
/// # Errors
/// A file cannot be read or written, or the program does not run here.
pub fn stage(workspace: &Workspace, binary: &Path, stage: &Path) -> Result<()> {
    for (source, target) in FILES {
        copy(&workspace.root.join(source), &stage.join(target), 0o644)?;
    }
    for script in SCRIPTS {
        copy(&workspace.root.join("packaging/debian").join(script), &stage.join("DEBIAN").join(script), 0o755)?;
    }
    for folder in FOLDERS {
        fs::create_dir_all(stage.join(folder))?;
    }
    let examples = workspace.root.join("examples");
    for example in [of_type(&examples, "toml")?, of_type(&examples.join("prometheus"), "yml")?].concat() {
        let name = example.strip_prefix(&examples).context("an example")?;
        copy(&example, &stage.join(EXAMPLES).join(name), 0o644)?;
    }
    program(binary, stage)?;
    let documents = stage.join("usr/share/doc/weir");
    fs::write(documents.join("third-party.txt"), licences::text(workspace)?)?;
    let mut zipped = of_type(&stage.join("usr/share/man/man1"), "1")?;
    zipped.extend(["changelog", "third-party.txt"].map(|name| documents.join(name)));
    zip(stage, &zipped)?;
    modes(stage)
}

/// The program without its symbols, and what it says of its command line.
fn program(binary: &Path, stage: &Path) -> Result<()> {
    let target = stage.join("usr/bin/weir");
    copy(binary, &target, 0o755)?;
    let program = target.to_string_lossy();
    run(&mut command(stage, &["strip", "--strip-unneeded", "--remove-section=.comment", &program]))?;
    for (shell, place) in COMPLETIONS {
        let script = output(&mut command(stage, &[&program, "completion", shell]))?;
        write(&stage.join(place), &script)?;
    }
    run(&mut command(stage, &[&program, "man", "usr/share/man/man1"]))
}

fn copy(source: &Path, target: &Path, mode: u32) -> Result<()> {
    let made = fs::create_dir_all(target.parent().unwrap_or(target)).and_then(|()| fs::copy(source, target));
    made.with_context(|| format!("{} does not become {}", source.display(), target.display()))?;
    Ok(fs::set_permissions(target, fs::Permissions::from_mode(mode))?)
}

fn write(target: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(target.parent().unwrap_or(target))?;
    Ok(fs::write(target, text)?)
}

/// The files of a folder with that ending, in the order of their names.
fn of_type(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut found: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|its| its == ending)).collect();
    found.sort();
    Ok(found)
}

/// Debian's policy: without name and time in the header, so that the same text makes the same file.
fn zip(stage: &Path, files: &[PathBuf]) -> Result<()> {
    let words = ["gzip", "-9n"].into_iter().map(str::to_owned);
    let words: Vec<_> = words.chain(files.iter().map(|file| file.to_string_lossy().into_owned())).collect();
    run(&mut command(stage, &words.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Restores the permissions that the builder's umask removed.
fn modes(stage: &Path) -> Result<()> {
    run(&mut command(stage, &["chmod", "--recursive", "u=rwX,go=rX", "."]))
}
